package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A reportRun is a section of README.md: a scenario with flags.
type reportRun struct {
	section, scenario string
	args              []string
}

func (r reportRun) String() string {
	return strings.Join(append([]string{r.section + ":", r.scenario}, r.args...), " ")
}

// reportRuns are all sections, in the order in which they are measured. Together they take about 40 minutes on two cores.
var reportRuns = []reportRun{
	{"blog", "blog", []string{"-n", "100000", "-backlog", "0"}},
	{"blog-backlog", "blog", []string{"-servers", "qserver/never", "-n", "10000", "-turns", "1", "-backlog", "3000000"}},
	{"scale", "scale", []string{"-seconds", "0.4", "-warmup", "0.2"}},
	{"scale-grid", "scale", []string{"-servers", "qserver/never,qserver/enqueue,memcached", "-connections", "1,8,64,512",
		"-sizes", "200,4096,65536", "-ops", "all", "-seconds", "0.3", "-warmup", "0.15", "-turns", "1"}},
	{"noreply", "noreply", nil},
	{"flow", "flow", []string{"-take", "close/open", "-seconds", "3"}},
	{"flow-peers", "flow", []string{"-servers", "qserver/interval=1s,beanstalkd/50ms,redis/everysec,jetstream/default",
		"-rates", "1000,10%", "-many", "0", "-seconds", "2", "-turns", "2"}},
	{"jobs", "jobs", []string{"-servers", "qserver/enqueue,redis/everysec", "-seconds", "5", "-frame", "1s",
		"-ramp", "100", "-most", "800", "-processes", "1,2,4", "-threads", "4,16"}},
	{"claim", "claim", []string{"-rates", "450,1000,2000,4000", "-crowd", "1.33,4"}},
	{"payload", "payload", []string{"-turns", "2", "-rest", "2s"}},
	{"ab", "ab", []string{"-a-build", "-pgo=off", "-b-build", "-pgo=auto"}},
	{"grow", "grow", []string{"-backlog", "10,1000,100000,1000000,10000000", "-queues", "1,1000,10000,100000",
		"-connections", "1,8,64,1000,10000", "-held", "1000,100000,1000000"}},
	{"backlog", "backlog", []string{"-connections", "64"}},
	{"queues", "queues", nil},
	{"idle", "idle", []string{"-seconds", "5"}},
	{"replicate", "replicate", []string{"-seconds", "3"}},
}

// runAll runs the sections that -only names, or all; the other flags are given to each, behind its own. What fails is
// told in the end: the others are measured all the same.
func runAll(ctx context.Context, all []scenario, args []string, stdout, stderr io.Writer) error {
	runs := reportRuns
	if len(args) > 1 && strings.TrimLeft(args[0], "-") == "only" {
		names := strings.Split(args[1], ",")
		runs = nil
		for _, run := range reportRuns {
			if slices.Contains(names, run.section) {
				runs = append(runs, run)
			}
		}
		if args = args[2:]; len(runs) < len(names) {
			return fmt.Errorf("-only: not all of %q are sections; -list has them", names)
		}
	}
	var errs []error
	for _, run := range runs {
		at := slices.IndexFunc(all, func(s scenario) bool { return s.name == run.scenario })
		flags := slices.Concat(run.args, args, []string{"-section", run.section})
		began := time.Now()
		if err := runOne(ctx, all[at], flags, stdout, stderr); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", run.section, err))
		}
		fmt.Fprintf(stderr, "section %s took %s\n", run.section, time.Since(began).Round(time.Second))
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}
