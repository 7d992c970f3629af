package storage

import "time"

// PutMode says under which condition a message is stored.
type PutMode int

const (
	PutSet     PutMode = iota // always
	PutAdd                    // only if the queue holds no live message
	PutReplace                // only if the queue holds a live message
)

// PutRequest is one message to enqueue.
type PutRequest struct {
	Mode     PutMode
	Body     []byte        // owned by the store from here on: the caller must not change it
	Flags    uint32        // the client's, kept exactly
	Expire   time.Time     // end of its life; zero: none; not after now: nothing is stored, the answer is as if it were
	Delay    time.Duration // ready this long after now; 0: at once
	Priority uint32        // lower is delivered first; DefaultPriority unless the client says otherwise
	Dedup    []byte        // key that stores the message once per window; nil: none; with PutAdd the queue's content is not asked about
}

// DefaultPriority is the priority of a message whose client gave none, as in beanstalkd.
const DefaultPriority = 1024

// Delivery is a message handed out by Reserve, Wait or Peek.
type Delivery struct {
	ID         uint64 // message id, increasing in the order of enqueueing, below 2^53
	Receipt    uint64 // number of this delivery, 1 to 2^53-1; 0 for Peek
	Flags      uint32
	Body       []byte        // must not be changed; valid for good
	Deliveries uint32        // earlier deliveries that ended without an ack
	Age        time.Duration // since it was enqueued
	Lease      time.Duration // what is left of it; 0: none
}

// ReserveOptions refines Reserve.
type ReserveOptions struct {
	Lease  time.Duration // 0: none, the reservation lives with the session
	Tag    []byte        // names the reservation; if the tag still holds a message of the queue on this session, that one is returned again
	Remove bool          // ack at once: the message is removed by a record that Commit waits for

	MemoryOnly bool // don't read the disk: ErrNotInMemory if that is needed, and nothing has happened; not with Tag
}

// Pick names a held message of a queue: by Receipt if it is not 0, else by Tag if it is not nil, else the one
// that the session reserved first and that is still in its list.
type Pick struct {
	Receipt uint64
	Tag     []byte
}

// LogFile is one file of the update log.
type LogFile struct {
	Path     string
	Size     int64
	Modified time.Time
	Needed   bool // recovery or a follower still needs it
}

// QueueStats is a queue at one moment. Items = Ready + Delayed + Reserved, and
// TotalItems = TotalAcked + TotalPurged + TotalExpired + Items + Dead (I9).
type QueueStats struct {
	Name                            string
	Items, Ready, Delayed, Reserved int64
	Dead                            int64
	Bytes                           int64         // of the bodies of live messages
	Age                             time.Duration // of the oldest ready message that is in memory; 0 if there is none
	Waiters                         int64
	TotalItems                      int64 // enqueued since the queue was created
	TotalAcked, TotalPurged         int64
	TotalExpired                    int64
	Returned                        int64 // deliveries that ended without an ack, since start
	Gets, GetMisses                 int64 // since start
}

// Stats is the store at one moment. The fields of the embedded QueueStats are sums over all queues and, for the
// totals, over the forgotten ones too.
type Stats struct {
	QueueStats
	Queues    int64
	Sessions  int64
	LSN       uint64 // of the last applied record
	Synced    uint64 // LSN up to which the log is known to be on the disk
	TreeLSN   uint64 // LSN up to which the tree has the log
	TreeBytes int64  // size of the tree's file
	TreeUsed  int64  // of which hold data
	LogBytes  int64  // size of the update log's files

	MemoryBytes int64 // what the store counts against Options.Memory
	MemoryLimit int64

	Returned, LeasesLapsed, HeldLimit int64 // since start: deliveries returned, of these by a lapsed lease; gets refused by MaxHeld
	Syncs, Checkpoints                int64 // since start
	Path                              string
	StartedAt                         time.Time
}
