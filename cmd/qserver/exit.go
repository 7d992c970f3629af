package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"qserver/storage"
)

// Exit codes, after BSD's sysexits. docs/operations.md has a paragraph for each.
const (
	exitNotDone     = 1  // a server has refused what the command asked for
	exitUsage       = 64 // a flag, an argument or an environment variable is wrong
	exitData        = 65 // the data folder is damaged, or a newer version's
	exitNoInput     = 66 // the folder or server that a subcommand was given is not there
	exitUnavailable = 69 // an address is in use or can't be listened on; a server does not answer
	exitSoftware    = 70 // an error that none of the others covers
	exitCreate      = 73 // the data folder, the log or the pid file can't be made
	exitIO          = 74 // a write or a sync failed
	exitInUse       = 75 // another process has the data folder
	exitRefused     = 77 // would listen beyond loopback without authentication
	exitConfig      = 78 // the auth file, a certificate or its key can't be read, or does not hold
)

// codeError is an error with the exit code that the process ends with.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

// withCode gives err an exit code; a code that a wrapped error already has stays.
func withCode(code int, err error) error {
	if _, ok := errors.AsType[*codeError](err); ok || err == nil {
		return err
	}
	return &codeError{code, err}
}

// usageError is a mistake on the command line or in the environment.
func usageError(format string, args ...any) error {
	return &codeError{exitUsage, fmt.Errorf(format, args...)}
}

// exitCode says what the process ends with after err, 0 for nil.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*codeError](err); ok {
		return e.code
	}
	switch {
	case errors.Is(err, storage.ErrInUse):
		return exitInUse
	case errors.Is(err, storage.ErrDamaged), errors.Is(err, storage.ErrNewerFormat):
		return exitData
	case isListenError(err):
		return exitUnavailable
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EROFS):
		return exitCreate
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return exitIO
	}
	if _, ok := errors.AsType[*os.SyscallError](err); ok {
		return exitIO
	}
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		return exitIO
	}
	return exitSoftware
}

func isListenError(err error) bool {
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}
