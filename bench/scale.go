package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
)

func scaleScenario() scenario {
	return scenario{
		name:    "scale",
		title:   "set and get+delete by number of connections, ratios to memcached",
		servers: "qserver/never,qserver/enqueue,memcached",
		seconds: 2,
		turns:   5,
		about: `
Closed loop: each connection stores messages as fast as they are answered, then gets and deletes those that were
stored. The servers are measured in turns, each started anew, one after the other at each number of connections;
the ratio is taken turn by turn, printed as its median with the lowest and highest. A queue server has a queue for
each connection (-shared: one for all). memcached overwrites one key a connection with its sets, which is its best
case; for get+delete it is given, untimed, as many messages under a key each as a queue would hold. A server that
takes faster than it stores is given more, untimed too, and what is left after the window is drained pipelined.
Every message is received once with its bytes, in order where a connection has its own queue.`,
		prepare: func(fs *flag.FlagSet) func(context.Context, *env, *report) error {
			connections := fs.String("connections", "1,8,64", "numbers of connections")
			bytes := fs.Int("size", 200, "bytes of a body")
			shared := fs.Bool("shared", false, "all connections share one queue")
			return func(ctx context.Context, e *env, r *report) error {
				numbers, err := parseNumbers(*connections)
				if err != nil {
					return fmt.Errorf("-connections: %w", err)
				}
				return runScale(ctx, e, r, numbers, *bytes, *shared)
			}
		},
	}
}

func runScale(ctx context.Context, e *env, r *report, connections []int, bytes int, shared bool) error {
	all, err := e.contestants()
	if err != nil {
		return err
	}
	msg, err := newMessage(bytes)
	if err != nil {
		return err
	}
	queues := "a queue each"
	if shared {
		queues = "one queue"
	}
	t := r.table(fmt.Sprintf("bodies of %d bytes, %s: operations a second, median of %d turns", bytes, queues, e.turns),
		"operation", "connections", "server", "a second", "of "+e.baseline(all).name)
	r.noteServers(all)
	for _, n := range connections {
		set, take := newSeries(len(all)), newSeries(len(all))
		err := e.inTurns(ctx, all, fmt.Sprintf("%d connections", n), func(s *server, which, _ int) error {
			c := scaleCell{server: s, e: e, msg: msg, shared: shared && s.keys == queueKeys}
			a, b, err := c.run(ctx, n)
			set[which], take[which] = append(set[which], a), append(take[which], b)
			return err
		})
		if err != nil {
			return err
		}
		e.compare(t, all, set, "set", count(n))
		e.compare(t, all, take, "get+delete", count(n))
	}
	return nil
}

// baseline is the contestant that the others are compared with.
func (e *env) baseline(all []contestant) contestant { return all[e.baselineIndex(all)] }

func (e *env) baselineIndex(all []contestant) int {
	for i, c := range all {
		if c.name == e.against {
			return i
		}
	}
	return len(all) - 1
}

// compare adds a row for each contestant: the leading cells, its name, its rate, its ratio to the baseline's.
func (e *env) compare(t *table, all []contestant, rates [][]rate, leading ...any) {
	base := rates[e.baselineIndex(all)]
	for i, c := range all {
		row := append(append([]any{}, leading...), c.name, spreadOf(rates[i]))
		t.row(append(row, spreadOf(ratios(rates[i], base)))...)
	}
}

// scaleCell is one measurement: a server, a number of connections.
type scaleCell struct {
	server *server
	e      *env
	msg    *message
	shared bool

	lanes []*lane
	sent  []int64 // by connection
	seen  *ledger // where the connections share a queue
}

// run measures sets and then takes all that was stored, and checks it.
func (c *scaleCell) run(ctx context.Context, n int) (set, take rate, err error) {
	cs, err := c.server.dial(ctx, n)
	if err != nil {
		return 0, 0, err
	}
	defer cs.close()
	base, err := items(cs[0])
	if err != nil {
		return 0, 0, err
	}
	c.seen, c.sent = newLedger(n), make([]int64, n)
	for i := range n {
		name := "bench"
		if !c.shared {
			name = fmt.Sprintf("bench-%d", i)
		}
		l := newLane(cs[i], c.server.keys, name, i, c.msg)
		l.number = func(sequence int64) int64 { return c.seen.id(i, sequence) }
		c.lanes = append(c.lanes, l)
	}
	perSecond, err := closedLoop(ctx, n, c.e.warm(), c.e.window(), c.store)
	if err != nil {
		return 0, 0, fmt.Errorf("set: %w", err)
	}
	set = rate(perSecond)
	if err := c.topUp(n); err != nil {
		return 0, 0, fmt.Errorf("top up: %w", err)
	}
	if perSecond, err = closedLoop(ctx, n, c.e.warm(), c.e.window(), c.take); err != nil {
		return 0, 0, fmt.Errorf("get+delete: %w", err)
	}
	if c.shared {
		err = c.seen.complete(c.sent)
	}
	left, err2 := items(cs[0])
	if err = errors.Join(err, err2); err == nil && left != base {
		err = fmt.Errorf("stats count %d messages after all were deleted", left-base)
	}
	return set, rate(perSecond), err
}

func (c *scaleCell) store(i int, done *tally, stop *atomic.Bool) error {
	for !stop.Load() {
		if err := c.lanes[i].set(c.sent[i]); err != nil {
			return err
		}
		c.sent[i]++
		done.n.Add(1)
	}
	return nil
}

// plenty is how many messages a second a connection is thought to take at most, two of them together twice that.
const plenty = 50_000

// topUp gives the server what it needs for get+delete, untimed: a cache its messages under a key each, and a server
// whose sets were slower than its takes will be so many more that the window is not cut short.
func (c *scaleCell) topUp(n int) error {
	seconds := (c.e.warm() + c.e.window()).Seconds()
	enough := int64(seconds * plenty * float64(min(n, 2)) / float64(n))
	return together(n, func(i int) error {
		l := c.lanes[i]
		if err := l.restore(c.sent[i]); err != nil || c.sent[i] >= enough {
			return err
		}
		err := l.stream(c.sent[i], enough, l.keys.at)
		c.sent[i] = enough
		return err
	})
}

// take empties the queue also after the window has ended, pipelined then: what was stored is to be checked.
func (c *scaleCell) take(i int, done *tally, stop *atomic.Bool) error {
	l := c.lanes[i]
	if c.shared {
		for !stop.Load() {
			found, err := l.takeAny(c.seen)
			if err != nil || !found {
				return err
			}
			done.n.Add(1)
		}
		return l.drainAny(c.seen)
	}
	for sequence := range c.sent[i] {
		if stop.Load() {
			return l.drain(sequence, c.sent[i])
		}
		if err := l.take(sequence); err != nil {
			return err
		}
		done.n.Add(1)
	}
	return nil
}
