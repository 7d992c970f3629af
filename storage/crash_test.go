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
			t.Parallel()
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

	h        *history
	told     map[*storage.Session]uint64 // the last record of each whose Commit the mode must keep
	promised uint64                      // the last record that was answered so
	moments  []moment
	trees    []string // files
	number   int
	depth    int                    // lives before this one
	watch    func(faultfs.Op)       // sees each operation of the file system
	fail     func(faultfs.Op) error // may make it fail
	stop     func(error)            // what an error does, if not end the test
	again    string                 // how to repeat it
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
	if w.again == "" {
		w.again = fmt.Sprintf("again: go test ./storage -run 'TestCrash/%s' -crash.seed=%d", w.mode.name, w.seed&(1<<32-1))
	}
	w.t.Fatalf("%s\nseed %d; %s", fmt.Sprintf(format, args...), w.seed, w.again)
}

func (w *crashWorld) must(err error) {
	w.t.Helper()
	if err == nil {
		return
	}
	if w.stop != nil {
		w.stop(err)
	}
	w.fatal("%v", err)
}

// hook is called before each operation of the file system.
func (w *crashWorld) hook(o faultfs.Op) error {
	if w.watch != nil {
		w.watch(o)
	}
	if w.fail != nil {
		return w.fail(o)
	}
	return nil
}

// crashLife runs one workload and looks at up to max crash states of it. It returns how many.
func crashLife(t *testing.T, m crashMode, seed uint64, maxStates int) int {
	w := &crashWorld{t: t, mode: m, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), fs: faultfs.New(), h: newHistory()}
	w.dir = filepath.Join(memoryDir(t), "0")
	w.must(os.MkdirAll(w.dir, 0o700))
	w.fs.Inject(w.hook)
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
	w.begin()
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

// begin opens the connections of a life.
func (w *crashWorld) begin() {
	w.conns, w.held, w.heldQ, w.told, w.promised = nil, nil, nil, make(map[*storage.Session]uint64), 0
	for range 3 {
		w.conns = append(w.conns, w.s.NewSession(""))
	}
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
	m.promised = w.h.upTo(max(st.Synced, w.promised))
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
		trees: []string{""}, again: w.again}
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
	check := next.check(fs.Clone(), what)
	fs.Inject(next.hook)
	next.verify(w.h, promised, what)
	if got := next.s.Stats().Items; check >= 0 && got != check {
		w.fatal("%s: Check counts %d messages, the start %d", what, check, got)
	}
	if w.depth < 3 && w.rng.IntN(10) == 0 {
		next.live(10 + w.rng.IntN(20))
		next.crashes(3)
	}
	next.must(storage.Abandon(next.s))
}

// check runs Check on now and then one of the states, which are all sound: it must find no problem. It returns how many messages
// it counts, or -1.
func (w *crashWorld) check(fs *faultfs.FS, what string) int64 {
	w.t.Helper()
	if w.trees[0] == "" || w.rng.IntN(8) > 0 {
		return -1
	}
	names, err := fs.ReadDir("/ulog")
	w.must(err)
	w.must(os.MkdirAll(filepath.Join(w.dir, "ulog"), 0o700))
	for _, name := range names {
		b, err := fs.ReadFile("/ulog/" + name)
		w.must(err)
		w.must(os.WriteFile(filepath.Join(w.dir, "ulog", name), b, 0o600))
	}
	rep, err := storage.Check(w.dir, nil)
	if err != nil || len(rep.Problems) > 0 {
		w.fatal("%s: Check: %v, problems %+v", what, err, rep.Problems)
	}
	var items int64
	for _, q := range rep.Queues {
		items += q.Items
	}
	return items
}

// verify opens the store and compares what it has with the history, of which the first events were promised.
func (w *crashWorld) verify(h *history, promised int, what string) {
	w.t.Helper()
	s, err := storage.OpenStill(w.dir, w.options())
	if err != nil {
		w.fatal("%s: Open: %v", what, err)
	}
	w.s = s
	w.compare(h, promised, what)
	w.opened()
}

// compare finds in the history h, of which the first events were promised, what the store has, and goes on from there.
func (w *crashWorld) compare(h *history, promised int, what string) {
	w.t.Helper()
	s := w.s
	for end := time.Now().Add(10 * time.Second); s.Stats().Delayed > 0; {
		if time.Now().After(end) {
			w.fatal("%s: delayed messages don't come due: %+v", what, s.Stats())
		}
		if err := storage.KeepTime(s); err != nil {
			w.fatal("%s: %v", what, err)
		}
	}
	live, err := takeAll(s)
	if err != nil && w.fail != nil {
		live, err = takeAll(s) // the error was one that a test made
	}
	if err != nil {
		w.fatal("%s: %v", what, err)
	}
	n, err := h.match(promised, live, s.Stats().QueueStats)
	if err != nil {
		w.fatal("%s: %v", what, err)
	}
	w.h = h.clone(n, live)
	w.wantCounts(s, what)
	w.wantDedup(h, promised, what)
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
		again := storage.PutRequest{Mode: storage.PutAdd, Body: []byte("again"), Dedup: []byte(e.dedup)}
		_, err := c.Enqueue([]byte(e.queue), again)
		if errors.Is(err, storage.ErrDiskFull) && w.fail != nil { // the error that a test made; it clears by itself
			w.must(storage.Chores(w.s))
			_, err = c.Enqueue([]byte(e.queue), again)
		}
		if !errors.Is(err, storage.ErrNotStored) {
			w.fatal("%s: dedup key %q was taken before, now Enqueue says %v", what, e.dedup, err)
		}
	}
}
