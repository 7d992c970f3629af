package storage_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"qserver/internal/faultfs"
	"qserver/storage"
)

// putUntilFull enqueues bodies of this size until the disk is full, and returns how many it took. Nothing else may happen.
func putUntilFull(t *testing.T, s *storage.Store, from, size int) (n int) {
	t.Helper()
	c := s.NewSession("fill")
	defer c.Close()
	for ; ; n++ {
		_, err := c.Enqueue(q, storage.PutRequest{Body: fmt.Appendf(nil, "m%d %*d", from+n, size, 0), Priority: storage.DefaultPriority})
		if err == nil {
			err = c.Commit()
		}
		if errors.Is(err, storage.ErrDiskFull) {
			break
		}
		if err != nil {
			t.Fatalf("message %d: %v, want %v", n, err, storage.ErrDiskFull)
		}
	}
	if err := s.Err(); err != nil {
		t.Fatalf("a full disk made the log fail: %v", err)
	}
	if err := s.Writable(); !errors.Is(err, storage.ErrDiskFull) && err != nil {
		t.Fatalf("Writable: %v", err)
	}
	return n
}

// writableAgain waits until enqueues are taken again by themselves, at most 10 seconds.
func writableAgain(t *testing.T, s *storage.Store) {
	t.Helper()
	c := s.NewSession("again")
	defer c.Close()
	waitFor(t, "enqueues are taken again", func() bool {
		_, err := c.Enqueue([]byte("other"), storage.PutRequest{Body: []byte("x")})
		return err == nil && c.Commit() == nil
	})
}

// On a disk without room enqueues are refused before anything fails, reserving and acking go on, and it clears by itself.
func TestFullLog(t *testing.T) {
	disk := faultfs.New()
	s := open(t, t.TempDir(), storage.Options{FS: disk, SegmentBytes: 64 << 10})
	disk.SetSpace(500 << 10)
	n := putUntilFull(t, s, 0, 1000)
	if n < 100 {
		t.Errorf("only %d messages in 500 KiB", n)
	}
	wantInOrder(t, drain(t, s, "q"), n)
	wantCounts(t, s, "q", 0, 0, 0)
	disk.SetSpace(-1)
	began := time.Now()
	writableAgain(t, s)
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("writable again after %v", d)
	}
}

// The same with everything on one small disk, log and tree.
func TestFullDisk(t *testing.T) {
	for _, size := range []int{200, 5000, 100 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			dir := filepath.Join(smallDisk(t, 24<<20), "data")
			s := open(t, dir, smallOptions())
			n := putUntilFull(t, s, 0, size)
			t.Logf("%d messages, %d KiB of bodies in 24 MiB", n, n*size>>10)
			if n*size < 5<<20 {
				t.Errorf("only %d bytes of bodies in 24 MiB", n*size)
			}
			if err := s.Close(); err != nil {
				t.Fatalf("Close on a full disk: %v", err)
			}
			s = open(t, dir, smallOptions())
			wantCounts(t, s, "q", int64(n), int64(n), 0)
			wantInOrder(t, drain(t, s, "q"), n)
			writableAgain(t, s)
			takesAgain(t, s, size, n/2)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// DISK-09: a purge works on a full disk, and gives the room back.
func TestPurgeOnFullDisk(t *testing.T) {
	s := open(t, filepath.Join(smallDisk(t, 24<<20), "data"), smallOptions())
	n := putUntilFull(t, s, 0, 2000)
	if purged, err := s.Purge(q); err != nil || purged != int64(n) {
		t.Fatalf("purged %d of %d, %v", purged, n, err)
	}
	writableAgain(t, s)
	takesAgain(t, s, 2000, n/2)
}

// takesAgain enqueues n messages while room comes back: that takes at most ten seconds.
func takesAgain(t *testing.T, s *storage.Store, size, n int) {
	t.Helper()
	began := time.Now()
	for taken := 0; taken < n; {
		if taken += putUntilFull(t, s, taken, size); time.Since(began) > 10*time.Second {
			t.Fatalf("took %d messages in 10 s after the disk was emptied, want %d", taken, n)
		}
	}
}
