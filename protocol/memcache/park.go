package memcache

import (
	"bytes"
	"errors"
	"net"
	"os"
	"runtime"
	"time"

	"qserver/protocol/memcache/eventloop"
)

// A connection whose peer owes it nothing is parked: it has no goroutine. When input comes, its event loop runs the commands that
// have arrived whole and need not wait for anything, for all connections that have input; then it writes what they have staged in
// one go, and sends the answers. Whatever else there is to do, a goroutine does, and parks the connection again.

// parks says whether nc may be parked. A connection that can't, for want of a descriptor of its own (TLS) or by the system, keeps its
// goroutine.
func (s *Server) parks(nc net.Conn) bool {
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return false
	}
	s.loopsOnce.Do(func() {
		loops, err := eventloop.New(runtime.GOMAXPROCS(0))
		if err != nil {
			if !errors.Is(err, errors.ErrUnsupported) {
				s.log().Warn("no event loops: each connection has a goroutine", "error", err)
			}
			return
		}
		s.loops = loops
		s.syncer.start(loops)
		if s.IdleTimeout > 0 {
			s.wg.Go(s.endIdle)
		}
	})
	return s.loops != nil
}

// stopLoops ends what parks started; all connections have ended.
func (s *Server) stopLoops() {
	s.loopsOnce.Do(func() {}) // none from now on
	s.loopsEnd.Do(func() {
		if s.loops != nil {
			s.loops.Close()
			s.syncer.stop()
		}
	})
}

// endIdle closes the parked connections that have been idle for too long.
func (s *Server) endIdle() {
	tick := time.NewTicker(min(max(s.IdleTimeout/8, time.Millisecond), time.Second))
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		if s.stopping.Load() {
			return
		}
		s.mu.Lock()
		now := time.Now().UnixNano()
		for c := range s.conns {
			seen := c.seen.Load()
			if seen == 0 || now-seen < int64(s.IdleTimeout) || !c.sock.Claim() {
				continue
			}
			if c.seen.Load() != seen { // it has done something in the meantime
				s.loops.Requeue(c.sock)
			} else {
				c.deadline = time.Unix(0, seen).Add(s.IdleTimeout)
				c.later = func() { c.inputEnded(os.ErrDeadlineExceeded) }
				go c.resume()
			}
		}
		s.mu.Unlock()
	}
}

// abort ends the connection, whoever serves it.
func (c *conn) abort() {
	if c.sock != nil {
		c.sock.Abort()
	} else {
		cut(c.nc)
	}
}

// mayPark says whether there is nothing to be done.
func (c *conn) mayPark() bool {
	return c.sock != nil && c.completed && len(c.in.buffered()) == 0 && !c.srv.stopping.Load()
}

// park reads what has arrived; if that is nothing, it commits and sends what is due and parks the connection. false: there is input,
// or the connection ends. After true the connection is somebody else's.
func (c *conn) park() (parked bool) {
	if c.out.empty() {
		switch err := c.in.fill(true); err {
		case nil:
			return false
		case errAgain:
		default:
			c.inputEnded(err)
			return false
		}
	}
	if !c.settle() || c.seated && c.stay() {
		return false
	}
	c.standby(true)
	if c.release(); c.sock.Park() {
		// Shutdown resumes those that it finds parked, and this one may have come behind it.
		if !c.srv.stopping.Load() || !c.sock.Claim() {
			return true
		}
	}
	c.standby(false)
	return false
}

// release notes the time, if somebody asks for it, and gives back what a parked connection does not need.
func (c *conn) release() {
	c.out.release()
	c.in.drop()
	if c.srv.IdleTimeout > 0 {
		c.seen.Store(time.Now().UnixNano())
	}
}

// resume serves a connection that was parked, or that an event loop can't serve further, until it is parked again or ends.
func (c *conn) resume() {
	c.guarded(func() (parked bool) {
		if c.seated {
			runtime.LockOSThread() // the system keeps a thread that only one peer wakes close to it
		}
		c.standby(false)
		switch p, f := c.parkedGet, c.later; {
		case c.ending != goOn: // after a panic
		case p != nil:
			c.parkedGet = nil
			c.waitOn(p)
		case f != nil:
			c.later = nil
			f()
		}
		return c.commands()
	})
}

// Ready runs what has arrived on a parked connection; see eventloop.Handler.
func (c *conn) Ready(buf []byte) (settle bool) {
	defer func() {
		if p := recover(); p != nil {
			c.panicked(p)
			c.inline, settle = false, true
		}
	}()
	if c.parkedGet != nil {
		return c.readyWaiting(buf)
	}
	n, err := c.sock.TryRead(buf)
	for err == eventloop.ErrAgain {
		if c.sock.Park() {
			return false
		}
		n, err = c.sock.TryRead(buf)
	}
	if c.seen.Store(0); err != nil {
		c.later = func() { c.inputEnded(err) }
		return true
	}
	c.in.borrow(buf, n)
	c.inline = true
	for c.ending == goOn && c.parkedGet == nil && c.out.size < flushAt && c.staged < stageAt && c.whole() {
		begin := c.in.r
		if c.step(); c.again {
			c.in.r, c.again = begin, false
			break
		}
	}
	c.inline = false
	c.in.own()
	return true
}

// Settle writes what the round's commands have staged, answers them, and parks the connection; see eventloop.Handler.
func (c *conn) Settle() (again bool) {
	defer func() {
		if p := recover(); p != nil {
			c.panicked(p)
			c.inline = false
			go c.resume()
		}
	}()
	if len(c.in.buffered()) == 0 && !c.answerWait() {
		go c.resume()
		return false
	}
	switch {
	case c.ending != goOn, c.later != nil, len(c.in.buffered()) > 0:
		go c.resume()
		return false
	case c.takesSeat():
		go c.resume()
		return false
	case c.session.AwaitsSync():
		c.srv.syncer.add(c)
		return false
	}
	c.staged = 0
	if c.session.CommitRound() != nil {
		go c.resume() // which finds the same error
		return false
	}
	c.out.safe = len(c.out.buf)
	done, err := c.trySend()
	if err != nil {
		c.end(closeNow)
	}
	if !done || err != nil {
		go c.resume()
		return false
	}
	c.out.clear()
	if c.parkedGet != nil {
		return c.parkWaiting()
	}
	c.release()
	if !c.sock.Park() {
		return true
	}
	if c.srv.stopping.Load() && c.sock.Claim() {
		go c.resume()
	}
	return false
}

// whole says whether the next command is there to its end and can be run without waiting for anything.
func (c *conn) whole() bool {
	if c.binary {
		return c.wholeFrame()
	}
	in := c.in.buffered()
	end := bytes.IndexByte(in, '\n')
	if end < 0 || end > maxLine {
		return false
	}
	line, rest := in[:end], in[end+1:]
	v, args := token(bytes.TrimSuffix(line, []byte{'\r'}))
	switch string(v) {
	case "get", "gets":
		_, more := token(args)
		return len(bytes.TrimRight(more, " ")) == 0 && quick(args)
	case "set", "add":
		return c.wholeBody(args, rest, 3)
	case "ms":
		return c.wholeBody(args, rest, 1)
	case "mg":
		return c.srv.Wait == 0 && quick(args) && !has(args, "/t=") && has(args, " v")
	case "delete", "touch", "md", "version":
		return true
	case "mn":
		return !c.fenceWaits()
	}
	return false
}

// quick says whether a get's options leave it one message of the queue's head at most.
func quick(args []byte) bool {
	return bytes.IndexByte(args, '/') < 0 || !has(args, "/batch=") && !has(args, "/peek") && !has(args, "/n=")
}

func has(args []byte, what string) bool { return bytes.Contains(args, []byte(what)) }

// wholeBody says whether the body is there whose length is the word of args behind the first skip ones, and the store takes it.
func (c *conn) wholeBody(args, rest []byte, skip int) bool {
	var word []byte
	for range skip + 1 {
		word, args = token(args)
	}
	n, ok := parseUint(word)
	return ok && n+2 <= uint64(len(rest)) && !c.srv.Store.EnqueueWaits(int(n))
}

// wholeFrame is whole for the binary protocol.
func (c *conn) wholeFrame() bool {
	in := c.in.buffered()
	var f frame
	if len(in) < binaryHeader || !f.parse(in) || int64(len(in)) < binaryHeader+f.body {
		return false
	}
	switch f.op.verb {
	case verbGet:
		key := in[binaryHeader : binaryHeader+f.body]
		return c.srv.Wait == 0 && quick(key) && !has(key, "/t=")
	case verbSet, verbAdd:
		return !c.srv.Store.EnqueueWaits(int(f.body))
	case verbDelete, verbTouch, verbVersion:
		return true
	case verbNoop:
		return !c.fenceWaits()
	}
	return false
}

// fenceWaits says whether the quiet gets since the last fence may make the next one wait.
func (c *conn) fenceWaits() bool { return c.ext != nil && c.ext.gets.wait > 0 }
