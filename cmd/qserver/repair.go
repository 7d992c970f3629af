package main

import (
	"context"
	"fmt"
	"io"

	"qserver/storage"
)

func repairCommand() command {
	return command{
		name:  "repair",
		usage: "[-cut] DIR",
		short: "make a damaged folder start again, keep the damaged files",
		help: `Makes the data folder DIR startable again with every message that is intact, also those
behind the damage, and lists what is missing. Damaged files are kept beside the new
ones, as NAME.damaged. A folder in use is refused (exit 75). Run qserver check first:
it only reads and says what is at stake.

  -cut   drop everything behind the first damage of the log: what is left is then
         exactly the state at one moment
`,
		run: repair,
	}
}

func repair(_ context.Context, args, _ []string, stdout, stderr io.Writer) error {
	cut := false
	operands, err := parseCommand("repair", args, []option{{"cut", true, toggle(&cut)}}, "DIR")
	if err != nil {
		return err
	}
	dir := operands[0]
	if err := existingFolder(dir); err != nil {
		return err
	}
	report, err := storage.Repair(dir, cut, newProgress(stderr).report)
	if err != nil {
		return folderError("repair", dir, err)
	}
	return writeRepair(stdout, report)
}

func writeRepair(w io.Writer, r storage.RepairReport) error {
	for _, name := range r.Kept {
		fmt.Fprintf(w, "kept: %s\n", name)
	}
	for _, what := range r.Missing {
		fmt.Fprintf(w, "missing: %s\n", what)
	}
	if len(r.Kept) == 0 && len(r.Missing) == 0 {
		fmt.Fprintln(w, "nothing was damaged")
	}
	_, err := fmt.Fprintf(w, "%d intact records and rows; the folder can be started\n", r.Intact)
	return err
}
