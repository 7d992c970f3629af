package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"qserver/storage"
)

func checkCommand() command {
	return command{
		name:  "check",
		usage: "[-json] DIR",
		short: "verify a stopped server's folder, count its messages",
		help: `Reads all of the data folder DIR, verifies every checksum and invariant, and prints how
many messages each queue holds, by state. It changes nothing. A folder in use is refused
(exit 75): ask its server with qserver status.
Where something is wrong it names file, offset, the messages at stake and the command
that mends it, and ends with exit code 65.

  -json   for programs
`,
		run: check,
	}
}

func check(_ context.Context, args, _ []string, stdout, stderr io.Writer) error {
	asJSON := false
	operands, err := parseCommand("check", args, []option{{"json", true, toggle(&asJSON)}}, "DIR")
	if err != nil {
		return err
	}
	dir := operands[0]
	if err := existingFolder(dir); err != nil {
		return err
	}
	report, err := storage.Check(dir, newProgress(stderr).report)
	if err != nil {
		return folderError("check", dir, err)
	}
	if asJSON {
		err = json.NewEncoder(stdout).Encode(newCheckJSON(report))
	} else {
		err = writeCheck(stdout, report)
	}
	if n := len(report.Problems); n > 0 {
		err = errors.Join(withCode(exitData, fmt.Errorf("check %s: %w: %d %s", dir, storage.ErrDamaged, n, plural(n, "problem"))), err)
	}
	return err
}

func writeCheck(w io.Writer, r storage.CheckReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "messages\tready\tdelayed\tdead\tbytes\t  queue\n")
	var live int64
	for _, q := range r.Queues {
		live += q.Items
		// Nothing is reserved in a folder that no server has open.
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t  %s\n", q.Items, q.Ready+q.Reserved, q.Delayed, q.Dead, q.Bytes, quoted(q.Name))
	}
	err := t.Flush()
	fmt.Fprintf(w, "\n%d %s in %d %s; %d tree rows and %d log records read\n", live, plural(int(live), "message"),
		len(r.Queues), plural(len(r.Queues), "queue"), r.TreeRows, r.Records)
	if r.CutFrames > 0 {
		fmt.Fprintf(w, "the log ends in %d unsynced %s: the next start cuts the tail\n", r.CutFrames, plural(r.CutFrames, "frame"))
	}
	for _, p := range r.Problems {
		fmt.Fprintf(w, "\n%s\n", problemText(p))
	}
	if len(r.Problems) == 0 {
		_, e := fmt.Fprintln(w, "no problem found")
		err = errors.Join(err, e)
	}
	return err
}

func problemText(p storage.Problem) string {
	s := "PROBLEM " + p.File
	if p.Offset >= 0 {
		s += fmt.Sprintf(" at offset %d", p.Offset)
	}
	s += ": " + p.What
	if p.Messages >= 0 {
		s += fmt.Sprintf("\n  at stake: %d %s", p.Messages, plural(int(p.Messages), "message"))
	} else {
		s += "\n  at stake: an unknown number of messages"
	}
	if p.Repair != "" {
		s += "\n  repair:   " + p.Repair
	}
	return s
}

// checkJSON is what qserver check -json prints.
type checkJSON struct {
	Queues    []queueJSON   `json:"queues"`
	Records   int64         `json:"log_records"`
	TreeRows  int64         `json:"tree_rows"`
	CutFrames int           `json:"cut_frames"`
	Problems  []problemJSON `json:"problems"`
}

type queueJSON struct {
	Name    string `json:"name"`
	Items   int64  `json:"items"`
	Ready   int64  `json:"ready"`
	Delayed int64  `json:"delayed"`
	Dead    int64  `json:"dead"`
	Bytes   int64  `json:"bytes"`
}

type problemJSON struct {
	File     string `json:"file"`
	Offset   int64  `json:"offset"` // -1: unknown
	What     string `json:"what"`
	Messages int64  `json:"messages"` // -1: unknown
	Repair   string `json:"repair,omitempty"`
}

func newCheckJSON(r storage.CheckReport) checkJSON {
	out := checkJSON{[]queueJSON{}, r.Records, r.TreeRows, r.CutFrames, []problemJSON{}}
	for _, q := range r.Queues {
		out.Queues = append(out.Queues, queueJSON{q.Name, q.Items, q.Ready + q.Reserved, q.Delayed, q.Dead, q.Bytes})
	}
	for _, p := range r.Problems {
		out.Problems = append(out.Problems, problemJSON(p))
	}
	return out
}
