package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"qserver/bench/client"
)

// A lane is one connection's way through a server: its keys, its numbered messages. It serves one goroutine.
type lane struct {
	c      client.Conn
	rule   keyRule
	keys   *keys
	msg    *message
	number func(sequence int64) int64 // of the lane's message; the same as its sequence if nil
}

func newLane(c client.Conn, rule keyRule, name string, worker int, msg *message) *lane {
	l := &lane{c: c, rule: rule, keys: newKeys(name, worker, rule), msg: msg.clone()}
	if _, ok := c.(client.Flagless); ok {
		l.msg.flags = 0
	}
	return l
}

// prepare makes the lane's queue, for servers that want that before its first use.
func (l *lane) prepare() error {
	if p, ok := l.c.(client.Preparer); ok && l.rule == queueKeys {
		return p.Prepare(l.keys.at(0))
	}
	return nil
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

// stream stores the messages from to n-1 without waiting for each answer, by noreply sets where the protocol has
// them, and returns when the server has read them all.
func (l *lane) stream(from, n int64, key func(sequence int64) []byte) error {
	s, ok := l.c.(client.Streamer)
	if !ok {
		return l.pipeline(from, n, key)
	}
	for sequence := from; sequence < n; sequence++ {
		s.AppendSetNoreply(key(sequence), l.msg.flags, l.msg.number(l.id(sequence)))
		if l.c.Pending() >= streamBytes {
			if err := l.c.Flush(); err != nil {
				return err
			}
		}
	}
	_, err := s.Version()
	return err
}

// pipeline stores the messages from to n-1, many of which are sent before the first answer is read.
func (l *lane) pipeline(from, n int64, key func(sequence int64) []byte) error {
	for from < n {
		sent := 0
		for ; from < n && sent < pipelineDepth && l.c.Pending() < streamBytes; from++ {
			l.c.AppendSet(key(from), l.msg.flags, l.msg.number(l.id(from)))
			sent++
		}
		if err := l.c.Flush(); err != nil {
			return err
		}
		for range sent {
			if err := l.c.ReadStored(); err != nil {
				return err
			}
		}
	}
	return nil
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
	if _, late := l.c.(*client.JetStream); err == nil && !found && late {
		// It may answer that there is none for a moment after it has answered that one is stored.
		body, flags, found, err = l.c.GetWait(key, settleTime)
	}
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

// pipelineDepth is how many messages are got at once where messages are pipelined.
const pipelineDepth = 64

// depth is how many of them this connection may hold.
func (l *lane) depth() int64 {
	if c, ok := l.c.(client.Limited); ok {
		return int64(c.Depth())
	}
	return pipelineDepth
}

// drain takes the messages from to n-1 in that order, pipelined, and checks each.
func (l *lane) drain(from, n int64) error {
	for from < n {
		to := min(n, from+l.depth())
		next := from
		_, err := l.batch(from, to, func(_ int64, body []byte, flags uint32) error {
			next++
			return l.msg.expect(body, flags, l.id(next-1))
		})
		if from = next; err == nil && from < to {
			err = l.take(from) // which says what is missing
			from++
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// drainAny takes what comes, pipelined, until the queue has nothing more to give, and marks each in the ledger.
func (l *lane) drainAny(seen *ledger) error {
	for {
		took, err := l.batch(0, l.depth(), func(_ int64, body []byte, flags uint32) error { return l.receive(seen, body, flags) })
		if err != nil || took < l.depth() {
			return err
		}
	}
}

// batch gets the messages from to to-1, pipelined, shows those that were found to check, and deletes these.
func (l *lane) batch(from, to int64, check func(sequence int64, body []byte, flags uint32) error) (took int64, err error) {
	for sequence := from; sequence < to; sequence++ {
		l.c.AppendGet(l.keys.at(sequence))
	}
	if err := l.c.Flush(); err != nil {
		return 0, err
	}
	for sequence := from; sequence < to; sequence++ {
		body, flags, found, err := l.c.ReadValue()
		if err != nil {
			return took, err
		}
		if !found {
			continue
		}
		if err := check(sequence, body, flags); err != nil {
			return took, err
		}
		took++
	}
	for sequence := from; sequence < from+took; sequence++ {
		l.c.AppendDelete(l.keys.at(sequence))
	}
	if took > 0 {
		err = l.c.Flush()
	}
	for range took {
		if err == nil {
			err = deleted(l.c.ReadDeleted())
		}
	}
	return took, err
}

// settleTime is how long a server may take until its count has the last acknowledgement.
const settleTime = 5 * time.Second

// awaitItems asks for the number of messages until it is as wanted; it returns the last answer. Only JetStream removes
// a message after it has answered that it is acknowledged.
func awaitItems(c client.Conn, want int64) (int64, error) {
	limit := time.Now().Add(settleTime)
	for {
		got, err := c.Count()
		if _, late := c.(*client.JetStream); err != nil || got == want || !late || time.Now().After(limit) {
			return got, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// statistic is a number of memcached's stats.
func statistic(c client.Conn, name string) (int64, error) {
	m, ok := c.(*client.Memcache)
	if !ok {
		return 0, errors.New("stats: not in this protocol")
	}
	stats, err := m.Stats("")
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
func (s *server) checkCount(ctx context.Context, c client.Conn, queue string, base, want int64) error {
	got, err := awaitItems(c, base+want)
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
