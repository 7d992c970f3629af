package queue

// Row is a message as the tree has it.
type Row struct {
	ID               uint64
	Queue            uint32
	Pri, Flags, Size uint32
	Deliveries       uint32
	BodySum          uint32
	Enqueued         int64
	Due, Expire      int64
	Body             []byte // nil: not read
}

func (q *Queue) message(row *Row, lane TreeLane) *Message {
	return &Message{ID: row.ID, Pri: row.Pri, Flags: row.Flags, Size: row.Size, Deliveries: row.Deliveries,
		BodySum: row.BodySum, Enqueued: row.Enqueued, Due: row.Due, TreeDue: row.Due, Expire: row.Expire, Body: row.Body,
		queue: q, lane: lane}
}

// FillWindow takes rows that were read from the tree's ready lane of q, in order, from (pri, id) on, which was ColdFrom. complete
// means that they reach the end of the lane. The tree must stand where it stood when the rows were read. false, and nothing is done:
// ColdFrom has moved meanwhile, since a message before these rows was evicted; read again.
func (ix *Index) FillWindow(q *Queue, pri uint32, id uint64, rows []Row, complete bool) bool {
	if q.coldFrom != (laneKey{pri, id}) {
		return false
	}
	for i := range rows {
		row := &rows[i]
		if row.ID <= q.purgedID || ix.memory.isGone(row.ID) || ix.held[row.ID] != nil || q.find(row.Pri, row.ID) != nil {
			continue
		}
		m := q.message(row, LaneReady)
		ix.memory.count(m)
		q.put(m)
	}
	if n := len(rows); n > 0 && !complete {
		q.coldFrom = laneKey{rows[n-1].Pri, rows[n-1].ID + 1}
	}
	if complete {
		q.coldFrom = laneKey{1<<32 - 1, 1<<64 - 1}
	}
	ix.serve(q)
	return true
}

// Limits says how much may stay in memory after a checkpoint.
type Limits struct {
	Window int   // warm messages at the head of one queue
	Bytes  int64 // of bodies in all, above which warm messages are evicted
	Timed  int   // delayed messages, and timers
}

// BeginStride tells the index that a checkpoint writes rows of what is applied now: acks of such messages must be
// remembered until the tree has them too. It returns which ids from first on, the tree's next one, are dead already, and the
// LSN up to which the log must be on the disk before a checkpoint leaves them out.
func (ix *Index) BeginStride(first uint64) (dead Bits, known uint64) {
	ix.memory.treeIDs = max(ix.memory.treeIDs, ix.nextID)
	return ix.deadIDs(first, ix.nextID), ix.lsn
}

// Gone is how many rows of the tree are out of date.
func (ix *Index) Gone() int { return len(ix.memory.gone) }

// deadIDs returns which of the ids [from, to) were removed, one bit each.
func (ix *Index) deadIDs(from, to uint64) Bits {
	b := Bits{base: ix.memory.deadBase}
	if to > from && from >= b.base {
		lo := min((from-b.base)/64, uint64(len(ix.memory.dead)))
		hi := min((to-1-b.base)/64+1, uint64(len(ix.memory.dead)))
		b.words = append(b.words, ix.memory.dead[lo:hi]...)
		b.base += lo * 64
	}
	return b
}

// Bits is a set of ids.
type Bits struct {
	words []uint64
	base  uint64
}

// Has says whether id is in the set.
func (b Bits) Has(id uint64) bool {
	i := id - b.base
	return id >= b.base && i/64 < uint64(len(b.words)) && b.words[i/64]&(1<<(i%64)) != 0
}

// TreeAdvanced tells the index that the tree stands at lsn, with rows for ids below ids. Call Settle until it is done.
func (ix *Index) TreeAdvanced(lsn, ids uint64) { ix.memory.advance(lsn, ids) }

// Settle makes messages that the tree has got warm, or evicts them; it looks at no more than n and says whether it is done.
func (ix *Index) Settle(n int, lim Limits) (done bool) {
	y := &ix.memory
	for ; n > 0; n-- {
		if y.fresh.len() == 0 || y.fresh.at(0).lsn > y.treeLSN {
			return true
		}
		it := y.fresh.pop()
		y.dropped = max(0, y.dropped-1)
		if it.m.state == Gone {
			continue
		}
		it.m.TreeDue = it.due
		if it.lsn == it.m.BodyLSN {
			y.age(it.m)
		}
		if it.m.LSN == it.lsn {
			ix.settle(it.m, lim)
		}
	}
	return false
}

// settle places m, whose row the tree now has as it is.
func (ix *Index) settle(m *Message, lim Limits) {
	q := m.queue
	switch m.state {
	case Ready:
		if m.LSN != 0 {
			m.LSN = 0
			q.warm++
		}
		if m.lane == LaneReady && (q.warm > lim.Window || ix.memory.bodyBytes > lim.Bytes) {
			ix.evict(m, lim)
		}
	case Delayed:
		m.LSN = 0
		ix.memory.setBody(m, nil)
		if ix.delayed.Len() > lim.Timed {
			ix.evictDelayed(m, lim)
		}
	default:
		m.LSN = 0
		if m.state == Reserved {
			ix.memory.setBody(m, nil)
		}
	}
}

// evict drops a warm ready message from memory. Its count of deliveries stays in memory with it: such a message is kept.
func (ix *Index) evict(m *Message, lim Limits) {
	if m.counted || m.saving {
		return
	}
	m.queue.evict(m)
	ix.evicted(m, lim)
}

func (ix *Index) evictDelayed(m *Message, lim Limits) {
	if m.counted || m.saving {
		return
	}
	ix.delayed.Delete(m)
	m.queue.memDelayed--
	ix.addCold(m.queue, 1)
	m.state = Gone
	ix.cutTimes(TimeKey{m.Due, m.ID, TimeDue})
	ix.evicted(m, lim)
}

func (ix *Index) evicted(m *Message, lim Limits) {
	ix.memory.drop(m)
	if m.Expire != 0 && ix.timers.Len() > lim.Timed {
		ix.timers.Delete(timer{at: m.Expire, id: m.ID})
		ix.cutTimes(TimeKey{m.Expire, m.ID, TimeExpire})
	}
}

// EvictWarm evicts warm messages, last first in each queue, until at most target bytes are counted or none is left.
func (ix *Index) EvictWarm(target int64, lim Limits) {
	for _, q := range ix.nums {
		if ix.memory.bytes() <= target {
			return
		}
		if q.warm == 0 || q.ready == nil {
			continue
		}
		var out []*Message
		q.ready.Reverse(func(m *Message) bool {
			if m.LSN == 0 && m.lane == LaneReady && !m.counted && !m.saving {
				out = append(out, m)
			}
			return len(out) < q.warm
		})
		for _, m := range out {
			ix.evict(m, lim)
		}
	}
}

// DropBodies lets the bodies of fresh messages leave memory, oldest first, while more than limit bytes are counted in all:
// they are in the log.
func (ix *Index) DropBodies(limit int64) {
	if over := ix.Bytes() - limit; over > 0 {
		ix.memory.dropBodies(max(0, ix.memory.bodyBytes-over))
	}
}

// FreshBytes is how much of the log behind the tree, about, live messages take: the rest is dead.
func (ix *Index) FreshBytes() int64 { return ix.memory.freshBytes }

// Bytes is what messages, bodies and tables cost in memory, about.
func (ix *Index) Bytes() int64 {
	return ix.memory.bytes() + int64(len(ix.receipts))*160 + int64(ix.timers.Len())*64 + ix.dedup.bytes
}

// BodyInTree says whether m's body can be read in the tree, under m's priority and TreeDue, or Due.
func (ix *Index) BodyInTree(m *Message) bool { return m.BodyLSN <= ix.memory.treeLSN }

// DropBody lets the body of a held message leave memory if the tree has it.
func (ix *Index) DropBody(m *Message) {
	if m.BodyLSN <= ix.memory.treeLSN && m.state == Reserved {
		ix.memory.setBody(m, nil)
	}
}

// Promoted is a ready message whose row the tree still has in its delayed lane: where that is, and where it belongs.
type Promoted struct {
	Queue, Pri uint32
	Due        int64
	ID         uint64
	m          *Message
}

// Promoted is how many of them there may be.
func (ix *Index) Promoted() int { return len(ix.promoted) }

// TakePromoted returns up to n of them: the checkpoint moves their rows.
func (ix *Index) TakePromoted(n int) []Promoted {
	var out []Promoted
	var rest []*Message
	for _, m := range ix.promoted {
		switch {
		case m.state == Gone || m.lane != LaneDelayed:
		case m.state == Ready && m.LSN == 0 && len(out) < n:
			out = append(out, Promoted{m.queue.Num, m.Pri, m.TreeDue, m.ID, m})
		default: // held, or newer than its row: another time
			rest = append(rest, m)
		}
	}
	ix.promoted = rest
	return out
}

// NotMoved gives back what TakePromoted returned: the checkpoint has failed.
func (ix *Index) NotMoved(ps []Promoted) {
	for _, p := range ps {
		ix.promoted = append(ix.promoted, p.m)
	}
}

// Moved tells the index that the tree has the rows of these messages in its ready lane now. One that was changed in the
// meantime has another row coming.
func (ix *Index) Moved(ps []Promoted) {
	for _, p := range ps {
		if p.m.state != Gone && p.m.LSN == 0 {
			p.m.lane = LaneReady
		}
	}
}
