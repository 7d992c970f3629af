package memcache

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"qserver/protocol/memcache/eventloop"
	"qserver/storage"
)

// ErrServerClosed is returned by Serve after Shutdown or Close.
var ErrServerClosed = errors.New("memcache server closed")

// GetMode says what a get without open, close, abort and peek does.
type GetMode int

const (
	GetReserve GetMode = iota // reserves beside what the connection holds already
	GetOpen                   // gives back what the connection still holds of the queue without a lease, then reserves
	GetRemove                 // takes and acks in one step, as Kestrel's and Starling's did; not with a lease
)

// Defaults of Server's fields.
const (
	defaultMaxItemSize = 64 << 20
	defaultBodyMemory  = 128 << 20
	defaultMaxConns    = 20_000
	defaultVersion     = "1.0.0"
)

// Server serves the memcached protocol on listeners. Its fields are its options and must not change after the first Serve; only
// Store is needed.
type Server struct {
	Store *storage.Store
	Log   *slog.Logger // discards if nil

	MaxItemSize   int64         // bytes of a body; 64 MiB
	BodyMemory    int64         // bytes that all arriving bodies may take together; 128 MiB
	MaxConns      int           // connections at a time; 20,000
	Wait          time.Duration // how long a get without t= waits on an empty queue; 0: it answers at once
	IdleTimeout   time.Duration // connections that send nothing for so long are closed; 0: never
	GetMode       GetMode       // GetReserve
	NoKeyOptions  bool          // take keys as they are: /t=500 is part of a name
	AllowFlushAll bool          // let flush_all and flush purge
	Version       string        // X.Y.Z; anything behind the digits is cut off; 1.0.0
	Accounts      Accounts      // who may log in; nil: nobody needs to

	// ExtraStats adds lines to `stats`: names and values are single words. nil: none.
	ExtraStats func(emit func(name, value string))

	once      sync.Once
	started   time.Time
	version   string
	cores     int64
	bodies    budget
	stalls    stalls
	notes     notes
	attempts  attempts
	draining  atomic.Bool // no new connections
	stopping  atomic.Bool // connections end when they next wait for input
	closing   atomic.Bool // connections are cut
	done      chan struct{}
	open      atomic.Int64 // connections
	busy      atomic.Int64 // connections that are not parked
	seats     atomic.Int64 // taken; see seat.go
	rejecting atomic.Int64

	totals        counters64
	accepted      atomic.Int64
	rejected      atomic.Int64
	stalledClosed atomic.Int64
	panics        atomic.Int64

	loopsOnce sync.Once        // starts loops and syncer
	loopsEnd  sync.Once        // ends them
	loops     *eventloop.Group // nil: none on this system, or none needed yet
	syncer    syncer

	mu        sync.Mutex // guards the fields below
	conns     map[*conn]struct{}
	listeners map[net.Listener]struct{}
	wg        sync.WaitGroup // one for each connection and each Serve
}

func (s *Server) start() {
	s.once.Do(func() {
		s.started = time.Now()
		s.version = numericVersion(s.Version)
		s.cores = int64(runtime.GOMAXPROCS(0))
		s.conns = make(map[*conn]struct{})
		s.listeners = make(map[net.Listener]struct{})
		s.done = make(chan struct{})
		s.bodies.limit = max(s.bodyMemory()-s.maxItemSize(), s.bodyMemory()/2)
	})
}

func (s *Server) maxItemSize() int64 {
	if s.MaxItemSize > 0 {
		return min(s.MaxItemSize, maxLength)
	}
	return defaultMaxItemSize
}

func (s *Server) bodyMemory() int64 {
	if s.BodyMemory > 0 {
		return s.BodyMemory
	}
	return defaultBodyMemory
}

func (s *Server) maxConns() int {
	if s.MaxConns > 0 {
		return s.MaxConns
	}
	return defaultMaxConns
}

func (s *Server) log() *slog.Logger {
	if s.Log != nil {
		return s.Log
	}
	return slog.New(slog.DiscardHandler)
}

// Serve accepts connections on ln, which it closes, until Shutdown or Close; then it returns ErrServerClosed. Several Serves may
// run at a time.
func (s *Server) Serve(ln net.Listener) error {
	s.start()
	if !s.listen(ln) {
		ln.Close()
		return ErrServerClosed
	}
	defer s.wg.Done()
	defer s.unlisten(ln)
	backOff := time.Duration(0)
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			backOff = 0
			s.admit(nc)
		case s.draining.Load():
			return ErrServerClosed
		case !passing(err):
			return err
		default:
			backOff = min(max(2*backOff, 5*time.Millisecond), time.Second)
			s.note("", "accepting failed, trying again", "error", err)
			select {
			case <-s.done:
			case <-time.After(backOff):
			}
		}
	}
}

// passing says whether accept may succeed later: for want of descriptors or memory, or because the peer had gone.
func passing(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (s *Server) listen(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		return false
	}
	s.listeners[ln] = struct{}{}
	s.wg.Add(1)
	return true
}

func (s *Server) unlisten(ln net.Listener) {
	ln.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, ln)
}

// admit starts a connection, or refuses it when there are too many.
func (s *Server) admit(nc net.Conn) {
	tune(nc)
	s.mu.Lock()
	if s.draining.Load() {
		s.mu.Unlock()
		nc.Close()
		return
	}
	s.accepted.Add(1)
	if len(s.conns) >= s.maxConns() {
		s.mu.Unlock()
		s.rejected.Add(1)
		s.reject(nc)
		return
	}
	c := &conn{srv: s, nc: nc, peer: peerName(nc)}
	if s.parks(nc) {
		if sock, ok := s.loops.Take(nc, c); ok {
			c.nc, c.sock = sock, sock
		}
	}
	s.conns[c] = struct{}{}
	s.open.Add(1)
	s.busy.Add(1)
	s.wg.Add(1)
	s.mu.Unlock()
	c.session = s.Store.NewSession(c.peer)
	c.in.init(c.nc)
	c.in.parked = c.standby
	go c.serve()
}

// maxRejecting is how many refused connections may be told so at a time; those beyond are closed without a word.
const maxRejecting = 64

// reject says why and closes, beside the accept loop.
func (s *Server) reject(nc net.Conn) {
	s.note("", "too many open connections", "limit", s.maxConns())
	if s.rejecting.Add(1) > maxRejecting {
		s.rejecting.Add(-1)
		nc.Close()
		return
	}
	s.wg.Go(func() {
		defer s.rejecting.Add(-1)
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(time.Second))
		nc.Write([]byte(replyTooMany))
		if half, ok := nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			var waste [512]byte
			for {
				if _, err := nc.Read(waste[:]); err != nil {
					return
				}
			}
		}
	})
}

// forget takes a connection that has ended off the lists.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.stalls.remove(c)
	s.busy.Add(-1)
	s.open.Add(-1)
}

// Shutdown stops accepting and serves acks and sets until the sessions of the store hold nothing or ctx ends; then it closes
// every connection as soon as its commands are answered, and returns ctx's error if that came first. The caller has ended the
// store's waits, so that gets answer END.
func (s *Server) Shutdown(ctx context.Context) error {
	s.start()
	s.stopAccepting()
	const look = 10 * time.Millisecond
	for s.Store.Held() > 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(look):
		}
	}
	s.stopping.Store(true)
	err := ctx.Err()
	s.nudge()
	ended := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(ended)
	}()
	const grace = time.Second // for replies that are being sent
	select {
	case <-ended:
	case <-time.After(grace):
		s.Close()
	}
	<-ended
	s.stopLoops()
	return err
}

// nudge wakes the connections that wait for input; they see that the server is stopping.
func (s *Server) nudge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.sock != nil && c.sock.Claim() {
			go c.resume()
		} else {
			c.nc.SetReadDeadline(past)
		}
	}
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

func (s *Server) stopAccepting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining.Store(true)
	for ln := range s.listeners {
		ln.Close()
	}
}

// Close ends everything at once: what connections hold without a lease goes back. It returns when all have ended, and may be
// called again.
func (s *Server) Close() error {
	s.start()
	s.mu.Lock()
	first := !s.closing.Swap(true)
	s.draining.Store(true)
	s.stopping.Store(true)
	for ln := range s.listeners {
		ln.Close()
	}
	for c := range s.conns {
		c.abort()
	}
	s.mu.Unlock()
	if first {
		close(s.done)
		s.bodies.close()
	}
	s.wg.Wait()
	s.stopLoops()
	return nil
}

// numericVersion is the X.Y.Z that v begins with, X from 1 to 255 and the others up to 255: clients break on anything else.
func numericVersion(v string) string {
	i, parts := 0, 0
	for parts < 3 {
		n, digits := 0, 0
		for i < len(v) && v[i] >= '0' && v[i] <= '9' && digits < 4 {
			n = n*10 + int(v[i]-'0')
			i++
			digits++
		}
		if digits == 0 || n > 255 || parts == 0 && n == 0 {
			return defaultVersion
		}
		if parts++; parts == 3 {
			return v[:i]
		}
		if i == len(v) || v[i] != '.' {
			return defaultVersion
		}
		i++
	}
	return defaultVersion
}

// notes keeps log lines that peers can cause to one a minute and kind.
type notes struct {
	mu   sync.Mutex // guards last
	last map[string]time.Time
}

const (
	noteEvery = time.Minute
	maxNotes  = 256 // kinds that are remembered
)

// note logs a warning, unless it was logged within the last minute with the same subject.
func (s *Server) note(subject, msg string, args ...any) {
	if s.notes.due(msg + "\x00" + subject) {
		s.log().Warn(msg, args...)
	}
}

func (n *notes) due(key string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if last, ok := n.last[key]; ok && now.Sub(last) < noteEvery {
		return false
	}
	if n.last == nil || len(n.last) >= maxNotes {
		n.last = make(map[string]time.Time)
	}
	n.last[key] = now
	return true
}
