package storage

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"qserver/storage/queue"
	"qserver/storage/tree"
	"qserver/storage/ulog"
)

// recover brings the store up: tree, then log, then the log's tail into the tree, then the counters (I1).
func (s *Store) recover() (err error) {
	if err = os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	if s.lock, err = lockFolder(s.dir); err != nil {
		return err
	}
	if err = finishDiscard(s.dir); err != nil {
		return err
	}
	if err = s.installCopy(); err != nil {
		return err
	}
	if err = s.kept.load(s.dir); err != nil {
		return err
	}
	if s.tree, err = tree.Open(s.treePath(), tree.Options{Tables: treeTables(), Log: s.log}); err != nil {
		return fmt.Errorf("open tree: %w", err)
	}
	if err = s.readCheckpoint(); err != nil {
		return err
	}
	var rec ulog.Recovery
	s.ulog, rec, err = ulog.Open(s.logPath(), s.cp.Position, s.cp.Place, ulog.Options{FS: s.opts.FS,
		SegmentBytes: s.opts.SegmentBytes, ZeroAhead: s.opts.zeroAhead(), KeepOld: s.opts.keepLog || s.kept.any(), Log: s.log,
		Progress: func(done, total int64) { s.opts.Progress("reading the update log", done, total) }}, nil)
	if err != nil {
		return fmt.Errorf("open update log: %w", err)
	}
	if rec.CutFrames > 0 {
		s.log.Warn("torn tail of the update log cut: it was written and never synced", "file", rec.CutFile,
			"offset", rec.CutOffset, "frames", rec.CutFrames, "bytes", rec.CutBytes)
	}
	if err = s.catchUp(); err != nil {
		return err
	}
	if err = s.restore(); err != nil {
		return err
	}
	s.actor = s.NewSession("")
	if err = s.takeRole(); err != nil {
		return err
	}
	s.lockIndex()
	if op, due := s.ix.DoorReceipts(); due && s.master == "" {
		s.actor.stage(&op, nil)
	}
	s.unlockIndex()
	if err = s.actor.Commit(); err != nil {
		return err
	}
	return nil
}

// readCheckpoint reads where the tree stands.
func (s *Store) readCheckpoint() error {
	s.cp.NextID, s.cp.NextQueue = 1, 1
	return s.tree.View(func(v *tree.View) error {
		value, found, err := v.Get(tableMeta, baseKey)
		if err != nil || !found {
			return err
		}
		s.cp, err = decodeCheckpoint(value)
		if err != nil {
			return &tree.CorruptError{File: s.treePath(), Offset: -1, What: "meta row", Err: err}
		}
		return nil
	})
}

// catchUp writes the log's tail into the tree: what is served afterwards is what the tree has, and memory holds
// nothing of it.
func (s *Store) catchUp() error {
	first, end := s.cp.Position.LSN, s.ulog.Written().LSN
	for last := time.Now(); s.cp.Position.LSN < end; {
		d := s.newStride()
		if err := s.stride(d, end, min(recoveryStride, s.opts.Memory/8)); err != nil {
			if errors.Is(err, syscall.ENOSPC) {
				err = s.noRoomToRecover(err)
			}
			return fmt.Errorf("write the update log's tail into the tree: %w", err)
		}
		d.reset()
		if time.Since(last) > time.Second {
			last = time.Now()
			s.opts.Progress("replaying the update log", int64(s.cp.Position.LSN-first), int64(end-first))
		}
	}
	if err := s.releaseLog(s.cp.Place); err != nil {
		return fmt.Errorf("release update log: %w", err)
	}
	s.scratch = nil
	if end > first {
		s.tree.DropPages()
		debug.FreeOSMemory() // what the strides needed is not needed again
	}
	return s.recountIfMarked()
}

// restore makes the index stand where the tree stands.
func (s *Store) restore() error {
	now := time.Now().UnixMilli()
	s.ix.Restore(s.cp.Base, now)
	s.staged = s.cp.Position.LSN
	s.applied.Store(s.staged)
	s.treeLSN, s.treePlace = s.staged, s.ulog.End()
	return s.tree.View(func(v *tree.View) error {
		err := v.Scan(tableQueues, nil, nil, func(key, value []byte) error {
			r, err := decodeQueueRow(key, value)
			if err != nil {
				return &tree.CorruptError{File: s.treePath(), Offset: -1, What: "queue row", Err: err}
			}
			if r.sweep {
				s.sweeps[r.Num] = nil
			}
			if r.forgotten {
				return nil
			}
			if r.Delayed, err = delayedRows(v, &r); err != nil {
				return err
			}
			s.ix.RestoreQueue(r.QueueRow, now)
			return nil
		})
		if err != nil {
			return err
		}
		return v.Scan(tableDedup, dedupRowKey(now, 0, nil), nil, func(key, _ []byte) error {
			until, q, k, err := decodeDedupKey(key)
			if err == nil {
				s.ix.RestoreDedup(q, k, until)
			}
			return err
		})
	})
}

// delayedRows counts the live rows of a queue's delayed lane: the tree's own count, unless purged rows are left in it.
func delayedRows(v *tree.View, r *queueRow) (int64, error) {
	group := laneGroup(r.Num, queue.LaneDelayed)
	if !r.sweep {
		n, err := v.Count(tableMessages, group)
		return int64(n), err
	}
	var n int64
	err := v.Scan(tableMessages, group, laneGroup(r.Num, queue.LaneDelayed+1), func(key, _ []byte) error {
		if row, err := decodeMessageRow(key, []byte{0, 0, 0, 0, 0, 0}); err == nil && row.ID > r.PurgedID {
			n++
		}
		return nil
	})
	return n, err
}

// classify makes an error of Open one that errors.Is finds among this package's.
func classify(err error) error {
	var inLog *ulog.CorruptError
	var inTree *tree.CorruptError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &inLog) || errors.As(err, &inTree):
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	case errors.Is(err, tree.ErrInUse):
		return fmt.Errorf("%w: %w", ErrInUse, err)
	case errors.Is(err, tree.ErrNewerFormat) || errors.Is(err, ulog.ErrNewerFormat):
		return fmt.Errorf("%w: %w", ErrNewerFormat, err)
	}
	return err
}
