package memcache_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"qserver/protocol/memcache"
	"qserver/storage"
)

// A hang-up while waiting is noticed at once, by FIN and by reset, also behind more input than a buffer takes.
func TestHangUpWhileWaiting(t *testing.T) {
	s := start(t, tcp, nil)
	for _, tt := range []struct {
		name, behind string
		end          func(*client)
	}{
		{"FIN", "", (*client).hangUp},
		{"RST", "", (*client).reset},
		{"FIN behind input", "version\r\n", (*client).hangUp},
		{"FIN behind more than a buffer", repeat("version\r\n", 10_000), (*client).hangUp},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := s.dial()
			c.t = t
			c.send("get q/t=60000\r\n" + tt.behind)
			for s.store.Stats().Waiters == 0 {
				s.turn()
			}
			begin := time.Now()
			tt.end(c)
			for s.store.Stats().Waiters != 0 {
				s.turn()
			}
			took := time.Since(begin)
			t.Logf("noticed after %v", took)
			if took > time.Second { // 100 ms where nothing else runs
				t.Errorf("noticed after %v", took)
			}
		})
	}
	c := s.dial()
	c.do("set q 0 0 1\r\nx\r\ngets q/peek\r\n", "STORED\r\nVALUE q/peek 0 1 0\r\nx\r\nEND\r\n")
}

// What arrives behind a waiting get is kept and answered afterwards, in order.
func TestInputBehindAWait(t *testing.T) {
	const n = 20_000 // more than the input buffer
	run := func(t *testing.T, s *server) {
		c, p := s.dial(), s.dial()
		sent := make(chan struct{})
		go func() {
			c.send("get q/t=600000\r\n" + repeat("version\r\n", n))
			close(sent)
		}()
		p.do("set other 0 0 1\r\nx\r\n", "STORED\r\n")
		if s.kind == pipes {
			c.wantNothing()
			sleep(100)
		}
		p.do("set q 0 0 1\r\nx\r\n", "STORED\r\n")
		c.want("VALUE q/t=600000 0 1\r\nx\r\nEND\r\n" + repeat(version, n))
		<-sent
	}
	bubble(t, nil, run)
	run(t, start(t, tcp, nil))
}

// A wake-up that comes late must not end a later command's reading.
func TestWaitsInTurn(t *testing.T) {
	s := start(t, tcp, func(_ *memcache.Server, o *storage.Options) { o.Sync = storage.SyncNever })
	c, p := s.dial(), s.dial()
	for i := range 500 {
		c.send("get q/t=60000\r\n")
		p.send(fmt.Sprintf("set q 0 0 3 noreply\r\n%03d\r\n", i))
		c.do("delete q\r\n", fmt.Sprintf("VALUE q/t=60000 0 3\r\n%03d\r\nEND\r\nDELETED\r\n", i))
	}
}

func TestEndWaits(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		c := s.dial()
		c.do("get q/t=60000\r\nversion\r\n", "")
		synctest.Wait()
		s.store.EndWaits()
		c.want("END\r\n" + version)
		c.do("get q/t=60000\r\n", "END\r\n")
	})
}

// Many waiters: one enqueue wakes one connection, whatever their number.
func TestTenThousandWaiters(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 1000
	}
	bubble(t, nil, func(t *testing.T, s *server) {
		for range n {
			nc, err := s.pipes.Dial()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { nc.Close() })
			nc.Write([]byte("get q/t=600000\r\n"))
		}
		synctest.Wait()
		if got := s.store.Stats().Waiters; got != int64(n) {
			t.Fatalf("got %d waiters, want %d", got, n)
		}
		s.dial().do("set q 0 0 1\r\nx\r\n", "STORED\r\n")
		synctest.Wait()
		if got := s.store.Stats(); got.Waiters != int64(n-1) || got.QueueStats.Reserved != 1 {
			t.Errorf("got %d waiters, %d reserved; want %d, 1", got.Waiters, got.QueueStats.Reserved, n-1)
		}
	})
}

// hangUp closes the client's side for good, without waiting for anything.
func (c *client) hangUp() { c.nc.Close() }

// turn lets the server do something: a whole exchange on a connection of its own.
func (s *server) turn() {
	c := s.dial()
	c.wantOpen()
	c.close()
}
