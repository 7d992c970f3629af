package replication

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"qserver/storage"
)

// peer is a slave that is connected.
type peer struct {
	name    string
	sid     int
	node    [16]byte
	address string
	version string
	since   time.Time
	link    *link

	mu               sync.Mutex
	state            State
	applied, durable uint64
	lag              lagClock
	sent             []sentRun // not acked
	ackedAt          mark
	copied, copySize int64
}

// sentRun is a run of records on its way.
type sentRun struct {
	lsn uint64
	at  mark
}

func (p *peer) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

const (
	sendBytes  = 256 << 10            // of records in a frame
	syncWithin = 3 * time.Millisecond // records wait no longer for somebody else's sync
)

// stream sends the feed's records until the connection ends.
func (m *Master) stream(st *storage.Store, p *peer, feed *storage.Feed) error {
	failed := make(chan error, 1)
	m.wg.Go(func() { failed <- m.listen(st, p, feed) })
	err := m.feed(st, p, feed, failed)
	p.link.conn.Close()
	if got := <-failed; err == nil || ended(err) {
		err = got
	}
	return err
}

// feed is the sending half of stream. What comes through failed, the end of the other half, is left there.
func (m *Master) feed(st *storage.Store, p *peer, feed *storage.Feed, failed chan error) error {
	beat := time.NewTimer(heartbeatEvery)
	defer beat.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	var buf []byte
	var syncBy time.Time // when what is written must be on the disk; zero: nothing waits for it
	for {
		var head recordsHead
		var count int
		var err error
		buf, count, head.end, err = feed.Append(beginRecords(buf[:0]), sendBytes)
		if err != nil {
			return err
		}
		more, wait := feed.More(), time.Duration(-1)
		switch {
		case count > 0:
			head.count, head.synced, head.behind = uint32(count), st.SyncedLSN(), uint64(feed.Behind())
			if err := p.link.send(head.endRecords(buf)); err != nil {
				return err
			}
			p.sentRecords(head.end.LSN, head.synced, feed.Place())
			beat.Reset(heartbeatEvery)
			syncBy = time.Time{}
			full := len(buf) >= sendBytes
			if cap(buf) > 16*sendBytes {
				buf = nil // there was a large body in it
			}
			if full {
				continue
			}
			more, wait = nil, m.gather()
		case !st.Unsynced():
			syncBy = time.Time{}
		case syncBy.IsZero():
			syncBy = time.Now().Add(syncWithin)
			wait = syncWithin
		default:
			if wait = time.Until(syncBy); wait <= 0 {
				syncBy = time.Time{}
				if err := st.SyncWritten(head.end.LSN); err != nil {
					return err
				}
				continue
			}
		}
		var over <-chan time.Time
		if wait >= 0 {
			pause.Reset(wait)
			over = pause.C
		}
		select {
		case <-more:
		case <-over:
		case <-beat.C:
			h := heartbeat{st.SyncedLSN(), uint64(feed.Behind()), uint64(time.Now().UnixMilli())}
			if err := p.link.send(h.append(nil)); err != nil {
				return err
			}
			beat.Reset(heartbeatEvery)
		case <-feed.Lost():
			return errLost
		case err := <-failed:
			failed <- err
			return err
		}
	}
}

// listen is the other half: it takes the slave's acks.
func (m *Master) listen(st *storage.Store, p *peer, feed *storage.Feed) error {
	for {
		kind, payload, err := p.link.next(silence)
		if err != nil {
			return errors.Join(err, p.link.conn.Close())
		}
		var a ack
		if kind != kindAck {
			return fmt.Errorf("%w: kind %d from a slave", ErrFrame, kind)
		}
		if err := a.parse(payload); err != nil {
			return err
		}
		if have, end := max(a.applied, a.durable), st.SyncedLSN(); have > end {
			return fmt.Errorf("%w: an ack of record %d, and the last one that there is to be had is %d", ErrFrame, have, end)
		}
		if p.acked(&a) {
			st.Keep(p.name, a.durable)
			m.mu.Lock()
			m.changedLocked()
			m.mu.Unlock()
		}
		m.share(st)
		select {
		case <-feed.Lost():
			return errLost
		default:
		}
	}
}

// sendCopy sends the tree. Its slave comes back with the position of what it got.
func (m *Master) sendCopy(st *storage.Store, p *peer, log *slog.Logger) error {
	p.set(func() { p.state = StateCopying })
	var told, beaten time.Time
	begin := time.Now()
	progress := func(step string, done, total int64) error {
		p.set(func() { p.copied, p.copySize = done, total })
		now := time.Now()
		if now.Sub(told) > copyTellEvery {
			told = now
			log.Info("copy for the slave", "step", step, "bytes", done, "of", total)
		}
		if now.Sub(beaten) < heartbeatEvery {
			return nil
		}
		beaten = now
		h := heartbeat{st.SyncedLSN(), 0, uint64(now.UnixMilli())}
		return p.link.send(h.append(nil))
	}
	for !m.copies.TryLock() {
		if err := progress("waiting for another slave's", 0, 0); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	defer m.copies.Unlock()
	path, err := st.WriteCopy(p.name, func(done, total int64) error { return progress("writing", done, total) })
	if err != nil {
		if ended(err) || errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		return &Refused{Code: CodeCopy, Text: "the master can't make a copy of its tree: " + err.Error()}
	}
	defer os.Remove(path)
	size, err := m.sendFile(st, p, path, func(done, total int64) error { return progress("sending", done, total) })
	if err != nil {
		return err
	}
	log.Info("copy for the slave is sent", "bytes", size, "seconds", time.Since(begin).Seconds())
	lingers(p.link)
	return nil
}

const (
	copyTellEvery = 5 * time.Second
	copyPiece     = 256 << 10
)

// sendFile sends a file in pieces, and rests after each as its Pacer says. The time that the line takes is no work: a slow one
// gets what it can take.
func (m *Master) sendFile(st *storage.Store, p *peer, path string, progress func(done, total int64) error) (size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	size = fi.Size()
	begin := copyBegin{st.History(), uint64(size)}
	if err := p.link.send(begin.append(nil)); err != nil {
		return 0, err
	}
	var sum uint32
	pace := st.NewPacer()
	buf := make([]byte, 0, frameHeaderLen+copyPiece)
	for done := int64(0); done < size; {
		at := time.Now()
		n := min(copyPiece, size-done)
		buf = beginFrame(buf[:0], kindCopyData)[:frameHeaderLen+n]
		if _, err := io.ReadFull(f, buf[frameHeaderLen:]); err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, castagnoli, buf[frameHeaderLen:])
		endFrame(buf)
		worked := time.Since(at)
		if err := p.link.send(buf); err != nil {
			return 0, err
		}
		done += n
		if err := progress(done, size); err != nil {
			return 0, err
		}
		pace.Rest(2 * worked) // the system's part of the sending takes about as long
	}
	end := copyEnd{uint64(size), sum}
	return size, p.link.send(end.append(nil))
}
