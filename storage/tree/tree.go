package tree

import (
	"io"
	"log/slog"
)

// TableSpec describes a table. Its number is its index in Options.Tables.
type TableSpec struct {
	Name string
	// GroupLen is the length of the key prefix by which rows are grouped; each group's count and digest are kept with
	// its rows. 0: no groups.
	GroupLen int
}

// Options configures Open.
type Options struct {
	Tables   []TableSpec  // at most 200; a later version may append tables, never change or drop one
	PageSize int          // bytes, of a new file; 0: 16384
	Log      *slog.Logger // discards if nil
}

// Tree is an open file. Its methods are safe for concurrent use.
type Tree struct{}

// Tx is a writing transaction.
type Tx struct{}

// View is a reading transaction.
type View struct{}

// Report is what Check found.
type Report struct {
	Rows      []int64 // per table
	Groups    int64
	FileBytes int64
	UsedBytes int64
	Problems  []*CorruptError
}

// Open opens the tree at path and creates it if there is none.
func Open(path string, o Options) (*Tree, error) { panic("stub") }

// Update runs fn in a transaction; an error of fn or of the disk rolls it back.
func (t *Tree) Update(fn func(*Tx) error) error { panic("stub") }

// View runs fn on the state after the last Update.
func (t *Tree) View(fn func(*View) error) error { panic("stub") }

// Put stores a row.
func (x *Tx) Put(table int, key, value []byte) error { panic("stub") }

// Delete removes a row and returns its value.
func (x *Tx) Delete(table int, key []byte) (old []byte, found bool, err error) { panic("stub") }

// Get returns a row's value as this transaction sees it.
func (x *Tx) Get(table int, key []byte) (value []byte, found bool, err error) { panic("stub") }

// Scan calls fn for each row of [from, to).
func (x *Tx) Scan(table int, from, to []byte, fn func(key, value []byte) error) error { panic("stub") }

// Get returns a row's value.
func (v *View) Get(table int, key []byte) (value []byte, found bool, err error) { panic("stub") }

// Scan calls fn for each row of [from, to).
func (v *View) Scan(table int, from, to []byte, fn func(key, value []byte) error) error { panic("stub") }

// Count returns how many rows a group has.
func (v *View) Count(table int, group []byte) (count uint64, err error) { panic("stub") }

// Size returns the file's size and how much of it holds data, in bytes.
func (t *Tree) Size() (fileBytes, usedBytes int64) { panic("stub") }

// Shrink rewrites the file without its free pages.
func (t *Tree) Shrink() error { panic("stub") }

// DropPages gives mapped pages back.
func (t *Tree) DropPages() { panic("stub") }

// Copy writes the file as it is now to w.
func (t *Tree) Copy(w io.Writer) error { panic("stub") }

// CopyFile writes a verified copy to path.
func (t *Tree) CopyFile(path string) error { panic("stub") }

// Close closes the file.
func (t *Tree) Close() error { panic("stub") }

// Defrag rewrites the file at path, which nothing may have open.
func Defrag(path string, o Options, progress func(done, total int64)) (before, after int64, err error) {
	panic("stub")
}

// Check reads the whole file.
func Check(path string, o Options, progress func(done, total int64), fn func(table int, key, value []byte) error) (Report, error) {
	panic("stub")
}
