package queue

// Waiter is one waiting get: it stands in the line of each of its queues until a message is reserved for it, or it is
// cancelled.
type Waiter struct {
	Holder *Holder
	Wake   func() // called by the owner of the index, outside of its lock, once the waiter is done

	places []waiterPlace
	result *Reservation
	index  int // of the result's queue
	done   bool
}

// waiterPlace is a waiter's place in the line of one queue: an element of a doubly linked list.
type waiterPlace struct {
	waiter     *Waiter
	queue      *Queue
	opts       ReserveOpts
	prev, next *waiterPlace
	inLine     bool
}

type waiterList struct{ first, last *waiterPlace }

func (l *waiterList) push(p *waiterPlace) {
	p.prev, p.next, p.inLine = l.last, nil, true
	if l.last != nil {
		l.last.next = p
	} else {
		l.first = p
	}
	l.last = p
}

func (l *waiterList) remove(p *waiterPlace) {
	if !p.inLine {
		return
	}
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		l.first = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		l.last = p.prev
	}
	p.prev, p.next, p.inLine = nil, nil, false
}

// Wait puts w at the end of the line of each of these queues, which have nothing ready. A queue that appears twice
// counts once.
func (ix *Index) Wait(w *Waiter, queues []*Queue, opts []ReserveOpts) {
	if ix.closed {
		ix.finish(w)
		return
	}
	w.places = make([]waiterPlace, len(queues))
	for i, q := range queues {
		p := &w.places[i]
		p.waiter, p.queue, p.opts = w, q, opts[i]
		q.waiters.push(p)
		q.waitersN++
		ix.waiting++
	}
	for i := 0; i < len(queues) && !w.done; i++ {
		ix.serve(queues[i])
	}
}

// Refuse ends w's waiting, which has not begun, without a result.
func (ix *Index) Refuse(w *Waiter) { ix.finish(w) }

// finish ends w's waiting, with or without a result.
func (ix *Index) finish(w *Waiter) {
	for i := range w.places {
		p := &w.places[i]
		if p.inLine {
			p.queue.waiters.remove(p)
			p.queue.waitersN--
			ix.waiting--
			ix.dropUncreated(p.queue)
		}
	}
	if !w.done {
		w.done = true
		ix.wakes = append(ix.wakes, w)
	}
}

// Done says whether the wait has ended.
func (w *Waiter) Done() bool { return w.done }

// Result returns the message that was reserved for w and the index of its queue; nil if there is none.
func (w *Waiter) Result() (*Reservation, int) { return w.result, w.index }

// Cancel takes w out of all lines; what was reserved for it in the meantime stays in Result.
func (ix *Index) Cancel(w *Waiter) {
	if !w.done {
		ix.finish(w)
		ix.wakes = ix.wakes[:len(ix.wakes)-1] // the caller knows
	}
}

// serve hands ready messages of q to its waiters, first come first served.
func (ix *Index) serve(q *Queue) {
	for q.waiters.first != nil {
		m, _ := q.head()
		if m == nil || ix.ReceiptsLeft() == 0 {
			return
		}
		if m.Expire != 0 && m.Expire <= ix.now {
			ix.expire(m)
			continue
		}
		p := q.waiters.first
		w := p.waiter
		for i := range w.places {
			if &w.places[i] == p {
				w.index = i
			}
		}
		w.result = ix.reserve(m, w.Holder, p.opts)
		ix.finish(w)
	}
}

// EndWaits ends every wait, now and later, without a result.
func (ix *Index) EndWaits() {
	ix.closed = true
	ix.endWaits()
}

func (ix *Index) endWaits() {
	for _, q := range ix.names {
		for q.waiters.first != nil {
			ix.finish(q.waiters.first.waiter)
		}
	}
}

// TakeWakes returns the waiters whose wait has ended since the last call: wake them once the lock is released.
func (ix *Index) TakeWakes(into []*Waiter) []*Waiter {
	into = append(into, ix.wakes...)
	clear(ix.wakes)
	ix.wakes = ix.wakes[:0]
	return into
}
