// Package queue is the pure core of the store: which messages exist, in which order they are ready, who holds
// them, who waits. It does no I/O, reads no clock, starts no goroutine and takes no lock: its callers pass the time
// and serialise the calls.
//
// Every durable change is an Op. An Index is what the Ops up to one log position add up to (I1, I2): Apply takes each
// Op once, in the order of its LSN, and never refuses. What may be refused is decided before, at the door, by the
// Door… and Reserve… methods, which see every Op that was staged, applied or not.
//
// # States
//
//	          enqueue with delay               release with delay
//	         ┌───────────────────▶ delayed ◀──────────────────────┐
//	         │                        │ due                       │
//	enqueue ─┴──────────────────▶   ready   ──────reserve──▶  reserved ──ack──▶ (gone)
//	                                  ▲                           │
//	                                  └── release, disconnect, ───┘
//	                                      lapse of the lease
//
// Delayed, ready and reserved messages are live. TTL and purge remove them. Reserving is a state in memory and
// no Op: after a restart a reserved message is ready (I8).
//
// # Memory
//
// A Message is in memory while it is fresh (the tree does not have it yet), reserved, or near the head of its queue
// (the window). The rest lies in the tree and is only counted: it is cold. Lane says when the window must be
// refilled; TreeAdvanced makes fresh messages warm or cold after a checkpoint (I10).
package queue
