package storage

import (
	"sync/atomic"

	"qserver/storage/queue"
)

// Waiter is one waiting get.
type Waiter struct {
	c    *Session
	w    queue.Waiter
	opts []ReserveOptions
	done atomic.Bool
}

// Wait joins the waiters of all these queues, in order of arrival, after Reserve found them empty. When a message arrives it
// is reserved for this session and wake is called, once, from another goroutine and under no lock (it may be called before
// Wait returns). options are as for Reserve. The same name twice counts once.
func (c *Session) Wait(queues [][]byte, options []ReserveOptions, wake func()) *Waiter {
	s := c.s
	w := &Waiter{c: c, opts: options}
	w.w.Holder = &c.held
	w.w.Wake = func() {
		w.done.Store(true)
		wake()
	}
	s.lockIndex()
	qs := make([]*queue.Queue, 0, len(queues))
	c.waiter = &w.w
	switch {
	case s.closed || s.err != nil || s.master != "":
		s.ix.Refuse(&w.w)
	case c.held.Held() >= s.opts.MaxHeld:
		s.heldLimit++
		s.ix.Refuse(&w.w)
	default:
		opts := make([]queue.ReserveOpts, len(options))
		for i, name := range queues {
			qs = append(qs, s.ix.LookupOrWait(name))
			opts[i] = queue.ReserveOpts{Lease: options[i].Lease, Tag: string(options[i].Tag)}
		}
		s.ix.Wait(&w.w, qs, opts)
	}
	var cold []*queue.Queue
	for _, q := range qs {
		if _, refill := s.ix.Head(q); refill {
			cold = append(cold, q)
		}
	}
	s.unlockIndex()
	for _, q := range cold {
		_ = s.refill(q) // damage is noted; the wait then ends by its time
	}
	return w
}

// Done says whether Take has a result: a delivery, or the end of waiting by EndWaits, Close or a failure.
func (w *Waiter) Done() bool { return w.done.Load() }

// Take ends the wait. ok is false when no message came; else i is the index of its queue. After it, the caller may Reserve
// from the other queues. Call it exactly once. (After a client hung up: Session.Close instead; it returns the message
// uncounted.)
func (w *Waiter) Take() (i int, d Delivery, ok bool, err error) { return w.take(false) }

// TryTake is Take for one who must not read the disk: where that is needed it returns ErrNotInMemory, and Take is still to come.
func (w *Waiter) TryTake() (i int, d Delivery, ok bool, err error) { return w.take(true) }

func (w *Waiter) take(memoryOnly bool) (i int, d Delivery, ok bool, err error) {
	c := w.c
	s := c.s
	s.lockIndex()
	if r, i := w.w.Result(); memoryOnly && r != nil && r.Msg.Live() && r.Msg.Body == nil {
		s.unlockIndex()
		return i, d, false, ErrNotInMemory
	}
	s.ix.Cancel(&w.w)
	c.waiter = nil
	r, i := w.w.Result()
	if r == nil || !r.Msg.Live() || r.Msg.State() != queue.Reserved {
		err := s.err
		s.unlockIndex()
		return i, d, false, err
	}
	s.leasedLocked(w.opts[i].Lease)
	s.receiptsLocked()
	d, ok, err = c.deliverLocked(r, w.opts[i])
	return i, d, ok, err
}
