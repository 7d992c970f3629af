package ulog_test

import (
	"testing"

	"qserver/storage/ulog"
)

// TestSpareOfAnEmptyRun: a run in which nothing was written leaves a segment without records and a spare behind it. The next run
// makes the first one anew and keeps the spare, and what it writes there can be read, then and after a restart.
func TestSpareOfAnEmptyRun(t *testing.T) {
	dir := t.TempDir()
	o := ulog.Options{SegmentBytes: 16 << 10}
	var a appender
	for run := range 4 {
		l, _, got := open(t, dir, ulog.Position{}, ulog.Place{}, o)
		same(t, got, a.wrote)
		a.t, a.log = t, l
		if err := l.Prepare(); err != nil {
			t.Fatal(err)
		}
		if run >= 2 { // two have written nothing
			a.add(40, 1000, false)
		}
		same(t, readAll(t, a.reader(ulog.Position{}, ulog.Place{})), a.wrote)
		if err := l.Seal(); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
