package memcache_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"qserver/protocol/memcache"
	"qserver/storage"
)

func TestField_SEM02_Disconnect(t *testing.T) {
	s := start(t, tcp, nil)
	p := s.dial()
	p.do("set q 0 0 1\r\nA\r\nset q 0 0 1\r\nB\r\n", "STORED\r\nSTORED\r\n")
	for _, how := range []string{"FIN", "RST"} {
		c := s.dial()
		c.do("get q\r\n", "VALUE q 0 1\r\nA\r\nEND\r\n")
		p.send("get q/t=60000\r\n") // takes B
		p.want("VALUE q/t=60000 0 1\r\nB\r\nEND\r\n")
		p.send("get q/t=60000\r\n")
		begin := time.Now()
		if how == "RST" {
			c.reset()
		} else {
			c.close()
		}
		p.want("VALUE q/t=60000 0 1\r\nA\r\nEND\r\n")
		if took := time.Since(begin); took > time.Second {
			t.Errorf("%s: A was back after %v", how, took)
		}
		p.do("delete q/release=0\r\ndelete q/release=0\r\n", "DELETED\r\nDELETED\r\n")
	}
	c := s.dial()
	c.do("get q\r\n", "VALUE q 0 1\r\nA\r\nEND\r\n")
	// Who has only closed his receiving side still holds it, and may ack.
	c.nc.(*net.TCPConn).CloseRead()
	for range 20 {
		s.turn()
	}
	if got := s.queue("q").Reserved; got != 1 {
		t.Errorf("behind shutdown of the receiving side: got %d reserved, want 1", got)
	}
	c.send("delete q\r\n")
	late := time.Now().Add(patience)
	for s.queue("q").TotalAcked == 0 && time.Now().Before(late) {
		s.turn()
	}
	if got := s.queue("q"); got.TotalAcked != 1 || got.Reserved != 0 || got.Ready != 1 {
		t.Errorf("got %+v, want A acked and B ready", got)
	}
}

func TestField_SEM04_WaitersThatHungUp(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		var cs []*client
		for range 50 {
			c := s.dial()
			c.send("get q/t=30000\r\n")
			cs = append(cs, c)
		}
		synctest.Wait()
		if got := s.store.Stats().Waiters; got != 50 {
			t.Fatalf("got %d waiters, want 50", got)
		}
		for _, c := range cs {
			c.close()
		}
		if got := s.store.Stats().Waiters; got != 0 {
			t.Errorf("got %d waiters, want none", got)
		}
		c := s.dial()
		c.do("set q 0 0 1\r\nA\r\nget q\r\n", "STORED\r\nVALUE q 0 1\r\nA\r\nEND\r\n")
		if got := s.queue("q").Reserved; got != 1 {
			t.Errorf("got %d reserved, want 1", got)
		}
	})
}

func TestField_SEM05_WaitersInOrder(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		var cs []*client
		for range 200 {
			c := s.dial()
			c.send("get q/t=30000\r\n")
			synctest.Wait()
			cs = append(cs, c)
		}
		p := s.dial()
		for i, c := range cs {
			p.do(fmt.Sprintf("set q 0 0 3\r\n%03d\r\n", i), "STORED\r\n")
			c.want(fmt.Sprintf("VALUE q/t=30000 0 3\r\n%03d\r\nEND\r\n", i))
			for _, later := range cs[i+1:] {
				later.mu.Lock()
				if len(later.got) > 0 {
					t.Fatalf("message %d woke another waiter: %q", i, later.got)
				}
				later.mu.Unlock()
			}
		}
	})
}

// SEM07 over the wire: the late ack of a lapsed lease, by position and by receipt, and the end of its connection harm nobody.
func TestField_SEM07_LateAck(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		a, b := s.dial(), s.dial()
		a.do("set q 0 0 1\r\nA\r\n", "STORED\r\n")
		a.send("gats 2 q\r\n")
		words := strings.Fields(a.line())
		a.want("A\r\nEND\r\n")
		sleep(3)
		b.do("get q\r\n", "VALUE q 0 1\r\nA\r\nEND\r\n")
		a.do("delete q/id="+words[4]+"\r\ndelete q\r\n", "NOT_FOUND\r\nNOT_FOUND\r\n")
		a.close()
		if got := s.queue("q").Reserved; got != 1 {
			t.Errorf("got %d reserved, want B's one", got)
		}
		b.do("delete q\r\n", "DELETED\r\n")
	})
}

// SEM09: the TTL counts from the enqueue, whether the message was taken and came back or not; who holds it may ack behind its end.
func TestField_SEM09_TTLOutlivesAReturn(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		p, a, b := s.dial(), s.dial(), s.dial()
		p.do("set q 0 5 1\r\nx\r\nset q 0 5 1\r\ny\r\n", "STORED\r\nSTORED\r\n")
		sleep(1)
		a.do("get q\r\n", "VALUE q 0 1\r\nx\r\nEND\r\n")
		b.do("get q\r\n", "VALUE q 0 1\r\ny\r\nEND\r\n")
		sleep(1)
		a.close()
		p.do("get q/peek\r\n", "VALUE q/peek 0 1\r\nx\r\nEND\r\n")
		sleep(4)
		p.do("get q/peek\r\n", "END\r\n")
		if got := s.queue("q"); got.Items != 1 || got.TotalExpired != 1 {
			t.Errorf("got %+v, want the held one and one expired", got)
		}
		b.do("delete q\r\n", "DELETED\r\n")
	})
}

func TestField_SEM09_TTL(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		c := s.dial()
		abs := time.Now().Add(40 * time.Second).Unix()
		c.do(fmt.Sprintf("set abs 0 %d 1\r\nx\r\nset past 0 %d 1\r\nx\r\nset neg 0 -1 1\r\nx\r\n", abs, time.Now().Unix()-5), repeat("STORED\r\n", 3))
		c.do("get past neg\r\n", "END\r\n")
		c.do("get abs/peek\r\n", "VALUE abs/peek 0 1\r\nx\r\nEND\r\n")
		sleep(41)
		c.do("get abs/peek\r\n", "END\r\n")
		if got := s.store.Stats().Items; got != 0 {
			t.Errorf("got %d messages, want none", got)
		}
	})
}

func TestField_SEM10_HeldLimit(t *testing.T) {
	bubble(t, func(_ *memcache.Server, o *storage.Options) { o.MaxHeld = 10 }, func(t *testing.T, s *server) {
		p := s.dial()
		p.do(repeat("set q 0 0 1\r\nx\r\n", 100), repeat("STORED\r\n", 100))
		for i := range 6 {
			c := s.dial()
			c.send("get q/batch=50\r\n")
			c.want(repeat("VALUE q/batch=50 0 1\r\nx\r\n", 10) + "END\r\n")
			c.do("get q/t=60000\r\nget q\r\n", "END\r\nEND\r\n")
			if i%2 == 0 {
				c.do(repeat("delete q\r\n", 10), repeat("DELETED\r\n", 10))
				c.do("get q\r\n", "VALUE q 0 1\r\nx\r\nEND\r\n")
			}
			c.close()
		}
		q := s.queue("q")
		if q.Reserved != 0 || q.Ready != 70 {
			t.Errorf("got %d reserved, %d ready; want 0, 70", q.Reserved, q.Ready)
		}
		if s.store.Stats().HeldLimit == 0 {
			t.Error("the limit was not counted")
		}
	})
}

// reset ends the connection with a reset.
func (c *client) reset() {
	if tcp, ok := c.nc.(interface{ SetLinger(int) error }); ok {
		tcp.SetLinger(0)
	}
	c.nc.Close()
}
