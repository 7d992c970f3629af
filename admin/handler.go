package admin

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"qserver/storage"
)

// Store is what the HTTP side asks of the storage. *storage.Store is one; its comments are the contract.
type Store interface {
	Stats() storage.Stats
	Queue(name []byte) (storage.QueueStats, bool)
	Queues(after string, limit int) []storage.QueueStats
	Writable() error
	PurgeAll() (int64, error)
	Sync() error
	Checkpoint(ctx context.Context) error
	CopyTo(ctx context.Context, path string) error
	LogFiles() []storage.LogFile
	RemoveLogs() (int, error)
}

// Traffic is what the memcached side has seen. Counters are since start; a count of misses is part of its total.
type Traffic struct {
	Connections      int64 // open now
	ConnectionsTotal int64
	Busy             int64 // commands being worked on now, waiting gets included
	Sets             int64 // set, add, replace, cas
	SetMisses        int64 // of these not stored
	Removes          int64
	RemoveMisses     int64
	Gets             int64
	GetMisses        int64
	Misc             int64 // all other commands
}

// Master is the server that this one follows.
type Master struct {
	Host     string
	Port     int
	Position time.Time     // when the last applied record was written there
	Interval time.Duration // pause between two asks
	Delay    time.Duration // how far behind this server is
}

// Limits that are not options: a client that needs more is not one of ours.
const (
	maxHeaderBytes = 16 << 10
	maxBodyBytes   = 1 << 20
	headerTimeout  = 10 * time.Second
	requestTimeout = 30 * time.Second
	answerTimeout  = 60 * time.Second
	idleTimeout    = 2 * time.Minute
)

// Server answers HTTP. Its fields are options, to be set before the first Serve or Handler and not changed afterwards; the
// zero value works. Its methods are safe for concurrent use.
type Server struct {
	Hosts          []string      // names or addresses besides loopback that a Host header may carry, without port; any case
	AllowFlushAll  bool          // /rpc/clear may purge all queues
	Pprof          bool          // serve Go's profiles below /debug/pprof/
	CmdDir         string        // folder of the programs that /rpc/synchronize may run; empty: none
	CopyDir        string        // where such a program finds its copy; folder "backup" within the store's if empty
	CommandTimeout time.Duration // longest copy and run of such a program, together; 10 minutes if 0
	MaxConns       int           // open connections; more are closed at once; 1,000 if 0
	IdleTimeout    time.Duration // after it a connection without a request ends; two minutes if 0
	Version        string        // digits, as in "1.2.3"
	StartedAt      time.Time     // of the process; that of the first Serve or Handler if zero
	Log            *slog.Logger  // discards if nil

	Traffic func() Traffic        // nil: all zero
	Master  func() (Master, bool) // false or nil: this server follows none
	// Handlers answer at further paths, which are looked up as they were sent; they check the method themselves.
	Handlers map[string]http.Handler

	Recovery func() string // how far recovery is, for /readyz: "recovery: 40 %"; nil: "recovery"

	store    atomic.Pointer[Store] // nil until Attach
	draining atomic.Bool
	conns    atomic.Int64

	setup   sync.Once
	handler http.Handler
	http    *http.Server
	hosts   map[string]bool
	started time.Time
	log     *slog.Logger

	done    chan struct{} // closed by Close: ends a running command
	closing sync.Once
	command chan struct{} // holds a token while /rpc/synchronize copies or runs a command
}

// Attach hands over the store once it has recovered: from here on requests that need one are answered.
func (s *Server) Attach(st Store) { s.store.Store(&st) }

// Drain makes /readyz answer 503 "shutdown" from here on, so that balancers send no new work. All else goes on.
func (s *Server) Drain() { s.draining.Store(true) }

// Handler returns what Serve answers with, for tests and for a server of the caller's own.
func (s *Server) Handler() http.Handler {
	s.init()
	return s.handler
}

// Serve answers the connections of ln until Shutdown or Close, then returns http.ErrServerClosed. It closes ln.
func (s *Server) Serve(ln net.Listener) error {
	s.init()
	return s.http.Serve(ln)
}

// Shutdown stops listening and waits until what was asked has been answered, or ctx ends. It implies Drain.
func (s *Server) Shutdown(ctx context.Context) error {
	s.init()
	s.Drain()
	return s.http.Shutdown(ctx)
}

// Close cuts all connections, kills a running command and returns when it is gone: the store may be closed afterwards.
// Idempotent.
func (s *Server) Close() error {
	s.init()
	s.Drain()
	var err error
	s.closing.Do(func() {
		close(s.done)
		err = s.http.Close()
		s.command <- struct{}{} // kept: none starts any more
	})
	return err
}

func (s *Server) init() {
	s.setup.Do(func() {
		s.log = s.Log
		if s.log == nil {
			s.log = slog.New(slog.DiscardHandler)
		}
		s.started = s.StartedAt
		if s.started.IsZero() {
			s.started = time.Now()
		}
		s.done = make(chan struct{})
		s.command = make(chan struct{}, 1) // one command at a time
		s.hosts = hostSet(s.Hosts)
		s.handler = s.guard(http.HandlerFunc(s.route))
		s.http = &http.Server{
			Handler:           s.handler,
			ReadHeaderTimeout: headerTimeout,
			ReadTimeout:       requestTimeout,
			WriteTimeout:      answerTimeout,
			IdleTimeout:       cmp.Or(s.IdleTimeout, idleTimeout),
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
			ConnState:         s.connState,
		}
	})
}

// connState counts connections and closes those above the limit before anything is read from them.
func (s *Server) connState(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		limit := int64(s.MaxConns)
		if limit <= 0 {
			limit = 1000
		}
		if s.conns.Add(1) > limit {
			c.Close()
		}
	case http.StateClosed, http.StateHijacked:
		s.conns.Add(-1)
	}
}

// attached returns the store, or nil while it recovers.
func (s *Server) attached() Store {
	if p := s.store.Load(); p != nil {
		return *p
	}
	return nil
}

func (s *Server) traffic() Traffic {
	if s.Traffic == nil {
		return Traffic{}
	}
	return s.Traffic()
}
