package memcache

import (
	"bytes"
	"errors"
	"io"
	"net"

	"qserver/protocol/memcache/eventloop"
)

// errAgain is returned by fill without waiting when nothing has arrived.
var errAgain = errors.New("nothing to read yet")

// errFull is returned by fill when the largest buffer has no room left.
var errFull = errors.New("input buffer full")

// input is the reading side of one connection. While nothing is buffered and the connection waits for its peer it owns no
// buffer: of a socket, one is taken from the pool only when there is something to read.
type input struct {
	nc       net.Conn
	sock     *eventloop.Socket // nc, if it is one; nil: plain reads
	buf      []byte            // nil while nothing is buffered
	borrowed bool              // buf is the event loop's
	r, w     int               // buf[r:w] has arrived and is not used up
	arrived  uint64            // bytes read since the last publish
	scanned  int               // buf[r:r+scanned] holds no line end
	fast     bool              // the last read filled its buffer: take a larger one next time

	parked func(bool) // called with true before the connection waits, with false afterwards
}

func (in *input) init(nc net.Conn) {
	in.nc = nc
	in.sock, _ = nc.(*eventloop.Socket)
}

// buffered is what has arrived and is not used up; valid until the next fill.
func (in *input) buffered() []byte { return in.buf[in.r:in.w] }

// skip uses up n buffered bytes.
func (in *input) skip(n int) {
	in.r += n
	in.scanned = 0
}

// line returns the next whole line without its end (LF, or CR LF) and uses it up; ok is false if there is none yet. It is valid
// until the next fill.
func (in *input) line() (line []byte, ok bool) {
	pending := in.buf[in.r:in.w]
	i := bytes.IndexByte(pending[in.scanned:], '\n')
	if i < 0 {
		in.scanned = len(pending)
		return nil, false
	}
	line = pending[:in.scanned+i]
	in.skip(len(line) + 1)
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, true
}

// fill reads once, behind what is buffered. try returns errAgain instead of waiting. A peer's end is io.EOF.
func (in *input) fill(try bool) error {
	if in.sock == nil && try {
		return errAgain
	}
	if in.w-in.r == largeBuffer || in.sock == nil && !in.room() {
		return errFull
	}
	for {
		in.room()
		n, err := in.read(in.buf[in.w:], try)
		if n > 0 {
			in.fast = n == len(in.buf)-in.w
			in.w += n
			return nil
		}
		if in.drop(); err != errWaited {
			return err
		}
	}
}

// readInto reads once, straight into p, past the buffer. n is 0 only with an error. try is as for fill.
func (in *input) readInto(p []byte, try bool) (n int, err error) {
	if in.sock == nil && try {
		return 0, errAgain
	}
	in.drop()
	for {
		if n, err = in.read(p, try); err != errWaited {
			return n, err
		}
	}
}

// errWaited is read's: the peer may have sent something.
var errWaited = errors.New("waited for input")

// read reads once into p, part of the buffer or not. n is 0 only with an error. Where there was nothing it waits, without a
// buffer if it can, and returns errWaited: p is no longer valid if it was the buffer's.
func (in *input) read(p []byte, try bool) (n int, err error) {
	if in.sock == nil {
		for n == 0 && err == nil {
			in.park(true)
			n, err = in.nc.Read(p)
			in.park(false)
		}
	} else if n, err = in.sock.TryRead(p); err == eventloop.ErrAgain {
		if try {
			return 0, errAgain
		}
		in.shrink()
		in.park(true)
		err = in.sock.WaitRead()
		in.park(false)
		if err == nil {
			err = errWaited
		}
		return 0, err
	}
	in.arrived += uint64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// waitFull waits for the read deadline or the peer's end, reading nothing. Without an error it should be called again.
func (in *input) waitFull() error {
	if in.sock.HungUp() {
		return io.EOF
	}
	in.park(true)
	defer in.park(false)
	return in.sock.WaitRead()
}

// borrow takes the event loop's buffer, with n bytes that have just been read into it; it goes back with own.
func (in *input) borrow(buf []byte, n int) {
	in.buf, in.r, in.w, in.borrowed = buf, 0, n, true
	in.arrived += uint64(n)
}

// own gives the borrowed buffer back, after what is left in it has been copied.
func (in *input) own() {
	if !in.borrowed {
		return
	}
	rest := in.buffered()
	in.buf, in.borrowed, in.scanned = nil, false, 0
	if in.r, in.w = 0, len(rest); len(rest) > 0 {
		in.buf = takeBuffer(max(mediumBuffer, len(rest)))
		copy(in.buf, rest)
	}
}

func (in *input) park(waiting bool) {
	if in.parked != nil {
		in.parked(waiting)
	}
}

// room makes sure that there is space behind what is buffered; false means that the largest buffer is full.
func (in *input) room() bool {
	pending := in.w - in.r
	want := mediumBuffer
	if in.fast || pending >= mediumBuffer {
		want = largeBuffer
	}
	switch {
	case in.buf == nil:
		in.buf, in.r, in.w = takeBuffer(want), 0, 0
	case len(in.buf) < want && (pending == 0 || in.w == len(in.buf) || len(in.buf) == smallBuffer):
		in.move(takeBuffer(want))
	case in.r > 0 && (in.w == len(in.buf) || pending <= 4<<10):
		copy(in.buf, in.buf[in.r:in.w])
		in.r, in.w = 0, pending
	}
	return in.w < len(in.buf)
}

// move puts what is buffered into another buffer and gives the old one back.
func (in *input) move(to []byte) {
	n := copy(to, in.buf[in.r:in.w])
	giveBuffer(in.buf)
	in.buf, in.r, in.w = to, 0, n
}

// shrink gives back what a waiting connection doesn't need: all of the buffer if it is empty, most of it if a line has stalled.
func (in *input) shrink() {
	switch n := in.w - in.r; {
	case n == 0:
		in.drop()
	case n <= smallBuffer/2 && len(in.buf) > smallBuffer:
		in.move(takeBuffer(smallBuffer))
	}
}

// drop gives the buffer back if nothing is in it.
func (in *input) drop() {
	if in.buf != nil && in.r == in.w {
		giveBuffer(in.buf)
		in.buf, in.r, in.w, in.scanned, in.fast = nil, 0, 0, 0, false
	}
}

// release gives the buffer back with whatever is in it: the connection has ended.
func (in *input) release() {
	in.r, in.w = 0, 0
	in.drop()
}

// ackNow acknowledges what has arrived without the system's usual delay of 40 ms. A client that writes a command and its body
// apart, and whose system collects small packets, sends the body only behind that.
func (in *input) ackNow() {
	if in.sock != nil {
		in.sock.AckNow()
	}
}
