package storage

import (
	"hash/crc32"
	"time"

	"qserver/storage/queue"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Enqueue decides at the door and stages the record: on nil the answer is STORED once Commit has returned. id is the
// message's (0 when nothing was stored, as with an Expire in the past or a dedup key seen before by PutSet).
// Errors: ErrNotStored, ErrDiskFull, ErrNoMemory, ErrClosed, ErrFailed. It may block while memory waits for a checkpoint.
func (c *Session) Enqueue(name []byte, p PutRequest) (id uint64, err error) {
	s := c.s
	sum := crc32.Checksum(p.Body, castagnoli)
	if err := c.admit(len(p.Body)); err != nil {
		return 0, err
	}
	now, mono := s.clock()
	s.mu.Lock()
	defer s.unlockIndex()
	s.ix.Tick(now, mono)
	if err := s.writableLocked(); err != nil {
		return 0, err
	}
	if store, err := c.admitLocked(name, &p, now); err != nil || !store {
		return 0, err
	}
	q, create, created := s.ix.DoorCreate(name)
	if created {
		c.stage(&create, nil)
	}
	if p.Body == nil {
		p.Body = []byte{}
	}
	m := &queue.Message{Pri: p.Priority, Flags: p.Flags, Size: uint32(len(p.Body)), Body: p.Body, BodySum: sum, Enqueued: now}
	if p.Delay > 0 {
		m.Due = now + max(1, p.Delay.Milliseconds())
		s.nextAtLocked(m.Due)
	}
	if !p.Expire.IsZero() && !s.opts.IgnoreTTL {
		m.Expire = max(now+1, p.Expire.UnixMilli())
		s.nextAtLocked(m.Expire)
	}
	op := s.ix.DoorEnqueue(q, m, p.Dedup, now+s.opts.DedupWindow.Milliseconds())
	c.stage(&op, p.Body)
	c.read = op.LSN
	return m.ID, nil
}

// admitLocked decides whether p is stored. An answer that rests on records which are not applied yet waits for them.
func (c *Session) admitLocked(name []byte, p *PutRequest, now int64) (store bool, err error) {
	s := c.s
	q := s.ix.Lookup(name)
	var live int64
	if q != nil {
		live = q.DoorLive()
	}
	past := !p.Expire.IsZero() && !s.opts.IgnoreTTL && p.Expire.UnixMilli() <= now
	if len(p.Dedup) > 0 && q != nil && s.ix.DoorDedup(q, p.Dedup) {
		c.restOnLocked(s.staged)
		if p.Mode == PutAdd {
			return false, ErrNotStored
		}
		return false, nil
	}
	refused := p.Mode == PutAdd && len(p.Dedup) == 0 && live > 0 || p.Mode == PutReplace && live == 0
	if refused {
		c.restOnLocked(s.staged)
		return false, ErrNotStored
	}
	return !past, nil
}

// restOnLocked makes the next Commit wait for a record of another session, on which an answer of this one rests.
func (c *Session) restOnLocked(lsn uint64) {
	c.rec.lsn = max(c.rec.lsn, lsn)
	if c.s.mustSync(queue.KindEnqueue) {
		c.rec.sync = max(c.rec.sync, lsn)
	}
	if c.s.mustShare(queue.KindEnqueue) {
		c.rec.share = max(c.rec.share, lsn)
	}
}

// EnqueueWaits says whether an Enqueue of n bytes may have to wait for a checkpoint or for room in the log.
func (s *Store) EnqueueWaits(n int) bool {
	return s.memoryBytes.Load() >= s.opts.Memory || s.ulog.Room() <= s.roomFor(n)
}

// admit waits until memory and log have room for a body of n bytes. What the session has staged is committed first, since
// others may wait for it. While memory's budget is used up it blocks: the checkpoint frees it. Errors: ErrDiskFull,
// ErrNoMemory when nothing can be freed, and why the store is not writable.
func (c *Session) admit(n int) error {
	s := c.s
	s.spendDisk(n)
	if !s.EnqueueWaits(n) {
		return nil
	}
	if err := c.Commit(); err != nil {
		return err
	}
	if err := s.makeRoom(n); err != nil {
		return err
	}
	for {
		s.mu.Lock()
		err, room := s.writableLocked(), s.room
		free, exhausted := s.ix.Bytes() < s.opts.Memory, s.exhausted
		s.mu.Unlock()
		switch {
		case err != nil || free:
			return err
		case exhausted:
			return ErrNoMemory
		}
		s.pokeCheckpoint()
		<-room
	}
}

// ReplaceBody replaces body and flags of the message held under receipt and gives it back to its place; a zero expire keeps
// its expiry. Errors: ErrReceiptOver (EXISTS), ErrNotFound, ErrDiskFull.
func (c *Session) ReplaceBody(name []byte, receipt uint64, body []byte, flags uint32, expire time.Time) error {
	s := c.s
	sum := crc32.Checksum(body, castagnoli)
	if err := c.admit(len(body)); err != nil {
		return err
	}
	s.lockIndex()
	defer s.unlockIndex()
	if err := s.writableLocked(); err != nil {
		return err
	}
	r, err := c.pickLocked(name, Pick{Receipt: receipt})
	if err != nil {
		return err
	}
	if body == nil {
		body = []byte{}
	}
	var until int64
	if !expire.IsZero() && !s.opts.IgnoreTTL {
		until = expire.UnixMilli()
		s.nextAtLocked(until)
	}
	op := s.ix.DoorReplace(r, body, sum, flags, until)
	c.stage(&op, body)
	c.read = op.LSN
	return nil
}

// clock returns the time: Unix milliseconds for what is written down, and a monotonic one for leases and waits.
func (s *Store) clock() (now int64, mono time.Duration) {
	t := time.Now()
	return t.UnixMilli(), t.Sub(s.start)
}
