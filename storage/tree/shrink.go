package tree

import (
	"errors"
	"fmt"
	"io"
	"os"

	"go.etcd.io/bbolt"
)

// copyBatch is how many bytes of rows a transaction of a copy writes.
const copyBatch = 4 << 20

// Shrink rewrites the file without its free pages: it copies and verifies the rows into a new file, renames that over the
// old one and goes on with it. View callers wait only for the exchange, and those that began before it end on the old
// file, for whose last reader Shrink waits. A crash at any step leaves the old file or the new one, whole. After an error
// the tree goes on with the old file, but for one of the last sync, after which it must be opened again.
func (t *Tree) Shrink() error { return t.shrink(nil) }

func (t *Tree) shrink(progress func(done, total int64)) error {
	t.writer.Lock()
	defer t.writer.Unlock()
	if t.failed != nil {
		return fmt.Errorf("shrink %s: %w", t.path, t.failed)
	}
	temp := t.path + shrinkSuffix
	fresh, err := t.copyTo(temp, progress)
	if err != nil {
		return fmt.Errorf("shrink %s: %w", t.path, err)
	}
	t.step("rename")
	if err := os.Rename(temp, t.path); err != nil {
		return fmt.Errorf("shrink %s: %w", t.path, errors.Join(err, fresh.db.Close(), removeIfThere(temp)))
	}
	t.step("sync directory")
	// Without the directory on disk a power cut may bring the old file back after later updates went to the new one.
	if err := syncDir(t.path); err != nil {
		t.failed = fmt.Errorf("it must be opened again: sync directory: %w", err)
	}
	t.step("swap")
	t.mu.Lock()
	old := t.h
	t.h = fresh
	t.mu.Unlock()
	t.step("swapped")
	if err := errors.Join(t.failed, old.db.Close()); err != nil {
		return fmt.Errorf("shrink %s: %w", t.path, err)
	}
	return nil
}

// copyTo writes the rows, verified, into a new synced file and returns it open. Nothing is left of it after an error.
func (t *Tree) copyTo(temp string, progress func(done, total int64)) (*handle, error) {
	if err := removeIfThere(temp); err != nil {
		return nil, err
	}
	t.step("create")
	t.mu.RLock()
	pageSize := t.h.pageSize
	t.mu.RUnlock()
	h, err := openHandle(temp, pageSize, true, t.opts.Log)
	if err != nil {
		return nil, errors.Join(err, removeIfThere(temp))
	}
	h.db.NoSync = true // one sync at the end is enough
	err = t.View(func(v *View) error {
		c := copier{t: t, v: v, db: h.db, progress: progress}
		return c.copy()
	})
	if err == nil {
		t.step("sync")
		h.db.NoSync = false
		err = h.file.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, h.db.Close(), removeIfThere(temp))
	}
	return h, nil
}

type copier struct {
	t        *Tree
	v        *View
	db       *bbolt.DB
	tally    tally
	progress func(done, total int64)
	done     int64
}

// copy copies all rows in the order of their keys and compares the groups with their records.
func (c *copier) copy() error {
	_, total := c.t.Size()
	c.tally.tables = c.v.tables
	cur := cursor{s: &c.v.src}
	err := cur.seek(nil)
	for more := true; more && err == nil; {
		err = guarded(c.t.path, "copy", func() error {
			return c.db.Update(func(tx *bbolt.Tx) error {
				more, err = c.batch(tx, &cur)
				return err
			})
		})
		c.t.step("copied")
		if c.progress != nil {
			c.progress(min(c.done, total), total)
		}
	}
	if err != nil {
		return err
	}
	for _, what := range c.tally.compare() {
		return &CorruptError{File: c.t.path, Offset: -1, What: what}
	}
	return nil
}

// batch copies the next rows; more is false when there are none left.
func (c *copier) batch(tx *bbolt.Tx, cur *cursor) (more bool, err error) {
	b := tx.Cursor().Bucket()
	b.FillPercent = 1
	for bytes := 0; bytes < copyBatch; {
		key, stored, ok := cur.row()
		if !ok {
			return false, nil
		}
		value, sum, ok := unseal(key, stored)
		if !ok || !c.tally.add(key, value, sum) {
			return false, cur.badSeal(cur.leaf().i)
		}
		if err := b.Put(key, stored); err != nil {
			return false, err
		}
		bytes += len(key) + len(stored)
		c.done += int64(elementLen + len(key) + len(stored))
		if err := cur.next(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// Copy writes the file as it is after the last Update to w, page by page and unverified: Open verifies it, and CopyFile
// is the careful way. Update may run meanwhile, but the file grows while a slow w takes its time.
func (t *Tree) Copy(w io.Writer) error {
	tx, err := t.begin(false)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.WriteTo(w); err != nil {
		return fmt.Errorf("copy %s: %w", t.path, err)
	}
	return nil
}

// CopyFile writes the rows as they are after the last Update, verified and without free pages, to a synced file at path,
// over the one that is there. It comes into being at once, when it is whole. Update may run meanwhile.
func (t *Tree) CopyFile(path string) error {
	temp := path + newSuffix
	h, err := t.copyTo(temp, nil)
	if err != nil {
		return fmt.Errorf("copy %s to %s: %w", t.path, path, err)
	}
	if err = h.db.Close(); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return fmt.Errorf("copy %s to %s: %w", t.path, path, errors.Join(err, removeIfThere(temp)))
	}
	return syncDir(path)
}

// Defrag does offline what Shrink does, on a file that no Tree or process has open. progress, unless nil, is called now
// and then with bytes of rows. The sizes are the file's in bytes, before and after. A crash leaves the old file or the
// new one, whole.
func Defrag(path string, o Options, progress func(done, total int64)) (before, after int64, err error) {
	if _, err := os.Stat(path); err != nil {
		return 0, 0, err
	}
	t, err := Open(path, o)
	if err != nil {
		return 0, 0, err
	}
	before, _ = t.Size()
	err = t.shrink(progress)
	after, _ = t.Size()
	return before, after, errors.Join(err, t.Close())
}
