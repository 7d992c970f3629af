package replication_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"qserver/replication"
	"qserver/storage"
)

// node is a server without ports: a store with its Master, and its Slave if it follows.
type node struct {
	t     *testing.T
	dir   string
	sid   int
	opts  storage.Options
	store *storage.Store
	out   *replication.Master // for its slaves
	in    *replication.Slave  // nil: it leads

	cancel  context.CancelFunc
	running sync.WaitGroup
	mu      sync.Mutex // guards store, in and ended while it runs
	ended   error
	dial    func(context.Context) (net.Conn, error)
	log     *slog.Logger
	secret  []byte
}

func newNode(t *testing.T, sid int, o storage.Options) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir(), sid: sid, opts: o, log: slog.New(slog.DiscardHandler)}
	t.Cleanup(n.stop)
	return n
}

// lead starts a node that takes writes.
func (n *node) lead() *node {
	n.t.Helper()
	st, err := storage.Open(n.dir, n.opts)
	if err != nil {
		n.t.Fatal(err)
	}
	n.store = st
	n.out = n.master()
	n.out.Attach(st)
	return n
}

// master serves the node's slaves.
func (n *node) master() *replication.Master {
	m := &replication.Master{SID: n.sid, Secret: n.secret, Log: n.log, MinSlaves: n.opts.MinSlaves}
	if m.MinSlaves > 0 {
		m.Gather = -1
	}
	return m
}

// pipe connects to the master by a net.Pipe.
func pipe(m *node) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		a, b := net.Pipe()
		go m.out.ServeConn(b, true)
		return a, nil
	}
}

// follow starts a node that follows, and opens its folder again whenever a copy is there.
func (n *node) follow(dial func(context.Context) (net.Conn, error)) *node {
	n.t.Helper()
	n.opts.Master = "master:1978"
	n.dial = dial
	n.out = n.master()
	n.open()
	n.run()
	return n
}

// run lets a node that is open follow.
func (n *node) run() {
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.running.Go(func() {
		for {
			err := n.slave().Run(ctx)
			n.out.Detach()
			if !errors.Is(err, replication.ErrCopyReady) {
				n.mu.Lock()
				n.ended = err
				n.mu.Unlock()
				return
			}
			if err := n.current().Close(); err != nil {
				n.t.Error(err)
			}
			n.open()
		}
	})
}

// promote lets a node that follows lead.
func (n *node) promote() {
	n.t.Helper()
	n.halt()
	if err := n.store.Promote(); err != nil {
		n.t.Fatal(err)
	}
	n.in = nil
	n.out.Attach(n.store)
}

// turn lets a node whose store follows follow another master.
func (n *node) turn(dial func(context.Context) (net.Conn, error)) {
	n.t.Helper()
	n.halt()
	if err := n.store.Turn("master:1978"); err != nil {
		n.t.Fatal(err)
	}
	n.opts.Master, n.dial = "master:1978", dial
	n.attach(n.store)
	n.run()
}

// halt ends its following; the store stays open.
func (n *node) halt() {
	if n.cancel != nil {
		n.cancel()
		n.running.Wait()
		n.cancel = nil
	}
}

func (n *node) open() {
	st, err := storage.Open(n.dir, n.opts)
	if err != nil {
		n.t.Error(err)
		return
	}
	n.attach(st)
}

// attach makes the node the slave that its store is.
func (n *node) attach(st *storage.Store) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.store = st
	n.in = &replication.Slave{SID: n.sid, Address: "master:1978", Store: st, Dir: n.dir, Dial: n.dial, Secret: n.secret, Log: n.log}
	n.out.Attach(st)
}

func (n *node) current() *storage.Store {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.store
}

func (n *node) slave() *replication.Slave {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.in
}

// stop ends the node in order. Idempotent.
func (n *node) stop() {
	n.halt()
	if n.out != nil {
		n.out.Detach()
	}
	if n.store != nil {
		if err := n.store.Close(); err != nil && n.store.Err() == nil {
			n.t.Error(err)
		}
		n.store = nil
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 seconds: %s", what)
		}
	}
}

// caughtUp waits until the slave stands where the master does, durably and acked.
func caughtUp(t *testing.T, m *node, slaves ...*node) {
	t.Helper()
	for _, s := range slaves {
		waitFor(t, fmt.Sprintf("slave %d has all: %+v", s.sid, s.slave().Status()), func() bool {
			return s.current().Position() == m.current().Position()
		})
		agree(t, m.current(), s.current())
	}
}

// agree compares the counts: what is reserved on one side is ready on the other.
func agree(t *testing.T, master, slave *storage.Store) {
	t.Helper()
	counts := func(s *storage.Store) []storage.QueueStats {
		qs := s.Queues("", 0)
		for i := range qs {
			q := &qs[i]
			if q.TotalItems != q.TotalAcked+q.TotalPurged+q.TotalExpired+q.Items+q.Dead {
				t.Errorf("I9 does not hold: %+v", q)
			}
			q.Ready += q.Reserved
			q.Reserved, q.Waiters, q.Age, q.Returned, q.Gets, q.GetMisses = 0, 0, 0, 0, 0, 0
		}
		return qs
	}
	if m, s := counts(master), counts(slave); !slices.Equal(m, s) {
		t.Fatalf("master %+v\nslave  %+v", m, s)
	}
}

func put(t *testing.T, st *storage.Store, q string, from, n int) {
	t.Helper()
	c := st.NewSession("test")
	defer c.Close()
	for i := range n {
		if _, err := c.Enqueue([]byte(q), storage.PutRequest{Body: fmt.Appendf(nil, "message %d", from+i), Priority: storage.DefaultPriority}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
}

// work reserves n messages of q and acks all but those whose number is a multiple of keep.
func work(t *testing.T, c *storage.Session, q string, n, keep int) {
	t.Helper()
	for i := range n {
		d, ok, err := c.Reserve([]byte(q), storage.ReserveOptions{})
		if err != nil || !ok {
			t.Fatalf("reserve %d of %s: %v %v", i, q, ok, err)
		}
		if keep != 0 && i%keep == 0 {
			continue
		}
		if err := c.Ack([]byte(q), storage.Pick{Receipt: d.Receipt}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
}

// bodies takes every message of q.
func bodies(t *testing.T, st *storage.Store, q string) (list []string) {
	t.Helper()
	c := st.NewSession("drain")
	defer c.Close()
	for {
		d, ok, err := c.Reserve([]byte(q), storage.ReserveOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return list
		}
		list = append(list, string(d.Body))
	}
}

func quick() storage.Options {
	return storage.Options{Sync: storage.SyncNever, SegmentBytes: 64 << 10, Memory: 8 << 20}
}

// TestTwoSlaves follows a master under load with two slaves, one of which comes late; then one is promoted, and has every
// message in order, those that the master's clients held included.
func TestTwoSlaves(t *testing.T) {
	m := newNode(t, 1, quick()).lead()
	s2 := newNode(t, 2, quick()).follow(pipe(m))
	put(t, m.store, "q", 0, 1000)
	c := m.store.NewSession("worker")
	defer c.Close()
	work(t, c, "q", 300, 3)
	caughtUp(t, m, s2)
	s3 := newNode(t, 3, quick()).follow(pipe(m))
	put(t, m.store, "q", 1000, 1000)
	work(t, c, "q", 300, 0)
	caughtUp(t, m, s2, s3)

	waitFor(t, "both slaves have acked all", func() bool {
		list := m.out.Slaves()
		for _, s := range list {
			if s.Lag.Records != 0 || s.State != replication.StateFollowing {
				return false
			}
		}
		return len(list) == 2
	})
	// What is held on the master is ready on the slave.
	s2.cancel()
	s2.running.Wait()
	if err := s2.store.Promote(); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 2000 {
		if i >= 600 || i < 300 && i%3 == 0 {
			want = append(want, fmt.Sprintf("message %d", i))
		}
	}
	if got := bodies(t, s2.store, "q"); !slices.Equal(got, want) {
		t.Errorf("promoted slave gives %d messages, want %d: %.200q", len(got), len(want), got)
	}
}

// TestChain follows a slave of a slave of a slave.
func TestChain(t *testing.T) {
	m := newNode(t, 1, quick()).lead()
	put(t, m.store, "q", 0, 500)
	s2 := newNode(t, 2, quick()).follow(pipe(m))
	s3 := newNode(t, 3, quick()).follow(pipe(s2))
	s4 := newNode(t, 4, quick()).follow(pipe(s3))
	put(t, m.store, "q", 500, 500)
	caughtUp(t, m, s2, s3, s4)
	c := m.store.NewSession("worker")
	defer c.Close()
	work(t, c, "q", 900, 0)
	caughtUp(t, m, s2, s3, s4)
	if s4.current().History() != m.store.History() {
		t.Error("the last one has another history")
	}
}

// TestReadOnlyNamesMaster is what a client of a slave sees of its refusals.
func TestReadOnlyNamesMaster(t *testing.T) {
	m := newNode(t, 1, quick()).lead()
	s := newNode(t, 2, quick()).follow(pipe(m))
	put(t, m.store, "q", 0, 1)
	caughtUp(t, m, s)
	c := s.current().NewSession("client")
	defer c.Close()
	if _, err := c.Enqueue([]byte("q"), storage.PutRequest{}); err == nil || err.Error() != "read-only: this is a slave of master:1978" {
		t.Errorf("got %v", err)
	}
}
