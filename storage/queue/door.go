package queue

// The door decides what may be refused, against every record that was staged before, and returns the Ops that say so.

// Lookup returns the queue of this name, or nil.
func (ix *Index) Lookup(name []byte) *Queue { return ix.names[string(name)] }

// LookupOrWait returns the queue of this name; one that does not exist comes into being for as long as something waits
// in it, uncounted and unlisted.
func (ix *Index) LookupOrWait(name []byte) *Queue {
	q := ix.names[string(name)]
	if q == nil {
		q = &Queue{Name: string(name)}
		ix.names[q.Name] = q
	}
	return q
}

// dropUncreated forgets q when no enqueue has created it and nobody waits in it.
func (ix *Index) dropUncreated(q *Queue) {
	if q.Num == 0 && q.waitersN == 0 && ix.names[q.Name] == q {
		delete(ix.names, q.Name)
	}
}

// DoorCreate returns the queue of this name for an enqueue. If created is true, op gives it its number and is to be
// staged first.
func (ix *Index) DoorCreate(name []byte) (q *Queue, op Op, created bool) {
	q = ix.LookupOrWait(name)
	if q.Num != 0 {
		return q, Op{}, false
	}
	q.Num = ix.nextQueue
	ix.nextQueue++
	return q, Op{Kind: KindCreate, Queue: q.Num, Name: []byte(q.Name)}, true
}

// DoorLive is how many live messages q has once all staged records are applied.
func (q *Queue) DoorLive() int64 { return q.doorLive }

// DoorDedup says whether key was seen in q within its window.
func (ix *Index) DoorDedup(q *Queue, key []byte) bool { return ix.dedup.seen(q.Num, key, ix.now) }

// DoorEnqueue gives m its id and returns its Op; m's Pri, Flags, Size, Body, BodySum, Enqueued, Due and Expire are set.
// dedup, if any, is remembered until the given time.
func (ix *Index) DoorEnqueue(q *Queue, m *Message, dedup []byte, until int64) Op {
	m.ID, m.queue, m.state = ix.nextID, q, Staged
	ix.nextID++
	q.doorLive++
	q.staged++
	if len(dedup) > 0 {
		ix.dedup.add(q.Num, dedup, until)
	}
	return Op{Kind: KindEnqueue, Staged: true, Msg: m, Queue: q.Num, ID: m.ID, Pri: m.Pri, Flags: m.Flags, Size: m.Size,
		Enqueued: m.Enqueued, Due: m.Due, Expire: m.Expire, Dedup: dedup, DedupUntil: until, BodySum: m.BodySum}
}

// DoorRemove returns the Op that removes m, which is held or was taken out of its lane by expire.
func (ix *Index) DoorRemove(m *Message, why Reason) Op {
	q := m.queue
	m.state = Leaving
	q.doorLive--
	q.staged++
	q.lastUsed = ix.now
	return Op{Kind: KindRemove, Reason: why, Staged: true, Msg: m, Queue: q.Num, ID: m.ID, Pri: m.Pri, Size: m.Size,
		Due: m.Due, Expire: m.Expire}
}

// DoorAck ends r at the door, takes its place out of its holder's list and returns the Op that removes its message.
// r must be current.
func (ix *Index) DoorAck(r *Reservation) Op {
	r.leave()
	return ix.DoorRemove(r.Msg, Acked)
}

// DoorRelease ends r at the door and returns the Op that makes its message ready again at due, Unix ms.
func (ix *Index) DoorRelease(r *Reservation, due int64) Op {
	m := r.Msg
	r.leave()
	m.state = Leaving
	m.queue.staged++
	m.queue.returned++
	ix.returned++
	return Op{Kind: KindRelease, Staged: true, Msg: m, Queue: m.queue.Num, ID: m.ID, Pri: m.Pri, Count: m.Deliveries + 1,
		Due: m.Due, NewDue: due}
}

// DoorReplace ends r at the door and returns the Op that gives its message a new body, flags and, unless it is 0, expiry.
func (ix *Index) DoorReplace(r *Reservation, body []byte, sum, flags uint32, expire int64) Op {
	m := r.Msg
	r.leave()
	m.state = Leaving
	m.queue.staged++
	m.queue.returned++
	ix.returned++
	if expire == 0 {
		expire = m.Expire
	}
	return Op{Kind: KindReplace, Staged: true, Msg: m, Body: body, BodySum: sum, Queue: m.queue.Num, ID: m.ID, Pri: m.Pri,
		Count: m.Deliveries + 1, Due: m.Due, Flags: flags, OldSize: m.Size, Size: uint32(len(body)),
		OldExpire: m.Expire, Expire: expire}
}

// DoorPurge returns the Op that removes every live message of q, and how many that are.
func (ix *Index) DoorPurge(q *Queue) (Op, int64) {
	n := q.doorLive
	q.doorLive = 0
	q.doorPurged = ix.nextID - 1
	q.staged++
	q.lastUsed = ix.now
	return Op{Kind: KindPurge, Staged: true, Queue: q.Num, ID: q.doorPurged}, n
}

// DoorForget returns the Ops that forget queues which have held nothing since before, Unix ms.
func (ix *Index) DoorForget(before int64, limit int) []Op {
	var ops []Op
	for _, q := range ix.nums {
		idle := q.doorLive == 0 && q.totals.Live == 0 && q.totals.Dead == 0 && q.staged == 0 && q.waitersN == 0
		if !idle || q.lastUsed > before || ix.names[q.Name] != q {
			continue
		}
		delete(ix.names, q.Name) // an enqueue from here on makes another queue
		ops = append(ops, Op{Kind: KindForget, Queue: q.Num})
		if len(ops) == limit {
			break
		}
	}
	return ops
}

// receiptBlock is how many receipts one record reserves.
const receiptBlock = 1 << 20

// DoorReceipts returns the Op that reserves the next block of receipts, if it is time.
func (ix *Index) DoorReceipts() (Op, bool) {
	if ix.receiptsAsked > ix.receipt+receiptBlock/2 {
		return Op{}, false
	}
	ix.receiptsAsked = max(ix.receiptsEnd, ix.receiptsAsked) + receiptBlock
	return Op{Kind: KindReceipts, ID: ix.receiptsAsked}, true
}

// ReceiptsLeft is how many receipts may be given out before the next block is applied.
func (ix *Index) ReceiptsLeft() uint64 { return ix.receiptsEnd - ix.receipt }
