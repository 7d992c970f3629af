package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"qserver/admin"
	"qserver/protocol/memcache"
	"qserver/storage"
	"qserver/storage/ulog"
)

// failureTime is how long the parts get to close after the update log failed: the process must end within a second.
const failureTime = 300 * time.Millisecond

// serve is a server's life, from its settings to the last checkpoint.
func serve(ctx context.Context, c *config, stdout, stderr io.Writer) error {
	// What can be refused without leaving a trace is refused first.
	adminAt, err := resolve("admin", c.admin)
	if err != nil {
		return err
	}
	listenAt, err := resolve("listen", c.listen)
	if err != nil {
		return err
	}
	if err := errors.Join(adminAt.guard(c.insecure), listenAt.guard(c.insecure || c.asks()), c.pprof.guard(adminAt)); err != nil {
		return withCode(exitRefused, err)
	}
	if err := refuseFile(c.data); err != nil {
		return err
	}
	gate, err := openGate(c)
	if err != nil {
		return err
	}
	secret, err := c.readSecret()
	if err != nil {
		return err
	}
	data, err := filepath.Abs(c.data)
	if err != nil {
		return err
	}

	log, file, err := openLog(c, stdout, stderr)
	if err != nil {
		return err
	}
	boundHeap(c)
	for err = errReopen; errors.Is(err, errReopen); { // a slave that got a new copy begins anew with it
		s := &server{config: c, data: data, log: log, file: file, started: time.Now(), gate: gate, secret: secret}
		err = s.run(ctx, adminAt, listenAt, newProgress(stderr))
	}
	if file == nil {
		return err
	}
	if err != nil { // main tells standard error; who reads the log file must not miss it
		log.Error("ended", "error", err, "exit", exitCode(err))
	}
	return errors.Join(err, file.Close())
}

// boundHeap makes the garbage collector work harder before the heap doubles: -memory is meant as what the process takes, with
// some for bodies in flight and what a checkpoint needs. What is full to the brim is collected again and again: a stream that
// fills memory took half as much time again for that, so there is a third more above 64 MiB. An operator's own GOMEMLIMIT stays.
func boundHeap(c *config) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(c.memory + max(0, c.memory-64<<20)/3 + c.bodyMemory/4 + 16<<20)
	}
}

// server is what a running server consists of.
type server struct {
	config  *config
	data    string // the data folder's absolute path
	log     *slog.Logger
	file    *logFile // nil: the log goes to a standard stream
	started time.Time
	fs      ulog.FS // of the update log; nil: the operating system's
	gate    gate

	secret   []byte // of -repl-secret-file; nil: none
	recovery recovery
	store    *storage.Store
	replica  *replica
	followed chan error // why it can't follow its master any more, or errReopen
	web      *admin.Server
	mc       *memcache.Server
	served   chan error // why a listener ended before its time
}

// run brings the parts up, waits for a reason to end, and brings them down.
func (s *server) run(ctx context.Context, adminAt, listenAt endpoint, p *progress) error {
	s.log.Info("qserver starts", "version", version, "pid", os.Getpid(), "data", s.data, "sync", s.config.syncText(),
		"memory", formatSize(s.config.memory))
	for _, note := range s.config.notes {
		s.log.Info(note)
	}
	s.served = make(chan error, 3) // one of each listener, so that none waits for a reader

	s.followed = make(chan error, 1)
	address, err := s.readRole()
	if err != nil {
		return err
	}
	s.replica = newReplica(s, address)
	s.mc = newMemcached(s)
	// HTTP comes before recovery, which may take long: /healthz answers and /readyz says how far it is.
	s.web = newAdmin(s, adminAt)
	ln, err := adminAt.listen()
	if err != nil {
		return s.whoElse(ctx, adminAt, err)
	}
	s.log.Info("admin port open", "address", ln.Addr().String(), "tls", s.config.adminTLS())
	if s.config.adminTLS() {
		ln = tls.NewListener(ln, s.gate.certificates.adminConfig())
	}
	go s.listen("admin", ln, s.web.Serve)
	defer s.web.Close()

	// SIGHUP would end the process until it is caught. SIGTERM may, up to the end of recovery: that only reads, or writes
	// what a kill leaves whole.
	signals := make(chan os.Signal, 8) // some may come while the drain below looks elsewhere
	signal.Notify(signals, syscall.SIGHUP)
	defer signal.Stop(signals)

	// The folder's lock comes with it, so the pid file is written behind it: a second server must not overwrite that of
	// the first.
	s.store, err = storage.Open(s.data, newStorageOptions(s, p))
	if err != nil {
		return s.openError(err)
	}
	if err := s.firstCopy(ctx, p); err != nil || ctx.Err() != nil {
		return errors.Join(err, s.store.Close())
	}
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	removePID, err := writePID(s.config.pid)
	if err != nil {
		return errors.Join(err, s.store.Close())
	}

	// The memcached port opens only now: a client that can connect is served.
	s.mc.Store = s.store
	ln, err = listenAt.listen()
	if err != nil {
		return errors.Join(err, removePID(), s.store.Close())
	}
	serve := s.mc.Serve
	if t := s.gate.certificates; s.config.listenTLS() {
		serve = func(ln net.Listener) error { return s.mc.ServeTLS(ln, t.config()) }
	}
	s.log.Info("memcached port open", "address", ln.Addr().String())
	s.tellGate(listenAt)
	go s.listen("memcached", ln, serve)
	if s.config.socket != "" {
		if ln, err = listenSocket(s.config.socket, s.config.socketMode); err != nil {
			s.mc.Close()
			return errors.Join(err, removePID(), s.store.Close())
		}
		s.log.Info("memcached socket open", "file", s.config.socket)
		go s.listen("memcached", ln, s.mc.Serve)
	}
	s.web.Attach(s.store)
	s.startReplica()
	s.log.Info("ready", "seconds", time.Since(s.started).Seconds(), "messages", s.store.Stats().Items)

	err = s.wait(ctx, signals)
	if errors.Is(err, errReopen) {
		return errors.Join(s.shutdown(), removePID(), err)
	}
	if err != nil {
		return errors.Join(err, s.abandon(), removePID())
	}
	signal.Reset(syscall.SIGTERM, syscall.SIGINT) // a second one ends the process at once
	return errors.Join(s.shutdown(), removePID())
}

// listen serves ln until the part is shut down, and tells wait when it ends before that.
func (s *server) listen(name string, ln net.Listener, serve func(net.Listener) error) {
	err := serve(ln)
	if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, memcache.ErrServerClosed) {
		s.served <- fmt.Errorf("%s port: %w", name, err)
	}
}

// wait returns nil when the server is to end in order, else why it can't go on.
func (s *server) wait(ctx context.Context, signals <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			s.log.Info("stopping")
			return nil
		case sig := <-signals:
			if sig != syscall.SIGHUP {
				s.log.Info("stopping", "signal", sig.String())
				return nil
			}
			s.reload()
		case <-s.store.Failed():
			return s.failure()
		case err := <-s.served:
			return err
		case err := <-s.followed:
			return err
		}
	}
}

// openError adds to damage what to do about it.
func (s *server) openError(err error) error {
	err = fmt.Errorf("open %s: %w", s.data, err)
	if errors.Is(err, storage.ErrDamaged) {
		err = fmt.Errorf("%w; nothing was changed; what is at stake says: qserver check %s; to go on with what is intact:"+
			" qserver repair %s", err, s.data, s.data)
	}
	return err
}

func (s *server) failure() error {
	return withCode(exitIO, fmt.Errorf("%w: nothing is accepted any more; a restart keeps all that was answered", s.store.Err()))
}

// reload is what SIGHUP asks for.
func (s *server) reload() {
	if s.file == nil && s.gate == (gate{}) {
		s.log.Info("SIGHUP without effect: there is no -log file, no -auth-file, no -tls-cert and no -admin-ca")
		return
	}
	s.reopenLog()
	s.reloadGate()
}

func (s *server) reopenLog() {
	if s.file == nil {
		return
	}
	if err := s.file.Reopen(); err != nil {
		s.log.Error("log file not opened anew, the old one stays", "error", err)
		return
	}
	s.log.Info("log file opened anew")
}

// shutdown ends the server in order, so that a deploy does not make messages run twice: who holds some may still ack them.
func (s *server) shutdown() error {
	s.web.Drain()      // /readyz says so before anybody is turned away
	s.store.EndWaits() // gets answer END from here on
	s.drain()
	s.mc.Close()
	s.stopReplica(slavesTime)
	// The admin side uses the store, so it ends before it.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.web.Shutdown(ctx) != nil {
		s.web.Close()
	}
	select {
	case <-s.store.Failed():
		return errors.Join(s.failure(), s.abandon())
	default:
	}
	if err := s.store.Close(); err != nil {
		return withCode(exitIO, fmt.Errorf("close %s: %w; a restart keeps all that was answered", s.data, err))
	}
	s.log.Info("ended")
	return nil
}

// drain serves acks and sets until nothing is held, the time is over, or the log failed: then no ack is taken any more.
func (s *server) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), s.config.drain)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		select {
		case <-s.store.Failed():
			cancel()
		case <-ctx.Done():
		}
	})
	s.log.Info("draining", "held", s.store.Held(), "limit", s.config.drain)
	if err := s.mc.Shutdown(ctx); err != nil {
		s.log.Warn("drain ended with messages held; they go back")
	}
}

// abandon closes what it can in a short time, after a failure that nothing can be done about.
func (s *server) abandon() error {
	s.web.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), failureTime)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.mc.Shutdown(ctx) // who waits for an answer is told
		s.mc.Close()
		s.stopReplica(0)
		s.web.Close()
		s.store.Close()
	}()
	select {
	case <-done:
	case <-time.After(2 * failureTime):
	}
	return nil
}
