package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

func idleScenario() scenario {
	return scenario{
		name:    "idle",
		title:   "10,000 idle connections, unless -n says otherwise: memory, and time on the cores",
		servers: "qserver/enqueue,memcached,beanstalkd/50ms,redis/everysec",
		seconds: 10,
		turns:   1,
		about: `
Opens -n connections, has each say one thing (a get of an empty queue, or what the protocol has for that), and then
watches the server do nothing for -seconds: its memory, and its time on the cores. Then the same with connections that
all wait for a message by get q/t=... (our server only); one message is then stored for each, on -queues queues, and
must come to one of them. An idle connection should cost memory for no buffer, and no time at all. Aim: under 80 MB at
10,000. The connections of the load generator have no buffers either.`,
		prepare: func(fs *flag.FlagSet) func(context.Context, *env, *report) error {
			n := fs.Int("n", 10_000, "connections")
			queues := fs.Int("queues", 100, "queues that the waiting ones are spread over")
			return func(ctx context.Context, e *env, r *report) error { return runIdle(ctx, e, r, *n, *queues) }
		},
	}
}

func runIdle(ctx context.Context, e *env, r *report, n, queues int) error {
	if n < 1 || queues < 1 || queues > n {
		return errors.New("-n must be above 0, -queues from 1 to -n")
	}
	if err := raiseFileLimit(n + 100); err != nil {
		return err
	}
	all, err := e.contestants(r)
	if err != nil {
		return err
	}
	t := r.table(fmt.Sprintf("%s connections, watched for %g s", count(n), e.seconds),
		"server", "connections", "RSS", "anonymous", "bytes a connection", "of a core", "aim")
	e.step("idle", int64(len(all)))
	for i, c := range all {
		if idleCommand[c.protocol] == "" || c.word != "" {
			r.note("%s is left out: it is not started here, or its protocol is none of this scenario's", c.name)
			continue
		}
		s, err := c.start(ctx, e)
		if err != nil {
			return err
		}
		w := idle{e: e, s: s, t: t, n: n, queues: queues}
		if err := errors.Join(w.run(ctx), s.stop()); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		e.bar.set(int64(i + 1))
	}
	r.noteServers(e, all)
	return nil
}

// raiseFileLimit lets this process, and those that it starts, have n files.
func raiseFileLimit(n int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	if limit.Max < uint64(n) {
		return fmt.Errorf("%d connections need as many files, and the limit is %d (ulimit -Hn)", n, limit.Max)
	}
	limit.Cur = limit.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}

// idleCommand is what a connection says before it falls idle.
var idleCommand = map[string]string{
	"queue":      "get idle\r\n",
	"memcached":  "get idle\r\n",
	"beanstalkd": "peek 1\r\n",
	"redis":      "LLEN idle\r\n",
}

// idle is the run on one server.
type idle struct {
	e         *env
	s         *server
	t         *table
	n, queues int
	empty     memory
}

func (w *idle) run(ctx context.Context) error {
	var err error
	if w.empty, err = w.s.proc.memory(); err != nil {
		return err
	}
	if err := w.watch(ctx, "none", 0, nil); err != nil {
		return err
	}
	if err := w.connected(ctx, "idle", nil, nil); err != nil {
		return err
	}
	if w.s.restart == nil {
		return nil
	}
	wait := fmt.Sprintf("/t=%d\r\n", (time.Duration(w.e.seconds*float64(time.Second)) + 5*time.Minute).Milliseconds())
	return w.connected(ctx, "waiting", func(i int) string { return fmt.Sprintf("get idle-%d%s", i%w.queues, wait) }, w.serveWaiting)
}

// connected opens the connections, sends on each what it is told, or has each ask and be answered once, watches, and
// at last calls end with them.
func (w *idle) connected(ctx context.Context, what string, say func(i int) string, end func(ctx context.Context, cs []net.Conn) error) error {
	cs := make([]net.Conn, 0, w.n)
	defer func() {
		for _, c := range cs {
			c.Close()
		}
	}()
	var d net.Dialer
	var reply [256]byte
	for i := range w.n {
		c, err := d.DialContext(ctx, "tcp", w.s.addr)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i+1, err)
		}
		cs = append(cs, c)
		if say != nil {
			_, err = c.Write([]byte(say(i)))
		} else if _, err = c.Write([]byte(idleCommand[w.s.protocol])); err == nil {
			_, err = c.Read(reply[:])
		}
		if err != nil {
			return fmt.Errorf("connection %d: %w", i+1, err)
		}
	}
	var want any
	if ours(w.s.contestant) {
		want = "RSS under 80 MB (76.3 MiB) at 10,000"
	}
	if err := w.watch(ctx, fmt.Sprintf("%s %s", count(w.n), what), w.n, want); err != nil || end == nil {
		return err
	}
	return end(ctx, cs)
}

// watch looks at the server for as long as a window lasts, after a moment for it to settle, and adds a row.
func (w *idle) watch(ctx context.Context, what string, connections int, want any) error {
	sleep := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	sleep(w.e.warm())
	before, err := w.s.proc.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	sleep(w.e.window())
	after, err := w.s.proc.cpu()
	if err != nil {
		return err
	}
	took := time.Since(began)
	m, err := w.s.proc.memory()
	if err != nil {
		return err
	}
	var each any
	if connections > 0 {
		each = count(int64(m.RSS-w.empty.RSS) / int64(connections))
	}
	w.t.row(w.s.name, what, m.RSS, m.Anon, each, share(float64(after-before)/float64(took)), want)
	return context.Cause(ctx)
}

// serveWaiting stores a message for each waiting connection; each must get one.
func (w *idle) serveWaiting(ctx context.Context, cs []net.Conn) error {
	store, err := w.s.dial(ctx, 1)
	if err != nil {
		return err
	}
	defer store.close()
	for i := range cs {
		if err := store[0].Set(fmt.Appendf(nil, "idle-%d", i%w.queues), 0, fmt.Appendf(nil, "%08d", i)); err != nil {
			return err
		}
	}
	seen := newLedger(1)
	for i, c := range cs {
		if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			return err
		}
		var queue, n int
		var id int64
		var key string
		if _, err := fmt.Fscanf(c, "VALUE %s 0 %d\r\n%d\r\n", &key, &n, &id); err != nil {
			return fmt.Errorf("a waiting connection did not get its message: %w", err)
		}
		if _, err := fmt.Sscanf(key, "idle-%d", &queue); err != nil || queue != i%w.queues || int(id)%w.queues != queue || n != 8 {
			return fmt.Errorf("message %d came on queue %d to connection %d", id, queue, i)
		}
		if err := seen.mark(id); err != nil {
			return err
		}
	}
	if err := seen.complete([]int64{int64(w.n)}); err != nil {
		return err
	}
	// Each is held by a connection; there are no others.
	if got, err := store[0].Count(); err != nil || got != int64(w.n) {
		return errors.Join(err, fmt.Errorf("stats count %d messages, %d are there", got, w.n))
	}
	return nil
}
