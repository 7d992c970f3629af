package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"time"
)

func backlogScenario() scenario {
	return scenario{
		name:    "backlog",
		title:   "a backlog of 3,000,000 messages, unless -n says otherwise: memory, disk, start-up, get at the head, and the disk coming back",
		servers: "qserver/enqueue",
		seconds: 1,
		turns:   5,
		about: `
Stores -n messages of the blog's payload in one queue of a server with -memory, and follows its memory (anonymous
and mapped apart, and their peaks) and its disk (allocated blocks) through the phases: empty; filled; after kill -9
and a start; after a checkpoint; after SIGTERM and a start. Then the rate of get and get+delete at the head of the
backlog beside that of a queue that holds next to nothing, in -turns turns within one session; then all is drained,
and the time until the folder has shrunk is taken. One message is held, unacked, from before the first get at the
head to the end (-hold=false: none). Every message is received once with its bytes.`,
		prepare: func(fs *flag.FlagSet) func(context.Context, *env, *report) error {
			var o backlogOptions
			fs.Int64Var(&o.n, "n", 3_000_000, "messages")
			fs.StringVar(&o.memory, "memory", "64MiB", "the server's -memory, in MiB")
			fs.IntVar(&o.connections, "connections", 16, "connections that store")
			fs.BoolVar(&o.hold, "hold", true, "hold one message unacked until the end")
			fs.DurationVar(&o.settle, "settle", time.Minute, "how long to wait for the folder to shrink")
			return func(ctx context.Context, e *env, r *report) error { return runBacklog(ctx, e, r, o) }
		},
	}
}

type backlogOptions struct {
	n           int64
	memory      string
	connections int
	hold        bool
	settle      time.Duration
}

// budget is -memory in bytes.
func (o backlogOptions) budget() (size, error) {
	var n int64
	if _, err := fmt.Sscanf(o.memory, "%dMiB", &n); err != nil || n < 1 {
		return 0, fmt.Errorf("-memory %q is not a number of MiB", o.memory)
	}
	return size(n) << 20, nil
}

// headConnections are the numbers of connections that get at the head: at one the round trip counts, at several the
// server's own work.
var headConnections = []int{1, 16}

func runBacklog(ctx context.Context, e *env, r *report, o backlogOptions) error {
	budget, err := o.budget()
	if err != nil {
		return err
	}
	if o.n < 1000 || o.connections < 1 {
		return errors.New("-n must be at least 1,000 and -connections above 0")
	}
	all, err := e.queues(r, ours)
	if err != nil {
		return err
	}
	for _, c := range all {
		s, err := c.start(ctx, e, "-memory", o.memory)
		if err != nil {
			return err
		}
		b := &backlog{backlogOptions: o, e: e, r: r, s: s, budget: budget, seen: newLedger(o.connections)}
		err = b.run(ctx)
		if err := errors.Join(err, s.stop()); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// backlog is the run on one server.
type backlog struct {
	backlogOptions
	e      *env
	r      *report
	s      *server
	w      *watch
	budget size

	seen  *ledger
	sent  []int64 // by connection
	heads [2]spread[ratio]
	full  usage // after the checkpoint
}

const (
	backlogQueue = "backlog"
	emptyQueue   = "empty"
)

// shrunk is what a folder whose messages are all acked may occupy: 64 MiB and two segments of the log.
const shrunk = 3 * 64 << 20

func (b *backlog) run(ctx context.Context) (err error) {
	if b.w, err = newWatch(b.r, b.s); err != nil {
		return err
	}
	b.e.step("backlog, "+b.s.name, b.n)
	steps := []func() error{
		func() error { return b.w.phase("empty", 0, func() error { return nil }) },
		func() error { return b.w.phase("filled", b.n, func() error { return b.fill(ctx) }) },
		func() error { return b.w.restart(ctx, true) },
		func() error {
			return b.w.phase("checkpoint, settled", 0, func() (err error) { b.full, err = b.w.checkpoint(ctx, b.settle); return err })
		},
		func() error { return b.w.restart(ctx, false) },
		func() error { return b.empty(ctx) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	b.figures(b.r.table(b.s.name+": figures", "figure", "measured", "aim"))
	return nil
}

// fill stores all messages; each connection its share.
func (b *backlog) fill(ctx context.Context) error {
	cs, err := b.s.dial(ctx, b.connections)
	if err != nil {
		return err
	}
	defer cs.close()
	b.sent = make([]int64, b.connections)
	err = together(b.connections, func(i int) error {
		l := newLane(cs[i], queueKeys, backlogQueue, i, blogMessage())
		l.number = func(sequence int64) int64 { return b.seen.id(i, sequence) }
		for l.id(b.sent[i]) < b.n {
			if err := l.set(b.sent[i]); err != nil {
				return err
			}
			b.sent[i]++
			if i == 0 {
				b.e.bar.set(b.sent[i] * int64(b.connections))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.s.checkCount(ctx, cs[0], backlogQueue, 0, b.n)
}

// empty reads at the head, drains, waits for the folder to shrink, and acks the message that was held.
func (b *backlog) empty(ctx context.Context) error {
	cs, err := b.s.dial(ctx, 1)
	if err != nil {
		return err
	}
	defer cs.close()
	holder := newLane(cs[0], queueKeys, backlogQueue, 0, blogMessage())
	if err := b.s.checkCount(ctx, holder.c, backlogQueue, 0, b.n); err != nil {
		return err
	}
	left := int64(0)
	if b.hold {
		left = 1
		body, flags, found, err := holder.c.Get(holder.keys.at(0))
		if err == nil && !found {
			err = errMissing
		}
		if err == nil {
			err = holder.receive(b.seen, body, flags)
		}
		if err != nil {
			return fmt.Errorf("hold: %w", err)
		}
	}
	if err := b.w.phase("got at the head", 0, func() error { return b.head(ctx) }); err != nil {
		return err
	}
	rest := b.n - b.seen.received()
	if err := b.w.phase("drained", rest, func() error { return b.drain(ctx) }); err != nil {
		return err
	}
	if err := errors.Join(b.seen.complete(b.sent), b.s.checkCount(ctx, holder.c, backlogQueue, 0, left)); err != nil {
		return err
	}
	err = b.w.phase("folder settled", 0, func() error {
		u, changed, err := b.w.settle(ctx, shrunk, b.settle)
		b.r.note("%s: the folder last changed %s after the drain, to %s", b.s.name, span(changed), u.total())
		return err
	})
	if err != nil || !b.hold {
		return err
	}
	if err := deleted(holder.c.Delete(holder.keys.at(0))); err != nil {
		return fmt.Errorf("ack of the message that was held: %w", err)
	}
	return b.s.checkCount(ctx, holder.c, backlogQueue, 0, 0)
}

// head compares getting at the head of the backlog with getting from a queue that holds next to nothing.
func (b *backlog) head(ctx context.Context) error {
	t := b.r.table(b.s.name+": at the head of the backlog and at an empty queue's, a second",
		"operation", "connections", "backlog", "empty queue", "ratio")
	messages := min(20_000, b.n/int64(4*b.e.turns*len(headConnections)))
	for at, n := range headConnections {
		var gets, pairs [2][]rate // backlog, empty queue
		for range b.e.turns {
			for which := range 2 {
				get, pair, err := b.headTurn(ctx, n, max(messages/int64(n), 1), which == 0)
				if err != nil {
					return err
				}
				gets[which], pairs[which] = append(gets[which], get), append(pairs[which], pair)
			}
		}
		b.heads[at] = spreadOf(ratios(gets[0], gets[1]))
		t.row("get", count(n), spreadOf(gets[0]), spreadOf(gets[1]), b.heads[at])
		t.row("get+delete", count(n), spreadOf(pairs[0]), spreadOf(pairs[1]), spreadOf(ratios(pairs[0], pairs[1])))
	}
	return nil
}

// headTurn takes each messages by each of n connections, from the backlog or from a queue filled with just these.
// The rate of get alone is that of connections which do nothing else: n over the mean time of one.
func (b *backlog) headTurn(ctx context.Context, n int, each int64, deep bool) (get, pair rate, err error) {
	cs, err := b.s.dial(ctx, n)
	if err != nil {
		return 0, 0, err
	}
	defer cs.close()
	queue, seen := backlogQueue, b.seen
	if !deep {
		queue, seen = emptyQueue, newLedger(1)
		if err := newLane(cs[0], queueKeys, queue, 0, blogMessage()).fill(each * int64(n)); err != nil {
			return 0, 0, err
		}
	}
	var inGet atomic.Int64
	began := time.Now()
	err = together(n, func(i int) error {
		l := newLane(cs[i], queueKeys, queue, i, blogMessage())
		var mine time.Duration
		for range each {
			began := time.Now()
			body, flags, found, err := l.c.Get(l.keys.at(0))
			mine += time.Since(began)
			if err == nil && !found {
				err = errMissing
			}
			if err != nil {
				return err
			}
			if err := l.receive(seen, body, flags); err != nil {
				return err
			}
			if err := deleted(l.c.Delete(l.keys.at(0))); err != nil {
				return err
			}
		}
		inGet.Add(int64(mine))
		return nil
	})
	pair = rate(float64(each*int64(n)) / time.Since(began).Seconds())
	get = rate(float64(each*int64(n*n)) / time.Duration(inGet.Load()).Seconds())
	return get, pair, err
}

// drainConnections pipeline what is left of a backlog.
const drainConnections = 4

func (b *backlog) drain(ctx context.Context) error {
	cs, err := b.s.dial(ctx, drainConnections)
	if err != nil {
		return err
	}
	defer cs.close()
	return together(drainConnections, func(i int) error {
		return newLane(cs[i], queueKeys, backlogQueue, i, blogMessage()).drainAny(b.seen)
	})
}

// figures puts what was measured beside what is aimed at.
func (b *backlog) figures(t *table) {
	payload := size(b.n) * size(len(blogBody))
	after, _ := diskUsage(b.s.data)
	t.row("anonymous memory, highest, above -memory and an empty server's", b.w.most.Anon-b.w.empty.Anon-b.budget, "64 MiB at most")
	t.row("RSS, highest, all told", b.w.most.RSS, "under 160 MB, 152.6 MiB (Kyoto Tycoon: 162,640 kB)")
	t.row("bytes on disk after a checkpoint, without the log, by payload bytes", ratio(float64(b.full.Rest)/float64(payload)), "1.35 at most (Kyoto Tycoon: 1.11)")
	t.row("log on disk after a checkpoint", b.full.Log, "two segments")
	for i, n := range headConnections {
		t.row(fmt.Sprintf("get at the head by an empty queue's, connections: %d", n), b.heads[i], "0.85 at least")
	}
	t.row("folder after all was acked", after.total(), "64 MiB and two segments at most")
}
