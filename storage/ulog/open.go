package ulog

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// Open opens the log in dir, which is made if it is missing, and recovers it. The records after the position after are
// handed to replay in order; an error of replay ends Open. at is the place where the frame of the record at that position
// ends, as the tree keeps it; the zero place means that it has to be looked for from the first segment on. An empty
// folder with the zero place gives a log whose first record follows after.
//
// A torn tail is cut. Damage is refused with a *CorruptError, and nothing is changed. After an end without a seal the
// last segment is rewritten and synced before Open returns, since what the page cache shows may not be on disk. New records
// go into a segment of their own. Segments before at are released unless Options.KeepOld is set.
//
// One process at a time may have a log open; the caller sees to that.
func Open(dir string, after Position, at Place, o Options, replay func(*Record) error) (*Log, Recovery, error) {
	l, err := newLog(dir, o)
	if err != nil {
		return nil, Recovery{}, err
	}
	if err := l.fs.MkdirAll(dir); err != nil {
		return nil, Recovery{}, fmt.Errorf("make folder of update log: %w", err)
	}
	sequences, temps, err := listSegments(l.fs, dir)
	if err != nil {
		return nil, Recovery{}, err
	}
	if len(sequences) == 0 {
		if err := l.fs.SyncDir(filepath.Dir(dir)); err != nil {
			return nil, Recovery{}, fmt.Errorf("sync folder above update log: %w", err)
		}
	}
	for _, name := range temps {
		if err := l.fs.Remove(filepath.Join(dir, name)); err != nil {
			return nil, Recovery{}, fmt.Errorf("remove leftover file: %w", err)
		}
	}
	segs, err := openSegments(l.fs, dir, sequences, os.O_RDWR)
	if err != nil {
		return nil, Recovery{}, err
	}
	r := recovery{l: l, after: after, at: at, keep: o.KeepOld}
	rec, err := r.run(segs, replay, o.Progress)
	if err != nil {
		return nil, rec, errors.Join(err, closeSegments(r.open))
	}
	return l, rec, nil
}

func newLog(dir string, o Options) (*Log, error) {
	l := &Log{dir: dir, fs: o.FS, log: o.Log, segmentBytes: o.SegmentBytes, zeroAhead: o.ZeroAhead, seeds: make(map[uint64]uint64)}
	if l.fs == nil {
		l.fs = OS{}
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.segmentBytes == 0 {
		l.segmentBytes = DefaultSegmentBytes
	}
	if l.segmentBytes < minSegmentBytes {
		return nil, fmt.Errorf("segment size of %d bytes is too small: at least %d", l.segmentBytes, minSegmentBytes)
	}
	return l, nil
}

// recovery brings a log from what is on disk to a state in which it can be written.
type recovery struct {
	l     *Log
	after Position
	at    Place
	keep  bool
	walk  walk
	open  []*segment // every segment whose file is open
	old   []*segment // before the place
	next  uint64     // sequence number of the segment to begin
	tail  int64      // where to write on in the last segment, 0 if another is begun
}

func (r *recovery) run(segs []*segment, replay func(*Record) error, progress func(int64, int64)) (Recovery, error) {
	r.open = append(r.open, segs...)
	r.old, segs = splitSegments(segs, r.at)
	r.walk = walk{
		dir: r.l.dir, segments: segs, win: windowFor(segs), after: r.after, fn: replay, progress: progress,
	}
	w := &r.walk
	var rec Recovery
	if len(segs) == 0 && (r.at != Place{} || len(r.old) > 0) {
		w.pos, w.highest = r.after, r.after.LSN
		return rec, w.missing(max(r.at.Segment, 1))
	}
	end, err := w.run(r.at)
	rec = w.report(end)
	if err != nil {
		return rec, err
	}
	if !w.known {
		w.pos = r.after
	}
	if end.torn.found {
		r.l.log.Warn("torn tail cut", "file", rec.CutFile, "offset", rec.CutOffset, "frames", rec.CutFrames,
			"bytes", rec.CutBytes, "lsn", w.pos.LSN)
	}
	return rec, r.finish(end)
}

// splitSegments divides segs into those before the place and those from it on.
func splitSegments(segs []*segment, at Place) (old, rest []*segment) {
	for i, s := range segs {
		if s.sequence >= at.Segment {
			return segs[:i], segs[i:]
		}
	}
	return segs, nil
}

// headerFor returns a header for a new segment.
func (l *Log) headerFor(sequence uint64, bytes int64) segmentHeader {
	return segmentHeader{
		version: segmentVersion, id: l.id, sequence: sequence, seed: l.seedOf(sequence),
		created: time.Now().UnixMilli(), bytes: bytes,
	}
}
