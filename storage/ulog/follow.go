package ulog

import (
	"encoding/binary"
	"hash/crc32"
)

// What those who follow a log on another machine need: where a record leaves a log, how far back one reaches.

// After returns the position behind the record with this head and body that follows p; bodySum is the body's CRC-32C. It
// is what Stage would return, so whoever compares it with the position on the other side has verified head and body.
func (p Position) After(head, body []byte, bodySum uint32) Position {
	var b [chainedLen]byte
	le := binary.LittleEndian
	le.PutUint32(b[0:], uint32(kindRecord)|uint32(len(head))<<8)
	le.PutUint32(b[4:], uint32(len(body)))
	le.PutUint64(b[8:], p.LSN+1)
	le.PutUint32(b[16:], crc32.Checksum(head, castagnoli))
	le.PutUint32(b[20:], bodySum)
	return Position{p.LSN + 1, chainOf(p.Chain, b[:])}
}

// ID returns the number that was drawn when the log was made: the same in all its segments, in no other log.
func (l *Log) ID() [16]byte { return l.id }

// First returns the position behind which the log has every record.
func (l *Log) First() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.segments[0].base
}

// PlaceOf returns the beginning of the segment that holds the record behind lsn: whoever keeps the log from there on can
// read on at lsn. If that record was released it is the log's first place, and ok is false.
func (l *Log) PlaceOf(lsn uint64) (p Place, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.segments) - 1; i >= 0; i-- {
		if s := l.segments[i]; s.begun && s.base.LSN <= lsn {
			return Place{Segment: s.sequence}, true
		}
	}
	return Place{Segment: l.segments[0].sequence}, false
}

// Distance is how many bytes of files lie between two places, with the room at the ends of segments: for people.
func (l *Log) Distance(from, to Place) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := to.Offset - from.Offset
	for seq := from.Segment; seq < to.Segment; seq++ {
		if s := l.findLocked(seq); s != nil {
			n += s.size
		} else {
			n += l.segmentBytes
		}
	}
	return max(n, 0)
}
