package memcache

import (
	"sync"
	"time"
)

// firstPiece is the memory that a body gets when its first bytes arrive; from there on it doubles.
const firstPiece = 4 << 10

// body returns the n bytes that follow the command line and checks that CRLF ends them. ok is false when the connection
// can't go on: it has been answered. The slice is the caller's; the command's key and its options stay valid.
func (c *conn) body(n int) (body []byte, ok bool) {
	return c.collect(n, true)
}

// collect is body for text; frames of the binary protocol have no line end behind their body.
func (c *conn) collect(n int, text bool) (body []byte, ok bool) {
	if !text && len(c.in.buffered()) >= n {
		body = make([]byte, n)
		copy(body, c.in.buffered())
		c.in.skip(n)
		return body, true
	}
	if in := c.in.buffered(); text && len(in) >= n+2 {
		if in[n] != '\r' || in[n+1] != '\n' {
			return nil, c.badChunk()
		}
		body = make([]byte, n)
		copy(body, in)
		c.in.skip(n + 2)
		return body, true
	}
	c.cmd.key.detach()
	c.partial = true
	defer func() { c.partial = false }()
	if !c.completed {
		c.setDeadline(time.Now().Add(bodyTime + time.Duration(n>>16)*time.Second))
	}
	if len(c.in.buffered()) == 0 { // the command came in a packet of its own
		c.in.ackNow()
	}
	if n <= firstPiece {
		body, ok = c.small(n)
	} else {
		body, ok = c.arriving(n)
	}
	return body, ok && (!text || c.terminator())
}

// small waits in the input buffer for the rest of a small body: most are only cut by the end of what one read brought.
func (c *conn) small(n int) (body []byte, ok bool) {
	for len(c.in.buffered()) < n {
		if !c.more() {
			return nil, false
		}
	}
	in := c.in.buffered()
	body = make([]byte, n)
	copy(body, in)
	c.in.skip(n)
	return body, true
}

// arriving collects a body that is not there yet. Its memory grows with what has arrived, and counts against the shared budget
// until the command is done.
func (c *conn) arriving(n int) (body []byte, ok bool) {
	for len(c.in.buffered()) == 0 { // nothing has arrived: it costs nothing
		if !c.more() {
			return nil, false
		}
	}
	for {
		if len(body) == cap(body) {
			if body, ok = c.grow(body, n); !ok {
				return nil, false
			}
		}
		if have := c.in.buffered(); len(have) > 0 {
			k := min(len(have), cap(body)-len(body))
			body = append(body, have[:k]...)
			c.in.skip(k)
		}
		if len(body) == n {
			return body, true
		}
		if len(body) < cap(body) {
			if body, ok = c.readBody(body); !ok {
				return nil, false
			}
		}
	}
}

// grow gives body more room: for what is buffered, then twice what it has, never more than n.
func (c *conn) grow(body []byte, n int) ([]byte, bool) {
	size := min(n, max(firstPiece, 2*len(body), 2*len(c.in.buffered())))
	if !c.takeBody(int64(size - cap(body))) {
		return nil, false
	}
	larger := make([]byte, len(body), size)
	copy(larger, body)
	return larger, true
}

// readBody reads once, straight into the free part of body.
func (c *conn) readBody(body []byte) ([]byte, bool) {
	free := body[len(body):cap(body)]
	if c.out.empty() {
		if k, err := c.in.readInto(free, true); err == nil {
			return body[:len(body)+k], true
		}
	}
	if !c.settle() {
		return nil, false
	}
	k := 0
	ok := c.read(func() (err error) {
		k, err = c.in.readInto(free, false)
		return err
	})
	return body[:len(body)+k], ok
}

// terminator uses up the CRLF behind a body. Anything else means that the stream's position is lost.
func (c *conn) terminator() bool {
	for _, want := range []byte("\r\n") {
		for len(c.in.buffered()) == 0 {
			c.in.ackNow()
			if !c.more() {
				return false
			}
		}
		if c.in.buffered()[0] != want {
			return c.badChunk()
		}
		c.in.skip(1)
	}
	return true
}

// badChunk closes a connection whose stream is out of step. It is false.
func (c *conn) badChunk() bool {
	c.counts[protocolErrors]++
	c.refuse(replyChunk)
	c.end(closeLinger)
	return false
}

// swallow throws away the n bytes of a refused body and its CRLF, with no more memory than a buffer. It is never run as commands: if
// it is too long to read, or not ended by CRLF, the connection closes.
func (c *conn) swallow(n int64) {
	if !c.discard(n) {
		return
	}
	noreply := c.cmd.noreply
	c.cmd.noreply = true // the command has had its answer
	c.terminator()
	c.cmd.noreply = noreply
}

// discard throws n bytes away. false: the connection ends.
func (c *conn) discard(n int64) bool {
	if n > maxSwallow {
		c.end(closeLinger)
		return false
	}
	c.partial = true
	defer func() { c.partial = false }()
	if !c.completed {
		c.setDeadline(time.Now().Add(bodyTime + time.Duration(n>>16)*time.Second))
	}
	for n > 0 {
		k := min(n, int64(len(c.in.buffered())))
		c.in.skip(int(k))
		if n -= k; n > 0 && !c.more() {
			return false
		}
	}
	return true
}

// detach copies what points into the command line, which is about to be overwritten.
func (k *queueKey) detach() {
	b := append([]byte(nil), k.raw...)
	move := func(s []byte) []byte {
		if s == nil {
			return nil
		}
		at := cap(k.raw) - cap(s)
		return b[at : at+len(s) : at+len(s)]
	}
	name, tag, dedup := move(k.name), move(k.tag), move(k.dedup)
	k.raw, k.name, k.tag, k.dedup = b, name, tag, dedup
}

// takeBody takes n bytes of the shared budget, waiting if they are not there. false: the server closes.
func (c *conn) takeBody(n int64) bool {
	overdraft, waited, ok := c.srv.bodies.take(c, n)
	c.overdraft = c.overdraft || overdraft
	if !ok {
		c.end(closeNow)
		return false
	}
	c.bodyHeld += n
	if waited > 0 && !c.completed {
		c.setDeadline(c.deadline.Add(waited)) // the time was ours
	}
	return true
}

// releaseBody gives back what the arriving body had of the budget.
func (c *conn) releaseBody() {
	if c.bodyHeld > 0 || c.overdraft {
		c.srv.bodies.give(c.bodyHeld, c.overdraft)
		c.bodyHeld, c.overdraft = 0, false
	}
}

// budget is the memory that all arriving bodies share. Bodies that wait for each other's memory would wait for ever: so one at a
// time, the first that had to wait, may have an overdraft, which is as large as one body at most.
type budget struct {
	mu        sync.Mutex // guards all fields
	limit     int64      // without the overdraft
	used      int64
	overdraft bool // somebody has it
	closed    bool
	waiting   []*bodyWaiter // in order of arrival
}

type bodyWaiter struct {
	n         int64
	overdraft bool          // granted with the overdraft
	ready     chan struct{} // closed when granted, or when the server closes
}

// take takes n bytes; a body that has the overdraft never waits.
func (b *budget) take(c *conn, n int64) (overdraft bool, waited time.Duration, ok bool) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false, 0, false
	}
	if c.overdraft || len(b.waiting) == 0 && b.used+n <= b.limit {
		b.used += n
		b.mu.Unlock()
		return false, 0, true
	}
	w := &bodyWaiter{n: n, ready: make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.grantLocked()
	b.mu.Unlock()
	start := time.Now()
	<-w.ready
	b.mu.Lock()
	defer b.mu.Unlock()
	return w.overdraft, time.Since(start), !b.closed
}

// give returns n bytes, and the overdraft if the body had it.
func (b *budget) give(n int64, overdraft bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if overdraft {
		b.overdraft = false
	}
	b.grantLocked()
}

// grantLocked serves the waiters in order: from the budget, or the first of them by the overdraft.
func (b *budget) grantLocked() {
	for len(b.waiting) > 0 {
		w := b.waiting[0]
		if b.used+w.n > b.limit {
			if b.overdraft {
				return
			}
			b.overdraft, w.overdraft = true, true
		}
		b.used += w.n
		b.waiting = b.waiting[1:]
		close(w.ready)
	}
}

// excess is how many bytes are in use beyond half of the budget.
func (b *budget) excess() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used - b.limit/2
}

// close lets every waiter go.
func (b *budget) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, w := range b.waiting {
		close(w.ready)
	}
	b.waiting = nil
}
