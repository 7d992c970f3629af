package ulog_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
	"testing"

	"qserver/internal/faultfs"
	"qserver/storage/ulog"
)

// TestReadersFollowWriter lets readers and body reads follow a writer that changes segments, syncs, seals and releases.
func TestReadersFollowWriter(t *testing.T) {
	const records, readers = 4000, 4
	l, _, err := ulog.Open(crashDir, ulog.Position{}, ulog.Place{}, ulog.Options{FS: faultfs.New(), SegmentBytes: 64 << 10}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	more := make([]chan struct{}, readers) // tells a reader that something was written
	for i := range more {
		more[i] = make(chan struct{}, 1)
		r, err := l.NewReader(ulog.Position{}, ulog.Place{})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := follow(l, r, records, more[i]); err != nil {
				t.Errorf("reader %d: %v", i, err)
			}
		})
	}
	wg.Go(func() {
		for l.Synced() < records && l.Err() == nil {
			if err := l.Sync(); err != nil {
				t.Errorf("Sync: %v", err)
			}
			if err := l.Prepare(); err != nil {
				t.Errorf("Prepare: %v", err)
			}
			if err := l.Release(l.End()); err != nil {
				t.Errorf("Release: %v", err)
			}
		}
	})
	if err := writeNumbers(l, records, more); err != nil {
		t.Errorf("writer: %v", err)
	}
	wg.Wait()
	if err := l.Release(l.End()); err != nil {
		t.Error(err)
	}
	if got := len(l.Segments()); got > 2 {
		t.Errorf("segments at rest: got %d, want 2", got)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func writeNumbers(l *ulog.Log, records int, more []chan struct{}) error {
	for n := 1; n <= records; n++ {
		body := bytes.Repeat([]byte{byte(n)}, n%700)
		if n%500 == 0 {
			body = bytes.Repeat([]byte{byte(n)}, 20<<10)
		}
		l.Stage(binary.LittleEndian.AppendUint64(nil, uint64(n)), body, crc32.Checksum(body, castagnoli))
		if n%7 != 0 && n != records {
			continue
		}
		if err := l.Write(l.Take(), n%49 == 0 || n == records); err != nil {
			return err
		}
		if n%350 == 0 {
			if err := l.Seal(); err != nil {
				return err
			}
		}
		for _, c := range more {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
	return nil
}

// follow reads all records and reads each body once more by its place.
func follow(l *ulog.Log, r *ulog.Reader, records int, more <-chan struct{}) error {
	defer r.Close()
	for n := 1; n <= records; {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			<-more
			continue
		}
		if err != nil {
			return err
		}
		if got := int(binary.LittleEndian.Uint64(rec.Head)); got != n || int(rec.LSN) != n {
			return fmt.Errorf("got record %d with LSN %d, want %d", got, rec.LSN, n)
		}
		body := make([]byte, len(rec.Body))
		if err := l.ReadBody(rec.BodyPlace(), body); err != nil {
			return err
		}
		if !bytes.Equal(body, rec.Body) {
			return fmt.Errorf("record %d: ReadBody gives other bytes", n)
		}
		n++
	}
	return nil
}

func TestReaderPositions(t *testing.T) {
	fs, a := faultLog(t)
	_ = fs
	l := a.log
	last := a.wrote[len(a.wrote)-1].Position
	for _, tt := range []struct {
		name  string
		after ulog.Position
		want  error
	}{
		{"the end", last, nil},
		{"ahead of the log", ulog.Position{LSN: last.LSN + 1}, ulog.ErrDiverged},
		{"the end with another sum", ulog.Position{LSN: last.LSN, Chain: last.Chain + 1}, ulog.ErrDiverged},
		{"the middle", a.wrote[11].Position, nil},
		{"the middle with another sum", ulog.Position{LSN: 12, Chain: 1}, ulog.ErrDiverged},
		{"the beginning with a sum", ulog.Position{Chain: 1}, ulog.ErrDiverged},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := l.NewReader(tt.after, ulog.Place{})
			if !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if err == nil {
				same(t, readAll(t, r), a.wrote[tt.after.LSN:])
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestReaderNoticesDamage(t *testing.T) {
	fs, a := faultLog(t)
	f, err := fs.OpenFile(name(2), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, 5000); err != nil {
		t.Fatal(err)
	}
	r := a.reader(ulog.Position{}, ulog.Place{})
	for {
		if _, err = r.Next(); err != nil {
			break
		}
	}
	corrupt, ok := errors.AsType[*ulog.CorruptError](err)
	if !ok || corrupt.File != name(2) || corrupt.Offset > 5000 || corrupt.Offset < 4600 {
		t.Errorf("got %v, want a CorruptError in %s", err, name(2))
	}
}

// TestFreshAfterPosition is how a slave begins: with a copy of the master's tree and an empty folder.
func TestFreshAfterPosition(t *testing.T) {
	fs := faultfs.New()
	after := ulog.Position{LSN: 1000, Chain: 77}
	o := ulog.Options{FS: fs, SegmentBytes: 8 << 10}
	var a appender
	for i := range 3 {
		var got []record
		l, _, err := ulog.Open(crashDir, after, ulog.Place{}, o, func(r *ulog.Record) error {
			got = append(got, record{r.Position, string(r.Head), string(r.Body)})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, a.wrote)
		a.t, a.log = t, l
		a.add(20, 200, i == 1)
		if got, want := a.wrote[0].LSN, uint64(1001); got != want {
			t.Errorf("first LSN: got %d, want %d", got, want)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range []ulog.Position{{LSN: 1000, Chain: 78}, {LSN: 999, Chain: 77}, {LSN: 1010, Chain: 1}, {LSN: 2000}} {
		_, _, _, err := recoverLog(fs.Clone(), other, ulog.Place{})
		if _, ok := errors.AsType[*ulog.CorruptError](err); !ok {
			t.Errorf("after %v: got %v, want a CorruptError", other, err)
		}
	}
}
