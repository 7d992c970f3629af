package tree

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// image is a file mapped for reading while no transaction runs on it.
type image struct {
	source
	meta  meta
	metas [2]bool // which meta pages hold
	unmap func() error
}

func (m *image) close() error { return m.unmap() }

// openImage maps f and finds its state, and verifies that the file is as long as that state needs.
func openImage(f *os.File, name string) (*image, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	m := &image{source: source{file: name}}
	if info.Size() < headerLen+metaLen {
		return nil, m.whole("the file has only %d bytes", info.Size())
	}
	if m.data, m.unmap, err = mapFile(f, info.Size()); err != nil {
		return nil, err
	}
	if err := m.findMeta(info.Size()); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// whole returns an error about no certain place of the file.
func (m *image) whole(format string, args ...any) *CorruptError {
	return &CorruptError{File: m.file, Offset: -1, What: fmt.Sprintf(format, args...)}
}

// findMeta chooses the newest meta page that holds, as bbolt does.
func (m *image) findMeta(size int64) error {
	var found [2]meta
	found[0], m.metas[0] = parseMeta(m.data)
	if m.metas[0] {
		at := int64(found[0].pageSize)
		if at < size {
			found[1], m.metas[1] = parseMeta(m.data[at:])
		}
	} else {
		for at := int64(1024); at <= 1<<24 && at < size && !m.metas[1]; at *= 2 {
			found[1], m.metas[1] = parseMeta(m.data[at:])
			m.metas[1] = m.metas[1] && int64(found[1].pageSize) == at
		}
	}
	switch {
	case m.metas[0] && (!m.metas[1] || found[0].txid >= found[1].txid):
		m.meta = found[0]
	case m.metas[1]:
		m.meta = found[1]
	default:
		return m.whole("neither of its two meta pages holds")
	}
	m.pageSize, m.pages, m.root = m.meta.pageSize, m.meta.pages, m.meta.root
	if m.pages < 4 || m.pages > uint64(size)/uint64(m.pageSize) {
		return m.whole("the file has %d bytes; its %d pages need %d", size, m.pages, m.pages*uint64(m.pageSize))
	}
	return nil
}

// What a page is used for, in the account of all pages.
const (
	useNone byte = iota
	useMeta
	useFreelist
	useFree
	useBranch
	useLeaf     // first page of a leaf
	useOverflow // further page of a leaf that was read
)

// claim notes in uses that n pages from id on are in use.
func (m *image) claim(uses []byte, id, n uint64, use byte) error {
	for ; n > 0; id, n = id+1, n-1 {
		if id >= uint64(len(uses)) {
			return m.whole("a reference to page %d of %d", id, len(uses))
		}
		if uses[id] != useNone {
			return m.corrupt(id, "page %d is used twice, or is free and in use", id)
		}
		uses[id] = use
	}
	return nil
}

// freePages returns the ids of the pages that the freelist names, and claims them and the list's own pages.
func (m *image) freePages(uses []byte) ([]uint64, error) {
	if m.meta.freelist == noFreelist {
		return nil, m.whole("it has no list of free pages")
	}
	b, err := m.raw(m.meta.freelist)
	if err != nil {
		return nil, err
	}
	id := m.meta.freelist
	if got, flags := order.Uint64(b), order.Uint16(b[8:]); got != id || flags != flagFreelist {
		return nil, m.corrupt(id, "page %d is not the list of free pages: it says page %d, kind %#x", id, got, flags)
	}
	if err := m.claim(uses, id, uint64(len(b)/m.pageSize), useFreelist); err != nil {
		return nil, err
	}
	count, at := uint64(order.Uint16(b[10:])), headerLen
	if count == 0xffff {
		count, at = order.Uint64(b[headerLen:]), headerLen+8
	}
	if count > uint64(len(b)-at)/8 {
		return nil, m.corrupt(id, "page %d: a list of %d free pages does not fit", id, count)
	}
	free := make([]uint64, count)
	for i := range free {
		free[i] = order.Uint64(b[at+8*i:])
		if free[i] < 2 || free[i] >= m.pages || i > 0 && free[i-1] >= free[i] {
			return nil, m.corrupt(id, "page %d: entry %d of the list of free pages is wrong", id, i)
		}
		if err := m.claim(uses, free[i], 1, useFree); err != nil {
			return nil, err
		}
	}
	return free, nil
}

// verify accounts for every page of the file, reading the branches and those leaves that have overflow pages, but not
// the others: some ten MiB for a file of four GiB. So bbolt, which trusts its list of free pages, can't be led to
// overwrite a page that is in use.
func (m *image) verify() error {
	uses := slices.Concat([]byte{useMeta, useMeta}, make([]byte, m.pages-2))
	if _, err := m.freePages(uses); err != nil {
		return err
	}
	depth, err := m.height()
	if err != nil {
		return err
	}
	if err := m.verifyBranches(uses, m.root, nil, depth); err != nil {
		return err
	}
	return m.verifyGaps(uses)
}

// height returns the number of levels above the leaves.
func (m *image) height() (int, error) {
	id := m.root
	for depth := range maxDepth {
		p, err := m.load(id, nil)
		if err != nil {
			return 0, err
		}
		if p.leaf {
			return depth, nil
		}
		id = p.child(0)
	}
	return 0, m.corrupt(m.root, "the tree is deeper than %d levels", maxDepth)
}

func (m *image) verifyBranches(uses []byte, id uint64, first []byte, depth int) error {
	if depth == 0 {
		return m.claim(uses, id, 1, useLeaf)
	}
	p, err := m.load(id, first)
	if err != nil {
		return err
	}
	if p.leaf {
		return m.corrupt(id, "page %d is a leaf among branches", id)
	}
	if err := m.claim(uses, id, uint64(len(p.buf)/m.pageSize), useBranch); err != nil {
		return err
	}
	for i := range p.count {
		if err := m.verifyBranches(uses, p.child(i), p.key(i), depth-1); err != nil {
			return err
		}
	}
	return nil
}

// verifyGaps accounts for the pages that nothing has claimed: each must be the overflow of a leaf before it.
func (m *image) verifyGaps(uses []byte) error {
	for id := uint64(2); id < m.pages; id++ {
		if uses[id] != useNone {
			continue
		}
		if uses[id-1] != useLeaf {
			return m.corrupt(id, "page %d is neither free nor in use", id)
		}
		p, err := m.load(id-1, nil)
		if err != nil {
			return err
		}
		if err := m.claim(uses, id, uint64(len(p.buf)/m.pageSize)-1, useOverflow); err != nil {
			return err
		}
		if uses[id] == useNone {
			return m.corrupt(id, "page %d is neither free nor in use", id)
		}
	}
	return nil
}
