package memcache

import (
	"errors"
	"net"
	"os"
	"time"

	"qserver/storage"
)

// wait parks the connection until one of the line's queues has a message or the time is over, and answers what there is then.
// What arrives behind the waiting get is kept. A peer that hangs up is noticed at once and gets no message. false: the
// connection ends, or the line is answered.
func (c *conn) wait(g *getLine, d time.Duration, reserving int) bool {
	g.keys = append([]byte(nil), g.keys...) // the input buffer moves while we wait
	g.done, g.opened, g.waited = keySet{}, keySet{}, true
	queues := make([][]byte, 0, reserving)
	options := make([]storage.ReserveOptions, 0, reserving)
	for word, rest := token(g.keys); len(word) > 0; word, rest = token(rest) {
		if c.cmd.key.parse(word, getOptions, c.srv.NoKeyOptions); c.cmd.key.reserves() {
			queues = append(queues, c.cmd.key.name)
			options = append(options, c.reserveOptions(&c.cmd.key, g.lease))
		}
	}
	i, delivery, ok := c.await(queues, options, d, func() { c.out.text(replyEnd) })
	if !ok {
		return false
	}
	return i < 0 || c.takeAll(g, i, delivery)
}

// await parks the connection until one of the queues has a message, and says which: i is below 0 if none has one in time. A peer
// that stops sending meanwhile is told that it missed, in case it still listens. false: the connection ends, or the error is
// answered.
func (c *conn) await(queues [][]byte, options []storage.ReserveOptions, d time.Duration, missed func()) (i int, delivery storage.Delivery, ok bool) {
	if !c.settle() {
		return -1, delivery, false
	}
	c.counts[waits]++
	if c.wake == nil {
		c.woken = make(chan struct{}, 1)
		c.wake = func() {
			c.nc.SetReadDeadline(past)
			select {
			case c.woken <- struct{}{}:
			default:
			}
		}
	}
	limit := c.deadline
	c.setDeadline(time.Now().Add(d))
	w := c.session.Wait(queues, options, c.wake)
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
