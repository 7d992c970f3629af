package storage

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// A full disk is refused at the door, while there is room to keep the log whole: enqueues get ErrDiskFull as soon as
// the spare segment can't be had or the disk's free space falls below a mark. Acks go on in the segments that are there
// already. It clears by itself.

// keptRoom is the room in the log that enqueues leave to acks and to the store's own records, bytes.
func (s *Store) keptRoom() int64 { return min(8<<20, s.opts.SegmentBytes/4) }

// roomFor is how much room in the log the door asks for before it takes a body of n bytes: others may be on their way in.
func (s *Store) roomFor(n int) int64 { return s.keptRoom() + s.opts.SegmentBytes/64 + int64(n) }

// makeRoom sees to it that the log has room for a body of n bytes without any allocation that could fail.
func (s *Store) makeRoom(n int) error {
	if s.ulog.Room() > s.roomFor(n) {
		return nil
	}
	if int64(n) > s.opts.SegmentBytes/2 { // it takes a segment of its own
		err := s.ulog.PrepareFor(int64(n) + s.roomFor(0))
		if errors.Is(err, syscall.ENOSPC) {
			return ErrDiskFull
		}
		return err
	}
	s.prepare()
	if s.full.Load() {
		return s.Writable() // ErrDiskFull, or a better reason
	}
	return nil
}

// roomToAck waits a moment for the checkpoint to free a segment when a full disk has left no room for a small record.
func (s *Store) roomToAck() error {
	if !s.full.Load() {
		return nil
	}
	timeout := time.After(ackPatience)
	for s.full.Load() {
		s.mu.Lock()
		ok, room := s.roomToAckLocked(), s.room
		s.mu.Unlock()
		if ok {
			return nil
		}
		s.pokeCheckpoint()
		select {
		case <-room:
		case <-timeout:
			return ErrDiskFull
		}
	}
	return nil
}

const ackPatience = 2 * time.Second

// roomToAckLocked says whether a small record may be written: on a full disk the last bit is kept for the store's own.
func (s *Store) roomToAckLocked() bool {
	return !s.full.Load() || s.ulog.Room() > s.keptRoom()/8
}

// prepare makes the log's spare segment.
func (s *Store) prepare() {
	err := s.ulog.Prepare()
	if errors.Is(err, syscall.ENOSPC) {
		s.setFull(true, err)
	} else if err != nil && s.Err() == nil {
		s.log.Warn("no spare segment of the update log", "err", err)
	}
}

// watchDisk looks at the disk's free space, and at whether a spare segment can be had again.
func (s *Store) watchDisk() {
	err := s.ulog.Prepare()
	if errors.Is(err, syscall.ENOSPC) {
		s.setFull(true, err)
		return
	}
	free, total, err := diskSpace(s.dir)
	if err != nil {
		return
	}
	s.mu.Lock()
	fresh := s.ix.FreshBytes()
	s.mu.Unlock()
	file, used := s.tree.Size()
	budget := free - min(s.opts.MinFreeDisk, total/16) - max(0, treeRoom(fresh, total)-(file-used))
	s.diskBudget.Store(budget)
	s.setFull(budget < 0, errLowDisk)
}

// spendDisk counts a body of n bytes, with what it costs in the log and in the tree, against the free space that was seen
// last, and looks again when that is used up.
func (s *Store) spendDisk(n int) {
	if s.diskBudget.Add(-(int64(n)+rowCost)*5/2) < 0 {
		s.watchDisk()
	}
}

const rowCost = 80 // of a message beside its body, bytes, about

// treeRoom is what the tree may need of a disk of total bytes to take in fresh bytes of messages and let the log go.
func treeRoom(fresh, total int64) int64 {
	return min(2*strideBytes, total/16) + fresh + fresh/2
}

var errLowDisk = errors.New("little free space")

func (s *Store) setFull(full bool, cause error) {
	if s.full.Swap(full) == full {
		return
	}
	if full {
		s.log.Error("disk full: enqueues are refused until there is room, reserving and acking go on", "dir", s.dir, "cause", cause)
		s.mu.Lock()
		s.freedLocked() // who waits for memory is told
		s.mu.Unlock()
		s.pokeCheckpoint() // what it has taken in frees segments of the log
		return
	}
	s.log.Info("disk has room again: enqueues are taken", "dir", s.dir)
}

// noRoomToRecover says how much a start on a full disk is short of.
func (s *Store) noRoomToRecover(err error) error {
	need := s.ulog.End().Offset + int64(s.ulog.End().Segment-s.cp.Place.Segment)*s.opts.SegmentBytes
	free, _, _ := diskSpace(s.dir)
	return fmt.Errorf("%w: recovery of %s may need %d MiB and %d MiB are free; make room and start again, nothing is lost: %w",
		ErrDiskFull, s.dir, (need+need/2)>>20+1, free>>20, err)
}
