package storage

import (
	"context"
	"time"

	"qserver/storage/queue"
	"qserver/storage/tree"
	"qserver/storage/ulog"
)

// The timekeeper is the one timer of the store: leases that end, messages that come due or expire, dedup keys and queues
// that are forgotten. It sleeps until the next of these, and is poked when an earlier one appears.

const (
	timeBatch   = 1000        // items handled under one lock
	timesAhead  = time.Second // rows of the time table are read this long before they are due
	choresEvery = time.Second

	shortBatch = 10                    // messages that come due at once while memory is short
	shortWait  = 20 * time.Millisecond // until the next look then
)

func (s *Store) pokeTime() {
	select {
	case s.pokes.time <- struct{}{}:
	default:
	}
}

// nextAtLocked makes the timekeeper run at the given time, Unix ms, at the latest.
func (s *Store) nextAtLocked(at int64) {
	if s.nextWake == 0 || at < s.nextWake {
		s.nextWake = at
		s.pokeTime()
	}
}

// leasedLocked makes it run when a lease that begins now ends.
func (s *Store) leasedLocked(lease time.Duration) {
	if lease > 0 {
		s.nextAtLocked(time.Now().Add(lease).UnixMilli())
	}
}

func (s *Store) timeLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var chores time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.failed:
			return
		case <-s.pokes.time:
		case <-timer.C:
		}
		if now := time.Now(); now.Sub(chores) >= choresEvery {
			chores = now
			s.chores()
		}
		wait := s.keepTime()
		if err := s.flush(); err != nil {
			return
		}
		timer.Reset(wait)
	}
}

// keepTime handles what is due and says how long nothing else will be.
func (s *Store) keepTime() time.Duration {
	short := false
	for more := true; more && !short; {
		// A large backlog that falls due at once comes in by and by: the checkpoint moves its rows to the ready lanes.
		short = s.memoryBytes.Load() > s.opts.Memory/8*5
		batch := timeBatch
		if short {
			batch = shortBatch
		}
		more = s.loadTimes()
		s.lockIndex()
		s.ix.Lapse(timeBatch)
		more = s.ix.Promote(batch) || more
		cold, moreCold := s.ix.Expire(timeBatch)
		more = more || moreCold
		s.ix.PruneDedup()
		s.memoryBytes.Store(s.ix.Bytes())
		s.unlockIndex()
		s.expireCold(cold)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, mono := s.clock()
	wait := choresEvery
	if short {
		s.pokeCheckpoint()
		s.nextWake = now + shortWait.Milliseconds()
		return shortWait
	}
	if at, ok := s.ix.NextTime(); ok {
		wait = min(wait, time.Duration(max(0, at-now))*time.Millisecond)
	}
	if at, ok := s.ix.NextLease(); ok {
		wait = min(wait, max(0, at-mono))
	}
	s.nextWake = now + max(1, wait.Milliseconds())
	return wait
}

// loadTimes reads rows of the time table that will soon be due. It says whether there may be more of them.
func (s *Store) loadTimes() (more bool) {
	s.mu.Lock()
	from, epoch := s.ix.TimesFrom(), s.epoch
	s.mu.Unlock()
	horizon := time.Now().Add(timesAhead).UnixMilli()
	if from.At > horizon || s.timedEnough() {
		return false
	}
	rows, next := []queue.TimeRow(nil), queue.TimesEnd
	err := s.tree.View(func(v *tree.View) error {
		err := v.Scan(tableTimes, timeKey(from), nil, func(key, value []byte) error {
			t, err := decodeTimeRow(key, value)
			if err != nil {
				return &tree.CorruptError{File: s.treePath(), Offset: -1, What: "time row", Err: err}
			}
			if t.At > horizon || len(rows) == 4*s.opts.Window {
				next, more = t.TimeKey, t.At <= horizon
				return tree.ErrStop
			}
			rows = append(rows, t)
			return nil
		})
		for i := range rows {
			if err == nil && rows[i].Kind == queue.TimeDue {
				err = readTimed(v, &rows[i])
			}
		}
		return err
	})
	if err != nil {
		_ = s.damage(err)
		return false
	}
	s.lockIndex()
	if s.epoch != epoch {
		s.unlockIndex()
		return true
	}
	s.ix.FillTimes(rows, next)
	s.unlockIndex()
	return more
}

// timedEnough says whether memory has enough that is due, to leave the rest in the tree for now.
func (s *Store) timedEnough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.ix.NextTime()
	now, _ := s.clock()
	return ok && at <= now && s.ix.Timed() > 4*s.opts.Window
}

// readTimed reads the message of a due row, without its body.
func readTimed(v *tree.View, t *queue.TimeRow) error {
	key := messageKey(t.Queue, queue.LaneDelayed, uint64(t.At), t.ID)
	value, found, err := v.Get(tableMessages, key)
	if err != nil || !found {
		return err
	}
	row, err := decodeMessageRow(key, value)
	row.Body = nil
	t.Row = &row
	return err
}

// expireCold finds in which lane of the tree expired messages lie, and stages their removal.
func (s *Store) expireCold(cold []queue.ColdTimer) {
	if len(cold) == 0 {
		return
	}
	s.mu.Lock()
	epoch := s.epoch
	s.mu.Unlock()
	lanes := make([]queue.TreeLane, len(cold))
	found := make([]bool, len(cold))
	err := s.tree.View(func(v *tree.View) error {
		for i, c := range cold {
			for _, key := range messageKeys(c.Queue(), c.Pri(), c.Due(), c.ID()) {
				_, have, err := v.Get(tableMessages, key)
				if err != nil {
					return err
				}
				if have {
					lanes[i], found[i] = queue.TreeLane(key[4]), true
					break
				}
			}
		}
		return nil
	})
	if err != nil {
		_ = s.damage(err)
		return
	}
	s.lockIndex()
	for i, c := range cold {
		switch {
		case s.epoch != epoch || s.ix.Following(): // the tree may not have it any more, or another node decides
			s.ix.ExpireAgain(c)
		case found[i]:
			s.ix.ExpireCold(c, lanes[i])
		}
	}
	s.unlockIndex()
}

// chores are what is done about every second.
func (s *Store) chores() {
	s.watchDisk()
	s.lockIndex()
	now, _ := s.clock()
	if s.err == nil && !s.closed && s.master == "" {
		for _, op := range s.ix.DoorForget(now-s.opts.ForgetAfter.Milliseconds(), 100) {
			s.actor.stage(&op, nil)
		}
	}
	s.unlockIndex()
	s.saveKept()
}

// syncAhead is after how many bytes the log is synced where nobody waits for it: so little is left to sync when a segment is full,
// which everybody waits for.
const syncAhead = 8 << 20

// syncLoop syncs the log at SyncInterval's times, and when it is poked.
func (s *Store) syncLoop(ctx context.Context) {
	var times <-chan time.Time
	if s.opts.Sync == SyncInterval {
		tick := time.NewTicker(s.opts.SyncInterval)
		defer tick.Stop()
		times = tick.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.failed:
			return
		case <-times:
		case <-s.pokes.sync:
		}
		if err := s.Sync(); err != nil {
			return
		}
	}
}

// pokeSyncLocked lets syncLoop, if it runs, sync the log when its last segment has grown by syncAhead.
func (s *Store) pokeSyncLocked() {
	if !s.opts.Sync.lazy() {
		return
	}
	end := s.ulog.End()
	if end.Segment != s.syncPoked.Segment {
		s.syncPoked = ulog.Place{Segment: end.Segment} // what lies before is synced
	}
	if end.Offset-s.syncPoked.Offset < syncAhead {
		return
	}
	s.syncPoked = end
	select {
	case s.pokes.sync <- struct{}{}:
	default:
	}
}

// Sync flushes what was written to the update log to the disk.
func (s *Store) Sync() error {
	if s.ulog.Synced() >= s.ulog.Written().LSN {
		return s.Err()
	}
	err := s.syncLog()
	if err != nil {
		s.lockIndex()
		s.failLocked(err)
		s.unlockIndex()
	}
	s.tellFeeds()
	return err
}
