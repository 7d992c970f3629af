package memcache_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"qserver/protocol/memcache"
	"qserver/storage"
)

// Bodies share a budget: those beyond it wait, but not for each other for ever, and one that stalls is closed.
func TestBodyBudget(t *testing.T) {
	const item = 64 << 10
	configure := func(s *memcache.Server, _ *storage.Options) { s.MaxItemSize, s.BodyMemory = item, 2*item }
	set := func(c *client, part string) {
		c.send(fmt.Sprintf("set q 0 0 %d\r\n%s", item, part))
	}
	bubble(t, configure, func(t *testing.T, s *server) {
		part, rest := repeat("x", item/2+1), repeat("x", item/2-1)+"\r\n"
		var cs []*client
		for range 3 {
			c := s.dial()
			c.wantOpen()
			go set(c, part)
			synctest.Wait()
			cs = append(cs, c)
		}
		for _, c := range cs {
			go c.send(rest)
			synctest.Wait()
		}
		for _, c := range cs {
			c.want("STORED\r\n")
		}
	})
	bubble(t, configure, func(t *testing.T, s *server) {
		stalled, waiting := s.dial(), s.dial()
		stalled.wantOpen()
		waiting.wantOpen()
		set(stalled, repeat("x", item/2+1))
		go set(waiting, repeat("x", item)+"\r\n")
		waiting.want("STORED\r\n") // by the overdraft
		sleep(15)
		stalled.wantEnd()
	})
}

// Announced bodies that never come cost no memory of the budget.
func TestAnnouncedBodiesCostNothing(t *testing.T) {
	bubble(t, func(s *memcache.Server, _ *storage.Options) { s.BodyMemory = 128 << 10; s.MaxItemSize = 64 << 10 }, func(t *testing.T, s *server) {
		for range 500 {
			c := s.dial()
			c.wantOpen()
			c.send("set q 0 0 65536\r\n")
		}
		c := s.dial()
		c.do("set q 0 0 65536\r\n"+repeat("x", 65536)+"\r\n", "STORED\r\n")
		if got := s.Stats().StalledClosed; got != 0 {
			t.Errorf("got %d stalled connections closed, want none", got)
		}
	})
}

// A large body arrives in pieces of any size and comes back whole.
func TestLargeBodies(t *testing.T) {
	s := start(t, tcp, func(_ *memcache.Server, o *storage.Options) { o.Sync = storage.SyncNever })
	c := s.dial()
	for _, size := range []int{4095, 4096, 16 << 10, 16<<10 + 1, 64 << 10, 1<<20 + 3, 5 << 20} {
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(i * 7)
		}
		c.do(fmt.Sprintf("set q 0 0 %d\r\n%s\r\n", size, body), "STORED\r\n")
		c.do("gets q/peek\r\n", fmt.Sprintf("VALUE q/peek 0 %d 0\r\n%s\r\nEND\r\n", size, body))
		c.do("get q\r\ndelete q\r\n", fmt.Sprintf("VALUE q 0 %d\r\n%s\r\nEND\r\nDELETED\r\n", size, body))
	}
}

// Refused bodies up to 256 MiB are swallowed without their memory.
func TestSwallowsAtBoundedMemory(t *testing.T) {
	s := start(t, tcp, func(s *memcache.Server, _ *storage.Options) { s.MaxItemSize, s.BodyMemory = 1<<20, 2<<20 })
	c := s.dial()
	const size = 32 << 20
	c.send(fmt.Sprintf("set q 0 0 %d\r\n", size))
	c.want(large) // at once
	chunk := repeat("set pwned 0 0 1\r\nx\r\n", 1000)
	left := size
	for ; left > len(chunk); left -= len(chunk) {
		c.send(chunk)
	}
	c.send(chunk[:left] + "\r\n")
	c.wantOpen()
	if _, there := s.store.Queue([]byte("pwned")); there {
		t.Error("a refused body was run as a command")
	}
}
