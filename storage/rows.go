package storage

import (
	"encoding/binary"
	"errors"
	"fmt"

	"qserver/storage/queue"
	"qserver/storage/tree"
	"qserver/storage/ulog"
)

// The tree's tables. Numbers and layouts are part of the on-disk format; doc.go draws them.
const (
	tableMeta = iota
	tableQueues
	tableMessages
	tableTimes
	tableDedup
	tableMetaCopy // the meta row again: without it nothing of a damaged tree could be used
	tableCount
)

func treeTables() []tree.TableSpec {
	return []tree.TableSpec{
		tableMeta:     {Name: "meta"},
		tableQueues:   {Name: "queues"},
		tableMessages: {Name: "messages", GroupLen: 5},
		tableTimes:    {Name: "times"},
		tableDedup:    {Name: "dedup"},
		tableMetaCopy: {Name: "meta copy"},
	}
}

var baseKey = []byte("base")

// recountKey is the meta row that a repair, or a gap in the log, leaves: the totals are to be counted anew at the end of the
// next recovery.
var recountKey = []byte("recount")

// checkpoint is what the tree's meta row says: the position of the log that the tree has, and the counters there.
type checkpoint struct {
	queue.Base
	Position ulog.Position
	Place    ulog.Place // of the frame after it
}

func appendCheckpoint(b []byte, c *checkpoint) []byte {
	u := binary.AppendUvarint
	b = u(u(u(u(b, c.Position.LSN), uint64(c.Position.Chain)), c.Place.Segment), uint64(c.Place.Offset))
	b = u(u(u(b, c.NextID), uint64(c.NextQueue)), c.Receipts)
	b = appendTotals(b, c.Forgotten)
	for _, e := range c.Epochs {
		b = u(u(u(b, e.Number), e.Nonce), e.LSN)
	}
	return b
}

func decodeCheckpoint(b []byte) (checkpoint, error) {
	var c checkpoint
	d := fields{b: b}
	c.Position = ulog.Position{LSN: d.u(), Chain: uint32(d.u())}
	c.Place = ulog.Place{Segment: d.u(), Offset: int64(d.u())}
	c.LSN = c.Position.LSN
	c.NextID, c.NextQueue, c.Receipts = d.u(), uint32(d.u()), d.u()
	c.Forgotten = d.totals()
	for len(d.b) > 0 && !d.bad {
		c.Epochs = append(c.Epochs, queue.Epoch{Number: d.u(), Nonce: d.u(), LSN: d.u()})
	}
	return c, d.end("meta row")
}

func appendTotals(b []byte, t queue.Totals) []byte {
	for _, v := range [...]int64{t.Enqueued, t.Acked, t.Purged, t.Expired, t.Live, t.Dead, t.Bytes} {
		b = binary.AppendVarint(b, v)
	}
	return b
}

// queueRow is a queue in the tree.
type queueRow struct {
	queue.QueueRow
	sweep     bool // rows of purged messages may be left in the tree
	forgotten bool // the queue is no more; only its rows are to be swept
}

func queueKey(num uint32) []byte { return binary.BigEndian.AppendUint32(nil, num) }

func appendQueueRow(b []byte, r *queueRow) []byte {
	var flags uint64
	if r.sweep {
		flags |= 1
	}
	if r.forgotten {
		flags |= 2
	}
	b = binary.AppendUvarint(binary.AppendUvarint(b, flags), r.PurgedID)
	b = appendTotals(b, r.Totals)
	return append(b, r.Name...)
}

func decodeQueueRow(key, b []byte) (queueRow, error) {
	if len(key) != 4 {
		return queueRow{}, errors.New("queue row: key of another length")
	}
	var r queueRow
	d := fields{b: b}
	flags := d.u()
	r.Num, r.sweep, r.forgotten = binary.BigEndian.Uint32(key), flags&1 != 0, flags&2 != 0
	r.PurgedID, r.Totals = d.u(), d.totals()
	r.Name = string(d.b)
	d.b = nil
	return r, d.end("queue row")
}

// messageKey is a message's key: queue, lane, order (priority or due time), id.
func messageKey(q uint32, lane queue.TreeLane, order, id uint64) []byte {
	b := make([]byte, 0, 21)
	b = append(binary.BigEndian.AppendUint32(b, q), byte(lane))
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, order), id)
}

// maxRowOverhead is what a message's key and value have beside its body at most, bytes.
const maxRowOverhead = 21 + 6*10

// appendRowKey appends the key under which row belongs: in the delayed lane while it has a due time, past or not.
func appendRowKey(b []byte, row *queue.Row) []byte {
	lane, order := queue.LaneReady, uint64(row.Pri)
	if row.Due != 0 {
		lane, order = queue.LaneDelayed, uint64(row.Due)
	}
	b = append(binary.BigEndian.AppendUint32(b, row.Queue), byte(lane))
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, order), row.ID)
}

// timeKeys are the keys of a message's rows in the time table.
func timeKeys(row *queue.Row) (keys []queue.TimeKey) {
	if row.Due != 0 {
		keys = append(keys, queue.TimeKey{At: row.Due, ID: row.ID, Kind: queue.TimeDue})
	}
	if row.Expire != 0 {
		keys = append(keys, queue.TimeKey{At: row.Expire, ID: row.ID, Kind: queue.TimeExpire})
	}
	return keys
}

func laneGroup(q uint32, lane queue.TreeLane) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 5), q), byte(lane))
}

// messageKeys are the keys under which a message's row may lie, the likelier one first.
func messageKeys(q, pri uint32, due int64, id uint64) [][]byte {
	ready := messageKey(q, queue.LaneReady, uint64(pri), id)
	if due == 0 {
		return [][]byte{ready}
	}
	return [][]byte{messageKey(q, queue.LaneDelayed, uint64(due), id), ready}
}

func appendMessageRow(b []byte, r *queue.Row) []byte {
	u := binary.AppendUvarint
	b = u(u(u(b, uint64(r.Pri)), uint64(r.Flags)), uint64(r.Deliveries))
	b = u(u(u(b, uint64(r.Enqueued)), uint64(r.Due)), uint64(r.Expire))
	return append(b, r.Body...)
}

// decodeMessageRow decodes a message; Body points into b.
func decodeMessageRow(key, b []byte) (queue.Row, error) {
	if len(key) != 21 {
		return queue.Row{}, errors.New("message row: key of another length")
	}
	var r queue.Row
	d := fields{b: b}
	r.Queue, r.ID = binary.BigEndian.Uint32(key), binary.BigEndian.Uint64(key[13:])
	r.Pri, r.Flags, r.Deliveries = uint32(d.u()), uint32(d.u()), uint32(d.u())
	r.Enqueued, r.Due, r.Expire = int64(d.u()), int64(d.u()), int64(d.u())
	r.Body, r.Size = d.b, uint32(len(d.b))
	d.b = nil
	return r, d.end("message row")
}

func timeKey(k queue.TimeKey) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 17), uint64(k.At))
	return append(binary.BigEndian.AppendUint64(b, k.ID), byte(k.Kind))
}

func appendTimeRow(b []byte, row *queue.Row) []byte {
	u := binary.AppendUvarint
	return u(u(u(u(b, uint64(row.Queue)), uint64(row.Pri)), uint64(row.Size)), uint64(row.Due))
}

func decodeTimeRow(key, b []byte) (queue.TimeRow, error) {
	if len(key) != 17 {
		return queue.TimeRow{}, errors.New("time row: key of another length")
	}
	t := queue.TimeRow{TimeKey: queue.TimeKey{At: int64(binary.BigEndian.Uint64(key)),
		ID: binary.BigEndian.Uint64(key[8:]), Kind: queue.TimeKind(key[16])}}
	d := fields{b: b}
	t.Queue, t.Pri, t.Size, t.Due = uint32(d.u()), uint32(d.u()), uint32(d.u()), int64(d.u())
	return t, d.end("time row")
}

func dedupRowKey(until int64, q uint32, key []byte) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 12+len(key)), uint64(until))
	return append(binary.BigEndian.AppendUint32(b, q), key...)
}

func decodeDedupKey(key []byte) (until int64, q uint32, k []byte, err error) {
	if len(key) < 12 {
		return 0, 0, nil, errors.New("dedup row: key too short")
	}
	return int64(binary.BigEndian.Uint64(key)), binary.BigEndian.Uint32(key[8:]), key[12:], nil
}

// fields reads varints; after its first error it returns zeros.
type fields struct {
	b   []byte
	bad bool
}

func (d *fields) u() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *fields) i() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *fields) totals() (t queue.Totals) {
	for _, p := range [...]*int64{&t.Enqueued, &t.Acked, &t.Purged, &t.Expired, &t.Live, &t.Dead, &t.Bytes} {
		*p = d.i()
	}
	return t
}

func (d *fields) end(what string) error {
	if d.bad || len(d.b) != 0 {
		return fmt.Errorf("%s: not as this version writes it", what)
	}
	return nil
}
