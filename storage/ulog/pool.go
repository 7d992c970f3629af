package ulog

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
)

func newLogID() (id [16]byte) {
	rand.Read(id[:]) // never fails
	return id
}

func newSeed() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

// seedOf returns the seed of a segment that has no file yet. It is drawn when it is first asked for, be it by Stage or by
// the making of the file.
func (l *Log) seedOf(sequence uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	seed, ok := l.seeds[sequence]
	if !ok {
		seed = newSeed()
		l.seeds[sequence] = seed
	}
	return seed
}

// Prepare makes the spare segment if there is none, so that the change to the next segment costs no allocation and cannot
// fail for want of space. Its errors, ENOSPC among them, leave the log as it is.
func (l *Log) Prepare() error { return l.PrepareFor(0) }

// PrepareFor is Prepare for a record of n bytes, head and body together, that may be too large for a segment of the usual
// size: the spare is made large enough for it.
func (l *Log) PrepareFor(n int64) error {
	l.makeMu.Lock()
	defer l.makeMu.Unlock()
	size := segmentSize(l.segmentBytes, frameHeaderLen+n)
	sequence, err := l.spareWanted()
	if err != nil {
		return err
	}
	if sequence == 0 {
		return l.growSpare(size)
	}
	s, err := newSegment(l.fs, l.dir, l.headerFor(sequence, size), nil)
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spare = s
	return nil
}

// growSpare makes the spare at least size bytes large.
func (l *Log) growSpare(size int64) error {
	l.mu.Lock()
	s := l.spare
	l.mu.Unlock()
	if s.size >= size {
		return nil
	}
	if err := s.file.Allocate(size); err != nil {
		return fmt.Errorf("prepare: allocate segment %s: %w", s.path, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.size = size
	return nil
}

// segmentSize is the size of a segment that is to hold a frame of n bytes.
func segmentSize(usual, n int64) int64 {
	return max(usual, segmentHeaderLen+frameHeaderLen+n+frameHeaderLen)
}

// spareWanted returns the sequence number the spare must have, or 0 if there is one.
func (l *Log) spareWanted() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.errLocked(); err != nil || l.spare != nil {
		return 0, err
	}
	return l.segments[len(l.segments)-1].sequence + 1, nil
}

// Room returns how many bytes can be written without a new allocation: the rest of the current segment and the spare. A
// frame costs 40 bytes besides head and body, and what does not fit into the rest of a segment goes into the next.
func (l *Log) Room() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.segments[len(l.segments)-1]
	room := s.size - segmentHeaderLen - 2*frameHeaderLen
	if l.end.Segment == s.sequence {
		room = s.size - l.end.Offset - frameHeaderLen
	}
	if l.spare != nil {
		room += l.spare.size - segmentHeaderLen - 2*frameHeaderLen
	}
	return max(room, 0)
}

// Release gives up the segments that lie wholly before the place. The first one becomes the spare if there is none, the
// others are removed. Segments that a Reader or ReadBody is using stay until the next call.
func (l *Log) Release(before Place) error {
	l.makeMu.Lock()
	defer l.makeMu.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	var errs []error
	for _, s := range l.takeReleased(before) {
		recycled, err := l.recycle(s)
		if err == nil && !recycled {
			err = errors.Join(l.fs.Remove(s.path), s.file.Close())
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil
	}
	errs = append(errs, l.fs.SyncDir(l.dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("release segments: %w", err)
	}
	return nil
}

// takeReleased takes the segments before the place out of the log's list.
func (l *Log) takeReleased(before Place) []*segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.segments)-1 {
		s := l.segments[n]
		over := s.sequence < before.Segment || s.sequence == before.Segment && s.end > 0 && before.Offset >= s.end
		if !over || s.refs > 0 || s.sequence >= l.end.Segment {
			break
		}
		n++
	}
	released := l.segments[:n:n]
	l.segments = l.segments[n:]
	return released
}

// recycle makes the spare out of a released segment if one is wanted and the file is of the usual size. The file keeps
// its blocks, which saves allocating them; the frames in it fail their sums under the new seed. First it is moved away from
// its name, durably, so that no crash leaves an old name with a new header.
func (l *Log) recycle(s *segment) (bool, error) {
	sequence, err := l.spareWanted()
	if err != nil || sequence == 0 || s.size != l.segmentBytes {
		return false, err
	}
	h := l.headerFor(sequence, l.segmentBytes)
	path := l.path(sequence)
	if err := l.fs.Rename(s.path, path+tempSuffix); err != nil {
		return false, errors.Join(fmt.Errorf("recycle segment: %w", err), s.file.Close())
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return false, errors.Join(fmt.Errorf("sync folder: %w", err), s.file.Close())
	}
	spare := &segment{path: path, file: s.file, header: h, laid: max(s.laid, s.end)}
	if err := spare.launch(l.fs, l.dir, spare.beginning(nil)); err != nil {
		return false, fmt.Errorf("recycle: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spare = spare
	return true, nil
}

// unref ends a use of s.
func (l *Log) unref(s *segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.refs--
}

// ReadBody fills dst with the body bytes at p, as Stage or Record.BodyPlace gave it, and does not verify them. It may run
// beside Write. It returns ErrReleased if the segment is not there any more.
func (l *Log) ReadBody(p Place, dst []byte) error {
	s, err := l.use(p, int64(len(dst)))
	if err != nil {
		return fmt.Errorf("read body at segment %d, offset %d: %w", p.Segment, p.Offset, err)
	}
	defer l.unref(s)
	if n, err := s.file.ReadAt(dst, p.Offset); n < len(dst) {
		return fmt.Errorf("read segment %s at offset %d: %w", s.path, p.Offset, err)
	}
	return nil
}

// use finds the segment in which n written bytes lie at p and keeps it from being released.
func (l *Log) use(p Place, n int64) (*segment, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	if l.end.Before(Place{p.Segment, p.Offset + n}) {
		return nil, errNotWritten
	}
	s := l.findLocked(p.Segment)
	if s == nil {
		return nil, ErrReleased
	}
	s.refs++
	return s, nil
}

func (l *Log) findLocked(sequence uint64) *segment {
	if i := sequence - l.segments[0].sequence; i < uint64(len(l.segments)) {
		return l.segments[i]
	}
	return nil
}
