package ulog

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Position says where in the history a log stands: the LSN of the last record and the sum chained over all records up to
// it. Two logs that show the same position hold the same records. The zero value is the position before the first record.
type Position struct {
	LSN   uint64
	Chain uint32
}

// Place is where bytes lie in this log's files. Places differ between nodes; positions do not. The zero value means the
// beginning of the first segment.
type Place struct {
	Segment uint64 // sequence number, which is also the file's name
	Offset  int64  // bytes from the file's beginning
}

// Before reports whether p lies before q.
func (p Place) Before(q Place) bool {
	return p.Segment < q.Segment || p.Segment == q.Segment && p.Offset < q.Offset
}

// Record is one record as it was read. Head and Body are valid until the next call of the function that gave it.
type Record struct {
	Position
	Place Place // where the frame begins
	Next  Place // where the frame ends
	Head  []byte
	Body  []byte
	// BodySum is the CRC-32C of Body.
	BodySum uint32
	// Gap is 0 for a record. Otherwise there is no record: the Gap LSNs that end with LSN were lost, and a repair wrote
	// this in their place.
	Gap uint64
}

// BodyPlace is where the body's bytes lie, for ReadBody.
func (r *Record) BodyPlace() Place {
	return Place{r.Place.Segment, r.Place.Offset + frameHeaderLen + int64(len(r.Head))}
}

// Limits of one record.
const (
	MaxHeadLen = 1<<24 - 1 // bytes
	MaxBodyLen = 1<<32 - 1 // bytes
)

// DefaultSegmentBytes is the size of a segment's file unless Options say otherwise.
const DefaultSegmentBytes = 64 << 20

// Options are the log's settings. The zero value works.
type Options struct {
	FS           FS                                // OS{} if nil
	SegmentBytes int64                             // size of a segment's file in bytes, 64 MiB if 0, at least 4 KiB
	ZeroAhead    int64                             // zeros are written so many bytes ahead of the records, for cheaper syncs (see doc.go); 0: none
	KeepOld      bool                              // keep segments before the given place until Release, for slaves that are behind
	Log          *slog.Logger                      // discards if nil
	Progress     func(doneBytes, totalBytes int64) // called now and then while Open reads; may be nil
}

// Recovery tells what Open did.
type Recovery struct {
	Records  int64 // records handed to replay
	Bytes    int64 // bytes read for them
	Segments int   // segments read
	Clean    bool  // the log was closed in order; nothing had to be rewritten

	// What was cut off as a torn tail: frames that were written but never synced, so nothing promised. CutFile is empty
	// if nothing was cut. CutFrames counts the torn frame and the whole ones behind it.
	CutFrames int
	CutBytes  int64
	CutFile   string
	CutOffset int64
}

// SegmentInfo describes one segment's file.
type SegmentInfo struct {
	Name     string // base name
	Bytes    int64  // size of the file
	FirstLSN uint64 // LSN of its first record, or of the next record if it holds none; 0 for a spare
	Modified time.Time
}

var (
	// ErrFailed is wrapped by every error after a write or sync has failed. It is final (I7).
	ErrFailed = errors.New("update log failed")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("update log closed")
	// ErrReleased is returned for a place or position whose segment was released or never was.
	ErrReleased = errors.New("not in the log any more")
	// ErrDiverged is returned for a position that is not in this log's history.
	ErrDiverged = errors.New("position is not in this log's history")
	// ErrNewerFormat is wrapped when a segment was written by a newer version.
	ErrNewerFormat = errors.New("written by a newer qserver")
)

// CorruptError reports damage: something that was synced cannot be read back as it was written.
type CorruptError struct {
	File     string // whole path
	Offset   int64  // bytes from the file's beginning
	LSN      uint64 // LSN that was expected there
	Highest  uint64 // highest LSN that is known to have been synced
	Later    int    // intact records behind the damage
	LaterLSN uint64 // LSN of the first of these, 0 if there is none
	Err      error  // what is wrong at the offset
}

// Error names file, offset and LSNs in one line.
func (e *CorruptError) Error() string {
	s := fmt.Sprintf("%s: damaged at offset %d: %v (expected LSN %d, synced up to LSN %d, %d intact records behind it",
		e.File, e.Offset, e.Err, e.LSN, e.Highest, e.Later)
	if e.Later > 0 {
		s += fmt.Sprintf(" from LSN %d", e.LaterLSN)
	}
	return s + ")"
}

// Unwrap returns what is wrong.
func (e *CorruptError) Unwrap() error { return e.Err }
