package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"qserver/storage"
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

// folderError is why a subcommand could not do its work on dir.
func folderError(command, dir string, err error) error {
	err = fmt.Errorf("%s %s: %w", command, dir, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return withCode(exitNoInput, err)
	case errors.Is(err, storage.ErrDamaged) && command != "repair":
		return fmt.Errorf("%w; nothing was changed; to go on with what is intact: qserver repair %s", err, dir)
	}
	return err
}
