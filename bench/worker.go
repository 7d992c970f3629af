package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/bcrypt"

	"qserver/bench/client"
)

const (
	// workerCommand makes this program a process of workers, for the scenario jobs.
	workerCommand = "worker"
	workerReady   = "ready"

	jobQueue = "jobs"
	jobBytes = 200
)

// runWorker takes jobs with a number of connections until its input ends, and tells of each on a line: its number, and
// when it started and finished, in nanoseconds since 1970.
func runWorker(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	fs := flag.NewFlagSet(workerCommand, flag.ContinueOnError)
	protocol, addr := fs.String("protocol", "queue", ""), fs.String("addr", "", "")
	threads, cost, cores := fs.Int("threads", 1, ""), fs.Int("cost", 8, ""), fs.Int("cores", 1, "")
	wait := fs.Duration("wait", 500*time.Millisecond, "")
	kind, url := fs.String("kind", "io", ""), fs.String("url", "", "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if err := bindToCores(*cores); err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	work, err := jobOf(*kind, *url, *cost)
	if err != nil {
		return err
	}
	msg, err := newMessage(jobBytes)
	if err != nil {
		return err
	}
	var cs conns
	defer func() { cs.close() }()
	for range *threads {
		c, err := client.Dial(ctx, *protocol, *addr)
		if err != nil {
			return err
		}
		cs = append(cs, c)
	}
	w := &workerProcess{msg: msg, wait: *wait, work: work, out: bufio.NewWriter(stdout)}
	if err := w.tell(workerReady); err != nil {
		return err
	}
	go func() {
		io.Copy(io.Discard, stdin)
		w.quit.Store(true)
	}()
	return together(*threads, func(i int) error { return w.run(cs[i]) })
}

type workerProcess struct {
	msg  *message
	wait time.Duration // of a get
	work func() error
	quit atomic.Bool

	mu  sync.Mutex // guards out
	out *bufio.Writer
}

// tell writes a line at once: the one who reads it judges the step by what was told in time.
func (w *workerProcess) tell(what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintln(w.out, what)
	return w.out.Flush()
}

// run is one thread.
func (w *workerProcess) run(c client.Conn) error {
	l := newLane(c, queueKeys, jobQueue, 0, w.msg)
	if err := l.prepare(); err != nil {
		return err
	}
	key := l.keys.at(0)
	for !w.quit.Load() {
		body, flags, found, err := c.GetWait(key, w.wait)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		id, err := l.msg.read(body, flags)
		if err != nil {
			return err
		}
		start := time.Now()
		if err := w.work(); err != nil {
			return err
		}
		finish := time.Now()
		if err := deleted(c.Delete(key)); err != nil {
			return err
		}
		if err := w.tell(fmt.Sprint(id, start.UnixNano(), finish.UnixNano())); err != nil {
			return err
		}
	}
	return nil
}

// jobOf returns what a job of a kind does.
func jobOf(kind, url string, cost int) (func() error, error) {
	ask := func() error {
		_, err := httpGet(context.Background(), url)
		return err
	}
	burn := func() error {
		_, err := bcrypt.GenerateFromPassword([]byte("correct horse battery staple"), cost)
		return err
	}
	switch kind {
	case "io":
		return ask, nil
	case "cpu":
		return burn, nil
	case "mixed":
		return func() error { return errors.Join(ask(), burn()) }, nil
	}
	return nil, fmt.Errorf("no kind of job %q", kind)
}

// site is the HTTP server that jobs ask.
type site struct {
	url    string
	server *http.Server
}

// startSite serves answers that come after a delay, on a free loopback port.
func startSite(delay time.Duration) (*site, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &site{url: "http://" + ln.Addr().String() + "/", server: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(delay)
			io.WriteString(w, "done\n")
		}),
	}}
	go s.server.Serve(ln) // until close
	return s, nil
}

func (s *site) close() { s.server.Close() }

// calibrate finds how long a job of each kind takes while nothing else runs, and what it burns of a core.
func (o *jobsOptions) calibrate(ctx context.Context, url string) error {
	o.perJob, o.burns = make(map[string]time.Duration), make(map[string]time.Duration)
	for _, kind := range []string{"cpu", "io", "mixed"} {
		work, err := jobOf(kind, url, o.cost)
		if err != nil {
			return err
		}
		least := time.Hour
		for range 3 {
			began := time.Now()
			if err := errors.Join(work(), context.Cause(ctx)); err != nil {
				return fmt.Errorf("a job of kind %s: %w", kind, err)
			}
			least = min(least, time.Since(began))
		}
		o.perJob[kind] = least
		if kind != "io" {
			o.burns[kind] = o.perJob["cpu"]
		}
	}
	return nil
}

// isWorker says whether the arguments make this program a process of workers.
func isWorker(args []string) bool { return len(args) > 0 && args[0] == workerCommand }

// workerMain is main for such a process.
func workerMain(ctx context.Context, args []string) error {
	return runWorker(ctx, args[1:], os.Stdin, os.Stdout)
}
