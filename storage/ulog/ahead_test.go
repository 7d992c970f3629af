package ulog_test

import (
	"errors"
	"syscall"
	"testing"

	"qserver/internal/faultfs"
	"qserver/storage/ulog"
)

const (
	aheadSegment = 64 << 10
	aheadBytes   = 8 << 10
)

// aheadLog is a log that writes zeros ahead.
func aheadLog(t *testing.T) *appender {
	t.Helper()
	fs := faultfs.New()
	l, _, err := ulog.Open(crashDir, ulog.Position{}, ulog.Place{}, ulog.Options{FS: fs, SegmentBytes: aheadSegment, ZeroAhead: aheadBytes}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &appender{t: t, log: l, faulty: fs}
}

// isAhead says whether an operation is a write of zeros ahead; the records of these tests are shorter.
func isAhead(o faultfs.Op) bool { return o.Kind == faultfs.Write && o.Len > 4096+200 }

func aheadWrites(ops []faultfs.Op) (n int) {
	for _, o := range ops {
		if isAhead(o) {
			n++
		}
	}
	return n
}

// TestZeroAhead counts the writes of zeros: one for so many bytes of records, none past the segment's end, none in a
// segment whose blocks were written before.
func TestZeroAhead(t *testing.T) {
	a := aheadLog(t)
	a.add(500, 60, true) // 40 bytes and 8 of head with it
	if got, most := aheadWrites(a.fs().Ops()), 500*120/aheadBytes+1; got < 4 || got > most {
		t.Errorf("%d writes of zeros, want 4 to %d", got, most)
	}
	for a.log.End().Segment < 4 { // recycled from the third on
		a.add(20, 60, true)
		if err := a.log.Release(a.log.End()); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range a.fs().Ops() {
		if isAhead(o) && o.Offset+o.Len > aheadSegment {
			t.Errorf("zeros past the end: %v", o)
		}
	}
	from := a.fs().Len()
	for a.log.End().Segment < 5 {
		a.add(20, 60, true)
	}
	if n := aheadWrites(a.fs().Ops()[from:]); n > 0 {
		t.Errorf("%d writes of zeros into a recycled segment", n)
	}
}

// TestZeroAheadFails makes the writes of zeros fail: want of space is nothing, all else ends the log (I7).
func TestZeroAheadFails(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error
		fatal bool
	}{
		{"ENOSPC", syscall.ENOSPC, false},
		{"half of it, ENOSPC", faultfs.Short(syscall.ENOSPC), false},
		{"EIO", syscall.EIO, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := aheadLog(t)
			failed := 0
			a.fs().Inject(func(o faultfs.Op) error {
				if !isAhead(o) {
					return nil
				}
				failed++
				return tt.err
			})
			err := error(nil)
			for range 200 {
				if err = errors.Join(err, a.try(1, 60, true)); err != nil {
					break
				}
			}
			if fatal := errors.Is(err, ulog.ErrFailed); fatal != tt.fatal || err != nil && !fatal {
				t.Errorf("got %v, want a failure: %v", err, tt.fatal)
			}
			if failed == 0 {
				t.Error("no zeros were written")
			}
			if got := readAll(t, a.reader(ulog.Position{}, ulog.Place{})); !tt.fatal && len(got) != 200 {
				t.Errorf("%d records, want 200", len(got))
			}
		})
	}
}
