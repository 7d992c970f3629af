package ulog_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"qserver/storage/ulog"
)

// drain reads what there is.
func drain(t *testing.T, o *ulog.Outside) (got []record) {
	t.Helper()
	for {
		r, err := o.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatalf("behind LSN %d: %v", o.Position().LSN, err)
		}
		got = append(got, record{r.Position, string(r.Head), string(r.Body)})
	}
}

func openIn(t *testing.T, dir string, after ulog.Position, at ulog.Place) *ulog.Log {
	t.Helper()
	l, _, err := ulog.Open(dir, after, at, ulog.Options{SegmentBytes: 64 << 10}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestOutsideFollows reads a log's files while it is written, over many segments, a seal and a restart without one.
func TestOutsideFollows(t *testing.T) {
	dir := t.TempDir()
	a := &appender{t: t, log: openIn(t, dir, ulog.Position{}, ulog.Place{})}
	o, err := ulog.OpenOutside(dir, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	var got []record
	for round := range 6 {
		for range 5 {
			a.add(40, 500, false)
			got = append(got, drain(t, o)...)
		}
		switch round {
		case 1:
			if err := a.log.Seal(); err != nil {
				t.Fatal(err)
			}
			got = append(got, drain(t, o)...)
		case 3:
			if err := a.log.Close(); err != nil { // without a seal: the next start makes the last file anew
				t.Fatal(err)
			}
			a.log = openIn(t, dir, ulog.Position{}, ulog.Place{})
		}
		if !slices.Equal(got, a.wrote) {
			t.Fatalf("round %d: %d records read, %d written, or not the same", round, len(got), len(a.wrote))
		}
	}
	if n := len(a.log.Segments()); n < 3 {
		t.Fatalf("only %d segments", n)
	}
	if err := a.log.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOutsideFrom(t *testing.T) {
	dir := t.TempDir()
	a := &appender{t: t, log: openIn(t, dir, ulog.Position{}, ulog.Place{})}
	a.add(500, 500, true)
	first := a.log.Segments()[0]
	if err := a.log.Release(ulog.Place{Segment: 2}); err != nil {
		t.Fatal(err)
	}
	begin := a.log.Segments()[0].FirstLSN
	if begin <= first.FirstLSN || len(a.log.Segments()) < 3 {
		t.Fatal("nothing was released, or there are too few segments")
	}
	for _, tt := range []struct{ from, first uint64 }{{0, begin}, {1, begin}, {begin, begin}, {begin + 1, begin + 1}, {333, 333}, {500, 500}, {501, 0}} {
		o, err := ulog.OpenOutside(dir, nil, tt.from)
		if err != nil {
			t.Fatal(err)
		}
		got := drain(t, o)
		var want []record
		if tt.first > 0 {
			want = a.wrote[tt.first-1:]
		}
		if !slices.Equal(got, want) {
			t.Errorf("from %d: %d records, want %d", tt.from, len(got), len(want))
		}
		o.Close()
	}
	if err := a.log.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOutsideReleased: a reader that is slower than the log lets go of its files is told so.
func TestOutsideReleased(t *testing.T) {
	dir := t.TempDir()
	a := &appender{t: t, log: openIn(t, dir, ulog.Position{}, ulog.Place{})}
	defer func() { a.log.Close() }()
	a.add(10, 500, true)
	o, err := ulog.OpenOutside(dir, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if n := len(drain(t, o)); n != 10 {
		t.Fatalf("%d records", n)
	}
	a.add(800, 500, true)
	last := a.log.End().Segment
	if err := a.log.Release(ulog.Place{Segment: last}); err != nil {
		t.Fatal(err)
	}
	a.add(10, 500, true)
	for {
		_, err := o.Next()
		if errors.Is(err, ulog.ErrReleased) {
			return
		}
		if err != nil {
			t.Fatalf("%v, want ErrReleased", err)
		}
	}
}

func TestOutsideDamage(t *testing.T) {
	dir := t.TempDir()
	a := &appender{t: t, log: openIn(t, dir, ulog.Position{}, ulog.Place{})}
	a.add(500, 500, true)
	if err := a.log.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "0000000000000002.ulog")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := ulog.OpenOutside(dir, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for n := uint64(0); ; n++ {
		r, err := o.Next()
		if corrupt, ok := errors.AsType[*ulog.CorruptError](err); ok {
			if corrupt.File != path || corrupt.LSN != n+1 {
				t.Errorf("%v behind record %d", err, n)
			}
			return
		}
		if err != nil {
			t.Fatalf("behind %d records: %v, want damage", n, err)
		}
		if w := a.wrote[n]; r.Position != w.Position || string(r.Body) != w.body {
			t.Fatalf("record %d is another", n+1)
		}
	}
}
