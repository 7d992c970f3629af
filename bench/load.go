package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A tally counts what one worker has done; only that worker adds to it. It fills a cache line of its own.
type tally struct {
	n atomic.Int64
	_ [56]byte
}

// A job is the work of one worker, in a closed loop: it adds one to its tally for each operation, and returns when
// stop is true or nothing is left to do.
type job func(worker int, done *tally, stop *atomic.Bool) error

// minWindow is the shortest window from which a rate is taken.
const minWindow = 20 * time.Millisecond

// errShort says that there was less to do than a rate can be taken of.
var errShort = errors.New("too short a window for a rate")

// closedLoop runs a job in n workers and returns the operations a second of all in a window that begins warm after
// the start. The window ends after its length or as soon as one worker returns, since from then on fewer work; then
// stop is set and closedLoop waits for the others. Nothing is in the measured path but the workers' own tallies.
func closedLoop(ctx context.Context, n int, warm, window time.Duration, work job) (perSecond float64, err error) {
	tallies := make([]tally, n)
	errs := make([]error, n)
	ended := make(chan struct{}, n) // one place a worker: none waits for the reader
	var stop atomic.Bool
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			errs[i] = work(i, &tallies[i], &stop)
			ended <- struct{}{}
		})
	}
	sum := func() (total int64) {
		for i := range tallies {
			total += tallies[i].n.Load()
		}
		return total
	}
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		case <-ended:
			ended <- struct{}{}
		}
	}
	wait(warm)
	from, began := sum(), time.Now()
	wait(window)
	done, took := sum()-from, time.Since(began)
	stop.Store(true)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	if took < min(window, minWindow) {
		return 0, fmt.Errorf("all was done after %s: %w", took.Round(time.Millisecond), errShort)
	}
	return float64(done) / took.Seconds(), nil
}

// together runs work in n goroutines, waits for all and returns their errors joined.
func together(n int, work func(worker int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = work(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
