package storage_test

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// fillDisk writes a file until its disk is full.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 4 {
		b := make([]byte, size)
		for err == nil {
			_, err = f.Write(b)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
}
