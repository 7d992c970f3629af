package storage

import (
	"errors"
	"syscall"
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
	s.setFull(free < min(s.opts.MinFreeDisk, total/16), errLowDisk)
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
		return
	}
	s.log.Info("disk has room again: enqueues are taken", "dir", s.dir)
}
