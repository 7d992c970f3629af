package storage_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"qserver/storage"
)

func open(t *testing.T, dir string, o storage.Options) *storage.Store {
	t.Helper()
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 1 << 20
	}
	if o.MinFreeDisk == 0 {
		o.MinFreeDisk = 1
	}
	s, err := storage.Open(dir, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func put(t *testing.T, c *storage.Session, q, body string) uint64 {
	t.Helper()
	return putReq(t, c, q, storage.PutRequest{Body: []byte(body), Priority: storage.DefaultPriority})
}

func putReq(t *testing.T, c *storage.Session, q string, p storage.PutRequest) uint64 {
	t.Helper()
	id, err := c.Enqueue([]byte(q), p)
	if err != nil {
		t.Fatalf("Enqueue: %v", err)
	}
	if err := c.Commit(); err != nil {
		t.Fatalf("Commit: %v", err)
	}
	return id
}

func get(t *testing.T, c *storage.Session, q string) (string, bool) {
	t.Helper()
	d, ok, err := c.Reserve([]byte(q), storage.ReserveOptions{})
	if err != nil {
		t.Fatalf("Reserve: %v", err)
	}
	return string(d.Body), ok
}

func ack(t *testing.T, c *storage.Session, q string) {
	t.Helper()
	if err := c.Ack([]byte(q), storage.Pick{}); err != nil {
		t.Fatalf("Ack: %v", err)
	}
	if err := c.Commit(); err != nil {
		t.Fatalf("Commit: %v", err)
	}
}

func wantCounts(t *testing.T, s *storage.Store, q string, items, ready, reserved int64) {
	t.Helper()
	st, _ := s.Queue([]byte(q))
	if st.Items != items || st.Ready != ready || st.Reserved != reserved {
		t.Fatalf("counts of %s: items %d ready %d reserved %d, want %d %d %d", q, st.Items, st.Ready, st.Reserved, items, ready, reserved)
	}
	if got := st.TotalAcked + st.TotalPurged + st.TotalExpired + st.Items + st.Dead; got != st.TotalItems {
		t.Fatalf("I9 of %s: %d enqueued, %d accounted for: %+v", q, st.TotalItems, got, st)
	}
}

func TestEnqueueReserveAck(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{})
	c := s.NewSession("c")
	defer c.Close()
	put(t, c, "q", "A")
	put(t, c, "q", "B")
	wantCounts(t, s, "q", 2, 2, 0)
	if got, ok := get(t, c, "q"); got != "A" || !ok {
		t.Fatalf("got %q, want A", got)
	}
	wantCounts(t, s, "q", 2, 1, 1)
	ack(t, c, "q")
	wantCounts(t, s, "q", 1, 1, 0)
	if err := c.Ack([]byte("q"), storage.Pick{}); !errors.Is(err, storage.ErrNotFound) {
		t.Fatalf("second ack: %v, want ErrNotFound", err)
	}
}

func TestRestartKeepsOrderAndReserved(t *testing.T) {
	dir := t.TempDir()
	for _, checkpointed := range []bool{false, true} {
		t.Run(fmt.Sprintf("checkpointed=%v", checkpointed), func(t *testing.T) {
			dir := dir + fmt.Sprint(checkpointed)
			s := open(t, dir, storage.Options{})
			c := s.NewSession("c")
			for i := range 5000 {
				put(t, c, "q", fmt.Sprintf("m%d", i))
			}
			if checkpointed {
				if err := s.Checkpoint(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 100 {
				if got, _ := get(t, c, "q"); got != fmt.Sprintf("m%d", i) {
					t.Fatalf("got %q at %d", got, i)
				}
				if i%2 == 0 {
					ack(t, c, "q")
				}
				if i%2 == 1 {
					if err := c.Release([]byte("q"), storage.Pick{}, time.Hour); err != nil {
						t.Fatal(err)
					}
				}
			}
			get(t, c, "q")
			wantCounts(t, s, "q", 4950, 4899, 1)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, dir, storage.Options{})
			wantCounts(t, s, "q", 4950, 4900, 0)
			c = s.NewSession("c")
			for i := range 4900 {
				if got, ok := get(t, c, "q"); got != fmt.Sprintf("m%d", 100+i) {
					t.Fatalf("got %q %v at %d", got, ok, i)
				}
				ack(t, c, "q")
			}
			wantCounts(t, s, "q", 50, 0, 0)
			c.Close()
		})
	}
}

func TestDelayedTTLAndWait(t *testing.T) {
	synctest.Test(t, testDelayedTTLAndWait)
}

func testDelayedTTLAndWait(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{})
	c := s.NewSession("c")
	defer c.Close()
	putReq(t, c, "q", storage.PutRequest{Body: []byte("late"), Delay: 3 * time.Second})
	putReq(t, c, "q", storage.PutRequest{Body: []byte("gone"), Expire: time.Now().Add(2 * time.Second)})
	st, _ := s.Queue([]byte("q"))
	if st.Delayed != 1 || st.Ready != 1 {
		t.Fatalf("%+v", st)
	}
	if got, _ := get(t, c, "q"); got != "gone" {
		t.Fatalf("got %q", got)
	}
	if err := c.Release([]byte("q"), storage.Pick{}, 0); err != nil {
		t.Fatal(err)
	}
	woken := make(chan struct{})
	d := s.NewSession("d")
	defer d.Close()
	time.Sleep(2500 * time.Millisecond)
	w := d.Wait([][]byte{[]byte("q")}, make([]storage.ReserveOptions, 1), func() { close(woken) })
	<-woken
	_, got, ok, err := w.Take()
	if string(got.Body) != "late" || !ok || err != nil {
		t.Fatalf("got %q %v %v", got.Body, ok, err)
	}
	if err := d.Ack([]byte("q"), storage.Pick{}); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, s, "q", 0, 0, 0)
}

// A nack's delay doubles with the deliveries that ended without an ack, whoever had them, over a restart, and up to an hour.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir, storage.Options{})
		c := s.NewSession("c")
		putReq(t, c, "q", storage.PutRequest{Body: []byte("job")})
		get(t, c, "q")
		c.Close() // a delivery that ended with its connection counts, too
		for i, want := range []time.Duration{20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600} {
			if i == 3 {
				s.Close()
				s = open(t, dir, storage.Options{})
			}
			c := s.NewSession("c")
			if got, ok := get(t, c, "q"); got != "job" || !ok {
				t.Fatalf("delivery %d: got %q", i, got)
			}
			if err := c.Backoff([]byte("q"), storage.Pick{}, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			if err := c.Commit(); err != nil {
				t.Fatal(err)
			}
			c.Close()
			time.Sleep(want*time.Second - 100*time.Millisecond)
			wantCounts(t, s, "q", 1, 0, 0)
			time.Sleep(1100 * time.Millisecond)
			wantCounts(t, s, "q", 1, 1, 0)
		}
		c = s.NewSession("c")
		defer c.Close()
		get(t, c, "q")
		if err := c.Backoff([]byte("q"), storage.Pick{}, 0); err != nil {
			t.Fatal(err)
		}
		wantCounts(t, s, "q", 1, 1, 0)
		get(t, c, "q")
		if err := c.Backoff([]byte("q"), storage.Pick{}, 2*time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*time.Hour - time.Second)
		wantCounts(t, s, "q", 1, 0, 0)
	})
}

// A backlog that falls due at once must not come into memory at once (I10).
func TestDueBacklogStaysOnDisk(t *testing.T) {
	const n, memory = 20000, 1 << 20
	synctest.Test(t, func(t *testing.T) {
		s := open(t, t.TempDir(), storage.Options{Memory: memory, Window: 64, Sync: storage.SyncNever})
		c := s.NewSession("c")
		defer c.Close()
		for i := range n {
			if _, err := c.Enqueue([]byte("q"), storage.PutRequest{Body: fmt.Appendf(nil, "m%d", i), Delay: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour + 10*time.Minute)
		st := s.Stats()
		if st.Ready != n || st.MemoryBytes > memory {
			t.Fatalf("%d ready of %d, %d bytes of memory of %d", st.Ready, n, st.MemoryBytes, memory)
		}
		for i := range n {
			if got, _ := get(t, c, "q"); got != fmt.Sprintf("m%d", i) {
				t.Fatalf("got %q at %d", got, i)
			}
			ack(t, c, "q")
		}
	})
}
