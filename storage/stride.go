package storage

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"qserver/storage/queue"
	"qserver/storage/tree"
	"qserver/storage/ulog"
)

// stride is one step of the checkpoint: some records of the log, in order, as changes to the tree. It is applied in one
// transaction together with the position behind its last record (I6).
type stride struct {
	cp     checkpoint // where the tree stands; behind apply: where it will
	first  uint64     // the tree has no message from this id on
	dead   queue.Bits // ids from first on that are not worth writing: their removal follows
	moved  []queue.Promoted
	now    int64 // Unix ms
	gapped bool  // records are missing: the totals must be counted anew

	tx      *tree.Tx
	changed map[uint64]*strideRow // messages of the tree that the stride changes
	queues  map[uint32]*strideQueue
	bytes   int64 // of the bodies in news and changed
	*scratch
}

// scratch is a stride's memory, kept from one to the next.
type scratch struct {
	news   []newRow // messages that the stride enqueues, ids ascending
	writes [tableCount][]treeWrite
	slab   []byte   // where bodies, keys and values lie: the last of
	slabs  [][]byte // those in use, and
	free   [][]byte // those to be used again
}

type newRow struct {
	queue.Row        // Body lies in value, if that is there
	value     []byte // the row as it is written; nil: it has changed
	removed   bool
}

// strideRow is a message of the tree: as it was, and as the records leave it.
type strideRow struct {
	newRow
	old    queue.Row // without its body
	oldKey []byte
}

type strideQueue struct {
	queueRow
	purged bool // by a record of the stride
	gone   bool // delete its row
}

type treeWrite struct {
	key, value []byte
	del        bool
}

// read applies records up to end, until enough was collected for one transaction.
func (d *stride) read(tx *tree.Tx, r *ulog.Reader, end uint64, maxBytes int64) error {
	d.tx, d.first = tx, d.cp.NextID
	d.changed, d.queues = make(map[uint64]*strideRow), make(map[uint32]*strideQueue)
	if err := d.moveRows(); err != nil {
		return err
	}
	var op queue.Op
	for n := 0; d.cp.Position.LSN < end && d.bytes < maxBytes && n < strideRecords; n++ {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		d.cp.Position, d.cp.Place = rec.Position, rec.Next
		d.gapped = d.gapped || rec.Gap > 0
		if err := queue.DecodeHead(rec.Head, len(rec.Body), &op); err != nil {
			return fmt.Errorf("LSN %d of the update log: %w", rec.LSN, err)
		}
		op.LSN, op.Body = rec.LSN, rec.Body
		if err := d.op(&op); err != nil {
			return err
		}
	}
	return nil
}

// write executes what was read: each table in the order of its keys, which is cheapest for the tree.
func (d *stride) write() error {
	for i := range d.news {
		if r := &d.news[i]; !r.removed {
			d.putMessage(&r.Row, r.value)
		}
	}
	for _, r := range d.changed {
		d.putChanged(r)
	}
	for num, q := range d.queues {
		if q.gone {
			d.del(tableQueues, queueKey(num))
		} else {
			d.put(tableQueues, queueKey(num), appendQueueRow(nil, &q.queueRow))
		}
	}
	if d.gapped {
		d.put(tableMeta, recountKey, nil)
	}
	meta := appendCheckpoint(nil, &d.cp)
	d.put(tableMeta, baseKey, meta)
	d.put(tableMetaCopy, baseKey, meta)
	if err := d.forgetDedup(); err != nil {
		return err
	}
	return d.flush()
}

// flush executes the collected writes. No two of them have the same key.
func (d *stride) flush() error {
	for table := range d.writes {
		ws := d.writes[table]
		slices.SortFunc(ws, func(a, b treeWrite) int { return bytes.Compare(a.key, b.key) })
		for i := range ws {
			var err error
			if w := &ws[i]; w.del {
				_, _, err = d.tx.Delete(table, w.key)
			} else {
				err = d.tx.Put(table, w.key, w.value)
			}
			if err != nil {
				return err
			}
		}
		d.writes[table] = ws[:0]
	}
	return nil
}

func (d *stride) put(table int, key, value []byte) {
	d.writes[table] = append(d.writes[table], treeWrite{key: key, value: value})
}

func (d *stride) del(table int, key []byte) {
	d.writes[table] = append(d.writes[table], treeWrite{key: key, del: true})
}

// room returns the slab with room for n more bytes. What was cut from it before stays as it is.
func (d *stride) room(n int) []byte {
	if n <= cap(d.slab)-len(d.slab) {
		return d.slab
	}
	if last := len(d.free) - 1; n <= slabBytes && last >= 0 {
		d.slab, d.free = d.free[last][:0], d.free[:last]
	} else {
		d.slab = make([]byte, 0, max(slabBytes, n))
	}
	if cap(d.slab) == slabBytes {
		d.slabs = append(d.slabs, d.slab)
	}
	return d.slab
}

// reset makes the scratch ready for the next stride.
func (c *scratch) reset() {
	clear(c.news)
	c.news = c.news[:0]
	for i := range c.writes {
		clear(c.writes[i])
		c.writes[i] = c.writes[i][:0]
	}
	c.free = append(c.free, c.slabs...)
	c.slab, c.slabs = nil, c.slabs[:0]
}

const slabBytes = 256 << 10

// keep copies b into the slab.
func (d *stride) keep(b []byte) []byte {
	s := d.room(len(b))
	d.slab = append(s, b...)
	return d.slab[len(s):len(d.slab):len(d.slab)]
}

// op brings one record into the picture. Byte strings of op are valid during the call only.
func (d *stride) op(op *queue.Op) error {
	d.cp.Apply(op)
	if op.Kind == queue.KindSeal || op.Kind == queue.KindReceipts || op.Kind == queue.KindEpoch {
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
	case queue.KindRemove, queue.KindRelease, queue.KindReplace, queue.KindCount:
		return d.change(op)
	case queue.KindPurge:
		return d.purge(q, op)
	case queue.KindForget:
		d.cp.Forgotten.Add(q.Totals)
		q.Totals = queue.Totals{}
		q.forgotten, q.gone = true, !q.sweep
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
	d.bytes += int64(len(op.Body))
	r := newRow{Row: queue.Row{ID: op.ID, Queue: op.Queue, Pri: op.Pri, Flags: op.Flags,
		Size: op.Size, Enqueued: op.Enqueued, Due: op.Due, Expire: op.Expire, Body: op.Body}}
	r.value = d.encode(&r.Row)
	r.Body = r.value[len(r.value)-len(op.Body):]
	d.news = append(d.news, r)
}

// change applies a record about one message to its row.
func (d *stride) change(op *queue.Op) error {
	r, err := d.row(op)
	if err != nil || r == nil {
		return err
	}
	if op.Kind == queue.KindRemove {
		r.removed = true
		return nil
	}
	row := &r.Row
	r.value = nil
	row.Deliveries = op.Count
	switch op.Kind {
	case queue.KindRelease:
		row.Due = op.NewDue
	case queue.KindReplace:
		row.Flags, row.Expire = op.Flags, op.Expire
		row.Body, row.Size = d.keep(op.Body), op.Size
		d.bytes += int64(len(op.Body))
	}
	return nil
}

// row returns the message that op is about as the records before it leave it; nil: it was left out, since it is dead.
func (d *stride) row(op *queue.Op) (row *newRow, err error) {
	if op.ID >= d.first {
		i, found := slices.BinarySearchFunc(d.news, op.ID, func(r newRow, id uint64) int { return cmp.Compare(r.ID, id) })
		if !found {
			return nil, nil
		}
		return &d.news[i], nil
	}
	if r := d.changed[op.ID]; r != nil {
		return &r.newRow, nil
	}
	for _, key := range messageKeys(op.Queue, op.Pri, op.Due, op.ID) {
		value, found, err := d.tx.Get(tableMessages, key)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		r := &strideRow{oldKey: key}
		if r.Row, err = decodeMessageRow(key, value); err != nil {
			return nil, err
		}
		r.old = r.Row
		r.old.Body = nil
		if queue.TreeLane(key[4]) == queue.LaneReady {
			r.Due = 0 // it has come due: the row stays in this lane, where a cold message is looked for
		}
		if op.Kind == queue.KindRelease || op.Kind == queue.KindCount {
			d.bytes += int64(len(r.Body))
			r.Body = d.keep(r.Body)
		}
		d.changed[op.ID] = r
		return &r.newRow, nil
	}
	return nil, nil
}

// encode returns row as it is written.
func (d *stride) encode(row *queue.Row) []byte {
	s := d.room(len(row.Body) + maxRowOverhead)
	d.slab = appendMessageRow(s, row)
	return d.slab[len(s):len(d.slab):len(d.slab)]
}

// putMessage adds the writes for a message's rows; value is its encoding, if that is at hand.
func (d *stride) putMessage(row *queue.Row, value []byte) {
	for _, k := range timeKeys(row) {
		d.put(tableTimes, timeKey(k), appendTimeRow(nil, row))
	}
	if value == nil {
		value = d.encode(row)
	}
	s := d.room(maxRowOverhead)
	d.slab = appendRowKey(s, row)
	d.put(tableMessages, d.slab[len(s):len(d.slab):len(d.slab)], value)
}

// putChanged replaces or removes a message's rows.
func (d *stride) putChanged(r *strideRow) {
	var keep []queue.TimeKey
	if !r.removed {
		keep = timeKeys(&r.Row)
	}
	for _, k := range timeKeys(&r.old) {
		if !slices.Contains(keep, k) {
			d.del(tableTimes, timeKey(k))
		}
	}
	if r.removed || !bytes.Equal(appendRowKey(nil, &r.Row), r.oldKey) {
		d.del(tableMessages, r.oldKey)
	}
	if !r.removed {
		d.putMessage(&r.Row, nil)
	}
}

// purge drops what the stride has of q; rows in the tree are swept later.
func (d *stride) purge(q *strideQueue, op *queue.Op) error {
	q.PurgedID, q.sweep, q.purged = op.ID, true, true
	for i := range d.news {
		if d.news[i].Queue == op.Queue {
			d.news[i].removed = true
		}
	}
	for _, r := range d.changed {
		if r.Queue == op.Queue {
			r.removed = true
		}
	}
	return nil
}

// moveRows moves the rows of messages that came due from the delayed lane to the ready lane.
func (d *stride) moveRows() error {
	for _, m := range d.moved {
		old := messageKey(m.Queue, queue.LaneDelayed, uint64(m.Due), m.ID)
		value, found, err := d.tx.Delete(tableMessages, old)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if err := d.tx.Put(tableMessages, messageKey(m.Queue, queue.LaneReady, uint64(m.Pri), m.ID), bytes.Clone(value)); err != nil {
			return err
		}
		if _, _, err := d.tx.Delete(tableTimes, timeKey(queue.TimeKey{At: m.Due, ID: m.ID, Kind: queue.TimeDue})); err != nil {
			return err
		}
	}
	return nil
}

// forgetDedup deletes a bounded number of dedup keys whose time is over.
func (d *stride) forgetDedup() error {
	return d.tx.Scan(tableDedup, nil, dedupRowKey(d.now, 0, nil), func(key, _ []byte) error {
		d.del(tableDedup, d.keep(key))
		if len(d.writes[tableDedup]) >= 2*strideRecords {
			return tree.ErrStop
		}
		return nil
	})
}
