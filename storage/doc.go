// Package storage is the durable store of queues: who enqueues, reserves and acks goes through it. It puts three parts
// together and holds no rule of its own: package queue knows what the messages are, package ulog puts every change
// in one order on the disk, package tree is the checkpoint of that log.
//
// Open an existing or new folder with Open, give each connection a Session, and call its Commit before an answer
// goes out.
//
//	s, err := storage.Open("data", storage.Options{})
//	c := s.NewSession("peer")
//	id, err := c.Enqueue([]byte("mail"), storage.PutRequest{Body: body, Priority: storage.DefaultPriority})
//	err = c.Commit()                                                        // now it is STORED
//	d, ok, err := c.Reserve([]byte("mail"), storage.ReserveOptions{})       // now c holds it
//	err = c.Ack([]byte("mail"), storage.Pick{})
//	err = c.Commit()                                                        // now it is DELETED
//
// # Promises
//
// Delivery is at least once: a message whose Commit returned nil is delivered until it is acked, purged or
// expired. What may be undone of that which was answered:
//
//	-sync         by a power cut                                by a crash or kill of the process
//	always        nothing                                       nothing
//	enqueue       no enqueue; acks of the last moments          nothing
//	interval=d    what was answered within d                    nothing
//	never         what the kernel had not written               nothing
//
// Reserving is a state in memory: after a restart what was reserved is ready again, in its old place.
//
// # Invariants
//
//	I1   The state is the tree at its position plus the log's records behind it.
//	I2   Index.Apply is deterministic and total.
//	I3   Ready order is (priority, id); a release returns a message to its old place.
//	I4   Nobody sees success before the mode's promise holds; nothing is applied before it is in the log (written).
//	I5   Records are applied in the order of their LSNs, by one applier.
//	I6   The tree's rows and its position change in one transaction.
//	I7   After a failed write or sync the log accepts nothing more.
//	I8   A reserved message is ready after a restart; an answered ack never comes back within its mode's promise.
//	I9   At all times enqueued = acked + purged + expired + ready + delayed + reserved + dead, per queue.
//	I10  Memory is bounded by settings, not by the backlog.
//
// # How a record travels
//
//	Session.Enqueue ─▶ door (queue.Index, all staged records seen) ─▶ stage: place in the order ─▶ …
//	Session.Commit  ─▶ leader: one write for all that is staged ─▶ Apply in order ─▶ sync if the mode asks ─▶ answer
//	checkpoint      ─▶ read the log behind the tree, megabytes at a time ─▶ one tree transaction ─▶ evict, release segments
//
// Recovery takes the same way as the checkpoint: the log's tail is written into the tree, then the counters are read
// from there. So what is served after a start is what the tree has, and memory holds no message that nobody asked for.
//
// # Locks
//
// Store.mu guards the index and what is staged: memory work only, never I/O. Store.strides guards the tree's writing side,
// Store.refills lets one goroutine at a time read a window; both may be held across I/O, and mu is taken inside of them,
// never around them.
//
// # Files
//
//	lock          names the process that has the folder, and is locked by it
//	tree          the tree: see package tree for its format; its tables are below
//	ulog/*.ulog   the update log's segments: see package ulog
//	slaves        which slaves the log is kept for, up to where: see keep.go
//	incoming/     a copy of the master's tree on its way here: see copy.go
//	outgoing/     copies of the tree on their way to slaves
//
// Every record of the log is an Op of package queue (see queue.AppendHead), with the message's body as the record's body.
//
// # Tables of the tree
//
// Numbers in keys are big endian, so that rows lie in their order; u is an unsigned varint, i a zigzag varint. The format's
// version is the tree's.
//
//	0 meta      "base"                                  u LSN, u chain, u segment, u offset (where the log goes on),
//	                                                    u next message id, u next queue number, u end of receipts, totals of forgotten queues,
//	                                                    and for each epoch u number, u nonce, u LSN
//	            "recount"                               nothing: the next recovery counts the messages anew
//	            "follower"                              host:port of the master, while the folder follows and until it leads again
//	            "history"                               number that all nodes with this history share [16]
//	1 queues    number[4]                               u flags (1 rows to sweep, 2 forgotten), u purged up to id, totals, name
//	2 messages  number[4] lane[1] order[8] id[8]        u priority, u flags, u deliveries, u enqueued, u due, u expire, body
//	3 times     at[8] id[8] kind[1]                     u queue number, u priority, u size, u due
//	4 dedup     until[8] number[4] key                  nothing
//	5 meta copy as meta, for a repair of a damaged tree
//
// totals are seven i: enqueued, acked, purged, expired, live, dead, bytes. Times are Unix milliseconds, 0 is none. lane is 0
// for ready (order: the priority) and 1 for delayed (order: the due time); kind is 0 for due and 1 for expire. A message
// that has come due stays in the delayed lane until a checkpoint finds time to move it, so a removal looks in both.
package storage
