package main

import (
	"encoding/binary"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A pacer wakes one goroutine at even distances from a moment on. The runtime's timers may fire a millisecond late on an
// idle program, which would be counted as the server's latency; a timerfd is precise to microseconds and costs no spinning.
type pacer struct {
	file *os.File
	buf  [8]byte
}

// newPacer ticks at first, then each period, which is above 0. What is over already ticks at once: whoever begins late
// has the more to do, and not all of it later.
func newPacer(first time.Time, period time.Duration) (*pacer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("clock_gettime", err)
	}
	at := max(now.Nano()+int64(time.Until(first)), 1) // 0 would be no timer
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(at), Interval: unix.NsecToTimespec(int64(period))}
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
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
