package storage

import (
	"fmt"

	"qserver/storage/queue"
)

// Group commit without timers. A record is staged under the store's lock: from then on its place in the order is fixed
// and the door sees it. Whoever needs its outcome calls Commit, which has two steps.
//
// Write and apply: the first to come becomes the leader. It takes all that was staged, writes it in one go, applies it in order
// (I5) and wakes the others. What is staged meanwhile is the next batch, and one who waits for it is woken to lead that. So an
// uncontended commit is done by the goroutine that wants it, without any hand-off.
//
// Sync, for those whose records the mode wants on the disk: again one does it for all who wait, after it has written what is
// staged; who comes meanwhile waits for the next. An ack that needs no sync never waits for one, and a message is handed to a
// consumer while its producer still waits; only the answer needs the disk (I4).
//
// The contract that anything in place of the update log must keep: records are applied in the order in which they
// were staged; the door's view holds all staged ones; after an error the outcome of what was not answered is unknown, and
// nothing more is accepted.

// batch is what one write carries.
type batch struct{ ops []queue.Op }

// follower is someone who waits for records.
type follower struct {
	lsn   uint64        // to be applied up to here
	sync  uint64        // and to be on the disk up to here
	share uint64        // and to be on the disks of slaves up to here
	wake  chan struct{} // capacity 1: the leader never waits to wake
}

// followers are those who wait while another leads, in order.
type followers []*follower

// take returns those who have what they wait for, or all of them if the log has failed, and if others are left the first
// of these: it leads next.
func (q *followers) take(have func(*follower) bool, failed bool) (woken []*follower) {
	rest := (*q)[:0]
	lead := false
	for _, f := range *q {
		switch {
		case failed || have(f):
			woken = append(woken, f)
		case !lead:
			lead = true
			woken = append(woken, f)
		default:
			rest = append(rest, f)
		}
	}
	clear((*q)[len(rest):])
	*q = rest
	return woken
}

func wake(fs []*follower) {
	for _, f := range fs {
		f.wake <- struct{}{}
	}
}

// stageLocked fixes op's place in the order. body is the record's body, which must not change any more.
func (s *Store) stageLocked(op *queue.Op, body []byte) {
	s.head = queue.AppendHead(s.head[:0], op)
	s.stageHeadLocked(op, s.head, body)
}

// stageHeadLocked is stageLocked for a record whose head is encoded: a master's is kept byte for byte.
func (s *Store) stageHeadLocked(op *queue.Op, head, body []byte) {
	pos, place := s.ulog.Stage(head, body, op.BodySum)
	op.LSN, op.Segment, op.Offset = pos.LSN, uint32(place.Segment), uint32(place.Offset)
	s.staged = op.LSN
	s.open.ops = append(s.open.ops, *op)
}

// mustSync says whether a record of this kind must be on the disk before it is answered. Receipts are so in every mode, since
// none is given twice.
func (s *Store) mustSync(kind queue.Kind) bool {
	switch kind {
	case queue.KindReceipts, queue.KindEpoch:
		return true
	case queue.KindEnqueue, queue.KindReplace, queue.KindPurge:
		return s.opts.Sync == SyncEnqueue || s.opts.Sync == SyncAlways
	}
	return s.opts.Sync == SyncAlways
}

// commit waits until every record of f is applied, and durable as the mode promises.
func (s *Store) commit(f *follower) error {
	if err := s.commitSync(f); err != nil {
		return err
	}
	return s.commitWrite(f)
}

// commitWrite waits until every record up to f.lsn is written and applied.
func (s *Store) commitWrite(f *follower) error {
	if s.applied.Load() >= f.lsn {
		return nil
	}
	s.mu.Lock()
	for s.applied.Load() < f.lsn {
		if s.err != nil {
			return s.unknownLocked()
		}
		if s.writing {
			s.writers = append(s.writers, f)
			s.mu.Unlock()
			<-f.wake
			s.mu.Lock()
			continue
		}
		s.leadLocked()
	}
	s.mu.Unlock()
	return nil
}

// commitSync waits until the log is on the disk up to f.sync. Who leads writes all that is staged first; who waits for the
// next sync need not write before.
func (s *Store) commitSync(f *follower) error {
	if s.ulog.Synced() >= f.sync {
		return nil
	}
	s.mu.Lock()
	for s.ulog.Synced() < f.sync {
		if s.err != nil {
			return s.unknownLocked()
		}
		if s.syncing {
			s.syncers = append(s.syncers, f)
			s.mu.Unlock()
			<-f.wake
			s.mu.Lock()
			continue
		}
		s.syncing = true
		staged := follower{lsn: s.staged, wake: f.wake}
		s.mu.Unlock()
		err := s.commitWrite(&staged)
		if err == nil {
			err = s.syncLog()
		}
		s.lockIndex()
		s.syncing = false
		if err != nil {
			s.failLocked(err)
		}
		woken := s.syncers.take(func(f *follower) bool { return f.sync <= s.ulog.Synced() }, s.err != nil)
		s.unlockIndex()
		wake(woken)
		s.tellFeeds()
		s.mu.Lock()
	}
	s.mu.Unlock()
	return nil
}

// unknownLocked returns the error for records whose outcome nobody knows, and gives up the lock.
func (s *Store) unknownLocked() error {
	err := s.err
	s.mu.Unlock()
	return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
}

// syncLog is one sync for all that was written before it.
func (s *Store) syncLog() error {
	s.syncs.Add(1)
	return s.ulog.Sync()
}

// leadLocked writes and applies what is staged. It gives up the lock meanwhile and has it again at the end.
func (s *Store) leadLocked() {
	b, lb := s.open, s.ulog.Take()
	s.open, s.spare = s.spare, nil
	s.writing = true
	s.mu.Unlock()
	var err error
	if lb != nil {
		err = s.ulog.Write(lb, false)
	}
	s.lockIndex()
	s.writing = false
	if err != nil {
		s.failLocked(err)
	} else {
		for i := range b.ops {
			s.ix.Apply(&b.ops[i])
		}
		if n := len(b.ops); n > 0 {
			s.applied.Store(b.ops[n-1].LSN)
		}
	}
	clear(b.ops)
	b.ops = b.ops[:0]
	if cap(b.ops) > 1<<14 {
		b.ops = nil
	}
	s.spare = b
	s.pressureLocked()
	s.pokeSyncLocked()
	woken := s.takeWritersLocked()
	s.unlockIndex()
	wake(woken)
	s.tellWritten()
	s.mu.Lock()
}

func (s *Store) takeWritersLocked() []*follower {
	if len(s.writers) == 0 {
		return nil
	}
	applied := s.applied.Load()
	return s.writers.take(func(f *follower) bool { return f.lsn <= applied }, s.err != nil)
}

// seal bounds the log's tail when nothing has been written for a while: what lies before the seal can't be taken for a
// torn write. It takes the leader's place, and leaves it at once when there is something to write.
func (s *Store) seal() {
	s.mu.Lock()
	if s.writing || len(s.open.ops) > 0 || s.err != nil {
		s.mu.Unlock()
		return
	}
	s.writing = true
	s.mu.Unlock()
	err := s.ulog.Seal()
	s.lockIndex()
	s.writing = false
	if err != nil {
		s.failLocked(err)
	}
	woken := s.takeWritersLocked()
	s.unlockIndex()
	wake(woken)
}

// lockIndex locks the store and tells the index the time.
func (s *Store) lockIndex() {
	now, mono := s.clock()
	s.mu.Lock()
	s.ix.Tick(now, mono)
}

// unlockIndex stages what became due under the lock, releases it, and wakes the waiters whose wait has ended.
func (s *Store) unlockIndex() {
	if s.err == nil && !s.closed {
		for _, m := range s.ix.TakeExpired() {
			op := s.ix.DoorRemove(m, queue.Expired)
			s.actor.stage(&op, nil)
			s.pokeTime()
		}
	}
	s.wakes = s.ix.TakeWakes(s.wakes[:0])
	if len(s.wakes) == 0 {
		s.mu.Unlock()
		return
	}
	wakes := append([]*queue.Waiter(nil), s.wakes...)
	clear(s.wakes)
	s.mu.Unlock()
	for _, w := range wakes {
		w.Wake()
	}
}

// flush commits everything that is staged: the store's own records as the mode promises.
func (s *Store) flush() error {
	s.mu.Lock()
	f := follower{lsn: s.staged, sync: s.actor.rec.sync, wake: make(chan struct{}, 1)}
	s.mu.Unlock()
	return s.commit(&f)
}
