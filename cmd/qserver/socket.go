package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

// fileMode sets *p to permissions, which are given as an octal number.
func fileMode(p *fs.FileMode) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseUint(s, 8, 32)
		if err != nil || n > 0o777 {
			return errors.New("want an octal number from 0 to 0777, such as 0660")
		}
		*p = fs.FileMode(n)
		return nil
	}
}

// listenSocket listens at a Unix socket, whose file it makes with that mode and removes when it is closed. A file that is left
// from a server that was killed is replaced; anything else there is refused.
func listenSocket(path string, mode fs.FileMode) (net.Listener, error) {
	if err := removeSocket(path); err != nil {
		return nil, withCode(exitUnavailable, fmt.Errorf("-socket %s: %w", path, err))
	}
	// Linux makes the file with the mode of the descriptor: there is no moment in which others could connect.
	restrict := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { syscall.Fchmod(int(fd), uint32(mode)) })
	}}
	ln, err := restrict.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, withCode(exitUnavailable, fmt.Errorf("-socket %s: %w", path, err))
	}
	if err := os.Chmod(path, mode); err != nil { // what the process's mask has taken away
		return nil, errors.Join(fmt.Errorf("-socket: %w", err), ln.Close())
	}
	return ln, nil
}

// removeSocket removes the socket of a server that is gone.
func removeSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("a file that is no socket is there: remove it, or choose another path")
	}
	nc, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		nc.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return errors.New("address already in use: another server listens there; stop it or choose another with -socket")
	}
	return os.Remove(path)
}
