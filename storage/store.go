package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"qserver/storage/queue"
	"qserver/storage/tree"
	"qserver/storage/ulog"
)

// Store is an open data folder. Its methods are safe for concurrent use.
type Store struct {
	dir   string
	opts  Options
	log   *slog.Logger
	lock  *folderLock
	tree  *tree.Tree
	ulog  *ulog.Log
	start time.Time

	mu        sync.Mutex // guards everything down to the blank line; memory work only
	ix        *queue.Index
	open      *batch    // what was staged and is not being written
	spare     *batch    // to be the next open
	writing   bool      // a leader writes
	syncing   bool      // another syncs
	writers   followers // who wait for the one
	syncers   followers // and for the other
	head      []byte    // scratch for a record's head
	err       error     // the log's failure: final
	closed    bool
	staged    uint64 // LSN of the last staged record
	epoch     uint64 // counts the tree's advances
	treeLSN   uint64 // where the tree stands
	treePlace ulog.Place
	syncPoked ulog.Place    // the log's end when syncLoop was last poked
	room      chan struct{} // closed when memory was freed
	wakes     []*queue.Waiter
	sessions  int64
	master    string // whom this store follows; "": it leads
	heldLimit int64
	nextWake  int64 // Unix ms when the timekeeper runs again
	damaged   error // what could not be read, until a restart
	exhausted bool  // memory is used up by what can't leave it

	applied     atomic.Uint64
	memoryBytes atomic.Int64
	full        atomic.Bool  // no room on the disk: enqueues are refused
	diskBudget  atomic.Int64 // bytes that may be enqueued before the disk is looked at again
	syncs       atomic.Int64
	checkpoints atomic.Int64

	failed  chan struct{}
	pokes   struct{ time, checkpoint, sync chan struct{} }
	refills sync.Mutex // one refill at a time: windows are filled by whoever needs them
	mapped  int64      // bytes read from the tree since its pages were given back; guarded by refills
	strides sync.Mutex // guards the tree's writing side: one stride at a time
	reader  *ulog.Reader
	sweeps  map[uint32][]byte // queues with purged rows in the tree: where to go on; guarded by strides
	cp      checkpoint        // where the tree stands; guarded by strides
	scratch *scratch          // guarded by strides

	strideMax int64 // bytes of bodies in one transaction; smaller after want of space; guarded by strides

	history [16]byte   // set by recover
	gapped  bool       // set by recover: it follows, and records are missing
	follows sync.Mutex // one run of the master's records at a time
	feeds   feeds
	kept    kept
	quorum  quorum

	actor  *Session // the store's own records: expiry, receipts, purges
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Open recovers the store in dir, creating it if need be. Errors wrap ErrInUse, ErrDamaged or ErrNewerFormat.
func Open(dir string, o Options) (*Store, error) {
	s, err := openStill(dir, o)
	if err != nil {
		return nil, err
	}
	s.keepTime() // what came due while nothing ran is ready before anyone looks
	if err := s.flush(); err != nil {
		return nil, errors.Join(classify(err), s.closeFiles())
	}
	s.run()
	return s, nil
}

// openStill is Open without what the store does by itself.
func openStill(dir string, o Options) (*Store, error) {
	o.setDefaults()
	s := &Store{dir: dir, opts: o, log: o.Log, start: time.Now(), failed: make(chan struct{}), room: make(chan struct{}),
		open: new(batch), spare: new(batch), ix: queue.NewIndex(),
		sweeps: make(map[uint32][]byte), strideMax: strideBytes}
	s.quorum.away.Store(true)
	s.pokes.time, s.pokes.checkpoint, s.pokes.sync = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	if err := s.recover(); err != nil {
		s.closeFiles()
		return nil, classify(err)
	}
	s.cancel = func() {}
	return s, nil
}

// run starts what the store does by itself.
func (s *Store) run() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.wg.Go(func() { s.timeLoop(ctx) })
	s.wg.Go(func() { s.checkpointLoop(ctx) })
	if s.opts.Sync.lazy() {
		s.wg.Go(func() { s.syncLoop(ctx) })
	}
}

// zeroAhead is how far ahead of the records the log writes zeros: a server whose clients wait for syncs has them cheaper
// then, the others would write twice for nothing.
func (o *Options) zeroAhead() int64 {
	if o.Sync.lazy() {
		return 0
	}
	return 1 << 20
}

func (o *Options) setDefaults() {
	def := func(p *int64, v int64) {
		if *p == 0 {
			*p = v
		}
	}
	def(&o.SegmentBytes, ulog.DefaultSegmentBytes)
	def(&o.Memory, 256<<20)
	def(&o.MinFreeDisk, 64<<20)
	def(&o.LogKeep, 4<<30)
	def((*int64)(&o.SyncInterval), int64(time.Second))
	def((*int64)(&o.MinSlavesTimeout), int64(time.Second))
	def((*int64)(&o.DedupWindow), int64(2*time.Minute))
	def((*int64)(&o.ForgetAfter), int64(10*time.Minute))
	if o.Window == 0 {
		o.Window = 1024
	}
	if o.MaxHeld == 0 {
		o.MaxHeld = 10000
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	if o.FS == nil {
		o.FS = ulog.OS{}
	}
}

func (s *Store) treePath() string { return filepath.Join(s.dir, "tree") }
func (s *Store) logPath() string  { return filepath.Join(s.dir, "ulog") }

// fail makes the log's failure final (I7).
func (s *Store) failLocked(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	s.ix.EndWaits()
	close(s.failed)
	s.freedLocked()
	s.log.Error("update log failed: nothing more is accepted; restart to recover", "err", err)
}

// freedLocked wakes the enqueues that wait for memory.
func (s *Store) freedLocked() {
	close(s.room)
	s.room = make(chan struct{})
}

// Failed is closed when the log failed for good (a failed write or sync): nothing is accepted any more. Err says why.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// Err is nil until the log has failed.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Writable is nil when an enqueue would be taken; else ErrDiskFull, ErrFewSlaves, ErrClosed, a ReadOnlyError or the log's failure.
func (s *Store) Writable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writableLocked()
}

func (s *Store) writableLocked() error {
	switch {
	case s.err != nil:
		return fmt.Errorf("%w: %w", ErrFailed, s.err)
	case s.closed:
		return ErrClosed
	case s.master != "":
		return &ReadOnlyError{s.master}
	case s.full.Load():
		return ErrDiskFull
	case s.alone():
		return ErrFewSlaves
	}
	return nil
}

// EndWaits makes every present and later Wait end with nothing, and Reserve find nothing: gets answer END.
func (s *Store) EndWaits() {
	s.lockIndex()
	s.ix.EndWaits()
	s.unlockIndex()
}

// Held is how many messages sessions hold without a lease.
func (s *Store) Held() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ix.Unleased()
}

// Close writes the last checkpoint, seals and closes the files; what sessions hold is ready at the next start. Idempotent.
func (s *Store) Close() error {
	s.lockIndex()
	if s.closed {
		s.unlockIndex()
		return nil
	}
	s.ix.EndWaits()
	if s.err == nil && s.master == "" {
		for _, op := range s.ix.UnsavedCounts(1<<31 - 1) {
			s.actor.stage(&op, nil)
		}
	}
	s.closed = true
	s.freedLocked()
	failure := s.err
	s.unlockIndex()

	s.cancel()
	s.wg.Wait()
	err := failure
	if failure == nil {
		err = errors.Join(s.flush(), s.lastCheckpoint(), s.kept.save())
	}
	return errors.Join(err, s.closeFiles())
}

// lastCheckpoint brings the tree up to the log's end and seals the log.
func (s *Store) lastCheckpoint() error {
	err := s.checkpointAll(context.Background())
	if errors.Is(err, syscall.ENOSPC) {
		s.log.Warn("no room for the last checkpoint: the next start makes it, and needs the room then", "err", err)
	} else if err != nil {
		return fmt.Errorf("last checkpoint: %w", err)
	}
	if err := s.ulog.Seal(); err != nil {
		return fmt.Errorf("seal update log: %w", err)
	}
	return nil
}

func (s *Store) closeFiles() error {
	var errs []error
	if s.reader != nil {
		errs = append(errs, s.reader.Close())
	}
	if s.ulog != nil {
		errs = append(errs, s.ulog.Close())
	}
	if s.tree != nil {
		errs = append(errs, s.tree.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}
