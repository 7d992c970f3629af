package storage

import (
	"bytes"

	"qserver/storage/queue"
	"qserver/storage/tree"
)

// sweep deletes rows of purged messages, at most sweepRows of them, so that a purge of a large backlog is neither a
// large transaction nor a long wait. next says where to go on in each queue it touched; nil: nothing is left there.
func (s *Store) sweep(tx *tree.Tx, next map[uint32][]byte) error {
	budget := sweepRows
	for num, from := range s.sweeps {
		if budget <= 0 {
			return nil
		}
		value, found, err := tx.Get(tableQueues, queueKey(num))
		if err != nil {
			return err
		}
		if !found {
			next[num] = nil
			continue
		}
		row, err := decodeQueueRow(queueKey(num), value)
		if err != nil {
			return err
		}
		n, rest, err := sweepQueue(tx, &row, from, budget)
		if err != nil {
			return err
		}
		budget -= n
		next[num] = rest
		if rest != nil {
			continue
		}
		row.sweep = false
		if row.forgotten {
			_, _, err = tx.Delete(tableQueues, queueKey(num))
		} else {
			err = tx.Put(tableQueues, queueKey(num), appendQueueRow(nil, &row))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sweepQueue deletes up to budget purged rows of one queue from the key `from` on (nil: the first).
func sweepQueue(tx *tree.Tx, q *queueRow, from []byte, budget int) (deleted int, rest []byte, err error) {
	if from == nil {
		from = laneGroup(q.Num, queue.LaneReady)
	}
	var rows []queue.Row
	var keys [][]byte
	looked := 0
	err = tx.Scan(tableMessages, from, laneGroup(q.Num, queue.LaneDelayed+1), func(key, value []byte) error {
		if len(keys) == budget || looked == 4*sweepRows {
			rest = bytes.Clone(key)
			return tree.ErrStop
		}
		looked++
		row, err := decodeMessageRow(key, value)
		if err != nil {
			return err
		}
		if row.ID <= q.PurgedID {
			row.Body = nil
			rows = append(rows, row)
			keys = append(keys, bytes.Clone(key))
		}
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	d := stride{tx: tx, scratch: new(scratch)}
	for i := range rows {
		d.del(tableMessages, keys[i])
		for _, k := range timeKeys(&rows[i]) {
			d.del(tableTimes, timeKey(k))
		}
	}
	return len(keys), rest, d.flush()
}
