package queue

import "time"

// ReserveOpts refines a reservation.
type ReserveOpts struct {
	Lease time.Duration // 0: it lives with its holder
	Tag   string        // "": none
}

// Head returns the first ready message of q without taking it. refill asks for the window to be refilled first.
func (ix *Index) Head(q *Queue) (m *Message, refill bool) {
	for {
		m, refill = q.head()
		if m == nil || m.Expire == 0 || m.Expire > ix.now || ix.following {
			return m, refill
		}
		ix.expire(m)
	}
}

// Reserve takes the first ready message of q for h. It returns nil when there is none; refill asks for the window
// to be refilled first.
func (ix *Index) Reserve(q *Queue, h *Holder, o ReserveOpts) (r *Reservation, refill bool) {
	if ix.closed {
		return nil, false
	}
	if o.Tag != "" {
		if r := h.tagged(q, []byte(o.Tag)); r != nil && r.holder == h && r.current() {
			return r, false
		}
	}
	m, refill := ix.Head(q)
	if m == nil || refill {
		return nil, refill
	}
	return ix.reserve(m, h, o), false
}

// reserve takes m, the head of its lane, for h.
func (ix *Index) reserve(m *Message, h *Holder, o ReserveOpts) *Reservation {
	q := m.queue
	q.ready.PopMin()
	q.took(m)
	r := &Reservation{Msg: m, Receipt: ix.receipt, Tag: o.Tag, queue: q, holder: h}
	ix.receipt++
	m.state, m.res = Reserved, r
	q.reserved++
	q.gets++
	ix.gets++
	q.lastUsed = ix.now
	ix.held[m.ID] = m
	ix.receipts[r.Receipt] = r
	h.push(r)
	if r.Tag != "" {
		q.tag(r)
	}
	ix.lease(r, o.Lease)
	return r
}

// lease gives r, which has none, a lease of d from now on; 0: it lives with its holder.
func (ix *Index) lease(r *Reservation, d time.Duration) {
	if d <= 0 {
		ix.unleased++
		return
	}
	r.deadline = ix.mono + d
	ix.leases.Set(r)
}

// current says whether r's delivery is still held.
func (r *Reservation) current() bool {
	return !r.ended && r.Msg.state == Reserved && r.Msg.ID > r.queue.doorPurged
}

// Current says whether r's delivery is still held.
func (ix *Index) Current(r *Reservation) bool { return r.current() }

// Pick finds a reservation of q: by receipt if it is not 0, else by tag if it is not nil, else the one that h made first.
// It returns nil if there is none that is current; a place of h's list whose reservation has ended is used up by that.
func (ix *Index) Pick(h *Holder, q *Queue, receipt uint64, tag []byte) *Reservation {
	var r *Reservation
	switch {
	case receipt != 0:
		if r = ix.receipts[receipt]; r != nil && r.queue != q {
			return nil
		}
	case tag != nil:
		r = h.tagged(q, tag)
	default:
		r = h.first(q)
	}
	if r == nil {
		return nil
	}
	if !r.current() {
		if receipt == 0 && tag == nil {
			r.leave()
		}
		return nil
	}
	return r
}

// Given says whether receipt was given out since start: if it is not current, its delivery is over.
func (ix *Index) Given(receipt uint64) bool {
	return receipt >= ix.firstGiven && receipt < ix.receipt
}

// Touch gives r a lease of d from now on; with 0 it lives with its holder again, and goes back if that is gone.
func (ix *Index) Touch(r *Reservation, d time.Duration) {
	ix.unlease(r)
	ix.lease(r, d)
	if d <= 0 && r.holder == nil {
		ix.Release(r)
	}
}

// Release gives r's message back to its old place, one delivery counted. The place in its holder's list is left.
func (ix *Index) Release(r *Reservation) {
	ix.countDelivery(r)
	ix.giveBack(r)
	r.leave()
}

// countDelivery counts a delivery of r's message that ended without an ack.
func (ix *Index) countDelivery(r *Reservation) {
	r.Msg.Deliveries++
	r.Msg.counted = true
	r.queue.returned++
	ix.returned++
}

// Miss counts a get that found nothing in q; nil: in no queue.
func (ix *Index) Miss(q *Queue) {
	ix.misses++
	if q != nil {
		q.misses++
	}
}

// giveBack makes r's message ready again. r keeps its place in its holder's list, as one that has ended.
func (ix *Index) giveBack(r *Reservation) {
	m, q := r.Msg, r.queue
	ix.endReservation(m)
	if m.Expire != 0 && m.Expire <= ix.now {
		m.state = Ready // for a moment: expire takes it out of the lane again
		q.put(m)
		ix.expire(m)
		return
	}
	q.put(m)
	ix.serve(q)
}

// expire takes m, a ready or delayed message past its time, out of its lane: its removal is to be staged.
func (ix *Index) expire(m *Message) {
	q := m.queue
	if m.state == Delayed {
		ix.delayed.Delete(m)
		q.memDelayed--
	} else {
		q.take(m)
	}
	m.state = Leaving
	q.leaving++
	ix.memory.leave(m.ID)
	ix.expired = append(ix.expired, m)
}

// TakeExpired returns the messages past their time whose removal is to be staged by DoorRemove. Those that a staged
// purge removes are left to it.
func (ix *Index) TakeExpired() []*Message {
	if len(ix.expired) == 0 {
		return nil
	}
	var e []*Message
	for _, m := range ix.expired {
		if m.ID <= m.queue.doorPurged {
			delete(ix.memory.gone, m.ID)
			ix.memory.drop(m)
			continue
		}
		e = append(e, m)
	}
	ix.expired = ix.expired[:0]
	return e
}

// ReturnUnleased gives back what h holds of q without a lease, one delivery counted, and drops the places that have
// ended from its list.
func (ix *Index) ReturnUnleased(h *Holder, q *Queue) {
	l := h.list(q)
	if l == nil {
		return
	}
	for _, r := range append([]*Reservation(nil), l.items...) {
		switch {
		case !r.current():
			r.leave()
		case r.deadline == 0:
			ix.Release(r)
		}
	}
}

// CloseHolder ends h: what it holds without a lease goes back, one delivery counted, in the order of the queue; what
// has a lease belongs to its receipt from now on.
func (ix *Index) CloseHolder(h *Holder) {
	for i := range h.lists {
		for _, r := range h.lists[i].items {
			r.holder = nil
			if r.current() && r.deadline == 0 {
				ix.Release(r)
			}
		}
	}
	h.lists, h.held = nil, 0
}

// Uncount takes back the delivery that the next Release of r would count: its client never got it.
func (ix *Index) Uncount(r *Reservation) { r.Msg.Deliveries-- }

// Lapse gives back the messages whose leases have ended, at most limit.
func (ix *Index) Lapse(limit int) {
	for ; limit > 0; limit-- {
		r, ok := ix.leases.Min()
		if !ok || r.deadline > ix.mono {
			return
		}
		ix.lapsed++
		if r.Msg.state != Reserved { // its ack is staged
			ix.leases.Delete(r)
			r.deadline = 0
			ix.unleased++
			continue
		}
		ix.countDelivery(r)
		ix.giveBack(r)
	}
}

// NextLease is the end of the first lease on the caller's monotonic clock; ok is false if there is none.
func (ix *Index) NextLease() (at time.Duration, ok bool) {
	r, ok := ix.leases.Min()
	if !ok {
		return 0, false
	}
	return r.deadline, true
}

// Unleased is how many messages are held without a lease.
func (ix *Index) Unleased() int64 { return ix.unleased }
