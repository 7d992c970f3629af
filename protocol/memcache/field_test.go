package memcache_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"qserver/protocol/memcache"
	"qserver/storage"
)

// Cases from public bug reports of such servers and their clients; a test's name has the case's id.

func TestField_PROTO01_BadCommandsKeepTheConnection(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		c := s.dial()
		c.do("bogus x y\r\n", "ERROR\r\n")
		c.wantOpen()
		c.do(repeat("bogus x y\r\n", 100), repeat("ERROR\r\n", 100))
		c.wantOpen()
	})
}

func TestField_PROTO02_HTTPIsClosedAndLogged(t *testing.T) {
	log := &logged{}
	bubble(t, func(s *memcache.Server, _ *storage.Options) { s.Log = slog.New(log) }, func(t *testing.T, s *server) {
		for _, request := range []string{"POST / HTTP/1.1\r\nHost: a\r\n\r\nset q 0 0 1\r\nx\r\n", "GET / HTTP/1.0\r\nHost: a\r\n\r\nset q 0 0 1\r\nx\r\n"} {
			c := s.dial()
			c.send(request)
			c.wantEnd()
		}
		if got := s.queue("q").TotalItems; got != 0 {
			t.Errorf("got %d messages, want none", got)
		}
		if got := log.count("an HTTP client was disconnected"); got != 1 {
			t.Errorf("got %d log lines, want 1", got)
		}
		s.dial().do("get q\r\n", "END\r\n")
	})
}

func TestField_PROTO04_KeyOneByteTooLong(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		c := s.dial()
		long, longer := repeat("a", 250), repeat("a", 251)
		c.do("set "+long+" 0 0 2\r\nhi\r\n", "STORED\r\n")
		c.do("set "+longer+" 0 0 2\r\nhi\r\nversion\r\n", format+version)
		c.do("get "+longer+"\r\nversion\r\n", format+version)
		c.do("delete "+longer+"\r\nversion\r\n", format+version)
		c.do("get "+long+"\r\n", "VALUE "+long+" 0 2\r\nhi\r\nEND\r\n")
		c.do("delete "+long+"\r\n", "DELETED\r\n")
	})
}

func TestField_PROTO06_MissizedSets(t *testing.T) {
	for _, in := range []string{"set q 0 0 3\r\nabcdef\r\nversion\r\n", "set q 0 0 x\r\nflush_all\r\nversion\r\n", "set q 0 0 -1\r\nflush_all\r\nversion\r\n"} {
		bubble(t, func(s *memcache.Server, _ *storage.Options) { s.AllowFlushAll = true }, func(t *testing.T, s *server) {
			s.dial().do(repeat("set q2 0 0 1\r\nx\r\n", 5), repeat("STORED\r\n", 5))
			c := s.dial()
			c.send(in)
			if got := c.line(); !strings.HasPrefix(got, "CLIENT_ERROR ") {
				t.Errorf("%q: got %q, want one CLIENT_ERROR", in, got)
			}
			c.wantEnd()
			if got := s.queue("q2").Items; got != 5 {
				t.Errorf("%q: q2 has %d messages, want 5", in, got)
			}
		})
	}
}

func TestField_PROTO07_NoreplyBinds(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		s.dial().do("set q 0 1.5 3 noreply\r\nbar\r\nget q\r\n", "END\r\n")
	})
}

func TestField_PROTO09_ExtraBlanks(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		c := s.dial()
		c.do("get q \r\nget  q\r\nversion \r\n", "END\r\nEND\r\n"+version)
		c.send("stats \r\n")
		if got := c.line(); !strings.HasPrefix(got, "STAT pid ") {
			t.Errorf("stats and a blank: got %q", got)
		}
	})
}

func TestField_PROTO11_Slices(t *testing.T) {
	const in, want = "set q 5 0 4\r\nA\r\nB\r\nget q\r\ndelete q\r\n", "STORED\r\nVALUE q 5 4\r\nA\r\nB\r\nEND\r\nDELETED\r\n"
	bubble(t, nil, func(t *testing.T, s *server) {
		for cut := range len(in) {
			c := s.dial()
			c.send(in[:cut])
			synctest.Wait()
			c.send(in[cut:])
			c.want(want)
		}
	})
}

func TestField_PROTO12_ManyKeys(t *testing.T) {
	s := start(t, tcp, nil)
	c := s.dial()
	var line strings.Builder
	line.WriteString("get")
	for i := range 10_000 {
		fmt.Fprintf(&line, " k%d", i)
	}
	line.WriteString("\r\n")
	begin := time.Now()
	c.do(strings.Repeat(line.String(), 50), repeat("END\r\n", 50))
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("50 lines of 10,000 keys took %v", took)
	}
	c.send("get " + repeat("pwned ", 1<<19) + "\r\n")
	c.want("CLIENT_ERROR line too long\r\n")
	c.wantEnd()
}

func TestField_PROTO12_OneWaitForAllKeys(t *testing.T) {
	bubble(t, func(s *memcache.Server, _ *storage.Options) { s.Wait = 2 * time.Second }, func(t *testing.T, s *server) {
		c := s.dial()
		begin := time.Now()
		c.send("get" + repeat(" a b", 5000) + "\r\n")
		sleep(1.9)
		c.wantNothing()
		sleep(0.2)
		c.want("END\r\n")
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("took %v, want one wait", took)
		}
	})
}

func TestField_PROTO14_BinaryClientIsServed(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		c := s.dial()
		c.do("\x80\x0b"+repeat("\x00", 10)+"\x01\x02\x03\x04"+repeat("\x00", 8),
			"\x81\x0b\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x01\x02\x03\x04"+repeat("\x00", 8)+"1.2.3")
		half := s.dial()
		half.send("\x80\x07")
		sleep(11)
		half.wantEnd()
		c.do("\x80\x20"+repeat("\x00", 22), "\x81\x20"+repeat("\x00", 5)+"\x81\x00\x00\x00\x0f"+repeat("\x00", 12)+"Unknown command")
	})
}

func TestField_PROTO16_QuitReturnsWhatIsHeld(t *testing.T) {
	s := start(t, tcp, nil)
	a, b := s.dial(), s.dial()
	a.do("set q 0 0 1\r\nx\r\nget q\r\n", "STORED\r\nVALUE q 0 1\r\nx\r\nEND\r\n")
	a.send("quit\r\n")
	a.wantEnd()
	b.do("get q\r\n", "VALUE q 0 1\r\nx\r\nEND\r\n")
}

// logged is a slog.Handler that counts messages.
type logged struct {
	mu       sync.Mutex // guards messages
	messages []string
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logged) WithGroup(string) slog.Handler            { return l }
func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages = append(l.messages, r.Message)
	return nil
}

func (l *logged) count(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, m := range l.messages {
		if m == message {
			n++
		}
	}
	return n
}
