package ulog

import (
	"errors"
	"fmt"
	"io"
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
	total   int64
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

// tail is what a torn tail holds.
type tail struct {
	index  int   // of the segment it begins in
	offset int64 // where it begins
	frames int   // the torn frame, if it can be made out, and the whole ones behind it
	bytes  int64 // from offset to the end of what can be made out in that segment
	found  bool
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
	mark := w.win.read
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
		if w.progress != nil && w.win.read != mark {
			mark = w.win.read
			w.progress(mark, max(w.total, mark))
		}
		w.highest = max(w.highest, f.synced)
		switch f.kind {
		case kindStart:
			s.base, s.begun, end.last = f.position(), true, i
			w.pos, w.known = s.base, true
			if err := w.firstStart(s, i); err != nil {
				return false, err
			}
			end.ended = false
		case kindSeal:
			end.offset, end.sealed = offset, true
			w.highest = max(w.highest, f.lsn)
			return false, w.behindSeal(i, offset, end)
		case kindEnd:
			s.end = offset
			end.offset, end.ended = offset, true
			return true, nil
		default:
			if err := w.deliver(s, offset, &f); err != nil {
				return false, err
			}
		}
		offset += f.len()
		end.offset = offset
	}
}

// firstStart verifies that the log begins at or before the position to start from.
func (w *walk) firstStart(s *segment, i int) error {
	switch {
	case i > 0 || s.base.LSN < w.after.LSN || s.base == w.after:
		return nil
	case s.base.LSN == w.after.LSN:
		return w.corrupt(s.path, segmentHeaderLen, ErrDiverged)
	}
	e := w.corrupt(s.path, segmentHeaderLen, fmt.Errorf("log begins only with LSN %d", s.base.LSN+1))
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
	w.records++
	if w.fn == nil {
		return nil
	}
	w.rec = f.record(Place{s.sequence, offset}, before.LSN)
	return w.fn(&w.rec)
}

// headless deals with a segment whose header cannot be used. If it is the newest and nothing was ever in it, the log ends
// before it.
func (w *walk) headless(i int, end *ending) error {
	s := w.segments[i]
	if i == len(w.segments)-1 && s.header.bytes <= s.size {
		empty, err := blank(s)
		if err != nil {
			return fmt.Errorf("segment %s: %w", s.path, err)
		}
		if empty {
			if s.size > 0 || i == 0 {
				end.torn = tail{index: i, bytes: s.size, found: true}
			}
			return w.atEnd(*end)
		}
	}
	e := w.corrupt(s.path, 0, s.bad)
	if _, _, err := w.behind(i, segmentHeaderLen, e); err != nil {
		return err
	}
	return e
}

// blank reports whether nothing was ever written into a segment but, maybe, a part of its header.
func blank(s *segment) (bool, error) {
	if s.size < segmentHeaderLen {
		return true, nil
	}
	if s.bad != errHeader {
		return false, nil
	}
	win := windowFor([]*segment{s})
	win.reset(s.file, s.size)
	for off := int64(0); off < s.size; {
		n := int(min(int64(len(win.buf)), s.size-off))
		b, err := win.bytes(off, n)
		if err != nil {
			return false, err
		}
		for _, c := range b {
			if c != 0 {
				return false, nil
			}
		}
		off += int64(n)
	}
	return true, nil
}

// behindSeal verifies that no segment is begun behind a seal: the write that begins one goes over the seal first.
func (w *walk) behindSeal(i int, offset int64, end *ending) error {
	for _, s := range w.segments[i+1:] {
		if s.bad == nil && s.begun {
			e := w.corrupt(w.segments[i].path, offset, errors.New("log goes on behind a seal"))
			if _, _, err := w.behind(i+1, segmentHeaderLen, e); err != nil {
				return err
			}
			return e
		}
	}
	return w.atEnd(*end)
}

// judge tells damage from a torn tail at a place where no frame continues the log because of cause.
func (w *walk) judge(i int, offset int64, cause error, end *ending) error {
	s := w.segments[i]
	e := w.corrupt(s.path, offset, cause)
	t, started, err := w.behind(i, offset, e)
	if err != nil {
		return err
	}
	// A segment is begun only when the one before it is finished and synced, so then all of it must be there.
	if started || e.LSN <= e.Highest || w.known && w.pos.LSN < w.after.LSN {
		return e
	}
	t.index, t.offset = i, offset
	if err := w.measure(s, offset, &t); err != nil {
		return err
	}
	end.torn = t
	return w.atEnd(*end)
}

// behind looks through everything from offset in segment i on for frames that are whole. It fills in e and reports
// whether a segment behind i has a start frame that is due.
func (w *walk) behind(i int, offset int64, e *CorruptError) (t tail, started bool, err error) {
	for j := i; j < len(w.segments); j++ {
		s := w.segments[j]
		if s.bad != nil {
			continue
		}
		w.win.reset(s.file, s.size)
		for off := offset; ; {
			at, f, err := w.win.find(off, s.state, w.pos.LSN)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return t, started, fmt.Errorf("segment %s: %w", s.path, err)
			}
			e.Highest = max(e.Highest, f.synced)
			switch f.kind {
			case kindRecord, kindGap:
				if f.lsn <= w.pos.LSN {
					break
				}
				e.Later++
				if e.LaterLSN == 0 {
					e.LaterLSN = f.lsn
				}
				t.frames++
				t.found = true
			case kindStart:
				e.Highest = max(e.Highest, f.lsn)
				started = started || j > i && at == segmentHeaderLen
			case kindSeal:
				e.Highest = max(e.Highest, f.lsn)
			}
			off = at + f.len()
			if j == i {
				t.bytes = off - offset
			}
		}
		offset = segmentHeaderLen
	}
	w.highest = max(w.highest, e.Highest)
	return t, started, nil
}

// measure finds out whether a frame was torn at offset or nothing was written there at all.
func (w *walk) measure(s *segment, offset int64, t *tail) error {
	w.win.reset(s.file, s.size)
	b, err := w.win.bytes(offset, frameHeaderLen)
	if errors.Is(err, errShort) {
		t.found = true // a whole segment has room for the mark behind its last frame
		return nil
	}
	if err != nil {
		return fmt.Errorf("segment %s: %w", s.path, err)
	}
	if [frameHeaderLen]byte(b) == zeroFrame {
		return nil
	}
	t.found = true
	t.bytes = max(t.bytes, frameHeaderLen)
	h, err := decodeFrameHeader(b, s.state)
	if err == nil && offset+h.len() <= s.size {
		t.bytes = max(t.bytes, h.len())
	}
	t.frames++
	return nil
}
