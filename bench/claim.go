package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

func claimScenario() scenario {
	return scenario{
		name:    "claim",
		title:   "jobs of 300 ms at 450 a second and up: workers needed, what polling costs, where throughput bends",
		servers: "qserver/enqueue",
		seconds: 3,
		turns:   1,
		about: `
The experiment of the article that moved a game platform's jobs to Solid Queue. A job is a message; a worker is a
connection that takes one, sleeps for -job, and deletes it. First, workers by Little's law (L = rate × time of a job)
times each of -headroom, at each of -rates: what came through, how many workers were busy in the mean (which is the L
that was measured), latency from the intended start to the job's start. Then, at the first of the rates, workers as
L times each of -crowd in each of -modes: poll (get, and -poll of sleep when there was none), wait (a get that waits),
batch (waits for one, then takes up to -k at once, which wait for their turn in the worker): gets a second and the
server's time on the cores tell what each costs as workers grow. A rate counts as kept up with where at least 95 %
came through and p99 to the start is under a second. Every job is received once with its bytes.`,
		prepare: func(fs *flag.FlagSet) func(context.Context, *env, *report) error {
			var o claimOptions
			fs.DurationVar(&o.job, "job", 300*time.Millisecond, "how long a job takes")
			rates := fs.String("rates", "450,1000,2000", "jobs a second, comma separated")
			headroom := fs.String("headroom", "1,1.1,1.33", "workers for each of the rates, in Ls")
			crowd := fs.String("crowd", "1.33,4", "workers for the comparison of modes, in Ls of the first rate")
			modes := fs.String("modes", "poll,wait,batch", "how workers take jobs")
			fs.DurationVar(&o.poll, "poll", 100*time.Millisecond, "how long a polling worker sleeps")
			fs.DurationVar(&o.wait, "wait", 500*time.Millisecond, "how long a get waits, in the modes wait and batch")
			fs.IntVar(&o.k, "k", 5, "jobs that a worker takes at once, in the mode batch")
			return func(ctx context.Context, e *env, r *report) (err error) {
				if o.rates, err = parseFloats(*rates); err != nil {
					return fmt.Errorf("-rates: %w", err)
				}
				if o.headroom, err = parseFloats(*headroom); err != nil {
					return fmt.Errorf("-headroom: %w", err)
				}
				if o.crowd, err = parseFloats(*crowd); err != nil {
					return fmt.Errorf("-crowd: %w", err)
				}
				for word := range strings.SplitSeq(*modes, ",") {
					switch word = strings.TrimSpace(word); word {
					case "poll", "wait", "batch":
						o.modes = append(o.modes, word)
					default:
						return fmt.Errorf("-modes: %q is none of poll, wait, batch", word)
					}
				}
				if o.job <= 0 || o.poll <= 0 || o.wait <= 0 || o.k < 1 {
					return errors.New("-job, -poll, -wait and -k must be above 0")
				}
				return runClaim(ctx, e, r, o)
			}
		},
	}
}

type claimOptions struct {
	job, poll, wait        time.Duration
	rates, headroom, crowd []float64
	modes                  []string
	k                      int
}

// workers is Little's law times a factor.
func (o claimOptions) workers(perSecond, factor float64) int {
	return max(int(math.Ceil(perSecond*o.job.Seconds()*factor-1e-9)), 1)
}

// parseFloats reads a comma-separated list of numbers above 0.
func parseFloats(list string) ([]float64, error) {
	var numbers []float64
	for word := range strings.SplitSeq(list, ",") {
		f, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		if err != nil || f <= 0 || math.IsInf(f, 0) {
			return nil, fmt.Errorf("%q is not a list of numbers above 0", list)
		}
		numbers = append(numbers, f)
	}
	return numbers, nil
}

// claimPublished is what the article tells of Solid Queue on a database.
var claimPublished = [][2]any{
	{rate(200), "a needless locking query made the deletes wait"},
	{rate(450), "the load aimed at, without that query: 135 workers by Little's law, 180 taken"},
	{rate(1000), "a mutex of the database's lock system caps FOR UPDATE SKIP LOCKED"},
	{rate(2000), "three threads a process, or several jobs claimed at once; less stable, and more workers than needed lower it"},
}

func runClaim(ctx context.Context, e *env, r *report, o claimOptions) error {
	all, err := e.queues(r, func(c contestant) bool { return c.protocol != "kestrel" && c.protocol != "tycoon" })
	if err != nil {
		return err
	}
	t := r.table("Solid Queue, as published: jobs of 300 ms", "jobs a second", "what limited it")
	for _, row := range claimPublished {
		t.row(row[0], row[1])
	}
	columns := []string{"server", "jobs a second", "L = λW", "workers", "mode", "through a second", "busy workers", "enqueue→start p50", "start p99", "start max", "gets a second", "server's cores", "kept up"}
	needed := r.table(fmt.Sprintf("jobs of %s: workers needed", span(o.job)), columns...)
	modes := r.table(fmt.Sprintf("jobs of %s at %s a second: what taking them costs as workers grow", span(o.job), rate(o.rates[0])), columns...)
	through := r.plot("jobs that came through, with workers by Little's law and the most headroom", "jobs a second wanted", "through a second", false, false)
	latency, byMode := r.latencyPlot("enqueue→start"), r.latencyPlot("enqueue→start, by how jobs are taken")

	trial := func(t *table, curves *plot, perSecond, factor float64, mode string, last bool) error {
		workers := o.workers(perSecond, factor)
		what := fmt.Sprintf("%s jobs a second, %s workers, %s", rate(perSecond), count(workers), mode)
		return e.inTurns(ctx, all, what, func(s *server, which, turn int) error {
			c := &claim{claimOptions: o, e: e, server: s, wanted: rate(perSecond), workers: workers, mode: mode}
			if err := c.run(ctx); err != nil {
				return err
			}
			t.row(s.name, rate(perSecond), decimal(perSecond*o.job.Seconds()), count(workers), mode, c.through, decimal(c.busy),
				span(c.start.h.ValueAtPercentile(50)), span(c.start.h.ValueAtPercentile(99)), span(c.start.h.Max()), c.gets, c.cpu, c.keptUp())
			if last && turn == 0 {
				through.point(all[which].name, perSecond, float64(c.through))
			}
			if turn == 0 {
				curves.curve(fmt.Sprintf("%s, %s/s, %d, %s", s.name, rate(perSecond), workers, mode), c.start)
			}
			return nil
		})
	}
	for _, perSecond := range o.rates {
		for i, factor := range o.headroom {
			if err := trial(needed, latency, perSecond, factor, "wait", i == len(o.headroom)-1); err != nil {
				return err
			}
		}
	}
	for _, factor := range o.crowd {
		for _, mode := range o.modes {
			if err := trial(modes, byMode, o.rates[0], factor, mode, false); err != nil {
				return err
			}
		}
	}
	r.noteServers(e, all)
	return nil
}
