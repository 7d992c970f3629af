package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"qserver/bench/client"
)

// scaleCell is one measurement: a server, a number of connections, a size of bodies.
type scaleCell struct {
	scaleOptions
	server *server
	e      *env
	msg    *message
	got    map[string]rate // by operation
	noMeta bool            // the server does not know meta commands
	notes  []string

	n     int
	lanes []*lane
	next  []int64 // by connection: the sequence number of the message that it takes next, if it has its own queue
	sent  []int64 // and of the one that it stores next
	seen  *ledger // where the connections share a queue
}

// run measures one operation after the other, and checks all that was stored.
func (c *scaleCell) run(ctx context.Context, n int) error {
	c.shared = c.shared && c.server.keys == queueKeys
	cs, err := c.server.dial(ctx, n)
	if err != nil {
		return err
	}
	defer cs.close()
	base, err := cs[0].Count()
	if err != nil {
		return err
	}
	if err := c.open(cs); err != nil {
		return err
	}
	for _, op := range c.ops {
		switch err := c.measure(ctx, op); {
		case errors.Is(err, errShort): // which what was stored is none the worse for
			c.notes = append(c.notes, fmt.Sprintf("%s, %s by %d connections, %d bytes: left out, %v", c.server.name, op, n, len(c.msg.body), err))
		case err != nil:
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	if c.server.protocol == "append" {
		return nil
	}
	if err := c.empty(); err != nil {
		return err
	}
	if c.shared {
		err = c.seen.complete(c.sent)
	}
	left, err2 := awaitItems(cs[0], base)
	if err = errors.Join(err, err2); err == nil && left != base {
		err = fmt.Errorf("the server counts %d messages after all were deleted", left-base)
	}
	return err
}

// open makes a lane of each connection.
func (c *scaleCell) open(cs conns) error {
	c.n = len(cs)
	c.seen, c.sent, c.next = newLedger(c.n), make([]int64, c.n), make([]int64, c.n)
	for i := range cs {
		name := "bench"
		if !c.shared {
			name = fmt.Sprintf("bench-%d", i)
		}
		l := newLane(cs[i], c.server.keys, name, i, c.msg)
		l.number = func(sequence int64) int64 { return c.seen.id(i, sequence) }
		c.lanes = append(c.lanes, l)
		if err := l.prepare(); err != nil {
			return err
		}
	}
	return nil
}

// measure takes the rate of one operation, unless the server does not know it.
func (c *scaleCell) measure(ctx context.Context, op string) (err error) {
	switch op {
	case opSet:
		return c.stores(ctx, op, c.store)
	case opTake:
		if c.server.protocol == "append" {
			return nil
		}
		return c.takes(ctx, op, opSet, c.take)
	case opChain:
		if !c.server.chains() || c.server.protocol == "append" {
			return nil
		}
		return c.takes(ctx, op, opSet, c.chain)
	case opNoreply:
		if !slices.Contains([]string{"queue", "memcached", "tycoon"}, c.server.protocol) {
			return nil
		}
		if err := c.empty(); err != nil {
			return err
		}
		return c.stores(ctx, op, c.noreply)
	case opMeta:
		return c.meta(ctx)
	}
	return nil
}

func (c *scaleCell) loop(ctx context.Context, op string, warm time.Duration, work job) error {
	perSecond, err := closedLoop(ctx, c.n, warm, c.e.window(), work)
	if err == nil {
		c.got[op] = rate(perSecond)
	}
	return err
}

// stores measures what stores messages. A cache has only the last of each connection then, which is forgotten.
func (c *scaleCell) stores(ctx context.Context, op string, work job) error {
	err := c.loop(ctx, op, c.e.warm(), work)
	if c.server.keys == singleKey {
		copy(c.next, c.sent)
		err = errors.Join(err, together(c.n, func(i int) error {
			_, err := c.lanes[i].c.Delete(c.lanes[i].keys.at(0))
			return err
		}))
	}
	return err
}

// takes measures what takes messages, of which it sees to it first that there are enough, stored as the operation
// `by` stores them.
func (c *scaleCell) takes(ctx context.Context, op, by string, work job) error {
	most := c.enough(by)
	enough := most
	if by == opSet {
		few, err := c.probe(op, most)
		if err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		enough = min(enough, few)
	}
	for {
		if err := c.topUp(enough); err != nil {
			return fmt.Errorf("top up: %w", err)
		}
		// Where bodies are large there are not enough for all of the window: then a fifth is for the warm-up.
		there := time.Duration(float64(enough*int64(c.n)) / float64(c.got[by]) * float64(time.Second))
		err := c.loop(ctx, op, min(c.e.warm(), there/5), work)
		if !errors.Is(err, errShort) || enough == most {
			return err
		}
		enough = min(4*enough, most) // the probe was far slower than the server
	}
}

// probes is how many messages each connection takes to find out how many will be enough.
const probes = 20

// probe takes a few messages and returns how many each connection should find: plenty for a fast server would keep one
// that syncs each of them busy for minutes. A close/open is at most twice as fast as the pair that is probed.
func (c *scaleCell) probe(op string, most int64) (int64, error) {
	if err := c.topUp(probes); err != nil {
		return 0, err
	}
	began := time.Now()
	err := together(c.n, func(i int) error {
		for range probes {
			if c.shared {
				if _, err := c.lanes[i].takeAny(c.seen); err != nil {
					return err
				}
			} else if err := c.lanes[i].take(c.next[i]); err != nil {
				return err
			}
			c.next[i]++
		}
		return nil
	})
	factor := 2.0
	if op == opChain {
		factor = 4
	}
	each := probes * factor * float64(c.e.warm()+c.e.window()) / float64(time.Since(began))
	return max(int64(each), most/20) + probes, err
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

const (
	// plenty is how many messages a second a connection is thought to take at most, two of them together twice that.
	plenty = 60_000
	// batched is how many times that in pipelined batches.
	batched = 10
	// plentyBytes is how much all connections are given at most.
	plentyBytes = 256 << 20
	// streamedBytes is how much they store at most where none waits for an answer.
	streamedBytes = 512 << 20
)

// enough is how many messages each connection is to find.
func (c *scaleCell) enough(by string) int64 {
	seconds := (c.e.warm() + c.e.window()).Seconds()
	if by == opMetaSet {
		seconds *= batched
	}
	most := plentyBytes / len(c.msg.body) / c.n
	return max(min(int64(seconds*plenty*float64(min(c.n, 2))/float64(c.n)), int64(most)), 20)
}

// topUp gives each connection as many messages as it is to find, untimed: a cache all of them, under a key each, and a
// server whose sets were slower than its takes so many more that the window is not cut short.
func (c *scaleCell) topUp(enough int64) error {
	return together(c.n, func(i int) error {
		l := c.lanes[i]
		if c.server.keys == singleKey {
			c.next[i], c.sent[i] = 0, enough
			return l.stream(0, enough, l.keys.at)
		}
		if want := c.next[i] + enough; c.sent[i] < want {
			if err := l.stream(c.sent[i], want, l.keys.at); err != nil {
				return err
			}
			c.sent[i] = want
		}
		return nil
	})
}

// take gets and deletes until the window has ended.
func (c *scaleCell) take(i int, done *tally, stop *atomic.Bool) error {
	l := c.lanes[i]
	for !stop.Load() {
		if c.shared {
			found, err := l.takeAny(c.seen)
			if err != nil || !found {
				return err
			}
		} else {
			if c.next[i] == c.sent[i] {
				return nil
			}
			if err := l.take(c.next[i]); err != nil {
				return err
			}
		}
		c.next[i]++
		done.n.Add(1)
	}
	return nil
}

// chain acks and takes the next in one round trip until the window has ended, and then acks the last.
func (c *scaleCell) chain(i int, done *tally, stop *atomic.Bool) error {
	l := c.lanes[i]
	chain := l.c.(client.Chainer)
	held := false
	for !stop.Load() && (c.shared || c.next[i] < c.sent[i]) {
		body, flags, found, err := chain.Next(l.keys.at(0), 0)
		if err != nil {
			return err
		}
		if held = found; !found {
			break
		}
		if err := c.received(i, body, flags); err != nil {
			return err
		}
		done.n.Add(1)
	}
	if !held {
		return nil
	}
	return deleted(l.c.Delete(l.keys.at(0)))
}

// received checks a message of connection i, and that it is the next where the connection has its own queue.
func (c *scaleCell) received(i int, body []byte, flags uint32) error {
	l := c.lanes[i]
	c.next[i]++
	if c.shared {
		return l.receive(c.seen, body, flags)
	}
	return l.msg.expect(body, flags, l.id(c.next[i]-1))
}

// fence is how many bytes of all noreply streams may be on their way before the server is asked whether it has read
// them, but for one stream at most an eighth of that.
const fence = 8 << 20

// unanswered is how many messages a connection stores at most where none waits for an answer: a cache must not be made
// to evict any.
func (c *scaleCell) unanswered() int64 {
	bytes := streamedBytes
	switch c.server.keys {
	case singleKey:
		return math.MaxInt64
	case keyForEach:
		bytes = plentyBytes
	}
	return int64(bytes/len(c.msg.body)/c.n) + 1
}

// noreply stores without being answered until the window has ended. Messages count when the server has read them.
func (c *scaleCell) noreply(i int, done *tally, stop *atomic.Bool) error {
	l := c.lanes[i]
	each := int64(max(fence/max(c.n, 8)/(len(l.msg.body)+40), 1))
	for from, most := c.sent[i], c.unanswered(); !stop.Load() && c.sent[i]-from < most; {
		if err := l.stream(c.sent[i], c.sent[i]+each, l.setKey); err != nil {
			return err
		}
		c.sent[i] += each
		done.n.Add(each)
	}
	return nil
}

// empty takes what is left, pipelined: what was stored is to be checked.
func (c *scaleCell) empty() error {
	return together(c.n, func(i int) error {
		if c.shared {
			return c.lanes[i].drainAny(c.seen)
		}
		err := c.lanes[i].drain(c.next[i], c.sent[i])
		c.next[i] = c.sent[i]
		return err
	})
}
