package storage

import (
	"fmt"
	"runtime"

	"qserver/storage/queue"
	"qserver/storage/ulog"
)

// Group commit without timers. A record is staged under the store's lock: from then on its place in the order is fixed
// and the door sees it. Whoever needs its outcome calls Commit. The first of them becomes the leader: it takes all
// that was staged, writes it in one go, syncs if the mode asks, applies it in order and wakes the others (I4, I5). What
// is staged meanwhile is the next batch, and one who waits for it is woken to lead it. So an uncontended commit is done
// by the goroutine that wants it, without any hand-off.
//
// The contract that anything in place of the update log must keep: records are applied in the order in which they
// were staged; the door's view holds all staged ones; after an error the outcome of what was not applied is unknown, and
// nothing more is accepted.

// batch is what one write carries.
type batch struct {
	ops  []queue.Op
	sync bool // holds an enqueue, or what must not be undone either
}

// follower is someone who waits for records up to lsn.
type follower struct {
	lsn  uint64
	wake chan struct{} // capacity 1: the leader never waits to wake
}

// stageLocked fixes op's place in the order. body is the record's body, which must not change any more.
func (s *Store) stageLocked(op *queue.Op, body []byte) {
	s.head = queue.AppendHead(s.head[:0], op)
	pos, place := s.ulog.Stage(s.head, body, op.BodySum)
	op.LSN, op.Segment, op.Offset = pos.LSN, uint32(place.Segment), uint32(place.Offset)
	s.staged = op.LSN
	s.open.ops = append(s.open.ops, *op)
	switch op.Kind {
	case queue.KindEnqueue, queue.KindReplace, queue.KindPurge, queue.KindReceipts:
		s.open.sync = true
	}
}

// commit waits until every record up to f.lsn is durable as the mode promises, and applied.
func (s *Store) commit(f *follower) error {
	if s.applied.Load() >= f.lsn {
		return nil
	}
	// Those who are about to stage get the chance to, or to write this record with theirs: one write for all costs less
	// than one for each.
	runtime.Gosched()
	if s.applied.Load() >= f.lsn {
		return nil
	}
	s.mu.Lock()
	for s.applied.Load() < f.lsn {
		if s.err != nil {
			err := s.err
			s.mu.Unlock()
			return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		}
		if s.writing {
			s.followers = append(s.followers, f)
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

// leadLocked writes and applies what is staged. It gives up the lock meanwhile and has it again at the end.
func (s *Store) leadLocked() {
	b, lb := s.open, s.ulog.Take()
	s.open, s.spare = s.spare, nil
	s.writing = true
	s.mu.Unlock()
	err := s.write(b, lb)
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
	b.ops, b.sync = b.ops[:0], false
	if cap(b.ops) > 1<<14 {
		b.ops = nil
	}
	s.spare = b
	s.pressureLocked()
	woken := s.takeFollowersLocked()
	s.unlockIndex()
	for _, f := range woken {
		f.wake <- struct{}{}
	}
	s.mu.Lock()
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
	woken := s.takeFollowersLocked()
	s.unlockIndex()
	for _, f := range woken {
		f.wake <- struct{}{}
	}
}

// write is the only caller of the log's Write.
func (s *Store) write(b *batch, lb *ulog.Batch) error {
	if lb == nil {
		return nil
	}
	sync := s.opts.Sync == SyncAlways || s.opts.Sync == SyncEnqueue && b.sync
	if sync {
		s.syncs.Add(1)
	}
	return s.ulog.Write(lb, sync)
}

// takeFollowersLocked returns those whose records are applied and, if others are left, the first of them: it leads the
// next batch.
func (s *Store) takeFollowersLocked() []*follower {
	if len(s.followers) == 0 {
		return nil
	}
	applied := s.applied.Load()
	var woken []*follower
	rest := s.followers[:0]
	lead := false
	for _, f := range s.followers {
		switch {
		case f.lsn <= applied || s.err != nil:
			woken = append(woken, f)
		case !lead:
			lead = true
			woken = append(woken, f)
		default:
			rest = append(rest, f)
		}
	}
	clear(s.followers[len(rest):])
	s.followers = rest
	return woken
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

// flush commits everything that is staged.
func (s *Store) flush() error {
	s.mu.Lock()
	lsn := s.staged
	s.mu.Unlock()
	return s.commit(&follower{lsn: lsn, wake: make(chan struct{}, 1)})
}
