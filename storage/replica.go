package storage

import (
	"errors"
	"fmt"
	"syscall"

	"qserver/storage/ulog"
)

// The slave's side: the master's records, byte for byte, go the way of every record. They are staged, written to this
// store's own log, applied in order; the position they lead to must be the master's.

// ErrNotFollowing is returned by ApplyMaster of a store that leads.
var ErrNotFollowing = errors.New("this node leads: it takes no records of another")

// Position returns where the store stands: behind the last record that is in its log and applied.
func (s *Store) Position() ulog.Position {
	p := s.ulog.Written()
	if p.LSN > s.applied.Load() { // written this moment
		s.mu.Lock()
		defer s.mu.Unlock()
		for p.LSN > s.applied.Load() && s.err == nil {
			f := follower{lsn: p.LSN, wake: make(chan struct{}, 1)}
			s.mu.Unlock()
			_ = s.commitWrite(&f)
			s.mu.Lock()
		}
	}
	return p
}

// NeedsCopy says that a repair has left records out of this slave: only a copy of its master's tree makes it whole.
func (s *Store) NeedsCopy() bool { return s.gapped }

// Durable is the LSN up to which the log is safe as the sync mode promises: on the disk, or written in a mode that lets the
// disk come later.
func (s *Store) Durable() uint64 {
	if s.opts.Sync.lazy() {
		return s.applied.Load()
	}
	return s.ulog.Synced()
}

// MakeDurable waits until what is applied is safe as the sync mode promises, and returns Durable.
func (s *Store) MakeDurable() (uint64, error) {
	if !s.opts.Sync.lazy() {
		if err := s.Sync(); err != nil {
			return 0, err
		}
	}
	return s.Durable(), nil
}

// ApplyMaster takes a run of the master's records: when it returns nil they are in the log (written; MakeDurable syncs) and
// applied. The batch must follow Position. Calls take turns. Errors: ErrNotFollowing, ErrStream for a batch that doesn't
// follow, ErrDiskFull, ErrNoMemory, ErrClosed, and the log's failure. It may block while memory waits for a checkpoint.
func (s *Store) ApplyMaster(b *Batch) error {
	s.follows.Lock()
	defer s.follows.Unlock()
	for from := 0; from < len(b.ops); {
		to, n := s.portion(b, from)
		if err := s.admitRecords(n); err != nil {
			return err
		}
		if err := s.applyPortion(b, from, to); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// portion returns the end of the records from `from` on that are staged at once, and what they take in the log.
func (s *Store) portion(b *Batch, from int) (to int, bytes int64) {
	most := min(portionBytes, s.opts.SegmentBytes/8)
	for to = from; to < len(b.records); to++ {
		r := &b.records[to]
		n := int64(len(r.head) + len(r.body) + recordCost)
		if to > from && bytes+n > most {
			break
		}
		bytes += n
	}
	return to, bytes
}

const (
	portionBytes = 1 << 20
	recordCost   = 40 // of a record in the log beside head and body, bytes
)

func (s *Store) applyPortion(b *Batch, from, to int) error {
	s.lockIndex()
	err := s.err
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrFailed, err)
	case s.closed:
		err = ErrClosed
	case s.master == "":
		err = ErrNotFollowing
	case from == 0 && s.ulog.Staged() != b.After:
		err = fmt.Errorf("%w: they follow LSN %d with sum %08x, and this log stands at LSN %d with sum %08x", ErrStream,
			b.After.LSN, b.After.Chain, s.ulog.Staged().LSN, s.ulog.Staged().Chain)
	}
	if err != nil {
		s.unlockIndex()
		return err
	}
	for i := from; i < to; i++ {
		op, r := &b.ops[i], &b.records[i]
		s.stageHeadLocked(op, r.head, r.body)
		if op.Due != 0 {
			s.nextAtLocked(op.Due)
		}
	}
	f := follower{lsn: s.staged, wake: s.actor.rec.wake}
	s.unlockIndex()
	return s.commitWrite(&f)
}

// noRoom makes a full disk what it is to callers.
func noRoom(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return ErrDiskFull
	}
	return err
}

// admitRecords waits until memory and log have room for records that take n bytes in the log.
func (s *Store) admitRecords(n int64) error {
	s.spendDisk(int(n))
	if s.ulog.Room() <= s.roomFor(int(n)) {
		if n > s.opts.SegmentBytes/2 {
			if err := s.ulog.PrepareFor(n + s.roomFor(0)); err != nil {
				return noRoom(err)
			}
		}
		s.prepare()
	}
	for {
		s.mu.Lock()
		err, closed, room := s.err, s.closed, s.room
		free, exhausted := s.ix.Bytes() < s.opts.Memory, s.exhausted
		s.mu.Unlock()
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", ErrFailed, err)
		case closed:
			return ErrClosed
		case s.full.Load():
			return ErrDiskFull
		case free:
			return nil
		case exhausted:
			return ErrNoMemory
		}
		s.pokeCheckpoint()
		<-room
	}
}

// AppliedLSN is the LSN of the last record that is applied.
func (s *Store) AppliedLSN() uint64 { return s.applied.Load() }
