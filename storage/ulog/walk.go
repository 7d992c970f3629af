package ulog

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// walk reads segments in order and verifies that they are one history. It changes nothing. Open, Check and Repair share it.
type walk struct {
	dir      string
	segments []*segment // ascending, without those before the place to start from
	win      *window
	after    Position // records up to it are not handed to fn
	fn       func(*Record) error
	progress func(done, total int64)

	pos     Position // after the last good frame
	known   bool     // pos is known; at the very beginning the first start frame gives it
	highest uint64   // highest LSN known to have been synced
	records int64
	total   int64 // bytes in all segments
	told    int64 // bytes read when progress was last told
	rec     Record
}

// ending is where a walk found the log's end.
type ending struct {
	last   int   // index of the last segment that has a start frame, -1 if there is none
	offset int64 // where the next frame would go in it
	sealed bool  // the last frame is a seal
	ended  bool  // the last frame is an end frame
	torn   tail  // what lies behind the end
}

// listSegments returns the sequence numbers of the segments in dir, ascending, and the names of leftover temporary files.
func listSegments(fs FS, dir string) (sequences []uint64, temps []string, err error) {
	names, err := fs.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("list update log: %w", err)
	}
	for _, name := range names {
		if seq, ok := parseSegmentName(name); ok {
			sequences = append(sequences, seq)
		} else if strings.HasSuffix(name, segmentSuffix+tempSuffix) {
			temps = append(temps, name)
		}
	}
	return sequences, temps, nil
}

// openSegments opens the segments of dir with their headers.
func openSegments(fs FS, dir string, sequences []uint64, flag int) ([]*segment, error) {
	var segs []*segment
	for _, seq := range sequences {
		s, err := openSegment(fs, filepath.Join(dir, segmentName(seq)), seq, flag)
		if err != nil {
			return nil, errors.Join(err, closeSegments(segs))
		}
		segs = append(segs, s)
	}
	markForeign(segs)
	return segs, nil
}

// markForeign marks segments that belong to another log and such whose seed was seen before.
func markForeign(segs []*segment) {
	seeds := make(map[uint64]bool)
	var id *[16]byte
	for _, s := range segs {
		if s.bad != nil {
			continue
		}
		switch {
		case id == nil:
			id = &s.header.id
		case *id != s.header.id:
			s.bad = errors.New("segment belongs to another log")
			continue
		}
		if seeds[s.header.seed] {
			s.bad = errors.New("segment is a copy of another")
		}
		seeds[s.header.seed] = true
	}
}

func closeSegments(segs []*segment) error {
	var err error
	for _, s := range segs {
		err = errors.Join(err, s.file.Close())
	}
	return err
}

// run reads everything from the place at, which must be the zero place or lie in the first segment.
func (w *walk) run(at Place) (ending, error) {
	end := ending{last: -1}
	w.highest = w.after.LSN
	if len(w.segments) == 0 {
		return end, nil
	}
	for _, s := range w.segments {
		w.total += s.size
	}
	offset := at.Offset
	w.known = at != Place{} && at.Segment == w.segments[0].sequence && offset > segmentHeaderLen
	if w.known {
		w.pos = w.after
	} else {
		offset = segmentHeaderLen
	}
	for i, s := range w.segments {
		if i > 0 && s.sequence != w.segments[i-1].sequence+1 {
			return end, w.missing(w.segments[i-1].sequence + 1)
		}
		more, err := w.segment(i, offset, &end)
		if err != nil || !more {
			return end, err
		}
		offset = segmentHeaderLen
	}
	return end, w.atEnd(end)
}

// atEnd verifies that the log does not end before the position to start from.
func (w *walk) atEnd(end ending) error {
	if w.known && w.pos.LSN >= w.after.LSN || !w.known && len(w.segments) == 0 {
		return nil
	}
	if !w.known && w.after == (Position{}) {
		return nil
	}
	s := w.segments[max(end.last, 0)]
	return w.corrupt(s.path, end.offset, errors.New("log ends before the position of the tree"))
}

func (w *walk) corrupt(file string, offset int64, err error) *CorruptError {
	return &CorruptError{File: file, Offset: offset, LSN: w.pos.LSN + 1, Highest: w.highest, Err: err}
}

func (w *walk) missing(sequence uint64) error {
	return w.corrupt(filepath.Join(w.dir, segmentName(sequence)), 0, errors.New("segment is missing"))
}

// segment reads one segment from offset on. It reports whether the log goes on in the next one.
func (w *walk) segment(i int, offset int64, end *ending) (more bool, err error) {
	s := w.segments[i]
	if s.bad != nil {
		return false, w.headless(i, end)
	}
	w.win.reset(s.file, s.size)
	if i == 0 && w.known {
		end.last, end.offset = i, offset // the position lies in it, so it was begun
	}
	for {
		f, err := w.win.frame(offset, s.state)
		if err == nil {
			err = w.follows(&f, offset == segmentHeaderLen)
		} else if !badFrame(err) {
			return false, fmt.Errorf("segment %s: %w", s.path, err)
		}
		if err != nil {
			return false, w.judge(i, offset, err, end)
		}
		w.tell()
		w.highest = max(w.highest, f.synced)
		switch f.kind {
		case kindStart:
			end.last, end.ended = i, false
			err = w.begin(i, f.position())
		case kindSeal:
			end.offset, end.sealed = offset, true
			w.highest = max(w.highest, f.lsn)
			return false, w.behindSeal(i, offset, end)
		case kindEnd:
			s.end = offset
			end.offset, end.ended = offset, true
			return true, nil
		default:
			err = w.deliver(s, offset, &f)
		}
		if err != nil {
			return false, err
		}
		offset += f.len()
		end.offset = offset
	}
}

// tell reports progress if something was read since the last time.
func (w *walk) tell() {
	if w.progress != nil && w.win.read != w.told {
		w.told = w.win.read
		w.progress(w.told, max(w.total, w.told))
	}
}

// begin goes on with segment i, which begins at the position p. The first one must begin at or before the position to
// start from.
func (w *walk) begin(i int, p Position) error {
	s := w.segments[i]
	s.base, s.begun = p, true
	w.pos, w.known = p, true
	switch {
	case i > 0 || p.LSN < w.after.LSN || p == w.after:
		return nil
	case p.LSN == w.after.LSN:
		return w.corrupt(s.path, segmentHeaderLen, ErrDiverged)
	}
	e := w.corrupt(s.path, segmentHeaderLen, fmt.Errorf("log begins only with LSN %d", p.LSN+1))
	e.LSN = w.after.LSN + 1
	return e
}

// follows reports what keeps f from being the frame that comes after pos.
func (w *walk) follows(f *frame, first bool) error {
	if first != (f.kind == kindStart) {
		return errors.New("frame is out of place")
	}
	if !w.known {
		return nil // the first start frame of all
	}
	want := w.pos
	switch f.kind {
	case kindRecord:
		want = Position{w.pos.LSN + 1, chainOf(w.pos.Chain, f.raw)}
	case kindGap:
		if f.lsn > w.pos.LSN {
			want = f.position()
		}
	}
	if f.lsn != want.LSN {
		return fmt.Errorf("frame with LSN %d is out of place", f.lsn)
	}
	if f.chain != want.Chain {
		return errors.New("frame does not continue the chain")
	}
	return nil
}

// deliver hands a record or a gap on and moves pos.
func (w *walk) deliver(s *segment, offset int64, f *frame) error {
	before := w.pos
	w.pos = f.position()
	if w.pos.LSN <= w.after.LSN {
		if w.pos.LSN == w.after.LSN && w.pos.Chain != w.after.Chain {
			return w.corrupt(s.path, offset, ErrDiverged)
		}
		return nil
	}
	if before.LSN == w.pos.LSN {
		return nil // a gap frame that covers damaged bytes, but no record is missing
	}
	before.LSN = max(before.LSN, w.after.LSN)
	if f.kind == kindRecord {
		w.records++
	}
	if w.fn == nil {
		return nil
	}
	w.rec = f.record(Place{s.sequence, offset}, before.LSN)
	return w.fn(&w.rec)
}
