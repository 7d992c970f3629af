package storage

import (
	"bytes"

	"qserver/storage/queue"
	"qserver/storage/tree"
)

// recount makes the totals of every queue agree with the rows that are there, after a repair has left a gap in the log:
// enqueues or acks may be missing. What was enqueued is then what is accounted for (I9).
func (s *Store) recount() error {
	s.log.Warn("records are missing from the update log: counting the messages anew")
	return s.tree.Update(func(tx *tree.Tx) error {
		var rows []queueRow
		err := tx.Scan(tableQueues, nil, nil, func(key, value []byte) error {
			r, err := decodeQueueRow(bytes.Clone(key), value)
			rows = append(rows, r)
			return err
		})
		if err != nil {
			return err
		}
		for i := range rows {
			r := &rows[i]
			if r.forgotten {
				continue
			}
			if err := countRows(tx, r); err != nil {
				return err
			}
			if err := tx.Put(tableQueues, queueKey(r.Num), appendQueueRow(nil, r)); err != nil {
				return err
			}
		}
		return nil
	})
}

// scanner is what Tx and View share.
type scanner interface {
	Scan(table int, from, to []byte, fn func(key, value []byte) error) error
}

// countRows sets r's live messages, their bytes, and what was enqueued from the rows of its lanes.
func countRows(sc scanner, r *queueRow) error {
	t := &r.Totals
	t.Live, t.Bytes = 0, 0
	err := sc.Scan(tableMessages, laneGroup(r.Num, queue.LaneReady), laneGroup(r.Num, queue.LaneDelayed+1), func(key, value []byte) error {
		row, err := decodeMessageRow(key, value)
		if err != nil || row.ID <= r.PurgedID {
			return err
		}
		t.Live++
		t.Bytes += int64(row.Size)
		return nil
	})
	t.Enqueued = t.Acked + t.Purged + t.Expired + t.Live + t.Dead
	return err
}
