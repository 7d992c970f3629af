package main

import (
	"fmt"
	"os"
)

// existingFolder is the check of the subcommands that work on a folder: they never make one.
func existingFolder(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return withCode(exitNoInput, err)
	case !info.IsDir():
		return withCode(exitNoInput, fmt.Errorf("%s is not a folder", path))
	}
	return nil
}
