package storage

import (
	"runtime"
	"time"

	"qserver/storage/queue"
)

// Session is what one connection has reserved, in order, and the records it has written. It is not safe for concurrent
// use; the wake of a Waiter is called from other goroutines.
type Session struct {
	s      *Store
	peer   string
	held   queue.Holder
	rec    follower // of its last record
	read   uint64   // LSN up to which its reads must wait, to see its own enqueues
	waiter *queue.Waiter
	closed bool
}

// NewSession starts the session of one client connection; peer is its address, for people.
func (s *Store) NewSession(peer string) *Session {
	s.mu.Lock()
	s.sessions++
	s.mu.Unlock()
	return &Session{s: s, peer: peer, rec: follower{wake: make(chan struct{}, 1)}}
}

// stage is stageLocked for a record of this session.
func (c *Session) stage(op *queue.Op, body []byte) {
	c.s.stageLocked(op, body)
	c.rec.lsn = op.LSN
	if c.s.mustSync(op.Kind) {
		c.rec.sync = op.LSN
	}
	if c.s.mustShare(op.Kind) {
		c.rec.share = op.LSN
	}
}

// Commit waits until every record of this session so far is in the log as its sync mode promises, and applied. Answers
// that rest on them may go out only after it returned nil. An error means that the outcome of what was not yet committed
// is unknown (it wraps ErrUnknownOutcome): say so and close. It costs nothing when nothing is outstanding.
func (c *Session) Commit() error {
	if c.s.applied.Load() < c.rec.lsn {
		// Those who are about to stage get the chance to, or to write this session's records with theirs: one write for all costs
		// less than one for each.
		runtime.Gosched()
	}
	if err := c.s.commit(&c.rec); err != nil {
		return err
	}
	return c.share()
}

// share waits for slaves, where there is something to wait for. After an error it finds the same one again, as long as the slaves
// don't have it: who answers need not be who waited.
func (c *Session) share() error {
	if c.rec.share == 0 {
		return nil
	}
	if err := c.s.share(c.rec.share); err != nil {
		return err
	}
	c.rec.share = 0
	return nil
}

// CommitRound is Commit for one who has staged the records of many sessions before, or knows that no other is busy: it does not let
// others run first.
func (c *Session) CommitRound() error {
	if err := c.s.commitSync(&c.rec); err != nil {
		return err
	}
	if err := c.s.commitWrite(&c.rec); err != nil {
		return err
	}
	return c.share()
}

// AwaitsSync says whether Commit will wait for the disk, or for slaves.
func (c *Session) AwaitsSync() bool {
	return c.rec.sync > c.s.ulog.Synced() || c.rec.share > 0 && c.s.awaitsShare(c.rec.share)
}

// Outstanding says whether Commit has something to wait for.
func (c *Session) Outstanding() bool {
	return c.rec.lsn > c.s.applied.Load() || c.rec.share > 0 || c.rec.sync > c.s.ulog.Synced()
}

// sync sees to it that a read of this session sees its own records; it need not wait for the disk.
func (c *Session) sync() error {
	if c.read > c.s.applied.Load() {
		return c.s.commitWrite(&c.rec)
	}
	return nil
}

// Held is how many messages the session holds.
func (c *Session) Held() int {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.held.Held()
}

// GiveBack returns what this session holds of queue without a lease, one delivery counted, and drops ended places from
// its list (`open`).
func (c *Session) GiveBack(name []byte) {
	c.s.lockIndex()
	if q := c.s.ix.Lookup(name); q != nil {
		c.s.ix.ReturnUnleased(&c.held, q)
	}
	c.s.unlockIndex()
}

// Close ends the session: what it holds without a lease goes back, one delivery counted; its waiter is gone, and what was
// reserved for that goes back uncounted. Idempotent.
func (c *Session) Close() {
	s := c.s
	s.lockIndex()
	if c.closed {
		s.unlockIndex()
		return
	}
	c.closed = true
	s.sessions--
	if w := c.waiter; w != nil {
		s.ix.Cancel(w)
		if r, _ := w.Result(); r != nil && s.ix.Current(r) {
			s.ix.Uncount(r)
			s.ix.Release(r) // with or without a lease
		}
		c.waiter = nil
	}
	s.ix.CloseHolder(&c.held)
	s.unlockIndex()
	_ = c.s.commit(&c.rec) // what it staged must not wait for someone else's commit; nobody is left to be told
}

// pick finds the reservation that p names in the queue of this name, or says why there is none.
func (c *Session) pickLocked(name []byte, p Pick) (*queue.Reservation, error) {
	if c.s.err != nil || c.s.closed || c.s.master != "" {
		return nil, c.s.writableLocked()
	}
	q := c.s.ix.Lookup(name)
	if q == nil {
		return nil, ErrNotFound
	}
	if r := c.s.ix.Pick(&c.held, q, p.Receipt, p.Tag); r != nil {
		return r, nil
	}
	if p.Receipt != 0 && c.s.ix.Given(p.Receipt) {
		return nil, ErrReceiptOver
	}
	return nil, ErrNotFound
}

// Ack removes the picked message: the answer is DELETED once Commit has returned nil. ErrNotFound: nothing picked, or its
// place in the list had ended (that place is now used up). By receipt it works from any session.
func (c *Session) Ack(name []byte, p Pick) error {
	if err := c.s.roomToAck(); err != nil {
		return err
	}
	c.s.lockIndex()
	defer c.s.unlockIndex()
	r, err := c.pickLocked(name, p)
	if err != nil {
		return err
	}
	if !c.s.roomToAckLocked() {
		return ErrDiskFull
	}
	op := c.s.ix.DoorAck(r)
	c.stage(&op, nil)
	return nil
}

// Release gives the picked message back, ready again after delay, one delivery counted.
func (c *Session) Release(name []byte, p Pick, delay time.Duration) error {
	return c.release(name, p, delay, false)
}

// Backoff is Release with a delay that doubles with each earlier delivery which ended without an ack: delay, twice delay, and so
// on, up to an hour, or delay if that is longer.
func (c *Session) Backoff(name []byte, p Pick, delay time.Duration) error {
	return c.release(name, p, delay, true)
}

func (c *Session) release(name []byte, p Pick, delay time.Duration, grows bool) error {
	if err := c.s.roomToAck(); err != nil && delay > 0 {
		return err
	}
	c.s.lockIndex()
	defer c.s.unlockIndex()
	r, err := c.pickLocked(name, p)
	if err != nil {
		return err
	}
	if delay <= 0 {
		c.s.ix.Release(r)
		return nil
	}
	if !c.s.roomToAckLocked() {
		return ErrDiskFull
	}
	if grows {
		delay = grown(delay, r.Msg.Deliveries)
	}
	op := c.s.ix.DoorRelease(r, time.Now().Add(delay).UnixMilli())
	c.stage(&op, nil)
	c.read = c.rec.lsn
	c.s.nextAtLocked(op.NewDue)
	return nil
}

// grown returns delay doubled so many times, but not beyond an hour.
func grown(delay time.Duration, times uint32) time.Duration {
	const limit = time.Hour
	for ; times > 0 && delay < limit; times-- {
		delay = min(2*delay, limit)
	}
	return delay
}

// Touch gives the picked message a lease from now on; 0 takes the lease away (the reservation lives with its session again,
// or with none: then it is given back).
func (c *Session) Touch(name []byte, p Pick, lease time.Duration) error {
	c.s.lockIndex()
	defer c.s.unlockIndex()
	r, err := c.pickLocked(name, p)
	if err != nil {
		return err
	}
	c.s.ix.Touch(r, lease)
	c.s.leasedLocked(lease)
	return nil
}
