package memcache_test

import (
	"runtime"
	"testing"
	"time"

	"qserver/protocol/memcache"
	"qserver/storage"
)

// A connection that is alone and busy gets a seat; it loses it when it rests, ends, or others are busy, and is served all the same.
func TestSeat(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOMAXPROCS(0) < 2 {
		t.Skip("seats are for Linux, with two processors or more: run it there, or with GOMAXPROCS=2")
	}
	for _, sync := range []storage.SyncMode{storage.SyncNever, storage.SyncAlways} {
		s := start(t, tcp, func(_ *memcache.Server, o *storage.Options) { o.Sync = sync })
		a, b := s.dial(), s.dial()
		cycle := func(c *client) {
			t.Helper()
			c.do("set q 0 0 3\r\nabc\r\n", "STORED\r\n")
			c.do("get q\r\n", "VALUE q 0 3\r\nabc\r\nEND\r\n")
			c.do("delete q\r\n", "DELETED\r\n")
		}
		empty := func() bool { return s.Seats() == 0 }
		seated := func() bool {
			cycle(a)
			return s.Seats() == 1
		}

		eventually(t, "no seat for a busy client", seated)
		eventually(t, "the seat is kept by a client at rest", empty)

		eventually(t, "no seat once more", seated)
		for range 100 {
			cycle(a)
			cycle(b)
		}
		a.do("get q/t=50\r\n", "END\r\n") // a wait
		eventually(t, "the seat is kept by waiting clients", empty)

		eventually(t, "no seat after a wait", seated)
		a.send("set q 0 0 3\r\na") // a body that stalls
		eventually(t, "the seat is kept by a client that has stalled", empty)
		b.do("version\r\n", "VERSION 1.2.3\r\n")
		a.do("bc\r\nget q\r\n", "STORED\r\nVALUE q 0 3\r\nabc\r\nEND\r\n")

		eventually(t, "no seat after a stall", func() bool {
			a.do("version\r\n", "VERSION 1.2.3\r\n")
			return s.Seats() == 1
		})
		a.close()
		eventually(t, "the seat is kept by a client that has gone", empty)
		cycle(b)
	}
}

// A client that never comes back in time costs only now and then a seat.
func TestSeatInVain(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOMAXPROCS(0) < 2 {
		t.Skip("seats are for Linux, with two processors or more: run it there, or with GOMAXPROCS=2")
	}
	s := start(t, tcp, nil)
	c := s.dial()
	taken := 0
	for range 200 {
		c.do("version\r\n", "VERSION 1.2.3\r\n")
		taken += int(s.Seats())
		time.Sleep(2 * time.Millisecond)
	}
	if taken > 40 {
		t.Errorf("%d of 200 commands, two milliseconds apart, had a seat", taken)
	}
}

// What was in vain four times in a row is tried once in 64 times, until it pays.
func TestPatience(t *testing.T) {
	var p memcache.Patience
	tries := func(n int) (tried int) {
		for range n {
			if p.Left() {
				tried++
				p.InVain()
			}
		}
		return tried
	}
	if got := tries(4); got != 4 {
		t.Errorf("%d of the first 4 tried", got)
	}
	if got := tries(640); got != 10 {
		t.Errorf("%d of 640 more tried, want 10", got)
	}
	p.Reset()
	if got := tries(4); got != 4 {
		t.Errorf("%d of 4 tried after one that paid", got)
	}
}
