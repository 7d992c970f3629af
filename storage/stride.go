package storage

import (
	"bytes"
	"fmt"
	"slices"

	"qserver/storage/queue"
	"qserver/storage/tree"
)

// stride is one step of the checkpoint: some records of the log, in order, as changes to the tree. It is applied in one
// transaction together with the position behind its last record (I6).
type stride struct {
	ops    []queue.Op // bodies in Op.Body
	bytes  int64      // of the bodies
	dead   queue.Bits // ids that are not worth writing: their removal follows
	moved  []*queue.Message
	cp     checkpoint // before apply: where the tree stands; behind it: where it will
	gapped bool       // records are missing: the totals must be counted anew
	first  uint64     // the tree has no id from here on

	tx     *tree.Tx
	rows   map[uint64]*strideRow
	queues map[uint32]*strideQueue
	writes []treeWrite
	value  []byte
}

// strideRow is a message that records of the stride are about.
type strideRow struct {
	row     queue.Row
	old     []byte // key of its row in the tree; nil: none
	oldRow  queue.Row
	removed bool
}

type strideQueue struct {
	queueRow
	gone bool // delete its row
}

type treeWrite struct {
	table      int
	key, value []byte
	del        bool
}

// apply writes the stride into the tree.
func (d *stride) apply(tx *tree.Tx) error {
	d.tx = tx
	d.rows, d.queues = make(map[uint64]*strideRow), make(map[uint32]*strideQueue)
	d.writes, d.first = d.writes[:0], d.cp.NextID
	d.value = make([]byte, 0, d.bytes+int64(len(d.ops))*32)
	if err := d.moveRows(); err != nil {
		return err
	}
	for i := range d.ops {
		if err := d.op(&d.ops[i]); err != nil {
			return err
		}
	}
	for id, r := range d.rows {
		d.writeRow(id, r)
	}
	for num, q := range d.queues {
		w := treeWrite{table: tableQueues, key: queueKey(num), del: q.gone}
		if !q.gone {
			w.value = appendQueueRow(nil, &q.queueRow)
		}
		d.writes = append(d.writes, w)
	}
	meta := appendCheckpoint(nil, &d.cp)
	d.put(tableMeta, baseKey, meta)
	d.put(tableMetaCopy, baseKey, meta)
	return d.flush()
}

// flush executes the collected writes in the order of the keys, which is cheapest for the tree.
func (d *stride) flush() error {
	slices.SortStableFunc(d.writes, func(a, b treeWrite) int {
		if a.table != b.table {
			return a.table - b.table
		}
		return bytes.Compare(a.key, b.key)
	})
	for i := range d.writes {
		w := &d.writes[i]
		if i+1 < len(d.writes) && w.table == d.writes[i+1].table && bytes.Equal(w.key, d.writes[i+1].key) {
			continue // a later write of the same row follows
		}
		var err error
		if w.del {
			_, _, err = d.tx.Delete(w.table, w.key)
		} else {
			err = d.tx.Put(w.table, w.key, w.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *stride) put(table int, key, value []byte) {
	d.writes = append(d.writes, treeWrite{table: table, key: key, value: value})
}

func (d *stride) del(table int, key []byte) {
	d.writes = append(d.writes, treeWrite{table: table, key: key, del: true})
}

// op brings one record into the picture.
func (d *stride) op(op *queue.Op) error {
	d.cp.Apply(op)
	if op.Kind == queue.KindSeal || op.Kind == queue.KindReceipts {
		return nil
	}
	q, err := d.queue(op)
	if err != nil {
		return err
	}
	q.Totals.Apply(op)
	switch op.Kind {
	case queue.KindEnqueue:
		d.enqueue(op)
	case queue.KindRemove:
		return d.remove(op)
	case queue.KindRelease, queue.KindReplace, queue.KindCount:
		return d.change(op)
	case queue.KindPurge:
		d.purge(q, op)
	case queue.KindForget:
		d.forget(q)
	}
	return nil
}

// queue returns op's queue as of the record before it.
func (d *stride) queue(op *queue.Op) (*strideQueue, error) {
	if q := d.queues[op.Queue]; q != nil {
		return q, nil
	}
	q := &strideQueue{queueRow: queueRow{QueueRow: queue.QueueRow{Num: op.Queue, Name: string(op.Name)}}}
	d.queues[op.Queue] = q
	if op.Kind == queue.KindCreate {
		return q, nil
	}
	value, found, err := d.tx.Get(tableQueues, queueKey(op.Queue))
	if err != nil {
		return nil, err
	}
	if !found { // its creation is among the records that a repair could not save
		q.Name = fmt.Sprintf("lost-%d", op.Queue)
		d.cp.NextQueue = max(d.cp.NextQueue, op.Queue+1)
		return q, nil
	}
	q.queueRow, err = decodeQueueRow(queueKey(op.Queue), value)
	return q, err
}

func (d *stride) enqueue(op *queue.Op) {
	if len(op.Dedup) > 0 {
		d.put(tableDedup, dedupRowKey(op.DedupUntil, op.Queue, op.Dedup), nil)
	}
	if d.dead.Has(op.ID) {
		return
	}
	d.rows[op.ID] = &strideRow{row: queue.Row{ID: op.ID, Queue: uint64(op.Queue), Pri: op.Pri, Flags: op.Flags,
		Size: op.Size, Enqueued: op.Enqueued, Due: op.Due, Expire: op.Expire, Body: op.Body}}
}

func (d *stride) remove(op *queue.Op) error {
	r, err := d.row(op)
	if err != nil || r == nil {
		return err
	}
	r.removed = true
	return nil
}

func (d *stride) change(op *queue.Op) error {
	r, err := d.row(op)
	if err != nil || r == nil {
		return err
	}
	r.row.Deliveries = op.Count
	switch op.Kind {
	case queue.KindRelease:
		r.row.Due = op.NewDue
	case queue.KindReplace:
		r.row.Flags, r.row.Expire = op.Flags, op.Expire
		r.row.Body, r.row.Size = op.Body, op.Size
	}
	return nil
}

// row returns the message that op is about as the records before it leave it; nil: it was never written, since it is dead.
func (d *stride) row(op *queue.Op) (*strideRow, error) {
	if r := d.rows[op.ID]; r != nil {
		return r, nil
	}
	if op.ID >= d.first && d.dead.Has(op.ID) {
		return nil, nil
	}
	for _, key := range messageKeys(op.Queue, op.Pri, op.Due, op.ID) {
		value, found, err := d.tx.Get(tableMessages, key)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		row, err := decodeMessageRow(key, value)
		if err != nil {
			return nil, err
		}
		r := &strideRow{row: row, old: key, oldRow: row}
		if op.Kind != queue.KindRemove && op.Kind != queue.KindReplace {
			r.row.Body = bytes.Clone(row.Body)
		}
		d.rows[op.ID] = r
		return r, nil
	}
	return nil, nil
}

// writeRow turns what the records made of a message into writes.
func (d *stride) writeRow(id uint64, r *strideRow) {
	if r.old != nil {
		d.del(tableMessages, r.old)
		d.delTimes(&r.oldRow)
	}
	if r.removed {
		return
	}
	row, q := &r.row, uint32(r.row.Queue)
	lane, order := queue.LaneReady, uint64(row.Pri)
	if row.Due != 0 {
		lane, order = queue.LaneDelayed, uint64(row.Due)
		d.put(tableTimes, timeKey(queue.TimeKey{At: row.Due, ID: id, Kind: queue.TimeDue}), appendTimeRow(nil, q, row.Pri, row.Size, row.Due))
	}
	if row.Expire != 0 {
		d.put(tableTimes, timeKey(queue.TimeKey{At: row.Expire, ID: id, Kind: queue.TimeExpire}), appendTimeRow(nil, q, row.Pri, row.Size, row.Due))
	}
	n := len(d.value)
	d.value = appendMessageRow(d.value, row)
	d.put(tableMessages, messageKey(q, lane, order, id), d.value[n:len(d.value):len(d.value)])
}

func (d *stride) delTimes(row *queue.Row) {
	if row.Due != 0 {
		d.del(tableTimes, timeKey(queue.TimeKey{At: row.Due, ID: row.ID, Kind: queue.TimeDue}))
	}
	if row.Expire != 0 {
		d.del(tableTimes, timeKey(queue.TimeKey{At: row.Expire, ID: row.ID, Kind: queue.TimeExpire}))
	}
}

// purge drops what the stride has of q; rows in the tree are swept later.
func (d *stride) purge(q *strideQueue, op *queue.Op) {
	q.PurgedID, q.sweep = op.ID, true
	for id, r := range d.rows {
		if r.row.Queue == uint64(op.Queue) && id <= op.ID {
			if r.old == nil {
				delete(d.rows, id)
			} else {
				r.removed = true
			}
		}
	}
}

func (d *stride) forget(q *strideQueue) {
	d.cp.Forgotten.Add(q.Totals)
	q.Totals = queue.Totals{}
	q.forgotten = true
	q.gone = !q.sweep
}

// moveRows moves the rows of messages that came due from the delayed lane to the ready lane.
func (d *stride) moveRows() error {
	for _, m := range d.moved {
		old := messageKey(m.Queue().Num, queue.LaneDelayed, uint64(m.Due), m.ID)
		value, found, err := d.tx.Delete(tableMessages, old)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if err := d.tx.Put(tableMessages, messageKey(m.Queue().Num, queue.LaneReady, uint64(m.Pri), m.ID), bytes.Clone(value)); err != nil {
			return err
		}
		if _, _, err := d.tx.Delete(tableTimes, timeKey(queue.TimeKey{At: m.Due, ID: m.ID, Kind: queue.TimeDue})); err != nil {
			return err
		}
	}
	return nil
}
