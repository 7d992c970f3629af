package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
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
Then the same, at -many-rate, with -many consumers that wait on as many queues, one each: a message wakes the one that
it is for. Every message is received once with its bytes. Aims: 40,000 a second with close/open, p99 end to end under
2 ms at a quarter of the highest rate. Kyoto Tycoon 0.9.56 passed 1.6 messages a second through 16 waiting consumers.`,
		prepare: func(fs *flag.FlagSet) func(context.Context, *env, *report) error {
			var o flowOptions
			fs.IntVar(&o.producers, "producers", 16, "connections that store")
			fs.IntVar(&o.consumers, "consumers", 16, "connections that wait for messages")
			fs.IntVar(&o.size, "size", 200, "bytes of a body")
			fs.IntVar(&o.outstanding, "outstanding", 1000, "how many messages may be under way in the closed loop")
			fs.StringVar(&o.rates, "rates", "10000,25%", "open-loop rates, comma separated; empty: none")
			fs.StringVar(&o.take, "take", "wait", "how consumers take: wait, close/open or plain")
			fs.IntVar(&o.many, "many", 1000, "consumers that wait on a queue each; 0: leave that out")
			fs.Float64Var(&o.manyRate, "many-rate", 2000, "messages a second for all of them")
			fs.DurationVar(&o.wait, "wait", time.Second, "how long a get waits")
			return func(ctx context.Context, e *env, r *report) error { return runFlow(ctx, e, r, o) }
		},
	}
}

type flowOptions struct {
	producers, consumers, size, outstanding int
	rates, take                             string
	wait                                    time.Duration
	many                                    int
	manyRate                                float64
	queues                                  int // over which messages and consumers are spread; 1 unless many wait
}

// check returns the open-loop rates as a function of the closed loop's.
func (o flowOptions) check() ([]func(rate) rate, error) {
	if o.producers < 1 || o.consumers < 1 || o.outstanding < 1 || o.many < 0 || o.manyRate <= 0 {
		return nil, errors.New("-producers, -consumers, -outstanding and -many-rate must be above 0, -many not below it")
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

// paced is what the open loop found for one server at one rate, over all turns.
type paced struct {
	wanted, got  []rate
	through, set *latencies
	slowest      []time.Duration // of the last turn, by the tenth of a second in which it was to be stored
}

func runFlow(ctx context.Context, e *env, r *report, o flowOptions) error {
	rates, err := o.check()
	if err != nil {
		return err
	}
	all, err := e.queues(r, func(c contestant) bool { return o.take != "close/open" || c.chains() })
	if err != nil {
		return err
	}
	msg, err := newMessage(o.size)
	if err != nil {
		return err
	}
	o.queues = 1
	results := flowResults{flowOptions: o, all: all, highest: newSeries(len(all)), open: make([][]paced, len(all)), waiting: make([]paced, len(all))}
	err = e.inTurns(ctx, all, "flow", func(s *server, which, _ int) error {
		f := &flow{flowOptions: o, e: e, server: s, msg: msg}
		most, err := f.closed(ctx)
		if err != nil {
			return fmt.Errorf("closed loop: %w", err)
		}
		results.highest[which] = append(results.highest[which], most)
		if results.open[which] == nil {
			results.open[which] = make([]paced, len(rates))
		}
		for i, of := range rates {
			if err := f.open(ctx, of(most), &results.open[which][i]); err != nil {
				return fmt.Errorf("open loop: %w", err)
			}
		}
		if o.many == 0 {
			return nil
		}
		f.queues, f.consumers = o.many, o.many
		if err := f.open(ctx, rate(o.manyRate), &results.waiting[which]); err != nil {
			return fmt.Errorf("%d consumers, a queue each: %w", o.many, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	results.report(r)
	r.noteServers(e, all)
	return nil
}

// flowResults is what was found for each contestant.
type flowResults struct {
	flowOptions
	all     []contestant
	highest [][]rate
	open    [][]paced // by rate
	waiting []paced   // of many consumers
}

func (f *flowResults) report(r *report) {
	who := fmt.Sprintf("%d producers, %d consumers (%s), bodies of %d bytes", f.producers, f.consumers, f.take, f.size)
	t := r.table(who+": closed loop", "server", "messages a second through", "aim")
	for i, c := range f.all {
		var least any
		if f.aimed(c) {
			least = rate(40_000)
		}
		t.row(c.name, spreadOf(f.highest[i]), least)
	}
	if f.rates != "" {
		quarter := slices.IndexFunc(strings.Split(f.rates, ","), func(word string) bool { return strings.TrimSpace(word) == "25%" })
		f.latencies(r, who+": open loop", f.open, quarter)
	}
	if f.many > 0 {
		who := fmt.Sprintf("%d producers, %d consumers (%s) on as many queues", f.producers, f.many, f.take)
		var open [][]paced
		for _, p := range f.waiting {
			open = append(open, []paced{p})
		}
		f.latencies(r, who+": open loop", open, -1)
	}
}

// aimed says whether this project has aims for what was measured.
func (f *flowResults) aimed(c contestant) bool {
	return ours(c) && f.take == "close/open" && f.producers == 16 && f.consumers == 16 && f.size == 200
}

// latencies writes a table of the open loops' latencies, their curve, and how they went over time. quarter is the place of
// the rate that is a quarter of the highest, -1 if there is none.
func (f *flowResults) latencies(r *report, what string, open [][]paced, quarter int) {
	t := r.table(what+", latency from the intended start", append([]string{"server", "wanted a second", "through a second", "latency"}, append(slices.Clone(percentileColumns), "aim")...)...)
	curve := r.latencyPlot(what + ", latency end to end")
	series := r.plot(what+", slowest by tenth of a second", "seconds", "milliseconds", false, false)
	for i, c := range f.all {
		for at, p := range open[i] {
			wanted, got := spreadOf(p.wanted).Median, spreadOf(p.got).Median
			var most any
			if at == quarter && f.aimed(c) {
				most = "p99 under 2 ms"
			}
			t.row(append([]any{c.name, wanted, got, "end to end"}, append(p.through.percentiles(), most)...)...)
			t.row(append([]any{c.name, wanted, got, "set answered"}, append(p.set.percentiles(), nil)...)...)
			name := fmt.Sprintf("%s at %s", c.name, wanted)
			curve.curve(name, p.through)
			for tenth, slowest := range p.slowest {
				series.point(name, float64(tenth)/10, float64(slowest)/1e6)
			}
		}
	}
}
