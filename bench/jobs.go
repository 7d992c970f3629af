package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

func jobsScenario() scenario {
	return scenario{
		name:    "jobs",
		title:   "jobs that wait on IO, burn CPU or both, by processes and threads: the highest rate that starts within a second",
		servers: "qserver/enqueue",
		seconds: 60,
		turns:   1,
		about: `
The experiment of the talk that compared Solid Queue with Sidekiq on work that resembles real jobs. A job of -kinds io
asks a local HTTP server, which answers after -delay; one of cpu computes bcrypt at -cost; mixed does both. Jobs are
enqueued in an open loop. Workers are processes of this program (-processes, each on one core at a time as an
interpreter with a global lock is) with a connection for each of their -threads, all bound to so many cores (-cores).
Each rate is a step of -seconds after a warm-up, judged by frames of -frame: it passes while p99 from a job's intended
time to its start is at most a second in every frame, and ends at the first frame that does not. The ramp goes up by
-ramp from step to step. It is a grid search over processes and threads, from few workers to many: what failed at a
rate is not tried at a higher one, nor is what Little's law rules out. The table of the talk is printed: rate × cores,
the fewest workers that passed, and the highest rate. Every job is received once with its bytes.`,
		prepare: func(fs *flag.FlagSet) func(context.Context, *env, *report) error {
			var o jobsOptions
			kinds := fs.String("kinds", "io,cpu,mixed", "what jobs do")
			processes := fs.String("processes", "1,2,4", "numbers of worker processes")
			threads := fs.String("threads", "3,8,15", "threads of each")
			cores := fs.String("cores", fmt.Sprint(runtime.NumCPU()), "numbers of cores that the workers may use")
			fs.DurationVar(&o.delay, "delay", 50*time.Millisecond, "how long the HTTP server takes")
			fs.IntVar(&o.cost, "cost", 7, "bcrypt's cost; each one more doubles the time")
			fs.DurationVar(&o.wait, "wait", 500*time.Millisecond, "how long a worker's get waits")
			fs.IntVar(&o.ramp, "ramp", 100, "jobs a second of the first step, and how many more each next one has")
			fs.IntVar(&o.most, "most", 2000, "jobs a second where the ramp ends")
			fs.DurationVar(&o.frame, "frame", 10*time.Second, "length of a frame")
			return func(ctx context.Context, e *env, r *report) error {
				if err := o.parse(*kinds, *processes, *threads, *cores, e); err != nil {
					return err
				}
				return runJobs(ctx, e, r, o)
			}
		},
	}
}

type jobsOptions struct {
	kinds  []string
	grid   []workforce // by number of workers
	cores  []int
	delay  time.Duration
	wait   time.Duration
	cost   int
	ramp   int
	most   int
	frame  time.Duration
	perJob map[string]time.Duration // how long a job of a kind takes undisturbed
	burns  map[string]time.Duration // and what it burns of a core
}

// A workforce is a number of processes and of threads in each.
type workforce struct{ processes, threads int }

func (w workforce) workers() int { return w.processes * w.threads }

func (w workforce) String() string { return fmt.Sprintf("%d/%d", w.processes, w.threads) }

func (o *jobsOptions) parse(kinds, processes, threads, cores string, e *env) error {
	for word := range strings.SplitSeq(kinds, ",") {
		switch word = strings.TrimSpace(word); word {
		case "io", "cpu", "mixed":
			o.kinds = append(o.kinds, word)
		default:
			return fmt.Errorf("-kinds: %q is none of io, cpu, mixed", word)
		}
	}
	ps, err := parseNumbers(processes)
	if err != nil {
		return fmt.Errorf("-processes: %w", err)
	}
	ts, err := parseNumbers(threads)
	if err != nil {
		return fmt.Errorf("-threads: %w", err)
	}
	if o.cores, err = parseNumbers(cores); err != nil {
		return fmt.Errorf("-cores: %w", err)
	}
	if slices.Max(o.cores) > runtime.NumCPU() {
		return fmt.Errorf("-cores: this machine has %d", runtime.NumCPU())
	}
	if o.ramp < 1 || o.frame <= 0 || o.frame > e.window() || o.wait <= 0 || o.delay < 0 || o.cost < 4 || o.cost > 20 {
		return errors.New("-ramp, -frame and -wait must be above 0, -frame not above -seconds, -cost from 4 to 20")
	}
	for _, p := range ps {
		for _, t := range ts {
			o.grid = append(o.grid, workforce{p, t})
		}
	}
	slices.SortFunc(o.grid, func(a, b workforce) int {
		return cmp.Or(a.workers()-b.workers(), a.processes-b.processes)
	})
	return nil
}

// talk is the table of the talk: processes and threads that passed, on its machines.
var talk = [][]any{
	{"io", rate(100), "2 cores, 3/7", "2 cores, 3/2", nil},
	{"io", rate(200), "4 cores, 5/6", "4 cores, 4/6", nil},
	{"io", rate(300), "8 cores, 8/8", "8 cores, 6/6", nil},
	{"io", rate(400), "8 cores, 8/8", "8 cores, 6/6", "8 cores, 6/6"},
	{"io", rate(500), "8 cores, 10/8", "8 cores, 10/6", "8 cores, 6/6"},
	{"io", rate(600), "not reached", "not reached", "8 cores, 6/11"},
	{"io", rate(700), nil, nil, "8 cores, 11/6"},
	{"io", rate(800), nil, nil, "not reached"},
	{"mixed", rate(100), "8 cores, 4/4", "8 cores, 4/3", nil},
	{"mixed", rate(200), "not reached", "not reached", nil},
}

func runJobs(ctx context.Context, e *env, r *report, o jobsOptions) error {
	all, err := e.queues(r, anyQueue)
	if err != nil {
		return err
	}
	published := r.table("the talk's, processes/threads", "kind", "jobs a second", "Solid Queue", "Sidekiq through ActiveJob", "Sidekiq alone")
	published.Rows = talk
	site, err := startSite(o.delay)
	if err != nil {
		return err
	}
	defer site.close()
	if err := o.calibrate(ctx, site.url); err != nil {
		return err
	}
	best := r.table("fewest workers that pass, processes/threads", append([]string{"server", "kind", "jobs a second"}, coreNames(o.cores)...)...)
	highest := r.table("highest rate passed", append([]string{"server", "kind"}, coreNames(o.cores)...)...)
	steps := r.table("steps", "server", "kind", "cores", "jobs a second", "processes/threads", "workers", "L = λW",
		"enqueue→start p50", "start p90", "start p95", "start p99", "start→finish p50", "finish p90", "finish p95", "finish p99", "worst frame's p99", "passed")
	series := r.plot("p99 enqueue→start by frame, of the steps that passed", "seconds", "milliseconds", false, false)
	e.step("jobs", int64(len(all)*len(o.kinds)*len(o.cores)))
	done := int64(0)
	for _, c := range all {
		for _, kind := range o.kinds {
			passed := make(map[int][]any) // by rate, by place of the number of cores
			top := []any{c.name, kind}
			for at, cores := range o.cores {
				last := 0
				s := search{jobsOptions: o, e: e, contestant: c, kind: kind, cores: cores, url: site.url, steps: steps, series: series}
				err := s.run(ctx, func(perSecond int, w workforce) {
					if passed[perSecond] == nil {
						passed[perSecond] = make([]any, len(o.cores))
					}
					passed[perSecond][at], last = w, perSecond
				})
				if err != nil {
					return fmt.Errorf("%s, %s: %w", c.name, kind, err)
				}
				top = append(top, rate(last))
				done++
				e.bar.set(done)
			}
			for perSecond := o.ramp; passed[perSecond] != nil; perSecond += o.ramp {
				best.row(append([]any{c.name, kind, rate(perSecond)}, passed[perSecond]...)...)
			}
			highest.row(top...)
		}
	}
	r.note("a job of io waits for %s; one of cpu computes bcrypt at cost %d, %s of a core here", span(o.delay), o.cost, span(o.burns["cpu"]))
	r.noteServers(e, all)
	return nil
}

func coreNames(cores []int) []string {
	var names []string
	for _, n := range cores {
		names = append(names, fmt.Sprintf("cores: %d", n))
	}
	return names
}

// search goes up the ramp for one server, kind and number of cores.
type search struct {
	jobsOptions
	e          *env
	contestant contestant
	kind       string
	cores      int
	url        string
	steps      *table
	series     *plot
}

// run tells passed of the first workforce that passes each rate, in the order of the rates, until none does.
func (s *search) run(ctx context.Context, passed func(perSecond int, w workforce)) error {
	grid := s.grid
	for perSecond := s.ramp; perSecond <= s.most; perSecond += s.ramp {
		for len(grid) > 0 {
			ok := false
			if s.possible(perSecond, grid[0]) {
				var err error
				if ok, err = s.step(ctx, perSecond, grid[0]); err != nil {
					return err
				}
			}
			if ok {
				break
			}
			grid = grid[1:]
		}
		if len(grid) == 0 {
			return nil
		}
		passed(perSecond, grid[0])
	}
	return nil
}

// possible is what Little's law says: enough workers, and enough cores for what the jobs burn of them.
func (s *search) possible(perSecond int, w workforce) bool {
	cores := min(s.cores, w.processes)
	return float64(w.workers()) >= float64(perSecond)*s.perJob[s.kind].Seconds() &&
		float64(cores) >= float64(perSecond)*s.burns[s.kind].Seconds()
}

// step measures one rate with one workforce on a server of its own, adds a row and says whether it passed.
func (s *search) step(ctx context.Context, perSecond int, w workforce) (ok bool, err error) {
	server, err := s.contestant.start(ctx, s.e)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	t := &jobTrial{search: s, server: server, wanted: rate(perSecond), force: w}
	if err := t.run(ctx); err != nil {
		return false, err
	}
	row := []any{s.contestant.name, s.kind, count(s.cores), rate(perSecond), w, count(w.workers()),
		decimal(float64(perSecond) * s.perJob[s.kind].Seconds())}
	row = append(row, t.start.percentiles()[:4]...)
	row = append(row, t.finish.percentiles()[:4]...)
	answer := "yes"
	if !t.passed {
		answer = "no"
	}
	var worst any = span(t.worst)
	if t.worst >= time.Duration(maxLatency) {
		worst = "not started in time"
	}
	s.steps.row(append(row, worst, answer)...)
	if t.passed {
		for i, p99 := range t.frames {
			s.series.point(fmt.Sprintf("%s, %s, cores: %d, %d/s, %v", s.contestant.name, s.kind, s.cores, perSecond, w), (time.Duration(i) * s.frame).Seconds(), float64(p99)/1e6)
		}
	}
	return t.passed, nil
}
