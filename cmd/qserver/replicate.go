package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"qserver/admin"
	"qserver/replication"
	"qserver/storage"
)

// replica is a server's part in replication: it serves slaves, and follows a master if it has one.
type replica struct {
	master *replication.Master

	change  sync.Mutex // one change of the role at a time
	address string     // host:port of the master; "": this server leads; guarded by mu once it serves

	mu     sync.Mutex
	store  *storage.Store     // nil: not attached, or not any more
	slave  *replication.Slave // nil: it follows none, or not yet
	cancel context.CancelFunc
	done   chan struct{} // closed when the slave has ended
}

// errReopen says that a copy of the master's tree lies in the folder: the server has to open it again.
var errReopen = errors.New("a copy of the master's tree is ready")

// slavesTime is how long a server that ends waits for its slaves to have everything.
const slavesTime = time.Second

// masterAddress is host:port of the master; "": there is none.
func (c *config) masterAddress() string {
	if c.mhost == "" {
		return ""
	}
	return net.JoinHostPort(c.mhost, c.mport)
}

// secretLeast is the least length of a secret, bytes.
const secretLeast = 16

// readSecret reads -repl-secret-file; blanks at its ends don't count.
func (c *config) readSecret() ([]byte, error) {
	if c.replSecretFile == "" {
		return nil, nil
	}
	b, err := os.ReadFile(c.replSecretFile)
	if err != nil {
		return nil, usageError("-repl-secret-file: %w", err)
	}
	if b = bytes.TrimSpace(b); len(b) < secretLeast {
		return nil, usageError("-repl-secret-file %s: a secret has at least %d characters; make one with: head -c 32 /dev/urandom | base64",
			c.replSecretFile, secretLeast)
	}
	return b, nil
}

func newReplica(s *server, address string) *replica {
	m := &replication.Master{SID: s.config.sid, Secret: s.secret, Version: version, Log: s.log, MinSlaves: s.config.minSlaves}
	if m.MinSlaves > 0 {
		m.Gather = -1 // somebody waits for each record
	}
	return &replica{address: address, master: m}
}

func (s *server) newSlave() *replication.Slave {
	c := s.config
	return &replication.Slave{SID: c.sid, Address: s.replica.address, Store: s.store, Dir: s.data, Secret: s.secret, Interval: c.riv,
		TLS: s.gate.peers.config, Version: version, Log: s.log}
}

// firstCopy gets a new slave what its master has, before anybody is served: the memcached port opens behind it.
func (s *server) firstCopy(ctx context.Context, p *progress) error {
	if s.replica.address == "" || s.store.Position().LSN > 0 {
		return nil
	}
	slave := s.newSlave()
	s.log.Info("waiting for a first copy of what the master has", "master", slave.Address)
	ctx, cancel := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() {
		defer close(told)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(200 * time.Millisecond):
			}
			st := slave.Status()
			text := fmt.Sprintf("first copy from the master %s: %s", st.Address, st.State)
			if st.CopySize > 0 {
				text += fmt.Sprintf(", %d %%", 100*st.CopyDone/st.CopySize)
			}
			if st.Error != "" {
				text += ": " + st.Error
			}
			s.recovery.now.Store(&text)
		}
	}()
	err := slave.Run(ctx)
	cancel()
	<-told
	if !errors.Is(err, replication.ErrCopyReady) {
		return err // nil: told to end
	}
	if err := s.store.Close(); err != nil {
		return err
	}
	s.store, err = storage.Open(s.data, newStorageOptions(s, p))
	if err != nil {
		return s.openError(err)
	}
	return nil
}

// startReplica serves slaves from here on, and follows the master if there is one.
func (s *server) startReplica() {
	r := s.replica
	r.master.Attach(s.store)
	r.mu.Lock()
	r.store = s.store
	address := r.address
	r.mu.Unlock()
	if address != "" {
		s.startFollowing(address)
	}
}

// startFollowing follows the master at address. The store follows already.
func (s *server) startFollowing(address string) {
	r := s.replica
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	r.mu.Lock()
	r.address = address
	slave := s.newSlave()
	r.slave, r.cancel, r.done = slave, cancel, done
	r.mu.Unlock()
	go func() {
		defer close(done)
		switch err := slave.Run(ctx); {
		case errors.Is(err, replication.ErrCopyReady):
			s.followed <- errReopen
		case err != nil:
			s.followed <- fmt.Errorf("follow the master: %w", err)
		}
	}()
}

// stopFollowing ends what startFollowing began, if it did.
func (s *server) stopFollowing() {
	r := s.replica
	r.mu.Lock()
	cancel, done := r.cancel, r.done
	r.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	<-done
	r.mu.Lock()
	r.slave, r.cancel, r.done = nil, nil, nil
	r.mu.Unlock()
}

// stopReplica ends both sides; the slaves get a moment to have everything. The store may be closed afterwards.
func (s *server) stopReplica(wait time.Duration) {
	r := s.replica
	r.mu.Lock()
	r.store = nil // the role changes no more
	r.mu.Unlock()
	r.change.Lock()
	defer r.change.Unlock()
	s.stopFollowing()
	ctx, end := context.WithTimeout(context.Background(), wait)
	defer end()
	r.master.Flush(ctx)
	r.master.Detach()
}

func (s *server) replicationHandlers() map[string]http.Handler {
	return map[string]http.Handler{
		replication.Path:      s.replica.master.Handler(),
		"/api/v1/replication": replication.StatusHandler(s.replica.master, s.replica.following),
		replication.SumsPath:  replication.SumsHandler(s.replica.master),
		promotePath:           s.roleHandler(s.servePromote),
		followPath:            s.roleHandler(s.serveFollow),
	}
}

// following is the slave, or nil.
func (r *replica) following() *replication.Slave {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.slave
}

func (s *server) replicationStats(emit func(name, value string)) {
	replication.EmitStats(s.replica.master, s.replica.following(), emit)
}

// masterView is the master for /rpc/report.
func (s *server) masterView() (admin.Master, bool) {
	slave := s.replica.following()
	if slave == nil {
		return admin.Master{}, false
	}
	st := slave.Status()
	host, portText, _ := net.SplitHostPort(st.Address)
	port, _ := strconv.Atoi(portText)
	return admin.Master{Host: host, Port: port, Position: time.Now().Add(-st.Lag.Time), Interval: s.config.riv, Delay: st.Lag.Time}, true
}
