package queue

import (
	"time"

	"github.com/tidwall/btree"
)

// Index is the state that the Ops up to one position add up to, and what this node knows beside: who holds what,
// who waits. It is not safe for concurrent use.
type Index struct {
	now  int64         // Unix ms, and
	mono time.Duration // a monotonic time, both as of the last Tick

	lsn       uint64 // of the last applied record
	nextID    uint64 // of the next message, at the door
	nextQueue uint32 // number of the next queue, at the door

	names  map[string]*Queue
	nums   map[uint32]*Queue
	sorted *btree.BTreeG[*Queue] // by name
	ended  Totals                // of forgotten queues
	all    Totals                // of all queues, the forgotten ones too

	coldDelayed, waiting, gets, misses, returned int64 // sums over the queues

	held     map[uint64]*Message     // reserved messages by id
	receipts map[uint64]*Reservation // by receipt
	leases   *btree.BTreeG[*Reservation]
	unleased int64 // reservations that live with a session

	receipt       uint64 // the next to be given out
	receiptsEnd   uint64 // receipts below it are reserved by the log
	receiptsAsked uint64 // the end of the last block that was staged
	firstGiven    uint64 // the first receipt of this run
	lapsed        int64

	delayed  *btree.BTreeG[*Message]
	timers   *btree.BTreeG[timer]
	timesCut TimeKey // rows of the tree's time table before it are represented in memory
	dedup    dedupTable
	promoted []*Message // came due in memory while the tree has them as delayed

	memory  memory
	wakes   []*Waiter
	expired []*Message // taken out of their lanes; their removal is to be staged
	closed  bool       // EndWaits was called

	epochs    []Epoch
	following bool // another node decides: nothing ends by this one's clock
}

// NewIndex returns the empty index.
func NewIndex() *Index {
	none := btree.Options{NoLocks: true}
	return &Index{
		nextID:    1,
		nextQueue: 1,
		names:     make(map[string]*Queue),
		nums:      make(map[uint32]*Queue),
		sorted:    btree.NewBTreeGOptions(func(a, b *Queue) bool { return a.Name < b.Name }, none),
		held:      make(map[uint64]*Message),
		receipts:  make(map[uint64]*Reservation),
		leases:    btree.NewBTreeGOptions(lessLease, none),
		delayed:   btree.NewBTreeGOptions(lessDue, none),
		timers:    btree.NewBTreeGOptions(lessTimer, none),
		dedup:     dedupTable{until: make(map[string]int64)},
		memory:    memory{gone: make(map[uint64]uint64)},
		receipt:   1, receiptsEnd: 1, firstGiven: 1,
	}
}

// Apply makes op part of the state. It is deterministic and total (I2): what op says is a fact. Calls come in the order
// of the LSNs (I5).
func (ix *Index) Apply(op *Op) {
	ix.lsn = op.LSN
	q := ix.nums[op.Queue]
	if q == nil && op.Kind.ofQueue() {
		return // a queue that is not there any more: its messages aren't either
	}
	if op.Staged && q != nil {
		q.staged--
	}
	switch op.Kind {
	case KindCreate:
		ix.applyCreate(op)
	case KindEnqueue:
		ix.applyEnqueue(q, op)
	case KindRemove:
		ix.applyRemove(q, op)
	case KindRelease:
		ix.applyRelease(q, op)
	case KindReplace:
		ix.applyReplace(q, op)
	case KindPurge:
		ix.applyPurge(q, op)
	case KindForget:
		ix.applyForget(q)
	case KindReceipts:
		ix.receiptsEnd = max(ix.receiptsEnd, op.ID)
	case KindEpoch:
		ix.epochs = withEpoch(ix.epochs, op)
	case KindCount:
		ix.applyCount(q, op)
	}
}

func (ix *Index) applyCreate(op *Op) {
	ix.nextQueue = max(ix.nextQueue, op.Queue+1)
	q := ix.names[string(op.Name)]
	if q == nil || q.Num != op.Queue {
		q = &Queue{Name: string(op.Name), Num: op.Queue}
		ix.names[q.Name] = q
	}
	ix.nums[q.Num] = q
	ix.sorted.Set(q)
}

func (ix *Index) applyEnqueue(q *Queue, op *Op) {
	m := op.Msg
	if !op.Staged {
		m = &Message{ID: op.ID, Pri: op.Pri, Flags: op.Flags, Size: op.Size, Enqueued: op.Enqueued,
			Due: op.Due, Expire: op.Expire, BodySum: op.BodySum, queue: q}
		q.doorLive++
		if len(op.Dedup) > 0 {
			ix.dedup.add(op.Queue, op.Dedup, op.DedupUntil)
		}
		ix.nextID = max(ix.nextID, op.ID+1)
	}
	m.Segment, m.Offset, m.LSN, m.BodyLSN, m.TreeDue = op.Segment, op.Offset, op.LSN, op.LSN, op.Due
	ix.count(q, op)
	q.lastUsed = op.Enqueued
	ix.memory.add(m)
	if m.Expire != 0 {
		ix.timers.Set(timer{m.Expire, m.ID, m.Pri, m.Size, m.Due, q})
	}
	if m.Due != 0 {
		m.state, m.lane = Delayed, LaneDelayed
		q.memDelayed++
		ix.delayed.Set(m)
		return
	}
	q.put(m)
	ix.serve(q)
}

// count adds op to the totals of q and of all.
func (ix *Index) count(q *Queue, op *Op) {
	before := q.totals
	q.totals.Apply(op)
	ix.all.Add(q.totals)
	ix.all.sub(before)
}

// addCold counts n more delayed messages of q that are only in the tree.
func (ix *Index) addCold(q *Queue, n int64) {
	q.coldDelayed += n
	ix.coldDelayed += n
}

// lookup finds the message of op in memory, held or not; nil: it is cold, or gone.
func (ix *Index) lookup(q *Queue, op *Op) *Message {
	if op.Msg != nil {
		return op.Msg
	}
	if m := q.find(op.Pri, op.ID); m != nil {
		return m
	}
	if op.Due != 0 {
		if m, ok := ix.delayed.Get(&Message{Due: op.Due, ID: op.ID}); ok {
			return m
		}
	}
	return ix.held[op.ID]
}

func (ix *Index) applyRemove(q *Queue, op *Op) {
	ix.count(q, op)
	if op.Expire != 0 {
		ix.timers.Delete(timer{at: op.Expire, id: op.ID})
	}
	m := ix.lookup(q, op)
	if !op.Staged {
		q.doorLive--
	}
	ix.memory.removed(op.ID, op.LSN)
	if m != nil {
		ix.drop(m)
	}
}

// drop takes a message that is removed out of wherever it stands in memory.
func (ix *Index) drop(m *Message) {
	q := m.queue
	switch m.state {
	case Ready:
		q.take(m)
	case Delayed:
		ix.delayed.Delete(m)
		q.memDelayed--
	case Reserved, Leaving:
		if m.res != nil {
			ix.endReservation(m)
		} else {
			q.leaving--
		}
	case Gone:
		return
	}
	ix.memory.drop(m)
}

// endReservation ends m's delivery for good: q's count, the maps and the lease forget it.
func (ix *Index) endReservation(m *Message) {
	r := m.res
	m.res = nil
	m.queue.reserved--
	delete(ix.held, m.ID)
	delete(ix.receipts, r.Receipt)
	ix.unlease(r)
	r.over()
}

func (ix *Index) applyRelease(q *Queue, op *Op) {
	m := ix.lookup(q, op)
	if m == nil { // cold, and stays so: the checkpoint moves its row
		ix.addCold(q, 1)
		return
	}
	ix.detach(m)
	m.Deliveries, m.Due = op.Count, op.NewDue
	ix.changed(m, op)
	if m.Expire != 0 {
		ix.timers.Set(timer{m.Expire, m.ID, m.Pri, m.Size, m.Due, q})
	}
	m.state, m.lane = Delayed, LaneDelayed
	q.memDelayed++
	ix.delayed.Set(m)
}

func (ix *Index) applyReplace(q *Queue, op *Op) {
	ix.count(q, op)
	m := ix.lookup(q, op)
	if m == nil { // cold, and stays so: the checkpoint rewrites its row
		return
	}
	ix.detach(m)
	if op.OldExpire != 0 {
		ix.timers.Delete(timer{at: op.OldExpire, id: op.ID})
	}
	if op.Expire != 0 {
		ix.timers.Set(timer{op.Expire, m.ID, m.Pri, op.Size, m.Due, q})
	}
	ix.memory.age(m)
	m.Deliveries, m.Flags, m.Size, m.Expire, m.BodySum = op.Count, op.Flags, op.Size, op.Expire, op.BodySum
	ix.memory.setBody(m, op.Body)
	ix.memory.freshen(m)
	ix.changed(m, op)
	m.Segment, m.Offset, m.BodyLSN = op.Segment, op.Offset, op.LSN
	q.put(m)
	ix.serve(q)
}

func (ix *Index) applyCount(q *Queue, op *Op) {
	m := ix.lookup(q, op)
	if m == nil { // cold, and stays so: the checkpoint rewrites its row
		return
	}
	if m.state == Ready {
		q.took(m) // it stays there, but not as one that the tree has
	}
	m.Deliveries = max(m.Deliveries, op.Count)
	m.saving = false
	ix.changed(m, op)
}

// detach takes a live message out of its place, for it to be put into another.
func (ix *Index) detach(m *Message) {
	switch m.state {
	case Ready:
		m.queue.take(m)
	case Delayed:
		ix.delayed.Delete(m)
		m.queue.memDelayed--
	case Reserved, Leaving:
		if m.res != nil {
			ix.endReservation(m)
		} else {
			m.queue.leaving--
		}
	}
}

// changed marks m as newer than the tree's row. The checkpoint writes a row with a due time into the delayed lane, past or
// not.
func (ix *Index) changed(m *Message, op *Op) {
	m.LSN = op.LSN
	m.counted = false
	if m.Due != 0 && m.lane != LaneDelayed {
		m.lane = LaneDelayed
		ix.promoted = append(ix.promoted, m)
	}
	ix.memory.outdated(m.ID, op.LSN)
	ix.memory.requeue(m)
}

func (ix *Index) applyPurge(q *Queue, op *Op) {
	ix.count(q, op)
	q.purgedID = max(q.purgedID, op.ID)
	if !op.Staged {
		q.doorLive, q.doorPurged = 0, q.purgedID
	}
	if q.ready != nil {
		q.ready.Scan(func(m *Message) bool { ix.purgeMessage(m); return true })
		q.ready = nil
	}
	ix.addCold(q, -q.coldDelayed)
	q.warm, q.reserved, q.leaving, q.memDelayed = 0, 0, 0, 0
	q.coldFrom = laneKey{}
	ix.purgeDelayed(q)
	ix.purgeHeld(q)
}

// purgeDelayed drops q's delayed messages from memory.
func (ix *Index) purgeDelayed(q *Queue) {
	var mine []*Message
	ix.delayed.Scan(func(m *Message) bool {
		if m.queue == q {
			mine = append(mine, m)
		}
		return true
	})
	for _, m := range mine {
		ix.delayed.Delete(m)
		ix.purgeMessage(m)
	}
	var old []timer
	ix.timers.Scan(func(t timer) bool {
		if t.queue == q {
			old = append(old, t)
		}
		return true
	})
	for _, t := range old {
		ix.timers.Delete(t)
	}
}

// purgeHeld ends the reservations of q: their places in the holders' lists stay and answer NOT_FOUND.
func (ix *Index) purgeHeld(q *Queue) {
	for id, m := range ix.held {
		if m.queue != q {
			continue
		}
		r := m.res
		m.res = nil
		delete(ix.held, id)
		delete(ix.receipts, r.Receipt)
		ix.unlease(r)
		r.over()
		ix.purgeMessage(m)
	}
}

// purgeMessage drops m, which a purge removes.
func (ix *Index) purgeMessage(m *Message) {
	ix.memory.die(m.ID)
	ix.memory.drop(m)
}

func (ix *Index) applyForget(q *Queue) {
	ix.ended.Add(q.totals)
	delete(ix.nums, q.Num)
	ix.sorted.Delete(q)
	if ix.names[q.Name] == q {
		delete(ix.names, q.Name)
	}
}

// LSN is the number of the last applied record.
func (ix *Index) LSN() uint64 { return ix.lsn }

// Tick tells the index the time: now in Unix milliseconds for what is written down, mono for leases. What follows
// happens at that time.
func (ix *Index) Tick(now int64, mono time.Duration) { ix.now, ix.mono = now, mono }
