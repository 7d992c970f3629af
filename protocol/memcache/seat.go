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
	seatTime    = 300 * time.Microsecond // what a client takes at most from an answer to its next command
	pollTime    = 80 * time.Microsecond  // of these, how long it looks for it without a pause
	seatCompany = 4                      // commands in a row at which loops are at work, before the seat is given back
)

// takesSeat says whether the connection, which its loop has served, now has a seat.
func (c *conn) takesSeat() bool {
	if !c.sock.Alone() || c.parkedGet != nil {
		return false
	}
	if !c.seatPatience.left() {
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
			c.seatPatience.inVain()
			return false
		}
		err = c.in.fill(true)
	}
	c.seatPatience.reset()
	if err != nil && err != errAgain {
		c.inputEnded(err)
	}
	return true
}

// poll reads without waiting, again and again, until something arrives or others want the core. It spares the wake-up, which takes
// longer than a command where the core must first be woken, too.
func (c *conn) poll() error {
	if !c.pollPatience.left() {
		return errAgain
	}
	for begin := time.Now(); time.Since(begin) < pollTime && c.srv.coreToSpare(); {
		c.sock.Yield()
		if err := c.in.fill(true); err != errAgain {
			c.pollPatience.reset()
			return err
		}
	}
	c.pollPatience.inVain()
	return errAgain
}

// coreToSpare says whether fewer connections and loops are at work than there are cores.
func (s *Server) coreToSpare() bool { return s.busy.Load()+int64(s.loops.Awake()) < s.cores }

// patience counts how often something was tried in vain, or was left out since: after the first times it is worth one try in many.
type patience uint

const (
	patienceFirst  = 4
	patienceSeldom = 64
)

// left says whether to try.
func (p *patience) left() bool {
	if *p < patienceFirst || *p%patienceSeldom == 0 {
		return true
	}
	*p++
	return false
}

func (p *patience) inVain() { *p++ }

func (p *patience) reset() { *p = 0 }
