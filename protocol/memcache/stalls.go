package memcache

import (
	"sync"
	"time"
)

// stalls lists the connections that wait for the rest of a line or body, those that have waited longest first. While there is
// room for everybody they may; libmemcached's buffered writes stop inside a body. When connections or bytes in flight are over
// half of their limit, those that have stalled longest are closed.
type stalls struct {
	mu          sync.Mutex // guards the list and every conn's stall
	first, last *conn
	armed       bool // check is due
}

type stallEntry struct {
	prev, next *conn
	listed     bool
	since      time.Time
	held       int64 // bytes of the budget for bodies
}

const stallCheck = time.Second

// add appends c: it has just made progress.
func (s *stalls) add(c *conn, held int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.stall = stallEntry{prev: s.last, listed: true, since: time.Now(), held: held}
	if s.last != nil {
		s.last.stall.next = c
	} else {
		s.first = c
	}
	s.last = c
	if !s.armed {
		s.armed = true
		time.AfterFunc(stallCheck, c.srv.checkStalls)
	}
}

// remove takes c off the list, if it is there.
func (s *stalls) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(c)
}

func (s *stalls) removeLocked(c *conn) {
	e := c.stall
	if !e.listed {
		return
	}
	if e.prev != nil {
		e.prev.stall.next = e.next
	} else {
		s.first = e.next
	}
	if e.next != nil {
		e.next.stall.prev = e.prev
	} else {
		s.last = e.prev
	}
	c.stall = stallEntry{}
}

// overdue takes those off the list that have stalled for ten seconds, from the longest on, until so many connections and so many
// bytes are won.
func (s *stalls) overdue(conns, bytes int64) []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*conn
	for c := s.first; c != nil && (conns > 0 || bytes > 0) && time.Since(c.stall.since) >= lineTime; c = s.first {
		bytes -= c.stall.held
		conns--
		s.removeLocked(c)
		out = append(out, c)
	}
	return out
}

// rearm says whether there is something left to check.
func (s *stalls) rearm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = s.first != nil
	return s.armed
}

// checkStalls runs each second while somebody stalls.
func (s *Server) checkStalls() {
	if s.closing.Load() {
		return
	}
	for _, c := range s.stalls.overdue(s.open.Load()-int64(s.maxConns())/2, s.bodies.excess()) {
		s.stalledClosed.Add(1)
		s.log().Warn("stalled connection closed to make room", "peer", c.peer)
		c.abort()
	}
	if s.stalls.rearm() {
		time.AfterFunc(stallCheck, s.checkStalls)
	}
}
