package main

import (
	"encoding/binary"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A pacer wakes one goroutine at even distances. The runtime's timers may fire a millisecond late on an idle
// program, which would be counted as the server's latency; a timerfd is precise to microseconds and costs no spinning.
type pacer struct {
	file *os.File
	buf  [8]byte
}

// newPacer ticks first after `after`, then each period; both are above 0.
func newPacer(after, period time.Duration) (*pacer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(after)), Interval: unix.NsecToTimespec(int64(period))}
	if err := unix.TimerfdSettime(fd, 0, &spec, nil); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("timerfd_settime", err)
	}
	return &pacer{file: os.NewFile(uintptr(fd), "timerfd")}, nil
}

// wait returns how many ticks have passed since the last call, at least 1.
func (p *pacer) wait() (int64, error) {
	if _, err := p.file.Read(p.buf[:]); err != nil {
		return 0, err
	}
	return int64(binary.NativeEndian.Uint64(p.buf[:])), nil
}

func (p *pacer) close() { p.file.Close() }
