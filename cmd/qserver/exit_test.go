package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"

	"qserver/storage"
)

func TestExitCode(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want int
	}{
		{"none", nil, 0},
		{"usage", usageError("x"), exitUsage},
		{"wrapped usage", fmt.Errorf("step: %w", usageError("x")), exitUsage},
		{"first code stays", withCode(exitIO, fmt.Errorf("step: %w", usageError("x"))), exitUsage},
		{"in use", fmt.Errorf("open d: %w", storage.ErrInUse), exitInUse},
		{"damaged", fmt.Errorf("open d: %w", storage.ErrDamaged), exitData},
		{"newer", fmt.Errorf("open d: %w", storage.ErrNewerFormat), exitData},
		{"network", &net.OpError{Op: "listen", Err: syscall.EADDRNOTAVAIL}, exitUnavailable},
		{"no such host", fmt.Errorf("x: %w", &net.DNSError{Err: "no such host"}), exitUnavailable},
		{"permission", &fs.PathError{Op: "mkdir", Path: "d", Err: syscall.EACCES}, exitCreate},
		{"read-only file system", &fs.PathError{Op: "mkdir", Path: "d", Err: syscall.EROFS}, exitCreate},
		{"disk full", &fs.PathError{Op: "write", Path: "d", Err: syscall.ENOSPC}, exitIO},
		{"sync", os.NewSyscallError("fdatasync", syscall.EIO), exitIO},
		{"bare error number", fmt.Errorf("write: %w", syscall.EIO), exitIO},
		{"joined", errors.Join(errors.New("x"), storage.ErrInUse), exitInUse},
		{"unknown", errors.New("x"), exitSoftware},
	} {
		if got := exitCode(tt.err); got != tt.want {
			t.Errorf("%s: exit code %d, want %d", tt.name, got, tt.want)
		}
	}
	if withCode(exitIO, nil) != nil {
		t.Error("withCode makes an error of none")
	}
}
