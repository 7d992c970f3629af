package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"
)

func flowScenario() scenario {
	return scenario{
		name:    "flow",
		title:   "producers and waiting consumers, 16 each: the highest rate, and latency end to end at a rate",
		servers: "qserver/never,qserver/enqueue",
		seconds: 5,
		turns:   3,
		about: `
Producers and consumers share one queue. First in a closed loop: producers store as fast as they are answered, no
more than -outstanding messages ahead of the consumers, and the messages that come through are counted. Then in an
open loop at each of -rates (a number a second, or a share of the closed loop's rate such as 25%): every message has
an intended time, whether or not the server kept up with those before, and its latency counts from there to the
moment a consumer has it; also to the answer of its set. -take says how consumers wait: wait (get q/t=..., then
delete), close/open (ack and wait for the next in one round trip), plain (get and delete; the server waits or not).
Every message is received once with its bytes.`,
		prepare: func(fs *flag.FlagSet) func(context.Context, *env, *report) error {
			var o flowOptions
			fs.IntVar(&o.producers, "producers", 16, "connections that store")
			fs.IntVar(&o.consumers, "consumers", 16, "connections that wait for messages")
			fs.IntVar(&o.size, "size", 200, "bytes of a body")
			fs.IntVar(&o.outstanding, "outstanding", 1000, "how many messages may be under way in the closed loop")
			fs.StringVar(&o.rates, "rates", "10000,25%", "open-loop rates, comma separated; empty: none")
			fs.StringVar(&o.take, "take", "wait", "how consumers take: wait, close/open or plain")
			fs.DurationVar(&o.wait, "wait", time.Second, "how long a get waits")
			return func(ctx context.Context, e *env, r *report) error { return runFlow(ctx, e, r, o) }
		},
	}
}

type flowOptions struct {
	producers, consumers, size, outstanding int
	rates, take                             string
	wait                                    time.Duration
}

// check returns the open-loop rates as a function of the closed loop's.
func (o flowOptions) check() ([]func(rate) rate, error) {
	if o.producers < 1 || o.consumers < 1 || o.outstanding < 1 {
		return nil, errors.New("-producers, -consumers and -outstanding must be above 0")
	}
	if o.take != "wait" && o.take != "close/open" && o.take != "plain" {
		return nil, fmt.Errorf("-take %q: wait, close/open and plain are known", o.take)
	}
	var rates []func(rate) rate
	for word := range strings.SplitSeq(o.rates, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		number, percent := strings.CutSuffix(word, "%")
		f, err := strconv.ParseFloat(number, 64)
		if err != nil || f <= 0 {
			return nil, fmt.Errorf("-rates: %q is neither a rate nor a percentage", word)
		}
		rates = append(rates, func(highest rate) rate {
			if percent {
				return highest * rate(f) / 100
			}
			return rate(f)
		})
	}
	return rates, nil
}

// key returns the key of a consumer's get and whether a delete must follow it.
func (o flowOptions) key(queue string) (get string, ack bool) {
	get = fmt.Sprintf("%s/t=%d", queue, o.wait.Milliseconds())
	switch o.take {
	case "close/open":
		return get + "/close/open", false
	case "plain":
		return queue, true
	}
	return get, true
}

// paced is what the open loop found for one server at one rate, over all turns.
type paced struct {
	wanted, got  []rate
	through, set *latencies
}

func runFlow(ctx context.Context, e *env, r *report, o flowOptions) error {
	rates, err := o.check()
	if err != nil {
		return err
	}
	all, err := e.queues(r)
	if err != nil {
		return err
	}
	msg, err := newMessage(o.size)
	if err != nil {
		return err
	}
	highest := newSeries(len(all))
	open := make([][]paced, len(all))
	err = e.inTurns(ctx, all, "flow", func(s *server, which, _ int) error {
		f := &flow{flowOptions: o, e: e, server: s, msg: msg}
		most, err := f.closed(ctx)
		if err != nil {
			return fmt.Errorf("closed loop: %w", err)
		}
		highest[which] = append(highest[which], most)
		for i, of := range rates {
			if open[which] == nil {
				open[which] = make([]paced, len(rates))
			}
			if err := f.open(ctx, of(most), &open[which][i]); err != nil {
				return fmt.Errorf("open loop: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	o.tables(r, all, highest, open)
	r.noteServers(all)
	return nil
}

func (o flowOptions) tables(r *report, all []contestant, highest [][]rate, open [][]paced) {
	who := fmt.Sprintf("%d producers, %d consumers (%s), bodies of %d bytes", o.producers, o.consumers, o.take, o.size)
	t := r.table(who+": closed loop", "server", "messages a second through")
	for i, c := range all {
		t.row(c.name, spreadOf(highest[i]))
	}
	if o.rates == "" {
		return
	}
	t = r.table(who+": open loop, latency from the intended start", append([]string{"server", "wanted a second", "through a second", "latency"}, percentileColumns...)...)
	for i, c := range all {
		for _, p := range open[i] {
			wanted, got := spreadOf(p.wanted).Median, spreadOf(p.got).Median
			t.row(append([]any{c.name, wanted, got, "end to end"}, p.through.percentiles()...)...)
			t.row(append([]any{c.name, wanted, got, "set answered"}, p.set.percentiles()...)...)
		}
	}
}
