package tree

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"
)

// TableSpec describes a table. Its number is its index in Options.Tables.
type TableSpec struct {
	Name string // at most 255 bytes
	// GroupLen is the length in bytes, 0 to 255, of the key prefix by which rows are grouped. Each group's count and
	// digest are kept with its rows, and no key of the table may be shorter. 0: the whole table is one group.
	GroupLen int
}

// Options configures Open, Check and Defrag.
type Options struct {
	Tables   []TableSpec  // at most 200; a later version may append tables, never change or drop one
	PageSize int          // of a new file, in bytes: a power of two from 1024 to 1 MiB; 0: 16384
	Log      *slog.Logger // discards if nil
}

func (o *Options) defaults() error {
	if o.PageSize == 0 {
		o.PageSize = 16384
	}
	if o.PageSize < 1024 || o.PageSize > 1<<20 || o.PageSize&(o.PageSize-1) != 0 {
		return fmt.Errorf("page size %d is not a power of two from 1024 to 1 MiB", o.PageSize)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Tables = slices.Clone(o.Tables)
	return validTables(o.Tables)
}

// Names of unfinished files; Open removes what a crash left of them.
const (
	newSuffix    = ".new"
	shrinkSuffix = ".shrink"
)

// Tree is an open file. Its methods are safe for concurrent use; Update, Shrink and Close wait for each other.
type Tree struct {
	path   string
	tables []TableSpec
	opts   Options

	writer sync.Mutex   // held by Update, Shrink and Close; guards failed
	failed error        // why Update is refused until the file is opened again
	mu     sync.RWMutex // guards h and closed
	h      *handle
	closed bool
	stuck  atomic.Bool // bbolt panicked with its locks held

	step func(name string) // called before each step of Shrink; set by tests
}

// Open opens the tree at path and creates it if there is none. What an interrupted creation, Shrink or Defrag left is
// removed. Before bbolt sees the file every page is accounted for, which reads all but the leaves.
//
// The error is a *CorruptError for a damaged file and wraps ErrInUse, after a second, for one that another Tree or
// process has open, and ErrNewerFormat for one that a later version wrote.
func Open(path string, o Options) (*Tree, error) {
	if err := o.defaults(); err != nil {
		return nil, fmt.Errorf("open tree %s: %w", path, err)
	}
	t := &Tree{path: path, tables: o.Tables, opts: o, step: func(string) {}}
	if err := t.open(); err != nil {
		return nil, fmt.Errorf("open tree: %w", err)
	}
	return t, nil
}

func (t *Tree) open() error {
	if _, err := os.Stat(t.path); errors.Is(err, os.ErrNotExist) {
		if err := t.create(); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	h, err := openHandle(t.path, t.opts.PageSize, false, t.opts.Log)
	if err != nil {
		return err
	}
	t.h = h
	if err := t.adopt(); err != nil {
		return errors.Join(err, t.Close())
	}
	return nil
}

// create makes an empty file: whole at path, or not there.
func (t *Tree) create() error {
	temp := t.path + newSuffix
	if err := removeIfThere(temp); err != nil {
		return err
	}
	h, err := openHandle(temp, t.opts.PageSize, true, t.opts.Log)
	if err != nil {
		return errors.Join(err, removeIfThere(temp))
	}
	fresh := &Tree{path: temp, tables: t.tables, opts: t.opts, h: h}
	err = fresh.Update(func(x *Tx) error { return x.putRaw(formatKey, appendFormat(nil, t.tables)) })
	if err = errors.Join(err, fresh.Close()); err == nil {
		err = os.Rename(temp, t.path)
	}
	if err != nil {
		return errors.Join(err, removeIfThere(temp))
	}
	return syncDir(t.path)
}

// adopt removes leftovers and compares the file's tables with those asked for, adding new ones.
func (t *Tree) adopt() error {
	for _, suffix := range []string{newSuffix, shrinkSuffix} {
		if err := removeIfThere(t.path + suffix); err != nil {
			return err
		}
	}
	var stored []TableSpec
	err := t.View(func(v *View) error {
		value, found, err := v.getRaw(formatKey)
		if err == nil && !found {
			return v.src.corrupt(v.src.root, "it has no format row")
		}
		if err == nil {
			stored, err = parseFormat(value)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", t.path, err)
	}
	if err := checkTables(stored, t.tables); err != nil {
		return fmt.Errorf("%s: %w", t.path, err)
	}
	if len(stored) == len(t.tables) {
		return nil
	}
	return t.Update(func(x *Tx) error { return x.putRaw(formatKey, appendFormat(nil, t.tables)) })
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// begin starts a transaction of bbolt.
func (t *Tree) begin(writable bool) (tx *bbolt.Tx, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		return nil, ErrClosed
	}
	if t.stuck.Load() {
		return nil, t.metaLost()
	}
	err = guarded(t.path, "begin", func() (err error) {
		tx, err = t.h.db.Begin(writable)
		return err
	})
	if _, panicked := errors.AsType[*CorruptError](err); panicked {
		t.stuck.Store(true)
		return nil, t.metaLost()
	}
	return tx, err
}

func (t *Tree) metaLost() *CorruptError {
	return &CorruptError{File: t.path, Offset: 0, What: "its meta pages can't be read any more"}
}

// Size returns the file's size and how much of it is in use, the rest being free pages, both in bytes.
func (t *Tree) Size() (fileBytes, usedBytes int64) {
	tx, err := t.begin(false)
	if err != nil {
		return 0, 0
	}
	defer func() { _ = tx.Rollback() }()
	if info, err := os.Stat(t.path); err == nil {
		fileBytes = info.Size()
	}
	stats := tx.DB().Stats()
	return fileBytes, tx.Size() - int64(stats.FreePageN+stats.PendingPageN)*int64(tx.DB().Info().PageSize)
}

// DropPages takes the file's pages out of this process's memory, where those that were read count; they stay in the
// system's cache, and the next reads fetch them again. It does nothing on systems other than Linux.
func (t *Tree) DropPages() {
	tx, err := t.begin(false)
	if err != nil {
		return
	}
	// Only inside a transaction is the mapping sure to be the file's: later the address may be the Go heap's.
	drop(mapped(tx.DB(), tx.Size()))
	_ = tx.Rollback()
}

// Close closes the file after running transactions have ended. It is idempotent.
func (t *Tree) Close() error {
	t.writer.Lock()
	defer t.writer.Unlock()
	t.mu.Lock()
	h, closed := t.h, t.closed
	t.closed = true
	t.mu.Unlock()
	if closed {
		return nil
	}
	if t.stuck.Load() {
		return errors.Join(unlock(h.file), h.file.Close()) // bbolt's own Close would wait for ever
	}
	return h.db.Close()
}
