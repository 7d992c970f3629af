package ulog_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"qserver/internal/faultfs"
	"qserver/storage/ulog"
)

// sealedLog makes a log of n records of bodyLen bytes in segments of 8 KiB, each synced, and seals it.
func sealedLog(t testing.TB, n, bodyLen int) (*faultfs.FS, []record, []ulog.Place) {
	t.Helper()
	fs := faultfs.New()
	l, _, err := ulog.Open(crashDir, ulog.Position{}, ulog.Place{}, ulog.Options{FS: fs, SegmentBytes: 8 << 10}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &appender{t: t, log: l}
	ends := []ulog.Place{l.End()}
	for range n {
		a.add(1, bodyLen, true)
		ends = append(ends, l.End())
	}
	if err := errors.Join(l.Seal(), l.Close()); err != nil {
		t.Fatal(err)
	}
	return fs.Clone(), a.wrote, ends
}

func name(seq int) string { return filepath.Join(crashDir, fmt.Sprintf("%016x.ulog", seq)) }

func edit(t testing.TB, fs *faultfs.FS, file string, fn func(b []byte) []byte) {
	t.Helper()
	b, err := fs.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fs.WriteFile(file, fn(b))
}

func zero(from, to int) func([]byte) []byte {
	return func(b []byte) []byte { clear(b[from:to]); return b }
}

func remove(t testing.TB, fs *faultfs.FS, file string) {
	t.Helper()
	if err := fs.Remove(file); err != nil {
		t.Fatal(err)
	}
}

func swap(t testing.TB, fs *faultfs.FS, a, b string) {
	t.Helper()
	x, errX := fs.ReadFile(a)
	y, errY := fs.ReadFile(b)
	if err := errors.Join(errX, errY); err != nil {
		t.Fatal(err)
	}
	fs.WriteFile(a, y)
	fs.WriteFile(b, x)
}

// damages are the ways to damage a log of 100 records of 300 bytes: some 11 in each of 10 segments.
var damages = []struct {
	name     string
	do       func(t testing.TB, fs *faultfs.FS)
	lost     int // records that a repair cannot bring back, at most
	tail     bool
	harmless bool // the newest records were not synced as far as anyone can tell
}{
	{name: "bit in a record's head", do: func(t testing.TB, fs *faultfs.FS) { edit(t, fs, name(3), flip(4096+40+349+41, 0)) }, lost: 1},
	{name: "bit in a record's body", do: func(t testing.TB, fs *faultfs.FS) { edit(t, fs, name(3), flip(4096+40+349+90, 0)) }, lost: 1},
	{name: "zeroed block", do: func(t testing.TB, fs *faultfs.FS) { edit(t, fs, name(3), zero(4608, 5120)) }, lost: 3},
	{name: "start frame", do: func(t testing.TB, fs *faultfs.FS) { edit(t, fs, name(3), zero(4096, 4100)) }},
	{name: "start frame and first record", do: func(t testing.TB, fs *faultfs.FS) { edit(t, fs, name(3), zero(4096, 4200)) }, lost: 1},
	{name: "end frame", do: func(t testing.TB, fs *faultfs.FS) { edit(t, fs, name(3), zeroEnd) }},
	{name: "segment header", do: func(t testing.TB, fs *faultfs.FS) { edit(t, fs, name(3), zero(0, 64)) }},
	{name: "header of the first segment", do: func(t testing.TB, fs *faultfs.FS) { edit(t, fs, name(1), flip(30, 1)) }},
	{name: "header block and start frame", do: func(t testing.TB, fs *faultfs.FS) { edit(t, fs, name(3), zero(0, 4136)) }, lost: 12},
	{name: "missing segment", do: func(t testing.TB, fs *faultfs.FS) { remove(t, fs, name(4)) }, lost: 12},
	{name: "two missing segments", do: func(t testing.TB, fs *faultfs.FS) { remove(t, fs, name(4)); remove(t, fs, name(5)) }, lost: 24},
	{name: "missing first segment", do: func(t testing.TB, fs *faultfs.FS) { remove(t, fs, name(1)) }, lost: 12},
	{name: "swapped segments", do: func(t testing.TB, fs *faultfs.FS) { swap(t, fs, name(4), name(6)) }},
	{name: "doubled segment", do: func(t testing.TB, fs *faultfs.FS) {
		b, err := fs.ReadFile(name(4))
		if err != nil {
			t.Fatal(err)
		}
		fs.WriteFile(name(5), b)
	}, lost: 12},
	{name: "foreign segment", do: func(t testing.TB, fs *faultfs.FS) {
		other, _, _ := sealedLog(t, 100, 300)
		b, err := other.ReadFile(name(5))
		if err != nil {
			t.Fatal(err)
		}
		fs.WriteFile(name(5), b)
	}, lost: 12},
	{name: "foreign segment behind the end", do: func(t testing.TB, fs *faultfs.FS) {
		other, _, _ := sealedLog(t, 200, 300)
		b, err := other.ReadFile(name(11))
		if err != nil {
			t.Fatal(err)
		}
		fs.WriteFile(name(11), b)
	}, harmless: true},
	{name: "segment cut in the middle", do: func(t testing.TB, fs *faultfs.FS) {
		edit(t, fs, name(3), func(b []byte) []byte { return b[:6000] })
	}, lost: 7},
	{name: "segment of no bytes", do: func(t testing.TB, fs *faultfs.FS) {
		edit(t, fs, name(3), func(b []byte) []byte { return nil })
	}, lost: 12},
	{name: "record before the seal", do: func(t testing.TB, fs *faultfs.FS) {
		edit(t, fs, name(10), func(b []byte) []byte { clear(b[4136:4140]); return b })
	}, lost: 1},
	{name: "misdirected block", do: func(t testing.TB, fs *faultfs.FS) {
		edit(t, fs, name(3), func(b []byte) []byte { copy(b[5120:5632], b[4608:5120]); return b })
	}, lost: 3},
}

func flip(at, bit int) func([]byte) []byte {
	return func(b []byte) []byte { b[at] ^= 1 << bit; return b }
}

// zeroEnd zeroes the last frame of a segment that is followed by nothing but zeros.
func zeroEnd(b []byte) []byte {
	end := len(b)
	for end > 0 && b[end-1] == 0 {
		end--
	}
	clear(b[end-frameHeaderLen : end])
	return b
}

const frameHeaderLen = 40

// recover opens and closes a log and returns what replay got.
func recoverLog(fs *faultfs.FS, after ulog.Position, at ulog.Place) ([]record, ulog.Recovery, int, error) {
	var got []record
	gaps := 0
	l, rec, err := ulog.Open(crashDir, after, at, ulog.Options{FS: fs, SegmentBytes: 8 << 10}, func(r *ulog.Record) error {
		if r.Gap > 0 {
			gaps += int(r.Gap)
			return nil
		}
		got = append(got, record{r.Position, string(r.Head), string(r.Body)})
		return nil
	})
	if err == nil {
		err = l.Close()
	}
	return got, rec, gaps, err
}

func TestDamageIsRefusedAndRepaired(t *testing.T) {
	for _, tt := range damages {
		for _, position := range []int{0, 5, 30, 99, 100} {
			t.Run(fmt.Sprintf("%s/after=%d", tt.name, position), func(t *testing.T) {
				fs, wrote, ends := sealedLog(t, 100, 300)
				var after ulog.Position
				var at ulog.Place
				if position > 0 {
					after, at = wrote[position-1].Position, ends[position]
				}
				tt.do(t, fs)
				want := wrote[position:]
				_, checkErr := ulog.Check(crashDir, fs.Clone(), after, at, nil)
				got, _, _, err := recoverLog(fs.Clone(), after, at)
				if (err == nil) != (checkErr == nil) {
					t.Fatalf("Open says %v, Check says %v", err, checkErr)
				}
				if err == nil {
					if position == 0 && !tt.harmless {
						t.Fatal("damage was not noticed")
					}
					same(t, got, want)
					return
				}
				corrupt, ok := errors.AsType[*ulog.CorruptError](err)
				if !ok {
					t.Fatalf("got %v, want a CorruptError", err)
				}
				if corrupt.File == "" || corrupt.LSN == 0 {
					t.Errorf("error does not name file and LSN: %+v", corrupt)
				}
				checkRepair(t, fs, after, at, want, tt.lost)
				checkCut(t, fs.Clone(), after, at, want)
			})
		}
	}
}

// checkRepair repairs a damaged log and verifies that all but lost of the wanted records are there.
func checkRepair(t *testing.T, damaged *faultfs.FS, after ulog.Position, at ulog.Place, want []record, lost int) {
	t.Helper()
	fs := damaged.Clone()
	report, err := ulog.Repair(crashDir, fs, after, at, false)
	if err != nil {
		t.Fatalf("Repair: %v", err)
	}
	got, _, gaps, err := recoverLog(fs.Clone(), after, at)
	if err != nil {
		t.Fatalf("Open after Repair: %v\n%+v", err, report)
	}
	if n := len(want) - len(got); n > lost {
		t.Errorf("%d records were lost, want at most %d: %+v", n, lost, report)
	}
	missing := 0
	for _, m := range report.Missing {
		missing += int(m.Last - m.First + 1)
	}
	if missing != gaps || len(got)+gaps != len(want) {
		t.Errorf("%d records, %d missing by gap frames, %d by the report; wanted %d", len(got), gaps, missing, len(want))
	}
	for _, r := range got {
		if !slices.Contains(want, r) {
			t.Fatalf("record %d was never written", r.LSN)
		}
	}
	for _, file := range report.SetAside {
		orig, errOrig := damaged.ReadFile(file[:len(file)-len(".damaged")])
		kept, errKept := fs.ReadFile(file)
		if err := errors.Join(errOrig, errKept); err != nil || !slices.Equal(orig, kept) {
			t.Errorf("%s is not the damaged file: %v", file, err)
		}
	}
	again, err := ulog.Repair(crashDir, fs, after, at, false)
	if err != nil || len(again.SetAside) > 0 {
		t.Errorf("second Repair did something: %+v, %v", again, err)
	}
	checkGoesOn(t, fs, after, at, got)
}

// checkCut repairs with cut and verifies that a prefix is left.
func checkCut(t *testing.T, fs *faultfs.FS, after ulog.Position, at ulog.Place, want []record) {
	t.Helper()
	report, err := ulog.Repair(crashDir, fs, after, at, true)
	if err != nil {
		t.Fatalf("Repair with cut: %v", err)
	}
	got, _, gaps, err := recoverLog(fs, after, at)
	if err != nil {
		t.Fatalf("Open after Repair with cut: %v\n%+v", err, report)
	}
	if gaps > 0 || len(got) > len(want) {
		t.Errorf("%d records and %d missing, want fewer than %d and none", len(got), gaps, len(want))
	}
	same(t, got, want[:len(got)])
	checkGoesOn(t, fs, after, at, got)
}

// checkGoesOn writes into a log and reads it again.
func checkGoesOn(t *testing.T, fs *faultfs.FS, after ulog.Position, at ulog.Place, has []record) {
	t.Helper()
	l, _, err := ulog.Open(crashDir, after, at, ulog.Options{FS: fs, SegmentBytes: 8 << 10}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &appender{t: t, log: l}
	a.add(40, 300, true)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got, _, _, err := recoverLog(fs, after, at)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, append(slices.Clone(has), a.wrote...))
}
