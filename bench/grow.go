package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
)

func growScenario() scenario {
	return scenario{
		name:    "grow",
		title:   "what it costs when work grows: backlog, queues, connections, one old unacked message",
		servers: "qserver/enqueue",
		seconds: 0.5,
		turns:   5,
		about: `
For each number on each of -axes a server of its own gets so many messages of backlog in the queue that is used, or
so many queues with a message each, or so many connections that are used in turn by -workers goroutines (for the other
axes each has its own), or so many messages stored, taken and acked while one older than all of them stays unacked. When
all of an axis are filled and have come to rest, they are measured in -turns turns, the smallest number first, one beside
the other: each worker stores a message and gets and deletes one, again and again, so that what grew stays as it is. The
rate of an operation is the workers over its mean time; then its p99, the server's RSS, its folder on the disk. A cost
that grows shows as a rate that falls; ratios are of the first number's, turn by turn. Aims: get with 10 M messages
behind the head of a queue 0.85 of that with 10, and get+delete with 100,000 queues 0.7 of that with 1. Every message is
received once with its bytes; where the backlog is larger than -drain it is left undrained, and counted.`,
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
	least string
}{growBacklog: {10_000_000, "get 0.85"}, growQueues: {100_000, "get+delete 0.7"}}

type growAxis struct {
	what    string
	numbers []int
}

type growOptions struct {
	axes          []growAxis
	workers, size int
	drain         int64
}

// What is timed.
const (
	growSet = iota
	growGet
	growTake // get+delete
	growTimes
)

// grown is what was found of one server at one number.
type grown struct {
	rates [growTimes][]rate     // turn by turn
	times [growTimes]*latencies // of all turns
	rss   size                  // after the last turn
	disk  size
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
			needed := 200
			for _, n := range axis.numbers {
				needed += n + 20
			}
			if err := raiseFileLimit(needed); err != nil {
				return err
			}
		}
		found := make([][]grown, len(axis.numbers)) // by number, by contestant
		for at := range found {
			found[at] = make([]grown, len(all))
		}
		for which, c := range all {
			var group []*growing
			for at, n := range axis.numbers {
				g := &growing{growOptions: o, e: e, msg: msg, what: axis.what, at: n, found: &found[at][which]}
				group = append(group, g)
				if c.word == "" && at < len(axis.numbers)-1 {
					continue
				}
				// One that is running already is there only once.
				if err := axis.run(ctx, e, r, c, group); err != nil {
					return fmt.Errorf("%s, %s: %w", c.name, axis.what, err)
				}
				group = nil
			}
		}
		axis.report(r, all, found)
	}
	r.noteServers(e, all)
	return nil
}

// run measures one contestant at some numbers of an axis: a server for each, all of which are there at once.
func (a growAxis) run(ctx context.Context, e *env, r *report, c contestant, all []*growing) (err error) {
	defer func() {
		for _, g := range all {
			err = errors.Join(err, g.close())
		}
	}()
	what := a.what + ", " + c.name
	e.step(what, int64((1+e.turns)*len(all)))
	done := int64(0)
	step := func() { done++; e.bar.set(done) }
	for _, g := range all {
		e.bar.name(fmt.Sprintf("%s: fill %s", what, count(g.at)))
		if g.server, err = c.start(ctx, e); err != nil {
			return err
		}
		if err := g.open(ctx); err != nil {
			return fmt.Errorf("%s: %w", count(g.at), err)
		}
		step()
	}
	if !atRest(ctx, all) {
		r.note("%s, %s: a server was still at work %s after it had been filled", c.name, a.what, restLimit)
	}
	for range e.turns {
		for _, g := range all {
			e.bar.name(fmt.Sprintf("%s: %s", what, count(g.at)))
			if err := g.measure(ctx); err != nil {
				return fmt.Errorf("%s: %w", count(g.at), err)
			}
			step()
		}
	}
	for _, g := range all {
		if err := errors.Join(g.look(), g.check()); err != nil {
			return fmt.Errorf("%s: %w", count(g.at), err)
		}
	}
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
	t := r.table(title, "server", a.what, "set a second", "set p99", "get a second", "get p99", "get+delete a second",
		"set, of the first", "get, of the first", "get+delete, of the first", "aim", "RSS", "on disk")
	rates := r.plot(title+": rates", title, "a second", true, false)
	memory := r.plot(title+": memory", title, "MiB", true, false)
	for i, c := range all {
		for at, n := range a.numbers {
			f := found[at][i]
			var least any
			if a, ok := growAims[a.what]; ok && n == a.at && ours(c) {
				least = a.least
			}
			set, get, take := spreadOf(f.rates[growSet]), spreadOf(f.rates[growGet]), spreadOf(f.rates[growTake])
			row := []any{c.name, count(n), set, span(f.times[growSet].h.ValueAtPercentile(99)), get, span(f.times[growGet].h.ValueAtPercentile(99)), take}
			for what, first := range found[0][i].rates {
				row = append(row, spreadOf(ratios(f.rates[what], first)))
			}
			t.row(append(row, least, f.rss, f.disk)...)
			rates.point(c.name+", set", float64(n), float64(set.Median))
			rates.point(c.name+", get+delete", float64(n), float64(take.Median))
			memory.point(c.name, float64(n), float64(f.rss)/(1<<20))
		}
	}
}
