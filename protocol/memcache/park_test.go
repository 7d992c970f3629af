package memcache_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"qserver/protocol/memcache"
	"qserver/storage"
)

// A parked connection has no goroutine, and is served all the same: commands that are there whole, that come in pieces, that wait,
// and a long stream.
func TestParkedConnections(t *testing.T) {
	s := start(t, tcp, func(_ *memcache.Server, o *storage.Options) { o.Sync = storage.SyncNever })
	before := runtime.NumGoroutine()
	var cs []*client
	for range 100 {
		c := s.dial()
		c.wantOpen()
		cs = append(cs, c)
	}
	if runtime.GOOS == "linux" {
		eventually(t, "the connections have goroutines", func() bool {
			return runtime.NumGoroutine() < before+len(cs)+len(cs)/2 // the clients' own, the loops and the store's
		})
	}
	for i, c := range cs {
		q := fmt.Sprintf("q%d", i)
		c.do("set "+q+" 0 0 3\r\nabc\r\nget "+q+"\r\ndelete "+q+"\r\n", "STORED\r\nVALUE "+q+" 0 3\r\nabc\r\nEND\r\nDELETED\r\n")
		c.send("get " + q + "/t=60000\r\nversion\r\n")
	}
	for i, c := range cs {
		q := fmt.Sprintf("q%d", i)
		s.dial().do("set "+q+" 5 0 2\r\nxy\r\n", "STORED\r\n")
		c.want("VALUE " + q + "/t=60000 5 2\r\nxy\r\nEND\r\nVERSION 1.2.3\r\n")
		c.do("delete "+q+"\r\n", "DELETED\r\n")
	}
	const n = 2000
	stream := strings.Repeat("set s 0 0 100 noreply\r\n"+repeat("x", 100)+"\r\n", n)
	for _, c := range cs[:4] {
		c.send(stream)
		c.wantOpen()
	}
	if got := s.queue("s").Ready; got != 4*n {
		t.Errorf("got %d messages of the streams, want %d", got, 4*n)
	}
}

// What a parked connection holds goes back when its peer goes.
func TestHangUpOfParkedConnection(t *testing.T) {
	s := start(t, tcp, nil)
	a, b := s.dial(), s.dial()
	a.do("set q 0 0 1\r\nx\r\nget q\r\n", "STORED\r\nVALUE q 0 1\r\nx\r\nEND\r\n")
	b.do("get q\r\n", "END\r\n")
	a.close()
	b.do("get q\r\n", "VALUE q 0 1\r\nx\r\nEND\r\n")
}

// A peer that does not read its large message keeps nobody else waiting, be it asked for or waited for.
func TestUnreadMessageHoldsUpNobody(t *testing.T) {
	s := start(t, tcp, nil)
	const size = 20 << 20
	body := repeat("x", size)
	for _, ask := range []string{"get q\r\n", "get q/t=60000\r\n"} {
		slow, err := net.Dial("tcp", s.ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Close()
		slow.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(slow, "version\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(slow, make([]byte, len("VERSION 1.2.3\r\n"))); err != nil {
			t.Fatal(err)
		}
		set := func() { s.dial().do(fmt.Sprintf("set q 0 0 %d\r\n%s\r\n", size, body), "STORED\r\n") }
		if strings.Contains(ask, "/t=") {
			io.WriteString(slow, ask)
			eventually(t, "nobody waits", func() bool { return s.queue("q").Waiters == 1 })
			set()
		} else {
			set()
			io.WriteString(slow, ask)
		}
		eventually(t, "the message is not taken", func() bool { return s.queue("q").Reserved == 1 })
		for range 8 { // on every loop
			c := s.dial()
			for range 3 {
				c.wantOpen()
			}
		}
		head := "VALUE " + strings.Fields(ask)[1] + fmt.Sprintf(" 0 %d\r\n", size)
		want := head + body + "\r\nEND\r\n"
		got := make([]byte, len(want))
		if _, err := io.ReadFull(slow, got); err != nil || string(got) != want {
			t.Fatalf("%q: got something else, or %v", ask, err)
		}
		io.WriteString(slow, "delete q\r\n")
		io.ReadFull(slow, make([]byte, len("DELETED\r\n")))
	}
}

// A message that comes to a waiting get, and whose body is on the disk only.
func TestWaitForMessageOnDisk(t *testing.T) {
	s := start(t, tcp, nil)
	a, b := s.dial(), s.dial()
	a.wantOpen()
	b.do("set q 7 0 3\r\nabc\r\nget q\r\n", "STORED\r\nVALUE q 7 3\r\nabc\r\nEND\r\n")
	if err := s.store.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.send("get q/t=60000\r\n")
	eventually(t, "nobody waits", func() bool { return s.queue("q").Waiters == 1 })
	b.close()
	a.want("VALUE q/t=60000 7 3\r\nabc\r\nEND\r\n")
	a.do("delete q\r\n", "DELETED\r\n")
}

func TestParkedIdleTimeout(t *testing.T) {
	const idle = 300 * time.Millisecond
	s := start(t, tcp, func(s *memcache.Server, _ *storage.Options) { s.IdleTimeout = idle })
	a, b := s.dial(), s.dial()
	began := time.Now()
	a.wantOpen()
	for time.Since(began) < 2*idle {
		b.wantOpen()
		time.Sleep(idle / 20)
	}
	a.wantEnd()
	b.wantOpen()
	b.wantEnd()
}

// Close and Shutdown end parked connections.
func TestEndOfParkedConnections(t *testing.T) {
	for _, gently := range []bool{true, false} {
		s := start(t, tcp, nil)
		a, b := s.dial(), s.dial()
		a.do("set q 0 0 1\r\nx\r\nget q\r\n", "STORED\r\nVALUE q 0 1\r\nx\r\nEND\r\n")
		b.wantOpen()
		if gently {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			s.Shutdown(ctx)
			cancel()
		} else {
			s.Close()
		}
		a.wantEnd()
		b.wantEnd()
		if got := s.queue("q"); got.Ready != 1 || got.Reserved != 0 {
			t.Errorf("gently %t: got %+v, want it ready", gently, got)
		}
	}
}

// A panic on an event loop closes its connection, gives back what that held, and harms no other.
func TestPanicOnALoop(t *testing.T) {
	log := &panicking{}
	s := start(t, tcp, func(s *memcache.Server, _ *storage.Options) { s.Log = slog.New(log) })
	a, b := s.dial(), s.dial()
	a.do("set q 0 0 1\r\nx\r\n", "STORED\r\n")
	a.do("get q\r\n", "VALUE q 0 1\r\nx\r\nEND\r\n")
	b.wantOpen()
	log.at.Store("unknown queue option")
	a.send("get q/nosuch=1\r\n")
	a.wantEnd()
	log.at.Store("")
	b.do("get q\r\n", "VALUE q 0 1\r\nx\r\nEND\r\n")
	if got := s.Stats().Panics; got != 1 {
		t.Errorf("got %d panics, want 1", got)
	}
}

// panicking is a log that panics at one message.
type panicking struct{ at atomic.Value }

func (p *panicking) Enabled(context.Context, slog.Level) bool { return true }
func (p *panicking) WithAttrs([]slog.Attr) slog.Handler       { return p }
func (p *panicking) WithGroup(string) slog.Handler            { return p }
func (p *panicking) Handle(_ context.Context, r slog.Record) error {
	if at, _ := p.at.Load().(string); at == r.Message {
		panic("angry")
	}
	return nil
}

// eventually waits until ok holds.
func eventually(t *testing.T, otherwise string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}

// What lies on the disk only is read by a goroutine: each message comes once and in order, whatever else its get does.
func TestBacklogOfParkedConnections(t *testing.T) {
	for _, take := range []struct{ get, del string }{
		{"get q\r\n", "delete q\r\n"},
		{"get q/close/open\r\n", ""},
		{"get q/open\r\n", "get q/close\r\n"},
		{"mg q v s\r\n", "md q\r\n"},
	} {
		t.Run(strings.Trim(strings.ReplaceAll(take.get, "/", "-"), "\r\n"), func(t *testing.T) {
			s := start(t, tcp, func(_ *memcache.Server, o *storage.Options) { o.Sync, o.Memory = storage.SyncNever, 1<<20 })
			c := s.dial()
			const n, size = 2000, 1000
			body := func(i int) string { return fmt.Sprintf("%0*d", size, i) }
			for i := range n {
				c.send("set q 0 0 " + fmt.Sprint(size) + " noreply\r\n" + body(i) + "\r\n")
			}
			c.wantOpen()
			eventually(t, "nothing has left memory", func() bool { return s.store.Stats().MemoryBytes < n*size/2 })
			head := strings.TrimSpace(strings.TrimPrefix(take.get, "get "))
			for i := range n {
				if strings.HasPrefix(take.get, "mg") {
					c.do(take.get, fmt.Sprintf("VA %d s%d\r\n%s\r\n", size, size, body(i)))
				} else {
					c.do(take.get, fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\nEND\r\n", head, size, body(i)))
				}
				switch take.del {
				case "":
				case "md q\r\n":
					c.do(take.del, "HD\r\n")
				case "delete q\r\n":
					c.do(take.del, "DELETED\r\n")
				default:
					c.do(take.del, "END\r\n")
				}
			}
			c.send("get q/close\r\n") // the last one
			c.want("END\r\n")
			if got := s.queue("q"); got.TotalAcked != n || got.Ready+got.Reserved != 0 {
				t.Errorf("got %+v, want %d acked", got, n)
			}
			st := s.Stats()
			if st.GetHits != n || st.Gets < n || st.Gets > 2*n+1 {
				t.Errorf("got %d gets, %d hits, want %d hits", st.Gets, st.GetHits, n)
			}
		})
	}
}

// Waiting gets have no goroutine either. Each message wakes one of them, in the order in which they came; a wait ends in time; what
// is sent behind a wait comes after it; a peer that hangs up gets no message; Close and the end of waits find them.
func TestParkedWaits(t *testing.T) {
	s := start(t, tcp, func(_ *memcache.Server, o *storage.Options) { o.Sync = storage.SyncNever })
	producer := s.dial()
	producer.do("set q 0 0 1\r\nx\r\nget q\r\ndelete q\r\n", "STORED\r\nVALUE q 0 1\r\nx\r\nEND\r\nDELETED\r\n")
	before := runtime.NumGoroutine()
	const n = 200
	var cs []*client
	for i := range n {
		c := s.dial()
		switch i % 3 { // a wait is a loop's, the first command, or behind another in the first packet
		case 0:
			c.wantOpen()
			c.send("get q/t=60000\r\n")
		case 1:
			c.send("get q/t=60000\r\n")
		case 2:
			c.send("version\r\nget q/t=60000\r\n")
			c.want("VERSION 1.2.3\r\n")
		}
		cs = append(cs, c)
		eventually(t, "it never waited", func() bool { return s.queue("q").Waiters == int64(i+1) })
	}
	if runtime.GOOS == "linux" {
		eventually(t, "waiting connections have goroutines", func() bool {
			return runtime.NumGoroutine() < before+n+n/2 // the clients' own, and some
		})
	}
	cs[3].send("version\r\n")
	cs[5].nc.Close()
	eventually(t, "the one that hung up still waits", func() bool { return s.queue("q").Waiters == n-1 })
	for i, c := range cs {
		if i == 5 {
			continue
		}
		producer.do(fmt.Sprintf("set q 0 0 3\r\n%03d\r\n", i), "STORED\r\n")
		c.want(fmt.Sprintf("VALUE q/t=60000 0 3\r\n%03d\r\nEND\r\n", i))
		if i == 3 {
			c.want("VERSION 1.2.3\r\n")
		}
		c.do("delete q\r\n", "DELETED\r\n")
	}
	began := time.Now()
	cs[0].do("get q/t=50\r\n", "END\r\n")
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("a wait of 50 ms took %v", took)
	}
	for range 200 { // the time is over while the message comes
		cs[1].send("get q/t=1\r\n")
		time.Sleep(time.Millisecond)
		producer.do("set q 0 0 1\r\nx\r\n", "STORED\r\n")
		if line := cs[1].line(); line == "END" {
			cs[1].do("get q\r\n", "VALUE q 0 1\r\nx\r\nEND\r\n")
		} else {
			cs[1].want("x\r\nEND\r\n")
		}
		cs[1].do("delete q\r\n", "DELETED\r\n")
	}
	if got := s.queue("q"); got.Ready+got.Reserved != 0 || got.TotalAcked != n+200 {
		t.Errorf("got %+v, want all acked", got)
	}
	cs[2].send("get q/t=60000\r\n")
	eventually(t, "it never waited", func() bool { return s.queue("q").Waiters == 1 })
	s.store.EndWaits()
	cs[2].want("END\r\n")
	cs[2].wantOpen()
}

// A waiting get that acks first does that once.
func TestParkedWaitAfterClose(t *testing.T) {
	s := start(t, tcp, func(_ *memcache.Server, o *storage.Options) { o.Sync = storage.SyncNever })
	c, p := s.dial(), s.dial()
	for i := range 100 {
		p.do(fmt.Sprintf("set q 0 0 3\r\n%03d\r\n", i), "STORED\r\n")
	}
	c.do("get q/open\r\n", "VALUE q/open 0 3\r\n000\r\nEND\r\n")
	for i := 1; i < 200; i++ {
		c.send("get q/close/open/t=60000\r\n")
		if i >= 100 {
			eventually(t, "it never waited", func() bool { return s.queue("q").Waiters == 1 })
			if got := s.queue("q"); got.TotalAcked != int64(i) {
				t.Fatalf("message %d: got %d acked, want %d", i, got.TotalAcked, i)
			}
			p.do(fmt.Sprintf("set q 0 0 3\r\n%03d\r\n", i), "STORED\r\n")
		}
		c.want(fmt.Sprintf("VALUE q/close/open/t=60000 0 3\r\n%03d\r\nEND\r\n", i))
	}
}

// A command that arrives while a large reply is on its way is run as soon as that is sent. libmemcached asks like that in binary: a
// get, and apart from it the noop that ends it.
func TestCommandDuringReply(t *testing.T) {
	const size = 8 << 20 // more than the sockets take
	s := start(t, tcp, func(_ *memcache.Server, o *storage.Options) { o.Sync = storage.SyncNever })
	s.dial().do(fmt.Sprintf("set q 0 0 %d\r\n%s\r\n", size, repeat("x", size)), "STORED\r\n")
	want := fmt.Sprintf("VALUE q/peek 0 %d\r\n%s\r\nEND\r\n", size, repeat("x", size))
	for round := range 20 {
		nc, err := net.Dial("tcp", s.ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(20 * time.Second))
		got := make([]byte, len(want))
		for _, step := range []struct {
			say  string
			want string
		}{
			{"version\r\n", "VERSION 1.2.3\r\n"}, {"get q/peek\r\n", want[:1]}, {"version\r\n", want[1:]}, {"", "VERSION 1.2.3\r\n"},
		} {
			if _, err := io.WriteString(nc, step.say); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(nc, got[:len(step.want)]); err != nil {
				t.Fatalf("round %d, after %q: %v", round, step.say, err)
			}
			if string(got[:len(step.want)]) != step.want {
				t.Fatalf("round %d, after %q: got %.40q, want %.40q", round, step.say, got, step.want)
			}
		}
	}
}
