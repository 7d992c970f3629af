package tree

import (
	"bytes"
	"errors"
	"runtime/debug"
	"unsafe"

	"go.etcd.io/bbolt"
)

// View is a reading transaction: the tree as it was when View was called, whatever Update does meanwhile. It is for the
// goroutine that runs the callback, until that returns.
type View struct {
	tables []TableSpec
	tx     *bbolt.Tx
	src    source
	cur    cursor // of Get and Count
	key    []byte
}

// View runs fn on the state after the last Update and returns its error. Readers don't wait for the writer, but pages
// that a long View can see are not reused: the file grows meanwhile. fn must not call Update, Shrink or Close.
func (t *Tree) View(fn func(*View) error) (err error) {
	tx, err := t.begin(false)
	if err != nil {
		return err
	}
	v := &View{tables: t.tables, tx: tx}
	defer func() {
		v.src.data = nil
		_ = tx.Rollback()
	}()
	return faultless(t.path, &v.src, func() error {
		v.src = sourceOf(t.path, tx)
		v.cur.s = &v.src
		return fn(v)
	})
}

// faultless runs f, in which a memory fault on the mapped file (one that shrank, a sector that can't be read) becomes an
// error. Every other panic goes its way.
func faultless(file string, src *source, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			base := uintptr(unsafe.Pointer(unsafe.SliceData(src.data)))
			if r.Addr() < base || r.Addr()-base >= uintptr(len(src.data)) {
				panic(r)
			}
			err = src.corrupt(uint64(r.Addr()-base)/uint64(src.pageSize), "a page can't be read")
		default:
			panic(r)
		}
	}()
	return f()
}

// Get returns the value of a row. It is valid inside the transaction and must not be changed. A row that is not found is
// not in the tree: pages are verified on the way. The error is a *CorruptError.
func (v *View) Get(table int, key []byte) (value []byte, found bool, err error) {
	if v.key, err = appendKey(v.key[:0], v.tables, table, key); err != nil {
		return nil, false, err
	}
	return v.getRaw(v.key)
}

func (v *View) getRaw(stored []byte) (value []byte, found bool, err error) {
	if v.src.data == nil {
		return nil, false, ErrClosed
	}
	defer v.src.rescue(&err, v.src.enter())
	if err := v.cur.descend(stored); err != nil {
		return nil, false, err
	}
	key, sealedValue, ok := v.cur.row()
	if !ok || !bytes.Equal(key, stored) {
		return nil, false, errors.Join(v.cur.absent(), v.cur.neighbours())
	}
	value, _, ok = unseal(key, sealedValue)
	if !ok {
		return nil, false, v.cur.badSeal(v.cur.leaf().i)
	}
	return value, true, nil
}

// Scan calls fn for each row of the table from key from (nil: the first) to before key to (nil: the end), in the order of
// keys. The slices are valid inside the transaction and must not be changed. It ends at fn's first error and returns it,
// or nil if it is ErrStop, or a *CorruptError.
func (v *View) Scan(table int, from, to []byte, fn func(key, value []byte) error) (err error) {
	first, end, err := scanRange(v.tables, table, from, to)
	if err != nil {
		return err
	}
	if v.src.data == nil {
		return ErrClosed
	}
	defer v.src.rescue(&err, v.src.enter())
	c := cursor{s: &v.src}
	for err = c.seek(first); err == nil; err = c.next() {
		key, sealedValue, ok := c.row()
		if !ok {
			return nil
		}
		value, _, ok := unseal(key, sealedValue)
		if !ok {
			return c.badSeal(c.leaf().i)
		}
		if bytes.Compare(key, end) >= 0 {
			return nil
		}
		v.src.outside = true
		err := fn(key[1:], value)
		v.src.outside = false
		if err != nil {
			return stopped(err)
		}
		if v.src.data == nil {
			return ErrClosed
		}
	}
	return err
}

// Count returns how many rows begin with prefix, which has the table's GroupLen bytes, from the group's record. The error is a *CorruptError.
func (v *View) Count(table int, prefix []byte) (count uint64, err error) {
	if v.key, err = appendGroupKey(v.key[:0], v.tables, table, prefix); err != nil {
		return 0, err
	}
	value, found, err := v.getRaw(v.key)
	if err != nil || !found {
		return 0, err
	}
	g, ok := parseGroup(value)
	if !ok {
		return 0, v.cur.badSeal(v.cur.leaf().i)
	}
	return g.count, nil
}
