//go:build unix

package memcache

import (
	"net"
	"syscall"
)

// rawConn is the way to a connection's file descriptor, nil if it has none.
func rawConn(nc net.Conn) syscall.RawConn {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// readFD reads once from a non-blocking descriptor. again is true when there is nothing to read yet.
func readFD(fd uintptr, p []byte) (n int, again bool, err error) {
	for {
		n, err := syscall.Read(int(fd), p)
		switch err {
		case nil:
			return n, false, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, true, nil
		default:
			return 0, false, err
		}
	}
}

// writeFD writes once to a non-blocking descriptor; n is 0 when its buffer is full.
func writeFD(fd uintptr, p []byte) (n int, err error) {
	for {
		n, err := syscall.Write(int(fd), p)
		switch err {
		case nil:
			return n, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, nil
		default:
			return 0, err
		}
	}
}
