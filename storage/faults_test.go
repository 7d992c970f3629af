package storage_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"qserver/internal/faultfs"
	"qserver/storage"
)

var (
	faultSeed = flag.Uint64("fault.seed", 1, "seed of the test of failing operations")
	faultAll  = flag.Bool("fault.all", false, "try each error at each operation, not one of them at every third")
)

// TestFaults makes each operation on the update log fail, one in each run of a workload: opening, appending, checkpoints,
// changes of segment, recovery. Nothing of what failed may have been answered, and nothing that was answered may be lost.
func TestFaults(t *testing.T) {
	kinds := []error{syscall.EIO, syscall.ENOSPC, faultfs.Short(syscall.EIO), faultfs.Short(syscall.ENOSPC)}
	for i, m := range crashModes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			seed := *faultSeed + uint64(i)<<32
			step := 3
			if testing.Short() {
				step = 11
			}
			if *faultAll {
				step = 1
			}
			runs := 0
			for n, failed := 0, true; failed; n += step {
				use := kinds
				if !*faultAll {
					use = kinds[runs%len(kinds):][:1]
				}
				failed = false
				for _, err := range use {
					runs++
					failed = faultRun(t, m, seed, n, err) || failed
				}
			}
			t.Logf("%d runs with a failing operation", runs-1)
		})
	}
}

// stopped ends a step of the workload that met an error.
type stopped struct{ err error }

// faultRun runs a workload whose nth operation fails, and says whether there was an nth.
func faultRun(t *testing.T, m crashMode, seed uint64, n int, fault error) (failed bool) {
	w := &crashWorld{t: t, mode: m, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), fs: faultfs.New(), h: newHistory(),
		moments: []moment{{}}, trees: []string{""}}
	w.dir = filepath.Join(memoryDir(t), "0")
	w.must(os.MkdirAll(w.dir, 0o700))
	defer os.RemoveAll(filepath.Dir(w.dir))
	w.stop = func(err error) { panic(stopped{err}) }
	var at faultfs.Op
	w.fail = func(o faultfs.Op) error {
		if o.N != n {
			return nil
		}
		failed, at = true, o
		w.again = fmt.Sprintf("operation %v fails with %v; again: go test ./storage -run 'TestFaults/%s' -fault.seed=%d -fault.all",
			o, fault, m.name, seed&(1<<32-1))
		return fault
	}
	w.fs.Inject(w.hook)
	for range 2 { // the second time it recovers
		if !w.faultyLife(25) {
			break
		}
	}
	if failed && w.s != nil && w.s.Err() != nil {
		w.wantRefused(at, fault)
	}
	w.stop, w.fail = nil, nil
	// The process ends: all that was answered is there, whatever failed. Then the power fails.
	for _, p := range []faultfs.Policy{faultfs.Kept, faultfs.Mixed} {
		after := w.fs.Clone()
		if p == faultfs.Mixed {
			after = w.fs.Crash(p, uint64(n))
		}
		m := w.at(w.fs.Len())
		w.crash(after, m, p, fmt.Sprintf("operation %v failed with %v, then policy %d", at, fault, p))
	}
	if w.s != nil {
		_ = storage.Abandon(w.s) // a failed close is a failed close
	}
	return failed
}

// faultyLife opens the store, does n random things and ends it as the end of the process would. It says whether the store can
// be opened again.
func (w *crashWorld) faultyLife(n int) bool {
	w.t.Helper()
	for tries := 0; ; tries++ {
		s, err := storage.OpenStill(w.dir, w.options())
		if err == nil {
			w.s = s
			break
		}
		if tries > 0 || !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENOSPC) || errors.Is(err, storage.ErrDamaged) {
			w.fatal("Open: %v", err)
		}
	}
	w.compare(w.h, w.at(w.fs.Len()).answered, "restart")
	w.begin()
	w.snapshot()
	w.note(w.fs.Len())
	for range n {
		w.try(w.step)
		w.note(w.fs.Len())
		if w.s.Err() != nil {
			return false
		}
		w.wantHistory()
	}
	s := w.s
	w.snapshot()
	w.note(w.fs.Len())
	if err := storage.Abandon(s); err != nil && !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENOSPC) {
		w.fatal("end: %v", err)
	}
	return true
}

// try runs a step that may meet the error.
func (w *crashWorld) try(step func()) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(stopped); !ok {
				panic(r)
			}
		}
	}()
	step()
}

// wantRefused makes sure that a log that has failed takes nothing any more, says why, and leaves the disk alone.
func (w *crashWorld) wantRefused(at faultfs.Op, fault error) {
	w.t.Helper()
	select {
	case <-w.s.Failed():
	default:
		w.fatal("the log has failed (%v), and Failed is open", w.s.Err())
	}
	before := w.fs.Len()
	c := w.s.NewSession("")
	want := errors.Unwrap(fault)
	if want == nil {
		want = fault
	}
	_, err := c.Enqueue([]byte("a"), storage.PutRequest{Body: []byte("x")})
	if !errors.Is(err, storage.ErrFailed) || !strings.Contains(err.Error(), want.Error()) {
		w.fatal("Enqueue after the failure: %v, want the reason", err)
	}
	if err := w.s.Writable(); !errors.Is(err, storage.ErrFailed) {
		w.fatal("Writable after the failure: %v", err)
	}
	if _, _, err := c.Reserve([]byte("a"), storage.ReserveOptions{}); err == nil {
		w.fatal("Reserve after the failure: no error")
	}
	if _, err := w.s.Purge([]byte("a")); err == nil {
		w.fatal("Purge after the failure: no error")
	}
	if err := w.s.Sync(); err == nil {
		w.fatal("Sync after the failure: no error")
	}
	_ = storage.Stride(w.s)
	storage.Seal(w.s)
	_ = storage.Chores(w.s)
	for _, o := range w.fs.Ops()[before:] {
		if o.Kind == faultfs.Write || o.Kind == faultfs.Sync || o.Kind == faultfs.Truncate || o.Kind == faultfs.Rename {
			w.fatal("after %v failed: %v", at, o)
		}
	}
	for _, o := range w.fs.Ops()[at.N+1:] {
		if at.Kind == faultfs.Sync && o.Kind == faultfs.Sync && o.Name == at.Name {
			w.fatal("sync of %s once more after it failed", o.Name)
		}
	}
}
