package ulog

import (
	"errors"
	"os"
)

// CheckReport tells what Check found.
type CheckReport struct {
	Recovery          // what Open would do
	First    uint64   // LSN of the first record after the position, 0 if there is none
	Last     Position // position of the last record
	Old      int      // segments before the place; Open would release them, they were not read
}

// Check reads the log in dir as Open would, verifies every sum and hands the records after the position to fn, which may
// be nil. It changes nothing. Damage is returned as a *CorruptError, with what was found up to it in the report. The log
// must not be open.
func Check(dir string, fs FS, after Position, at Place, fn func(*Record) error) (CheckReport, error) {
	sequences, _, err := listSegments(fs, dir)
	if err != nil {
		return CheckReport{}, err
	}
	all, err := openSegments(fs, dir, sequences, os.O_RDONLY)
	if err != nil {
		return CheckReport{}, err
	}
	old, segs := splitSegments(all, at)
	r := CheckReport{Old: len(old)}
	w := walk{dir: dir, segments: segs, win: windowFor(segs), after: after}
	w.fn = func(rec *Record) error {
		if r.First == 0 {
			r.First = rec.LSN
		}
		if fn == nil {
			return nil
		}
		return fn(rec)
	}
	if len(segs) == 0 && at != (Place{}) {
		w.pos, w.highest = after, after.LSN
		err = w.missing(at.Segment)
	} else {
		var end ending
		end, err = w.run(at)
		r.Recovery = w.report(end)
	}
	r.Last = w.pos
	return r, errors.Join(err, closeSegments(all))
}

// report is what the walk found.
func (w *walk) report(end ending) Recovery {
	r := Recovery{Records: w.records, Bytes: w.win.read, Segments: end.last + 1}
	r.Clean = end.sealed || end.last < 0 && !end.torn.found
	if t := end.torn; t.found {
		r.CutFrames, r.CutBytes, r.CutFile, r.CutOffset = t.frames, t.bytes, w.segments[t.index].path, t.offset
	}
	return r
}
