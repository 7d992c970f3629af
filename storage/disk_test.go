package storage_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"qserver/storage"
)

// fillDisk writes a file until its disk is full.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 4 {
		b := make([]byte, size)
		for err == nil {
			_, err = f.Write(b)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
}

// folderBytes is what a folder takes on the disk.
func folderBytes(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone in the meantime
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && err == nil {
			n += st.Blocks * 512
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func smallOptions() storage.Options {
	return storage.Options{SegmentBytes: 1 << 20, MinFreeDisk: 1 << 20, Memory: 8 << 20}
}

// A body for which there is no room is refused; it must not end the server.
func TestLargeBodyOnSmallDisk(t *testing.T) {
	s := open(t, filepath.Join(smallDisk(t, 24<<20), "data"), smallOptions())
	c := s.NewSession("c")
	defer c.Close()
	for range 3 {
		_, err := c.Enqueue(q, storage.PutRequest{Body: make([]byte, 30<<20)})
		if err == nil {
			err = c.Commit()
		}
		if !errors.Is(err, storage.ErrDiskFull) {
			t.Errorf("30 MiB: %v, want %v", err, storage.ErrDiskFull)
		}
		put(t, c, "q", "small")
	}
	wantCounts(t, s, "q", 3, 3, 0)
}

// cycle lets n messages through a queue one by one.
func cycle(t *testing.T, s *storage.Store, queue string, n, size int) {
	t.Helper()
	c := s.NewSession("cycle")
	defer c.Close()
	body := make([]byte, size)
	for range n {
		if _, err := c.Enqueue([]byte(queue), storage.PutRequest{Body: body, Priority: storage.DefaultPriority}); err != nil {
			t.Fatal(err)
		}
		if _, ok := get(t, c, queue); !ok {
			t.Fatal("nothing there")
		}
		if err := c.Ack([]byte(queue), storage.Pick{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
}

// wantBack goes on with rounds until the folder takes no more than most bytes. Its size comes and goes with the segments that are in
// use; what a round leaves behind would not go.
func wantBack(t *testing.T, dir string, most int64, round func()) {
	t.Helper()
	var sizes []int64
	for range 60 {
		round()
		n := folderBytes(t, dir)
		if n <= most {
			return
		}
		sizes = append(sizes, n)
	}
	t.Errorf("the folder grows: want %d, got %d", most, sizes)
}

// diskOptions are for tests of what a folder takes: nothing of it depends on syncs.
func diskOptions() storage.Options {
	return storage.Options{SegmentBytes: 256 << 10, Sync: storage.SyncNever, Memory: 1 << 20, ForgetAfter: time.Millisecond}
}

// DISK-01: one message that is held all the time pins nothing.
func TestOldMessagePinsNothing(t *testing.T) {
	dir := memoryDir(t)
	s := open(t, dir, diskOptions())
	old := s.NewSession("old")
	put(t, old, "old", "old")
	get(t, old, "old")
	round := func() { cycle(t, s, "hot", 5000, 250) }
	round()
	first := folderBytes(t, dir)
	for range 4 {
		round()
	}
	wantBack(t, dir, first+512<<10, round)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, diskOptions())
	if n := folderBytes(t, dir); n > 2<<20 {
		t.Errorf("%d bytes after a restart", n)
	}
	wantCounts(t, s, "old", 1, 1, 0)
}

// DISK-02: getting and giving back does not grow the folder.
func TestReturnsDoNotGrow(t *testing.T) {
	dir := memoryDir(t)
	o := diskOptions()
	o.Memory = 8 << 20
	s := open(t, dir, o)
	putMany(t, s, "q", 5000, 200)
	var sizes []int64
	for range 5 {
		for range 20 {
			c := s.NewSession("c")
			for range 500 {
				get(t, c, "q")
			}
			c.Close()
		}
		if err := s.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, folderBytes(t, dir))
	}
	if first, last := sizes[0], sizes[len(sizes)-1]; last > first+first/5 {
		t.Errorf("the folder grows: %d", sizes)
	}
	wantInOrder(t, drain(t, s, "q"), 5000)
}

// DISK-04: queues that come and go leave nothing.
func TestQueuesComeAndGo(t *testing.T) {
	dir := memoryDir(t)
	s := open(t, dir, diskOptions())
	var sizes []int64
	for round := range 4 {
		for i := range 250 {
			cycle(t, s, fmt.Sprintf("queue-%d-%d", round, i), 20, 100)
		}
		waitFor(t, "empty queues are forgotten", func() bool { return storage.Chores(s) == nil && s.Stats().Queues == 0 })
		if err := s.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, folderBytes(t, dir))
	}
	if last := sizes[len(sizes)-1]; last > sizes[0]+256<<10 {
		t.Errorf("the folder grows: %d", sizes)
	}
	if st := s.Stats(); st.TotalItems != 20000 || st.TotalAcked != 20000 {
		t.Errorf("totals of forgotten queues: %+v", st.QueueStats)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s = open(t, dir, diskOptions())
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("restart in %v", d)
	}
	if st := s.Stats(); st.TotalItems != 20000 || st.Queues != 0 {
		t.Errorf("after a restart: %d queues, %+v", st.Queues, st.QueueStats)
	}
}

// DISK-12: messages that live for moments leave nothing.
func TestShortLivedDoNotGrow(t *testing.T) {
	dir := memoryDir(t)
	s := open(t, dir, diskOptions())
	round := func() { cycle(t, s, "q", 8000, 100) }
	round()
	round()
	first := folderBytes(t, dir)
	for range 3 {
		round()
	}
	wantBack(t, dir, first+first/10, round)
}

// After a large backlog is acked the folder shrinks by itself, though one message of it stays.
func TestFolderShrinks(t *testing.T) {
	t.Parallel() // it waits for a quiet moment
	dir := memoryDir(t)
	o := diskOptions()
	o.SegmentBytes, o.Memory = 4<<20, 16<<20
	s := open(t, dir, o)
	putMany(t, s, "q", 12_000, 4000)
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	full := folderBytes(t, dir)
	if full < 48<<20 {
		t.Fatalf("48 MB of messages take %d bytes", full)
	}
	old := s.NewSession("old")
	defer old.Close()
	get(t, old, "q")
	if n := len(drain(t, s, "q")); n != 11_999 {
		t.Fatalf("drained %d", n)
	}
	waitFor(t, "the folder is small", func() bool { return folderBytes(t, dir) < 12<<20 })
	wantCounts(t, s, "q", 1, 0, 1)
}
