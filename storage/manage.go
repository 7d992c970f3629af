package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"qserver/storage/queue"
	"qserver/storage/ulog"
)

// Purge removes ready, delayed and reserved messages of one queue by one record, and says how many. It returns when the
// record is committed. An unknown queue is 0, nil.
func (s *Store) Purge(name []byte) (int64, error) {
	s.lockIndex()
	n := s.purgeLocked(s.ix.Lookup(name))
	err := s.refusedLocked()
	s.unlockIndex()
	if err != nil {
		return 0, err
	}
	return n, s.flush()
}

// PurgeAll is Purge of every queue.
func (s *Store) PurgeAll() (int64, error) {
	var n int64
	s.lockIndex()
	s.ix.Queues("", func(q *queue.Queue) bool {
		n += s.purgeLocked(q)
		return true
	})
	err := s.refusedLocked()
	s.unlockIndex()
	if err != nil {
		return 0, err
	}
	return n, s.flush()
}

// refusedLocked says why nothing may be changed; a full disk is no reason.
func (s *Store) refusedLocked() error {
	switch {
	case s.err != nil:
		return fmt.Errorf("%w: %w", ErrFailed, s.err)
	case s.closed:
		return ErrClosed
	case s.master != "":
		return &ReadOnlyError{s.master}
	}
	return nil
}

func (s *Store) purgeLocked(q *queue.Queue) int64 {
	if q == nil || q.Num == 0 || s.refusedLocked() != nil {
		return 0
	}
	op, n := s.ix.DoorPurge(q)
	s.actor.stage(&op, nil)
	return n
}

// Stats returns the store's counters: O(1).
func (s *Store) Stats() Stats {
	file, used := s.tree.Size()
	var logBytes int64
	for _, seg := range s.ulog.Segments() {
		logBytes += seg.Bytes
	}
	synced := s.ulog.Synced()
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.ix.Summary()
	st := Stats{QueueStats: queueStats("", sum.Counts, time.Now().UnixMilli()), Queues: int64(sum.Queues), Sessions: s.sessions,
		LSN: s.applied.Load(), Synced: synced, TreeLSN: s.treeLSN, TreeBytes: file, TreeUsed: used, LogBytes: logBytes,
		MemoryBytes: s.ix.Bytes(), MemoryLimit: s.opts.Memory, Returned: sum.Returned, LeasesLapsed: sum.Lapsed, HeldLimit: s.heldLimit,
		Syncs: s.syncs.Load(), Checkpoints: s.checkpoints.Load(), Path: s.dir, StartedAt: s.start}
	if s.actor != nil {
		st.Sessions-- // the store's own
	}
	return st
}

// Queue returns one queue's counters; ok is false if there is no such queue.
func (s *Store) Queue(name []byte) (st QueueStats, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.ix.Lookup(name)
	if q == nil || q.Num == 0 {
		return QueueStats{}, false
	}
	return queueStats(q.Name, q.Counts(), time.Now().UnixMilli()), true
}

// Queues lists queues whose names follow `after` in byte order, at most limit (0: all).
func (s *Store) Queues(after string, limit int) []QueueStats {
	var out []QueueStats
	now := time.Now().UnixMilli()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ix.Queues(after, func(q *queue.Queue) bool {
		out = append(out, queueStats(q.Name, q.Counts(), now))
		return limit == 0 || len(out) < limit
	})
	return out
}

func sortQueues(qs []QueueStats) {
	slices.SortFunc(qs, func(a, b QueueStats) int { return strings.Compare(a.Name, b.Name) })
}

func queueStats(name string, c queue.Counts, now int64) QueueStats {
	st := QueueStats{Name: name, Items: c.Live, Ready: c.Ready, Delayed: c.Delayed, Reserved: c.Reserved, Dead: c.Dead,
		Bytes: c.Bytes, Waiters: c.Waiters, TotalItems: c.Enqueued, TotalAcked: c.Acked, TotalPurged: c.Purged,
		TotalExpired: c.Expired, Returned: c.Returned, Gets: c.Gets, GetMisses: c.Misses}
	if c.Oldest != 0 {
		st.Age = time.Duration(max(0, now-c.Oldest)) * time.Millisecond
	}
	return st
}

// LogFiles lists the files of the update log.
func (s *Store) LogFiles() []LogFile {
	s.mu.Lock()
	needed := s.treePlace
	s.mu.Unlock()
	needed = s.keptPlace(needed)
	var out []LogFile
	for _, seg := range s.ulog.Segments() {
		out = append(out, LogFile{Path: filepath.Join(s.logPath(), seg.Name), Size: seg.Bytes, Modified: seg.Modified,
			Needed: seg.FirstLSN == 0 || segmentOf(seg) >= needed.Segment})
	}
	return out
}

func segmentOf(seg ulog.SegmentInfo) uint64 {
	var n uint64
	_, _ = fmt.Sscanf(seg.Name, "%016x", &n)
	return n
}

// RemoveLogs deletes files of the update log that nothing needs and says how many. Checkpoints do so by themselves; there is
// rarely any left.
func (s *Store) RemoveLogs() (int, error) {
	s.strides.Lock()
	defer s.strides.Unlock()
	before := len(s.ulog.Segments())
	if err := s.releaseLog(s.cp.Place); err != nil && !os.IsNotExist(err) {
		return 0, err
	}
	return max(0, before-len(s.ulog.Segments())), nil
}
