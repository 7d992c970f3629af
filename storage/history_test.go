package storage_test

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"

	"qserver/storage"
)

// history is what a store was told, record by record. A crash may cut off its end, so what is found afterwards must be
// what the history says up to some record, no more, no less and nothing in between.
type history struct {
	live   map[uint64]message // as of the last event
	events []event
}

type message struct {
	id    uint64
	queue string
	body  string
	pri   uint32
	dedup string
}

// event is the state behind one record: numbers only, so that a long history stays small.
type event struct {
	lsn    uint64
	totals totals
	digest uint64 // of the live messages, in any order
	dedup  string // a key that is taken from here on, and its queue
	queue  string
}

type totals struct{ Enqueued, Acked, Purged, Live, Bytes int64 }

var hashSeed = maphash.MakeSeed()

func (m *message) hash() uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	fmt.Fprintf(&h, "%d %s %d ", m.id, m.queue, m.pri)
	h.WriteString(m.body)
	return h.Sum64()
}

func newHistory() *history { return &history{live: make(map[uint64]message), events: []event{{}}} }

// clone returns a history that goes on independently from its first n events on.
func (h *history) clone(n int, live []message) *history {
	c := &history{live: make(map[uint64]message), events: h.events[:n:n]}
	for _, m := range live {
		c.live[m.id] = m
	}
	return c
}

// add appends the event of the record lsn, which changed what change changes.
func (h *history) add(lsn uint64, change func(e *event)) {
	e := h.events[len(h.events)-1]
	e.lsn, e.dedup = lsn, ""
	change(&e)
	h.events = append(h.events, e)
}

func (h *history) enqueue(lsn uint64, m message) {
	h.live[m.id] = m
	h.add(lsn, func(e *event) {
		e.totals.Enqueued++
		e.totals.Live++
		e.totals.Bytes += int64(len(m.body))
		e.digest += m.hash()
		e.dedup, e.queue = m.dedup, m.queue
	})
}

func (h *history) ack(lsn, id uint64) {
	m := h.live[id]
	delete(h.live, id)
	h.add(lsn, func(e *event) {
		e.totals.Acked++
		e.totals.Live--
		e.totals.Bytes -= int64(len(m.body))
		e.digest -= m.hash()
	})
}

func (h *history) replace(lsn, id uint64, body string) {
	m := h.live[id]
	n := m
	n.body = body
	h.live[id] = n
	h.add(lsn, func(e *event) {
		e.totals.Bytes += int64(len(n.body)) - int64(len(m.body))
		e.digest += n.hash() - m.hash()
	})
}

func (h *history) purge(lsn uint64, queue string) {
	var gone []message
	for id, m := range h.live {
		if m.queue == queue {
			gone = append(gone, m)
			delete(h.live, id)
		}
	}
	h.add(lsn, func(e *event) {
		for i := range gone {
			e.totals.Purged++
			e.totals.Live--
			e.totals.Bytes -= int64(len(gone[i].body))
			e.digest -= gone[i].hash()
		}
	})
}

// upTo is how many events there are up to the record lsn.
func (h *history) upTo(lsn uint64) int {
	n, _ := slices.BinarySearchFunc(h.events, lsn+1, func(e event, lsn uint64) int { return cmp.Compare(e.lsn, lsn) })
	return n
}

func totalsOf(st storage.QueueStats) totals {
	return totals{st.TotalItems, st.TotalAcked, st.TotalPurged, st.Items, st.Bytes}
}

// match finds a state that the found messages and totals are, among those behind the events from, …, len(events).
func (h *history) match(from int, live []message, st storage.QueueStats) (n int, err error) {
	got := totalsOf(st)
	var digest uint64
	for i := range live {
		digest += live[i].hash()
	}
	if int64(len(live)) != st.Items {
		return 0, fmt.Errorf("%d messages are counted, %d can be had", st.Items, len(live))
	}
	for n = len(h.events); n >= max(from, 1); n-- {
		if e := &h.events[n-1]; e.totals == got && e.digest == digest {
			return n, nil
		}
	}
	for n = len(h.events); n > 0; n-- {
		if e := &h.events[n-1]; e.totals == got && e.digest == digest {
			return 0, fmt.Errorf("lost: the state is that behind event %d, and %d of %d were promised", n, from, len(h.events))
		}
	}
	return 0, fmt.Errorf("no state that ever was: %+v; the promised one is %+v, the last one %+v",
		got, h.events[max(from, 1)-1].totals, h.events[len(h.events)-1].totals)
}

// takeAll reserves every message of the store, which no one else uses, and returns them. Their order must be right.
func takeAll(s *storage.Store) ([]message, error) {
	var live []message
	c := s.NewSession("all")
	defer c.Close()
	for _, q := range s.Queues("", 0) {
		var last message
		for n := q.Items; ; n-- {
			d, ok, err := c.Reserve([]byte(q.Name), storage.ReserveOptions{})
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			if n == 0 {
				return nil, fmt.Errorf("queue %s has more messages than its count of %d", q.Name, q.Items)
			}
			m := message{id: d.ID, queue: q.Name, body: string(d.Body), pri: priOf(string(d.Body))}
			if last.id != 0 && (m.pri < last.pri || m.pri == last.pri && m.id < last.id) {
				return nil, fmt.Errorf("queue %s: message %d (priority %d) after %d (priority %d)", q.Name, m.id, m.pri, last.id, last.pri)
			}
			last = m
			live = append(live, m)
		}
	}
	return live, nil
}

// bodyOf makes a body that says what it is; priOf reads the priority back.
func bodyOf(queue string, pri uint32, n, size int) string {
	b := fmt.Appendf(nil, "%d %s %d ", pri, queue, n)
	for len(b) < size {
		b = fmt.Appendf(b, "%x", n*len(b))
	}
	return string(b)
}

func priOf(body string) (pri uint32) {
	fmt.Sscanf(body, "%d", &pri)
	return pri
}

// countsError says what is wrong with the counts of a store.
func countsError(s *storage.Store) error {
	for _, q := range s.Queues("", 0) {
		if err := queueError(q); err != nil {
			return err
		}
	}
	return queueError(s.Stats().QueueStats)
}

func queueError(q storage.QueueStats) error {
	for _, n := range []int64{q.Items, q.Ready, q.Delayed, q.Reserved, q.Dead, q.Bytes, q.Waiters} {
		if n < 0 {
			return fmt.Errorf("queue %q: a count below zero: %+v", q.Name, q)
		}
	}
	if q.Items != q.Ready+q.Delayed+q.Reserved || q.TotalItems != q.TotalAcked+q.TotalPurged+q.TotalExpired+q.Items+q.Dead {
		return fmt.Errorf("queue %q: I9 does not hold: %+v", q.Name, q)
	}
	return nil
}
