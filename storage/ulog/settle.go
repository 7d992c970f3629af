package ulog

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
)

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
	r.next = sequence
	if len(kept) > 0 {
		r.next = kept[len(kept)-1].sequence + 1
	}
	old, drop := r.splitOld(sequence)
	if err := r.remove(drop); err != nil {
		return err
	}
	// What lies in the trailing ones was cut. They go first: with a start frame in one of them, the segment before would have to
	// be whole. The last one goes before the others, durably: a crash between two of them must not leave a gap.
	for i := len(trailing) - 1; i >= 0; i-- {
		if err := r.remove(trailing[i : i+1]); err != nil {
			return err
		}
	}
	current, err := r.settle(&kept, spare, end)
	// Once a new file is in the place of the last segment's, that one must not be written any more: nobody would find it.
	if errors.Is(err, syscall.ENOSPC) && !errors.Is(err, errInPlace) && len(kept) > 0 {
		current, err = r.resume(&kept, end.offset)
	}
	if err != nil {
		return err
	}
	l.segments = slices.Concat(old, kept, []*segment{current})
	return r.install(current, spare)
}

// settle makes the last segment durable and begins another.
func (r *recovery) settle(kept *[]*segment, spare *segment, end ending) (*segment, error) {
	n := len(*kept) - 1
	if n < 0 {
		return r.begin(spare)
	}
	last := (*kept)[n]
	switch {
	case end.offset == segmentHeaderLen+frameHeaderLen && !end.ended:
		// No record in it: it is made anew, under the same name. The one before it is finished and synced.
		r.next = last.sequence
		current, err := r.begin(spare)
		if err == nil {
			*kept = (*kept)[:n]
		}
		return current, err
	case end.sealed:
		if err := r.finishSealed(last, end.offset); err != nil {
			return nil, err
		}
	default:
		whole, err := r.rewrite(last, end.offset)
		if err != nil {
			return nil, err
		}
		(*kept)[n] = whole
	}
	return r.begin(spare)
}

// resume is what is left to do if the disk has no room for a new file: the last segment's good part is written over itself, which
// no crash can harm, and zeros over the rest, and then it is written on.
func (r *recovery) resume(kept *[]*segment, offset int64) (*segment, error) {
	n := len(*kept) - 1
	s := (*kept)[n]
	c := copier{src: s.file, from: segmentHeaderLen, to: offset, win: r.walk.win}
	if err := c.write(s.file); err != nil {
		return nil, fmt.Errorf("write segment %s again: %w", s.path, err)
	}
	c.win.n = 0
	clear(c.win.buf)
	for off := offset; off < s.size; {
		b := c.win.buf[:min(s.size-off, int64(len(c.win.buf)))]
		if _, err := s.file.WriteAt(b, off); err != nil {
			return nil, fmt.Errorf("write segment %s again: %w", s.path, err)
		}
		off += int64(len(b))
	}
	if err := s.file.Sync(); err != nil {
		return nil, fmt.Errorf("sync segment %s: %w", s.path, err)
	}
	r.l.log.Warn("disk full, going on in the last segment", "file", s.path, "bytes", s.size-offset)
	*kept = (*kept)[:n]
	s.end = 0
	r.tail = offset
	return s, nil
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

// remove removes segments and closes their files, for only then the disk has their space.
func (r *recovery) remove(segs []*segment) error {
	for _, s := range segs {
		if err := errors.Join(r.l.fs.Remove(s.path), r.close(s)); err != nil {
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

func (r *recovery) close(s *segment) error {
	r.open = slices.DeleteFunc(r.open, func(o *segment) bool { return o == s })
	return s.file.Close()
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
	if err := r.close(s); err != nil {
		return nil, errors.Join(fmt.Errorf("close segment: %w", err), errInPlace)
	}
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
	if len(c.tail) == 0 {
		return nil
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
func (r *recovery) begin(spare *segment) (*segment, error) {
	l, pos := r.l, r.walk.pos
	if l.id == ([16]byte{}) {
		l.id = newLogID()
	}
	if spare == nil || spare.sequence != r.next {
		s, err := newSegment(l.fs, l.dir, l.headerFor(r.next, l.segmentBytes), &pos)
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

// install sets the log's fields and closes the files that it does not need.
func (r *recovery) install(current, spare *segment) error {
	l := r.l
	if spare == current {
		spare = nil
	}
	l.current, l.spare = current, spare
	l.staged, l.written = r.walk.pos, r.walk.pos
	l.tail = Place{current.sequence, max(r.tail, segmentHeaderLen+frameHeaderLen)}
	l.end, l.limit, l.state = l.tail, current.size, current.state
	l.synced.Store(r.walk.pos.LSN)
	delete(l.seeds, current.sequence)
	if spare != nil {
		l.seeds[spare.sequence] = spare.header.seed // it has its file already
	}
	return r.closeOthers()
}

// splitOld divides the segments before the place into those to keep and those to remove. next is the segment behind them.
func (r *recovery) splitOld(next uint64) (old, drop []*segment) {
	if r.keep {
		old, drop = connected(r.old, next)
		return old, slices.Clone(drop)
	}
	return nil, slices.Clone(r.old)
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
