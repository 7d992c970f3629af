package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"qserver/storage"
)

// Three goroutines of a slave take turns: one reads and verifies the next run of records while another writes and applies the
// one before, and a third brings to the disk what was applied and acks it.

// run is a run of records on its way through the slave.
type run struct {
	batch   storage.Batch
	payload []byte // what the batch's records lie in
}

const (
	runsAhead   = 4
	catchUpSync = 50 * time.Millisecond // between two syncs of a slave that is
	catchUpFrom = 4 << 20               // so many bytes behind, or more
)

// follow takes records until the connection ends or ctx does.
func (s *Slave) follow(ctx context.Context, l *link) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	runs, free := make(chan *run, runsAhead), make(chan *run, runsAhead+2)
	for range runsAhead + 2 {
		free <- new(run)
	}
	applied := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, func() { l.conn.Close() }) // whoever fails ends the others
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { cancel(s.read(ctx, l, runs, free)) })
	wg.Go(func() { cancel(s.apply(ctx, runs, free, applied)) })
	wg.Go(func() { cancel(s.ack(ctx, l, applied)) })
	wg.Wait()
	return context.Cause(ctx) // the first one's
}

func (s *Slave) read(ctx context.Context, l *link, runs chan<- *run, free <-chan *run) error {
	at := s.Store.Position()
	for {
		kind, payload, err := l.next(silence)
		if err != nil {
			return err
		}
		switch kind {
		case kindHeartbeat:
			var h heartbeat
			if err := h.parse(payload); err != nil {
				return err
			}
			s.heard(h.synced, h.behind)
		case kindRecords:
			var head recordsHead
			records, err := head.parse(payload)
			if err != nil {
				return err
			}
			var r *run
			select {
			case r = <-free:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := r.batch.Decode(records, at, head.end); err != nil {
				return err
			}
			if r.batch.Len() != int(head.count) {
				return fmt.Errorf("%w: %d records where there are %d", ErrFrame, r.batch.Len(), head.count)
			}
			old := r.payload
			r.payload = payload
			l.in.take(old)
			at = head.end
			s.heard(head.synced, head.behind)
			select {
			case runs <- r:
			case <-ctx.Done():
				return ctx.Err()
			}
		case kindRefused:
			r := new(Refused)
			return errors.Join(r.parse(payload), r)
		default:
			return fmt.Errorf("%w: kind %d where records belong", ErrFrame, kind)
		}
	}
}

// heard notes what the master has.
func (s *Slave) heard(synced, behind uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.LSN = synced
	s.behind = int64(behind)
	s.lag.there(synced, time.Now())
}

// farBehind says whether much of the master's log was not even received.
func (s *Slave) farBehind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.behind > catchUpFrom
}

func (s *Slave) apply(ctx context.Context, runs <-chan *run, free chan<- *run, applied chan<- struct{}) error {
	for {
		var r *run
		select {
		case r = <-runs:
		case <-ctx.Done():
			select { // what has arrived is taken in: the master may be gone for good
			case r = <-runs:
			default:
				return ctx.Err()
			}
		}
		if err := s.Store.ApplyMaster(&r.batch); err != nil {
			return err
		}
		n := r.batch.Len()
		s.mu.Lock()
		s.at = r.batch.End.LSN
		s.lag.came(s.at)
		s.mu.Unlock()
		if cap(r.payload) > 16*sendBytes {
			r.payload = nil
		}
		free <- r
		select {
		case applied <- struct{}{}:
		default:
		}
		if s.Interval > 0 && n > 0 {
			select {
			case <-time.After(time.Duration(n) * s.Interval):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// ack brings what was applied to the disk, as the sync mode promises, and tells the master.
func (s *Slave) ack(ctx context.Context, l *link, applied <-chan struct{}) error {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	var frame []byte
	for {
		select {
		case <-applied:
			if s.farBehind() { // many runs share a sync, which would hold up the next ones' writes
				select {
				case <-time.After(catchUpSync):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		durable, err := s.Store.MakeDurable()
		if err != nil {
			return err
		}
		a := ack{max(durable, s.Store.AppliedLSN()), durable}
		frame = a.append(frame[:0])
		if err := l.send(frame); err != nil {
			return err
		}
	}
}
