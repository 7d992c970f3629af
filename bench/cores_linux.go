package main

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// bindToCores lets this process use the first n cores that it may use.
func bindToCores(n int) error {
	var may, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("cores: %w", err)
	}
	for cpu := 0; set.Count() < n && cpu < 1024; cpu++ {
		if may.IsSet(cpu) {
			set.Set(cpu)
		}
	}
	// All threads of the process: those that there are, and so those that they start.
	for _, id := range threadIDs() {
		if err := unix.SchedSetaffinity(id, &set); err != nil {
			return fmt.Errorf("cores: %w", err)
		}
	}
	return nil
}

// threadIDs are those of this process's threads; 0, the calling one, if they are not to be seen.
func threadIDs() []int {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return []int{0}
	}
	var ids []int
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
