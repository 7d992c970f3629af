package memcache

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"qserver/protocol/memcache/eventloop"
	"qserver/storage"
)

// Limits of what a peer may send, and for how long it may take.
const (
	maxLine    = 8 << 10   // bytes of a command line
	maxGetLine = 64 << 10  // of get, gets, gat and gats
	maxSwallow = 256 << 20 // a refused body up to this size is read and thrown away
	stageAt    = 1 << 20   // so many bytes of bodies wait for a commit at most
	lineTime   = 10 * time.Second
	bodyTime   = 10 * time.Second // and a second for each 64 KiB
	lingerTime = 2 * time.Second  // after the last reply of a connection that closes in mid-stream
)

// ending says whether and how a connection closes once its replies are sent.
type ending uint8

const (
	goOn        ending = iota
	closeQuiet         // nothing more to say
	closeLinger        // read on for a moment, so that the last reply is not lost to a reset
	closeNow           // the peer is gone: send nothing
)

// conn is one client connection. A goroutine of its own serves it; while nothing is being worked on for it, and its socket allows,
// it is parked instead, and served by an event loop (see park.go). Others only set its read deadline or abort it.
type conn struct {
	srv     *Server
	nc      net.Conn
	sock    *eventloop.Socket // nc, if it is one
	peer    string
	session *storage.Session
	in      input
	out     output
	cmd     command
	ending  ending
	counts  counters // not yet published

	completed bool      // a command was completed: the peer may take its time
	deadline  time.Time // of reading; zero: none
	staged    int       // bytes of bodies enqueued since the last commit
	bodyHeld  int64     // bytes of the shared budget that the arriving body has
	overdraft bool      // the arriving body may exceed the budget
	partial   bool      // a body is arriving
	waiting   bool      // in a get that waits
	wake      func()    // ends a wait from outside, with woken
	woken     chan struct{}
	ext       *extended // of clients that speak more than classic text
	user      string    // who has logged in; guarded by srv.mu

	binary    bool         // speaks the binary protocol
	inline    bool         // an event loop runs it: nothing may wait
	again     bool         // the command can't be run here: a goroutine runs it once more
	prepared  bool         // that one has done its close, abort or open
	later     func()       // what is left to do, for a goroutine
	parkedGet *parkedWait  // the get that waits
	seen      atomic.Int64 // when it was parked, Unix nanoseconds; kept only with an idle timeout

	seated  bool // has one of srv.seats
	company uint // commands in a row at which others were at work

	seatPatience patience // with clients that leave a seat empty
	pollPatience patience // with clients that take longer than pollTime

	listed bool       // in srv.stalls, or thrown out of it
	stall  stallEntry // guarded by srv.stalls.mu
}

// serve runs a new connection until it is parked or ends.
func (c *conn) serve() {
	c.guarded(func() (parked bool) {
		if !c.enter() {
			return false
		}
		if c.completed {
			c.setDeadline(time.Time{})
		} else {
			c.setDeadline(time.Now().Add(lineTime))
		}
		return (len(c.in.buffered()) > 0 || c.more()) && c.sniff() && c.commands()
	})
}

// guarded runs f, which says whether the connection has been parked; otherwise, and if f panics, it ends.
func (c *conn) guarded(f func() (parked bool)) {
	parked := false
	defer func() {
		if p := recover(); p != nil {
			c.panicked(p)
		}
		if !parked {
			c.close()
		}
	}()
	parked = f()
}

func (c *conn) panicked(p any) {
	c.srv.panics.Add(1)
	c.srv.log().Error("panic in a connection, which is closed", "peer", c.peer, "panic", p, "stack", string(debug.Stack()))
	c.ending = closeNow
}

// commands runs commands until the connection is parked or ends.
func (c *conn) commands() (parked bool) {
	for c.ending == goOn {
		switch {
		case c.step():
			if c.parkedGet != nil && c.parkGet() {
				return true
			}
			if c.out.size >= flushAt || c.staged >= stageAt {
				c.settle()
			}
		case c.mayPark():
			if c.park() {
				return true
			}
		case !c.more():
			return false
		}
	}
	if c.ending != closeNow {
		c.settle()
	}
	return false
}

// step runs the next command. false: it has not arrived.
func (c *conn) step() bool {
	if c.binary {
		return c.binaryStep()
	}
	line, ok := c.in.line()
	switch {
	case ok && len(line) > maxLine && !(len(line) <= maxGetLine && isGet(line)), !ok && c.lineTooLong():
		c.counts[protocolErrors]++
		c.out.text(replyLine)
		c.end(closeLinger)
	case ok:
		c.run(line)
	default:
		return false
	}
	return true
}

// lineTooLong says whether the line that is still arriving is beyond its limit already.
func (c *conn) lineTooLong() bool {
	b := c.in.buffered()
	return len(b) > maxLine+1 && (len(b) > maxGetLine+1 || !isGet(b))
}

// run executes one command line.
func (c *conn) run(line []byte) {
	faults := c.counts[protocolErrors]
	c.cmd.parse(line)
	if c.ext != nil && !c.cmd.quietGet() {
		c.ext.gets.reset()
	}
	c.execute()
	c.ran(faults)
}

// ran says that a command is done: whoever has completed one may take his time. faults are the errors counted before it.
func (c *conn) ran(faults uint64) {
	if c.ending != goOn || c.completed {
		return
	}
	if c.completed = c.counts[protocolErrors] == faults; c.completed {
		c.setDeadline(time.Time{})
	} else {
		c.setDeadline(time.Now().Add(lineTime))
	}
}

// end asks for the connection's end; the first reason counts, but for a peer that is gone.
func (c *conn) end(how ending) {
	if c.ending == goOn || how == closeNow {
		c.ending = how
	}
}

// more waits for input, after it has committed and sent what is due. It says whether the connection goes on.
func (c *conn) more() bool {
	if c.out.empty() && c.in.fill(true) == nil {
		return true
	}
	if !c.settle() {
		return false
	}
	if c.srv.stopping.Load() {
		c.inputEnded(os.ErrDeadlineExceeded)
		return false
	}
	if c.completed && c.srv.IdleTimeout > 0 {
		c.setDeadline(time.Time{})
	}
	if c.srv.busy.Load() > c.srv.cores {
		// Others are ready to run. By the time they have run the next command is often there, which saves a read in vain, the
		// parking and the wake-up.
		runtime.Gosched()
	}
	return c.read(func() error { return c.in.fill(false) })
}

// read calls fill until it has read something. It sorts out deadlines that were set to wake the connection, for an earlier wait
// or a shutdown, from the one that counts.
func (c *conn) read(fill func() error) bool {
	for {
		err := fill()
		if err == nil {
			return true
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && !c.timeUp() && !c.srv.stopping.Load() {
			c.nc.SetReadDeadline(c.deadline)
			continue
		}
		c.inputEnded(err)
		return false
	}
}

// timeUp says whether the read deadline that counts is over.
func (c *conn) timeUp() bool {
	return !c.deadline.IsZero() && !time.Now().Before(c.deadline)
}

// inputEnded closes the connection for want of input: commits and sends what is left.
func (c *conn) inputEnded(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) && c.timeUp() {
		c.counts[timeouts]++
	}
	if c.settle() {
		c.end(closeQuiet)
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.end(closeNow)
	}
}

// setDeadline sets the time by which the next input must come; zero is none.
func (c *conn) setDeadline(t time.Time) {
	if t.IsZero() && c.srv.IdleTimeout > 0 {
		t = time.Now().Add(c.srv.IdleTimeout)
	}
	c.deadline = t
	c.nc.SetReadDeadline(t)
}

// standby keeps the server's count of busy connections and its list of those that have stalled in mid-command.
func (c *conn) standby(waiting bool) {
	if !waiting {
		c.srv.busy.Add(1)
		if c.listed {
			c.srv.stalls.remove(c)
		}
		return
	}
	c.leaveSeat()
	c.srv.busy.Add(-1)
	if c.out.empty() {
		c.out.release()
	}
	if c.listed = c.completed && !c.waiting && (c.partial || len(c.in.buffered()) > 0); c.listed {
		c.srv.stalls.add(c, c.bodyHeld)
	}
}

// sniff looks at the connection's first byte: not everybody who connects speaks memcached's text protocol.
func (c *conn) sniff() bool {
	switch c.in.buffered()[0] {
	case binaryRequest:
		c.binary = true
	case tlsHandshake:
		c.noteTLS()
		return false
	}
	return true
}

// close ends the session first, so that what it held is back before the peer can know of the end.
func (c *conn) close() {
	c.leaveSeat()
	c.session.Close()
	c.releaseBody()
	c.publish()
	if c.ending == closeLinger {
		c.linger()
	}
	c.srv.forget(c) // before the peer can know: it may connect again at once, where connections are at their limit
	c.nc.Close()
	c.in.release()
	c.out.release()
	c.srv.wg.Done()
}

// linger reads what the peer is still sending for a moment: closing a socket with unread input would take the last reply away
// from it.
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || c.srv.closing.Load() {
		return
	}
	c.nc.SetReadDeadline(time.Now().Add(lingerTime))
	waste := takeBuffer(mediumBuffer)
	defer giveBuffer(waste)
	for {
		if _, err := c.nc.Read(waste); err != nil {
			return
		}
	}
}

// host is the peer's address without its port.
func (c *conn) host() string {
	if host, _, err := net.SplitHostPort(c.peer); err == nil {
		return host
	}
	return c.peer
}
