package memcache

import (
	"errors"
	"net"
	"os"
	"time"

	"qserver/protocol/memcache/eventloop"
	"qserver/storage"
)

// wait waits until one of the line's queues has a message or the time is over, and answers what there is then. What arrives behind
// the waiting get is kept. A peer that hangs up is noticed at once and gets no message. false: the connection ends, or the line is
// answered.
func (c *conn) wait(g *getLine, d time.Duration, reserving int) bool {
	queues, options := c.secondRound(g, reserving)
	i, delivery, ok := c.await(queues, options, d, c.missed)
	if !ok {
		return false
	}
	return i < 0 || c.takeAll(g, i, delivery)
}

// missed answers a get that found nothing.
func (c *conn) missed() { c.out.text(replyEnd) }

// secondRound makes g ready for its second round, and says what it waits for: of its keys, reserving ones may take a message.
func (c *conn) secondRound(g *getLine, reserving int) (queues [][]byte, options []storage.ReserveOptions) {
	g.keys = append([]byte(nil), g.keys...) // the input buffer moves while we wait
	g.done, g.opened, g.waited = keySet{}, keySet{}, true
	queues = make([][]byte, 0, reserving)
	options = make([]storage.ReserveOptions, 0, reserving)
	for word, rest := token(g.keys); len(word) > 0; word, rest = token(rest) {
		if c.cmd.key.parse(word, getOptions, c.srv.NoKeyOptions); c.cmd.key.reserves() {
			queues = append(queues, c.cmd.key.name)
			options = append(options, c.reserveOptions(&c.cmd.key, g.lease))
		}
	}
	return queues, options
}

// await waits until one of the queues has a message, and says which: i is below 0 if none has one in time. A peer that stops
// sending meanwhile is told that it missed, in case it still listens. false: the connection ends, or the error is answered.
func (c *conn) await(queues [][]byte, options []storage.ReserveOptions, d time.Duration, missed func()) (i int, delivery storage.Delivery, ok bool) {
	if !c.settle() {
		return -1, delivery, false
	}
	return c.awaited(c.join(queues, options), time.Now().Add(d), missed)
}

// join puts the connection among those that wait for the queues.
func (c *conn) join(queues [][]byte, options []storage.ReserveOptions) *storage.Waiter {
	c.counts[waits]++
	if c.wake == nil {
		c.woken = make(chan struct{}, 1)
		c.wake = c.messageCame
	}
	return c.session.Wait(queues, options, c.wake)
}

// messageCame wakes a waiting connection, whoever serves it. It may come when the wait is over.
func (c *conn) messageCame() {
	if c.sock != nil && c.sock.Claim() {
		c.srv.loops.Requeue(c.sock)
		return
	}
	c.nc.SetReadDeadline(past)
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// awaited is await for a connection that has joined the waiters, until a time.
func (c *conn) awaited(w *storage.Waiter, until time.Time, missed func()) (i int, delivery storage.Delivery, ok bool) {
	limit := c.deadline
	c.setDeadline(until)
	if !c.waitInput(w, missed) {
		return -1, delivery, false
	}
	i, delivery, found, err := w.Take()
	c.setDeadline(limit)
	if err != nil || !found {
		return -1, delivery, c.getFailed(err)
	}
	return i, delivery, true
}

// waitInput keeps what arrives until the waiter is done or its time is over. false: the peer is gone.
func (c *conn) waitInput(w *storage.Waiter, missed func()) bool {
	c.waiting = true
	defer func() { c.waiting = false }()
	for !w.Done() && !c.timeUp() && !c.srv.stopping.Load() {
		err := c.in.fill(false)
		if errors.Is(err, errFull) {
			err = c.waitFull()
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !w.Done() && !c.timeUp() {
				c.nc.SetReadDeadline(c.deadline) // an earlier wait's call
			}
		default:
			c.session.Close() // before anything is said: it must not get a message any more
			missed()
			c.flush()
			c.end(closeNow)
			return false
		}
	}
	return true
}

// waitFull waits for the waiter, its time or the peer's end while there is no room for more input.
func (c *conn) waitFull() error {
	if c.sock != nil {
		return c.in.waitFull()
	}
	timer := time.NewTimer(time.Until(c.deadline))
	defer timer.Stop()
	select {
	case <-c.woken:
	case <-timer.C:
	case <-c.srv.done:
		return net.ErrClosed
	}
	return nil
}

// parkedWait is a waiting get of a parked connection. It ends with a message, by its time, or when something arrives: then a
// goroutine goes on waiting in its place.
type parkedWait struct {
	get       getLine
	reserving int // keys that may take a message
	duration  time.Duration
	waiter    *storage.Waiter // nil: it has not joined yet
	until     time.Time
	timer     *time.Timer
}

// parkWaiting lets c.parkedGet wait without a goroutine; what came before it is answered. again is Settle's.
func (c *conn) parkWaiting() (again bool) {
	p := c.parkedGet
	if p.waiter == nil {
		c.joinParked(p)
	}
	c.out.release()
	if !c.sock.Park() {
		return true
	}
	// A message, the end of time or Shutdown may have looked for a parked connection just before it was one.
	switch {
	case c.srv.stopping.Load():
		if c.sock.Claim() {
			go c.resume()
		}
	case p.waiter.Done() || !time.Now().Before(p.until):
		return c.sock.Claim() && c.Settle()
	}
	return false
}

// joinParked starts a parked wait.
func (c *conn) joinParked(p *parkedWait) {
	queues, options := c.secondRound(&p.get, p.reserving)
	p.until = time.Now().Add(p.duration)
	p.waiter = c.join(queues, options)
	p.timer = time.AfterFunc(p.duration, c.messageCame)
}

// mayParkGet says whether a get that a goroutine runs may wait without it.
func (c *conn) mayParkGet() bool {
	return c.sock != nil && len(c.in.buffered()) == 0 && !c.srv.stopping.Load()
}

// parkGet is parkWaiting for a goroutine, which may send what came before the get. It says whether the connection is parked; if not,
// the get is answered, or the connection ends.
func (c *conn) parkGet() (parked bool) {
	p := c.parkedGet
	if !c.settle() {
		c.parkedGet = nil
		return false
	}
	c.joinParked(p)
	c.standby(true)
	c.out.release()
	c.in.drop()
	c.seen.Store(0)
	if c.sock.Park() {
		over := c.srv.stopping.Load() || p.waiter.Done() || !time.Now().Before(p.until)
		if !over || !c.sock.Claim() {
			return true
		}
	}
	c.standby(false)
	c.parkedGet = nil
	c.waitOn(p)
	return false
}

// readyWaiting is Ready for a connection whose get waits: what arrives is kept, and a goroutine waits on.
func (c *conn) readyWaiting(buf []byte) (settle bool) {
	n, err := c.sock.TryRead(buf)
	if err == eventloop.ErrAgain {
		return true
	}
	if n > 0 {
		c.in.borrow(buf, n)
		c.in.own()
	}
	go c.resume()
	return false
}

// answerWait ends the parked wait, if its message or time has come. false: the message must be read from the disk, which a goroutine
// has to do.
func (c *conn) answerWait() bool {
	p := c.parkedGet
	if p == nil || p.waiter == nil || !p.waiter.Done() && time.Now().Before(p.until) {
		return true
	}
	i, delivery, found, err := p.waiter.TryTake()
	if errors.Is(err, storage.ErrNotInMemory) {
		return false
	}
	p.timer.Stop()
	c.parkedGet = nil
	if err != nil {
		c.getFailed(err)
		return true
	}
	c.inline = true
	if !found || c.takeAll(&p.get, i, delivery) {
		c.got(&p.get)
	}
	c.inline = false
	return true
}

// waitOn goes on with a parked wait on a goroutine.
func (c *conn) waitOn(p *parkedWait) {
	if p.waiter == nil {
		c.getWaiting(&p.get, p.duration, p.reserving)
		return
	}
	p.timer.Stop()
	i, delivery, ok := c.awaited(p.waiter, p.until, c.missed)
	if ok && (i < 0 || c.takeAll(&p.get, i, delivery)) {
		c.got(&p.get)
	}
}
