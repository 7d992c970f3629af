package ulog

import (
	"errors"
	"fmt"
	"io"
)

// Reader follows the log from a position up to what is written, and further as more is written. It is for one goroutine;
// it may run beside Write. While it is open the segment it stands in is not released.
type Reader struct {
	l     *Log
	seg   *segment
	win   *window
	pos   Position // of the last frame passed
	at    Place    // behind it
	after uint64   // records up to it are passed over
	rec   Record
}

// NewReader returns a reader for the records after the position after. at is the place where the record at that position
// ends; if it is the zero place, or not in the log any more, the place is looked for. It returns ErrReleased if the records
// after it are not all there any more, and ErrDiverged if this log never stood at the position.
func (l *Log) NewReader(after Position, at Place) (*Reader, error) {
	r := &Reader{l: l, win: newWindow(readerWindow), after: after.LSN}
	if err := r.seek(after, at); err != nil {
		return nil, fmt.Errorf("read update log after LSN %d: %w", after.LSN, err)
	}
	// Up to the position everything is verified here, so that a diverged one is told at once.
	for r.pos.LSN < after.LSN {
		if _, err := r.step(); err != nil {
			return nil, errors.Join(fmt.Errorf("read update log after LSN %d: %w", after.LSN, err), r.Close())
		}
	}
	if r.pos != after {
		return nil, errors.Join(fmt.Errorf("read update log after LSN %d: %w", after.LSN, ErrDiverged), r.Close())
	}
	return r, nil
}

// seek finds a segment and a position in it from where to read, and uses it.
func (r *Reader) seek(after Position, at Place) error {
	l := r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if after.LSN > l.written.LSN || after.LSN == l.written.LSN && after != l.written {
		return ErrDiverged
	}
	if after == l.written {
		r.seg, r.at, r.pos = l.findLocked(l.end.Segment), l.end, after
	} else if s := l.findLocked(at.Segment); s != nil && at.Offset > segmentHeaderLen && !l.end.Before(at) {
		r.seg, r.at, r.pos = s, at, after
	} else if !r.seekLocked(after.LSN) {
		return ErrReleased
	}
	r.seg.refs++
	r.resetLocked()
	return nil
}

// seekLocked goes to the beginning of the last segment that begins at or before lsn.
func (r *Reader) seekLocked(lsn uint64) bool {
	for i := len(r.l.segments) - 1; i >= 0; i-- {
		s := r.l.segments[i]
		if s.sequence > r.l.end.Segment || s.base.LSN > lsn {
			continue
		}
		r.seg, r.pos = s, s.base
		r.at = Place{s.sequence, segmentHeaderLen + frameHeaderLen}
		return true
	}
	return false
}

// resetLocked turns the window to the reader's segment.
func (r *Reader) resetLocked() { r.win.reset(r.seg.file, r.limitLocked()) }

// limitLocked is up to where the reader's segment is written. What lies behind may still change.
func (r *Reader) limitLocked() int64 {
	if r.seg.sequence == r.l.end.Segment {
		return r.l.end.Offset
	}
	return r.seg.size
}

// Place returns where the next record will begin.
func (r *Reader) Place() Place { return r.at }

// Position returns the position of the last record.
func (r *Reader) Position() Position { return r.pos }

// Next returns the next record, valid until the next call, or io.EOF when it has given all that is written; later calls
// go on. It returns a *CorruptError if what it reads is not what was written.
func (r *Reader) Next() (*Record, error) { return r.step() }

func (r *Reader) step() (*Record, error) {
	if r.seg == nil {
		return nil, ErrClosed
	}
	for {
		if r.at.Offset+frameHeaderLen > r.win.size {
			r.l.mu.Lock()
			r.win.size = r.limitLocked()
			end, closed := r.l.end, r.l.closed
			r.l.mu.Unlock()
			if closed {
				return nil, ErrClosed
			}
			if r.at == end {
				return nil, io.EOF
			}
		}
		f, err := r.win.frame(r.at.Offset, r.seg.state)
		if err != nil && !badFrame(err) {
			return nil, fmt.Errorf("segment %s: %w", r.seg.path, err)
		}
		w := walk{pos: r.pos, known: true, highest: r.l.Synced()}
		if err == nil {
			err = w.follows(&f, r.at.Offset == segmentHeaderLen)
		}
		if err != nil {
			return nil, w.corrupt(r.seg.path, r.at.Offset, err)
		}
		switch f.kind {
		case kindEnd:
			if err := r.turn(); err != nil {
				return nil, err
			}
		case kindRecord, kindGap:
			if rec := r.take(&f); rec != nil {
				return rec, nil
			}
		default:
			return nil, w.corrupt(r.seg.path, r.at.Offset, errors.New("frame is out of place"))
		}
	}
}

// take makes the frame the current record. It returns nil for a gap frame that stands for no record.
func (r *Reader) take(f *frame) *Record {
	r.rec = f.record(r.at, r.pos.LSN)
	none := r.rec.LSN == r.pos.LSN
	r.pos, r.at = r.rec.Position, r.rec.Next
	if none {
		return nil
	}
	return &r.rec
}

// turn goes on to the next segment. It is there: the end frame lies before the end of what is written.
func (r *Reader) turn() error {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	s := r.l.findLocked(r.seg.sequence + 1)
	if s == nil || s.base != r.pos {
		return fmt.Errorf("segment %s: %w", segmentName(r.seg.sequence+1), ErrReleased)
	}
	r.seg.refs--
	s.refs++
	r.seg = s
	r.at = Place{s.sequence, segmentHeaderLen + frameHeaderLen}
	r.resetLocked()
	return nil
}

// Close ends the reader. It is idempotent.
func (r *Reader) Close() error {
	if r.seg == nil {
		return nil
	}
	r.l.unref(r.seg)
	r.seg = nil
	return nil
}
