package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// env is what every scenario is given: the flags that all have, a folder to work in, a progress bar.
type env struct {
	stderr io.Writer
	bar    *progress
	dir    string // temporary folder of this run; removed at its end

	json        bool
	markdown    string
	section     string
	svg         string
	large       bool // the peers are to take bodies of more than a mebibyte
	servers     string
	targets     targetFlags
	against     string
	binary      string
	serverFlags string
	parent      string
	seconds     float64
	warmup      float64
	turns       int
	idleCheck   time.Duration
}

// register adds the flags that every scenario has.
func (e *env) register(fs *flag.FlagSet, s scenario) {
	fs.BoolVar(&e.json, "json", false, "print the report as JSON")
	fs.StringVar(&e.markdown, "markdown", "", "also replace the scenario's section in this Markdown `file`")
	fs.StringVar(&e.section, "section", "", "`name` of that section; the scenario's if empty")
	fs.StringVar(&e.svg, "svg", "", "also write the scenario's plots into this `folder`")
	fs.StringVar(&e.servers, "servers", s.servers, serverWords)
	fs.Var(&e.targets, "target", targetWords)
	fs.StringVar(&e.against, "against", "", "`server` whose rate the ratios are taken of; if empty each is compared with those that promise the same about syncing")
	fs.StringVar(&e.binary, "server", "", "`path` of a qserver binary; built from cmd/qserver if empty")
	fs.StringVar(&e.serverFlags, "server-flags", "", "more flags for each qserver, separated by spaces")
	fs.StringVar(&e.parent, "dir", os.TempDir(), "`folder` in which the servers' data folders are made; its file system is measured")
	fs.Float64Var(&e.seconds, "seconds", s.seconds, "length of each measured window")
	fs.Float64Var(&e.warmup, "warmup", 0.5, "seconds of load before each window")
	fs.DurationVar(&e.idleCheck, "idle-check", 300*time.Millisecond, "how long to watch before the run whether the machine is idle; 0: not")
	fs.IntVar(&e.turns, "turns", s.turns, "how often each server is measured, in turns")
}

func (e *env) open() error {
	if e.turns < 1 || e.seconds <= 0 || e.warmup < 0 {
		return fmt.Errorf("-turns and -seconds must be above 0, -warmup not below it")
	}
	dir, err := os.MkdirTemp(e.parent, "bench-")
	if err != nil {
		return err
	}
	e.dir = dir
	return nil
}

func (e *env) close() { os.RemoveAll(e.dir) }

func (e *env) window() time.Duration { return time.Duration(e.seconds * float64(time.Second)) }

func (e *env) warm() time.Duration { return time.Duration(e.warmup * float64(time.Second)) }

// qserver returns the path of the server's binary, which is built on the first call unless one was given.
func (e *env) qserver(ctx context.Context) (string, error) {
	if e.binary != "" {
		return e.binary, nil
	}
	path := filepath.Join(e.dir, "qserver")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "qserver/cmd/qserver").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build qserver: %w\n%s", err, out)
	}
	e.binary = path
	return path, nil
}

const targetWords = `measure a running server too, as name=protocol@addr[+http-addr]. Protocols: queue (set enqueues, get takes,
delete acks), memcached, tycoon (Kyoto Tycoon's plug-in), kestrel (Kestrel, Darner, Siberite: get/open, get/close),
beanstalkd, redis, jetstream. May be repeated; with -servers "" alone`

// targetFlags collects the values of -target.
type targetFlags []contestant

func (t *targetFlags) String() string {
	words := make([]string, len(*t))
	for i, c := range *t {
		words[i] = c.word
	}
	return strings.Join(words, " -target ")
}

func (t *targetFlags) Set(value string) error {
	c, err := parseTarget(value)
	if err == nil {
		*t = append(*t, c)
	}
	return err
}

// parseNumbers reads a comma-separated list of positive whole numbers.
func parseNumbers(list string) ([]int, error) {
	var numbers []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a list of positive numbers", list)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
