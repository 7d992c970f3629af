package ulog_test

import (
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"qserver/internal/faultfs"
	"qserver/storage/ulog"
)

var (
	crashSeed  = flag.Uint64("crash.seed", 1, "seed of the crash simulation")
	crashSeeds = flag.Int("crash.seeds", 1, "how many seeds to try, from crash.seed on")
)

const crashDir = "/data/log"

// moment is what holds from an operation on.
type moment struct {
	op       int
	promised uint64 // records up to this LSN must survive
	after    ulog.Position
	at       ulog.Place // the tree's position
}

// world is a log on a faulty file system with a model of what must be in it.
type world struct {
	t       testing.TB
	fs      *faultfs.FS
	log     *ulog.Log
	rng     *rand.Rand
	model   []record // everything ever staged since this world began, by LSN-1
	moments []moment
	now     moment
	ahead   int64 // Options.ZeroAhead
}

func (w *world) options() ulog.Options {
	return ulog.Options{FS: w.fs, SegmentBytes: 12 << 10, ZeroAhead: w.ahead}
}

// note makes what is promised now hold from the next operation on.
func (w *world) note() {
	w.now.op = w.fs.Len()
	w.now.promised = max(w.now.promised, w.log.Synced())
	w.moments = append(w.moments, w.now)
}

// open opens the log and compares what it gives with the model. What the log has not kept of what was not promised is
// dropped from the model.
func (w *world) open() error {
	w.t.Helper()
	next := w.now.after.LSN
	l, _, err := ulog.Open(crashDir, w.now.after, w.now.at, w.options(), func(r *ulog.Record) error {
		next++
		got := record{r.Position, string(r.Head), string(r.Body)}
		if next > uint64(len(w.model)) || got != w.model[next-1] {
			return fmt.Errorf("record %d was never written: %.60v", next, got)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if next < w.now.promised {
		return fmt.Errorf("log ends with LSN %d, promised were %d", next, w.now.promised)
	}
	if got, want := l.Staged().LSN, next; got != want {
		return fmt.Errorf("Staged: got %d, want %d", got, want)
	}
	w.log, w.model = l, w.model[:next:next]
	return nil
}

// batch stages and writes up to n records.
func (w *world) batch(n int, sync bool) error {
	for range 1 + w.rng.IntN(n) {
		body := make([]byte, w.rng.IntN(400))
		if w.rng.IntN(20) == 0 {
			body = make([]byte, 16<<10+w.rng.IntN(4<<10))
		}
		for i := range body {
			body[i] = byte(w.rng.Uint32())
		}
		head := fmt.Appendf(nil, "head %d", w.rng.Uint32())
		p, _ := w.log.Stage(head, body, crc32.Checksum(body, castagnoli))
		w.model = append(w.model, record{p, string(head), string(body)})
	}
	return w.log.Write(w.log.Take(), sync)
}

// mode is how a workload syncs.
type mode struct {
	name     string
	always   bool
	interval int // one in so many steps syncs; 0: never
	ahead    int64
}

// step does one random thing.
func (w *world) step(m mode) error {
	var err error
	switch k := w.rng.IntN(16); {
	case k < 11:
		err = w.batch(5, m.always)
	case k == 11:
		err = w.log.Prepare()
	case k == 12:
		err = w.log.Seal()
	case k == 13:
		// A checkpoint: the tree's position is durable before anything is released.
		if err = w.log.Sync(); err == nil {
			w.now.after, w.now.at = w.log.Written(), w.log.End()
			w.note()
			err = w.log.Release(w.now.at)
		}
	case k == 14 && w.rng.IntN(3) == 0:
		if err = w.log.Close(); err == nil {
			err = w.open()
		}
		w.note()
		if err == nil {
			err = w.log.Release(w.now.at)
		}
	}
	if err == nil && m.interval > 0 && w.rng.IntN(m.interval) == 0 {
		err = w.log.Sync()
	}
	w.note()
	return err
}

func newWorld(t testing.TB, fs *faultfs.FS, seed uint64) *world {
	return &world{t: t, fs: fs, rng: rand.New(rand.NewPCG(seed, 0))}
}

// crashed is the world after a crash of w at the operation op.
func (w *world) crashed(fs *faultfs.FS, op int, seed uint64) *world {
	c := newWorld(w.t, fs, seed)
	c.model, c.ahead = w.model, w.ahead
	for _, m := range w.moments {
		if m.op > op {
			break
		}
		c.now = m
	}
	c.now.op = 0
	return c
}

var modes = []mode{{name: "always", always: true}, {name: "interval", interval: 6}, {name: "never"},
	{name: "always, zeros ahead", always: true, ahead: 1500}, {name: "interval, zeros ahead", interval: 6, ahead: 20 << 10}}

// TestCrash runs workloads, cuts the power at every operation that changes something, and opens what is left. Then it goes
// on writing and cuts the power again.
func TestCrash(t *testing.T) {
	steps := 40
	if testing.Short() {
		steps = 15
	}
	for seed := *crashSeed; seed < *crashSeed+uint64(*crashSeeds); seed++ {
		for _, m := range modes {
			t.Run(fmt.Sprintf("%s/seed=%d", m.name, seed), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, faultfs.New(), seed)
				w.ahead = m.ahead
				if err := w.open(); err != nil {
					t.Fatal(err)
				}
				for range steps {
					if err := w.step(m); err != nil {
						t.Fatal(err)
					}
				}
				states := 0
				for c := w.fs.Replay(); c.Next(); {
					for _, p := range faultfs.Policies() {
						states++
						w.checkCrash(c, p, seed)
					}
				}
				t.Logf("%d crash states", states)
			})
		}
	}
}

// checkCrash opens what is left after a crash, goes on, crashes again and opens again.
func (w *world) checkCrash(c *faultfs.Replay, p faultfs.Policy, seed uint64) {
	w.t.Helper()
	op := c.N()
	next := w.crashed(c.Crash(p, seed), op, seed)
	fail := func(what string, err error) {
		w.t.Helper()
		var before []string
		for _, o := range w.fs.Ops() {
			if o.N < op && o.N > op-12 {
				before = append(before, o.String())
			}
		}
		w.t.Fatalf("policy %d, seed %d, crash before operation %d: %s: %v\npromised %+v\noperations before:\n%s",
			p, seed, op, what, err, next.now, strings.Join(before, "\n"))
	}
	full := next.rng.IntN(4) == 0
	if full {
		next.fs.SetSpace(0)
	}
	if err := next.open(); err != nil && (!full || !errors.Is(err, syscall.ENOSPC) || next.fs.HasFile(crashDir)) {
		fail("open", err)
	} else if err != nil {
		return // not one segment was there yet
	}
	next.fs.SetSpace(-1)
	next.note()
	recovered := next.fs.Len()
	for range 2 {
		if err := next.batch(3, true); err != nil {
			fail("write after recovery", err)
		}
		next.note()
	}
	// Once more at some operation of the recovery or behind it.
	again := next.fs.Replay()
	stop := next.rng.IntN(recovered + 8)
	for again.Next() && again.N() < stop {
	}
	left := again.Crash(faultfs.Policies()[next.rng.IntN(len(faultfs.Policies()))], seed)
	last := next.crashed(left, again.N(), seed)
	if again.N() < recovered {
		last = w.crashed(left, op, seed) // the recovery was not over, so it may have cut nothing yet
	}
	if err := last.open(); err != nil {
		fail(fmt.Sprintf("open after a second crash before operation %d", again.N()), err)
	}
}
