package ulog_test

import (
	"testing"

	"qserver/internal/faultfs"
	"qserver/storage/ulog"
)

// When recovery cuts off more than one segment, a second crash in the middle must not leave a gap between those that are
// left.
func TestCrashWhileSegmentsAreCut(t *testing.T) {
	fs := faultfs.New()
	o := func(fs *faultfs.FS) ulog.Options { return ulog.Options{FS: fs, SegmentBytes: 12 << 10} }
	l, _, err := ulog.Open(crashDir, ulog.Position{}, ulog.Place{}, o(fs), nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &appender{t: t, log: l}
	for a.log.End().Segment < 2 {
		a.add(1, 1000, false)
		if err := a.log.Prepare(); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range uint64(40) {
		// The start of the second segment is lost, so it goes, and with it the third.
		crashed := fs.Crash(faultfs.Dropped, seed)
		l, _, err := ulog.Open(crashDir, ulog.Position{}, ulog.Place{}, o(crashed), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		for c := crashed.Replay(); c.Next(); {
			op := c.N()
			l, _, err := ulog.Open(crashDir, ulog.Position{}, ulog.Place{}, o(c.Crash(faultfs.Mixed, seed)), nil)
			if err != nil {
				t.Fatalf("seed %d, crash of recovery before operation %d (%v): %v", seed, op, crashed.Ops()[min(op, crashed.Len()-1)], err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
