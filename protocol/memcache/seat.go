package memcache

import (
	"runtime"
	"time"
)

// A connection that is all there is to do for its event loop gets a seat, if there are cores to spare: a goroutine with a thread of
// its own, which polls the socket for some microseconds, and then waits for the next command in the system and not by way of the
// scheduler. So one command costs a read, a write and one wait at most, and the thread is woken as quickly as that of any program. It
// also syncs the log itself, where there is nobody to share that with. The seat is given back after a moment without input.
//
// A thread that dozes so keeps its processor (Go's P) from the scheduler, hence the moment is short and seats are few.

const (
	seatTime     = 300 * time.Microsecond // what a client takes at most from an answer to its next command
	pollTime     = 150 * time.Microsecond  // of these, how long it looks for it without a pause
	seatPatience = 4                      // in vain so often: rarely from now on
	seatSeldom   = 64                     // one time in so many
	seatCompany  = 4                      // commands in a row at which loops are at work, before the seat is given back
)

// takesSeat says whether the connection, which its loop has served, now has a seat.
func (c *conn) takesSeat() bool {
	if !c.sock.Alone() || c.parkedGet != nil {
		return false
	}
	if c.vain >= seatPatience && c.vain%seatSeldom != 0 {
		c.vain++
		return false
	}
	if c.srv.loops.Awake() > 1 {
		return false
	}
	if c.srv.seats.Add(1) > c.srv.cores/2 {
		c.srv.seats.Add(-1)
		return false
	}
	c.seated = true
	c.sock.Mute()
	return true
}

// leaveSeat gives the seat back, if the connection has one.
func (c *conn) leaveSeat() {
	if c.seated {
		runtime.UnlockOSThread()
		c.seated = false
		c.srv.seats.Add(-1)
	}
}

// stay waits until something arrives, for a moment, and gives up when it sees others at work several times in a row. It says whether
// the connection goes on: it has input, or has ended.
func (c *conn) stay() bool {
	if c.srv.loops.Awake() == 0 {
		c.company = 0
	} else if c.company++; c.company > seatCompany {
		c.company = 0
		return false
	}
	if c.srv.stopping.Load() {
		return false
	}
	err := c.poll()
	if err == errAgain {
		if !c.sock.Doze(seatTime) {
			c.vain++
			return false
		}
		err = c.in.fill(true)
	}
	c.vain = 0
	if err != nil && err != errAgain {
		c.inputEnded(err)
	}
	return true
}

// poll reads without waiting, again and again, until something arrives or others want the core. It spares the wake-up, which takes
// longer than a command where the core must first be woken, too.
func (c *conn) poll() error {
	if c.idlePolls >= seatPatience && c.idlePolls%seatSeldom != 0 {
		c.idlePolls++
		return errAgain
	}
	for begin := time.Now(); time.Since(begin) < pollTime && c.srv.loops.Awake() == 0; {
		c.sock.Yield()
		if err := c.in.fill(true); err != errAgain {
			c.idlePolls = 0
			return err
		}
	}
	c.idlePolls++
	return errAgain
}
