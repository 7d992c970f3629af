package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"qserver/bench/client"
)

// The types of request that are told apart.
const (
	abSet     = "set"
	abLarge   = "set of 8 KiB or more"
	abGet     = "get"
	abMiss    = "get, none there"
	abDelete  = "delete"
	abChain   = "close/open"
	abVersion = "version"
	abStats   = "stats"
)

var abRequests = []string{abSet, abLarge, abGet, abMiss, abDelete, abChain, abVersion, abStats}

// abSizes are the bodies' bytes, and how many in a hundred have each.
var abSizes = []struct{ bytes, percent int }{{200, 70}, {1 << 10, 20}, {8 << 10, 8}, {64 << 10, 2}}

// abMix is one turn: the same mixture to two servers.
type abMix struct {
	abOptions
	e       *env
	servers [2]*server
	seed    uint64

	seen [2]*ledger
	sent [2][]int64 // by worker
	from time.Time  // when requests count
}

// abWorker is one worker with a connection to each server.
type abWorker struct {
	m      *abMix
	i      int
	cs     [2]*client.Memcache
	keys   *keys
	msgs   []*message // of each size
	random *rand.Rand
	zipf   *rand.Zipf
	times  [2]map[string]*latencies
}

func (m *abMix) run(ctx context.Context, sides *[2]abSide) error {
	workers := make([]*abWorker, m.workers)
	for i := range workers {
		random := rand.New(rand.NewPCG(m.seed, uint64(i)))
		w := &abWorker{m: m, i: i, keys: newKeys("ab", 0, keyForEach), random: random,
			zipf: rand.NewZipf(random, 1.5, 1, uint64(m.queues-1))}
		for _, s := range abSizes {
			msg, err := newMessage(s.bytes)
			if err != nil {
				return err
			}
			w.msgs = append(w.msgs, msg)
		}
		for side, s := range m.servers {
			c, err := client.DialMemcache(ctx, s.addr)
			if err != nil {
				return err
			}
			defer c.Close()
			w.cs[side], w.times[side] = c, make(map[string]*latencies)
			for _, name := range abRequests {
				w.times[side][name] = newLatencies()
			}
		}
		workers[i] = w
	}
	for side := range m.servers {
		m.seen[side], m.sent[side] = newLedger(m.workers), make([]int64, m.workers)
	}
	distance := time.Duration(float64(time.Second) * float64(m.workers) / m.rate)
	each := int64((m.e.warm() + m.e.window()) / distance)
	began := time.Now()
	m.from = began.Add(m.e.warm())
	var before [2]time.Duration
	for side, s := range m.servers {
		before[side], _ = s.proc.cpu()
	}
	var operations [2]atomic.Int64
	err := together(m.workers, func(i int) error {
		return workers[i].run(ctx, began.Add(distance*time.Duration(i)/time.Duration(m.workers)), distance, each, &operations)
	})
	if err != nil {
		return err
	}
	for side := range m.servers {
		if err := m.found(side, &sides[side], before[side], operations[side].Load(), workers); err != nil {
			return fmt.Errorf("%s: %w", m.variants[side].name, err)
		}
	}
	return nil
}

// found adds up what one server took, and checks what it still has.
func (m *abMix) found(side int, s *abSide, before time.Duration, requests int64, workers []*abWorker) error {
	proc := m.servers[side].proc
	if after, err := proc.cpu(); err == nil && requests > 0 {
		s.cpu = append(s.cpu, rate(float64((after-before).Microseconds())/float64(requests)))
	}
	if memory, err := proc.memory(); err == nil {
		s.rss, s.peak = append(s.rss, rate(memory.RSS)/(1<<20)), append(s.peak, rate(memory.Peak)/(1<<20))
	}
	s.requests += requests
	for _, name := range abRequests {
		if s.times[name] == nil {
			s.times[name] = newLatencies()
		}
		for _, w := range workers {
			s.times[name].merge(w.times[side][name])
		}
	}
	if err := together(m.workers, func(i int) error { return workers[i].drain(side) }); err != nil {
		return err
	}
	if left, err := workers[0].cs[side].Count(); err != nil || left != 0 {
		return errors.Join(err, fmt.Errorf("stats count %d messages after all were deleted", left))
	}
	return m.seen[side].complete(m.sent[side])
}

// run does n operations at even distances, each with the other server than the last.
func (w *abWorker) run(ctx context.Context, first time.Time, distance time.Duration, n int64, operations *[2]atomic.Int64) error {
	ticks, err := newPacer(first, distance)
	if err != nil {
		return err
	}
	defer ticks.close()
	for done := int64(0); done < n; {
		due, err := ticks.wait()
		if err != nil {
			return err
		}
		for ; due > 0 && done < n; due-- {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			side := int(done+int64(w.i)) % 2
			requests, err := w.operation(side)
			if err != nil {
				return fmt.Errorf("%s: %w", w.m.variants[side].name, err)
			}
			operations[side].Add(requests)
			done++
		}
	}
	return nil
}

// timed does a request and records how long it took. name may be told only afterwards.
func (w *abWorker) timed(side int, name *string, request func() error) error {
	began := time.Now()
	err := request()
	if took := time.Since(began); err == nil && began.After(w.m.from) {
		w.times[side][*name].add(took)
	}
	return err
}

// operation is the next of the mixture. It returns how many requests it took.
func (w *abWorker) operation(side int) (requests int64, err error) {
	c := w.cs[side]
	queue := int64(w.zipf.Uint64())
	switch p := w.random.IntN(100); {
	case p < 46:
		return 1, w.enqueue(side, queue)
	case p < 82:
		found, err := w.get(side, queue)
		if err != nil || !found {
			return 1, err
		}
		return 2, w.delete(side, queue)
	case p < 94:
		return w.chain(side, queue)
	case p < 99:
		name := abVersion
		return 1, w.timed(side, &name, func() error { _, err := c.Version(); return err })
	default:
		name := abStats
		return 1, w.timed(side, &name, func() error { _, err := c.Stats(""); return err })
	}
}

func (w *abWorker) enqueue(side int, queue int64) error {
	msg, p := w.msgs[0], w.random.IntN(100)
	for i, s := range abSizes {
		if msg = w.msgs[i]; p < s.percent {
			break
		}
		p -= s.percent
	}
	name := abSet
	if len(msg.body) >= 8<<10 {
		name = abLarge
	}
	sent := &w.m.sent[side][w.i]
	body := msg.number(w.m.seen[side].id(w.i, *sent))
	*sent++
	return w.timed(side, &name, func() error { return w.cs[side].Set(w.keys.at(queue), 0, body) })
}

func (w *abWorker) get(side int, queue int64) (found bool, err error) {
	name := abMiss
	err = w.timed(side, &name, func() error {
		body, flags, ok, err := w.cs[side].Get(w.keys.at(queue))
		if found = ok; found {
			name = abGet
			err = w.received(side, body, flags)
		}
		return err
	})
	return found, err
}

func (w *abWorker) delete(side int, queue int64) error {
	name := abDelete
	return w.timed(side, &name, func() error { return deleted(w.cs[side].Delete(w.keys.at(queue))) })
}

// chain takes up to three messages, each but the first by a close/open.
func (w *abWorker) chain(side int, queue int64) (requests int64, err error) {
	found, err := w.get(side, queue)
	requests = 1
	for range 2 {
		if err != nil || !found {
			return requests, err
		}
		name := abChain
		requests++
		err = w.timed(side, &name, func() error {
			body, flags, ok, err := w.cs[side].Next(w.keys.at(queue), 0)
			if found = ok; found {
				err = w.received(side, body, flags)
			}
			return err
		})
	}
	if err != nil || !found {
		return requests, err
	}
	return requests + 1, w.delete(side, queue)
}

// received checks a message, whose size says what its bytes must be.
func (w *abWorker) received(side int, body []byte, flags uint32) error {
	for _, msg := range w.msgs {
		if len(msg.body) == len(body) {
			id, err := msg.read(body, flags)
			if err != nil {
				return err
			}
			return w.m.seen[side].mark(id)
		}
	}
	return errBody
}

// drain empties this worker's share of the queues.
func (w *abWorker) drain(side int) error {
	for queue := int64(w.i); queue < int64(w.m.queues); queue += int64(w.m.workers) {
		for {
			found, err := w.get(side, queue)
			if err != nil {
				return err
			}
			if !found {
				break
			}
			if err := w.delete(side, queue); err != nil {
				return err
			}
		}
	}
	return nil
}
