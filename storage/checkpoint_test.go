package storage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"qserver/internal/faultfs"
	"qserver/storage"
)

// drain takes and acks everything of q and returns the bodies.
func drain(t *testing.T, s *storage.Store, q string) []string {
	t.Helper()
	c := s.NewSession("drain")
	defer c.Close()
	var bodies []string
	for {
		b, ok := get(t, c, q)
		if !ok {
			return bodies
		}
		bodies = append(bodies, b)
		ack(t, c, q)
	}
}

// wantInOrder compares bodies with m0, m1, … as putMany enqueues them.
func wantInOrder(t *testing.T, got []string, n int) {
	t.Helper()
	for i := range min(n, len(got)) {
		if want := fmt.Sprintf("m%d ", i); !strings.HasPrefix(got[i], want) {
			t.Fatalf("message %d is %.20q, want %q", i, got[i], want)
		}
	}
	if len(got) != n {
		t.Fatalf("got %d messages, want %d", len(got), n)
	}
}

// putMany enqueues m0, m1, … of about size bytes each.
func putMany(t *testing.T, s *storage.Store, q string, n, size int) {
	t.Helper()
	c := s.NewSession("many")
	defer c.Close()
	pad := strings.Repeat("x", size)
	for i := range n {
		if _, err := c.Enqueue([]byte(q), storage.PutRequest{Body: fmt.Appendf(nil, "m%d %s", i, pad), Priority: storage.DefaultPriority}); err != nil {
			t.Fatalf("Enqueue: %v", err)
		}
	}
	if err := c.Commit(); err != nil {
		t.Fatalf("Commit: %v", err)
	}
}

// A checkpoint that fails is tried again, and what it had read of the log by then must not be passed over.
func TestCheckpointAfterReadError(t *testing.T) {
	fs, dir := faultfs.New(), t.TempDir()
	o := storage.Options{FS: fs}
	s := open(t, dir, o)
	putMany(t, s, "q", 300, 1000)
	var reads atomic.Int32
	fs.Inject(func(op faultfs.Op) error {
		if op.Kind == faultfs.Read && reads.Add(1) == 3 {
			return syscall.EIO
		}
		return nil
	})
	if err := s.Checkpoint(t.Context()); err == nil {
		t.Fatal("Checkpoint with a failing read: no error")
	}
	fs.Inject(nil)
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, o)
	wantCounts(t, s, "q", 300, 300, 0)
	wantInOrder(t, drain(t, s, "q"), 300)
}

// The same where the tree can't be written.
func TestCheckpointOnFullDisk(t *testing.T) {
	dir := smallDisk(t, 4<<20)
	fs := faultfs.New()
	o := storage.Options{FS: fs}
	s := open(t, filepath.Join(dir, "data"), o)
	putMany(t, s, "q", 300, 1000)
	ballast := filepath.Join(dir, "ballast")
	fillDisk(t, ballast)
	if err := s.Checkpoint(t.Context()); err == nil {
		t.Fatal("Checkpoint on a full disk: no error")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, filepath.Join(dir, "data"), o)
	wantCounts(t, s, "q", 300, 300, 0)
	wantInOrder(t, drain(t, s, "q"), 300)
}

// A message that was released with a delay lies in another lane of the tree once that is past.
func TestReleasedWithDelayIsFoundAgain(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		t.Run(fmt.Sprintf("replaced=%v", replaced), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t, t.TempDir(), storage.Options{Memory: 1 << 20})
				putMany(t, s, "q", 1500, 300)
				c := s.NewSession("c")
				defer c.Close()
				for range 1500 {
					d, ok, err := c.Reserve([]byte("q"), storage.ReserveOptions{})
					if err != nil || !ok {
						t.Fatal(ok, err)
					}
					if err := c.Release([]byte("q"), storage.Pick{Receipt: d.Receipt}, time.Second); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.Commit(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(1500 * time.Millisecond)
				if replaced {
					for range 1500 {
						d, ok, err := c.Reserve([]byte("q"), storage.ReserveOptions{})
						if err != nil || !ok {
							t.Fatal(ok, err)
						}
						if err := c.ReplaceBody([]byte("q"), d.Receipt, d.Body, 0, time.Time{}); err != nil {
							t.Fatal(err)
						}
					}
				}
				for range 3 {
					if err := s.Checkpoint(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				wantCounts(t, s, "q", 1500, 1500, 0)
				wantInOrder(t, drain(t, s, "q"), 1500)
			})
		})
	}
}

// The body of a message that was released with a delay is found wherever it lies: in memory, in the log, in either lane.
func TestBodyAfterRelease(t *testing.T) {
	for rounds := range 3 {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("rounds=%d restart=%v", rounds, restart), func(t *testing.T) {
				dir := t.TempDir()
				o := storage.Options{SegmentBytes: 64 << 10}
				s := open(t, dir, o)
				putMany(t, s, "q", 10, 100)
				if err := s.Checkpoint(t.Context()); err != nil {
					t.Fatal(err)
				}
				if restart {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = open(t, dir, o)
				}
				c := s.NewSession("c")
				defer c.Close()
				for range rounds {
					for range 10 {
						get(t, c, "q")
					}
					for range 10 {
						if err := c.Release([]byte("q"), storage.Pick{}, time.Millisecond); err != nil {
							t.Fatal(err)
						}
					}
					if err := c.Commit(); err != nil {
						t.Fatal(err)
					}
					waitFor(t, "all are ready", func() bool { st, _ := s.Queue([]byte("q")); return st.Ready == 10 })
				}
				wantInOrder(t, drain(t, s, "q"), 10)
			})
		}
	}
}

// A waiter that must not read the disk is told that it would have to, and may come back for the message.
func TestTryTake(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{})
	putMany(t, s, "q", 2, 100)
	holder, waiter := s.NewSession("holder"), s.NewSession("waiter")
	defer waiter.Close()
	want, _ := get(t, holder, "q")
	get(t, holder, "q")
	w := waiter.Wait([][]byte{[]byte("q")}, []storage.ReserveOptions{{}}, func() {})
	if err := s.Checkpoint(t.Context()); err != nil { // the bodies of what is held leave memory
		t.Fatal(err)
	}
	holder.Close()
	waitFor(t, "the waiter has a message", w.Done)
	if _, d, ok, err := w.TryTake(); ok || !errors.Is(err, storage.ErrNotInMemory) {
		t.Fatalf("got %+v, %v, %v; want ErrNotInMemory", d, ok, err)
	}
	if _, d, ok, err := w.Take(); !ok || err != nil || string(d.Body) != want {
		t.Fatalf("got %+v, %v, %v; want %q", d, ok, err, want)
	}
	w = waiter.Wait([][]byte{[]byte("new")}, []storage.ReserveOptions{{}}, func() {})
	putMany(t, s, "new", 1, 100)
	waitFor(t, "the waiter has a message in memory", w.Done)
	if _, d, ok, err := w.TryTake(); !ok || err != nil || len(d.Body) == 0 {
		t.Fatalf("got %+v, %v, %v", d, ok, err)
	}
}

// waitFor waits until cond holds, at most 10 seconds.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("not within 10 seconds: %s", what)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// A message whose due time and expiry both passed while the server was down expires once.
func TestExpiresOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir, storage.Options{})
		c := s.NewSession("c")
		for range 3 {
			putReq(t, c, "q", storage.PutRequest{Body: []byte("x"), Delay: time.Second, Expire: time.Now().Add(2 * time.Second)})
		}
		put(t, c, "q", "stays")
		c.Close()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		s = open(t, dir, storage.Options{})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantCounts(t, s, "q", 1, 1, 0)
		if st, _ := s.Queue([]byte("q")); st.TotalExpired != 3 {
			t.Errorf("expired %d, want 3", st.TotalExpired)
		}
		if got := drain(t, s, "q"); len(got) != 1 || got[0] != "stays" {
			t.Errorf("got %q", got)
		}
	})
}

// A get that meets a message past its time just before the timekeeper does removes it once.
func TestExpiresOnceAtTheHead(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, storage.Options{})
	c := s.NewSession("c")
	defer c.Close()
	const n = 200
	at := time.Now().Add(100 * time.Millisecond)
	for range n {
		putReq(t, c, "q", storage.PutRequest{Body: []byte("x"), Expire: at})
		at = at.Add(time.Millisecond)
	}
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	for time.Now().Before(at) {
		if _, _, err := c.Peek([]byte("q")); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "all have expired", func() bool { st, _ := s.Queue([]byte("q")); return st.TotalExpired >= n })
	if err := s.Checkpoint(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, s, "q", 0, 0, 0)
	if st, _ := s.Queue([]byte("q")); st.TotalExpired != n {
		t.Errorf("expired %d, want %d", st.TotalExpired, n)
	}
}

// Dedup keys whose window is over leave the tree.
func TestDedupKeysLeaveTheTree(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{DedupWindow: time.Millisecond})
	c := s.NewSession("c")
	defer c.Close()
	var used []int64
	for round := range 8 {
		for i := range 5000 {
			key := fmt.Appendf(nil, "%d-%d-%s", round, i, strings.Repeat("k", 100))
			if _, err := c.Enqueue([]byte("q"), storage.PutRequest{Body: []byte("x"), Dedup: key}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Purge([]byte("q")); err != nil {
			t.Fatal(err)
		}
		if err := s.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		used = append(used, s.Stats().TreeUsed)
	}
	if first, last := used[1], used[len(used)-1]; last > 2*first {
		t.Errorf("used bytes of the tree grow with keys that are over: %d", used)
	}
}

// A second purge while the first is being swept leaves no row behind.
func TestPurgeTwiceWhileSweeping(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, storage.Options{})
	c := s.NewSession("c")
	put := func(n int, pri uint32, delay time.Duration) {
		t.Helper()
		for range n {
			if _, err := c.Enqueue([]byte("q"), storage.PutRequest{Body: []byte("x"), Priority: pri, Delay: delay}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	put(25000, 10, 0) // more than one sweep takes
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Purge([]byte("q")); err != nil {
		t.Fatal(err)
	}
	put(100, 1, 0)
	put(100, 10, time.Hour)
	if err := storage.Stride(s); err != nil { // has the new ones and a first sweep
		t.Fatal(err)
	}
	if _, err := s.Purge([]byte("q")); err != nil {
		t.Fatal(err)
	}
	put(1, 1, 0)
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantChecked(t, dir, map[string]int64{"q": 1}, 1+1+2) // the message, its queue, the meta row twice
	s = open(t, dir, storage.Options{})
	wantCounts(t, s, "q", 1, 1, 0)
}
