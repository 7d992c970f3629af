package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// jobTrial is one step: a rate, a workforce, a server of its own.
type jobTrial struct {
	*search
	server *server
	wanted rate
	force  workforce

	start, finish *latencies      // enqueue→start, start→finish
	frames        []time.Duration // p99 enqueue→start of each frame
	worst         time.Duration   // of these
	passed        bool

	feed    *feed
	mu      sync.Mutex // guards started and the latencies
	started []*latencies
	crew    []*crewman
}

// warmup is how long jobs come before they count: as long as asked for, and the time of a few jobs.
func (t *jobTrial) warmup() time.Duration { return t.e.warm() + 2*t.perJob[t.kind] }

func (t *jobTrial) run(ctx context.Context) (err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	cs, err := t.server.dial(ctx, claimProducers)
	if err != nil {
		return err
	}
	defer cs.close()
	msg, err := newMessage(jobBytes)
	if err != nil {
		return err
	}
	if t.feed, err = newFeed(cs, jobQueue, msg); err != nil {
		return err
	}
	t.start, t.finish = newLatencies(), newLatencies()
	for range int(t.e.window() / t.frame) {
		t.started = append(t.started, newLatencies())
	}
	err = t.hire(ctx)
	t.feed.schedule(t.wanted, t.warmup(), t.e.window())
	for _, c := range t.crew {
		go func() {
			err := t.listen(c.out)
			if err != nil {
				fail(err)
			}
			c.done <- err
		}()
	}
	if err != nil {
		return errors.Join(err, t.dismiss())
	}
	var judging sync.WaitGroup
	judging.Go(func() { t.judge(ctx) })
	err = t.feed.run(ctx)
	judging.Wait()
	t.finishAll(ctx)
	err = errors.Join(err, t.dismiss())
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	if err := t.feed.lanes[0].drainAny(t.feed.seen); err != nil {
		return err
	}
	// A worker that was ended in the midst of a job has given it back unless it was told of: then it is drained here.
	return t.feed.seen.complete(t.feed.sent)
}

// judge looks at each frame when its jobs are due to have started, and ends the step with the first that fails.
func (t *jobTrial) judge(ctx context.Context) {
	t.passed = true
	first := t.feed.plan.measured
	each := int64(t.frame.Seconds() * float64(t.wanted))
	for i := range t.started {
		due := t.feed.plan.time(first + int64(i+1)*each).Add(startLimit + 100*time.Millisecond)
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			t.passed = false
			return
		}
		t.mu.Lock()
		l := t.started[i]
		for missing := each - l.h.TotalCount(); missing > 0; missing-- {
			l.add(time.Duration(maxLatency)) // what has not started yet
		}
		p99 := time.Duration(l.h.ValueAtPercentile(99))
		t.mu.Unlock()
		t.frames, t.worst = append(t.frames, p99), max(t.worst, p99)
		if p99 > startLimit {
			t.passed = false
			t.feed.stop.Store(true)
			return
		}
	}
}

// finishAll gives the crew a moment for the jobs that are left, where they are few.
func (t *jobTrial) finishAll(ctx context.Context) {
	limit := time.Now().Add(startLimit + 4*t.perJob[t.kind])
	for total := t.feed.total(); t.passed && t.feed.seen.received() < total && time.Now().Before(limit) && ctx.Err() == nil; {
		time.Sleep(10 * time.Millisecond)
	}
}

// told takes what a worker tells of a job: its number, when it started and when it finished.
func (t *jobTrial) told(id int64, start, finish time.Time) error {
	if err := t.feed.seen.mark(id); err != nil {
		return err
	}
	if id < t.feed.plan.measured {
		return nil
	}
	late := start.Sub(t.feed.plan.time(id))
	frame := int((id - t.feed.plan.measured) / int64(t.frame.Seconds()*float64(t.wanted)))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.start.add(late)
	t.finish.add(finish.Sub(start))
	if frame < len(t.started) {
		t.started[frame].add(late)
	}
	return nil
}

// A crewman is a process of workers. It ends when its standard input does.
type crewman struct {
	cmd  *exec.Cmd
	in   io.Closer
	out  *bufio.Scanner
	done chan error // what it told was read to the end
}

// hire starts the processes and waits until each is connected.
func (t *jobTrial) hire(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for range t.force.processes {
		cmd := exec.CommandContext(ctx, self, workerCommand, "-protocol", t.server.protocol, "-addr", t.server.addr,
			"-threads", strconv.Itoa(t.force.threads), "-kind", t.kind, "-url", t.url, "-cost", strconv.Itoa(t.cost), "-cores", strconv.Itoa(t.cores), "-wait", t.wait.String())
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		c := &crewman{cmd: cmd, in: in, out: bufio.NewScanner(out), done: make(chan error, 1)}
		t.crew = append(t.crew, c)
		if !c.out.Scan() || c.out.Text() != workerReady {
			return errors.New("a process of workers did not start")
		}
	}
	return nil
}

// listen reads what a process tells until it ends.
func (t *jobTrial) listen(lines *bufio.Scanner) error {
	for lines.Scan() {
		var id, start, finish int64
		if _, err := fmt.Sscan(lines.Text(), &id, &start, &finish); err != nil {
			return fmt.Errorf("a worker told %q", lines.Text())
		}
		if err := t.told(id, time.Unix(0, start), time.Unix(0, finish)); err != nil {
			return err
		}
	}
	return lines.Err()
}

// dismiss ends the processes and waits for them.
func (t *jobTrial) dismiss() error {
	var errs []error
	for _, c := range t.crew {
		c.in.Close()
	}
	for _, c := range t.crew {
		errs = append(errs, <-c.done, c.cmd.Wait())
	}
	return errors.Join(errs...)
}
