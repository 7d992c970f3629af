package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"qserver/storage/queue"
	"qserver/storage/ulog"
)

// A run of records travels from one store to another as a concatenation of records, each of which is:
//
//	u length of head, u length of body, head, body         (u: unsigned varint)
//
// LSNs are not in it: they are consecutive. The chained sum behind the last record, which goes beside it, covers all of it.

// ErrStream is wrapped where records don't continue this store's history with the sum that came with them: bytes were
// changed on their way, or they are records of another history. Nothing was taken.
var ErrStream = errors.New("records don't hold")

// Batch is a run of records of the master's, decoded and verified. It may be used again; its byte strings are the payload's.
type Batch struct {
	After, End ulog.Position
	records    []batchRecord
	ops        []queue.Op
}

type batchRecord struct{ head, body []byte }

// Len is how many records it has.
func (b *Batch) Len() int { return len(b.ops) }

// appendRecord appends a record as it travels.
func appendRecord(dst, head, body []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(head)))
	dst = binary.AppendUvarint(dst, uint64(len(body)))
	return append(append(dst, head...), body...)
}

// Decode takes the records in payload, which follow after and lead to end. The payload must stay as it is until the batch
// was applied. Errors wrap ErrStream, or say that this version doesn't know a record.
func (b *Batch) Decode(payload []byte, after, end ulog.Position) error {
	b.After, b.End = after, end
	b.records, b.ops = b.records[:0], b.ops[:0]
	pos := after
	for len(payload) > 0 {
		headLen, n := binary.Uvarint(payload)
		bodyLen, m := binary.Uvarint(payload[max(n, 0):])
		if n <= 0 || m <= 0 {
			return fmt.Errorf("%w: LSN %d is cut", ErrStream, pos.LSN+1)
		}
		payload = payload[n+m:]
		if headLen > ulog.MaxHeadLen || bodyLen > ulog.MaxBodyLen || headLen+bodyLen > uint64(len(payload)) {
			return fmt.Errorf("%w: LSN %d is cut", ErrStream, pos.LSN+1)
		}
		r := batchRecord{payload[:headLen:headLen], payload[headLen : headLen+bodyLen : headLen+bodyLen]}
		payload = payload[headLen+bodyLen:]
		sum := crc32.Checksum(r.body, castagnoli)
		pos = pos.After(r.head, r.body, sum)
		b.ops = append(b.ops, queue.Op{})
		op := &b.ops[len(b.ops)-1]
		if err := queue.DecodeHead(r.head, len(r.body), op); err != nil {
			return fmt.Errorf("LSN %d: %w (was it written by a newer qserver?)", pos.LSN, err)
		}
		op.BodySum = sum
		b.records = append(b.records, r)
	}
	if pos != end {
		return fmt.Errorf("%w: they lead from LSN %d to LSN %d with sum %08x, not to LSN %d with sum %08x",
			ErrStream, after.LSN, pos.LSN, pos.Chain, end.LSN, end.Chain)
	}
	return nil
}
