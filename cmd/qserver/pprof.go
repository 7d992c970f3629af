package main

import (
	"errors"
	"fmt"
)

// pprofMode is the value of -pprof.
type pprofMode int

const (
	pprofOff pprofMode = iota
	pprofLoopback
	pprofPublic
)

// set takes on, off, or public.
func (m *pprofMode) set(s string) error {
	if s == "public" {
		*m = pprofPublic
		return nil
	}
	var on bool
	if toggle(&on)(s) != nil {
		return errors.New("want on, off or public")
	}
	*m = pprofOff
	if on {
		*m = pprofLoopback
	}
	return nil
}

// guard refuses to show profiles to other machines, -insecure or not, unless just that was asked for.
func (m pprofMode) guard(admin endpoint) error {
	if m != pprofLoopback || admin.addr.IP.IsLoopback() {
		return nil
	}
	return withCode(exitRefused, fmt.Errorf("-pprof: -admin %s is not a loopback address, and profiles tell of the program's inner"+
		" life: choose a loopback address, or give -pprof=public if that is meant", admin.text))
}
