package tree

import (
	"bytes"

	"go.etcd.io/bbolt"
)

// Get returns the value of a row as this transaction has it; otherwise it is as View.Get.
func (x *Tx) Get(table int, key []byte) (value []byte, found bool, err error) {
	if x.key, err = appendKey(x.key[:0], x.t.tables, table, key); err != nil {
		return nil, false, err
	}
	r, err := x.touch(x.key)
	if err != nil {
		return nil, false, err
	}
	stored, found, err := x.find(r, x.key)
	if err != nil || !found {
		return nil, false, err
	}
	value, _, ok := unseal(x.key, stored)
	if !ok {
		return nil, false, x.fail(r.cur.s.corrupt(r.cur.leaf().page.id, "the row does not match its sum"))
	}
	return value, true, nil
}

// Scan calls fn for each row of the table as this transaction has it; otherwise it is as View.Scan. fn may write: rows
// that it puts ahead of the scan will be met.
func (x *Tx) Scan(table int, from, to []byte, fn func(key, value []byte) error) error {
	next, end, err := scanRange(x.t.tables, table, from, to)
	if err != nil {
		return err
	}
	for r := (&run{cur: cursor{s: &x.src}}); next != nil && bytes.Compare(next, end) < 0; {
		if x.b == nil {
			return ErrClosed
		}
		if err := r.place(next); err != nil {
			return x.fail(err)
		}
		if err := r.cur.absent(); err != nil {
			return x.fail(err)
		}
		stop := end
		if r.to != nil && bytes.Compare(r.to, end) < 0 {
			stop = r.to
		}
		if err := x.scanLeaf(next, stop, fn); err != nil {
			return stopped(err)
		}
		next = r.to
	}
	return nil
}

// scanLeaf scans rows whose keys belong to one leaf of the tree as the transaction found it.
func (x *Tx) scanLeaf(from, to []byte, fn func(key, value []byte) error) error {
	var c *bbolt.Cursor
	var key, stored []byte
	for writes := -1; ; {
		err := x.guarded("scan", func() error {
			switch {
			case c == nil:
				c = x.b.Cursor()
				key, stored = c.Seek(from)
			case writes != x.writes: // what the cursor stands on may have moved
				key, stored = c.Seek(append(bytes.Clone(key), 0))
			default:
				key, stored = c.Next()
			}
			return nil
		})
		if err != nil || key == nil {
			return err
		}
		value, _, ok := unseal(key, stored)
		if !ok {
			return x.fail(&CorruptError{File: x.t.path, Offset: -1, What: "a row does not match its sum"})
		}
		if bytes.Compare(key, to) >= 0 {
			return nil
		}
		writes = x.writes
		if err := fn(key[1:], value); err != nil {
			return err
		}
		if x.b == nil {
			return ErrClosed
		}
	}
}
