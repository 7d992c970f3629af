package ulog

import (
	"errors"
	"os"
	"syscall"
)

// Allocate reserves blocks with fallocate.
func (f osFile) Allocate(size int64) error {
	err := f.control("fallocate", func(fd int) error { return syscall.Fallocate(fd, 0, 0, size) })
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return f.extend(size)
	}
	return err
}

// Sync is fdatasync: bytes and length, but no times.
func (f osFile) Sync() error { return f.control("fdatasync", syscall.Fdatasync) }

func (f osFile) control(op string, fn func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = c.Control(func(fd uintptr) {
		for callErr = fn(int(fd)); callErr == syscall.EINTR; callErr = fn(int(fd)) {
		}
	})
	if err == nil && callErr != nil {
		err = &os.PathError{Op: op, Path: f.Name(), Err: callErr}
	}
	return err
}
