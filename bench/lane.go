package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"qserver/bench/client"
)

// A lane is one connection's way through a server: its keys, its numbered messages. It serves one goroutine.
type lane struct {
	c      *client.Memcache
	rule   keyRule
	keys   *keys
	msg    *message
	number func(sequence int64) int64 // of the lane's message; the same as its sequence if nil
}

func newLane(c *client.Memcache, rule keyRule, name string, worker int, msg *message) *lane {
	return &lane{c: c, rule: rule, keys: newKeys(name, worker, rule), msg: msg.clone()}
}

func (l *lane) id(sequence int64) int64 {
	if l.number == nil {
		return sequence
	}
	return l.number(sequence)
}

// set stores the lane's message of that sequence number and waits for the answer.
func (l *lane) set(sequence int64) error {
	return l.c.Set(l.setKey(sequence), l.msg.flags, l.msg.number(l.id(sequence)))
}

// setKey is the key of a set: a cache at its best overwrites one.
func (l *lane) setKey(sequence int64) []byte {
	if l.rule == singleKey {
		return l.keys.at(0)
	}
	return l.keys.at(sequence)
}

// streamBytes is how much a stream of noreply commands sends at once.
const streamBytes = 32 << 10

// stream stores the messages from to n-1 by noreply sets and returns when the server has read them all.
func (l *lane) stream(from, n int64, key func(sequence int64) []byte) error {
	for sequence := from; sequence < n; sequence++ {
		l.c.AppendSetNoreply(key(sequence), l.msg.flags, l.msg.number(l.id(sequence)))
		if l.c.Pending() >= streamBytes {
			if err := l.c.Flush(); err != nil {
				return err
			}
		}
	}
	_, err := l.c.Version()
	return err
}

// fill is stream for messages that will be taken: from 0 on, under the keys that take asks for.
func (l *lane) fill(n int64) error { return l.stream(0, n, l.keys.at) }

// restore gives a cache that overwrote one key the n messages under a key each, so that they can be taken.
func (l *lane) restore(n int64) error {
	if l.rule != singleKey {
		return nil
	}
	return l.fill(n)
}

var errMissing = errors.New("a message that was stored is not there")

// take gets the message of that sequence number, checks it, and deletes it: two round trips.
func (l *lane) take(sequence int64) error {
	key := l.keys.at(sequence)
	body, flags, found, err := l.c.Get(key)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("message %d: %w", l.id(sequence), errMissing)
	}
	if err := l.msg.expect(body, flags, l.id(sequence)); err != nil {
		return err
	}
	return deleted(l.c.Delete(key))
}

// takeAny takes whatever message comes and marks it; it returns false if there is none.
func (l *lane) takeAny(seen *ledger) (bool, error) {
	key := l.keys.at(0)
	body, flags, found, err := l.c.Get(key)
	if err != nil || !found {
		return false, err
	}
	if err := l.receive(seen, body, flags); err != nil {
		return false, err
	}
	return true, deleted(l.c.Delete(key))
}

// receive checks a message and marks it in the ledger.
func (l *lane) receive(seen *ledger, body []byte, flags uint32) error {
	id, err := l.msg.read(body, flags)
	if err != nil {
		return err
	}
	return seen.mark(id)
}

func deleted(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("delete of a message that was just received: NOT_FOUND")
	}
	return err
}

// pipelineDepth is how many get+delete pairs drain sends at once.
const pipelineDepth = 64

// drain takes the messages from to n-1 in that order, pipelined, and checks each.
func (l *lane) drain(from, n int64) error {
	for ; from < n; from += pipelineDepth {
		to := min(n, from+pipelineDepth)
		for sequence := from; sequence < to; sequence++ {
			key := l.keys.at(sequence)
			l.c.AppendGet(key)
			l.c.AppendDelete(key)
		}
		if err := l.c.Flush(); err != nil {
			return err
		}
		for sequence := from; sequence < to; sequence++ {
			body, flags, found, err := l.c.ReadValue()
			if err != nil {
				return err
			}
			if !found {
				return fmt.Errorf("message %d: %w", l.id(sequence), errMissing)
			}
			if err := l.msg.expect(body, flags, l.id(sequence)); err != nil {
				return err
			}
			if err := deleted(l.c.ReadDeleted()); err != nil {
				return err
			}
		}
	}
	return nil
}

// drainAny takes what comes, pipelined, until the queue has nothing more to give, and marks each in the ledger.
func (l *lane) drainAny(seen *ledger) error {
	key := l.keys.at(0)
	for {
		for range pipelineDepth {
			l.c.AppendGet(key)
			l.c.AppendDelete(key)
		}
		if err := l.c.Flush(); err != nil {
			return err
		}
		took := 0
		for range pipelineDepth {
			body, flags, found, err := l.c.ReadValue()
			if err != nil {
				return err
			}
			if found {
				if err := l.receive(seen, body, flags); err != nil {
					return err
				}
				took++
			}
			if ok, err := l.c.ReadDeleted(); err != nil {
				return err
			} else if ok != found {
				return fmt.Errorf("get found a message: %t, the delete behind it: %t", found, ok)
			}
		}
		if took < pipelineDepth {
			return nil
		}
	}
}

// items is the number of messages that the server says it has.
func items(c *client.Memcache) (int64, error) { return statistic(c, "curr_items") }

func statistic(c *client.Memcache, name string) (int64, error) {
	stats, err := c.Stats("")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(stats[name], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("stats: no number %s", name)
	}
	return n, nil
}

// checkCount compares what the server's tools tell with the number of live messages of the queue: `stats`, which
// counts all queues and held base messages before, and the HTTP port where there is one.
func (s *server) checkCount(ctx context.Context, c *client.Memcache, queue string, base, want int64) error {
	got, err := items(c)
	if err != nil {
		return err
	}
	if got-base != want {
		return fmt.Errorf("stats count %d messages, %d are there", got-base, want)
	}
	if s.admin == "" || s.keys != queueKeys {
		return nil
	}
	if got, err = s.count(ctx, queue); err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("/api/v1/queues counts %d messages, %d are there", got, want)
	}
	return nil
}

// inTurns starts each contestant anew, measures it and stops it: A B C A B C ... for as many turns as were asked for.
func (e *env) inTurns(ctx context.Context, all []contestant, what string, measure func(s *server, which, turn int) error) error {
	e.step(what, int64(e.turns*len(all)))
	for turn := range e.turns {
		for i, c := range all {
			e.bar.name(what + ", " + c.name)
			s, err := c.start(ctx, e)
			if err != nil {
				return err
			}
			if err := errors.Join(measure(s, i, turn), s.stop()); err != nil {
				return fmt.Errorf("%s: %s, turn %d: %w", c.name, what, turn+1, err)
			}
			e.bar.set(int64(turn*len(all) + i + 1))
		}
	}
	return nil
}
