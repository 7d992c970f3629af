package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"qserver/storage"
)

// receiveCopy takes a copy of the master's tree. It returns ErrCopyReady when that is whole and verified; nothing else counts.
func (s *Slave) receiveCopy(ctx context.Context, l *link) (err error) {
	s.set(StateCopying, nil)
	s.log().Info("getting a copy of the master's tree", "master", s.Address)
	part := storage.IncomingPart(s.Dir)
	if err := os.MkdirAll(filepath.Dir(part), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && !errors.Is(err, ErrCopyReady) {
			os.Remove(part)
		}
	}()
	begin := time.Now()
	history, size, err := s.receiveFile(l, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	s.log().Info("copy of the master's tree is here: verifying it", "bytes", size)
	at, err := storage.ReadyCopy(s.Dir, history, s.Address, verifyPace(l.conn))
	if err != nil {
		return err
	}
	s.log().Info("copy of the master's tree is whole", "bytes", size, "lsn", at.LSN, "seconds", time.Since(begin).Seconds())
	return ErrCopyReady
}

// verifyPace is called during the verification of a copy. Where the master is on this machine its clients need the cores.
func verifyPace(conn net.Conn) func(done, total int64) {
	if !loopback(conn) {
		return nil
	}
	last := time.Now()
	return func(int64, int64) {
		time.Sleep(min(3*time.Since(last), time.Second))
		last = time.Now()
	}
}

// receiveFile writes what comes to f and brings it to the disk.
func (s *Slave) receiveFile(l *link, f io.WriteSeeker) (history [16]byte, size int64, err error) {
	var begin *copyBegin
	var done int64
	var sum uint32
	var told time.Time
	for {
		kind, payload, err := l.next(silence)
		if err != nil {
			return history, 0, fmt.Errorf("the copy is cut: %w", err)
		}
		switch {
		case kind == kindHeartbeat && begin == nil: // it is being made
		case kind == kindHeartbeat:
		case kind == kindRefused:
			r := new(Refused)
			return history, 0, cmp.Or[error](r.parse(payload), r)
		case kind == kindCopyBegin && begin == nil:
			begin = new(copyBegin)
			if err := begin.parse(payload); err != nil {
				return history, 0, err
			}
		case kind == kindCopyData && begin != nil:
			if done += int64(len(payload)); done > int64(begin.size) {
				return history, 0, fmt.Errorf("%w: more of the copy than announced", ErrFrame)
			}
			sum = crc32.Update(sum, castagnoli, payload)
			if _, err := f.Write(payload); err != nil {
				return history, 0, err
			}
			if done/storage.SyncEvery != (done-int64(len(payload)))/storage.SyncEvery {
				if err := syncFile(f); err != nil {
					return history, 0, err
				}
			}
			s.copied(done, int64(begin.size))
			if now := time.Now(); now.Sub(told) > copyTellEvery {
				told = now
				s.log().Info("copy of the master's tree", "bytes", done, "of", begin.size)
			}
		case kind == kindCopyEnd && begin != nil:
			var end copyEnd
			if err := end.parse(payload); err != nil {
				return history, 0, err
			}
			if end.size != uint64(done) || end.size != begin.size || end.sum != sum {
				return history, 0, fmt.Errorf("%w: the copy is not as it was sent", ErrFrame)
			}
			return begin.history, done, syncFile(f)
		default:
			return history, 0, fmt.Errorf("%w: kind %d in a copy", ErrFrame, kind)
		}
	}
}

func syncFile(f io.WriteSeeker) error {
	if s, ok := f.(interface{ Sync() error }); ok {
		return s.Sync()
	}
	return nil
}

func (s *Slave) copied(done, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.CopyDone, s.status.CopySize = done, size
}
