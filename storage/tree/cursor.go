package tree

import (
	"bytes"
	"fmt"
)

// maxDepth bounds a descent, so that a damaged file can't lead in circles. 32 levels hold more than any disk.
const maxDepth = 32

// source is the tree at one transaction: pages that don't change while it is in use.
type source struct {
	file     string
	data     []byte // the mapped file; at least pages*pageSize bytes
	pageSize int
	pages    uint64
	root     uint64

	writing  bool                // the pages will be written to: every page counts as verified, not only branches
	verified map[uint64]struct{} // pages that need not be verified again
	outside  bool                // a callback runs, whose panics are its own
}

func (s *source) corrupt(id uint64, format string, args ...any) *CorruptError {
	return &CorruptError{File: s.file, Offset: int64(id) * int64(s.pageSize), What: fmt.Sprintf(format, args...)}
}

// raw returns page id with its overflow pages, of which nothing is verified but that they are inside the file.
func (s *source) raw(id uint64) ([]byte, error) {
	if id < 2 || id >= s.pages {
		return nil, &CorruptError{File: s.file, Offset: -1, What: fmt.Sprintf("a reference to page %d of %d", id, s.pages)}
	}
	b := s.data[id*uint64(s.pageSize) : s.pages*uint64(s.pageSize)]
	n := uint64(order.Uint32(b[12:])) + 1
	if n > s.pages-id {
		return nil, s.corrupt(id, "page %d: %d overflow pages lie behind the end", id, n-1)
	}
	return b[:n*uint64(s.pageSize)], nil
}

// load returns page id, verified. first, unless nil, is the key that it must begin with.
func (s *source) load(id uint64, first []byte) (page, error) {
	b, err := s.raw(id)
	if err != nil {
		return page{}, err
	}
	p := page{id: id, buf: b, count: int(order.Uint16(b[10:])), leaf: order.Uint16(b[8:]) == flagLeaf}
	if _, ok := s.verified[id]; !ok {
		if err := p.verify(s.pageSize, id == s.root); err != nil {
			return page{}, s.corrupt(id, "%v", err)
		}
		if s.writing || !p.leaf {
			if s.verified == nil {
				s.verified = make(map[uint64]struct{})
			}
			s.verified[id] = struct{}{}
		}
	}
	return p, s.matches(&p, first)
}

// enter, with rescue deferred behind it, brackets code that is not a callback's.
func (s *source) enter() (was bool) {
	was, s.outside = s.outside, false
	return was
}

// rescue turns a panic into an error, unless a callback raised it: what was verified may have changed since, when the
// disk is failing.
func (s *source) rescue(err *error, was bool) {
	outside := s.outside
	if s.outside = was; outside {
		return
	}
	if r := recover(); r != nil {
		*err = damage(s.file, "read a page", r)
	}
}

func (s *source) matches(p *page, first []byte) error {
	if first != nil && (p.count == 0 || !bytes.Equal(p.key(0), first)) {
		return s.corrupt(p.id, "page %d does not begin with the key that its parent has for it", p.id)
	}
	return nil
}

// cursor walks over the rows of a source in the order of their keys. Pages that stay in its path are verified once.
type cursor struct {
	s     *source
	path  []level // from the root to the leaf
	depth int     // levels in use
	ahead ahead
}

type level struct {
	page page
	i    int // element of the row, or of the child that is the next level
}

// row returns the stored key and value that the cursor is at, or false at the end.
func (c *cursor) row() (key, value []byte, ok bool) {
	if c.depth == 0 {
		return nil, nil, false
	}
	l := &c.path[c.depth-1]
	if l.i >= l.page.count {
		return nil, nil, false
	}
	return l.page.key(l.i), l.page.value(l.i), true
}

// leaf returns the level of the leaf.
func (c *cursor) leaf() *level { return &c.path[c.depth-1] }

// descend goes to the leaf in which key belongs and to the first row there that is not below it; the row may be behind
// the last one of the leaf.
func (c *cursor) descend(key []byte) error {
	c.depth = 0
	id, first := c.s.root, []byte(nil)
	for {
		l, err := c.push(id, first)
		if err != nil {
			return err
		}
		if l.page.leaf {
			l.i = l.page.search(0, key)
			return nil
		}
		l.i = l.page.searchBranch(key)
		id, first = l.page.child(l.i), l.page.key(l.i)
	}
}

// push adds page id to the path. A page that was there before is not verified again.
func (c *cursor) push(id uint64, first []byte) (*level, error) {
	if c.depth == maxDepth {
		return nil, c.s.corrupt(id, "the tree is deeper than %d levels", maxDepth)
	}
	if c.depth == len(c.path) {
		c.path = append(c.path, level{})
	}
	l := &c.path[c.depth]
	if l.page.buf == nil || l.page.id != id {
		p, err := c.s.load(id, first)
		if err != nil {
			l.page.buf = nil
			return nil, err
		}
		l.page = p
	} else if err := c.s.matches(&l.page, first); err != nil {
		return nil, err
	}
	l.i = 0
	c.depth++
	return l, nil
}

// seek goes to the first row whose key is not below key.
func (c *cursor) seek(key []byte) error {
	if err := c.descend(key); err != nil {
		return err
	}
	if err := c.absent(); err != nil {
		return err
	}
	if l := c.leaf(); l.i >= l.page.count {
		return c.nextLeaf()
	}
	return nil
}

// next goes to the next row.
func (c *cursor) next() error {
	l := c.leaf()
	if l.i++; l.i < l.page.count {
		return nil
	}
	return c.nextLeaf()
}

// nextLeaf goes to the first row of the next leaf, or to the end.
func (c *cursor) nextLeaf() error {
	leaf, above := c.leaf().page, c.depth-2
	for d := above; d >= 0; d-- {
		l := &c.path[d]
		if l.i+1 >= l.page.count {
			continue
		}
		l.i++
		c.depth = d + 1
		if d == above {
			c.ahead.next(c.s, l)
		}
		for !l.page.leaf {
			var err error
			if l, err = c.push(l.page.child(l.i), l.page.key(l.i)); err != nil {
				return err
			}
		}
		if c.s.above(&leaf, &l.page) {
			return nil
		}
		return c.s.corrupt(leaf.id, "page %d reaches into the keys of page %d", leaf.id, l.page.id)
	}
	c.depth = 0
	return nil
}

// above reports whether the keys of q are above those of p.
func (s *source) above(p, q *page) bool {
	return p.count == 0 || q.count == 0 || bytes.Compare(p.key(p.count-1), q.key(0)) < 0
}

// absent verifies the rows left and right of where the cursor descended to, if they are in its leaf: a key that damage
// changed would be one of them.
func (c *cursor) absent() error {
	l := c.leaf()
	for i := max(l.i-1, 0); i <= l.i && i < l.page.count; i++ {
		if _, _, ok := unseal(l.page.key(i), l.page.value(i)); !ok {
			return c.badSeal(i)
		}
	}
	return nil
}

// badSeal is the error for row i of the leaf.
func (c *cursor) badSeal(i int) error {
	l := c.leaf()
	return c.s.corrupt(l.page.id, "row %d of page %d does not match its sum", i, l.page.id)
}

// neighbours verifies the pages left and right of the path. After it and absent, a key that
// is not in the leaf is not in the tree, and these pages are fit to be merged with the path's.
func (c *cursor) neighbours() error {
	for d := range c.depth - 1 {
		l, below := &c.path[d], &c.path[d+1]
		if l.i > 0 {
			p, err := c.s.load(l.page.child(l.i-1), l.page.key(l.i-1))
			if err != nil {
				return err
			}
			if p.leaf != below.page.leaf || !c.s.above(&p, &below.page) {
				return c.s.corrupt(p.id, "page %d does not fit beside page %d", p.id, below.page.id)
			}
		}
		if l.i+1 < l.page.count {
			p, err := c.s.load(l.page.child(l.i+1), l.page.key(l.i+1))
			if err != nil {
				return err
			}
			if p.leaf != below.page.leaf || !c.s.above(&below.page, &p) {
				return c.s.corrupt(p.id, "page %d does not fit beside page %d", p.id, below.page.id)
			}
		}
	}
	return nil
}

// bounds returns the keys between which a key belongs into the cursor's leaf: from inclusive, to exclusive; nil is no bound.
func (c *cursor) bounds() (from, to []byte) {
	for d := range c.depth - 1 {
		l := &c.path[d]
		if l.i > 0 {
			from = l.page.key(l.i)
		}
		if l.i+1 < l.page.count {
			to = l.page.key(l.i + 1)
		}
	}
	return from, to
}
