package storage

import (
	"errors"
	"syscall"
)

// A full disk is refused at the door, while there is room to keep the log whole: enqueues get ErrDiskFull as soon as
// the spare segment can't be had or the disk's free space falls below a mark. Acks go on in the segments that are there
// already. It clears by itself.

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
