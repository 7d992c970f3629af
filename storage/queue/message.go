package queue

// State says where a message in memory stands.
type State uint8

// The states of a Message in memory.
const (
	Staged   State = iota // its enqueue is not applied yet
	Ready                 // in its queue's lane
	Delayed               // in the index's delayed tree, until Due
	Reserved              // held by a Reservation
	Leaving               // its removal is staged: no one gets it any more
	Gone                  // removed, purged or evicted: a stale pointer
)

// TreeLane says in which lane of the on-disk tree a message's row lies.
type TreeLane uint8

// The lanes of the tree. The values are part of the on-disk format.
const (
	LaneReady   TreeLane = 0 // ordered by (queue, priority, id)
	LaneDelayed TreeLane = 1 // ordered by (queue, due, id)
)

// Message is one message in memory. Times are Unix milliseconds; 0 means none.
type Message struct {
	ID       uint64
	Enqueued int64
	Due      int64 // ready from then on; kept after it has come due
	Expire   int64
	LSN      uint64 // of the last record that changed it; 0: it is as the tree has it
	BodyLSN  uint64 // of the record that carries its body; 0: the tree has it
	TreeDue  int64  // Due as the tree's row has it, where it has one
	Body     []byte // nil: not in memory (an empty body in memory is non-nil)

	queue *Queue
	res   *Reservation // while Reserved, or Leaving out of a reservation

	Segment, Offset uint32 // where its body lies in the update log, while BodyLSN is beyond the tree's
	BodySum         uint32 // CRC-32C of the body
	Pri             uint32
	Flags           uint32
	Size            uint32 // of the body, bytes
	Deliveries      uint32 // that ended without an ack

	state   State
	lane    TreeLane
	fresh   bool // its body is in the log only
	counted bool // Deliveries has changed since it was last written down
	saving  bool // a record that writes it down is staged
}

// messageCost is what one Message costs in memory beside its body: itself and its places in the trees and maps.
const messageCost = 192

// Queue returns the queue that the message belongs to.
func (m *Message) Queue() *Queue { return m.queue }

// State returns where the message stands.
func (m *Message) State() State { return m.state }

// Lane returns the tree's lane in which its row lies, or would lie.
func (m *Message) Lane() TreeLane { return m.lane }

// Live says whether the message still exists: its queue may have been purged behind a holder's back.
func (m *Message) Live() bool {
	return m.state != Gone && m.ID > m.queue.purgedID
}

// lessReady orders by (priority, id): I3.
func lessReady(a, b *Message) bool {
	if a.Pri != b.Pri {
		return a.Pri < b.Pri
	}
	return a.ID < b.ID
}

// lessDue orders by (due, id).
func lessDue(a, b *Message) bool {
	if a.Due != b.Due {
		return a.Due < b.Due
	}
	return a.ID < b.ID
}
