package ulog_test

import (
	"hash/crc32"
	"testing"

	"qserver/internal/faultfs"
	"qserver/storage/ulog"
)

// TestPositionAfter compares After with what Stage returns, over records of all sizes.
func TestPositionAfter(t *testing.T) {
	l, _, err := ulog.Open(crashDir, ulog.Position{}, ulog.Place{}, ulog.Options{FS: faultfs.New(), SegmentBytes: 64 << 10}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var p ulog.Position
	body := make([]byte, 40<<10)
	for i := range body {
		body[i] = byte(i * 7)
	}
	for i, n := range []int{0, 1, 200, 16 << 10, 40 << 10, 3} {
		head, body := body[:i], body[:n]
		sum := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
		want, _ := l.Stage(head, body, sum)
		if p = p.After(head, body, sum); p != want {
			t.Errorf("record %d: got %+v, want %+v", i+1, p, want)
		}
	}
}

// TestPlaceOf keeps the log for a follower: what lies behind its record must not be released.
func TestPlaceOf(t *testing.T) {
	l, _, err := ulog.Open(crashDir, ulog.Position{}, ulog.Place{}, ulog.Options{FS: faultfs.New(), SegmentBytes: 8 << 10}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	positions := []ulog.Position{{}}
	for range 100 {
		p, _ := l.Stage(make([]byte, 900), nil, 0)
		positions = append(positions, p)
		if err := l.Write(l.Take(), true); err != nil {
			t.Fatal(err)
		}
	}
	for _, lsn := range []uint64{0, 33, 34, 99} {
		place, ok := l.PlaceOf(lsn)
		if !ok {
			t.Fatalf("PlaceOf(%d): gone", lsn)
		}
		if err := l.Release(place); err != nil {
			t.Fatal(err)
		}
		r, err := l.NewReader(positions[lsn], ulog.Place{})
		if err != nil {
			t.Fatalf("reader after %d: %v", lsn, err)
		}
		rec, err := r.Next()
		if err != nil || rec.LSN != lsn+1 {
			t.Fatalf("reader after %d: %+v, %v", lsn, rec, err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	first := l.First()
	if first.LSN == 0 || first != positions[first.LSN] {
		t.Errorf("First: got %+v", first)
	}
	if _, ok := l.PlaceOf(first.LSN - 1); ok {
		t.Errorf("PlaceOf(%d): want gone", first.LSN-1)
	}
}
