package queue

// Totals are a queue's durable counters. At all times
// Enqueued = Acked + Purged + Expired + Live + Dead (I9).
type Totals struct {
	Enqueued, Acked, Purged, Expired int64
	Live, Dead                       int64
	Bytes                            int64 // of the bodies of live messages
}

// Apply adds op to the totals of its queue. The index and the checkpoint both count by it, so they agree.
func (t *Totals) Apply(op *Op) {
	switch op.Kind {
	case KindEnqueue:
		t.Enqueued++
		t.Live++
		t.Bytes += int64(op.Size)
	case KindRemove:
		t.Live--
		t.Bytes -= int64(op.Size)
		if op.Reason == Expired {
			t.Expired++
		} else {
			t.Acked++
		}
	case KindReplace:
		t.Bytes += int64(op.Size) - int64(op.OldSize)
	case KindPurge:
		t.Purged += t.Live
		t.Live, t.Bytes = 0, 0
	}
}

// Add adds the counters of u, as when a queue is forgotten and the server keeps its totals.
func (t *Totals) Add(u Totals) {
	t.Enqueued += u.Enqueued
	t.Acked += u.Acked
	t.Purged += u.Purged
	t.Expired += u.Expired
	t.Live += u.Live
	t.Dead += u.Dead
	t.Bytes += u.Bytes
}

func (t *Totals) sub(u Totals) {
	t.Enqueued -= u.Enqueued
	t.Acked -= u.Acked
	t.Purged -= u.Purged
	t.Expired -= u.Expired
	t.Live -= u.Live
	t.Dead -= u.Dead
	t.Bytes -= u.Bytes
}
