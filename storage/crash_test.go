package storage_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"qserver/internal/faultfs"
	"qserver/storage"
)

var (
	crashSeed   = flag.Uint64("crash.seed", 1, "seed of the crash simulation")
	crashStates = flag.Int("crash.states", 0, "crash states to look at in all; 0: 2,000, or 200 with -short")
)

// TestCrash lets a store lose power, or its process, at every sync and at other places of random workloads, in each sync
// mode, opens what is left, and compares it with the workload's history.
//
// The update log lies on a faulty file system in memory, the tree in a folder; the tree's own transactions are atomic,
// which package tree tests.
func TestCrash(t *testing.T) {
	states := *crashStates
	if states == 0 {
		states = 2000
		if testing.Short() {
			states = 200
		}
	}
	for i, m := range crashModes {
		t.Run(m.name, func(t *testing.T) {
			for n, seed := 0, *crashSeed; n < states/len(crashModes); seed++ {
				n += crashLife(t, m, seed+uint64(i)<<32, states/len(crashModes)-n)
			}
		})
	}
}

type crashMode struct {
	name string
	sync storage.SyncMode
}

var crashModes = []crashMode{
	{"always", storage.SyncAlways}, {"enqueue", storage.SyncEnqueue}, {"interval", storage.SyncInterval}, {"never", storage.SyncNever},
}

// moment is what holds from an operation of the file system on.
type moment struct {
	op       int
	answered int // events that were answered
	promised int // of these, that a power cut must not undo
	tree     int
}

// crashWorld is a store on a faulty file system, and its history.
type crashWorld struct {
	t     *testing.T
	mode  crashMode
	seed  uint64
	rng   *rand.Rand
	dir   string
	fs    *faultfs.FS
	s     *storage.Store
	conns []*storage.Session
	held  []storage.Delivery // by conns[0], with its queue
	heldQ []string

	h       *history
	moments []moment
	trees   []string // files
	number  int
	depth   int // lives before this one
}

// memoryDir is a folder in memory where there is one: a sync costs nothing there, and nothing here depends on it.
func memoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "qserver-test")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (w *crashWorld) options() storage.Options {
	o := storage.Options{FS: rooted{w.fs, w.dir}, Sync: w.mode.sync, SyncInterval: time.Hour, SegmentBytes: 16 << 10, MinFreeDisk: 1,
		ForgetAfter: time.Hour, DedupWindow: time.Hour, Memory: 1 << 20}
	if w.seed%2 == 0 {
		o.ForgetAfter = time.Millisecond
	}
	if w.seed%3 == 0 {
		o.Window, o.Memory = 4, 64<<10
	}
	return o
}

func (w *crashWorld) fatal(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\nseed %d; again: go test ./storage -run 'TestCrash/%s' -crash.seed=%d", fmt.Sprintf(format, args...), w.seed,
		w.mode.name, w.seed&(1<<32-1))
}

func (w *crashWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.fatal("%v", err)
	}
}

// crashLife runs one workload and looks at up to max crash states of it. It returns how many.
func crashLife(t *testing.T, m crashMode, seed uint64, maxStates int) int {
	w := &crashWorld{t: t, mode: m, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), fs: faultfs.New(), h: newHistory()}
	w.dir = filepath.Join(memoryDir(t), "0")
	w.must(os.MkdirAll(w.dir, 0o700))
	w.moments = []moment{{}}
	w.trees = []string{""}
	var err error
	w.s, err = storage.OpenStill(w.dir, w.options())
	w.must(err)
	w.opened()
	w.live(60 + w.rng.IntN(60))
	n := w.crashes(maxStates)
	w.must(storage.Abandon(w.s))
	return n
}

// opened begins the store's life once it is open; it does nothing by itself from then on.
func (w *crashWorld) opened() {
	w.t.Helper()
	ops := w.fs.Ops()
	for range 3 {
		w.conns = append(w.conns, w.s.NewSession(""))
	}
	w.snapshot()
	// The last thing that Open wrote is a record, when the tree had taken the log's tail in.
	record := len(ops) - 1
	for ops[record].Kind != faultfs.Write || ops[record].Offset == 0 {
		record--
	}
	w.note(record)
	w.moments[len(w.moments)-1].answered, w.moments[len(w.moments)-1].promised = 0, 0
	w.note(w.fs.Len())
}

// snapshot keeps the tree as it is now.
func (w *crashWorld) snapshot() {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.dir, "tree"))
	w.must(err)
	name := filepath.Join(w.dir, fmt.Sprintf("snapshot-%d", len(w.trees)))
	w.must(os.WriteFile(name, b, 0o600))
	w.trees = append(w.trees, name)
}

// note makes what holds now hold from operation op on.
func (w *crashWorld) note(op int) {
	m := moment{op: op, tree: len(w.trees) - 1}
	st := w.s.Stats()
	m.answered = w.h.upTo(st.LSN)
	switch w.mode.sync {
	case storage.SyncAlways:
		m.promised = m.answered
	case storage.SyncEnqueue:
		m.promised = w.h.lastSynced(m.answered)
	default:
		m.promised = w.h.upTo(st.Synced)
	}
	w.moments = append(w.moments, m)
}

// at is what holds when power fails before operation op.
func (w *crashWorld) at(op int) moment {
	m := w.moments[0]
	for _, n := range w.moments {
		if n.op > op {
			break
		}
		m.tree = n.tree
		m.answered = max(m.answered, n.answered)
		m.promised = max(m.promised, n.promised)
	}
	return m
}

// live does n random things.
func (w *crashWorld) live(n int) {
	w.t.Helper()
	for range n {
		w.step()
		w.note(w.fs.Len())
	}
}

func (w *crashWorld) step() {
	w.t.Helper()
	c := w.conns[w.rng.IntN(len(w.conns))]
	switch k := w.rng.IntN(40); {
	case k < 12:
		w.enqueue()
	case k < 17:
		w.reserve()
	case k < 27:
		w.settle()
	case k < 30:
		w.stride()
	case k == 30:
		w.must(w.s.Sync())
	case k == 31:
		storage.Seal(w.s)
	case k == 32:
		w.must(storage.Chores(w.s))
	case k < 35:
		w.must(storage.KeepTime(w.s))
	case k == 35:
		q := w.queue()
		st, ok := w.s.Queue([]byte(q))
		before := storage.Staged(w.s)
		_, err := w.s.Purge([]byte(q))
		w.must(err)
		if lsn := storage.Staged(w.s); ok && lsn > before {
			w.h.purge(before+1, q)
			_ = st
		}
		w.forgetHeld(q)
	default:
		w.must(c.Commit())
	}
}

func (w *crashWorld) queue() string { return string(rune('a' + w.rng.IntN(3))) }

func (w *crashWorld) size() int {
	if w.rng.IntN(25) == 0 {
		return 15<<10 + w.rng.IntN(8<<10) // larger than what is copied, or than a segment
	}
	return w.rng.IntN(600)
}

// enqueue stages some messages and, mostly, commits them.
func (w *crashWorld) enqueue() {
	w.t.Helper()
	for range 1 + w.rng.IntN(6) {
		w.relieve()
		c, q := w.conns[w.rng.IntN(len(w.conns))], w.queue()
		w.number++
		p := storage.PutRequest{Priority: 100 + uint32(w.rng.IntN(3))}
		m := message{queue: q, pri: p.Priority, body: bodyOf(q, p.Priority, w.number, w.size())}
		p.Body = []byte(m.body)
		if w.rng.IntN(8) == 0 {
			p.Delay = time.Millisecond
		}
		if w.rng.IntN(8) == 0 {
			m.dedup = fmt.Sprint("key", w.number/3)
			p.Dedup = []byte(m.dedup)
		}
		var err error
		m.id, err = c.Enqueue([]byte(q), p)
		w.must(err)
		if m.id != 0 {
			w.h.enqueue(storage.Staged(w.s), m)
		}
		if w.rng.IntN(3) == 0 {
			w.must(c.Commit())
		}
	}
}

// relieve does what the store would do by itself when memory gets short.
func (w *crashWorld) relieve() {
	w.t.Helper()
	for tries := 0; w.s.Stats().MemoryBytes > w.options().Memory/2; tries++ {
		if tries == 20 {
			w.fatal("memory is not given back: %+v", w.s.Stats())
		}
		w.must(w.conns[0].Commit())
		w.stride()
		storage.Evict(w.s)
	}
}

func (w *crashWorld) reserve() {
	w.t.Helper()
	for range 1 + w.rng.IntN(5) {
		q := w.queue()
		d, ok, err := w.conns[0].Reserve([]byte(q), storage.ReserveOptions{})
		w.must(err)
		if ok {
			if m, live := w.h.live[d.ID]; !live || m.body != string(d.Body) || m.queue != q {
				w.fatal("reserved message %d of %s, which is %+v", d.ID, q, m)
			}
			w.held, w.heldQ = append(w.held, d), append(w.heldQ, q)
		}
	}
}

// settle acks, releases or replaces some of what is held.
func (w *crashWorld) settle() {
	w.t.Helper()
	for range 1 + w.rng.IntN(5) {
		if len(w.held) == 0 {
			return
		}
		i := w.rng.IntN(len(w.held))
		d, q, c := w.held[i], w.heldQ[i], w.conns[w.rng.IntN(len(w.conns))]
		w.held, w.heldQ = append(w.held[:i:i], w.held[i+1:]...), append(w.heldQ[:i:i], w.heldQ[i+1:]...)
		pick := storage.Pick{Receipt: d.Receipt}
		switch k := w.rng.IntN(10); {
		case k < 6:
			w.must(c.Ack([]byte(q), pick))
			w.h.ack(storage.Staged(w.s), d.ID)
		case k == 6:
			w.must(c.Release([]byte(q), pick, 0))
		case k == 7:
			w.must(c.Release([]byte(q), pick, time.Millisecond))
		default:
			w.number++
			w.relieve()
			body := bodyOf(q, w.h.live[d.ID].pri, w.number, w.size())
			w.must(c.ReplaceBody([]byte(q), d.Receipt, []byte(body), 7, time.Time{}))
			w.h.replace(storage.Staged(w.s), d.ID, body)
		}
		if w.rng.IntN(4) == 0 {
			w.must(c.Commit())
		}
	}
}

func (w *crashWorld) forgetHeld(q string) {
	for i := len(w.held) - 1; i >= 0; i-- {
		if w.heldQ[i] == q {
			w.held, w.heldQ = append(w.held[:i:i], w.held[i+1:]...), append(w.heldQ[:i:i], w.heldQ[i+1:]...)
		}
	}
}

// stride takes a step of the checkpoint. What it does to the log once the tree has advanced comes with the new tree.
func (w *crashWorld) stride() {
	w.t.Helper()
	before, advanced := storage.Advances(w.s), -1
	w.fs.Inject(func(o faultfs.Op) error {
		if advanced < 0 && storage.Advances(w.s) > before {
			advanced = o.N
		}
		return nil
	})
	err := storage.Stride(w.s)
	w.fs.Inject(nil)
	w.must(err)
	if storage.Advances(w.s) == before {
		return
	}
	if advanced < 0 {
		advanced = w.fs.Len()
	}
	w.snapshot()
	w.note(advanced)
}

// crashes looks at crash states: all policies before and behind each sync, one at some other places.
func (w *crashWorld) crashes(maxStates int) int {
	w.t.Helper()
	ops, n, after := w.fs.Ops(), 0, false
	for r := w.fs.Replay(); r.Next() && n < maxStates; {
		op := r.N()
		sync := op < len(ops) && (ops[op].Kind == faultfs.Sync || ops[op].Kind == faultfs.SyncDir)
		var policies []faultfs.Policy
		switch all := faultfs.Policies(); {
		case sync || after:
			policies = []faultfs.Policy{all[w.rng.IntN(len(all))], all[w.rng.IntN(len(all))], faultfs.Kept}
		case w.rng.IntN(3) == 0:
			policies = []faultfs.Policy{all[w.rng.IntN(len(all))]}
		}
		after = sync
		for _, p := range policies {
			if n++; n > maxStates {
				break
			}
			seed := w.rng.Uint64()
			w.crash(r.Crash(p, seed), w.at(op), p, fmt.Sprintf("life %d, before operation %d, policy %d", w.depth, op, p))
		}
	}
	return n
}

// crash opens what a crash has left, and now and then goes on living with it.
func (w *crashWorld) crash(fs *faultfs.FS, m moment, p faultfs.Policy, what string) {
	w.t.Helper()
	dir, err := os.MkdirTemp(w.dir, "crash")
	w.must(err)
	defer os.RemoveAll(dir)
	next := &crashWorld{t: w.t, mode: w.mode, seed: w.seed, rng: w.rng, dir: dir, fs: fs, number: w.number, depth: w.depth + 1,
		trees: []string{""}}
	if w.trees[m.tree] != "" {
		b, err := os.ReadFile(w.trees[m.tree])
		w.must(err)
		w.must(os.WriteFile(filepath.Join(dir, "tree"), b, 0o600))
		next.trees[0] = w.trees[m.tree]
	}
	promised := m.promised
	if p == faultfs.Kept {
		promised = m.answered // the end of the process undoes nothing that was answered
	}
	next.moments = []moment{{answered: promised, promised: promised}}
	next.verify(w.h, promised, what)
	if w.depth < 3 && w.rng.IntN(10) == 0 {
		next.live(10 + w.rng.IntN(20))
		next.crashes(3)
	}
	next.must(storage.Abandon(next.s))
}

// verify opens the store and compares what it has with the history, of which the first events were promised.
func (w *crashWorld) verify(h *history, promised int, what string) {
	w.t.Helper()
	s, err := storage.OpenStill(w.dir, w.options())
	if err != nil {
		w.fatal("%s: Open: %v", what, err)
	}
	for end := time.Now().Add(10 * time.Second); s.Stats().Delayed > 0; {
		if time.Now().After(end) {
			w.fatal("%s: delayed messages don't come due: %+v", what, s.Stats())
		}
		w.must(storage.KeepTime(s))
	}
	live, err := takeAll(s)
	if err != nil {
		w.fatal("%s: %v", what, err)
	}
	n, err := h.match(promised, live, s.Stats().QueueStats)
	if err != nil {
		w.fatal("%s: %v", what, err)
	}
	w.s, w.h = s, h.clone(n, live)
	w.wantCounts(s, what)
	w.wantDedup(h, promised, what)
	w.opened()
}

// wantCounts holds I9 against every queue, and the sums against the queues.
func (w *crashWorld) wantCounts(s *storage.Store, what string) {
	w.t.Helper()
	if err := countsError(s); err != nil {
		w.fatal("%s: %v", what, err)
	}
}

// wantDedup tries some keys that must still be taken.
func (w *crashWorld) wantDedup(h *history, promised int, what string) {
	w.t.Helper()
	c := w.s.NewSession("")
	defer c.Close()
	tried := 0
	for i := promised - 1; i > 0 && tried < 2; i-- {
		e := &h.events[i]
		if e.dedup == "" || w.options().ForgetAfter < time.Hour { // a queue that was forgotten takes its keys along
			continue
		}
		tried++
		_, err := c.Enqueue([]byte(e.queue), storage.PutRequest{Mode: storage.PutAdd, Body: []byte("again"), Dedup: []byte(e.dedup)})
		if !errors.Is(err, storage.ErrNotStored) {
			w.fatal("%s: dedup key %q was taken before, now Enqueue says %v", what, e.dedup, err)
		}
	}
}

// countsError says what is wrong with the counts of a store.
func countsError(s *storage.Store) error {
	for _, q := range s.Queues("", 0) {
		if err := queueError(q); err != nil {
			return err
		}
	}
	return queueError(s.Stats().QueueStats)
}

func queueError(q storage.QueueStats) error {
	for _, n := range []int64{q.Items, q.Ready, q.Delayed, q.Reserved, q.Dead, q.Bytes, q.Waiters} {
		if n < 0 {
			return fmt.Errorf("queue %q: a count below zero: %+v", q.Name, q)
		}
	}
	if q.Items != q.Ready+q.Delayed+q.Reserved || q.TotalItems != q.TotalAcked+q.TotalPurged+q.TotalExpired+q.Items+q.Dead {
		return fmt.Errorf("queue %q: I9 does not hold: %+v", q.Name, q)
	}
	return nil
}
