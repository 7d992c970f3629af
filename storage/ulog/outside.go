package ulog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Outside reads the files of a log without opening the log: it changes nothing and locks nothing, so it may run beside the
// process that has the log open. Every frame's own sum and the chained one are verified, so bytes that are being written, or a file
// that is used again meanwhile, are never taken for records. What it gives is written, and may not be on the disk yet.
type Outside struct {
	dir    string
	fs     FS
	from   uint64 // records before it are passed over
	seg    *segment
	win    *window
	pos    Position // of the last frame passed
	before Position // of the one before the record given last
	at     int64    // offset behind it
	rec    Record
	opened bool // a segment was found before
}

// OpenOutside returns a reader of the records with the LSN from and higher; if the log begins only behind that, from its
// beginning on. fs is OS{} if nil.
func OpenOutside(dir string, fs FS, from uint64) (*Outside, error) {
	if fs == nil {
		fs = OS{}
	}
	if _, err := fs.ReadDir(dir); err != nil {
		return nil, fmt.Errorf("list update log: %w", err)
	}
	return &Outside{dir: dir, fs: fs, from: from, win: newWindow(recoveryWindow)}, nil
}

// Next returns the next record, valid until the next call, or io.EOF when it has given all that is there; later calls go on.
// It returns ErrReleased if the log has gone on and let go of what comes next, and a *CorruptError if that can't be read back
// as it was written.
func (o *Outside) Next() (*Record, error) {
	if o.seg == nil {
		if err := o.open(); err != nil {
			return nil, err
		}
	}
	again := false // the segment was looked at afresh
	for {
		f, err := o.win.frame(o.at, o.seg.state)
		if err != nil && !badFrame(err) {
			return nil, fmt.Errorf("segment %s: %w", o.seg.path, err)
		}
		w := walk{pos: o.pos, known: true}
		if err == nil {
			err = w.follows(&f, false)
		}
		end := err == nil && f.kind == kindSeal
		if err != nil || end {
			if !again { // it may have been written on since the window was filled, or be another file by now
				again = true
				if err := o.again(); err != nil {
					return nil, err
				}
				continue
			}
			return nil, o.ended(err)
		}
		again = false
		if f.kind == kindEnd {
			if err := o.turn(); err != nil {
				return nil, err
			}
			continue
		}
		if rec := o.take(&f); rec != nil {
			return rec, nil
		}
	}
}

// take makes the frame the current record; nil: it is none, or lies before the first one that is asked for.
func (o *Outside) take(f *frame) *Record {
	o.rec = f.record(Place{o.seg.sequence, o.at}, o.pos.LSN)
	o.before = o.pos
	none := f.kind != kindRecord && f.kind != kindGap || o.rec.LSN == o.pos.LSN
	o.pos, o.at = f.position(), o.at+f.len()
	if none || o.pos.LSN < o.from {
		return nil
	}
	return &o.rec
}

// open begins in the last segment that begins before the record that is asked for, or in the first one.
func (o *Outside) open() error {
	sequences, _, err := listSegments(o.fs, o.dir)
	if err != nil {
		return err
	}
	var found *segment
	for i := len(sequences) - 1; i >= 0; i-- {
		s, err := openSegment(o.fs, filepath.Join(o.dir, segmentName(sequences[i])), sequences[i], os.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			break // released this moment, and all before it
		}
		if err != nil {
			return errors.Join(err, closeSegments(one(found)))
		}
		if s.bad != nil || !s.begun {
			s.file.Close()
			continue
		}
		if err := closeSegments(one(found)); err != nil {
			return errors.Join(err, s.file.Close())
		}
		found = s
		if s.base.LSN < max(o.from, 1) {
			break
		}
	}
	switch {
	case found == nil:
		return io.EOF
	case o.opened && found.base.LSN > o.pos.LSN:
		found.file.Close()
		return fmt.Errorf("%w: LSN %d", ErrReleased, o.pos.LSN+1)
	}
	o.use(found)
	return nil
}

func one(s *segment) []*segment {
	if s == nil {
		return nil
	}
	return []*segment{s}
}

func (o *Outside) use(s *segment) {
	o.seg, o.pos, o.at, o.opened = s, s.base, segmentHeaderLen+frameHeaderLen, true
	o.win.reset(s.file, s.size)
}

// again opens the segment's file again, by its name: a start may have put another in its place, or it may be gone.
func (o *Outside) again() error {
	old := o.seg
	o.seg = nil
	s, err := openSegment(o.fs, old.path, old.sequence, os.O_RDONLY)
	if err = errors.Join(err, old.file.Close()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			o.from = o.pos.LSN + 1
			return o.open()
		}
		return err
	}
	o.seg = s
	o.win.reset(s.file, s.size)
	return nil
}

// turn goes on to the next segment.
func (o *Outside) turn() error {
	path := filepath.Join(o.dir, segmentName(o.seg.sequence+1))
	s, err := openSegment(o.fs, path, o.seg.sequence+1, os.O_RDONLY)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return io.EOF // it is being made; the end frame is read again
	case err != nil:
		return err
	case s.bad != nil || !s.begun:
		s.file.Close()
		return io.EOF
	case s.base != o.pos:
		s.file.Close()
		return fmt.Errorf("%w: LSN %d", ErrReleased, o.pos.LSN+1)
	}
	if err := o.seg.file.Close(); err != nil {
		return errors.Join(err, s.file.Close())
	}
	o.use(s)
	return nil
}

// ended says what a frame that is none means: the end of what is written, or damage, if the log goes on in a next segment.
func (o *Outside) ended(cause error) error {
	path := filepath.Join(o.dir, segmentName(o.seg.sequence+1))
	s, err := openSegment(o.fs, path, o.seg.sequence+1, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return io.EOF
	}
	if err != nil {
		return err
	}
	defer s.file.Close()
	if s.bad != nil || !s.begun || cause == nil || s.base.LSN <= o.pos.LSN {
		return io.EOF
	}
	// The next one may have begun since the frame was read.
	if err := o.again(); err != nil {
		return err
	}
	if f, err := o.win.frame(o.at, o.seg.state); err == nil {
		w := walk{pos: o.pos, known: true}
		if w.follows(&f, false) == nil {
			return io.EOF // there is more: the next call has it
		}
	}
	w := walk{pos: o.pos, known: true, highest: s.base.LSN}
	return w.corrupt(o.seg.path, o.at, cause)
}

// Position is where it stands: behind the last record given.
func (o *Outside) Position() Position { return o.pos }

// Before is the position behind which the record given last lies.
func (o *Outside) Before() Position { return o.before }

// Close closes the files. Idempotent.
func (o *Outside) Close() error {
	s := o.seg
	o.seg = nil
	return closeSegments(one(s))
}
