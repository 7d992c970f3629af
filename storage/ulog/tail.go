package ulog

import (
	"errors"
	"fmt"
	"io"
)

// tail is what a torn tail holds.
type tail struct {
	index  int   // of the segment it begins in
	offset int64 // where it begins
	frames int   // the torn frame, if it can be made out, and the whole ones behind it
	bytes  int64 // from offset to the end of what can be made out in that segment
	found  bool
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
