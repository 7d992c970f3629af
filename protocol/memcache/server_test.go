package memcache_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"qserver/internal/faultfs"
	"qserver/protocol/memcache"
	"qserver/storage"
)

func TestHostile71TooManyConnections(t *testing.T) {
	s := start(t, tcp, func(s *memcache.Server, _ *storage.Options) { s.MaxConns = 2 })
	a, b := s.dial(), s.dial()
	a.wantOpen()
	b.wantOpen()
	c := s.dial()
	c.want("SERVER_ERROR too many open connections\r\n")
	c.nc.(*net.TCPConn).CloseWrite()
	c.wantEnd()
	a.close()
	s.dial().wantOpen()
	st := s.Stats()
	if st.RejectedConnections != 1 || st.TotalConnections != 4 {
		t.Errorf("got %+v, want 1 rejected of 4", st)
	}
}

// row 73, and a reply that makes no progress for 30 s: the connection closes, its message goes back, others are served.
func TestHostile73SlowReader(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		p := s.dial()
		for _, size := range []int{100, 1 << 20} {
			p.do(fmt.Sprintf("set q 0 0 %d\r\n%s\r\n", size, repeat("x", size)), "STORED\r\n")
			deaf, err := s.pipes.Dial()
			if err != nil {
				t.Fatal(err)
			}
			go deaf.Write([]byte("get q\r\n"))
			sleep(29)
			p.wantOpen()
			if got := s.queue("q"); got.Reserved != 1 {
				t.Errorf("%d bytes, after 29 s: got %+v, want it reserved", size, got)
			}
			sleep(3)
			if got := s.queue("q"); got.Reserved != 0 || got.Ready != 1 {
				t.Errorf("%d bytes, after 32 s: got %+v, want it ready again", size, got)
			}
			deaf.Close()
			p.do("get q\r\ndelete q\r\n", fmt.Sprintf("VALUE q 0 %d\r\n%s\r\nEND\r\nDELETED\r\n", size, repeat("x", size)))
		}
		p.wantOpen()
		if got := s.Stats().SlowClosed; got != 2 {
			t.Errorf("got %d slow clients, want 2", got)
		}
	})
}

// A reader that is slow but makes progress is served to the end.
func TestSlowReaderWithProgress(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		const size = 200_000
		s.dial().do(fmt.Sprintf("set q 0 0 %d\r\n%s\r\n", size, repeat("x", size)), "STORED\r\n")
		nc, err := s.pipes.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		go nc.Write([]byte("get q\r\n"))
		got, buf := 0, make([]byte, 10_000)
		for got < size {
			sleep(20)
			n, err := nc.Read(buf)
			if err != nil {
				t.Fatalf("after %d bytes: %v", got, err)
			}
			got += n
		}
	})
}

// Over half of the connections' limit, those that have stalled longest in mid-command close first; the idle ones stay.
func TestStalledConnectionsMakeRoom(t *testing.T) {
	bubble(t, func(s *memcache.Server, _ *storage.Options) { s.MaxConns = 8 }, func(t *testing.T, s *server) {
		idle := s.dial()
		idle.wantOpen()
		var stalled []*client
		for i := range 5 {
			c := s.dial()
			c.wantOpen()
			c.send([]string{"vers", "set q 0 0 10\r\nabc"}[i%2])
			stalled = append(stalled, c)
			sleep(1)
		}
		sleep(4)
		synctest.Wait()
		if got := s.Stats().StalledClosed; got != 0 {
			t.Fatalf("got %d closed before ten seconds, want none", got)
		}
		sleep(20)
		stalled[0].wantEnd()
		stalled[1].wantEnd()
		stalled[2].do("ion\r\n", version)
		stalled[3].do("defghij\r\n", "STORED\r\n")
		idle.wantOpen()
		if got := s.Stats().StalledClosed; got != 2 {
			t.Errorf("got %d closed, want 2", got)
		}
	})
}

func TestIdleTimeout(t *testing.T) {
	bubble(t, func(s *memcache.Server, _ *storage.Options) { s.IdleTimeout = 5 * time.Second }, func(t *testing.T, s *server) {
		a, b := s.dial(), s.dial()
		for range 5 {
			a.wantOpen()
			b.wantOpen()
			sleep(3)
		}
		b.do("get q/t=20000\r\n", "")
		sleep(19)
		a.wantEnd()
		b.wantNothing()
		sleep(2)
		b.want("END\r\n")
		b.send("set q 0 0 10\r\nabc")
		sleep(6)
		b.wantEnd()
	})
}

// A panic in one connection closes that one and returns what it held.
func TestPanicClosesOneConnection(t *testing.T) {
	var angry atomic.Bool
	log := &logged{}
	configure := func(s *memcache.Server, _ *storage.Options) {
		s.Log = slog.New(log)
		s.ExtraStats = func(func(name, value string)) {
			if angry.Load() {
				panic("angry")
			}
		}
	}
	bubble(t, configure, func(t *testing.T, s *server) {
		a, b := s.dial(), s.dial()
		a.do("set q 0 0 1\r\nx\r\nget q\r\n", "STORED\r\nVALUE q 0 1\r\nx\r\nEND\r\n")
		angry.Store(true)
		a.send("stats\r\n")
		a.wantEnd()
		angry.Store(false)
		b.do("get q\r\n", "VALUE q 0 1\r\nx\r\nEND\r\n")
		if st := s.Stats(); st.Panics != 1 || st.CurrConnections != 1 {
			t.Errorf("got %+v, want 1 panic, 1 connection", st)
		}
		if log.count("panic in a connection, which is closed") != 1 {
			t.Error("not logged")
		}
	})
}

// The log fails: nothing that rests on it is answered, but that its outcome is unknown.
func TestFailedCommit(t *testing.T) {
	fs := faultfs.New()
	bubble(t, func(_ *memcache.Server, o *storage.Options) { o.FS = fs }, func(t *testing.T, s *server) {
		a, b := s.dial(), s.dial()
		a.do("set q 0 0 1\r\nx\r\n", "STORED\r\n")
		b.wantOpen()
		fs.Inject(func(op faultfs.Op) error {
			if op.Kind == faultfs.Sync {
				return syscall.EIO
			}
			return nil
		})
		a.send("set q 0 0 1\r\ny\r\nset q 0 0 1\r\nz\r\n")
		if got := a.line(); len(got) < 28 || got[:28] != "SERVER_ERROR outcome unknown" {
			t.Errorf("got %q, want SERVER_ERROR outcome unknown", got)
		}
		a.wantEnd()
		b.send("set q 0 0 1\r\ny\r\n")
		if got := b.line(); !strings.HasPrefix(got, "SERVER_ERROR refused: the update log has failed") {
			t.Errorf("got %q, want it to be refused", got)
		}
		b.wantOpen()
		s.broken = true
	})
}

func TestFullDisk(t *testing.T) {
	fs := faultfs.New()
	bubble(t, func(_ *memcache.Server, o *storage.Options) { o.FS, o.SegmentBytes = fs, 4<<20 }, func(t *testing.T, s *server) {
		c := s.dial()
		c.do("set q 0 0 4\r\nkept\r\n", "STORED\r\n")
		fs.Inject(func(op faultfs.Op) error {
			if op.Kind == faultfs.Allocate || op.Kind == faultfs.Rename {
				return syscall.ENOSPC
			}
			return nil
		})
		got, stored := "STORED", 0
		for ; got == "STORED" && stored < 100; stored++ { // until the segment and its spare are used up
			c.send("set r 0 0 131072\r\n" + repeat("x", 131072) + "\r\n")
			got = c.line()
		}
		if want := "SERVER_ERROR out of memory storing object (disk full)"; got != want {
			t.Errorf("after %d sets: got %q, want %q", stored, got, want)
		}
		c.do("get q\r\ndelete q\r\n", "VALUE q 0 4\r\nkept\r\nEND\r\nDELETED\r\n")
		fs.Inject(nil)
		sleep(5)
		c.do("set q 0 0 1\r\nx\r\n", "STORED\r\n")
	})
}

// Shutdown serves acks and sets until nothing is held.
func TestShutdown(t *testing.T) {
	for _, patient := range []bool{true, false} {
		bubble(t, nil, func(t *testing.T, s *server) {
			a, idle, waiter := s.dial(), s.dial(), s.dial()
			idle.wantOpen()
			a.do("set q 0 0 1\r\nx\r\nget q\r\n", "STORED\r\nVALUE q 0 1\r\nx\r\nEND\r\n")
			waiter.do("get q/t=60000\r\n", "")
			s.store.EndWaits()
			waiter.want("END\r\n")
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- s.Shutdown(ctx) }()
			sleep(1)
			a.do("set q 0 0 1\r\ny\r\nget q\r\n", "STORED\r\nEND\r\n")
			idle.wantOpen()
			if _, err := s.pipes.Dial(); err == nil {
				t.Error("a new connection was accepted")
			}
			var want error
			if patient {
				a.do("delete q\r\n", "DELETED\r\n")
			} else {
				want = context.DeadlineExceeded
				sleep(5)
			}
			if err := <-ended; !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			a.wantEnd()
			idle.wantEnd()
			if got := s.queue("q").Reserved; got != 0 {
				t.Errorf("got %d reserved after the end, want none", got)
			}
			if err := s.Serve(newPipeListener()); !errors.Is(err, memcache.ErrServerClosed) {
				t.Errorf("Serve after Shutdown: got %v, want ErrServerClosed", err)
			}
		})
	}
}

func TestCloseCutsAndReturns(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		a, b, w := s.dial(), s.dial(), s.dial()
		a.do("set q 0 0 1\r\nx\r\nget q\r\n", "STORED\r\nVALUE q 0 1\r\nx\r\nEND\r\n")
		b.send("set q 0 0 100\r\nabc")
		w.send("get other/t=60000\r\n")
		synctest.Wait()
		s.Close()
		s.Close()
		a.wantEnd()
		b.wantEnd()
		w.wantEnd()
		if got := s.queue("q"); got.Ready != 1 || got.Reserved != 0 {
			t.Errorf("got %+v, want it ready", got)
		}
	})
}

// failingListener fails each accept with the same error.
type failingListener struct {
	pipeListener
	err   error
	calls atomic.Int64
}

func (l *failingListener) Accept() (net.Conn, error) {
	l.calls.Add(1)
	return nil, &net.OpError{Op: "accept", Err: l.err}
}

func TestAcceptBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, pipes, nil)
		full := &failingListener{pipeListener: *newPipeListener(), err: syscall.EMFILE}
		served := make(chan error, 1)
		go func() { served <- s.Serve(full) }()
		sleep(60)
		if got := full.calls.Load(); got < 50 || got > 80 {
			t.Errorf("got %d accepts in a minute, want about one a second", got)
		}
		s.dial().wantOpen()
		s.Close()
		if err := <-served; !errors.Is(err, memcache.ErrServerClosed) {
			t.Errorf("got %v, want ErrServerClosed", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := start(t, pipes, nil)
		broken := &failingListener{pipeListener: *newPipeListener(), err: syscall.EINVAL}
		if err := s.Serve(broken); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("got %v, want EINVAL", err)
		}
	})
}
