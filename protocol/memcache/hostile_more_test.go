package memcache_test

import (
	"fmt"
	"net"
	"runtime/metrics"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"qserver/protocol/memcache"
	"qserver/storage"
)

// The rows of the table of odd inputs that are about a server's options, and about how much of it a client can take.

func TestHostile54FirstByteIsBinary(t *testing.T) {
	const quiet = "\x80\x0d\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00q" // GETKQ q: nothing
	const noop = "\x80\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x00"
	const done = "\x81\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x00"
	for way, size := range splits(1) {
		bubble(t, nil, func(t *testing.T, s *server) {
			c := s.dial()
			c.sendSplit(quiet+noop, size)
			c.want(done)
			// Text is no longer understood: the frame that it pretends to be is out of step, and the connection closes.
			c.send("version\r\n" + repeat("x", 24))
			synctest.Wait()
			if got := c.take(100); strings.HasPrefix(got, "VERSION") {
				t.Errorf("%s: a binary connection took text: %q", way, got)
			}
			c.wantEnd()
		})
	}
}

func TestHostile59Slices(t *testing.T) {
	const in = "set q 5 0 4\r\nA\r\nB\r\nget q\r\ndelete q\r\nfoo\r\nversion\r\n"
	const want = "STORED\r\nVALUE q 5 4\r\nA\r\nB\r\nEND\r\nDELETED\r\nERROR\r\n" + version
	s := start(t, tcp, nil)
	for _, pieces := range [][]string{strings.Split(in, ""), strings.SplitAfter(in, "\r"), strings.SplitAfter(in, "\n"), {in}} {
		c := s.dial()
		for _, piece := range pieces {
			c.send(piece)
		}
		c.want(want)
	}
}

func TestHostile65FlushAllAllowed(t *testing.T) {
	bubble(t, func(s *memcache.Server, _ *storage.Options) { s.AllowFlushAll = true }, func(t *testing.T, s *server) {
		const invalid = "CLIENT_ERROR invalid exptime argument\r\n"
		c := s.dial()
		c.do("set q 0 0 1\r\nx\r\n", "STORED\r\n")
		c.do("flush_all -1\r\nflush_all abc\r\nflush_all 60\r\n", repeat(invalid, 3))
		if got := s.queue("q").Items; got != 1 {
			t.Errorf("refused, and %d messages left, want 1", got)
		}
		c.do("flush_all\r\nget q\r\n", "OK\r\nEND\r\n")
	})
}

// heapBytes is what the process has allocated, dead or alive.
func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// Row 73: gets of large bodies that nobody reads are not buffered, and others are served meanwhile. All comes once it is read.
func TestHostile73UnreadRepliesAreNotBuffered(t *testing.T) {
	const size, gets, bound = 500_000, 1000, 100 << 20
	s := start(t, tcp, nil)
	deaf, err := net.Dial("tcp", s.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	other := s.dial()
	other.do(fmt.Sprintf("set q 0 0 %d\r\n%s\r\n", size, repeat("x", size)), "STORED\r\n")
	before := heapBytes()
	if _, err := deaf.Write([]byte(repeat("get q/peek\r\n", gets))); err != nil {
		t.Fatal(err)
	}
	var worst uint64
	watch := func() {
		if now := heapBytes(); now > before {
			worst = max(worst, now-before)
		}
	}
	for begin := time.Now(); time.Since(begin) < 500*time.Millisecond; watch() {
		other.wantOpen()
	}
	deaf.SetReadDeadline(time.Now().Add(time.Minute))
	want := gets * (len(fmt.Sprintf("VALUE q/peek 0 %d\r\n\r\nEND\r\n", size)) + size)
	buf := make([]byte, 1<<20)
	for got := 0; got < want; watch() {
		n, err := deaf.Read(buf)
		if got += n; err != nil {
			t.Fatalf("after %d of %d bytes: %v", got, want, err)
		}
	}
	t.Logf("%d MB of replies, at most %d MB allocated", want>>20, worst>>20)
	if worst > bound {
		t.Errorf("%d MB were allocated for %d MB of unread replies, want less than %d MB", worst>>20, want>>20, bound>>20)
	}
}

// Rows 74 to 76: with authentication, on a new connection each.
func TestHostile74to76Login(t *testing.T) {
	const no, form = "CLIENT_ERROR unauthenticated\r\n", "CLIENT_ERROR bad authentication token format\r\n"
	for _, tt := range []struct {
		name, in, want string
		closed         bool
	}{
		{"74 version", "version\r\n", no, false},
		{"74 get", "get victim\r\n", no, false},
		{"74 delete and touch", "delete victim\r\ntouch victim 60\r\n", no + no, false},
		{"74 flush_all", "flush_all\r\n", no, false},
		{"74 quit", "quit\r\n", "", true},
		{"75 wrong password", "set x 0 0 9\r\nuser pasS\r\n", no, false},
		{"75 no space", "set x 0 0 8\r\nuserpass\r\n", form, false},
		{"75 right", "set x 0 0 9\r\nuser pass\r\nget victim/peek\r\n", "STORED\r\nVALUE victim/peek 0 1\r\nv\r\nEND\r\n", false},
		{"75 three wrong ones", repeat("set x 0 0 9\r\nuser pasS\r\n", 3), repeat(no, 3), true},
		{"76 over 1 KiB without a body", "set x 0 0 5000\r\n", no, true},
		{"76 over 1 KiB with noreply", "set x 0 0 5000 noreply\r\n", no, true},
		{"76 right with noreply", "set x 0 0 9 noreply\r\nuser pass\r\n", "STORED\r\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			known := newAccounts()
			bubble(t, func(s *memcache.Server, _ *storage.Options) { s.Accounts, s.AllowFlushAll = known, true }, func(t *testing.T, s *server) {
				s.dial().do(loginLine("user", "pass")+"set victim 0 0 1\r\nv\r\n", "STORED\r\nSTORED\r\n")
				c := s.dial()
				c.send(tt.in)
				sleep(4) // wrong passwords are answered slowly, and who has not logged in is out after five seconds
				c.want(tt.want)
				if tt.closed {
					c.wantEnd()
				} else {
					c.wantNothing()
				}
				if got := s.queue("victim"); got.Ready != 1 || got.TotalItems != 1 {
					t.Errorf("victim: got %+v, want its one message", got)
				}
			})
		})
	}
}
