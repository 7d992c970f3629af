package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPutMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own-records-5-20")
	refused := func(from uint64, want string) {
		t.Helper()
		if _, err := openPutMark(path, "a:1", from, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("from %d: got %v, want %q", from, err, want)
		}
	}
	begin := func(from uint64, again bool) *putMark {
		t.Helper()
		m, err := openPutMark(path, "a:1", from, again)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	begin(0, false)
	refused(0, "up to record 0 at least: to go on: -from 1") // killed before the first was noted

	m := begin(1, false)
	if err := m.passed(7); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the connection ended")
	if err := m.end(broken); !errors.Is(err, broken) {
		t.Errorf("got %v, want what went wrong", err)
	}
	refused(0, "to go on: -from 8")
	refused(7, "to go on: -from 8")
	m = begin(8, false)
	if err := m.end(nil); err != nil {
		t.Fatal(err)
	}
	refused(0, "was put back to a:1 at ")
	refused(30, "was put back to a:1 at ")
	begin(0, true)

	if err := os.WriteFile(path+".put", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(0, "can't be read")
}
