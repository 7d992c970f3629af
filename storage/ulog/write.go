package ulog

import (
	"fmt"
	"time"
)

// Write writes a batch and, if sync is set, waits until it is on disk (fdatasync). An error is final for the log: of the
// batch nothing, some or all may be on disk, and only a restart finds out.
func (l *Log) Write(b *Batch, sync bool) error {
	if err := l.Err(); err != nil {
		return err
	}
	for i := range b.parts {
		if err := l.writePart(b, &b.parts[i]); err != nil {
			return l.fail(err)
		}
	}
	if err := l.layAhead(b.end.Offset + frameHeaderLen); err != nil {
		return l.fail(err)
	}
	last := b.last.LSN
	modified := time.Now()
	l.mu.Lock()
	l.written, l.end, l.sealed = b.last, b.end, false
	l.current.modified = modified
	l.recycleLocked(b)
	l.mu.Unlock()
	if sync {
		return l.syncTo(l.current.file, last)
	}
	return nil
}

func (l *Log) writePart(b *Batch, p *part) error {
	if p.turn != nil {
		if err := l.nextSegment(p.place.Segment, p.turn); err != nil {
			return err
		}
	}
	data := p.body
	if data == nil {
		data = b.buf[p.from:p.to]
	}
	if len(data) == 0 {
		return nil
	}
	if _, err := l.current.file.WriteAt(data, p.place.Offset); err != nil {
		return fmt.Errorf("write segment %s: %w", l.current.path, err)
	}
	return nil
}

// nextSegment syncs the finished segment and goes on to the next one: only when everything before is on disk is
// anything written into a new segment.
func (l *Log) nextSegment(sequence uint64, t *turn) error {
	if err := l.syncTo(l.current.file, t.base.LSN); err != nil {
		return err
	}
	l.makeMu.Lock()
	defer l.makeMu.Unlock()
	l.mu.Lock()
	s := l.spare
	l.spare = nil
	l.mu.Unlock()
	if s == nil {
		var err error
		if s, err = newSegment(l.fs, l.dir, l.headerFor(sequence, t.size), nil); err != nil {
			return err
		}
	}
	if s.size < t.size {
		if err := s.file.Allocate(t.size); err != nil {
			return fmt.Errorf("allocate segment %s: %w", s.path, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seeds, sequence)
	l.current.end, l.current.laid = t.end, max(l.current.laid, t.end)
	s.size = max(s.size, t.size)
	s.base, s.begun = t.base, true
	l.segments = append(l.segments, s)
	l.current = s
	return nil
}

// syncTo syncs f and notes that everything up to lsn is on disk.
func (l *Log) syncTo(f File, lsn uint64) error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if err := l.Err(); err != nil {
		return err // another's sync has failed meanwhile; this one could only hide it
	}
	if err := f.Sync(); err != nil {
		return l.fail(fmt.Errorf("sync: %w", err))
	}
	if lsn > l.synced.Load() {
		l.synced.Store(lsn)
	}
	return nil
}

// Sync waits until everything that was written when it was called is on disk. It may run beside Write.
func (l *Log) Sync() error {
	l.mu.Lock()
	if err := l.errLocked(); err != nil {
		l.mu.Unlock()
		return err
	}
	lsn := l.written.LSN
	// The segments before the last were synced when they were finished.
	s := l.segments[len(l.segments)-1]
	if lsn <= l.synced.Load() {
		l.mu.Unlock()
		return nil
	}
	s.refs++
	l.mu.Unlock()
	defer l.unref(s)
	return l.syncTo(s.file, lsn)
}

// Seal syncs what was written and writes and syncs a seal behind it: from then on the last record cannot be taken for a
// torn one, and if nothing more is written the next Open has nothing to rewrite. It does nothing if the log is sealed.
// It takes Write's place: not beside it, and nothing that was staged before may have been taken and not written.
func (l *Log) Seal() error {
	if err := l.Sync(); err != nil {
		return err
	}
	l.mu.Lock()
	p, end, sealed := l.written, l.end, l.sealed
	l.mu.Unlock()
	if sealed {
		return nil
	}
	seal := appendControl(nil, l.current.state, kindSeal, p, p.LSN)
	if _, err := l.current.file.WriteAt(seal, end.Offset); err != nil {
		return l.fail(fmt.Errorf("write seal into segment %s: %w", l.current.path, err))
	}
	if err := l.syncTo(l.current.file, p.LSN); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sealed = true
	return nil
}
