package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"
)

// What the blog published of Kyoto Tycoon, a second.
const (
	blogSet  = rate(13806)
	blogTake = rate(6956)
)

func blogScenario() scenario {
	return scenario{
		name:    "blog",
		title:   "one sequential client, the blog's payload: set, then get+delete, then a backlog",
		servers: "qserver/never,qserver/enqueue,memcached",
		seconds: 1,
		turns:   3,
		about: `
The experiment of the blog that this project starts from. One connection stores -n messages of its payload (a
PHP-serialized array of 243 bytes, client flags 4) one by one, then gets and deletes them one by one. The counts of
stats and of GET /api/v1/queues are compared before, between and after; every message must come back in order with
its bytes. Then, once for each server, -backlog messages by the same client: rate, memory, disk; what is left on the disk
when all were taken, and how long defrag takes. The blog's own figures of Kyoto Tycoon stand beside. (-seconds and -warmup have no meaning here.)`,
		prepare: func(fs *flag.FlagSet) func(context.Context, *env, *report) error {
			n := fs.Int64("n", 50_000, "messages")
			backlog := fs.Int64("backlog", 100_000, "messages of the backlog; the blog had 3,000,000; 0: none")
			return func(ctx context.Context, e *env, r *report) error {
				if err := runBlog(ctx, e, r, *n); err != nil || *backlog == 0 {
					return err
				}
				return runBlogBacklog(ctx, e, r, *backlog)
			}
		},
	}
}

func runBlog(ctx context.Context, e *env, r *report, n int64) error {
	if n < 1 {
		return errors.New("-n must be above 0")
	}
	all, err := e.contestants(r)
	if err != nil {
		return err
	}
	set, take := newSeries(len(all)), newSeries(len(all))
	err = e.inTurns(ctx, all, "blog", func(s *server, which, _ int) error {
		a, b, err := blogTurn(ctx, s, n)
		set[which], take[which] = append(set[which], a), append(take[which], b)
		return err
	})
	if err != nil {
		return err
	}
	t := r.table(fmt.Sprintf("%s messages of %d bytes, operations a second", count(n), len(blogBody)),
		"server", "set", "set, of the blog's", "get+delete", "get+delete, of the blog's")
	t.row("Kyoto Tycoon, as published", blogSet, nil, blogTake, nil)
	for i, c := range all {
		sets, takes := spreadOf(set[i]), spreadOf(take[i])
		t.row(c.name, sets, ratio(sets.Median/blogSet), takes, ratio(takes.Median/blogTake))
	}
	r.noteServers(e, all)
	return nil
}

// blogTurn measures one server once.
func blogTurn(ctx context.Context, s *server, n int64) (set, take rate, err error) {
	cs, err := s.dial(ctx, 1)
	if err != nil {
		return 0, 0, err
	}
	defer cs.close()
	l := newLane(cs[0], s.keys, "testkey", 0, blogMessage())
	base, err := l.c.Count()
	if err != nil {
		return 0, 0, err
	}
	if err := l.prepare(); err != nil {
		return 0, 0, err
	}
	warmup := min(n, 2000)
	_, err = timed(warmup, l.set)
	err = errors.Join(err, l.restore(warmup))
	_, err2 := timed(warmup, l.take)
	if err := errors.Join(err, err2); err != nil {
		return 0, 0, err
	}
	check := func(want int64) error { return s.checkCount(ctx, l.c, "testkey", base, want) }
	if err := check(0); err != nil {
		return 0, 0, err
	}
	if set, err = timed(n, l.set); err != nil {
		return 0, 0, err
	}
	if err := errors.Join(l.restore(n), check(n)); err != nil {
		return 0, 0, err
	}
	if take, err = timed(n, l.take); err != nil {
		return 0, 0, err
	}
	return set, take, check(0)
}

// timed does an operation n times and returns how often a second.
func timed(n int64, do func(sequence int64) error) (rate, error) {
	began := time.Now()
	for sequence := range n {
		if err := do(sequence); err != nil {
			return 0, err
		}
	}
	return rate(float64(n) / time.Since(began).Seconds()), nil
}

// newSeries makes room for the rates of each contestant, turn by turn.
func newSeries(contestants int) [][]rate { return make([][]rate, contestants) }
