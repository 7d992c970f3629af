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
	l := &Log{dir: dir, fs: o.FS, log: o.Log, segmentBytes: o.SegmentBytes, seeds: make(map[uint64]uint64)}
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

// finish makes what was found durable and gives the log a segment to write into. Each step is durable before the next
// one begins, so a crash between two of them is one more unclean end.
func (r *recovery) finish(end ending) error {
	l, segs := r.l, r.walk.segments
	kept, trailing := segs[:end.last+1], segs[end.last+1:]
	sequence := uint64(1)
	if len(segs) > 0 {
		sequence = segs[0].sequence
		l.id = r.logID()
	}
	var spare *segment
	if end.sealed && len(trailing) == 1 && trailing[0].bad == nil && trailing[0].size == l.segmentBytes {
		spare, trailing = trailing[0], nil
	}
	// What lies in these was cut. They go first: with a start frame in one of them, the segment before would have to be whole.
	if err := r.remove(trailing); err != nil {
		return err
	}
	if n := len(kept); n > 0 {
		last := kept[n-1]
		sequence = last.sequence + 1
		var err error
		switch {
		case end.offset == segmentHeaderLen+frameHeaderLen && !end.ended:
			// No record in it: it is made anew, under the same name. The one before it is finished and synced.
			kept, sequence = kept[:n-1], last.sequence
		case end.sealed:
			err = r.finishSealed(last, end.offset)
		default:
			kept[n-1], err = r.rewrite(last, end.offset)
		}
		if err != nil {
			return err
		}
	}
	current, err := r.begin(spare, sequence)
	if err != nil {
		return err
	}
	return r.install(kept, current, spare)
}

// logID is the id in the segments' headers, or a new one.
func (r *recovery) logID() [16]byte {
	for _, s := range r.walk.segments {
		if s.bad == nil {
			return s.header.id
		}
	}
	return [16]byte{}
}

func (r *recovery) remove(segs []*segment) error {
	for _, s := range segs {
		if err := r.l.fs.Remove(s.path); err != nil {
			return fmt.Errorf("remove segment: %w", err)
		}
	}
	if len(segs) == 0 {
		return nil
	}
	if err := r.l.fs.SyncDir(r.l.dir); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}

// finishSealed writes the end frame over the seal. Everything before a seal was synced before the seal was written.
func (r *recovery) finishSealed(s *segment, offset int64) error {
	b := appendControl(nil, s.state, kindEnd, r.walk.pos, r.walk.pos.LSN)
	if _, err := s.file.WriteAt(b, offset); err != nil {
		return fmt.Errorf("write segment %s: %w", s.path, err)
	}
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("sync segment %s: %w", s.path, err)
	}
	s.end = offset
	return nil
}

// rewrite puts a file in the place of s that holds its bytes up to offset and an end frame, and that is synced.
func (r *recovery) rewrite(s *segment, offset int64) (*segment, error) {
	h := s.header
	h.bytes = offset + frameHeaderLen
	copied := &copier{src: s.file, from: segmentHeaderLen, to: offset, win: r.walk.win}
	copied.tail = appendControl(nil, s.state, kindEnd, r.walk.pos, r.walk.pos.LSN)
	n, err := replaceSegment(r.l.fs, r.l.dir, s.path, h, copied.write)
	if err != nil {
		return nil, err
	}
	n.base, n.begun, n.end = s.base, s.begun, offset
	r.open = append(r.open, n)
	return n, nil
}

// copier copies a run of bytes between files through a window.
type copier struct {
	src      File
	from, to int64
	tail     []byte // written behind them
	win      *window
}

func (c *copier) write(dst File) error {
	c.win.reset(c.src, c.to)
	for off := c.from; off < c.to; {
		n := int(min(c.to-off, int64(len(c.win.buf))))
		b, err := c.win.bytes(off, n)
		if err != nil {
			return err
		}
		if _, err := dst.WriteAt(b, off); err != nil {
			return err
		}
		off += int64(n)
	}
	_, err := dst.WriteAt(c.tail, c.to)
	return err
}

// replaceSegment puts a new file with header h in the place of the one at path: a temporary file is written by body and
// synced, and renamed over it, and the folder is synced.
func replaceSegment(fs FS, dir, path string, h segmentHeader, body func(File) error) (*segment, error) {
	f, err := fs.OpenFile(path+tempSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return nil, fmt.Errorf("rewrite segment: %w", err)
	}
	if err := body(f); err != nil {
		return nil, discardTemp(fs, path, f, fmt.Errorf("rewrite segment %s: %w", path, err))
	}
	s := &segment{path: path, file: f, header: h}
	return s, s.launch(fs, dir, appendSegmentHeader(nil, &h))
}

// begin gives the log a segment to write into: the spare of the last run, which was never written, or a new one.
func (r *recovery) begin(spare *segment, sequence uint64) (*segment, error) {
	l, pos := r.l, r.walk.pos
	if l.id == ([16]byte{}) {
		l.id = newLogID()
	}
	if spare == nil || spare.sequence != sequence {
		s, err := newSegment(l.fs, l.dir, l.headerFor(sequence, l.segmentBytes), &pos)
		if err != nil {
			return nil, err
		}
		r.open = append(r.open, s)
		return s, nil
	}
	b := appendControl(nil, spare.state, kindStart, pos, pos.LSN)
	if _, err := spare.file.WriteAt(append(b, zeroFrame[:]...), segmentHeaderLen); err != nil {
		return nil, fmt.Errorf("write segment %s: %w", spare.path, err)
	}
	if err := spare.file.Sync(); err != nil {
		return nil, fmt.Errorf("sync segment %s: %w", spare.path, err)
	}
	spare.base, spare.begun = pos, true
	return spare, nil
}

// install gives the log its segments and closes the files that it does not need.
func (r *recovery) install(kept []*segment, current, spare *segment) error {
	l := r.l
	if spare == current {
		spare = nil
	}
	var old []*segment
	drop := r.old
	if r.keep {
		next := current.sequence
		if len(kept) > 0 {
			next = kept[0].sequence
		}
		old, drop = connected(r.old, next)
	}
	l.segments = append(append(old[:len(old):len(old)], kept...), current)
	l.current, l.spare = current, spare
	l.staged, l.written = r.walk.pos, r.walk.pos
	l.tail = Place{current.sequence, segmentHeaderLen + frameHeaderLen}
	l.end, l.limit, l.state = l.tail, current.size, current.state
	l.synced.Store(r.walk.pos.LSN)
	delete(l.seeds, current.sequence)
	if err := r.remove(drop); err != nil {
		return err
	}
	return r.closeOthers()
}

// connected returns those of old that lead up to the sequence number next without a gap, and the others.
func connected(old []*segment, next uint64) (connected, others []*segment) {
	for i := len(old) - 1; i >= 0; i-- {
		if s := old[i]; s.bad != nil || !s.begun || s.sequence != next-1 {
			return old[i+1:], old[:i+1]
		}
		next--
	}
	return old, nil
}

// closeOthers closes the files of segments that are not the log's any more.
func (r *recovery) closeOthers() error {
	used := make(map[*segment]bool)
	for _, s := range append(r.l.segments[:len(r.l.segments):len(r.l.segments)], r.l.spare) {
		used[s] = true
	}
	var err error
	for _, s := range r.open {
		if !used[s] {
			err = errors.Join(err, s.file.Close())
		}
	}
	r.open = nil
	if err != nil {
		return fmt.Errorf("close segment: %w", err)
	}
	return nil
}

// headerFor returns a header for a new segment.
func (l *Log) headerFor(sequence uint64, bytes int64) segmentHeader {
	return segmentHeader{
		version: segmentVersion, id: l.id, sequence: sequence, seed: l.seedOf(sequence),
		created: time.Now().UnixMilli(), bytes: bytes,
	}
}
