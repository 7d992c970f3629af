package faultfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"syscall"

	"qserver/storage/ulog"
)

// Kind says what an operation does.
type Kind string

// The kinds of operations.
const (
	MkdirAll Kind = "mkdir"
	Open     Kind = "open"
	Create   Kind = "create" // an Open that makes the file
	ReadDir  Kind = "readdir"
	Rename   Kind = "rename"
	Remove   Kind = "remove"
	SyncDir  Kind = "syncdir"
	Read     Kind = "read"
	Write    Kind = "write"
	Size     Kind = "size"
	Truncate Kind = "truncate"
	Allocate Kind = "allocate"
	Sync     Kind = "sync"
	Close    Kind = "close"
)

// Op is one operation as it was asked for.
type Op struct {
	N      int // its number, from 0
	Kind   Kind
	Name   string // of the file as it was opened, or of the folder
	To     string // new name of a Rename
	Offset int64  // of a Read or Write
	Len    int64  // bytes to read or write, or the size for Truncate and Allocate
}

// String is the operation in one line.
func (o Op) String() string {
	return fmt.Sprintf("%d %s %s %s offset %d len %d", o.N, o.Kind, o.Name, o.To, o.Offset, o.Len)
}

// FS is the file system. It is safe for concurrent use.
type FS struct {
	mu     sync.Mutex // guards what follows
	disk   *disk
	start  *disk // the disk before the first operation
	steps  []step
	ops    []Op
	inject func(Op) error
	space  int64 // bytes that all files together may have; negative: no limit
}

var _ ulog.FS = (*FS)(nil)

// New returns an empty file system.
func New() *FS { return from(newDisk()) }

func from(d *disk) *FS { return &FS{disk: d, start: d.clone(), space: -1} }

// Inject makes fn decide over each operation from now on: an error makes it fail with that error and without effect,
// unless Short wraps it. fn must not call the FS. nil ends it.
func (f *FS) Inject(fn func(Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inject = fn
}

// Nth returns a function for Inject that makes the operation with the number n fail with err.
func Nth(n int, err error) func(Op) error {
	return func(o Op) error {
		if o.N == n {
			return err
		}
		return nil
	}
}

// Short wraps an error for a Write: half of the bytes are written before it fails.
func Short(err error) error { return &short{err} }

type short struct{ error }

func (s *short) Unwrap() error { return s.error }

// SetSpace limits the bytes of all files together; what would go over the limit fails with ENOSPC. A negative number
// takes the limit away.
func (f *FS) SetSpace(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.space = bytes
}

// Ops returns the operations so far.
func (f *FS) Ops() []Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops[:len(f.ops):len(f.ops)]
}

// Len returns the number of operations so far, which is the number of the next one.
func (f *FS) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ops)
}

// ReadFile returns a file's bytes as a reader sees them now. It is no operation.
func (f *FS) ReadFile(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.disk.names[filepath.Clean(name)]
	if n == nil {
		return nil, pathError("read", name, fs.ErrNotExist)
	}
	return append([]byte(nil), n.data...), nil
}

// HasFile reports whether there is a file in the folder. It is no operation.
func (f *FS) HasFile(dir string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.disk.names {
		if filepath.Dir(name) == filepath.Clean(dir) {
			return true
		}
	}
	return false
}

// WriteFile puts a file with these bytes in place, durably. It is no operation; call it before any is made.
func (f *FS) WriteFile(name string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range []*disk{f.disk, f.start} {
		d.put(filepath.Clean(name), data)
	}
}

// Clone returns an independent file system that holds what a reader sees now, all of it durable.
func (f *FS) Clone() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := newDisk()
	for name, n := range f.disk.names {
		d.put(name, n.data)
	}
	return from(d)
}

func pathError(op, name string, err error) error { return &os.PathError{Op: op, Path: name, Err: err} }

// begin numbers and records an operation and asks whether it shall fail. It is called with mu held.
func (f *FS) begin(o Op) error {
	o.N = len(f.ops)
	f.ops = append(f.ops, o)
	if f.inject == nil {
		return nil
	}
	if err := f.inject(o); err != nil {
		return &os.PathError{Op: string(o.Kind), Path: o.Name, Err: err}
	}
	return nil
}

// do applies a step and keeps it for Replay. It is called with mu held.
func (f *FS) do(s step) {
	s.op = len(f.ops) - 1
	f.steps = append(f.steps, s)
	f.disk.apply(s)
}

// MkdirAll makes a folder.
func (f *FS) MkdirAll(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begin(Op{Kind: MkdirAll, Name: dir})
}

// OpenFile opens a file; of the flags it knows O_CREATE, O_EXCL and O_TRUNC.
func (f *FS) OpenFile(name string, flag int) (ulog.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = filepath.Clean(name)
	n := f.disk.names[name]
	kind := Open
	if n == nil && flag&os.O_CREATE != 0 {
		kind = Create
	}
	if err := f.begin(Op{Kind: kind, Name: name}); err != nil {
		return nil, err
	}
	switch {
	case n == nil && kind == Open:
		return nil, pathError("open", name, fs.ErrNotExist)
	case n != nil && flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return nil, pathError("open", name, fs.ErrExist)
	case n == nil:
		f.do(step{kind: Create, name: name})
		n = f.disk.names[name]
	case flag&os.O_TRUNC != 0:
		f.do(step{kind: Truncate, inode: n.id})
	}
	return &file{fs: f, name: name, inode: n}, nil
}

// ReadDir returns the names in a folder, sorted.
func (f *FS) ReadDir(dir string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin(Op{Kind: ReadDir, Name: dir}); err != nil {
		return nil, err
	}
	var names []string
	for name := range f.disk.names {
		if filepath.Dir(name) == filepath.Clean(dir) {
			names = append(names, filepath.Base(name))
		}
	}
	sort.Strings(names)
	return names, nil
}

// Rename moves a file, over another if there is one.
func (f *FS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	from, to = filepath.Clean(from), filepath.Clean(to)
	if err := f.begin(Op{Kind: Rename, Name: from, To: to}); err != nil {
		return err
	}
	n := f.disk.names[from]
	if n == nil {
		return pathError("rename", from, fs.ErrNotExist)
	}
	f.do(step{kind: Rename, name: from, to: to, inode: n.id})
	return nil
}

// Remove removes a file's name; open files go on working.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = filepath.Clean(name)
	if err := f.begin(Op{Kind: Remove, Name: name}); err != nil {
		return err
	}
	if f.disk.names[name] == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	f.do(step{kind: Remove, name: name})
	return nil
}

// SyncDir makes the names in a folder durable.
func (f *FS) SyncDir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin(Op{Kind: SyncDir, Name: dir}); err != nil {
		return err
	}
	f.do(step{kind: SyncDir, name: filepath.Clean(dir)})
	return nil
}

// file is an open file.
type file struct {
	fs     *FS
	name   string
	inode  *inode
	closed bool
}

func (h *file) begin(kind Kind, offset, n int64) error {
	if err := h.fs.begin(Op{Kind: kind, Name: h.name, Offset: offset, Len: n}); err != nil {
		return err
	}
	if h.closed {
		return pathError(string(kind), h.name, os.ErrClosed)
	}
	return nil
}

func (h *file) ReadAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.begin(Read, off, int64(len(p))); err != nil {
		return 0, err
	}
	if off >= int64(len(h.inode.data)) {
		return 0, io.EOF
	}
	n := copy(p, h.inode.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *file) WriteAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	err := h.begin(Write, off, int64(len(p)))
	if err == nil {
		if room := h.fs.room(h.inode); off+int64(len(p)) > room {
			p = p[:max(0, min(int64(len(p)), room-off))]
			err = pathError("write", h.name, syscall.ENOSPC)
		}
	} else {
		if _, ok := errors.AsType[*short](err); !ok {
			return 0, err
		}
		p = p[:len(p)/2]
	}
	if len(p) > 0 {
		h.fs.do(step{kind: Write, inode: h.inode.id, offset: off, data: append([]byte(nil), p...)})
	}
	return len(p), err
}

// room is how long n's file may become.
func (f *FS) room(n *inode) int64 {
	if f.space < 0 {
		return 1 << 62
	}
	left := f.space
	for _, other := range f.disk.names {
		if other != n {
			left -= int64(len(other.data))
		}
	}
	return max(left, int64(len(n.data)))
}

func (h *file) Size() (int64, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.begin(Size, 0, 0); err != nil {
		return 0, err
	}
	return int64(len(h.inode.data)), nil
}

func (h *file) Truncate(size int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.begin(Truncate, 0, size); err != nil {
		return err
	}
	h.fs.do(step{kind: Truncate, inode: h.inode.id, offset: size})
	return nil
}

func (h *file) Allocate(size int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.begin(Allocate, 0, size); err != nil {
		return err
	}
	if size > h.fs.room(h.inode) {
		return pathError("allocate", h.name, syscall.ENOSPC)
	}
	if size > int64(len(h.inode.data)) {
		h.fs.do(step{kind: Truncate, inode: h.inode.id, offset: size})
	}
	return nil
}

func (h *file) Sync() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	err := h.begin(Sync, 0, 0)
	if errors.Is(err, os.ErrClosed) {
		return err
	}
	h.fs.do(step{kind: Sync, inode: h.inode.id, failed: err != nil})
	return err
}

func (h *file) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	err := h.begin(Close, 0, 0)
	h.closed = true
	return err
}
