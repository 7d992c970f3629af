package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

func abScenario() scenario {
	return scenario{
		name:    "ab",
		title:   "two builds or settings of the server, each given half of the same traffic: by type of request, and memory",
		servers: "",
		seconds: 10,
		turns:   3,
		about: `
As a JIT compiler was tried in production: A and B run side by side, and each next operation of a mixture goes to the
other one. They differ in -a and -b (flags of the server), -a-build and -b-build (flags of go build), or -a-server and
-b-server (binaries). The mixture, at -rate operations a second on -workers connections to each: 46 % enqueue to one of
-queues queues, of which some are used far more than others, bodies of 200 bytes to 64 KiB, most of them small; 36 % get
and delete; 12 % take up to three by close/open; 5 % ask for the version, 1 % for stats. Times are of the requests, by
type, medians and percentiles; beside them what leaves out all others that share the machine: the server's time on the
cores by request. The cost in memory stands with them. -profile takes a CPU profile of A in the first turn (it is started
with -pprof then), from which Go can optimise: go run ./bench ab -profile cmd/qserver/default.pgo, then
go run ./bench ab -a-build -pgo=off -b-build -pgo=cmd/qserver/default.pgo. Every message is received once with its bytes.`,
		prepare: func(fs *flag.FlagSet) func(context.Context, *env, *report) error {
			var o abOptions
			for i, name := range []string{"a", "b"} {
				v := &o.variants[i]
				v.name = strings.ToUpper(name)
				fs.StringVar(&v.flags, name, "", "`flags` of server "+v.name+", separated by spaces")
				fs.StringVar(&v.build, name+"-build", "", "`flags` of go build for server "+v.name+", separated by spaces")
				fs.StringVar(&v.binary, name+"-server", "", "`path` of the binary of server "+v.name)
			}
			fs.StringVar(&o.sync, "sync", "enqueue", "the servers' -sync, unless their flags say otherwise")
			fs.Float64Var(&o.rate, "rate", 4000, "operations a second, over both")
			fs.IntVar(&o.workers, "workers", 16, "connections to each")
			fs.IntVar(&o.queues, "queues", 20, "queues")
			fs.StringVar(&o.profile, "profile", "", "write a CPU profile of A to this `file`")
			return func(ctx context.Context, e *env, r *report) error {
				if o.rate <= 0 || o.workers < 1 || o.queues < 1 {
					return errors.New("-rate, -workers and -queues must be above 0")
				}
				return runAB(ctx, e, r, o)
			}
		},
	}
}

type abOptions struct {
	variants        [2]variant
	sync            string
	rate            float64
	workers, queues int
	profile         string
}

// A variant is one of the two servers.
type variant struct{ name, flags, build, binary string }

func (v variant) String() string {
	var parts []string
	for _, part := range []struct{ what, value string }{{"", v.flags}, {"go build ", v.build}, {"", v.binary}} {
		if part.value != "" {
			parts = append(parts, part.what+part.value)
		}
	}
	if len(parts) == 0 {
		return "as it is"
	}
	return strings.Join(parts, ", ")
}

// prepare returns an env of the variant's own, with its binary built.
func (v variant) prepare(ctx context.Context, e *env) (*env, error) {
	mine := *e
	mine.serverFlags = strings.TrimSpace(e.serverFlags + " " + v.flags)
	switch {
	case v.binary != "" && v.build != "":
		return nil, fmt.Errorf("%s has a binary and flags to build one", v.name)
	case v.binary != "":
		mine.binary = v.binary
	case v.build != "":
		mine.binary = filepath.Join(e.dir, "qserver-"+v.name)
		args := append(append([]string{"build"}, strings.Fields(v.build)...), "-o", mine.binary, "qserver/cmd/qserver")
		if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", v.name, err, out)
		}
	default:
		if _, err := e.qserver(ctx); err != nil {
			return nil, err
		}
		mine.binary = e.binary
	}
	return &mine, nil
}

// abSide is what was found of one variant, over all turns.
type abSide struct {
	times    map[string]*latencies // by type of request
	requests int64                 // within all windows
	cpu      []rate                // microseconds of the cores by request, turn by turn
	rss      []rate                // mebibytes at the end of each turn
	peak     []rate
}

func runAB(ctx context.Context, e *env, r *report, o abOptions) error {
	var envs [2]*env
	var sides [2]abSide
	for i, v := range o.variants {
		var err error
		if envs[i], err = v.prepare(ctx, e); err != nil {
			return err
		}
		sides[i].times = make(map[string]*latencies)
	}
	e.step("ab", int64(e.turns))
	for turn := range e.turns {
		if err := o.turn(ctx, envs, &sides, turn); err != nil {
			return fmt.Errorf("turn %d: %w", turn+1, err)
		}
		e.bar.set(int64(turn + 1))
	}
	o.tables(r, &sides)
	return nil
}

// turn runs both servers side by side once. Which is started first changes from turn to turn.
func (o abOptions) turn(ctx context.Context, envs [2]*env, sides *[2]abSide, turn int) (err error) {
	var servers [2]*server
	defer func() {
		for _, s := range servers {
			if s != nil {
				err = errors.Join(err, s.stop())
			}
		}
	}()
	profiling := o.profile != "" && turn == 0
	for k := range servers {
		i := (k + turn) % 2
		var more []string
		if profiling && i == 0 {
			more = []string{"-pprof"}
		}
		if servers[i], err = startQserver(ctx, envs[i], "qserver "+o.variants[i].name, o.sync, more); err != nil {
			return err
		}
	}
	m := &abMix{abOptions: o, e: envs[0], servers: servers, seed: uint64(turn)}
	var profile sync.WaitGroup
	var profileErr error
	if profiling {
		profile.Go(func() { profileErr = o.takeProfile(ctx, servers[0], envs[0].window()) })
	}
	err = m.run(ctx, sides)
	profile.Wait()
	return errors.Join(err, profileErr)
}

// takeProfile asks a server for a profile of its time on the cores.
func (o abOptions) takeProfile(ctx context.Context, s *server, d time.Duration) error {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", s.admin, max(int(d.Seconds()), 1))
	profile, err := httpDo(ctx, http.MethodGet, url)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return os.WriteFile(o.profile, profile, 0o644)
}

// tables writes what was found.
func (o abOptions) tables(r *report, sides *[2]abSide) {
	a, b := &sides[0], &sides[1]
	what := fmt.Sprintf("A: %v; B: %v", o.variants[0], o.variants[1])
	t := r.table(what+": time of a request", "request", "of A", "of B", "A p50", "B p50", "p50, B by A", "A p90", "B p90", "p90, B by A", "A p99", "B p99", "p99, B by A", "A p99.9", "B p99.9")
	curve := r.latencyPlot(what)
	for _, name := range abRequests {
		la, lb := a.times[name], b.times[name]
		if la == nil || lb == nil || la.h.TotalCount() == 0 || lb.h.TotalCount() == 0 {
			continue
		}
		row := []any{name, count(la.h.TotalCount()), count(lb.h.TotalCount())}
		for _, p := range []float64{50, 90, 99} {
			x, y := la.h.ValueAtPercentile(p), lb.h.ValueAtPercentile(p)
			row = append(row, span(x), span(y), change(float64(y)/float64(x)-1))
		}
		t.row(append(row, span(la.h.ValueAtPercentile(99.9)), span(lb.h.ValueAtPercentile(99.9)))...)
		if name == abSet || name == abGet {
			curve.curve("A, "+name, la)
			curve.curve("B, "+name, lb)
		}
	}
	t = r.table(what+": what it costs the server", "figure", "A", "B", "B by A")
	compare := func(name string, x, y []rate) {
		if len(x) > 0 && len(y) > 0 {
			sx, sy := spreadOf(decimals(x)), spreadOf(decimals(y))
			t.row(name, sx, sy, change(sy.Median/sx.Median-1))
		}
	}
	compare("time on the cores by request, µs", a.cpu, b.cpu)
	compare("RSS at the end, MiB", a.rss, b.rss)
	compare("peak RSS, MiB", a.peak, b.peak)
}

func decimals(rates []rate) []decimal {
	var d []decimal
	for _, r := range rates {
		d = append(d, decimal(r))
	}
	return d
}
