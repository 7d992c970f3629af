// Command bench is the load generator: it starts the server of this project and the peers that it finds installed,
// measures them in turns by the same client, checks every message that it stored, and prints a report.
//
//	go run ./bench [scenario] [flags]
//	go run ./bench -list
//
// README.md in this folder has the method and the figures. The layout: a scenario has a file of its name, and one or two
// beside it; package client has the protocols; server.go, peers.go and process.go start and watch what is measured;
// lane.go, load.go, feed.go, pace and ledger.go make the load and check it; compare.go takes ratios; report.go and
// plot.go are the writers of results, all.go runs everything.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := error(nil)
	if isWorker(os.Args[1:]) {
		err = workerMain(ctx, os.Args[1:])
	} else {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		os.Exit(1)
	}
}

// A scenario is one experiment. prepare registers its flags and returns what runs it; it is called once a run.
type scenario struct {
	name  string
	title string // one line
	about string // what is done, for -list
	// servers, seconds and turns are the defaults of the flags of that name.
	servers string
	seconds float64
	turns   int
	prepare func(fs *flag.FlagSet) func(ctx context.Context, e *env, r *report) error
}

// scenarios returns all of them in the order in which they are listed.
func scenarios() []scenario {
	return []scenario{
		blogScenario(), scaleScenario(), noreplyScenario(), flowScenario(), jobsScenario(), claimScenario(), payloadScenario(),
		abScenario(), growScenario(), backlogScenario(), queuesScenario(), idleScenario(), replicateScenario(),
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	name := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	all := scenarios()
	switch name {
	case "":
		fs := flag.NewFlagSet("bench", flag.ContinueOnError)
		fs.SetOutput(stderr)
		fs.Bool("list", false, "explain the scenarios")
		fs.Usage = func() { list(stderr, all, false) }
		if err := fs.Parse(args); err != nil {
			return err
		}
		list(stdout, all, len(args) > 0)
		return nil
	case "list":
		list(stdout, all, true)
		return nil
	case "report":
		return runAll(ctx, all, args, stdout, stderr)
	}
	for _, s := range all {
		if s.name == name {
			return runOne(ctx, s, args, stdout, stderr)
		}
	}
	return fmt.Errorf("no scenario %q; -list names them", name)
}

// list names the scenarios, and explains each if long is true.
func list(w io.Writer, all []scenario, long bool) {
	fmt.Fprintln(w, "usage: go run ./bench [scenario] [flags]")
	fmt.Fprintln(w)
	if !long {
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, s := range all {
			fmt.Fprintf(tw, "  %s\t%s\n", s.name, s.title)
		}
		fmt.Fprintf(tw, "  report\tall of them, one after the other, as README.md has them\n")
		tw.Flush()
		fmt.Fprintln(w, "\n-list explains each; SCENARIO -help has its flags.")
		return
	}
	for _, s := range all {
		fmt.Fprintf(w, "%s: %s\n", s.name, s.title)
		for line := range strings.SplitSeq(strings.TrimSpace(s.about), "\n") {
			fmt.Fprintf(w, "    %s\n", strings.TrimSpace(line))
		}
		fmt.Fprintf(w, "    default: -servers %s -seconds %g -turns %d\n\n", s.servers, s.seconds, s.turns)
	}
	fmt.Fprintln(w, "report: the sections of README.md, one after the other (-only NAME,...: some), with the flags given to all:")
	for _, run := range reportRuns {
		fmt.Fprintf(w, "    %s\n", run)
	}
}

// runOne runs a scenario and prints its report. What was measured is printed also when it ended with an error.
func runOne(ctx context.Context, s scenario, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("bench "+s.name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	e := &env{stderr: stderr}
	e.register(fs, s)
	measure := s.prepare(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err := e.open(); err != nil {
		return err
	}
	defer e.close()

	r := newReport(s, fs, e)
	err := measure(ctx, e, r)
	e.bar.done()
	if err != nil {
		r.Failure = err.Error()
	}
	if err := r.write(stdout, e.json); err != nil {
		return err
	}
	if e.svg != "" {
		if err := r.writePlots(e.svg); err != nil {
			return err
		}
	}
	if e.markdown != "" && err == nil {
		err = r.replaceIn(e.markdown)
	}
	return err
}
