package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
)

func growScenario() scenario {
	return scenario{
		name:    "grow",
		title:   "what it costs when work grows: backlog, queues, connections, one old unacked message",
		servers: "qserver/enqueue",
		seconds: 1,
		turns:   3,
		about: `
For each number on each of -axes: a server started anew gets so many messages of backlog in the queue that is used, or
so many queues with a message each, or so many connections that are used in turn by -workers goroutines (for the other
axes each has its own), or so many messages stored, taken and acked while one older than all of them stays unacked. Then
each worker stores a message and gets and deletes one, again and again, so that what grew stays as it is: the rate of
an operation (workers over its mean time), its p99, the server's RSS, its folder on the disk. A cost that grows shows as
a rate that falls: aims are 0.85 with 10 M messages behind the head of a queue, of the rate with 10, and 0.7 with
100,000 queues, of the rate with 1. Every message is received once with its bytes; where the backlog is larger than
-drain it is left undrained, and counted.`,
		prepare: func(fs *flag.FlagSet) func(context.Context, *env, *report) error {
			var o growOptions
			axes := fs.String("axes", "backlog,queues,connections,held", "what grows")
			lists := map[string]*string{
				growBacklog:     fs.String("backlog", "10,10000,100000", "messages of backlog; the whole of it: 10,1000,100000,1000000,10000000"),
				growQueues:      fs.String("queues", "1,1000,10000", "queues; the whole of it: 1,1000,10000,100000"),
				growConnections: fs.String("connections", "1,64,1000", "connections; the whole of it: 1,8,64,1000,10000"),
				growHeld:        fs.String("held", "1000,50000", "messages that pass one that is held; the whole of it: 1000,100000,1000000"),
			}
			fs.IntVar(&o.workers, "workers", 8, "goroutines that store and take")
			fs.IntVar(&o.size, "size", 200, "bytes of a body")
			fs.Int64Var(&o.drain, "drain", 1_000_000, "largest backlog that is drained and checked in the end")
			return func(ctx context.Context, e *env, r *report) error {
				for word := range strings.SplitSeq(*axes, ",") {
					list := lists[strings.TrimSpace(word)]
					if list == nil {
						return fmt.Errorf("-axes: %q is none of backlog, queues, connections, held", word)
					}
					numbers, err := parseNumbers(*list)
					if err != nil {
						return fmt.Errorf("-%s: %w", word, err)
					}
					o.axes = append(o.axes, growAxis{strings.TrimSpace(word), numbers})
				}
				return runGrow(ctx, e, r, o)
			}
		},
	}
}

const (
	growBacklog     = "backlog"
	growQueues      = "queues"
	growConnections = "connections"
	growHeld        = "held"
)

// growAims are the least that a rate at so many of an axis should be of that at its smallest number.
var growAims = map[string]struct {
	at    int
	least aim
}{growBacklog: {10_000_000, 0.85}, growQueues: {100_000, 0.7}}

type growAxis struct {
	what    string
	numbers []int
}

type growOptions struct {
	axes          []growAxis
	workers, size int
	drain         int64
}

// grown is what was found of one server at one number, turn by turn.
type grown struct {
	set, take     []rate
	setAt, takeAt *latencies
	rss           size // of the last turn
	disk          size
}

func runGrow(ctx context.Context, e *env, r *report, o growOptions) error {
	if o.workers < 1 {
		return errors.New("-workers must be above 0")
	}
	all, err := e.queues(r, anyQueue)
	if err != nil {
		return err
	}
	msg, err := newMessage(o.size)
	if err != nil {
		return err
	}
	for _, axis := range o.axes {
		if axis.what == growConnections {
			if err := raiseFileLimit(slices.Max(axis.numbers) + 200); err != nil {
				return err
			}
		}
		found := make([][]grown, len(axis.numbers)) // by number, by contestant
		for at, n := range axis.numbers {
			found[at] = make([]grown, len(all))
			err := e.inTurns(ctx, all, fmt.Sprintf("%s %s", axis.what, count(n)), func(s *server, which, _ int) error {
				g := &growing{growOptions: o, e: e, server: s, msg: msg, what: axis.what, at: n}
				return g.run(ctx, &found[at][which])
			})
			if err != nil {
				return err
			}
		}
		axis.report(r, all, found)
	}
	r.noteServers(e, all)
	return nil
}

// report writes the tables and plots of an axis.
func (a growAxis) report(r *report, all []contestant, found [][]grown) {
	titles := map[string]string{
		growBacklog:     "messages of backlog in the queue",
		growQueues:      "queues with a message each",
		growConnections: "connections, used in turn",
		growHeld:        "messages that passed one that is held",
	}
	title := titles[a.what]
	t := r.table(title, "server", a.what, "set a second", "set p99", "get+delete a second", "get+delete p99", "of the first", "aim", "RSS", "on disk")
	rates := r.plot(title+": rates", title, "a second", true, false)
	memory := r.plot(title+": memory", title, "MiB", true, false)
	for i, c := range all {
		for at, n := range a.numbers {
			f := found[at][i]
			var least any
			if a, ok := growAims[a.what]; ok && n == a.at && ours(c) {
				least = a.least
			}
			set, take := spreadOf(f.set), spreadOf(f.take)
			t.row(c.name, count(n), set, span(f.setAt.h.ValueAtPercentile(99)), take, span(f.takeAt.h.ValueAtPercentile(99)),
				spreadOf(ratios(f.take, found[0][i].take)), least, f.rss, f.disk)
			rates.point(c.name+", set", float64(n), float64(set.Median))
			rates.point(c.name+", get+delete", float64(n), float64(take.Median))
			memory.point(c.name, float64(n), float64(f.rss)/(1<<20))
		}
	}
}
