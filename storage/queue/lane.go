package queue

import "github.com/tidwall/btree"

// Queue is one queue. Its ready messages are ordered by (priority, id); those in memory are in ready, the others are
// cold: in the tree, at or behind coldFrom.
type Queue struct {
	Name string
	Num  uint32 // 0 until an enqueue creates it

	totals   Totals
	purgedID uint64 // applied: messages up to it are gone

	ready       *btree.BTreeG[*Message] // nil: empty
	coldFrom    laneKey                 // no cold ready message lies before it
	warm        int                     // messages of ready that the tree has too
	reserved    int64
	leaving     int64 // removal staged, neither in a lane nor reserved
	memDelayed  int64 // in the index's delayed tree
	coldDelayed int64 // delayed, only in the tree

	waiters waiterList
	tags    map[string][]*Reservation

	// The door's view: every staged record, applied or not.
	doorLive   int64
	doorPurged uint64
	staged     int // records staged and not applied
	waitersN   int
	lastUsed   int64 // Unix ms of the last enqueue, removal or reserve

	gets, misses, returned int64 // since start
}

// laneKey is a place in a queue's ready order.
type laneKey struct {
	pri uint32
	id  uint64
}

func (k laneKey) less(o laneKey) bool {
	if k.pri != o.pri {
		return k.pri < o.pri
	}
	return k.id < o.id
}

func (m *Message) key() laneKey { return laneKey{m.Pri, m.ID} }

// ColdReady is how many ready messages are only in the tree.
func (q *Queue) ColdReady() int64 {
	return q.totals.Live - q.reserved - q.leaving - q.memDelayed - q.coldDelayed - int64(q.readyLen())
}

func (q *Queue) readyLen() int {
	if q.ready == nil {
		return 0
	}
	return q.ready.Len()
}

// head returns the first ready message if it may be delivered now. refill is true when cold messages may come
// before it: the window must be refilled first.
func (q *Queue) head() (m *Message, refill bool) {
	if q.ready != nil {
		m, _ = q.ready.Min()
	}
	if q.ColdReady() > 0 && (m == nil || !m.key().less(q.coldFrom)) {
		return nil, true
	}
	return m, false
}

// put places m in the ready lane.
func (q *Queue) put(m *Message) {
	if q.ready == nil {
		q.ready = btree.NewBTreeGOptions(lessReady, btree.Options{NoLocks: true})
	}
	m.state = Ready
	q.ready.Load(m)
	if m.LSN == 0 {
		q.warm++
	}
}

// take removes m from the ready lane.
func (q *Queue) take(m *Message) {
	q.ready.Delete(m)
	q.took(m)
}

// took counts m, which has just left the ready lane.
func (q *Queue) took(m *Message) {
	if m.LSN == 0 {
		q.warm--
	}
}

// find returns the message of the ready lane with this priority and id, or nil.
func (q *Queue) find(pri uint32, id uint64) *Message {
	if q.ready == nil {
		return nil
	}
	probe := Message{Pri: pri, ID: id}
	m, _ := q.ready.Get(&probe)
	return m
}

// evict drops m, a ready message that the tree has in its ready lane, from memory.
func (q *Queue) evict(m *Message) {
	first := q.ColdReady() == 0
	q.take(m)
	m.state = Gone
	if k := m.key(); first || k.less(q.coldFrom) {
		q.coldFrom = k
	}
	if q.ready.Len() == 0 {
		q.ready = nil
	}
}

// ColdFrom is where the next refill of the window begins: the first key in the tree's ready lane that may be cold.
func (q *Queue) ColdFrom() (pri uint32, id uint64) { return q.coldFrom.pri, q.coldFrom.id }
