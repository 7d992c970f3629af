package replication_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"qserver/replication"
	"qserver/storage"
	"qserver/storage/ulog"
)

// gate is a disk whose syncs of the log wait while it is shut.
type gate struct {
	ulog.OS
	mu   sync.Mutex
	open chan struct{} // closed: it is open
	held int           // syncs that wait
}

type gatedFile struct {
	ulog.File
	gate *gate
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) OpenFile(name string, flag int) (ulog.File, error) {
	f, err := g.OS.OpenFile(name, flag)
	return gatedFile{f, g}, err
}

func (f gatedFile) Sync() error {
	f.gate.pass()
	return f.File.Sync()
}

func (g *gate) pass() {
	g.mu.Lock()
	open := g.open
	g.held++
	g.mu.Unlock()
	<-open
	g.mu.Lock()
	g.held--
	g.mu.Unlock()
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

// lift opens it. Idempotent.
func (g *gate) lift() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

func (g *gate) waits() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held > 0
}

// quorumOf is a master that wants two of its slaves to have an enqueue on their disks, and the slaves, with their disks.
func quorumOf(t *testing.T, slaves int, timeout time.Duration, refuse bool) (m *node, s []*node, disks []*gate) {
	t.Helper()
	o := quick()
	o.MinSlaves, o.MinSlavesTimeout, o.RefuseAlone = 2, timeout, refuse
	m = newNode(t, 1, o).lead()
	for i := range slaves {
		g := newGate()
		so := quick()
		so.Sync, so.FS = storage.SyncEnqueue, g
		n := newNode(t, 2+i, so).follow(pipe(m))
		t.Cleanup(g.lift) // before the node ends, which needs its disk
		s, disks = append(s, n), append(disks, g)
	}
	waitFor(t, "enough slaves follow", func() bool { return !m.store.SharedState().Away })
	return m, s, disks
}

func tryPut(st *storage.Store, body string) error {
	c := st.NewSession("test")
	defer c.Close()
	if _, err := c.Enqueue([]byte("q"), storage.PutRequest{Body: []byte(body), Priority: storage.DefaultPriority}); err != nil {
		return err
	}
	return c.Commit()
}

// TestMinSlavesWaits: an enqueue is answered when two slaves of three have it on their disks, not when they have only applied it.
func TestMinSlavesWaits(t *testing.T) {
	m, s, disks := quorumOf(t, 3, time.Minute, true)
	if err := tryPut(m.store, "first"); err != nil {
		t.Fatal(err)
	}
	caughtUp(t, m, s...)
	disks[0].shut()
	disks[1].shut()
	answer := make(chan error, 1)
	go func() { answer <- tryPut(m.store, "second") }()
	for i, n := range s {
		waitFor(t, "it is applied", func() bool { return n.current().Stats().Items == 2 })
		if i < 2 {
			waitFor(t, "its sync waits", disks[i].waits)
		}
	}
	waitFor(t, "the third slave has it durably", func() bool {
		durable, _ := m.out.Acked()
		return durable["4"] == m.store.Position().LSN
	})
	select {
	case err := <-answer:
		t.Fatalf("answered with one slave of two: %v", err)
	default:
	}
	disks[0].lift()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	durable, _ := m.out.Acked()
	if durable["2"] < m.store.Position().LSN || durable["3"] >= m.store.Position().LSN {
		t.Errorf("when it was answered they had %v, the master %d", durable, m.store.Position().LSN)
	}
	disks[1].lift()
	caughtUp(t, m, s...)
}

// TestMinSlavesInVain: with too few slaves an enqueue is answered without them after the timeout, or its outcome is unknown and the
// next ones are refused before anything is written; until they are back.
func TestMinSlavesInVain(t *testing.T) {
	for name, refuse := range map[string]bool{"degrade": false, "refuse": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const timeout = 300 * time.Millisecond
			m, s, disks := quorumOf(t, 2, timeout, refuse)
			for _, fault := range []struct {
				what       string
				make, mend func()
			}{
				{"one is away", s[1].halt, func() { s[1].turn(pipe(m)) }},
				{"the disk of one does not answer", disks[1].shut, disks[1].lift},
			} {
				fault.make()
				begin := time.Now()
				err := tryPut(m.store, "in vain")
				if took := time.Since(begin); took < timeout || refuse != errors.Is(err, storage.ErrUnknownOutcome) || !refuse && err != nil {
					t.Errorf("%s: %v after %v", fault.what, err, took)
				}
				at := m.store.Position()
				err = tryPut(m.store, "the next one")
				if refuse != errors.Is(err, storage.ErrFewSlaves) || !refuse && err != nil {
					t.Errorf("%s, the next one: %v", fault.what, err)
				}
				if wrote := m.store.Position() != at; wrote == refuse {
					t.Errorf("%s, the next one: written %v", fault.what, wrote)
				}
				if state := m.store.SharedState(); !state.Away || state.Late == 0 {
					t.Errorf("%s: %+v", fault.what, state)
				}
				fault.mend()
				waitFor(t, "they are back, and waited for", func() bool {
					return !m.store.SharedState().Away && tryPut(m.store, "again") == nil && !m.store.SharedState().Away
				})
				caughtUp(t, m, s...)
				if list := m.out.Slaves(); len(list) != 2 || list[1].State != replication.StateFollowing {
					t.Errorf("%s, mended: %+v", fault.what, list)
				}
			}
		})
	}
}
