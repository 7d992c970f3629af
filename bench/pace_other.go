//go:build !linux

package main

import "time"

// A pacer wakes one goroutine at even distances from a moment on, by the runtime's timers.
type pacer struct {
	next   time.Time
	period time.Duration
}

// newPacer ticks at first, then each period, which is above 0. What is over already ticks at once.
func newPacer(first time.Time, period time.Duration) (*pacer, error) {
	return &pacer{next: first, period: period}, nil
}

// wait returns how many ticks have passed since the last call, at least 1.
func (p *pacer) wait() (int64, error) {
	time.Sleep(time.Until(p.next))
	n := int64(time.Since(p.next)/p.period) + 1
	p.next = p.next.Add(time.Duration(n) * p.period)
	return n, nil
}

func (p *pacer) close() {}
