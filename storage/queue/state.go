package queue

// State of the index that the tree keeps, and what the server shows of it.

// Base is the index's own counters at one position.
type Base struct {
	LSN       uint64
	NextID    uint64
	NextQueue uint32
	Receipts  uint64  // the end of the receipts that may have been given out
	Forgotten Totals  // of queues that are forgotten
	Epochs    []Epoch // the last ones, oldest first; none: nobody but the first node has written
}

// Apply adds op to the counters.
func (b *Base) Apply(op *Op) {
	b.LSN = op.LSN
	switch op.Kind {
	case KindCreate:
		b.NextQueue = max(b.NextQueue, op.Queue+1)
	case KindEnqueue:
		b.NextID = max(b.NextID, op.ID+1)
	case KindReceipts:
		b.Receipts = max(b.Receipts, op.ID)
	case KindEpoch:
		b.Epochs = withEpoch(b.Epochs, op)
	}
}

// QueueRow is a queue as the tree keeps it.
type QueueRow struct {
	Num      uint32
	Name     string
	Totals   Totals
	PurgedID uint64 // messages up to it are purged, though rows of them may be left
	Delayed  int64  // rows in the delayed lane that are not purged: from the tree's own count
}

// Restore makes a new index stand where the tree stands. Every receipt of earlier runs is skipped.
func (ix *Index) Restore(b Base, now int64) {
	ix.lsn = b.LSN
	ix.nextID, ix.nextQueue = max(1, b.NextID), max(1, b.NextQueue)
	r := max(1, b.Receipts)
	ix.receipt, ix.receiptsEnd, ix.receiptsAsked, ix.firstGiven = r, r, r, r
	ix.ended, ix.all = b.Forgotten, b.Forgotten
	ix.epochs = b.Epochs
	ix.memory.advance(b.LSN, ix.nextID)
}

// RestoreQueue adds a queue as the tree keeps it: all its messages are cold.
func (ix *Index) RestoreQueue(r QueueRow, now int64) {
	q := &Queue{Name: r.Name, Num: r.Num, totals: r.Totals, purgedID: r.PurgedID,
		doorLive: r.Totals.Live, doorPurged: r.PurgedID, lastUsed: now}
	ix.addCold(q, r.Delayed)
	ix.all.Add(r.Totals)
	ix.names[q.Name], ix.nums[q.Num] = q, q
	ix.sorted.Set(q)
}

// Counts is a queue at one moment.
type Counts struct {
	Totals
	Ready, Delayed, Reserved int64
	Waiters                  int64
	Gets, Misses, Returned   int64
	Oldest                   int64 // Unix ms when the first ready message in memory was enqueued; 0: unknown or none
}

// Counts returns q's counters. Live = Ready + Delayed + Reserved.
func (q *Queue) Counts() Counts {
	c := Counts{Totals: q.totals, Delayed: q.memDelayed + q.coldDelayed, Reserved: q.reserved,
		Waiters: int64(q.waitersN), Gets: q.gets, Misses: q.misses, Returned: q.returned}
	c.Ready = c.Live - c.Delayed - c.Reserved
	if q.ready != nil {
		if m, ok := q.ready.Min(); ok {
			c.Oldest = m.Enqueued
		}
	}
	return c
}

// Queues calls fn for each queue whose name is greater than after, in the order of the names, until fn returns false.
func (ix *Index) Queues(after string, fn func(q *Queue) bool) {
	ix.sorted.Ascend(&Queue{Name: after}, func(q *Queue) bool {
		if q.Name == after && after != "" {
			return true
		}
		return fn(q)
	})
}

// Summary is what the index counts in all; its totals hold the forgotten queues too.
type Summary struct {
	Counts
	Queues int
	Lapsed int64
}

// Summary returns the sums over all queues: O(1).
func (ix *Index) Summary() Summary {
	s := Summary{Queues: len(ix.nums), Lapsed: ix.lapsed}
	s.Counts = Counts{Totals: ix.all, Delayed: int64(ix.delayed.Len()) + ix.coldDelayed, Reserved: int64(len(ix.held)),
		Waiters: ix.waiting, Gets: ix.gets, Misses: ix.misses, Returned: ix.returned}
	s.Ready = s.Live - s.Delayed - s.Reserved
	return s
}

// UnsavedCounts returns Ops that write down up to limit counts of deliveries which only memory has. Afterwards their
// messages can be evicted.
func (ix *Index) UnsavedCounts(limit int) []Op {
	var ops []Op
	for _, q := range ix.nums {
		if q.ready == nil || len(ops) == limit {
			continue
		}
		q.ready.Scan(func(m *Message) bool {
			if m.counted {
				m.counted, m.saving = false, true
				q.staged++
				ops = append(ops, Op{Kind: KindCount, Staged: true, Queue: q.Num, ID: m.ID, Pri: m.Pri, Due: m.Due, Count: m.Deliveries})
			}
			return len(ops) < limit
		})
	}
	return ops
}
