package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestClientMatrix compares the matrix of docs/clients.md with what the story finds: a library has a row, with a call for each of
// the columns, and — or the want of receipts where its case says so.
func TestClientMatrix(t *testing.T) {
	text, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string][]string)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 9 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows[cells[0]] = cells[1:]
	}
	for _, c := range slices.Concat(phpStories(), perlStories(), pythonStories()) {
		cells := rows[c.name]
		for name := c.name; cells == nil && strings.Contains(name, " "); cells = rows[name] { // an option has no row of its own
			name = name[:strings.LastIndex(name, " ")]
		}
		if cells == nil {
			t.Errorf("%s has no row", c.name)
			continue
		}
		if i := slices.IndexFunc(cells, func(cell string) bool { return cell == "" || strings.HasPrefix(cell, "—") }); i >= 0 && !(i == 3 && c.noReceipts) {
			t.Errorf("%s: its column %d is %q, but the story shows that it can", c.name, i+1, cells[i])
		}
		several := cells[7]
		if got := strings.Contains(several, "no receipts"); got != c.noBulk {
			t.Errorf("%s: several at once is %q; its bulk shows no receipts: %v", c.name, several, c.noBulk)
		}
		if got := strings.Contains(several, "q/batch="); got == c.noBatch {
			t.Errorf("%s: several at once is %q; it can't read a list: %v", c.name, several, c.noBatch)
		}
	}
}
