package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"qserver/bench/client"
)

// claim is one trial: a server, a rate, workers that take jobs in one way.
type claim struct {
	claimOptions
	e       *env
	server  *server
	wanted  rate
	workers int
	mode    string

	through rate
	busy    float64    // workers, in the mean of the window
	start   *latencies // from the intended time to the start of the job
	gets    rate
	cpu     any // a share of one core, nil where it is not known

	feed  *feed
	quit  atomic.Bool // workers are to take no more
	asked atomic.Int64
}

// claimProducers store the jobs; few do, since each is answered within a fraction of a job.
const claimProducers = 4

func (c *claim) run(ctx context.Context) error {
	if err := raiseFileLimit(c.workers + 100); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	cs, err := c.server.dial(ctx, claimProducers+c.workers)
	if err != nil {
		return err
	}
	defer cs.close()
	msg, err := newMessage(200)
	if err != nil {
		return err
	}
	if c.feed, err = newFeed(cs[:claimProducers], "jobs", msg); err != nil {
		return err
	}
	mine := make([]worked, c.workers)
	start := newSharedLatencies()
	var working sync.WaitGroup
	c.feed.schedule(c.wanted, c.e.warm()+c.job, c.e.window())
	for i := range c.workers {
		working.Go(func() {
			if err := c.work(cs[claimProducers+i], msg, start, &mine[i]); err != nil {
				fail(err)
			}
		})
	}
	var measuring sync.WaitGroup
	measuring.Go(func() { c.measure(ctx) })
	err = c.feed.run(ctx)
	measuring.Wait()
	c.drain(ctx)
	working.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	// What no worker came to is taken here, for the check.
	if err := c.feed.lanes[0].drainAny(c.feed.seen); err != nil {
		return err
	}
	c.start = start.all
	c.sum(mine)
	return c.feed.seen.complete(c.feed.sent)
}

// worked is what one worker did of the jobs that count.
type worked struct {
	time     time.Duration // in jobs, within the window
	finished int64         // within the window
}

// window is when jobs count.
func (c *claim) window() (from, to time.Time) {
	return c.feed.plan.time(c.feed.plan.measured), c.feed.plan.time(c.feed.n)
}

// work takes jobs until there are no more.
func (c *claim) work(conn client.Conn, msg *message, start recorder, mine *worked) error {
	l := newLane(conn, queueKeys, "jobs", 0, msg)
	if err := l.prepare(); err != nil {
		return err
	}
	key := l.keys.at(0)
	from, to := c.window()
	for !c.quit.Load() {
		ids, err := c.take(l, key)
		if err != nil {
			return err
		}
		for _, id := range ids {
			began := time.Now()
			c.feed.plan.record(start, id)
			time.Sleep(c.job)
			ended := time.Now()
			if d := earlier(ended, to).Sub(later(began, from)); d > 0 {
				mine.time += d
			}
			if ended.After(from) && ended.Before(to) {
				mine.finished++
			}
			if err := deleted(conn.Delete(key)); err != nil {
				return err
			}
		}
		if len(ids) == 0 && c.mode == "poll" {
			time.Sleep(c.poll)
		}
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// take returns the numbers of the jobs that were there, as the mode says.
func (c *claim) take(l *lane, key []byte) ([]int64, error) {
	wait := c.wait
	if c.mode == "poll" {
		wait = 0
	}
	c.asked.Add(1)
	var body []byte
	var flags uint32
	var found bool
	var err error
	if wait == 0 {
		body, flags, found, err = l.c.Get(key)
	} else {
		body, flags, found, err = l.c.GetWait(key, wait)
	}
	if err != nil || !found {
		return nil, err
	}
	id, err := l.msg.read(body, flags)
	if err == nil {
		err = c.feed.seen.mark(id)
	}
	if err != nil || c.mode != "batch" || c.k == 1 {
		return []int64{id}, err
	}
	ids := []int64{id}
	for range c.k - 1 {
		l.c.AppendGet(key)
	}
	c.asked.Add(int64(c.k - 1))
	if err := l.c.Flush(); err != nil {
		return nil, err
	}
	for range c.k - 1 {
		body, flags, found, err := l.c.ReadValue()
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		id, err := l.msg.read(body, flags)
		if err == nil {
			err = c.feed.seen.mark(id)
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// measure takes the server's time on the cores and the number of gets within the window.
func (c *claim) measure(ctx context.Context) {
	from, to := c.window()
	until := func(t time.Time) {
		select {
		case <-time.After(time.Until(t)):
		case <-ctx.Done():
		}
	}
	cpu := func() (time.Duration, error) {
		if c.server.proc == nil {
			return 0, errors.New("not started here")
		}
		return c.server.proc.cpu()
	}
	until(from)
	before, err := cpu()
	asked := c.asked.Load()
	until(to)
	after, err2 := cpu()
	took := to.Sub(from).Seconds()
	c.gets = rate(float64(c.asked.Load()-asked) / took)
	if errors.Join(err, err2) == nil {
		c.cpu = share((after - before).Seconds() / took)
	}
}

// drain gives the workers as long as one second's limit and two jobs for what is left, and then ends them.
func (c *claim) drain(ctx context.Context) {
	limit := time.Now().Add(startLimit + 2*c.job)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for total := c.feed.total(); c.feed.seen.received() < total && time.Now().Before(limit) && ctx.Err() == nil; {
		<-tick.C
	}
	c.quit.Store(true)
}

// startLimit is how late p99 of the jobs may start in a step that counts as passed.
const startLimit = time.Second

func (c *claim) sum(all []worked) {
	var finished int64
	var busy time.Duration
	for _, w := range all {
		finished += w.finished
		busy += w.time
	}
	// Jobs that never started are as late as can be.
	for missing := c.feed.n - c.feed.plan.measured - c.start.h.TotalCount(); missing > 0; missing-- {
		c.start.add(time.Duration(maxLatency))
	}
	from, to := c.window()
	window := to.Sub(from)
	c.through = rate(float64(finished) / window.Seconds())
	c.busy = float64(busy) / float64(window)
}

func (c *claim) keptUp() string {
	if float64(c.through) >= 0.95*float64(c.wanted) && c.start.h.ValueAtPercentile(99) < int64(startLimit) {
		return "yes"
	}
	return fmt.Sprintf("no: %.0f %%", 100*float64(c.through/c.wanted))
}
