package tree

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// maxProblems is how many problems Check lists; a file that lost a part of itself would have one a page.
const maxProblems = 1000

// Report is what Check found.
type Report struct {
	Rows        []int64 // per table of the file: intact rows
	Groups      int64   // records of groups
	FileBytes   int64
	UsedBytes   int64 // of pages in use, as far as they could be reached
	Transaction uint64
	Problems    []*CorruptError // at most 1000, in the order they were found; none: every byte that matters holds
	More        int64           // problems that are not listed
}

// Check reads the whole file at path and changes nothing: the structure, every row's sum, the count and digest of every
// group, and that every page is accounted for once. It goes on behind damage and calls fn, unless nil, for each intact
// row in the order of keys; the slices are valid during the call. progress, unless nil, is called now and then with bytes.
//
// Damage is in the report. The error is for what kept Check from reading at all, or fn's: it wraps ErrInUse, after a
// second, for a file that a Tree or process has open, and ErrNewerFormat for one that a later version wrote.
func Check(path string, o Options, progress func(done, total int64), fn func(table int, key, value []byte) error) (Report, error) {
	if err := o.defaults(); err != nil {
		return Report{}, fmt.Errorf("check %s: %w", path, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return Report{}, err
	}
	if err := lock(f, false); err != nil {
		return Report{}, errors.Join(err, f.Close())
	}
	c := &checker{path: path, fn: fn, progress: progress}
	c.tally.tables = o.Tables
	c.report.Rows = make([]int64, len(o.Tables))
	err = c.file(f)
	if damage, ok := errors.AsType[*CorruptError](err); ok && !c.callback {
		c.problem(damage)
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("check %s: %w", path, err)
	}
	return c.report, errors.Join(err, f.Close())
}

type checker struct {
	path     string
	image    *image
	tally    tally
	uses     []byte
	report   Report
	fn       func(table int, key, value []byte) error
	callback bool // an error is fn's
	progress func(done, total int64)
	pages    int64 // read so far
}

func (c *checker) problem(p *CorruptError) {
	if len(c.report.Problems) < maxProblems {
		c.report.Problems = append(c.report.Problems, p)
	} else {
		c.report.More++
	}
}

// found notes err if it is damage, and returns any other error.
func (c *checker) found(err error) error {
	if damage, ok := errors.AsType[*CorruptError](err); ok && !c.callback {
		c.problem(damage)
		return nil
	}
	return err
}

func (c *checker) file(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	c.report.FileBytes = info.Size()
	if c.image, err = openImage(f, c.path); err != nil {
		return err
	}
	err = faultless(c.path, &c.image.source, c.all)
	return errors.Join(err, c.image.close())
}

func (c *checker) all() error {
	m := c.image
	c.report.Transaction = m.meta.txid
	for i, ok := range m.metas {
		if !ok {
			c.problem(&CorruptError{File: c.path, Offset: int64(i * m.pageSize),
				What: fmt.Sprintf("meta page %d does not hold; the newest transaction may be lost, %d is used", i, m.meta.txid)})
		}
	}
	if err := c.format(); err != nil {
		return err
	}
	c.uses = slices.Concat([]byte{useMeta, useMeta}, make([]byte, m.pages-2))
	_, err := m.freePages(c.uses)
	if err := c.found(err); err != nil {
		return err
	}
	accountable := err == nil
	if err := c.subtree(m.root, nil, nil, 0); err != nil {
		return err
	}
	for id, use := range c.uses {
		if use == useNone && accountable {
			c.problem(m.corrupt(uint64(id), "page %d is neither free nor in use", id))
		} else if use != useFree && use != useNone {
			c.report.UsedBytes += int64(m.pageSize)
		}
	}
	for _, what := range c.tally.compare() {
		c.problem(&CorruptError{File: c.path, Offset: -1, What: what})
	}
	for i := range c.report.Rows {
		c.report.Rows[i] = c.tally.rows[prefixTable+i]
	}
	c.report.Groups = c.tally.rows[prefixGroup]
	return nil
}

// format reads the format row. Only a file of another format is an error here.
func (c *checker) format() error {
	v := View{src: c.image.source}
	v.cur.s = &v.src
	value, found, err := v.getRaw(formatKey)
	if err != nil || !found {
		return nil // the walk over the pages will find out why
	}
	stored, err := parseFormat(value)
	if err != nil {
		return err
	}
	return checkTables(stored, c.tally.tables)
}

// subtree checks page id, whose keys must be from first to below end, and all below it.
func (c *checker) subtree(id uint64, first, end []byte, depth int) error {
	m := c.image
	p, err := m.load(id, first)
	if err != nil {
		return c.found(err)
	}
	if depth == maxDepth {
		return c.found(m.corrupt(id, "the tree is deeper than %d levels", maxDepth))
	}
	if err := m.claim(c.uses, id, uint64(len(p.buf)/m.pageSize), useBranch); err != nil {
		return c.found(err) // and don't go where the check was before
	}
	if end != nil && p.count > 0 && string(p.key(p.count-1)) >= string(end) {
		c.problem(m.corrupt(id, "page %d reaches into the keys of the next one", id))
	}
	if c.pages++; c.progress != nil && c.pages%1024 == 0 {
		c.progress(c.pages*int64(m.pageSize), int64(m.pages)*int64(m.pageSize))
	}
	if p.leaf {
		return c.rows(&p)
	}
	for i := range p.count {
		below := end
		if i+1 < p.count {
			below = p.key(i + 1)
		}
		if err := c.subtree(p.child(i), p.key(i), below, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) rows(p *page) error {
	for i := range p.count {
		key := p.key(i)
		value, sum, ok := unseal(key, p.value(i))
		if !ok || !c.tally.add(key, value, sum) {
			c.problem(c.image.corrupt(p.id, "row %d of page %d does not match its sum", i, p.id))
			continue
		}
		if c.fn == nil || key[0] == prefixFormat || key[0] == prefixGroup {
			continue
		}
		if err := c.fn(int(key[0]-prefixTable), key[1:], value); err != nil {
			c.callback = true
			return err
		}
	}
	return nil
}
