package storage

import "time"

// Pacer spaces out work that clients should not feel, such as a copy for a slave. Where the store takes records meanwhile each piece
// of work is followed by a rest of several times its length, so that disk and cores are left to the clients; where it doesn't
// there is none. It is for one goroutine.
type Pacer struct {
	s      *Store
	busy   bool
	lsn    uint64
	looked time.Time
	owed   time.Duration
}

const (
	restTimes  = 4                      // as long as the work
	restLeast  = 2 * time.Millisecond   // shorter ones add up first
	restMost   = 500 * time.Millisecond // for somebody waits for signs of life
	lookEvery  = 20 * time.Millisecond
	busyRecord = 10 * time.Millisecond // a record each is what makes a store busy
)

// NewPacer returns one that takes the store to be busy until it has looked.
func (s *Store) NewPacer() *Pacer {
	return &Pacer{s: s, busy: true, lsn: s.ulog.Written().LSN, looked: time.Now()}
}

// Rest rests for the work that was done since the last call, which took so long.
func (p *Pacer) Rest(worked time.Duration) {
	now := time.Now()
	if since := now.Sub(p.looked); since >= lookEvery {
		lsn := p.s.ulog.Written().LSN
		p.busy = time.Duration(lsn-p.lsn)*busyRecord >= since
		p.lsn, p.looked = lsn, now
	}
	if !p.busy {
		p.owed = 0
		return
	}
	if p.owed = min(p.owed+restTimes*worked, restMost); p.owed >= restLeast {
		time.Sleep(p.owed)
		p.owed = 0
	}
}
