package ulog

import (
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"sync"
	"sync/atomic"
)

// Log is an open update log. Stage, Staged and Take are called under one lock of the caller's; Write and Seal by one
// goroutine at a time; everything else at any time from anywhere.
type Log struct {
	dir          string
	fs           FS
	log          *slog.Logger
	id           [16]byte
	segmentBytes int64
	zeroAhead    int64

	// Staging; guarded by the caller's lock.
	open   *Batch
	staged Position
	tail   Place  // where the next frame goes
	limit  int64  // size of the segment tail lies in
	state  uint32 // initial value of its frames' sums

	current *segment // where Write writes; only its caller's goroutine uses it

	mu       sync.Mutex // guards what follows
	segments []*segment // ascending; the last is current
	spare    *segment   // the one after the last, or nil
	written  Position
	end      Place
	sealed   bool // a seal lies at end
	batches  []*Batch
	seeds    map[uint64]uint64 // of segments that have no file yet
	failed   error
	closed   bool

	// makeMu makes Prepare, Release and the change of segment take turns. It is held over I/O; nothing that answers a
	// client waits for it unless it needs a new segment itself.
	makeMu sync.Mutex
	// syncMu makes syncs take turns. It is held over I/O on purpose: the system reports a failed sync to one caller only,
	// so the next one must not start before the log knows (I7).
	syncMu sync.Mutex
	synced atomic.Uint64
}

// Batch is a run of staged frames on its way to the disk.
type Batch struct {
	buf   []byte
	parts []part
	last  Position // of its last record
	end   Place    // behind its last frame
}

// part is a run of bytes that lie together in one segment: either buf[from:to] or a large body.
type part struct {
	place    Place
	from, to int
	body     []byte
	turn     *turn // set on the first part in a new segment
}

// turn is the change to a new segment.
type turn struct {
	base Position // last position of the segment before
	end  int64    // offset of that one's end frame
	size int64    // of the new segment
}

const (
	// referLen is from how many bytes on a body is referred to and not copied.
	referLen = 16 << 10
	// batchKept is how large a batch's buffer may be to be kept for the next one.
	batchKept = 8 << 20
)

// Stage appends a record's frame to the open batch and returns its position and where its body will lie. bodySum is the
// body's CRC-32C. head is copied; a body of 16 KiB or more is referred to until Write has returned and must not be
// changed before. Stage panics if head is longer than MaxHeadLen or body than MaxBodyLen.
func (l *Log) Stage(head, body []byte, bodySum uint32) (Position, Place) {
	if len(head) > MaxHeadLen || int64(len(body)) > MaxBodyLen {
		panic(fmt.Sprintf("ulog: record of %d and %d bytes", len(head), len(body)))
	}
	h := frameHeader{
		kind: kindRecord, headLen: len(head), bodyLen: int64(len(body)),
		lsn: l.staged.LSN + 1, bodySum: bodySum, synced: l.synced.Load(),
	}
	n := h.len()
	// Behind every frame there is room for an end frame.
	if l.tail.Offset+n+frameHeaderLen > l.limit {
		l.turn(n)
	}
	b := l.batch()
	at := len(b.buf)
	b.buf = append(b.buf, zeroFrame[:]...)
	b.buf = append(b.buf, head...)
	h.headSum = crc32.Checksum(b.buf[at+frameHeaderLen:], castagnoli)
	l.staged = Position{h.lsn, sealFrame(b.buf[at:], l.state, &h, l.staged.Chain)}
	bodyPlace := Place{l.tail.Segment, l.tail.Offset + frameHeaderLen + int64(len(head))}
	if len(body) < referLen {
		b.buf = append(b.buf, body...)
		b.extend()
	} else {
		b.extend()
		b.parts = append(b.parts, part{place: bodyPlace, body: body},
			part{place: Place{bodyPlace.Segment, bodyPlace.Offset + int64(len(body))}, from: len(b.buf), to: len(b.buf)})
	}
	l.tail.Offset += n
	b.last, b.end = l.staged, l.tail
	return l.staged, bodyPlace
}

// extend takes what was appended to buf into the last part.
func (b *Batch) extend() { b.parts[len(b.parts)-1].to = len(b.buf) }

// batch returns the open batch.
func (l *Log) batch() *Batch {
	if l.open == nil {
		l.open = l.newBatch()
		l.open.parts = append(l.open.parts, part{place: l.tail})
	}
	return l.open
}

func (l *Log) newBatch() *Batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.batches); n > 0 {
		b := l.batches[n-1]
		l.batches = l.batches[:n-1]
		return b
	}
	return new(Batch)
}

// recycleLocked keeps a written batch for the next.
func (l *Log) recycleLocked(b *Batch) {
	if cap(b.buf) > batchKept || len(l.batches) >= 4 {
		return
	}
	clear(b.parts)
	*b = Batch{buf: b.buf[:0], parts: b.parts[:0]}
	l.batches = append(l.batches, b)
}

// turn ends the segment at the tail and begins the next one, with room for a frame of n bytes.
func (l *Log) turn(n int64) {
	b := l.batch()
	b.buf = appendControl(b.buf, l.state, kindEnd, l.staged, l.synced.Load())
	b.extend()
	size := segmentSize(l.segmentBytes, n)
	t := &turn{base: l.staged, end: l.tail.Offset, size: size}
	l.tail = Place{l.tail.Segment + 1, segmentHeaderLen}
	l.limit, l.state = size, seedState(l.seedOf(l.tail.Segment))
	b.parts = append(b.parts, part{place: l.tail, from: len(b.buf), turn: t})
	// When this start frame is written the segment before is synced.
	b.buf = appendControl(b.buf, l.state, kindStart, l.staged, l.staged.LSN)
	b.extend()
	l.tail.Offset += frameHeaderLen
}

// Staged returns the position of the last staged record.
func (l *Log) Staged() Position { return l.staged }

// Take returns the open batch, or nil if nothing is staged. It must be handed to Write, batches in the order they were
// taken.
func (l *Log) Take() *Batch {
	b := l.open
	if b == nil {
		return nil
	}
	l.open = nil
	// The mark "no frame here" behind the last frame; the next batch goes over it.
	b.buf = append(b.buf, zeroFrame[:]...)
	b.extend()
	return b
}

// Synced returns the LSN up to which the log is known to be on disk.
func (l *Log) Synced() uint64 { return l.synced.Load() }

// Written returns the position of the last written record.
func (l *Log) Written() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written
}

// End returns the place behind the last written frame.
func (l *Log) End() Place {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// Err returns the first failure of a write or sync, which is final (I7), or ErrClosed after Close, or nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errLocked()
}

func (l *Log) errLocked() error {
	if l.failed == nil && l.closed {
		return ErrClosed
	}
	return l.failed
}

// fail makes err the log's failure if it is the first, and returns the failure.
func (l *Log) fail(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return l.failed
}

// Segments describes the segments that hold records, ascending, and the spare, if there is one.
func (l *Log) Segments() []SegmentInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	infos := make([]SegmentInfo, 0, len(l.segments)+1)
	for _, s := range l.segments {
		infos = append(infos, s.info())
	}
	if l.spare != nil {
		infos = append(infos, l.spare.info())
	}
	return infos
}

// Close closes the log's files. It does not write or sync: seal first. It must not run beside Write, Seal or Sync.
func (l *Log) Close() error {
	l.makeMu.Lock()
	defer l.makeMu.Unlock()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	segs := l.segments
	if l.spare != nil {
		segs = append(segs[:len(segs):len(segs)], l.spare)
	}
	l.mu.Unlock()
	if err := closeSegments(segs); err != nil {
		return fmt.Errorf("close update log: %w", err)
	}
	return nil
}

var errNotWritten = errors.New("not written yet")
