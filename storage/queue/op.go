package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Kind is the first byte of an encoded Op. The values are part of the log's format.
type Kind uint8

// The kinds of Op. A record with an empty head is a seal: it changes nothing.
const (
	KindSeal     Kind = 0
	KindCreate   Kind = 1  // a queue gets its number
	KindEnqueue  Kind = 2  // a message; the record's body is the message's
	KindRemove   Kind = 3  // acked or expired
	KindRelease  Kind = 4  // given back with a delay
	KindReplace  Kind = 5  // new body and flags; the record's body is the new one
	KindPurge    Kind = 6  // all live messages of a queue up to an id
	KindForget   Kind = 7  // an empty queue is forgotten
	KindReceipts Kind = 8  // receipts up to a number may have been given out
	KindCount    Kind = 9  // the count of deliveries of a message
	KindEpoch    Kind = 16 // another node writes from here on
)

// Reason says why a message was removed. The values are part of the log's format.
type Reason uint8

// The reasons of a KindRemove.
const (
	Acked   Reason = 0
	Expired Reason = 1
)

// Op is one durable change: the facts, not the request. Times are Unix milliseconds; 0 means none. Which fields
// a kind uses is what AppendHead writes for it.
type Op struct {
	Kind   Kind
	Reason Reason
	Queue  uint32
	ID     uint64 // message; KindPurge: the last id that is purged; KindReceipts: the end of the block; KindEpoch: its number
	Pri    uint32
	Flags  uint32
	Size   uint32 // of the body; KindReplace: of the new one
	Count  uint32 // deliveries
	Nonce  uint64 // KindEpoch: drawn by the node that begins it

	OldSize   uint32 // KindReplace
	Enqueued  int64
	Due       int64
	NewDue    int64 // KindRelease
	Expire    int64
	OldExpire int64 // KindReplace

	Name       []byte // KindCreate
	Dedup      []byte // KindEnqueue: key that is remembered until DedupUntil
	DedupUntil int64

	// What is not encoded: Staged says that the door of this index staged the op, so its view has it already;
	// Msg is then the message that the op is about; Body is the new body of a KindReplace, where it is in memory.
	Staged bool
	Msg    *Message
	Body   []byte

	LSN             uint64 // of the record
	Segment, Offset uint32 // where the record's body lies in the log
	BodySum         uint32
}

// AppendHead appends the encoded head of op to b: a kind byte, then unsigned varints, then byte strings with their
// length in front.
func AppendHead(b []byte, op *Op) []byte {
	u := binary.AppendUvarint
	b = append(b, byte(op.Kind))
	switch op.Kind {
	case KindCreate:
		b = u(b, uint64(op.Queue))
		b = appendBytes(b, op.Name)
	case KindEnqueue:
		b = u(u(u(u(b, uint64(op.Queue)), op.ID), uint64(op.Pri)), uint64(op.Flags))
		b = u(u(u(b, uint64(op.Enqueued)), after(op.Due, op.Enqueued)), after(op.Expire, op.Enqueued))
		b = appendBytes(b, op.Dedup)
		if len(op.Dedup) > 0 {
			b = u(b, uint64(op.DedupUntil))
		}
	case KindRemove:
		b = append(b, byte(op.Reason))
		b = u(u(u(u(b, uint64(op.Queue)), op.ID), uint64(op.Pri)), uint64(op.Size))
		b = u(u(b, uint64(op.Due)), uint64(op.Expire))
	case KindRelease:
		b = u(u(u(u(b, uint64(op.Queue)), op.ID), uint64(op.Pri)), uint64(op.Count))
		b = u(u(b, uint64(op.Due)), uint64(op.NewDue))
	case KindReplace:
		b = u(u(u(u(b, uint64(op.Queue)), op.ID), uint64(op.Pri)), uint64(op.Count))
		b = u(u(b, uint64(op.Due)), uint64(op.Flags))
		b = u(u(u(b, uint64(op.OldSize)), uint64(op.OldExpire)), uint64(op.Expire))
	case KindPurge:
		b = u(u(b, uint64(op.Queue)), op.ID)
	case KindForget:
		b = u(b, uint64(op.Queue))
	case KindReceipts:
		b = u(b, op.ID)
	case KindEpoch:
		b = u(u(b, op.ID), op.Nonce)
	case KindCount:
		b = u(u(u(u(b, uint64(op.Queue)), op.ID), uint64(op.Pri)), uint64(op.Count))
		b = u(b, uint64(op.Due))
	}
	return b
}

// after encodes a time that is 0 or not before base as a small number.
func after(t, base int64) uint64 {
	if t == 0 {
		return 0
	}
	return uint64(t-base) + 1
}

func appendBytes(b, s []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errShort = errors.New("truncated")

// DecodeHead decodes a record's head into op; bodyLen is the length of the record's body, bytes. Byte strings
// point into head. An error means that the head was not written by this format.
func DecodeHead(head []byte, bodyLen int, op *Op) error {
	*op = Op{}
	if len(head) == 0 {
		return nil
	}
	d := decoder{b: head[1:]}
	op.Kind = Kind(head[0])
	switch op.Kind {
	case KindCreate:
		op.Queue, op.Name = d.u32(), d.bytes()
	case KindEnqueue:
		op.Queue, op.ID, op.Pri, op.Flags = d.u32(), d.u64(), d.u32(), d.u32()
		op.Enqueued = d.time()
		op.Due, op.Expire = d.after(op.Enqueued), d.after(op.Enqueued)
		if op.Dedup = d.bytes(); len(op.Dedup) > 0 {
			op.DedupUntil = d.time()
		}
		op.Size = uint32(bodyLen)
	case KindRemove:
		op.Reason = Reason(d.byte())
		op.Queue, op.ID, op.Pri, op.Size = d.u32(), d.u64(), d.u32(), d.u32()
		op.Due, op.Expire = d.time(), d.time()
	case KindRelease:
		op.Queue, op.ID, op.Pri, op.Count = d.u32(), d.u64(), d.u32(), d.u32()
		op.Due, op.NewDue = d.time(), d.time()
	case KindReplace:
		op.Queue, op.ID, op.Pri, op.Count = d.u32(), d.u64(), d.u32(), d.u32()
		op.Due, op.Flags = d.time(), d.u32()
		op.OldSize, op.OldExpire, op.Expire = d.u32(), d.time(), d.time()
		op.Size = uint32(bodyLen)
	case KindPurge:
		op.Queue, op.ID = d.u32(), d.u64()
	case KindForget:
		op.Queue = d.u32()
	case KindReceipts:
		op.ID = d.u64()
	case KindEpoch:
		op.ID, op.Nonce = d.u64(), d.u64()
	case KindCount:
		op.Queue, op.ID, op.Pri, op.Count = d.u32(), d.u64(), d.u32(), d.u32()
		op.Due = d.time()
	default:
		return fmt.Errorf("record of unknown kind %d", head[0])
	}
	if d.err == nil && len(d.b) != 0 {
		d.err = fmt.Errorf("%d bytes too many", len(d.b))
	}
	if d.err != nil {
		return fmt.Errorf("record of kind %d: %w", head[0], d.err)
	}
	return nil
}

// decoder reads the fields of a head; after its first error it returns zeros.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) u64() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) u32() uint32 {
	v := d.u64()
	if v > 1<<32-1 {
		d.fail(errors.New("number over 32 bits"))
		return 0
	}
	return uint32(v)
}

func (d *decoder) time() int64 {
	v := d.u64()
	if v > 1<<62 {
		d.fail(errors.New("time out of range"))
		return 0
	}
	return int64(v)
}

func (d *decoder) after(base int64) int64 {
	v := d.time()
	if v == 0 {
		return 0
	}
	return base + v - 1
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail(errShort)
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) bytes() []byte {
	n := d.u64()
	if n > uint64(len(d.b)) {
		d.fail(errShort)
		return nil
	}
	s := d.b[:n:n]
	d.b = d.b[n:]
	return s
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}
