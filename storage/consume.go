package storage

import (
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"qserver/storage/queue"
	"qserver/storage/tree"
	"qserver/storage/ulog"
)

// Reserve takes the first ready message. ok is false when there is none, or when the session holds its limit. Errors:
// a tree or log that can't be read (ErrDamaged), a failed log, ErrClosed, ErrNotInMemory. A session sees its own earlier commands.
func (c *Session) Reserve(name []byte, o ReserveOptions) (d Delivery, ok bool, err error) {
	if err := c.sync(); err != nil {
		return d, false, err
	}
	s := c.s
	for {
		s.lockIndex()
		q, err := c.mayReserveLocked(name)
		if q == nil {
			s.unlockIndex()
			return d, false, err
		}
		if o.MemoryOnly && s.needsDiskLocked(q) {
			s.unlockIndex()
			return d, false, ErrNotInMemory
		}
		r, refill := s.ix.Reserve(q, &c.held, queue.ReserveOpts{Lease: o.Lease, Tag: string(o.Tag)})
		if r != nil {
			s.leasedLocked(o.Lease)
			s.receiptsLocked()
			return c.deliverLocked(r, o)
		}
		if !refill {
			s.ix.Miss(q)
		}
		s.unlockIndex()
		if !refill {
			return d, false, nil
		}
		if err := s.refill(q); err != nil {
			return d, false, err
		}
	}
}

// needsDiskLocked says whether a reserve from q would have to read the disk.
func (s *Store) needsDiskLocked(q *queue.Queue) bool {
	m, refill := s.ix.Head(q)
	return refill || m != nil && m.Body == nil
}

// mayReserveLocked returns the queue to reserve from; nil if there is none or the session may not.
func (c *Session) mayReserveLocked(name []byte) (*queue.Queue, error) {
	s := c.s
	if s.err != nil || s.closed || s.master != "" {
		return nil, s.writableLocked()
	}
	q := s.ix.Lookup(name)
	if q == nil {
		s.ix.Miss(nil)
		return nil, nil
	}
	if c.held.Held() >= s.opts.MaxHeld {
		s.heldLimit++
		return nil, nil
	}
	return q, nil
}

// receiptsLocked reserves the next block of receipts in time.
func (s *Store) receiptsLocked() {
	if op, due := s.ix.DoorReceipts(); due && s.master == "" {
		s.actor.stage(&op, nil)
		s.pokeTime()
	}
}

// deliverLocked makes r, which was just reserved, a Delivery and gives up the lock. ok is false when the message was purged
// in the meantime. With Remove it is acked once its body is at hand.
func (c *Session) deliverLocked(r *queue.Reservation, o ReserveOptions) (d Delivery, ok bool, err error) {
	s, m := c.s, r.Msg
	d = s.deliveryLocked(m)
	d.Receipt = r.Receipt
	if at := r.Deadline(); at != 0 {
		d.Lease = at - time.Since(s.start)
	}
	if d.Body == nil {
		src := s.sourceLocked(m)
		s.unlockIndex()
		if ok, err = s.load(&d, m, src); !ok {
			return d, false, err
		}
		s.lockIndex()
	}
	if o.Remove {
		err = c.ackNowLocked(r)
	} else {
		s.ix.DropBody(m)
	}
	s.unlockIndex()
	return d, err == nil, err
}

// ackNowLocked acks what was just reserved; if the disk has no room for that it is given back.
func (c *Session) ackNowLocked(r *queue.Reservation) error {
	if c.s.master != "" { // it was given back meanwhile, by Yield
		return c.s.refusedLocked()
	}
	if !c.s.roomToAckLocked() {
		c.s.ix.Release(r)
		return ErrDiskFull
	}
	if c.s.ix.Current(r) {
		op := c.s.ix.DoorAck(r)
		c.stage(&op, nil)
	}
	return nil
}

func (s *Store) deliveryLocked(m *queue.Message) Delivery {
	now := time.Now().UnixMilli()
	return Delivery{ID: m.ID, Flags: m.Flags, Body: m.Body, Deliveries: m.Deliveries,
		Age: time.Duration(max(0, now-m.Enqueued)) * time.Millisecond}
}

// source says where a message's body lies.
type source struct {
	size   int
	sum    uint32
	inTree bool
	place  ulog.Place
	keys   [][]byte
}

func (s *Store) sourceLocked(m *queue.Message) source {
	src := source{size: int(m.Size), sum: m.BodySum, inTree: s.ix.BodyInTree(m)}
	if !src.inTree {
		src.place = ulog.Place{Segment: uint64(m.Segment), Offset: int64(m.Offset)}
		return src
	}
	q := m.Queue().Num
	src.keys = messageKeys(q, m.Pri, m.TreeDue, m.ID)
	if m.Due != m.TreeDue {
		src.keys = append(src.keys, messageKeys(q, m.Pri, m.Due, m.ID)...)
	}
	return src
}

// loadTries is how often a body is looked for: the checkpoint may move it from the log to the tree, or within the tree. The last
// time the checkpoint stands still.
const loadTries = 4

// load reads d's body where memory has it not. ok is false when the message is gone, or with an error.
func (s *Store) load(d *Delivery, m *queue.Message, src source) (ok bool, err error) {
	for try := range loadTries {
		if d.Body, err = s.read(src); err == nil {
			return true, nil
		}
		if try == loadTries-2 {
			s.strides.Lock()
			defer s.strides.Unlock()
		}
		s.mu.Lock()
		live, body := m.Live(), m.Body
		src = s.sourceLocked(m)
		s.mu.Unlock()
		if !live {
			return false, nil
		}
		if body != nil {
			d.Body = body
			return true, nil
		}
	}
	return false, s.damage(fmt.Errorf("body of message %d: %w", m.ID, err))
}

var errNoRow = errors.New("no row in the tree")

func (s *Store) read(src source) (body []byte, err error) {
	if !src.inTree {
		body = make([]byte, src.size)
		if err := s.ulog.ReadBody(src.place, body); err != nil {
			return nil, err
		}
		if crc32.Checksum(body, castagnoli) != src.sum {
			return nil, errors.New("checksum of the body in the update log does not hold")
		}
		return body, nil
	}
	err = s.tree.View(func(v *tree.View) error {
		for _, key := range src.keys {
			value, found, err := v.Get(tableMessages, key)
			if err != nil {
				return err
			}
			if found {
				row, err := decodeMessageRow(key, value)
				body = append([]byte{}, row.Body...)
				return err
			}
		}
		return errNoRow
	})
	return body, err
}

// damage notes and returns what could not be read.
func (s *Store) damage(err error) error {
	err = fmt.Errorf("%w: %w", ErrDamaged, err)
	s.mu.Lock()
	first := s.damaged == nil
	if first {
		s.damaged = err
	}
	s.mu.Unlock()
	if first {
		s.log.Error("stored data does not hold: stop the server and run qserver check", "err", err)
	}
	return err
}

// Peek returns the first ready message and takes nothing.
func (c *Session) Peek(name []byte) (d Delivery, ok bool, err error) {
	if err := c.sync(); err != nil {
		return d, false, err
	}
	for {
		d, m, src, err := c.s.look(name)
		if m == nil || err != nil {
			return d, false, err
		}
		if d.Body != nil {
			return d, true, nil
		}
		if ok, err := c.s.load(&d, m, src); ok || err != nil {
			return d, ok, err
		} // taken and acked in the meantime
	}
}

// look finds the first ready message of a queue; nil if there is none.
func (s *Store) look(name []byte) (d Delivery, m *queue.Message, src source, err error) {
	for {
		s.lockIndex()
		if s.err != nil || s.closed {
			err = s.writableLocked()
			s.unlockIndex()
			return d, nil, src, err
		}
		q, refill := s.ix.Lookup(name), false
		if q != nil {
			m, refill = s.ix.Head(q)
		}
		if m != nil {
			d, src = s.deliveryLocked(m), s.sourceLocked(m)
		}
		s.unlockIndex()
		if !refill {
			return d, m, src, nil
		}
		if err := s.refill(q); err != nil {
			return d, nil, src, err
		}
	}
}

// refill reads the next messages of q from the tree into its window.
func (s *Store) refill(q *queue.Queue) error {
	s.refills.Lock()
	defer s.refills.Unlock()
	for {
		s.lockIndex()
		if _, need := s.ix.Head(q); !need {
			s.unlockIndex()
			return nil
		}
		pri, id := q.ColdFrom()
		epoch, rowsMax, bytesMax := s.epoch, s.opts.Window, int64(windowBytes)
		if s.ix.Bytes() > s.opts.Memory/2 {
			rowsMax, bytesMax = max(1, rowsMax/16), windowBytes/16
		}
		s.unlockIndex()
		rows, complete, err := s.readWindow(q.Num, pri, id, rowsMax, bytesMax)
		if err != nil {
			return s.damage(err)
		}
		s.dropPages(rows)
		s.lockIndex()
		if s.epoch != epoch || !s.ix.FillWindow(q, pri, id, rows, complete) {
			s.unlockIndex()
			continue
		}
		missing := q.ColdReady()
		s.pressureLocked()
		s.unlockIndex()
		if complete && missing > 0 {
			return s.damage(fmt.Errorf("queue %q: %d messages are counted and not in the tree", q.Name, missing))
		}
	}
}

// dropPages gives the tree's mapped pages back after some megabytes were read: they would count as the process's memory.
func (s *Store) dropPages(rows []queue.Row) {
	for i := range rows {
		s.mapped += int64(rows[i].Size)
	}
	if s.mapped > mappedBytes {
		s.mapped = 0
		s.tree.DropPages()
	}
}

const mappedBytes = 8 << 20

// windowBytes is how much of bodies a refill reads, about, at most.
const windowBytes = 1 << 20

// readWindow reads rows of a ready lane from (pri, id) on; complete says that the lane ended.
func (s *Store) readWindow(q, pri uint32, id uint64, rowsMax int, bytesMax int64) (rows []queue.Row, complete bool, err error) {
	rows, complete = make([]queue.Row, 0, rowsMax), true
	err = s.tree.View(func(v *tree.View) error {
		from, to := messageKey(q, queue.LaneReady, uint64(pri), id), laneGroup(q, queue.LaneReady+1)
		return v.Scan(tableMessages, from, to, func(key, value []byte) error {
			if len(rows) == rowsMax || bytesMax <= 0 {
				complete = false
				return tree.ErrStop
			}
			row, err := decodeMessageRow(key, value)
			if err != nil {
				return &tree.CorruptError{File: s.treePath(), Offset: -1, What: "message row", Err: err}
			}
			bytesMax -= int64(len(row.Body))
			row.Body = append(make([]byte, 0, len(row.Body)), row.Body...)
			rows = append(rows, row)
			return nil
		})
	})
	return rows, complete, err
}
