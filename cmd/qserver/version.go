package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
)

func versionCommand() command {
	return command{
		name:  "version",
		short: "print the version",
		help:  "Prints the versions of this program and of its compiler, and the platform it is built for.\n",
		run: func(_ context.Context, args, _ []string, stdout, _ io.Writer) error {
			if _, err := parseCommand("version", args, nil); err != nil {
				return err
			}
			return writeVersion(stdout)
		},
	}
}

func writeVersion(w io.Writer) error {
	_, err := fmt.Fprintf(w, "qserver %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
