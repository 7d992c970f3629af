package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"qserver/bench/client"
)

func queuesScenario() scenario {
	return scenario{
		name:    "queues",
		title:   "100,000 queues, unless -n says otherwise, with one message each: rates, memory, start-up, statistics",
		servers: "qserver/enqueue",
		seconds: 1,
		turns:   3,
		about: `
Stores one message in each of -n queues over -connections connections, and follows the server's memory and disk as
backlog does. Then the time of stats, of stats queues and of GET /api/v1/queues (median of -turns), of a start after
SIGTERM and after kill -9, and at last of getting and deleting each message, which must come back with its bytes.`,
		prepare: func(fs *flag.FlagSet) func(context.Context, *env, *report) error {
			var q queues
			fs.IntVar(&q.n, "n", 100_000, "queues")
			fs.IntVar(&q.connections, "connections", 16, "connections")
			fs.IntVar(&q.size, "size", 200, "bytes of a body")
			return func(ctx context.Context, e *env, r *report) error { return runQueues(ctx, e, r, q) }
		},
	}
}

// queues is the run on one server.
type queues struct {
	n, connections, size int
	e                    *env
	r                    *report
	s                    *server
	msg                  *message
}

func runQueues(ctx context.Context, e *env, r *report, q queues) (err error) {
	if q.n < 1 || q.connections < 1 {
		return errors.New("-n and -connections must be above 0")
	}
	if q.msg, err = newMessage(q.size); err != nil {
		return err
	}
	all, err := e.queues(r, ours)
	if err != nil {
		return err
	}
	for _, c := range all {
		s, err := c.start(ctx, e)
		if err != nil {
			return err
		}
		q.e, q.r, q.s = e, r, s
		err = q.run(ctx)
		if err := errors.Join(err, s.stop()); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func (q *queues) run(ctx context.Context) error {
	w, err := newWatch(q.r, q.s)
	if err != nil {
		return err
	}
	q.e.step("queues, "+q.s.name, int64(2*q.n))
	n := int64(q.n)
	for _, step := range []func() error{
		func() error { return w.phase("empty", 0, func() error { return nil }) },
		func() error {
			return w.phase("one message each", n, func() error { return q.each(ctx, 0, (*lane).set) })
		},
		func() error { return q.statistics(ctx) },
		func() error { return w.restart(ctx, true) },
		func() error { return w.restart(ctx, false) },
		func() error { return w.phase("all taken", n, func() error { return q.each(ctx, n, (*lane).take) }) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	filled := w.phases.Rows[1][5].(size) - w.empty.Anon
	q.r.note("%s: %d bytes of anonymous memory a queue with its message, %d of them its body", q.s.name, int64(filled)/n, q.size)
	return nil
}

// each does something once for each queue, by all connections; done is how far the bar is already. Afterwards the
// count must agree.
func (q *queues) each(ctx context.Context, done int64, do func(l *lane, queue int64) error) error {
	cs, err := q.s.dial(ctx, q.connections)
	if err != nil {
		return err
	}
	defer cs.close()
	err = together(q.connections, func(i int) error {
		l := newLane(cs[i], keyForEach, "queue", 0, q.msg) // the key of message n names queue n
		for queue := i; queue < q.n; queue += q.connections {
			if err := do(l, int64(queue)); err != nil {
				return err
			}
			if i == 0 {
				q.e.bar.set(done + int64(queue))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	want := int64(q.n)
	if done > 0 {
		want = 0
	}
	got, err := cs[0].Count()
	if err == nil && got != want {
		err = fmt.Errorf("stats count %d messages, %d are there", got, want)
	}
	return err
}

// statistics times the commands that tell of queues.
func (q *queues) statistics(ctx context.Context) error {
	c, err := client.DialMemcache(ctx, q.s.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	stats := func(section string) func() (int, error) {
		return func() (int, error) {
			m, err := c.Stats(section)
			return len(m), err
		}
	}
	t := q.r.table(fmt.Sprintf("%s: statistics of %s queues, median of %d", q.s.name, count(q.n), q.e.turns), "command", "took", "answer")
	for _, command := range []struct {
		name, unit string
		run        func() (int, error)
	}{
		{"stats", "lines", stats("")},
		{"stats queues", "lines", stats("queues")},
		{"GET /api/v1/queues, pages of 1,000", "bytes", func() (int, error) {
			n, bytes, err := q.s.allQueues(ctx)
			if err == nil && n != q.n {
				err = fmt.Errorf("%d queues are listed, %d are there", n, q.n)
			}
			return bytes, err
		}},
	} {
		var took []time.Duration
		var answer int
		for range q.e.turns {
			began := time.Now()
			if answer, err = command.run(); err != nil {
				return fmt.Errorf("%s: %w", command.name, err)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		t.row(command.name, span(took[len(took)/2]), fmt.Sprintf("%s %s", count(answer), command.unit))
	}
	return nil
}
