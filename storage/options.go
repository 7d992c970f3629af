package storage

import (
	"log/slog"
	"time"

	"qserver/storage/ulog"
)

// SyncMode says when the update log is flushed to the disk.
type SyncMode int

// The sync modes; doc.go has what a crash or a power cut can undo in each.
const (
	SyncEnqueue  SyncMode = iota // before an enqueue is answered; acks ride along
	SyncAlways                   // before anything is answered
	SyncInterval                 // every Options.SyncInterval, and every 8 MiB
	SyncNever                    // every 8 MiB, when the kernel likes, and at checkpoints
)

// lazy says whether nothing that is answered waits for the disk.
func (m SyncMode) lazy() bool { return m == SyncInterval || m == SyncNever }

// Options configures Open. The zero value works: every field's default is in its comment.
type Options struct {
	Sync         SyncMode      // SyncEnqueue
	SyncInterval time.Duration // 1 s; used with SyncInterval only
	SegmentBytes int64         // size of an update-log segment; 64 MiB
	Memory       int64         // bytes for bodies, entries, windows, leases, dedup keys; 256 MiB
	Window       int           // messages that are read ahead at the head of a queue; 1,024
	MaxHeld      int           // messages that one session may hold; 10,000
	IgnoreTTL    bool          // drop the expiry time of what is enqueued
	DedupWindow  time.Duration // how long a dedup key is remembered; 2 minutes
	ForgetAfter  time.Duration // how long an empty queue is kept; 10 minutes
	MinFreeDisk  int64         // enqueues are refused below this much free disk; 64 MiB
	Master       string        // host:port of the node that this one follows, read-only; "": it leads
	LogKeep      int64         // bytes of the update log that are kept for slaves which are behind; 4 GiB
	LogSegments  int           // segments of the update log that are kept in any case beside the one in use, to tell where two logs part

	MinSlaves        int           // slaves that must have an enqueue durably before it is answered; 0: none
	MinSlavesTimeout time.Duration // how long it waits for them; 1 s
	RefuseAlone      bool          // refuse enqueues while they are not there; else they are answered without

	keepLog bool // nothing of the update log is released

	Log      *slog.Logger                         // discards if nil
	Progress func(step string, done, total int64) // called about every second while Open or Close works on long; nil: never
	FS       ulog.FS                              // file system of the update log; the operating system's if nil
}
