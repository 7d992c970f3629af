//go:build !linux

package main

import (
	"fmt"
	"runtime"
)

// bindToCores cannot bind here: it is an error unless all cores are meant.
func bindToCores(n int) error {
	if n < runtime.NumCPU() {
		return fmt.Errorf("a process cannot be bound to %d cores on this system", n)
	}
	return nil
}
