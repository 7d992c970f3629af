package ulog_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"testing"

	"qserver/internal/faultfs"
	"qserver/storage/ulog"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is what the tests remember of a record.
type record struct {
	ulog.Position
	head, body string
}

// appender stages and writes records and remembers them.
type appender struct {
	t      testing.TB
	log    *ulog.Log
	wrote  []record
	places []ulog.Place // of the bodies
	faulty *faultfs.FS  // what the log lies on, if a test needs it
}

func (a *appender) fs() *faultfs.FS { return a.faulty }

func (a *appender) stage(head, body string) {
	p, place := a.log.Stage([]byte(head), []byte(body), crc32.Checksum([]byte(body), castagnoli))
	a.wrote = append(a.wrote, record{p, head, body})
	a.places = append(a.places, place)
}

func (a *appender) write(sync bool) {
	a.t.Helper()
	if b := a.log.Take(); b != nil {
		if err := a.log.Write(b, sync); err != nil {
			a.t.Fatalf("Write: %v", err)
		}
	}
}

func (a *appender) add(n, bodyLen int, sync bool) {
	a.t.Helper()
	for range n {
		i := len(a.wrote)
		a.stage(fmt.Sprintf("head %d", i), string(bytes.Repeat([]byte{byte('a' + i%26)}, bodyLen)))
		a.write(sync)
	}
}

func (a *appender) reader(after ulog.Position, at ulog.Place) *ulog.Reader {
	a.t.Helper()
	r, err := a.log.NewReader(after, at)
	if err != nil {
		a.t.Fatalf("NewReader: %v", err)
	}
	a.t.Cleanup(func() { r.Close() })
	return r
}

func readAll(t testing.TB, r *ulog.Reader) []record {
	t.Helper()
	var got []record
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		got = append(got, record{rec.Position, string(rec.Head), string(rec.Body)})
	}
}

func open(t testing.TB, dir string, after ulog.Position, at ulog.Place, o ulog.Options) (*ulog.Log, ulog.Recovery, []record) {
	t.Helper()
	var got []record
	l, rec, err := ulog.Open(dir, after, at, o, func(r *ulog.Record) error {
		got = append(got, record{r.Position, string(r.Head), string(r.Body)})
		return nil
	})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l, rec, got
}

func same(t testing.TB, got, want []record) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("record %d: got %.80v, want %.80v", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("got %d records, want %d", len(got), len(want))
	}
}

func TestAppendAndReopen(t *testing.T) {
	for _, tt := range []struct {
		name         string
		n, bodyLen   int
		seal         bool
		segmentBytes int64
	}{
		{"empty, sealed", 0, 0, true, 0},
		{"empty, not sealed", 0, 0, false, 8 << 10},
		{"few, sealed", 10, 100, true, 1 << 20},
		{"few, not sealed", 10, 100, false, 1 << 20},
		{"many segments, sealed", 1000, 100, true, 64 << 10},
		{"many segments, not sealed", 1000, 100, false, 64 << 10},
		{"bodies referred to", 20, 20 << 10, true, 64 << 10},
		{"larger than a segment", 5, 100 << 10, true, 16 << 10},
		{"larger than the window", 3, 3 << 20, false, 1 << 20},
		{"no bodies", 100, 0, false, 8 << 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			o := ulog.Options{SegmentBytes: tt.segmentBytes}
			l, _, _ := open(t, dir, ulog.Position{}, ulog.Place{}, o)
			a := &appender{t: t, log: l}
			for range 3 {
				a.add(tt.n, tt.bodyLen, true)
				if got, want := l.Synced(), uint64(len(a.wrote)); got != want {
					t.Fatalf("Synced: got %d, want %d", got, want)
				}
				same(t, readAll(t, a.reader(ulog.Position{}, ulog.Place{})), a.wrote)
				for i, p := range a.places {
					b := make([]byte, len(a.wrote[i].body))
					if err := l.ReadBody(p, b); err != nil || string(b) != a.wrote[i].body {
						t.Fatalf("ReadBody %d: %v, or not the bytes written", i, err)
					}
				}
				if tt.seal {
					if err := l.Seal(); err != nil {
						t.Fatalf("Seal: %v", err)
					}
				}
				if err := l.Close(); err != nil {
					t.Fatalf("Close: %v", err)
				}
				var got []record
				var rec ulog.Recovery
				l, rec, got = open(t, dir, ulog.Position{}, ulog.Place{}, o)
				a.log = l
				same(t, got, a.wrote)
				if rec.CutFile != "" {
					t.Errorf("something was cut: %+v", rec)
				}
				if rec.Clean != tt.seal {
					t.Errorf("Clean: got %v, want %v", rec.Clean, tt.seal)
				}
			}
		})
	}
}

func TestOpenAfterPosition(t *testing.T) {
	dir := t.TempDir()
	o := ulog.Options{SegmentBytes: 8 << 10, KeepOld: true}
	l, _, _ := open(t, dir, ulog.Position{}, ulog.Place{}, o)
	a := &appender{t: t, log: l}
	ends := []ulog.Place{l.End()}
	for range 200 {
		a.add(1, 100, false)
		ends = append(ends, l.End())
	}
	if err := l.Seal(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 57, 100, 199, 200} {
		var after ulog.Position
		if n > 0 {
			after = a.wrote[n-1].Position
		}
		for _, at := range []ulog.Place{{}, ends[n]} {
			l, _, got := open(t, dir, after, at, o)
			same(t, got, a.wrote[n:])
			a.log = l
			same(t, readAll(t, a.reader(after, at)), a.wrote[n:])
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestReleaseAndPrepare(t *testing.T) {
	dir := t.TempDir()
	o := ulog.Options{SegmentBytes: 8 << 10}
	l, _, _ := open(t, dir, ulog.Position{}, ulog.Place{}, o)
	a := &appender{t: t, log: l}
	r := a.reader(ulog.Position{}, ulog.Place{})
	for range 30 {
		if err := l.Prepare(); err != nil {
			t.Fatal(err)
		}
		a.add(20, 200, false)
		if err := l.Release(l.End()); err != nil {
			t.Fatal(err)
		}
	}
	same(t, readAll(t, r), a.wrote)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for range 10 { // from now on every segment is a recycled one
		a.add(20, 200, false)
		if err := l.Release(l.End()); err != nil {
			t.Fatal(err)
		}
	}
	after, at := l.Written(), l.End()
	if got, want := len(l.Segments()), 2; got != want {
		t.Errorf("segments at rest: got %d, want %d: %v", got, want, l.Segments())
	}
	if _, err := l.NewReader(ulog.Position{}, ulog.Place{}); !errors.Is(err, ulog.ErrReleased) {
		t.Errorf("reader from what is released: got %v, want %v", err, ulog.ErrReleased)
	}
	n := len(a.wrote)
	a.add(5, 200, true)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, rec, got := open(t, dir, after, at, o)
	same(t, got, a.wrote[n:])
	if rec.CutFile != "" {
		t.Errorf("stale frames of a recycled segment were taken for a torn tail: %+v", rec)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
