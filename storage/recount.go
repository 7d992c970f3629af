package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"qserver/storage/queue"
	"qserver/storage/tree"
)

// recountIfMarked counts the messages anew if a repair, or a gap in the log that it left, asks for it.
func (s *Store) recountIfMarked() error {
	marked := false
	err := s.tree.View(func(v *tree.View) (err error) {
		_, marked, err = v.Get(tableMeta, recountKey)
		return err
	})
	if err != nil || !marked {
		return err
	}
	s.log.Warn("the folder was repaired: counting the messages anew")
	if err := recount(s.tree); err != nil || s.opts.Master == "" {
		return err
	}
	// A slave can have what is missing from its master, by a copy; until it has, the mark stays.
	s.gapped = true
	return s.tree.Update(func(tx *tree.Tx) error { return tx.Put(tableMeta, recountKey, nil) })
}

// recount makes the totals of every queue agree with the rows that are there, after a repair has left a gap in the log:
// enqueues or acks may be missing. What was enqueued is then what is accounted for (I9).
func recount(t *tree.Tree) error {
	return t.Update(func(tx *tree.Tx) error {
		var rows []queueRow
		err := tx.Scan(tableQueues, nil, nil, func(key, value []byte) error {
			r, err := decodeQueueRow(bytes.Clone(key), value)
			rows = append(rows, r)
			return err
		})
		if err != nil {
			return err
		}
		if err := addLostQueues(tx, &rows); err != nil {
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
		_, _, err = tx.Delete(tableMeta, recountKey)
		return err
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

// addLostQueues adds a queue for every number that messages name and no row does, under the name "lost-N".
func addLostQueues(tx *tree.Tx, rows *[]queueRow) error {
	known := make(map[uint32]bool)
	for _, r := range *rows {
		known[r.Num] = true
	}
	for from := []byte(nil); ; {
		next := uint32(0)
		err := tx.Scan(tableMessages, from, nil, func(key, _ []byte) error {
			next = binary.BigEndian.Uint32(key)
			return tree.ErrStop
		})
		if err != nil || next == 0 {
			return err
		}
		if !known[next] {
			*rows = append(*rows, queueRow{QueueRow: queue.QueueRow{Num: next, Name: fmt.Sprintf("lost-%d", next)}})
		}
		from = queueKey(next + 1)
	}
}
