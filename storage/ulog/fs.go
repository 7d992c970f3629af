package ulog

import (
	"io"
	"os"
	"path/filepath"
	"sort"
)

// FS is what the log needs of a file system. Names are whole paths. OS is the real one; internal/faultfs is the faulty
// in-memory one. Its methods may be called from several goroutines at a time.
type FS interface {
	MkdirAll(dir string) error                    // MkdirAll makes dir with mode 0700 and is content if it exists.
	OpenFile(name string, flag int) (File, error) // OpenFile takes the flags of package os; new files get mode 0600.
	ReadDir(dir string) ([]string, error)         // ReadDir returns base names, sorted.
	Rename(from, to string) error                 // Rename replaces to if it exists.
	Remove(name string) error
	SyncDir(dir string) error // SyncDir makes the directory's entries durable.
}

// File is an open file of an FS. Reads may run beside writes and beside each other.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	// Allocate reserves blocks up to size bytes and makes the file at least that long; the new bytes read as zero.
	// Want of space is an error here (ENOSPC) and not at the write that follows. Where the system has no such call the
	// file is only made longer.
	Allocate(size int64) error
	// Sync makes the file's bytes and length durable (fdatasync).
	Sync() error
}

// OS is the file system of the operating system.
type OS struct{}

// MkdirAll makes dir and what is missing above it.
func (OS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o700) }

// OpenFile opens or, with os.O_CREATE, makes a file.
func (OS) OpenFile(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// ReadDir returns the base names in dir, sorted.
func (OS) ReadDir(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	return names, nil
}

// Rename moves a file over another.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove removes a file.
func (OS) Remove(name string) error { return os.Remove(name) }

// SyncDir syncs the directory itself.
func (OS) SyncDir(dir string) error {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

// extend makes the file at least size bytes long without reserving blocks.
func (f osFile) extend(size int64) error {
	have, err := f.Size()
	if err != nil || have >= size {
		return err
	}
	return f.Truncate(size)
}
