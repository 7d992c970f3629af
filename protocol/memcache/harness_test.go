package memcache_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"qserver/internal/faultfs"
	"qserver/protocol/memcache"
	"qserver/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// transport is how a test's clients reach the server: net.Pipe inside a synctest bubble, or TCP outside.
type transport int

const (
	pipes transport = iota
	tcp
)

// server is a running Server with a store of its own.
type server struct {
	*memcache.Server
	t     *testing.T
	store *storage.Store
	kind  transport
	ln    net.Listener
	pipes *pipeListener

	broken bool // the store has failed: closing it may fail
}

// start runs a server; configure may change its options and the store's before that.
func start(t *testing.T, kind transport, configure func(*memcache.Server, *storage.Options)) *server {
	t.Helper()
	srv := &memcache.Server{Version: "1.2.3"}
	var o storage.Options
	if configure != nil {
		configure(srv, &o)
	}
	if o.FS == nil && kind == pipes {
		o.FS, o.SegmentBytes = faultfs.New(), 1<<20 // the log in memory, small: tests open hundreds of them
	}
	store, err := storage.Open(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	srv.Store = store
	s := &server{Server: srv, t: t, store: store, kind: kind}
	if kind == pipes {
		s.pipes = newPipeListener()
		s.ln = s.pipes
	} else if s.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(s.ln) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-served; !errors.Is(err, memcache.ErrServerClosed) {
			t.Errorf("Serve: got %v, want ErrServerClosed", err)
		}
		if err := store.Close(); err != nil && !s.broken {
			t.Errorf("close store: %v", err)
		}
	})
	return s
}

// bubble runs f in a synctest bubble with a server on pipes; it is gone before the bubble ends.
func bubble(t *testing.T, configure func(*memcache.Server, *storage.Options), f func(t *testing.T, s *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, pipes, configure)
		f(t, s)
	})
}

// with is the same server for a subtest.
func (s *server) with(t *testing.T) *server {
	sub := *s
	sub.t = t
	return &sub
}

// queue is the named queue's numbers.
func (s *server) queue(name string) storage.QueueStats {
	q, _ := s.store.Queue([]byte(name))
	return q
}

// client is one connection; a goroutine keeps what it receives.
type client struct {
	t    *testing.T
	nc   net.Conn
	kind transport

	mu    sync.Mutex // guards got, err and moved
	got   []byte
	err   error
	moved *sync.Cond
	done  chan struct{}
}

func (s *server) dial() *client {
	s.t.Helper()
	var nc net.Conn
	var err error
	if s.kind == pipes {
		nc, err = s.pipes.Dial()
	} else {
		nc, err = net.Dial("tcp", s.ln.Addr().String())
	}
	if err != nil {
		s.t.Fatal(err)
	}
	c := &client{t: s.t, nc: nc, kind: s.kind, done: make(chan struct{})}
	c.moved = sync.NewCond(&c.mu)
	go c.receive()
	s.t.Cleanup(func() {
		nc.Close()
		<-c.done
	})
	return c
}

func (c *client) receive() {
	defer close(c.done)
	buf := make([]byte, 32<<10)
	for {
		n, err := c.nc.Read(buf)
		c.mu.Lock()
		c.got = append(c.got, buf[:n]...)
		c.err = err
		c.moved.Broadcast()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// send writes s; a server that closes meanwhile is no failure.
func (c *client) send(s string) { io.WriteString(c.nc, s) }

// sendSplit sends s in pieces whose sizes size gives.
func (c *client) sendSplit(s string, size func() int) {
	for len(s) > 0 {
		n := min(len(s), size())
		if _, err := io.WriteString(c.nc, s[:n]); err != nil {
			return
		}
		s = s[n:]
	}
}

// patience is how long a test over TCP waits for an answer that must come.
const patience = 10 * time.Second

// settle waits until the server has nothing more to say (pipes), or until n bytes or the end have come (TCP).
func (c *client) settle(n int) {
	if c.kind == pipes {
		synctest.Wait()
		return
	}
	timer := time.AfterFunc(patience, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err == nil {
			c.err = errors.New("no answer")
		}
		c.moved.Broadcast()
	})
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.got) < n && c.err == nil {
		c.moved.Wait()
	}
}

// take returns the next n bytes received, or as many as there are.
func (c *client) take(n int) string {
	c.settle(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, len(c.got))
	s := string(c.got[:n])
	c.got = c.got[n:]
	return s
}

// line returns the next line received, without its CRLF.
func (c *client) line() string {
	c.t.Helper()
	for n := 1; ; n++ {
		c.settle(n)
		c.mu.Lock()
		i := bytes.Index(c.got, []byte("\r\n"))
		if i >= 0 {
			s := string(c.got[:i])
			c.got = c.got[i+2:]
			c.mu.Unlock()
			return s
		}
		n = len(c.got)
		err := c.err
		c.mu.Unlock()
		if err != nil || c.kind == pipes {
			return ""
		}
	}
}

// want checks that the next bytes received are exactly s.
func (c *client) want(s string) {
	c.t.Helper()
	if got := c.take(len(s)); got != s {
		rest := c.take(200)
		c.t.Fatalf("got  %q (then %q)\nwant %q", got, rest, s)
	}
}

// wantNothing checks that nothing has come (pipes only).
func (c *client) wantNothing() {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.got) > 0 {
		c.t.Fatalf("got %q, want nothing", c.got)
	}
}

// do sends s and checks the answer.
func (c *client) do(s, answer string) {
	c.t.Helper()
	c.send(s)
	c.want(answer)
}

// wantEnd checks that the server has closed the connection and sent nothing more.
func (c *client) wantEnd() {
	c.t.Helper()
	if c.kind == pipes {
		synctest.Wait()
		select {
		case <-c.done:
		default:
			c.t.Fatal("connection still open, want it closed")
		}
	} else {
		select {
		case <-c.done:
		case <-time.After(patience):
			c.t.Fatal("connection still open, want it closed")
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.got) > 0 {
		c.t.Fatalf("got %q before the end, want nothing", c.got)
	}
}

// wantOpen checks that the connection still answers, and only this.
func (c *client) wantOpen() {
	c.t.Helper()
	c.do("version\r\n", "VERSION 1.2.3\r\n")
}

// close closes the client's side and returns when the server has noticed.
func (c *client) close() {
	if half, ok := c.nc.(*net.TCPConn); ok {
		half.CloseWrite()
		c.wantEnd()
		return
	}
	c.nc.Close()
	synctest.Wait()
}

// pipeListener is a net.Listener whose connections are net.Pipes.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// splits are the ways in which a stream reaches the server.
func splits(seed uint64) map[string]func() int {
	rng := rand.New(rand.NewPCG(seed, 1))
	return map[string]func() int{
		"whole":  func() int { return 1 << 30 },
		"bytes":  func() int { return 1 },
		"random": func() int { return 1 + rng.IntN(40) },
	}
}

// newSeed is a random seed, printed so that a failure can be repeated.
func newSeed(t testing.TB) uint64 {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return seed
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }

// sleep lets so many seconds of a bubble's time pass.
func sleep(seconds float64) { time.Sleep(time.Duration(seconds * float64(time.Second))) }
