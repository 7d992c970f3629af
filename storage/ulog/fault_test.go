package ulog_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"qserver/internal/faultfs"
	"qserver/storage/ulog"
)

// faultLog is a scenario of the table below: what is done with a log of two finished segments and a few records.
func faultLog(t *testing.T) (*faultfs.FS, *appender) {
	t.Helper()
	fs := faultfs.New()
	l, _, err := ulog.Open(crashDir, ulog.Position{}, ulog.Place{}, ulog.Options{FS: fs, SegmentBytes: 8 << 10}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &appender{t: t, log: l}
	a.add(25, 300, true)
	return fs, a
}

// TestFaults makes each operation of each scenario fail in each way. Whatever fails, nothing that was promised is lost,
// neither for a restart of the process nor for a power cut after it.
func TestFaults(t *testing.T) {
	faults := []struct {
		name string
		err  error
	}{
		{"EIO", syscall.EIO},
		{"ENOSPC", syscall.ENOSPC},
		{"short", faultfs.Short(syscall.ENOSPC)},
	}
	for _, tt := range []struct {
		name string
		do   func(a *appender, fs *faultfs.FS) error
		// final says whether a failure of an operation of this kind ends the log.
		final map[faultfs.Kind]bool
	}{
		{name: "append", final: map[faultfs.Kind]bool{faultfs.Write: true, faultfs.Sync: true},
			do: func(a *appender, fs *faultfs.FS) error { return a.try(3, 300, true) }},
		{name: "append a large body", final: map[faultfs.Kind]bool{faultfs.Write: true, faultfs.Sync: true, faultfs.Allocate: true,
			faultfs.Create: true, faultfs.Rename: true, faultfs.SyncDir: true},
			do: func(a *appender, fs *faultfs.FS) error { return a.try(1, 20<<10, true) }},
		{name: "rotate", final: map[faultfs.Kind]bool{faultfs.Write: true, faultfs.Sync: true, faultfs.Allocate: true,
			faultfs.Create: true, faultfs.Rename: true, faultfs.SyncDir: true},
			do: func(a *appender, fs *faultfs.FS) error { return a.try(20, 300, false) }},
		{name: "prepare", do: func(a *appender, fs *faultfs.FS) error { return a.log.Prepare() }},
		{name: "prepare for a large record", do: func(a *appender, fs *faultfs.FS) error {
			return errors.Join(a.log.Prepare(), a.log.PrepareFor(50<<10))
		}},
		{name: "release", do: func(a *appender, fs *faultfs.FS) error { return a.log.Release(a.log.End()) }},
		{name: "sync", final: map[faultfs.Kind]bool{faultfs.Sync: true, faultfs.Write: true},
			do: func(a *appender, fs *faultfs.FS) error {
				if err := a.try(1, 10, false); err != nil {
					return err
				}
				return a.log.Sync()
			}},
		{name: "seal", final: map[faultfs.Kind]bool{faultfs.Sync: true, faultfs.Write: true},
			do: func(a *appender, fs *faultfs.FS) error { return a.log.Seal() }},
	} {
		for _, fault := range faults {
			t.Run(tt.name+"/"+fault.name, func(t *testing.T) {
				for n := 0; ; n++ {
					fs, a := faultLog(t)
					promised, after, at := a.log.Synced(), ulog.Position{}, ulog.Place{}
					if tt.name == "release" {
						after, at = a.log.Written(), a.log.End()
					}
					failed := failNth(fs, fs.Len()+n, fault.err)
					err := tt.do(a, fs)
					fs.Inject(nil)
					if failed.Kind == "" {
						break // every operation has failed once
					}
					what := fmt.Sprintf("%s failed", *failed)
					if err == nil && failed.Kind != faultfs.Close {
						t.Errorf("%s: no error", what)
					}
					if err != nil && !errors.Is(err, errors.Unwrap(fault.err)) && !errors.Is(err, fault.err) {
						t.Errorf("%s: got %v, want %v", what, err, fault.err)
					}
					checkFinal(t, a, what, tt.final[failed.Kind])
					checkSurvives(t, fs, a.wrote, promised, after, at, what)
				}
			})
		}
	}
}

// try is add that returns errors. It writes all records as one batch.
func (a *appender) try(n, bodyLen int, sync bool) error {
	for range n {
		a.stage(fmt.Sprintf("head %d", len(a.wrote)), strings.Repeat("x", bodyLen))
	}
	return a.log.Write(a.log.Take(), sync)
}

// failNth makes the operation n fail and returns which one it was.
func failNth(fs *faultfs.FS, n int, err error) *faultfs.Op {
	var failed faultfs.Op
	fs.Inject(func(o faultfs.Op) error {
		if o.N == n {
			failed = o
			return err
		}
		return nil
	})
	return &failed
}

// checkFinal verifies that a log after a failure accepts nothing, or everything, and syncs nothing.
func checkFinal(t *testing.T, a *appender, what string, final bool) {
	t.Helper()
	if got := a.log.Err() != nil; got != final {
		t.Errorf("%s: log failed: got %v, want %v (%v)", what, got, final, a.log.Err())
	}
	if !final {
		if err := a.try(1, 10, true); err != nil {
			t.Errorf("%s: write afterwards: %v", what, err)
		}
		return
	}
	for op, err := range map[string]error{
		"Write": a.try(1, 10, true), "Sync": a.log.Sync(), "Seal": a.log.Seal(), "Prepare": a.log.Prepare(),
		"Release": a.log.Release(a.log.End()),
	} {
		if !errors.Is(err, ulog.ErrFailed) {
			t.Errorf("%s: %s afterwards: got %v, want %v", what, op, err, ulog.ErrFailed)
		}
	}
}

// checkSurvives restarts after a failure, on what the process sees and on what a power cut leaves, and once more after the
// restart.
func checkSurvives(t *testing.T, fs *faultfs.FS, wrote []record, promised uint64, after ulog.Position, at ulog.Place, what string) {
	t.Helper()
	restarted := func(fs *faultfs.FS, promised uint64, what string) uint64 {
		t.Helper()
		got, _, _, err := recoverLog(fs, after, at)
		if err != nil {
			t.Fatalf("%s: open: %v", what, err)
		}
		same(t, got, wrote[after.LSN:][:len(got)])
		last := after.LSN + uint64(len(got))
		if last < promised {
			t.Fatalf("%s: %d records, promised were %d", what, last, promised)
		}
		return last
	}
	for _, p := range faultfs.Policies() {
		restarted(fs.Crash(p, uint64(p)), promised, what+", power cut")
	}
	// What a restart shows it may hand out, so from then on it must survive, on a full disk as well.
	if len(what)%2 == 0 {
		fs.SetSpace(0)
		what += ", disk full"
	}
	shown := restarted(fs, promised, what+", restart")
	for _, p := range faultfs.Policies() {
		restarted(fs.Crash(p, uint64(p)), shown, what+", restart, power cut")
	}
}

// TestOpenFaults makes each operation of Open fail, from every kind of end; the next Open must succeed.
func TestOpenFaults(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(a *appender) error
	}{
		{"sealed", func(a *appender) error { return a.log.Seal() }},
		{"sealed with spare", func(a *appender) error { return errors.Join(a.log.Prepare(), a.log.Seal()) }},
		{"not sealed", func(a *appender) error { return nil }},
		{"not sealed with spare", func(a *appender) error { return a.log.Prepare() }},
		{"just opened", func(a *appender) error {
			_ = a.log.Seal()
			_ = a.log.Close()
			_, _, err := ulog.Open(crashDir, ulog.Position{}, ulog.Place{}, ulog.Options{FS: a.fs(), SegmentBytes: 8 << 10}, nil)
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for n := 0; ; n++ {
				fs, a := faultLog(t)
				a.faulty = fs
				if err := tt.do(a); err != nil {
					t.Fatal(err)
				}
				failed := failNth(fs, fs.Len()+n, syscall.EIO)
				_, _, _, err := recoverLog(fs, ulog.Position{}, ulog.Place{})
				fs.Inject(nil)
				if failed.Kind == "" {
					return
				}
				what := fmt.Sprintf("%s failed", *failed)
				if !errors.Is(err, syscall.EIO) {
					t.Errorf("%s: got %v, want %v", what, err, syscall.EIO)
				}
				if _, ok := errors.AsType[*ulog.CorruptError](err); ok {
					t.Errorf("%s: taken for damage: %v", what, err)
				}
				checkSurvives(t, fs, a.wrote, 25, ulog.Position{}, ulog.Place{}, what)
			}
		})
	}
}

// TestDiskFull fills the disk: Prepare says so and the log goes on with the room it has.
func TestDiskFull(t *testing.T) {
	fs, a := faultLog(t)
	if err := a.log.Prepare(); err != nil {
		t.Fatal(err)
	}
	fs.SetSpace(0)
	last := len(a.wrote)
	for a.log.Room() > 400 {
		if err := a.try(1, 300, true); err != nil {
			t.Fatalf("write with %d bytes of room: %v", a.log.Room(), err)
		}
	}
	if n := len(a.wrote) - last; n < 15 {
		t.Errorf("only %d records fit", n)
	}
	if err := a.log.Prepare(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Prepare: got %v, want %v", err, syscall.ENOSPC)
	}
	if err := a.log.Err(); err != nil {
		t.Errorf("a full disk ended the log: %v", err)
	}
	fs.SetSpace(-1)
	if err := a.log.Prepare(); err != nil {
		t.Errorf("Prepare with space: %v", err)
	}
	if got := a.log.Room(); got < 4000 {
		t.Errorf("Room: got %d", got)
	}
	if err := a.log.PrepareFor(50 << 10); err != nil {
		t.Fatal(err)
	}
	fs.SetSpace(0)
	a.add(1, 50<<10-10, true)
	checkSurvives(t, fs, a.wrote, uint64(len(a.wrote)), ulog.Position{}, ulog.Place{}, "disk full")
}

// slowSyncFS lets a test hold the next sync and learn of writes.
type slowSyncFS struct {
	ulog.FS
	armed   atomic.Bool
	syncing chan struct{} // receives when the held sync has begun
	result  chan error    // the held sync's result
	wrote   chan struct{} // receives when a write is done
}

func (f *slowSyncFS) OpenFile(name string, flag int) (ulog.File, error) {
	file, err := f.FS.OpenFile(name, flag)
	return slowSyncFile{file, f}, err
}

type slowSyncFile struct {
	ulog.File
	fs *slowSyncFS
}

func (f slowSyncFile) Sync() error {
	if !f.fs.armed.CompareAndSwap(true, false) {
		return f.File.Sync()
	}
	f.fs.syncing <- struct{}{}
	return <-f.fs.result
}

func (f slowSyncFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	select {
	case f.fs.wrote <- struct{}{}:
	default:
	}
	return n, err
}

// TestNoSyncAfterFailedSync lets a sync fail while a write waits to sync: the system has told the first of the failure, so
// the second would get a success that is none.
func TestNoSyncAfterFailedSync(t *testing.T) {
	slow := &slowSyncFS{FS: faultfs.New(), syncing: make(chan struct{}), result: make(chan error), wrote: make(chan struct{}, 1)}
	l, _, err := ulog.Open(crashDir, ulog.Position{}, ulog.Place{}, ulog.Options{FS: slow, SegmentBytes: 8 << 10}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &appender{t: t, log: l}
	a.add(1, 10, false)
	slow.armed.Store(true)
	synced, written := make(chan error, 1), make(chan error, 1)
	go func() { synced <- l.Sync() }()
	<-slow.syncing
	select {
	case <-slow.wrote:
	default:
	}
	a.stage("head", "body")
	batch := l.Take()
	go func() { written <- l.Write(batch, true) }()
	<-slow.wrote
	slow.result <- syscall.EIO
	for op, c := range map[string]chan error{"Sync": synced, "Write": written} {
		if err := <-c; !errors.Is(err, ulog.ErrFailed) || !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: got %v, want %v and %v", op, err, ulog.ErrFailed, syscall.EIO)
		}
	}
	if got := l.Synced(); got != 0 {
		t.Errorf("Synced: got %d, want 0", got)
	}
}

// TestCutFramesStayDead loses one of three records that were never synced, and writes the same one again: the two behind it,
// which continue it, were cut and must not be there again.
func TestCutFramesStayDead(t *testing.T) {
	for _, full := range []bool{false, true} {
		fs := faultfs.New()
		l, _, err := ulog.Open(crashDir, ulog.Position{}, ulog.Place{}, ulog.Options{FS: fs, SegmentBytes: 8 << 10}, nil)
		if err != nil {
			t.Fatal(err)
		}
		a := &appender{t: t, log: l}
		a.add(3, 100, false)
		fs = fs.Clone()
		edit(t, fs, name(1), zero(4136, 4200))
		if full {
			fs.SetSpace(0)
		}
		l, rec, err := ulog.Open(crashDir, ulog.Position{}, ulog.Place{}, ulog.Options{FS: fs, SegmentBytes: 8 << 10}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if rec.CutFrames != 2 || rec.CutOffset != 4136 || rec.CutFile != name(1) {
			t.Errorf("full %v: got %+v, want 2 frames cut", full, rec)
		}
		b := &appender{t: t, log: l}
		b.add(1, 100, true)
		if b.wrote[0] != a.wrote[0] {
			t.Fatalf("the record is not the same: %v, %v", b.wrote[0], a.wrote[0])
		}
		got, _, _, err := recoverLog(fs, ulog.Position{}, ulog.Place{})
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, b.wrote)
	}
}

// TestRestartsDoNotPileUp opens a log again and again without writing.
func TestRestartsDoNotPileUp(t *testing.T) {
	for _, seal := range []bool{true, false} {
		fs, a := faultLog(t)
		want := len(a.log.Segments()) + 2 // the current one and a spare
		for range 10 {
			l, _, err := ulog.Open(crashDir, ulog.Position{}, ulog.Place{}, ulog.Options{FS: fs, SegmentBytes: 8 << 10}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Prepare(); err != nil {
				t.Fatal(err)
			}
			if seal {
				if err := l.Seal(); err != nil {
					t.Fatal(err)
				}
			}
			if got := len(l.Segments()); got > want {
				t.Errorf("seal %v: got %d segments, want at most %d", seal, got, want)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
