package storage

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"qserver/storage/ulog"
)

// The master's side: a Feed gives the records behind a position once they are on the disk, for one slave.

var (
	// ErrPositionGone is returned for a position behind which the log is not whole any more: a copy is needed.
	ErrPositionGone = errors.New("the update log does not reach back that far")
	// ErrDiverged is returned for a position that is not in this store's history.
	ErrDiverged = errors.New("position is not in this history")
)

// Feed follows the log for one slave. It is for one goroutine, but for More, Lost and Close of the store.
type Feed struct {
	s       *Store
	name    string
	r       *ulog.Reader
	pending *ulog.Record // read, and not on the disk yet
	at      ulog.Position
	more    chan struct{}
	lost    chan struct{}
	idle    atomic.Bool // the next write gives a token
}

// feeds are the open ones.
type feeds struct {
	n    atomic.Int32
	mu   sync.Mutex
	open map[*Feed]struct{}
}

// Feed returns a feed of the records behind after. name is the slave's, as in Keep. While it is open the log is kept from
// where it stands on, unless that is further back than Options.LogKeep: then Lost is closed.
func (s *Store) Feed(name string, after ulog.Position) (*Feed, error) {
	r, err := s.ulog.NewReader(after, ulog.Place{})
	switch {
	case errors.Is(err, ulog.ErrReleased):
		return nil, fmt.Errorf("%w: %w", ErrPositionGone, err)
	case errors.Is(err, ulog.ErrDiverged):
		return nil, fmt.Errorf("%w: %w", ErrDiverged, err)
	case err != nil:
		return nil, err
	}
	f := &Feed{s: s, name: name, r: r, at: after, more: make(chan struct{}, 1), lost: make(chan struct{})}
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	if s.feeds.open == nil {
		s.feeds.open = make(map[*Feed]struct{})
	}
	s.feeds.open[f] = struct{}{}
	s.feeds.n.Add(1)
	return f, nil
}

// Append appends records, as a Batch decodes them, to dst until it has about maxBytes or there are no more on the disk. end
// is where they lead to.
func (f *Feed) Append(dst []byte, maxBytes int) (out []byte, count int, end ulog.Position, err error) {
	f.idle.Store(true)
	synced := f.s.ulog.Synced()
	defer func() { f.at = end }()
	end = f.at
	for len(dst) < maxBytes {
		rec := f.pending
		if rec == nil {
			rec, err = f.r.Next()
			if errors.Is(err, io.EOF) {
				return dst, count, end, nil
			}
			if err != nil {
				return dst, count, end, err
			}
			if rec.Gap > 0 {
				return dst, count, end, fmt.Errorf("%w: LSN %d to %d were lost", ErrPositionGone, rec.LSN-rec.Gap+1, rec.LSN)
			}
		}
		if rec.LSN > synced {
			f.pending = rec
			return dst, count, end, nil
		}
		f.pending = nil
		dst = appendRecord(dst, rec.Head, rec.Body)
		end = rec.Position
		count++
	}
	return dst, count, end, nil
}

// Position is where what Append has given leads to.
func (f *Feed) Position() ulog.Position { return f.at }

// Behind is how many bytes of the log, about, Append has not given.
func (f *Feed) Behind() int64 {
	return f.s.BytesFrom(f.Place())
}

// More gets a token when records came to the disk since the last one was taken, or when the first was written since Append.
func (f *Feed) More() <-chan struct{} { return f.more }

// Lost is closed when the log is not kept for this feed any more: it is too far behind.
func (f *Feed) Lost() <-chan struct{} { return f.lost }

// Close ends the feed. It must not run beside Append.
func (f *Feed) Close() error {
	fs := &f.s.feeds
	fs.mu.Lock()
	if _, open := fs.open[f]; open {
		delete(fs.open, f)
		fs.n.Add(-1)
	}
	fs.mu.Unlock()
	return f.r.Close()
}

// tellWritten gives a token to the feeds that wait for records to be written, and tellFeeds, behind a sync, to all. They never
// wait, and cost nothing where there is none.
func (s *Store) tellWritten() {
	if s.feeds.n.Load() == 0 {
		return
	}
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	for f := range s.feeds.open {
		if f.idle.CompareAndSwap(true, false) {
			f.tell()
		}
	}
}

func (f *Feed) tell() {
	select {
	case f.more <- struct{}{}:
	default:
	}
}

func (s *Store) tellFeeds() {
	if s.feeds.n.Load() == 0 {
		return
	}
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	for f := range s.feeds.open {
		f.tell()
	}
}

// loseFeeds tells the feeds of this slave that the log is not kept for them any more.
func (s *Store) loseFeeds(name string) {
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	for f := range s.feeds.open {
		if f.name != name {
			continue
		}
		select {
		case <-f.lost:
		default:
			close(f.lost)
		}
	}
}

// Unsynced says whether records are written that are not on the disk yet: those a feed doesn't give.
func (s *Store) Unsynced() bool { return s.ulog.Written().LSN > s.ulog.Synced() }

// SyncedLSN is the LSN up to which the log is known to be on the disk.
func (s *Store) SyncedLSN() uint64 { return s.ulog.Synced() }

// SyncWritten brings what is written behind lsn to the disk, unless somebody else has brought any of it there.
func (s *Store) SyncWritten(lsn uint64) error {
	if s.ulog.Synced() > lsn {
		return nil
	}
	return s.Sync()
}

// Place is where in this node's log what Append has given ends.
func (f *Feed) Place() ulog.Place {
	if f.pending != nil {
		return f.pending.Place
	}
	return f.r.Place()
}

// BytesFrom is how many bytes of the log, about, lie behind a Feed's place: for people.
func (s *Store) BytesFrom(at ulog.Place) int64 { return s.ulog.Distance(at, s.ulog.End()) }

// Node is the number of this folder's log: no other folder has it.
func (s *Store) Node() [16]byte { return s.ulog.ID() }
