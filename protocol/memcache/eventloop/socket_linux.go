package eventloop

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket is a stream socket of a Group. It is a net.Conn for its owner; SetDeadline and its kin, and Abort, are for everybody.
type Socket struct {
	ownership
	fd            int
	loop          *loop
	handler       Handler
	local, remote net.Addr

	token           chan struct{} // capacity 1: something has happened that the waiting owner must look at
	waiting         atomic.Bool   // the owner waits
	readBy, writeBy atomic.Int64  // deadlines, see moment; 0: none
	timer           *time.Timer   // the owner's
	muted           bool          // the owner polls, and wants no events
	ended           atomic.Bool   // the peer has closed its side, maybe behind input: no other event will tell

	mu     sync.Mutex // guards closed, and fd's number from being used by others once it is closed
	closed bool
}

var _ net.Conn = (*Socket)(nil)

// Park gives the socket to its loop, which calls the handler when something arrives. false: something has arrived since the last
// read, or that did not take all there was; the caller is still the owner and should read. After true the caller must not touch
// the socket any more.
func (s *Socket) Park() bool {
	s.unmute()
	return s.park()
}

// allEvents is what a loop wants to know of its sockets.
const allEvents = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP

func (s *Socket) listen(op int, events uint32) error {
	return unix.EpollCtl(s.loop.epfd, op, s.fd, &unix.EpollEvent{Events: events | unix.EPOLLET&0xffffffff, Fd: int32(s.fd)})
}

// Mute is for an owner who goes on reading with TryRead and Doze: no event wakes the loop meanwhile. It lasts until the owner waits
// or parks the socket.
func (s *Socket) Mute() {
	s.muted = s.listen(unix.EPOLL_CTL_MOD, 0) == nil
}

// Doze blocks until something arrives, at most so long. false: nothing has come. It keeps the processor that the goroutine runs on,
// which the scheduler can't use meanwhile: so it is for moments, and for one socket. But the thread is woken as quickly as one of a
// program without a scheduler.
func (s *Socket) Doze(d time.Duration) bool {
	p := unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN | unix.POLLRDHUP}
	limit := unix.NsecToTimespec(int64(d))
	n, _, err := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	return n > 0 && err == 0 || err == syscall.EINTR // the scheduler asks for its turn
}

// Yield is for an owner who polls: the system may run another thread on this core first.
func (s *Socket) Yield() { syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// unmute asks for events again; one comes at once for what has arrived.
func (s *Socket) unmute() {
	if s.muted {
		s.muted = false
		s.listen(unix.EPOLL_CTL_MOD, allEvents)
	}
}

// Alone says to a handler whether its socket is all that the loop has served for a while.
func (s *Socket) Alone() bool { return s.loop.last == s && s.loop.lone >= loneRounds }

// Claim makes the caller the owner of a parked socket. false: somebody else is.
func (s *Socket) Claim() bool { return s.claim() }

// TryRead reads what has arrived. Errors: ErrAgain, io.EOF, or what the system says.
func (s *Socket) TryRead(p []byte) (int, error) {
	s.takePending()
	for {
		n, _, e := syscall.RawSyscall(unix.SYS_READ, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		switch {
		case e == 0 && n == 0 && len(p) > 0:
			return 0, io.EOF
		case e == 0:
			if int(n) == len(p) || s.ended.Load() {
				s.event() // there may be more, or the end, of which no event will tell
			}
			return int(n), nil
		case e == syscall.EAGAIN:
			return 0, ErrAgain
		case e != syscall.EINTR:
			return 0, s.failed("read", e)
		}
	}
}

// TryWrite writes what the socket has room for; n < len(p) when that was not all. Errors: what the system says.
func (s *Socket) TryWrite(p []byte) (n int, err error) {
	for n < len(p) {
		k, _, e := syscall.RawSyscall(unix.SYS_WRITE, uintptr(s.fd), uintptr(unsafe.Pointer(&p[n])), uintptr(len(p)-n))
		switch {
		case e == 0:
			n += int(k)
		case e == syscall.EAGAIN:
			return n, nil
		case e != syscall.EINTR:
			return n, s.failed("write", e)
		}
	}
	return n, nil
}

func (s *Socket) failed(op string, e syscall.Errno) error {
	return &net.OpError{Op: op, Net: s.local.Network(), Source: s.local, Addr: s.remote, Err: os.NewSyscallError(op, e)}
}

// WaitRead waits until there may be input, or the read deadline: then it returns os.ErrDeadlineExceeded. Without an error the
// owner should try; there may be nothing.
func (s *Socket) WaitRead() error { return s.wait(&s.readBy) }

func (s *Socket) wait(by *atomic.Int64) error {
	s.unmute()
	s.waiting.Store(true)
	defer s.waiting.Store(false)
	var late <-chan time.Time
	if at := by.Load(); at != 0 {
		left := time.Duration(at) - now()
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		if s.timer == nil {
			s.timer = time.NewTimer(left)
		} else {
			s.timer.Reset(left)
		}
		defer s.timer.Stop()
		late = s.timer.C
	}
	if s.takePending() {
		return nil
	}
	select {
	case <-s.token:
		s.takePending()
		return nil
	case <-late:
		return os.ErrDeadlineExceeded
	}
}

// wake lets the owner, if it waits, look again.
func (s *Socket) wake() {
	if s.waiting.Load() {
		select {
		case s.token <- struct{}{}:
		default:
		}
	}
}

// HungUp says whether the peer has closed its side, also behind input that has not been read.
func (s *Socket) HungUp() bool {
	p := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}

// Read reads at least a byte, waiting for it until the read deadline.
func (s *Socket) Read(p []byte) (int, error) {
	for {
		n, err := s.TryRead(p)
		if err != ErrAgain {
			return n, err
		}
		if err := s.WaitRead(); err != nil {
			return 0, err
		}
	}
}

// Write writes all of p, or as much as the peer takes until the write deadline.
func (s *Socket) Write(p []byte) (n int, err error) {
	waited := false
	defer func() {
		if waited {
			s.event() // what the wait took for room may have been input, of which no other event will tell
		}
	}()
	for {
		k, err := s.TryWrite(p[n:])
		if n += k; err != nil || n == len(p) {
			return n, err
		}
		waited = true
		if err := s.wait(&s.writeBy); err != nil {
			return n, err
		}
	}
}

// Abort ends the connection in both directions, whoever owns the socket: its owner finds that it has ended.
func (s *Socket) Abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		unix.Shutdown(s.fd, unix.SHUT_RDWR)
	}
}

// CloseWrite ends the stream to the peer.
func (s *Socket) CloseWrite() error {
	return os.NewSyscallError("shutdown", unix.Shutdown(s.fd, unix.SHUT_WR))
}

// Close is for the owner; the socket must not be used afterwards, but for Abort and deadlines.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.closed = true
	s.loop.forget(s)
	return os.NewSyscallError("close", unix.Close(s.fd))
}

func (s *Socket) LocalAddr() net.Addr  { return s.local }
func (s *Socket) RemoteAddr() net.Addr { return s.remote }

// SetDeadline sets both deadlines.
func (s *Socket) SetDeadline(t time.Time) error {
	s.SetReadDeadline(t)
	return s.SetWriteDeadline(t)
}

// SetReadDeadline sets when waiting for input ends with os.ErrDeadlineExceeded; zero: never. It wakes an owner that waits. It does
// not keep what has arrived from being read.
func (s *Socket) SetReadDeadline(t time.Time) error {
	s.readBy.Store(moment(t))
	s.wake()
	return nil
}

// SetWriteDeadline is SetReadDeadline for writing.
func (s *Socket) SetWriteDeadline(t time.Time) error {
	s.writeBy.Store(moment(t))
	s.wake()
	return nil
}

var start = time.Now()

// now is the time since the program started, by the monotonic clock.
func now() time.Duration { return time.Since(start) }

// moment is t by that clock, and 0 for the zero time.
func moment(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	if d := t.Sub(start); d > 0 {
		return int64(d)
	}
	return -1
}

// TryWriteAll is TryWrite for several pieces, in one call of the system.
func (s *Socket) TryWriteAll(pieces [][]byte) (int, error) {
	for {
		n, err := unix.Writev(s.fd, pieces)
		switch err {
		case nil:
			return n, nil
		case syscall.EAGAIN:
			return 0, nil
		case syscall.EINTR:
		default:
			return 0, s.failed("writev", err.(syscall.Errno))
		}
	}
}

// AckNow acknowledges what has arrived without the delay that TCP allows itself.
func (s *Socket) AckNow() {
	unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) // fails where there is no such delay
}
