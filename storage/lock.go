package storage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// folderLock keeps a data folder for one process: an advisory lock on the file "lock", which names its holder. It is
// free at once when the process ends, however it ends.
type folderLock struct{ f *os.File }

// lockFolder locks dir; the error of a folder in use wraps ErrInUse and names the process that has it.
func lockFolder(dir string) (*folderLock, error) {
	name := filepath.Join(dir, "lock")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		holder, _ := io.ReadAll(io.LimitReader(f, 64))
		f.Close()
		return nil, fmt.Errorf("%w: %s is open in process %s", ErrInUse, dir, strings.TrimSpace(string(holder)))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	l := &folderLock{f}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if _, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Close frees the folder.
func (l *folderLock) Close() error { return l.f.Close() }
