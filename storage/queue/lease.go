package queue

import (
	"slices"
	"time"
)

// Reservation is one delivery that is held: a place in its holder's list. Without a lease it lives with its
// holder; with one it belongs to its receipt.
type Reservation struct {
	Msg     *Message
	Receipt uint64
	Tag     string

	queue    *Queue
	holder   *Holder       // nil: its session has ended
	deadline time.Duration // on the monotonic clock of the caller; 0: no lease
	ended    bool          // it keeps its place in the list, and answers NOT_FOUND
}

// Deadline is the end of its lease on the caller's monotonic clock; 0: none.
func (r *Reservation) Deadline() time.Duration { return r.deadline }

// over marks the end of the delivery.
func (r *Reservation) over() {
	if !r.ended && r.holder != nil {
		r.holder.held--
	}
	r.ended = true
	if r.Tag != "" {
		r.queue.untag(r)
	}
}

func lessLease(a, b *Reservation) bool {
	if a.deadline != b.deadline {
		return a.deadline < b.deadline
	}
	return a.Receipt < b.Receipt
}

// unlease takes r's lease away; it does not count it as living with a session.
func (ix *Index) unlease(r *Reservation) {
	if r.deadline == 0 {
		ix.unleased--
		return
	}
	ix.leases.Delete(r)
	r.deadline = 0
}

// Holder is what one session has reserved, in order. The zero value is an empty one.
type Holder struct {
	lists []heldList
	held  int // reservations that have not ended
}

type heldList struct {
	queue *Queue
	items []*Reservation
}

// Held is how many messages h holds.
func (h *Holder) Held() int { return h.held }

func (h *Holder) list(q *Queue) *heldList {
	for i := range h.lists {
		if h.lists[i].queue == q {
			return &h.lists[i]
		}
	}
	return nil
}

func (h *Holder) push(r *Reservation) {
	l := h.list(r.queue)
	if l == nil {
		h.lists = append(h.lists, heldList{queue: r.queue})
		l = &h.lists[len(h.lists)-1]
	}
	l.items = append(l.items, r)
	h.held++
}

// leave takes r's place out of its holder's list.
func (r *Reservation) leave() {
	h := r.holder
	if h == nil {
		return
	}
	if !r.ended {
		h.held--
	}
	r.holder = nil
	l := h.list(r.queue)
	i := slices.Index(l.items, r)
	if i == 0 && len(l.items) > 1 { // the usual end of a long list
		l.items[0] = nil
		l.items = l.items[1:]
	} else {
		l.items = slices.Delete(l.items, i, i+1)
	}
	if len(l.items) == 0 && len(h.lists) > 8 {
		*l = h.lists[len(h.lists)-1]
		h.lists[len(h.lists)-1] = heldList{}
		h.lists = h.lists[:len(h.lists)-1]
	}
}

// first returns the reservation of q that h made first and that has its place, or nil.
func (h *Holder) first(q *Queue) *Reservation {
	if l := h.list(q); l != nil && len(l.items) > 0 {
		return l.items[0]
	}
	return nil
}

// tagged returns the reservation under tag: h's own, else the only one of q.
func (h *Holder) tagged(q *Queue, tag []byte) *Reservation {
	all := q.tags[string(tag)]
	for _, r := range all {
		if r.holder == h {
			return r
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return nil
}

func (q *Queue) tag(r *Reservation) {
	if q.tags == nil {
		q.tags = make(map[string][]*Reservation)
	}
	q.tags[r.Tag] = append(q.tags[r.Tag], r)
}

func (q *Queue) untag(r *Reservation) {
	all := q.tags[r.Tag]
	for i, o := range all {
		if o == r {
			all = append(all[:i:i], all[i+1:]...)
			break
		}
	}
	if len(all) == 0 {
		delete(q.tags, r.Tag)
		return
	}
	q.tags[r.Tag] = all
}
