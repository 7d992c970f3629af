package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"qserver/bench/client"
)

// growing is one server at one number of an axis.
type growing struct {
	growOptions
	e      *env
	server *server
	msg    *message
	what   string
	at     int // the number
	found  *grown

	cs     conns
	filler *lane
	base   int64     // messages that the server counted at first
	lanes  [][]*lane // by worker: those that it uses in turn
	seen   *ledger   // of all messages
	sent   []int64   // by sender: the workers, and the one that filled
	queues int       // names that are used
	next   []int64   // by worker: the number of operations so far
	filled int64     // messages of the one that filled
	held   int64     // messages that are kept from the others
}

// open connects, and does what the axis says before anything is measured.
func (g *growing) open(ctx context.Context) error {
	connections := g.workers
	if g.what == growConnections {
		connections = g.at
		g.workers = min(g.workers, connections)
	}
	var err error
	if g.cs, err = g.server.dial(ctx, connections+1); err != nil {
		return err
	}
	for _, c := range g.cs { // a server may close those that say nothing while the backlog is filled
		if s, ok := c.(client.Streamer); ok {
			if _, err := s.Version(); err != nil {
				return err
			}
		}
	}
	filler := g.cs[connections]
	if g.base, err = filler.Count(); err != nil {
		return err
	}
	g.queues = 1
	if g.what == growQueues {
		g.queues = g.at
	}
	g.seen = newLedger(g.workers + 1)
	g.sent, g.next = make([]int64, g.workers+1), make([]int64, g.workers)
	g.lanes = make([][]*lane, g.workers)
	for i := range connections {
		l, err := g.lane(g.cs[i], i%g.workers)
		if err != nil {
			return err
		}
		g.lanes[i%g.workers] = append(g.lanes[i%g.workers], l)
	}
	if g.filler, err = g.lane(filler, g.workers); err != nil {
		return err
	}
	if err := g.fill(g.filler); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	return nil
}

// close ends the connections and the server.
func (g *growing) close() error {
	g.cs.close()
	if g.server == nil {
		return nil
	}
	return g.server.stop()
}

// lane makes the way of a sender: a worker's, or, as the last, of the one that fills.
func (g *growing) lane(c client.Conn, sender int) (*lane, error) {
	rule := queueKeys
	if g.queues > 1 {
		rule = keyForEach
	}
	l := newLane(c, rule, "grow", 0, g.msg)
	l.number = func(sequence int64) int64 { return g.seen.id(sender, sequence) }
	return l, l.prepare()
}

// fill does what the axis says before anything is measured.
func (g *growing) fill(l *lane) error {
	queue := func(sequence int64) []byte { return l.keys.at(sequence % int64(g.queues)) }
	store := func(n int64) error {
		err := l.stream(g.sent[g.workers], g.sent[g.workers]+n, queue)
		g.sent[g.workers] += n
		return err
	}
	switch g.what {
	case growBacklog, growQueues:
		p, ok := l.c.(client.Preparer)
		for queue := 0; ok && queue < g.queues; queue++ {
			if err := p.Prepare(l.keys.at(int64(queue))); err != nil {
				return err
			}
		}
		g.filled = int64(g.at)
		return store(g.filled)
	case growHeld:
		if err := store(1); err != nil {
			return err
		}
		if found, err := g.hold(l); err != nil || !found {
			return errors.Join(err, errMissing)
		}
		g.held = 1
		// What passes must come by other connections: this one acks what it got first.
		const chunk = 10_000
		other := g.lanes[0][0]
		for left := int64(g.at); left > 0; left -= chunk {
			if err := store(min(left, chunk)); err != nil {
				return err
			}
			if err := other.drainAny(g.seen); err != nil {
				return err
			}
		}
	}
	return nil
}

// hold gets a message and keeps it.
func (g *growing) hold(l *lane) (bool, error) {
	body, flags, found, err := l.c.Get(l.keys.at(0))
	if err != nil || !found {
		return false, err
	}
	return true, l.receive(g.seen, body, flags)
}

// measure has each worker store a message and then get and delete one, again and again: so what grew stays as it is. The
// rate of an operation is that of connections that do nothing else: their number over the mean time of one.
func (g *growing) measure(ctx context.Context) error {
	var times [growTimes][]*latencies // by worker
	for what := range times {
		if g.found.times[what] == nil {
			g.found.times[what] = newLatencies()
		}
		times[what] = make([]*latencies, g.workers)
		for i := range times[what] {
			times[what][i] = newLatencies()
		}
	}
	warm := time.Now().Add(g.e.warm())
	_, err := closedLoop(ctx, g.workers, g.e.warm(), g.e.window(), func(i int, done *tally, stop *atomic.Bool) error {
		for !stop.Load() {
			l, queue := g.turn(i)
			began := time.Now()
			if err := l.c.Set(l.keys.at(queue), l.msg.flags, l.msg.number(l.id(g.sent[i]))); err != nil {
				return err
			}
			g.sent[i]++
			stored := time.Now()
			got, took, err := g.takeFrom(l, queue)
			if err != nil {
				return err
			}
			if took && began.After(warm) {
				times[growSet][i].add(stored.Sub(began))
				times[growGet][i].add(got.Sub(stored))
				times[growTake][i].add(time.Since(stored))
				done.n.Add(1)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for what, each := range times {
		turn := newLatencies()
		for _, l := range each {
			turn.merge(l)
		}
		if turn.h.TotalCount() == 0 {
			return errors.New("nothing was done within the window")
		}
		g.found.times[what].merge(turn)
		g.found.rates[what] = append(g.found.rates[what], rate(float64(g.workers)*float64(time.Second)/turn.h.Mean()))
	}
	return nil
}

// turn is the lane and the queue of a worker's next operation.
func (g *growing) turn(i int) (*lane, int64) {
	n := g.next[i]
	g.next[i]++
	return g.lanes[i][n%int64(len(g.lanes[i]))], g.queue(i, n)
}

// queue spreads a worker's operations over all queues.
func (g *growing) queue(i int, n int64) int64 {
	return (n*int64(g.workers) + int64(i)) % int64(g.queues)
}

// takeFrom gets and deletes a message, if there is one. got is when it had been got.
func (g *growing) takeFrom(l *lane, queue int64) (got time.Time, took bool, err error) {
	key := l.keys.at(queue)
	body, flags, found, err := l.c.Get(key)
	got = time.Now()
	if err != nil || !found {
		return got, false, err
	}
	if err := l.receive(g.seen, body, flags); err != nil {
		return got, false, err
	}
	return got, true, deleted(l.c.Delete(key))
}

// look reads the server's memory and disk.
func (g *growing) look() error {
	if g.server.proc == nil {
		return nil
	}
	m, err := g.server.proc.memory()
	if err != nil {
		return err
	}
	g.found.rss = m.RSS
	disk, err := diskUsage(g.server.data)
	g.found.disk = disk.total()
	return err
}

// check counts what is left, and drains it unless that is too much.
func (g *growing) check() error {
	l, total := g.filler, int64(0)
	for _, n := range g.sent {
		total += n
	}
	left := total - g.seen.received()
	if got, err := awaitItems(l.c, g.base+left+g.held); err != nil || got != g.base+left+g.held {
		return errors.Join(err, fmt.Errorf("the server counts %d messages, %d are there", got-g.base, left+g.held))
	}
	if left > g.drain {
		return nil
	}
	if g.held > 0 {
		if err := deleted(l.c.Delete(l.keys.at(0))); err != nil {
			return err
		}
	}
	err := together(g.workers, func(i int) error {
		l := g.lanes[i][0]
		if g.queues == 1 {
			return l.drainAny(g.seen)
		}
		for queue := int64(i); queue < int64(g.queues); queue += int64(g.workers) {
			for found := true; found; {
				var err error
				if _, found, err = g.takeFrom(l, queue); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return errors.Join(err, g.seen.complete(g.sent))
}

const (
	// restLimit is how long servers may be at work after they were filled.
	restLimit = time.Minute
	// restful is the share of a core that a server at rest may use.
	restful = 0.05
)

// atRest waits until no server that was started here has anything to do any more, such as writing to its files what it
// was given; false if that takes too long.
func atRest(ctx context.Context, all []*growing) bool {
	const each = 300 * time.Millisecond
	last := make([]time.Duration, len(all))
	for began := time.Now(); time.Since(began) < restLimit; {
		busy := false
		for i, g := range all {
			if g.server.proc == nil {
				continue
			}
			now, err := g.server.proc.cpu()
			busy = busy || err == nil && float64(now-last[i]) > restful*float64(each)
			last[i] = now
		}
		if !busy {
			return true
		}
		select {
		case <-time.After(each):
		case <-ctx.Done():
			return false
		}
	}
	return false
}
