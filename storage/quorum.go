package storage

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"qserver/storage/queue"
)

// Semi-synchronous answers: with Options.MinSlaves an enqueue is answered when so many slaves have it durably, as their
// own sync modes promise. Whoever ships the log tells by Shared how far they are.
//
// When an enqueue has waited for MinSlavesTimeout in vain the slaves are taken to be away, so that not every enqueue after it
// waits as long: until so many are there again and have what there was, nothing waits. What is enqueued meanwhile is answered
// as without slaves, or with RefuseAlone refused before anything is written. A server that starts begins so.

// ErrFewSlaves is returned by enqueues, with Options.RefuseAlone, while fewer slaves are there than Options.MinSlaves.
var ErrFewSlaves = errors.New("too few slaves follow (-min-slaves): nothing is enqueued")

type quorum struct {
	shared atomic.Uint64 // LSN up to which enough slaves have the log
	away   atomic.Bool   // they are not there

	mu      sync.Mutex
	from    uint64        // with away: LSN that they need to have to be there again
	changed chan struct{} // closed when shared or away changes; nil: nobody waits
	late    int64         // enqueues that waited in vain
}

// SharedState says how semi-synchronous answers stand.
type SharedState struct {
	Need    int    // slaves; 0: nobody waits
	Away    bool   // they are not there: see RefuseAlone
	Refuse  bool   // enqueues are refused then
	LSN     uint64 // up to which enough slaves have the log
	Late    int64  // enqueues that waited in vain, since start
	Timeout time.Duration
}

// Shared tells that n slaves follow, and that the log is durable up to lsn on MinSlaves of them; 0 if there are not as many.
func (s *Store) Shared(lsn uint64, n int) {
	q := &s.quorum
	if s.opts.MinSlaves == 0 || n < s.opts.MinSlaves {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	back := q.away.Load() && lsn >= q.from
	if lsn <= q.shared.Load() && !back {
		return
	}
	q.shared.Store(max(lsn, q.shared.Load()))
	if back {
		q.away.Store(false)
		s.log.Info("enough slaves follow: enqueues wait for them", "slaves", n, "needed", s.opts.MinSlaves)
	}
	q.tellLocked()
}

func (q *quorum) tellLocked() {
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

// SharedState returns how semi-synchronous answers stand.
func (s *Store) SharedState() SharedState {
	q := &s.quorum
	q.mu.Lock()
	defer q.mu.Unlock()
	return SharedState{s.opts.MinSlaves, q.away.Load(), s.opts.RefuseAlone, q.shared.Load(), q.late, s.opts.MinSlavesTimeout}
}

// alone says whether enqueues are refused for want of slaves.
func (s *Store) alone() bool {
	return s.opts.MinSlaves > 0 && s.opts.RefuseAlone && s.quorum.away.Load()
}

// mustShare says whether the answer to a record of this kind waits for slaves.
func (s *Store) mustShare(kind queue.Kind) bool {
	return s.opts.MinSlaves > 0 && (kind == queue.KindEnqueue || kind == queue.KindReplace)
}

// awaitsShare says whether share will wait.
func (s *Store) awaitsShare(lsn uint64) bool {
	return lsn > s.quorum.shared.Load() && !s.quorum.away.Load()
}

// share waits until enough slaves have the log up to lsn.
func (s *Store) share(lsn uint64) error {
	q := &s.quorum
	if lsn <= q.shared.Load() {
		return nil
	}
	var timeout <-chan time.Time
	for {
		q.mu.Lock()
		switch {
		case lsn <= q.shared.Load():
			q.mu.Unlock()
			return nil
		case q.away.Load():
			q.late++
			q.mu.Unlock()
			return s.unshared()
		}
		if q.changed == nil {
			q.changed = make(chan struct{})
		}
		changed := q.changed
		q.mu.Unlock()
		if timeout == nil {
			t := time.NewTimer(s.opts.MinSlavesTimeout)
			defer t.Stop()
			timeout = t.C
		}
		select {
		case <-changed:
		case <-s.failed:
			return fmt.Errorf("%w: %w", ErrUnknownOutcome, s.Err())
		case <-timeout:
			s.loseSlaves(lsn)
		}
	}
}

// loseSlaves notes that enough slaves didn't have lsn in time.
func (s *Store) loseSlaves(lsn uint64) {
	q := &s.quorum
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.away.Load() || lsn <= q.shared.Load() {
		return
	}
	q.away.Store(true)
	q.from = lsn
	what := "enqueues are answered without them"
	if s.opts.RefuseAlone {
		what = "enqueues are refused"
	}
	s.log.Warn("too few slaves have what was enqueued in time: "+what, "needed", s.opts.MinSlaves, "timeout", s.opts.MinSlavesTimeout,
		"lsn", lsn)
	q.tellLocked()
}

// unshared is the outcome of a record that enough slaves did not have in time.
func (s *Store) unshared() error {
	if !s.opts.RefuseAlone {
		return nil
	}
	return fmt.Errorf("%w: too few slaves had it in time (-min-slaves)", errNotShared)
}

// errNotShared is an ErrUnknownOutcome that is not the log's failure.
var errNotShared error = notShared{}

type notShared struct{}

func (notShared) Error() string        { return "outcome unknown" }
func (notShared) Is(target error) bool { return target == ErrUnknownOutcome }
