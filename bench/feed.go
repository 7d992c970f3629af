package main

import (
	"context"
	"sync/atomic"
	"time"
)

// A feed stores messages in an open loop: each has an intended time, and is stored then, or at once if that is over.
// Message number id is stored by lane id modulo the number of lanes.
type feed struct {
	plan  schedule
	n     int64 // messages, over all lanes
	lanes []*lane
	seen  *ledger
	sent  []int64 // by lane
	stop  atomic.Bool
}

// newFeed connects producers to a queue. The plan has to be set before run.
func newFeed(cs conns, queue string, msg *message) (*feed, error) {
	f := &feed{seen: newLedger(len(cs)), sent: make([]int64, len(cs))}
	for i, c := range cs {
		l := newLane(c, queueKeys, queue, i, msg)
		l.number = func(sequence int64) int64 { return f.seen.id(i, sequence) }
		if err := l.prepare(); err != nil {
			return nil, err
		}
		f.lanes = append(f.lanes, l)
	}
	return f, nil
}

// schedule plans messages at a rate for a warm-up and a window, from soon on.
func (f *feed) schedule(perSecond rate, warm, window time.Duration) {
	f.plan = schedule{
		start:    time.Now().Add(20 * time.Millisecond),
		distance: time.Duration(float64(time.Second) / float64(perSecond)),
		measured: int64(warm.Seconds() * float64(perSecond)),
	}
	f.n = int64((warm + window).Seconds() * float64(perSecond))
}

// run stores all messages, or until stop is set or ctx ends.
func (f *feed) run(ctx context.Context) error {
	return together(len(f.lanes), func(i int) error {
		l := f.lanes[i]
		ticks, err := newPacer(f.plan.time(l.id(0)), f.plan.distance*time.Duration(len(f.lanes)))
		if err != nil {
			return err
		}
		defer ticks.close()
		for {
			due, err := ticks.wait()
			if err != nil {
				return err
			}
			for ; due > 0; due-- {
				if l.id(f.sent[i]) >= f.n || f.stop.Load() {
					return nil
				}
				if err := context.Cause(ctx); err != nil {
					return err
				}
				if err := l.set(f.sent[i]); err != nil {
					return err
				}
				f.sent[i]++
			}
		}
	})
}

// total is how many messages were stored.
func (f *feed) total() (n int64) {
	for _, s := range f.sent {
		n += s
	}
	return n
}
