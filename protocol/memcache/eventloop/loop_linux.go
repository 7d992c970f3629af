package eventloop

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxEvents is how many sockets have their turn in one round.
const maxEvents = 256

// Group is some loops that share the sockets.
type Group struct {
	loops []*loop
	next  atomic.Uint32 // the loop of the next socket, modulo their number
	awake atomic.Int32  // loops that are not blocked
	ended sync.WaitGroup
}

// loop is one goroutine with its epoll descriptor.
type loop struct {
	g      *Group
	epfd   int
	file   *os.File        // epfd, by which the goroutine waits as for any other file
	raw    syscall.RawConn // of file
	closed atomic.Bool
	wakeFD int // an eventfd, by which others end the loop's waiting

	mu      sync.Mutex      // guards the fields below
	sockets map[int]*Socket // by descriptor
	inbox   []*Socket       // to be settled

	asleep atomic.Bool // the loop blocks, or is about to: whoever fills the inbox wakes it

	events  [maxEvents]unix.EpollEvent
	ready   []*Socket // to be claimed, of this round's events
	again   []*Socket // owned, and ready
	settle  []*Socket
	buf     []byte
	got     int                // of the last poll
	last    *Socket            // the only one that was ready in the last lone rounds
	lone    int                // how many of these there were, one after another
	onReady func(uintptr) bool // polls; made once
}

// New starts so many loops.
func New(loops int) (*Group, error) {
	g := &Group{}
	for range loops {
		l, err := newLoop(g)
		if err != nil {
			g.Close()
			return nil, err
		}
		g.loops = append(g.loops, l)
		g.ended.Go(l.run)
	}
	return g, nil
}

func newLoop(g *Group) (*loop, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	unix.SetNonblock(epfd, true) // so that os.NewFile lets the runtime wait for it
	l := &loop{g: g, epfd: epfd, file: os.NewFile(uintptr(epfd), "epoll"), sockets: make(map[int]*Socket), buf: make([]byte, BufferSize)}
	l.onReady = func(uintptr) bool {
		l.got = l.poll()
		return l.got != 0 || l.hasPost()
	}
	if l.raw, err = l.file.SyscallConn(); err == nil {
		if l.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
			err = unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, l.wakeFD, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET&0xffffffff, Fd: int32(l.wakeFD)})
		}
	}
	if err != nil {
		l.file.Close()
		return nil, fmt.Errorf("event loop: %w", err)
	}
	return l, nil
}

// Close ends the loops when their round is over, and waits for that. Sockets that are parked stay so for ever.
func (g *Group) Close() {
	for _, l := range g.loops {
		l.closed.Store(true)
		l.wake()
	}
	g.ended.Wait()
}

// Take moves nc's socket into the group and closes nc; the caller is the socket's owner. ok is false, and nc untouched, if it has
// no descriptor.
func (g *Group) Take(nc net.Conn, h Handler) (s *Socket, ok bool) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil, false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, false
	}
	fd := -1
	if raw.Control(func(original uintptr) {
		fd, err = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0)
	}) != nil || err != nil {
		return nil, false
	}
	l := g.loops[int(g.next.Add(1))%len(g.loops)]
	s = &Socket{fd: fd, loop: l, handler: h, local: nc.LocalAddr(), remote: nc.RemoteAddr(), token: make(chan struct{}, 1)}
	l.mu.Lock()
	l.sockets[fd] = s
	l.mu.Unlock()
	if err := s.listen(unix.EPOLL_CTL_ADD, allEvents); err != nil {
		l.forget(s)
		unix.Close(fd)
		return nil, false
	}
	nc.Close() // the runtime lets go of it; the connection lives on in fd
	return s, true
}

// Requeue gives sockets from their owner to their loops, which call the handlers' Settle.
func (g *Group) Requeue(sockets ...*Socket) {
	for _, l := range g.loops {
		mine := false
		l.mu.Lock()
		for _, s := range sockets {
			if s.loop == l {
				l.inbox = append(l.inbox, s)
				mine = true
			}
		}
		l.mu.Unlock()
		if mine && l.asleep.Load() {
			l.wake()
		}
	}
}

func (l *loop) forget(s *Socket) {
	l.mu.Lock()
	if l.sockets[s.fd] == s {
		delete(l.sockets, s.fd)
	}
	l.mu.Unlock()
}

// run is the loop.
func (l *loop) run() {
	l.g.awake.Add(1)
	defer l.g.awake.Add(-1)
	for !l.closed.Load() {
		if len(l.again) > 0 {
			l.find(l.poll())
		} else {
			l.find(l.wait())
		}
		l.watch()
		for _, s := range l.again {
			l.serve(s)
		}
		l.again = l.again[:0]
		for _, s := range l.ready {
			if s.event() {
				l.serve(s)
			} else {
				s.wake()
			}
		}
		l.ready = l.ready[:0]
		for _, s := range l.settle {
			if s.handler.Settle() {
				l.again = append(l.again, s)
			}
		}
		l.settle = l.settle[:0]
		runtime.Gosched() // others get their turn, too, however busy the sockets are
	}
	unix.Close(l.wakeFD)
	l.file.Close()
}

func (l *loop) serve(s *Socket) {
	if s.handler.Ready(l.buf) {
		l.settle = append(l.settle, s)
	}
}

// wake ends the loop's waiting.
func (l *loop) wake() { unix.Write(l.wakeFD, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// find looks up the sockets of the first n events, and takes in those that others have sent.
func (l *loop) find(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events[:n] {
		if s := l.sockets[int(e.Fd)]; s != nil { // it may have been closed by now
			if e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
				s.ended.Store(true)
			}
			l.ready = append(l.ready, s)
		}
	}
	l.settle = append(l.settle, l.inbox...)
	l.inbox = l.inbox[:0]
}

// loneRounds is after how many rounds with one socket this is alone.
const loneRounds = 8

// watch notes whether one socket is all that the loop serves.
func (l *loop) watch() {
	if len(l.ready) == 1 && len(l.again)+len(l.settle) == 0 {
		if l.last == l.ready[0] {
			l.lone++
			return
		}
		l.last = l.ready[0]
	} else if len(l.ready)+len(l.again) == 0 {
		return // nothing, or one that comes back from elsewhere
	}
	l.lone = 0
}

// Awake is how many loops have something to do.
func (g *Group) Awake() int { return int(g.awake.Load()) }

// wait blocks until there are events and returns their number.
func (l *loop) wait() int {
	if n := l.poll(); n != 0 || l.hasPost() {
		return n
	}
	l.g.awake.Add(-1)
	l.asleep.Store(true)
	l.raw.Read(l.onReady)
	l.asleep.Store(false)
	l.g.awake.Add(1)
	return l.got
}

// hasPost says whether the inbox holds anything.
func (l *loop) hasPost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inbox) > 0
}

// poll asks for events without waiting. It never blocks, so the scheduler need not know of it.
func (l *loop) poll() int {
	n, _, err := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epfd), uintptr(unsafe.Pointer(&l.events[0])), maxEvents, 0, 0, 0)
	if err != 0 {
		return 0
	}
	return int(n)
}
