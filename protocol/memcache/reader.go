package memcache

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
)

// errAgain is returned by fill without waiting when nothing has arrived.
var errAgain = errors.New("nothing to read yet")

// errFull is returned by fill when the largest buffer has no room left.
var errFull = errors.New("input buffer full")

// input is the reading side of one connection. While nothing is buffered and the connection waits for its peer it owns no
// buffer: where there is a file descriptor, one is taken from the pool only when there is something to read.
type input struct {
	nc      net.Conn
	raw     syscall.RawConn // nil: plain reads
	buf     []byte          // nil while nothing is buffered
	r, w    int             // buf[r:w] has arrived and is not used up
	arrived uint64          // bytes read since the last publish
	scanned int             // buf[r:r+scanned] holds no line end
	fast    bool            // the last read filled its buffer: take a larger one next time

	parked func(bool)    // called with true before the connection parks, with false afterwards
	vain   uint          // polls since one brought something
	busy   *atomic.Int64 // connections that are not parked, of the whole server
	spin   int64         // poll before parking while at most this many are busy

	// What the callback for RawConn.Read works on; it is made once, so that a read allocates nothing.
	onReady func(uintptr) bool
	target  []byte // nil: buf
	try     bool   // don't wait
	full    bool   // wait for the deadline or a hang-up only: there is no room to read into
	waiting bool   // parked was called with true
	n       int
	err     error
}

func (in *input) init(nc net.Conn) {
	in.nc = nc
	if in.raw = rawConn(nc); in.raw != nil {
		in.onReady = in.ready
	}
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
	if in.raw == nil {
		if try {
			return errAgain
		}
		if !in.room() {
			return errFull
		}
		n, err := in.readInto(in.buf[in.w:], false)
		in.w += n
		in.drop()
		return err
	}
	if in.w-in.r == largeBuffer {
		return errFull
	}
	in.target, in.try = nil, try
	return in.readRaw()
}

// readInto reads once, straight into p, past the buffer. n is 0 only with an error. try is as for fill.
func (in *input) readInto(p []byte, try bool) (n int, err error) {
	if in.raw == nil {
		if try {
			return 0, errAgain
		}
		for n == 0 && err == nil {
			in.park(true)
			n, err = in.nc.Read(p)
			in.park(false)
		}
		in.arrived += uint64(n)
		if n > 0 {
			err = nil
		}
		return n, err
	}
	in.drop()
	in.target, in.try = p, try
	err = in.readRaw()
	in.target = nil
	return in.n, err
}

// waitFull parks until the read deadline or the peer's end, reading nothing.
func (in *input) waitFull() error {
	in.full, in.try = true, false
	err := in.readRaw()
	in.full = false
	return err
}

func (in *input) readRaw() error {
	in.n, in.err = 0, nil
	err := in.raw.Read(in.onReady)
	if in.waiting {
		in.park(false)
	}
	if in.n > 0 {
		return nil
	}
	in.drop()
	if err != nil {
		return err
	}
	return in.err
}

// ready is called by RawConn.Read each time the descriptor may be readable; false lets it wait.
func (in *input) ready(fd uintptr) bool {
	if in.waiting {
		in.park(false)
	}
	if in.full {
		return in.readyFull(fd)
	}
	p := in.target
	if p == nil {
		in.room()
		p = in.buf[in.w:]
	}
	n, again, err := readFD(fd, p)
	if again && !in.try {
		n, again, err = in.poll(fd, p)
	}
	switch {
	case again && in.try:
		in.err = errAgain
	case again:
		in.shrink()
		in.park(true)
		return false
	case err != nil:
		in.err = err
	case n == 0:
		in.err = io.EOF
	default:
		in.n = n
		in.arrived += uint64(n)
		if in.target == nil {
			in.fast = n == len(p)
			in.w += n
		}
	}
	return true
}

func (in *input) readyFull(fd uintptr) bool {
	if hungUp(fd) {
		in.err = io.EOF
		return true
	}
	in.park(true)
	return false
}

// pollRounds is how often a socket is asked again before its goroutine parks; see BenchmarkRoundTrips.
const pollRounds = 40

// A connection whose polls bring nothing, such as one of a thousand that look for work ten times a second, polls only now and
// then, to see whether that has changed.
const (
	pollPatience = 4  // polls in vain until then
	pollSeldom   = 64 // one in so many
)

// poll asks the socket again for a short while, as long as there are cores to spare: a wake-up costs more than the work that
// most commands are.
func (in *input) poll(fd uintptr, p []byte) (n int, again bool, err error) {
	if in.vain >= pollPatience {
		if in.vain++; in.vain%pollSeldom != 0 {
			return 0, true, nil
		}
	}
	for i := 0; i < pollRounds && in.busy != nil && in.busy.Load() <= in.spin; i++ {
		runtime.Gosched()
		if n, again, err = readFD(fd, p); !again {
			in.vain = 0
			return n, again, err
		}
	}
	in.vain++
	return 0, true, nil
}

func (in *input) park(waiting bool) {
	in.waiting = waiting
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
