//go:build unix

package tree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockWait is how long a file that someone else has locked is waited for.
const lockWait = time.Second

// lock takes the lock on f that bbolt takes too: exclusive for writing, shared for reading.
func lock(f *os.File, exclusive bool) error {
	how := syscall.LOCK_SH | syscall.LOCK_NB
	if exclusive {
		how = syscall.LOCK_EX | syscall.LOCK_NB
	}
	for end := time.Now().Add(lockWait); ; time.Sleep(20 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), how)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: %w", f.Name(), ErrInUse)
		}
	}
	// Whoever held the lock may have renamed another file over this one meanwhile.
	held, err := f.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Stat(f.Name()); err != nil || !os.SameFile(held, named) {
		return fmt.Errorf("%s was replaced: %w", f.Name(), ErrInUse)
	}
	return nil
}

// unlock ends the lock on f; closing f does not while it is mapped.
func unlock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

// mapFile maps size bytes of f for reading; unmap ends it.
func mapFile(f *os.File, size int64) (data []byte, unmap func() error, err error) {
	if data, err = syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED); err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	return data, func() error { return syscall.Munmap(data) }, nil
}

// syncDir flushes the directory entry of path.
func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
