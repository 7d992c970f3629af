package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// A report is the outcome of a scenario: what was run where, tables, notes. It is printed as text, JSON or Markdown.
type report struct {
	Scenario string   `json:"scenario"`
	Section  string   `json:"section"` // of a README; the scenario's name unless -section said otherwise
	Title    string   `json:"title"`
	Command  string   `json:"command"`
	Machine  machine  `json:"machine"`
	Tables   []*table `json:"tables"`
	Plots    []*plot  `json:"plots,omitempty"`
	Notes    []string `json:"notes,omitempty"`
	Failure  string   `json:"failure,omitempty"` // why it ended before its end
}

// A table has a row of values (values.go, strings, or nil for an empty place) for each thing measured.
type table struct {
	Name    string
	Columns []string
	Rows    [][]any
}

func newReport(s scenario, fs *flag.FlagSet, e *env) *report {
	command := "go run ./bench " + s.name
	fs.Visit(func(f *flag.Flag) {
		value := quoted(f.Value.String())
		switch f.Name {
		case "json", "markdown", "section", "svg", "server", "dir", "idle-check":
		case "target": // which may be repeated
			command += " -target " + f.Value.String()
		default:
			if b, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
				command += " -" + f.Name + "=" + value
				break
			}
			command += " -" + f.Name + " " + value
		}
	})
	r := &report{Scenario: s.name, Section: cmp.Or(e.section, s.name), Title: s.title, Command: command, Machine: thisMachine(e.dir, e.idleCheck)}
	if r.Machine.Busy > maxBusy {
		r.note("the machine was not idle before the run: %.0f %% of its cores were busy; on such a machine rates are lower, and at one connection higher, since the cores do not sleep between two messages", 100*r.Machine.Busy)
	}
	return r
}

// maxBusy is the share of the cores that others may use before the report says so.
const maxBusy = 0.05

// quoted puts a flag's value in quotes where a shell would need them.
func quoted(value string) string {
	if value == "" || strings.ContainsAny(value, " *?$&;|<>()'\"\\") {
		return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
	}
	return value
}

// table adds a table. No two columns may have the same name.
func (r *report) table(name string, columns ...string) *table {
	for i, c := range columns {
		if slices.Contains(columns[:i], c) {
			panic("two columns " + c) // one would hide the other in JSON
		}
	}
	t := &table{Name: name, Columns: columns}
	r.Tables = append(r.Tables, t)
	return t
}

func (r *report) note(format string, args ...any) {
	note := fmt.Sprintf(format, args...)
	if slices.Contains(r.Notes, note) {
		return
	}
	r.Notes = append(r.Notes, note)
}

func (t *table) row(values ...any) { t.Rows = append(t.Rows, values) }

// MarshalJSON writes each row as an object by column.
func (t *table) MarshalJSON() ([]byte, error) {
	rows := make([]map[string]any, len(t.Rows))
	for i, row := range t.Rows {
		rows[i] = make(map[string]any, len(row))
		for j, value := range row {
			rows[i][t.Columns[j]] = value
		}
	}
	return json.Marshal(struct {
		Name    string           `json:"name"`
		Columns []string         `json:"columns"`
		Rows    []map[string]any `json:"rows"`
	}{t.Name, t.Columns, rows})
}

func cell(value any) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// write prints the report for people, or as JSON.
func (r *report) write(w io.Writer, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	_, err := w.Write(r.text())
	return err
}

func (r *report) text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: %s\n%s\n%s\n", r.Scenario, r.Title, r.Machine, r.Command)
	for _, t := range r.Tables {
		fmt.Fprintf(&b, "\n%s\n", t.Name)
		tw := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
		fmt.Fprintln(tw, strings.Join(t.Columns, "\t"))
		for _, row := range t.Rows {
			cells := make([]string, len(row))
			for i, value := range row {
				cells[i] = cell(value)
			}
			fmt.Fprintln(tw, strings.Join(cells, "\t"))
		}
		tw.Flush()
	}
	for i, n := range r.Notes {
		if i == 0 {
			fmt.Fprintln(&b)
		}
		fmt.Fprintf(&b, "- %s\n", n)
	}
	fmt.Fprintln(&b)
	return b.Bytes()
}

// markdown returns the section of the report for a README.
func (r *report) markdown() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "\n`%s` on %s:\n", r.Command, r.Machine)
	for _, t := range r.Tables {
		fmt.Fprintf(&b, "\n%s:\n\n| %s |\n|%s\n", t.Name, strings.Join(t.Columns, " | "), strings.Repeat(" --- |", len(t.Columns)))
		for _, row := range t.Rows {
			for _, value := range row {
				fmt.Fprintf(&b, "| %s ", cell(value))
			}
			b.WriteString("|\n")
		}
	}
	for i, n := range r.Notes {
		if i == 0 {
			fmt.Fprintln(&b)
		}
		fmt.Fprintf(&b, "- %s\n", n)
	}
	return b.Bytes()
}

// replaceIn puts the report in the place of the file's lines between <!-- begin NAME --> and <!-- end NAME -->.
func (r *report) replaceIn(file string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := "<!-- begin "+r.Section+" -->\n", "<!-- end "+r.Section+" -->\n"
	before, rest, ok := bytes.Cut(old, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return fmt.Errorf("%s has no lines %q and %q", file, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	updated := bytes.Join([][]byte{before, []byte(begin), r.markdown(), []byte(end), after}, nil)
	return os.WriteFile(file, updated, 0o644)
}
