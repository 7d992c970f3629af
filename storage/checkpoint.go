package storage

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"qserver/storage/queue"
	"qserver/storage/tree"
)

// The checkpoint follows the log: it reads records behind the tree's position, some megabytes at a time, and writes
// what they make of the tree in one transaction with the new position (I6). It needs no picture of the index and takes
// the store's lock for moments only. It stays behind the log's end while there is memory, so that a message which is
// acked soon never touches the tree, and catches up when the server is idle.

const (
	strideBytes    = 8 << 20   // of bodies in one transaction
	strideLeast    = 64 << 10  // the same on a full disk
	recoveryStride = 32 << 20  // the same while nothing else needs the memory
	strideRecords  = 100_000   // at most in one transaction
	goneMax        = 128 << 10 // acks of messages in the tree that are remembered until it has them
	settleBatch    = 512       // messages looked at under one lock
	sweepRows      = 20_000    // purged rows deleted in one transaction
	promotedMax    = 50_000    // rows moved in one transaction
	countsBatch    = 10_000    // counts of deliveries written down at once
	trickle        = 200       // records a second that a quiet server may take
	idleAfter      = 2 * time.Second
	restEvery      = 10 * time.Second // of a server that is quiet and not idle
)

func (s *Store) pokeCheckpoint() {
	select {
	case s.pokes.checkpoint <- struct{}{}:
	default:
	}
}

// pressureLocked keeps memory within its budget: bodies leave at half of it, the checkpoint runs from five eighths on until
// half is reached.
func (s *Store) pressureLocked() {
	s.ix.DropBodies(s.opts.Memory / 2)
	n := s.ix.Bytes()
	s.memoryBytes.Store(n)
	if s.dueLocked(n > s.opts.Memory/8*5, goneMax, s.opts.SegmentBytes) {
		s.pokeCheckpoint()
	}
}

// dueLocked says whether the checkpoint is due: memory is short, too many acks wait for the tree, or the log is longer than
// it should be. As long as most of it is live messages it may be three times as long: who drains a backlog soon spares
// the tree.
func (s *Store) dueLocked(memoryShort bool, gone int, length int64) bool {
	behind := s.behindLocked()
	return memoryShort || s.full.Load() && behind > 0 || s.ix.Gone() > gone || behind > 3*length || behind > length && s.ix.FreshBytes() < behind/2
}

// behindLocked is how many bytes of the log, about, the tree does not have.
func (s *Store) behindLocked() int64 {
	end := s.ulog.End()
	return int64(end.Segment-s.treePlace.Segment)*s.opts.SegmentBytes + end.Offset - s.treePlace.Offset
}

func (s *Store) checkpointLoop(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last uint64       // LSN at the last tick
	busy := time.Now()    // when more than a trickle came in
	changed := time.Now() // when anything did
	rested := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.failed:
			return
		case <-s.pokes.checkpoint:
			s.relieve(ctx)
			continue
		case <-tick.C:
		}
		if s.full.Load() {
			s.relieve(ctx)
			s.strides.Lock()
			s.shrink()
			s.strides.Unlock()
		}
		now, lsn := time.Now(), s.applied.Load()
		if lsn != last {
			changed = now
		}
		if lsn-last > trickle {
			busy = now
		}
		last = lsn
		idle := now.Sub(changed) > idleAfter
		if idle || now.Sub(busy) > idleAfter && now.Sub(rested) > restEvery {
			s.rest(ctx)
			rested = now
		}
		if idle {
			s.seal()
		}
	}
}

// relieve runs the checkpoint until memory and log are well below the marks that started it.
func (s *Store) relieve(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		enough := !s.dueLocked(s.ix.Bytes() > s.opts.Memory/2, goneMax/4, s.opts.SegmentBytes/8*7)
		if enough {
			s.exhausted = false
			s.freedLocked()
		}
		s.mu.Unlock()
		if enough {
			return
		}
		more, err := s.checkpoint(ctx, s.applied.Load())
		if err != nil {
			s.checkpointFailed(ctx, err)
			return
		}
		if !more && !s.evict() {
			return
		}
	}
}

// evict lets go of what memory only holds in case it is wanted soon. It says whether another checkpoint may free more: counts
// of deliveries have to be written down first.
func (s *Store) evict() (more bool) {
	s.lockIndex()
	defer s.unlockIndex()
	s.ix.EvictWarm(s.opts.Memory/8*3, s.limits())
	if s.ix.Bytes() > s.opts.Memory/2 && s.err == nil && !s.closed && s.master == "" {
		for _, op := range s.ix.UnsavedCounts(countsBatch) {
			s.actor.stage(&op, nil)
			s.pokeTime()
			more = true
		}
	}
	n := s.ix.Bytes()
	s.memoryBytes.Store(n)
	more = more || n >= s.opts.Memory && s.treeLSN < s.applied.Load() // others came meanwhile
	s.exhausted = n >= s.opts.Memory && !more
	s.freedLocked()
	return more
}

// rest uses a quiet moment: the tree catches up, a mostly empty file shrinks.
func (s *Store) rest(ctx context.Context) {
	if s.ulog.Written().LSN != s.cpLSN() || s.sweeping() {
		if err := s.checkpointAll(ctx); err != nil {
			s.checkpointFailed(ctx, err)
			return
		}
	}
	s.strides.Lock()
	defer s.strides.Unlock()
	s.scratch = nil // a quiet server needs none
	s.shrink()
}

func (s *Store) cpLSN() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.treeLSN
}

func (s *Store) sweeping() bool {
	s.strides.Lock()
	defer s.strides.Unlock()
	return len(s.sweeps) > 0
}

// checkpointFailed rolls on: a failed checkpoint is not final. Want of space refuses enqueues until it is over.
func (s *Store) checkpointFailed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	switch {
	case errors.Is(err, syscall.ENOSPC):
		s.setFull(true, err)
	case errors.Is(classify(err), ErrDamaged):
		_ = s.damage(err) // told once
	default:
		s.log.Error("checkpoint failed; it is tried again", "err", err)
	}
	select {
	case <-ctx.Done():
	case <-s.failed:
	case <-time.After(time.Second):
	}
}

// checkpointAll brings the tree up to what is applied now, and sweeps what is purged.
func (s *Store) checkpointAll(ctx context.Context) error {
	end := s.applied.Load()
	for ctx.Err() == nil {
		more, err := s.checkpoint(ctx, end)
		if err != nil || !more && !s.sweeping() {
			return err
		}
	}
	return ctx.Err()
}

// checkpoint takes one stride towards end, the LSN of an applied record, and says whether more are needed.
func (s *Store) checkpoint(ctx context.Context, end uint64) (more bool, err error) {
	s.strides.Lock()
	defer s.strides.Unlock()
	s.mu.Lock()
	promoted := s.ix.Promoted()
	s.mu.Unlock()
	if s.cp.Position.LSN >= end && len(s.sweeps) == 0 && promoted == 0 {
		return false, nil
	}
	d := s.newStride()
	defer d.reset()
	s.mu.Lock()
	var known uint64
	d.dead, known = s.ix.BeginStride(d.cp.NextID)
	d.moved = s.ix.TakePromoted(promotedMax)
	s.mu.Unlock()
	// Dead messages never touch the tree. That they are dead must be on the disk first, or a power cut could leave a count
	// without its message.
	if s.ulog.Synced() < known {
		err = s.Sync()
	}
	if err == nil {
		err = s.stride(d, end, s.strideMax)
	}
	if err != nil {
		s.mu.Lock()
		s.ix.NotMoved(d.moved)
		s.mu.Unlock()
		if errors.Is(err, syscall.ENOSPC) && s.strideMax > strideLeast {
			s.strideMax /= 2 // a smaller one may find room, and free some
			return true, nil
		}
		return false, err
	}
	s.strideMax = min(2*s.strideMax, strideBytes)
	s.advanced(d)
	return s.cp.Position.LSN < end, nil
}

// newStride returns a stride that begins where the tree stands. Its scratch is the store's: reset it when it is done.
func (s *Store) newStride() *stride {
	if s.scratch == nil {
		s.scratch = new(scratch)
	}
	return &stride{cp: s.cp, now: time.Now().UnixMilli(), scratch: s.scratch}
}

// stride writes records up to end, or until their bodies are maxBytes, and a part of what is to be swept, into the tree.
func (s *Store) stride(d *stride, end uint64, maxBytes int64) error {
	if s.reader == nil {
		if err := s.reread(); err != nil {
			return fmt.Errorf("read update log: %w", err)
		}
	}
	swept := make(map[uint32][]byte)
	err := s.tree.Update(func(tx *tree.Tx) error {
		if err := d.read(tx, s.reader, end, maxBytes); err != nil {
			return err
		}
		if err := d.write(); err != nil {
			return err
		}
		for num, q := range d.queues {
			if _, known := s.sweeps[num]; q.sweep && (q.purged || !known) {
				s.sweeps[num] = nil // from its first row on
			}
		}
		return s.sweep(tx, swept)
	})
	if err != nil { // what was read of the log is read again next time
		return errors.Join(err, s.dropReader())
	}
	for num, from := range swept {
		if from == nil {
			delete(s.sweeps, num)
		} else {
			s.sweeps[num] = from
		}
	}
	s.cp = d.cp
	s.cp.LSN = s.cp.Position.LSN
	return nil
}

// reread takes a reader of the log to where the tree stands.
func (s *Store) reread() (err error) {
	s.reader, err = s.ulog.NewReader(s.cp.Position, s.cp.Place)
	if err != nil {
		s.reader = nil
	}
	return err
}

func (s *Store) dropReader() error {
	r := s.reader
	s.reader = nil
	return r.Close()
}

// advanced tells the index that the tree has the stride, lets go of what it need not keep in memory, and of the log.
func (s *Store) advanced(d *stride) {
	s.checkpoints.Add(1)
	s.lockIndex()
	s.epoch++
	s.treeLSN, s.treePlace = s.cp.Position.LSN, s.cp.Place
	s.ix.TreeAdvanced(s.treeLSN, s.cp.NextID)
	s.ix.Moved(d.moved)
	s.unlockIndex()
	for done := false; !done; {
		s.lockIndex()
		done = s.ix.Settle(settleBatch, s.limits())
		s.memoryBytes.Store(s.ix.Bytes())
		s.unlockIndex()
	}
	s.mu.Lock()
	s.freedLocked()
	s.mu.Unlock()
	if err := s.releaseLog(s.cp.Place); err != nil {
		s.log.Warn("segment of the update log not released", "err", err)
	}
	s.prepare()
	s.tree.DropPages()
}

func (s *Store) limits() queue.Limits {
	return queue.Limits{Window: s.opts.Window, Bytes: s.opts.Memory / 4, Timed: 8 * s.opts.Window}
}

// shrink rewrites the tree when it is mostly empty.
func (s *Store) shrink() {
	file, used := s.tree.Size()
	least := int64(shrinkFrom)
	if s.full.Load() {
		least /= 32
	}
	if file < least || used > file/4 {
		return
	}
	if err := s.tree.Shrink(); err != nil {
		s.log.Warn("tree not shrunk; it is tried again", "err", err)
		return
	}
	after, _ := s.tree.Size()
	s.log.Info("tree shrunk", "before", file, "after", after)
}

const shrinkFrom = 32 << 20 // bytes; a smaller file is left as it is

// Checkpoint brings the tree up to the log's end as of now.
func (s *Store) Checkpoint(ctx context.Context) error {
	if err := s.flush(); err != nil {
		return err
	}
	return s.checkpointAll(ctx)
}

// CopyTo checkpoints and writes a consistent copy of the tree to path.
func (s *Store) CopyTo(ctx context.Context, path string) error {
	if err := s.Checkpoint(ctx); err != nil {
		return err
	}
	return s.tree.CopyFile(path)
}
