package storage_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"qserver/storage"
)

var update = flag.Bool("update", false, "make the golden folder of today's format anew")

const goldenFolder = "testdata/folder-1.tar.gz"

// TestGoldenFolder opens a folder that format 1 wrote and a kill ended: part of it is in the tree, part in the log. Every
// later version must read it.
func TestGoldenFolder(t *testing.T) {
	dir := t.TempDir()
	if *update {
		makeGoldenFolder(t, filepath.Join(dir, "made"))
	}
	unpack(t, goldenFolder, filepath.Join(dir, "data"))
	rep, err := storage.Check(filepath.Join(dir, "data"), nil)
	if err != nil || len(rep.Problems) != 0 {
		t.Fatalf("Check: %v %+v", err, rep.Problems)
	}
	s := open(t, filepath.Join(dir, "data"), storage.Options{})
	c := s.NewSession("c")
	defer c.Close()
	for q, want := range map[string][]string{
		"mail":          {"new body", "mail 3", "mail 4", "mail 5", "mail 6", "", "mail 7"},
		"ns:q\xc3\xa9/": {"urgent", "\x00\r\n\xff", "late"},
	} {
		for _, body := range want {
			if got, ok := get(t, c, q); got != body || !ok {
				t.Errorf("%q: got %q, want %q", q, got, body)
			}
		}
		if got, ok := get(t, c, q); ok {
			t.Errorf("%q: got %q, want nothing more", q, got)
		}
	}
	st, _ := s.Queue([]byte("mail"))
	if st.Items != 8 || st.Delayed != 1 || st.TotalItems != 9 || st.TotalAcked != 1 {
		t.Errorf("mail: %+v", st)
	}
	if st, _ := s.Queue([]byte("purged")); st.Items != 0 || st.TotalPurged != 2 {
		t.Errorf("purged: %+v", st)
	}
	if _, err := c.Enqueue([]byte("mail"), storage.PutRequest{Mode: storage.PutAdd, Dedup: []byte("key")}); !errors.Is(err, storage.ErrNotStored) {
		t.Errorf("dedup key: %v, want ErrNotStored", err)
	}
}

// makeGoldenFolder writes the golden folder, with something of every table and every kind of record.
func makeGoldenFolder(t *testing.T, dir string) {
	s, err := storage.OpenStill(dir, storage.Options{SegmentBytes: 16 << 10, MinFreeDisk: 1, DedupWindow: 100 * 365 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c := s.NewSession("c")
	century := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	half := func(from int) {
		for i := from; i < from+3; i++ {
			putReq(t, c, "mail", storage.PutRequest{Body: fmt.Appendf(nil, "mail %d", i), Priority: 1024, Flags: uint32(i), Expire: century})
		}
	}
	half(1)
	putReq(t, c, "ns:q\xc3\xa9/", storage.PutRequest{Body: []byte("\x00\r\n\xff"), Priority: 5})
	putReq(t, c, "ns:q\xc3\xa9/", storage.PutRequest{Body: []byte("late"), Delay: time.Millisecond, Priority: 6})
	put(t, c, "purged", "one")
	get(t, c, "mail")
	ack(t, c, "mail")
	d, _, _ := c.Reserve([]byte("mail"), storage.ReserveOptions{})
	if err := s.Checkpoint(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := c.ReplaceBody([]byte("mail"), d.Receipt, []byte("new body"), 9, time.Time{}); err != nil {
		t.Fatal(err)
	}
	half(4)
	putReq(t, c, "mail", storage.PutRequest{Priority: 1024})
	putReq(t, c, "mail", storage.PutRequest{Body: []byte("mail 7"), Priority: 2000, Dedup: []byte("key")})
	putReq(t, c, "ns:q\xc3\xa9/", storage.PutRequest{Body: []byte("urgent"), Priority: 1})
	put(t, c, "purged", "two")
	if _, err := s.Purge([]byte("purged")); err != nil {
		t.Fatal(err)
	}
	putReq(t, c, "mail", storage.PutRequest{Body: []byte("next century"), Delay: time.Until(century), Priority: 1})
	for range 2 {
		put(t, c, "forgotten", "x")
		get(t, c, "forgotten")
		ack(t, c, "forgotten")
	}
	if err := storage.Abandon(s); err != nil {
		t.Fatal(err)
	}
	pack(t, dir, goldenFolder)
}

func pack(t *testing.T, dir, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func unpack(t *testing.T, name, dir string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.Clean(h.Name))
		if h.FileInfo().IsDir() {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
