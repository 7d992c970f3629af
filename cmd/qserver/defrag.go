package main

import (
	"context"
	"fmt"
	"io"

	"qserver/storage"
)

func defragCommand() command {
	return command{
		name:  "defrag",
		usage: "DIR",
		short: "rewrite a stopped server's tree without its holes",
		help: `Rewrites the tree file of the data folder DIR without its free pages and prints its size
before and after. A running server does the same by itself when the file is mostly
empty, so this is for a stopped one: a folder in use is refused (exit 75).
It needs free disk for what is left. An interrupted run leaves the old file whole.
`,
		run: defrag,
	}
}

func defrag(_ context.Context, args, _ []string, stdout, stderr io.Writer) error {
	operands, err := parseCommand("defrag", args, nil, "DIR")
	if err != nil {
		return err
	}
	dir := operands[0]
	if err := existingFolder(dir); err != nil {
		return err
	}
	before, after, err := storage.Defrag(dir, newProgress(stderr).report)
	if err != nil {
		return folderError("defrag", dir, err)
	}
	_, err = fmt.Fprintf(stdout, "before: %d bytes (%s)\nafter:  %d bytes (%s)\n",
		before, humanSize(before), after, humanSize(after))
	return err
}
