package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// writePID writes this process's number to path, "" for none, and returns what removes the file again, which it does only
// while the file is still this process's.
func writePID(path string) (remove func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	own := strconv.Itoa(os.Getpid())
	if err := os.WriteFile(path, []byte(own+"\n"), 0o644); err != nil {
		return nil, withCode(exitCreate, fmt.Errorf("-pid: %w", err))
	}
	return func() error {
		text, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(text)) != own {
			return nil
		}
		return os.Remove(path)
	}, nil
}
