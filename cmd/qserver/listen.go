package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// address sets *p to host:port; an empty host means all addresses of the machine, port 0 any free one.
func address(p *string) func(string) error {
	return func(s string) error {
		_, port, err := net.SplitHostPort(s)
		if err != nil {
			return errors.New("want host:port, such as 127.0.0.1:11211")
		}
		if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
			return errors.New("want a port from 0 to 65535")
		}
		*p = s
		return nil
	}
}

// endpoint is an address that is looked up, so that what was checked is what is listened on.
type endpoint struct {
	flag string // that named it
	text string // as given
	addr *net.TCPAddr
}

func resolve(flag, text string) (endpoint, error) {
	addr, err := net.ResolveTCPAddr("tcp", text)
	if err != nil {
		return endpoint{}, withCode(exitUnavailable, fmt.Errorf("-%s %s: %w", flag, text, err))
	}
	return endpoint{flag, text, addr}, nil
}

// guard refuses an address that others can reach: nothing asks them who they are.
func (e endpoint) guard(insecure bool) error {
	if insecure || e.addr.IP.IsLoopback() {
		return nil
	}
	other := ""
	if e.flag == "listen" {
		other = " let clients log in with -auth-file,"
	}
	return withCode(exitRefused, fmt.Errorf("-%s %s is not a loopback address, and without authentication whoever reaches it"+
		" can take and delete messages: choose a loopback address,%s or give -insecure if that is meant", e.flag, e.text, other))
}

func (e endpoint) listen() (net.Listener, error) {
	ln, err := net.ListenTCP("tcp", e.addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("-%s %s: address already in use: another server listens there; stop it or choose another with -%s",
			e.flag, e.text, e.flag)
	case err != nil:
		err = fmt.Errorf("-%s %s: %w", e.flag, e.text, err)
	}
	if err != nil {
		return nil, withCode(exitUnavailable, err)
	}
	return ln, nil
}
