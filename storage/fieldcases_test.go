package storage_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"qserver/storage"
)

// Cases that hurt users of other queues, at the level of the store.

var q = []byte("q")

func reserve(t *testing.T, c *storage.Session, o storage.ReserveOptions) storage.Delivery {
	t.Helper()
	d, ok, err := c.Reserve(q, o)
	if err != nil || !ok {
		t.Fatalf("Reserve: %v %v", ok, err)
	}
	return d
}

// SEM-02: what a connection held comes back at its end, once, at its old place.
func TestHeldComesBackAtItsPlace(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{})
	c1, c2 := s.NewSession("1"), s.NewSession("2")
	defer c2.Close()
	putMany(t, s, "q", 2, 1)
	get(t, c1, "q")
	wantCounts(t, s, "q", 2, 1, 1)
	c1.Close()
	c1.Close()
	wantCounts(t, s, "q", 2, 2, 0)
	first := reserve(t, c2, storage.ReserveOptions{})
	if first.ID != 1 || first.Deliveries != 1 {
		t.Errorf("got message %d with %d deliveries, want 1 with 1", first.ID, first.Deliveries)
	}
	if second := reserve(t, c2, storage.ReserveOptions{}); second.ID != 2 || second.Deliveries != 0 {
		t.Errorf("got message %d with %d deliveries, want 2 with 0", second.ID, second.Deliveries)
	}
}

// wait lets a session wait for q and returns what is closed once it is woken.
func wait(c *storage.Session, o storage.ReserveOptions) (*storage.Waiter, chan struct{}) {
	woken := make(chan struct{})
	return c.Wait([][]byte{q}, []storage.ReserveOptions{o}, func() { close(woken) }), woken
}

// SEM-04: connections that closed while they waited eat no message.
func TestClosedWaitersEatNothing(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{})
	for range 50 {
		c := s.NewSession("gone")
		wait(c, storage.ReserveOptions{})
		c.Close()
	}
	if n := s.Stats().Waiters; n != 0 {
		t.Fatalf("%d waiters, want none", n)
	}
	c := s.NewSession("c")
	defer c.Close()
	put(t, c, "q", "A")
	if got, ok := get(t, c, "q"); got != "A" || !ok {
		t.Errorf("got %q %v, want A", got, ok)
	}
	wantCounts(t, s, "q", 1, 0, 1)
}

// A waiter that hangs up after a message was reserved for it, with or without a lease, never got it: it goes back at once
// and uncounted.
func TestServedWaiterHangsUp(t *testing.T) {
	for _, lease := range []time.Duration{0, time.Hour} {
		s := open(t, t.TempDir(), storage.Options{})
		c1, c2 := s.NewSession("1"), s.NewSession("2")
		defer c2.Close()
		_, woken := wait(c1, storage.ReserveOptions{Lease: lease})
		put(t, c2, "q", "A")
		<-woken
		wantCounts(t, s, "q", 1, 0, 1)
		c1.Close()
		wantCounts(t, s, "q", 1, 1, 0)
		if d := reserve(t, c2, storage.ReserveOptions{}); d.Deliveries != 0 {
			t.Errorf("lease %v: %d deliveries, want 0", lease, d.Deliveries)
		}
	}
}

// SEM-05: waiters are served in the order of their arrival, and one message wakes one of them.
func TestWaitersInOrder(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{})
	var woken atomic.Int64
	const n = 10_000
	var first []*storage.Waiter
	var done []chan struct{}
	for i := range n {
		c := s.NewSession("w")
		defer c.Close()
		ch := make(chan struct{})
		w := c.Wait([][]byte{q}, make([]storage.ReserveOptions, 1), func() { woken.Add(1); close(ch) })
		if i < 3 {
			first, done = append(first, w), append(done, ch)
		}
	}
	c := s.NewSession("producer")
	defer c.Close()
	for i, want := range []string{"A", "B", "C"} {
		began := time.Now()
		put(t, c, "q", want)
		<-done[i]
		if d := time.Since(began); d > time.Second {
			t.Errorf("woken after %v", d)
		}
		if _, d, ok, err := first[i].Take(); string(d.Body) != want || !ok || err != nil {
			t.Errorf("waiter %d got %q %v %v, want %q", i, d.Body, ok, err, want)
		}
		if got := woken.Load(); got != int64(i+1) {
			t.Errorf("%d waiters were woken by %d messages", got, i+1)
		}
	}
}

// SEM-07: a late ack, after the lease has ended and another has the message, is told so and does no harm.
func TestLateAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, t.TempDir(), storage.Options{})
		c1, c2 := s.NewSession("1"), s.NewSession("2")
		defer c2.Close()
		put(t, c2, "q", "A")
		late := reserve(t, c1, storage.ReserveOptions{Lease: 2 * time.Second})
		time.Sleep(3 * time.Second)
		now := reserve(t, c2, storage.ReserveOptions{})
		if late.Receipt == now.Receipt || now.Deliveries != 1 {
			t.Errorf("receipts %d and %d, %d deliveries", late.Receipt, now.Receipt, now.Deliveries)
		}
		if err := c1.Ack(q, storage.Pick{Receipt: late.Receipt}); !errors.Is(err, storage.ErrReceiptOver) {
			t.Errorf("late ack by receipt: %v, want %v", err, storage.ErrReceiptOver)
		}
		if err := c1.Ack(q, storage.Pick{}); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("late ack by position: %v, want %v", err, storage.ErrNotFound)
		}
		c1.Close()
		wantCounts(t, s, "q", 1, 0, 1)
		ack(t, c2, "q")
		wantCounts(t, s, "q", 0, 0, 0)
	})
}

// SEM-09: a message keeps its TTL when it is returned; the holder may still ack it afterwards.
func TestTTLOutlivesReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, t.TempDir(), storage.Options{})
		c := s.NewSession("1")
		expire := time.Now().Add(5 * time.Second)
		for _, body := range []string{"returned", "held"} {
			putReq(t, c, "q", storage.PutRequest{Body: []byte(body), Expire: expire})
		}
		time.Sleep(time.Second)
		holder := s.NewSession("2")
		defer holder.Close()
		get(t, c, "q")
		held := reserve(t, holder, storage.ReserveOptions{})
		time.Sleep(time.Second)
		c.Close()
		time.Sleep(2 * time.Second)
		wantCounts(t, s, "q", 2, 1, 1)
		time.Sleep(2 * time.Second)
		wantCounts(t, s, "q", 1, 0, 1)
		if err := holder.Ack(q, storage.Pick{Receipt: held.Receipt}); err != nil {
			t.Errorf("ack behind the TTL: %v", err)
		}
		// What is past already is answered as stored and is not kept.
		if id := putReq(t, holder, "q", storage.PutRequest{Body: []byte("past"), Expire: time.Now().Add(-time.Hour)}); id != 0 {
			t.Errorf("stored as %d", id)
		}
		wantCounts(t, s, "q", 0, 0, 0)
	})
}

// SEM-10: the allowance of a connection comes back however its messages end.
func TestHeldLimit(t *testing.T) {
	s := open(t, t.TempDir(), storage.Options{MaxHeld: 10})
	putMany(t, s, "q", 400, 1)
	for round := range 3 {
		var cs []*storage.Session
		for range 20 {
			c := s.NewSession("c")
			cs = append(cs, c)
			for range 10 {
				reserve(t, c, storage.ReserveOptions{})
			}
			if _, ok := get(t, c, "q"); ok {
				t.Fatal("an eleventh was given out")
			}
		}
		for i, c := range cs {
			if i%2 == 0 {
				for range 5 {
					ack(t, c, "q")
				}
				if _, ok := get(t, c, "q"); !ok {
					t.Fatal("none after five acks")
				}
			}
			c.Close()
		}
		wantCounts(t, s, "q", int64(400-50*(round+1)), int64(400-50*(round+1)), 0)
	}
}

// DUR-02: the process is killed while workers hold messages.
func TestKilledWhileHeld(t *testing.T) {
	for _, checkpointed := range []bool{false, true} {
		dir := t.TempDir()
		s := open(t, dir, storage.Options{})
		putMany(t, s, "q", 100, 10)
		if checkpointed {
			if err := s.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 {
			c := s.NewSession("worker")
			for range 10 {
				reserve(t, c, storage.ReserveOptions{Lease: time.Hour})
			}
		}
		if err := storage.Abandon(s); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, storage.Options{})
		wantCounts(t, s, "q", 100, 100, 0)
		wantInOrder(t, drain(t, s, "q"), 100)
	}
}

// DUR-07: a crash right after the start leaves files that are empty or half written.
func TestEmptyFilesAfterCrash(t *testing.T) {
	for _, size := range []int64{0, 1, 100, 4095, 4096, 4100} {
		for _, file := range []string{"log", "log.tmp"} {
			t.Run(fmt.Sprintf("%s of %d bytes", file, size), func(t *testing.T) {
				dir := t.TempDir()
				s := open(t, dir, storage.Options{SegmentBytes: 64 << 10})
				putMany(t, s, "q", 10, 10)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				segs := segments(t, dir)
				last := segs[len(segs)-1]
				var n uint64
				fmt.Sscanf(filepath.Base(last), "%x", &n)
				name := filepath.Join(dir, "ulog", fmt.Sprintf("%016x.ulog", n+1))
				if file == "log.tmp" {
					name += ".tmp"
				}
				b, err := os.ReadFile(last)
				if err != nil {
					t.Fatal(err)
				}
				if size == 4096 || size == 4100 {
					clear(b) // a whole header under another name is another matter
				}
				if err := os.WriteFile(name, b[:size], 0o600); err != nil {
					t.Fatal(err)
				}
				s = open(t, dir, storage.Options{SegmentBytes: 64 << 10})
				c := s.NewSession("c")
				put(t, c, "q", "m10 ")
				c.Close()
				wantInOrder(t, drain(t, s, "q"), 11)
				for _, name := range segments(t, dir) {
					if fi, err := os.Stat(name); err != nil || fi.Size() < 4096 {
						t.Errorf("left behind: %s, %d bytes", name, fi.Size())
					}
				}
				if tmp, _ := filepath.Glob(filepath.Join(dir, "ulog", "*.tmp")); len(tmp) > 0 {
					t.Errorf("left behind: %s", tmp)
				}
			})
		}
	}
}

// segments are the log's files in order.
func segments(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "ulog", "*.ulog"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no log in %s: %v", dir, err)
	}
	slices.Sort(names)
	return names
}
