package tree

import (
	"bytes"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// Tx is a writing transaction. It is for the goroutine that runs the callback, until that returns.
type Tx struct {
	t      *Tree
	b      *bbolt.Bucket // the root bucket
	src    source        // the tree as the transaction found it
	runs   [256]*run     // by first byte of the stored key
	groups map[string]*group
	key    []byte
	value  []byte // rest of the slab from which stored values are taken
	slab   int    // size of the last slab
	last   *group // the change to the group of the last row, whose key begins with lastKey
	prefix []byte
	writes int   // counts Put and Delete
	err    error // first damage; the transaction can't be committed
}

// run follows the keys that are written to one table. While they ascend, what the transaction found says which of them
// existed, and bbolt need not be asked.
type run struct {
	cur      cursor // at the first found row that is not below the last key
	from, to []byte // keys that belong to the cursor's leaf; nil: no bound
	placed   bool   // the cursor is somewhere
	max      []byte // highest key written; nil: none
	absent   int    // row of the leaf whose neighbourhood absent has verified; -1: none
}

// Update runs fn in a transaction and makes what it wrote durable. Any error, also one of the disk, rolls all of it back;
// errors.Is(err, syscall.ENOSPC) holds if the disk is full, and the tree stays usable. Batches are fastest when keys
// ascend per table. fn must not call View, Update, Shrink or Close.
func (t *Tree) Update(fn func(*Tx) error) error {
	t.writer.Lock()
	defer t.writer.Unlock()
	if t.failed != nil {
		return fmt.Errorf("update %s: %w", t.path, t.failed)
	}
	tx, err := t.begin(true)
	if err != nil {
		return err
	}
	x := &Tx{t: t, groups: make(map[string]*group)}
	open := true
	defer func() {
		x.b = nil
		if open { // an error, a panic or a Goexit of fn
			_ = guarded(t.path, "roll back", tx.Rollback)
		}
	}()
	err = faultless(t.path, &x.src, func() error {
		x.src = sourceOf(t.path, tx)
		x.src.writing = true
		x.b = tx.Cursor().Bucket()
		x.b.FillPercent = 1
		if err := fn(x); err != nil {
			return err
		}
		if x.err != nil {
			return x.err
		}
		return x.writeGroups()
	})
	if err != nil {
		return err
	}
	open = false
	return t.commit(tx)
}

func (t *Tree) commit(tx *bbolt.Tx) error {
	err := guarded(t.path, "commit", tx.Commit)
	if err == nil {
		return nil
	}
	if damage, ok := errors.AsType[*CorruptError](err); ok {
		// bbolt panicked half-way: its lists in memory can't be trusted. The file can: its meta page was not written.
		t.failed = damage
		_ = guarded(t.path, "roll back", tx.Rollback)
	} else if again := guarded(t.path, "settle", func() error { return settle(t.h.file) }); again != nil {
		t.failed = fmt.Errorf("it must be opened again: %w", again)
	}
	return fmt.Errorf("update %s: %w", t.path, err)
}

// Put stores a row, over the one that has the key if there is one. key and value are copied.
func (x *Tx) Put(table int, key, value []byte) (err error) {
	if x.key, err = appendKey(x.key[:0], x.t.tables, table, key); err != nil {
		return err
	}
	return x.put(x.key, value, x.group(table, x.key))
}

// putRaw stores a row of the tree's own.
func (x *Tx) putRaw(stored, value []byte) error { return x.put(stored, value, nil) }

func (x *Tx) put(stored, value []byte, g *group) error {
	r, err := x.touch(stored)
	if err != nil {
		return err
	}
	old, found, err := x.find(r, stored)
	if err != nil {
		return err
	}
	if g != nil && found {
		oldValue, sum, ok := unseal(stored, old)
		if !ok {
			return x.fail(r.cur.s.corrupt(r.cur.leaf().page.id, "the row to replace does not match its sum"))
		}
		g.remove(rowHash(sum, len(oldValue)))
	}
	dst := x.take(sealLen + len(value))
	sum := sealed(dst, stored, value)
	if err := x.guarded("put", func() error { return x.b.Put(stored, dst) }); err != nil {
		return err
	}
	if g != nil {
		g.add(rowHash(sum, len(value)))
	}
	x.wrote(r, stored)
	return nil
}

// Delete removes a row and returns its value, which is valid inside the transaction.
func (x *Tx) Delete(table int, key []byte) (old []byte, found bool, err error) {
	if x.key, err = appendKey(x.key[:0], x.t.tables, table, key); err != nil {
		return nil, false, err
	}
	return x.remove(x.key, x.group(table, x.key))
}

func (x *Tx) remove(stored []byte, g *group) (old []byte, found bool, err error) {
	r, err := x.touch(stored)
	if err != nil {
		return nil, false, err
	}
	old, found, err = x.find(r, stored)
	if err != nil || !found {
		return nil, false, err
	}
	value, sum, ok := unseal(stored, old)
	if !ok {
		return nil, false, x.fail(r.cur.s.corrupt(r.cur.leaf().page.id, "the row to delete does not match its sum"))
	}
	if err := x.guarded("delete", func() error { return x.b.Delete(stored) }); err != nil {
		return nil, false, err
	}
	if g != nil {
		g.remove(rowHash(sum, len(value)))
	}
	x.wrote(r, stored)
	return value, true, nil
}

// touch verifies the leaf to which the key belongs, the pages above it and those beside them, before bbolt uses them.
func (x *Tx) touch(stored []byte) (*run, error) {
	if x.b == nil {
		return nil, ErrClosed
	}
	r := x.runs[stored[0]]
	if r == nil {
		r = &run{cur: cursor{s: &x.src}}
		x.runs[stored[0]] = r
	}
	if err := r.place(stored); err != nil {
		return nil, x.fail(err)
	}
	return r, nil
}

// place moves the run to a key.
func (r *run) place(stored []byte) (err error) {
	defer r.cur.s.rescue(&err, r.cur.s.enter())
	if r.placed && bytes.Compare(stored, r.from) >= 0 && (r.to == nil || bytes.Compare(stored, r.to) < 0) {
		l := r.cur.leaf()
		if l.i > 0 && bytes.Compare(stored, l.page.key(l.i-1)) <= 0 {
			l.i = 0
		}
		if l.i < l.page.count && bytes.Compare(l.page.key(l.i), stored) < 0 {
			l.i = l.page.search(l.i, stored)
		}
		return nil
	}
	r.placed = false
	if err := r.cur.descend(stored); err != nil {
		return err
	}
	if err := r.cur.neighbours(); err != nil {
		return err
	}
	r.from, r.to = r.cur.bounds()
	r.placed, r.absent = true, -1
	return nil
}

// find returns the stored value of a key that was touched.
func (x *Tx) find(r *run, stored []byte) (old []byte, found bool, err error) {
	var key []byte
	if r.max == nil || bytes.Compare(stored, r.max) > 0 {
		key, old, _ = r.cur.row()
	} else {
		err = x.guarded("seek", func() error {
			key, old = x.b.Cursor().Seek(stored)
			return nil
		})
	}
	if err == nil && bytes.Equal(key, stored) {
		return old, true, nil
	}
	if i := r.cur.leaf().i; err == nil && r.absent != i {
		if err = r.cur.absent(); err != nil {
			return nil, false, x.fail(err)
		}
		r.absent = i
	}
	return nil, false, err
}

// wrote notes that stored was written.
func (x *Tx) wrote(r *run, stored []byte) {
	x.writes++
	if r.max == nil || bytes.Compare(stored, r.max) > 0 {
		r.max = append(r.max[:0], stored...)
	}
}

// guarded is guarded; an error keeps the transaction from being committed.
func (x *Tx) guarded(step string, f func() error) error {
	err := guarded(x.t.path, step, f)
	if err != nil {
		return x.fail(err)
	}
	return nil
}

// fail keeps the transaction from being committed even if fn ignores the error.
func (x *Tx) fail(err error) error {
	x.err = err
	return err
}

// take returns n bytes that are not used again in this transaction, as bbolt demands of values.
func (x *Tx) take(n int) []byte {
	if n > len(x.value) {
		x.slab = min(max(2*x.slab, 4<<10), 256<<10)
		x.value = make([]byte, max(n, x.slab))
	}
	b := x.value[:n:n]
	x.value = x.value[n:]
	return b
}
