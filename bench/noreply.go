package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"
)

func noreplyScenario() scenario {
	return scenario{
		name:    "noreply",
		title:   "a stream of noreply sets on one connection, 500,000 unless -n says otherwise",
		servers: "qserver/never,memcached,memcached/each",
		seconds: 1,
		turns:   3,
		about: `
One connection sends -n noreply sets without waiting, then a version command; the time runs until that is answered.
Then every message must be there: the count of stats, and each is received (pipelined get+delete, timed too) with
its bytes in order. memcached is measured at its best, overwriting one key, and as memcached/each with a key a
message, when it too has all of them afterwards. (-seconds and -warmup have no meaning here.)`,
		prepare: func(fs *flag.FlagSet) func(context.Context, *env, *report) error {
			n := fs.Int64("n", 500_000, "messages")
			bytes := fs.Int("size", 200, "bytes of a body")
			return func(ctx context.Context, e *env, r *report) error { return runNoreply(ctx, e, r, *n, *bytes) }
		},
	}
}

func runNoreply(ctx context.Context, e *env, r *report, n int64, bytes int) error {
	if n < 1 {
		return errors.New("-n must be above 0")
	}
	all, err := e.contestants(r)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(c contestant) bool {
		streams := slices.Contains([]string{"queue", "memcached", "tycoon"}, c.protocol)
		if !streams {
			r.note("%s is left out: its protocol has no noreply", c.name)
		}
		return !streams
	})
	if len(all) == 0 {
		return errors.New("no server with noreply among -servers and -target")
	}
	msg, err := newMessage(bytes)
	if err != nil {
		return err
	}
	set, drain := newSeries(len(all)), newSeries(len(all))
	err = e.inTurns(ctx, all, "noreply", func(s *server, which, _ int) error {
		a, b, err := noreplyTurn(ctx, s, n, msg)
		set[which], drain[which] = append(set[which], a), append(drain[which], b)
		return err
	})
	if err != nil {
		return err
	}
	c := e.newComparison(r, all, fmt.Sprintf("%s messages on one connection", count(n)))
	c.add(opNoreply, bytes, 1, set)
	c.add("get+delete, pipelined", bytes, 1, drain)
	r.noteServers(e, all)
	return nil
}

// noreplyTurn measures one server once: the stream, and taking all of it.
func noreplyTurn(ctx context.Context, s *server, n int64, msg *message) (set, drain rate, err error) {
	cs, err := s.dial(ctx, 1)
	if err != nil {
		return 0, 0, err
	}
	defer cs.close()
	l := newLane(cs[0], s.keys, "bench", 0, msg)
	base, err := l.c.Count()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := l.stream(0, n, l.setKey); err != nil {
		return 0, 0, err
	}
	set = rate(float64(n) / time.Since(began).Seconds())
	if s.keys == singleKey {
		if err := l.checkOverwritten(n); err != nil {
			return 0, 0, err
		}
		if err := l.restore(n); err != nil {
			return 0, 0, err
		}
	}
	if err := s.checkCount(ctx, l.c, "bench", base, n); err != nil {
		return 0, 0, err
	}
	began = time.Now()
	if err := l.drain(0, n); err != nil {
		return 0, 0, err
	}
	drain = rate(float64(n) / time.Since(began).Seconds())
	return set, drain, s.checkCount(ctx, l.c, "bench", base, 0)
}

// checkOverwritten checks a cache whose one key was set n times: it has done so many sets, and has the last one.
func (l *lane) checkOverwritten(n int64) error {
	sets, err := statistic(l.c, "cmd_set")
	if err != nil {
		return err
	}
	if sets < n {
		return fmt.Errorf("stats count %d sets of %d", sets, n)
	}
	body, flags, found, err := l.c.Get(l.keys.at(0))
	if err == nil && !found {
		err = errMissing
	}
	return errors.Join(err, l.msg.expect(body, flags, l.id(n-1)))
}
