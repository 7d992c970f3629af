package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"qserver/bench/client"
)

const flowQueue = "bench"

// flow is one server under producers and consumers.
type flow struct {
	flowOptions
	e      *env
	server *server
	msg    *message

	seen  *ledger
	sent  []int64     // by producer
	ended atomic.Bool // the producers have
	slots chan struct{}
}

// begin connects producers (first) and consumers. Whoever fails calls fail with its error: that closes the connections of all.
func (f *flow) begin(ctx context.Context) (_ context.Context, fail context.CancelCauseFunc, _ conns, _ error) {
	ctx, fail = context.WithCancelCause(ctx)
	cs, err := f.server.dial(ctx, f.producers+f.consumers)
	if err != nil {
		fail(err)
		return nil, nil, nil, err
	}
	f.seen, f.sent, f.slots = newLedger(f.producers), make([]int64, f.producers), nil
	f.ended.Store(false)
	return ctx, fail, cs, nil
}

// lane makes the way of producer i.
func (f *flow) lane(c *client.Memcache, i int) *lane {
	l := newLane(c, queueKeys, flowQueue, i, f.msg)
	l.number = func(sequence int64) int64 { return f.seen.id(i, sequence) }
	return l
}

// closed returns how many messages a second came through while producers stored as fast as they could.
func (f *flow) closed(ctx context.Context) (rate, error) {
	ctx, fail, cs, err := f.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer fail(nil)
	defer cs.close()
	f.slots = make(chan struct{}, f.outstanding) // one place for each message under way
	var producing sync.WaitGroup
	producing.Add(f.producers)
	perSecond, err := closedLoop(ctx, f.producers+f.consumers, f.e.warm(), f.e.window(), func(i int, done *tally, stop *atomic.Bool) (err error) {
		if i < f.producers {
			err = f.produce(ctx, f.lane(cs[i], i), i, stop)
			producing.Done()
			if i == 0 {
				producing.Wait()
				f.ended.Store(true)
			}
		} else {
			err = f.consume(ctx, cs[i], done, nil)
		}
		if err != nil {
			fail(err)
		}
		return err
	})
	if cause := context.Cause(ctx); cause != nil {
		return 0, cause
	}
	if err != nil {
		return 0, err
	}
	return rate(perSecond), f.seen.complete(f.sent)
}

func (f *flow) produce(ctx context.Context, l *lane, i int, stop *atomic.Bool) error {
	for !stop.Load() {
		select {
		case f.slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := l.set(f.sent[i]); err != nil {
			return err
		}
		f.sent[i]++
	}
	return nil
}

// consume takes messages until the producers have ended and nothing more comes. arrived is told each number.
func (f *flow) consume(ctx context.Context, c *client.Memcache, done *tally, arrived func(id int64)) error {
	name, ack := f.key(flowQueue)
	key, queue := []byte(name), []byte(flowQueue)
	l := newLane(c, queueKeys, flowQueue, 0, f.msg)
	for {
		ended := f.ended.Load() // before the get: an END behind it means that nothing is left
		body, flags, found, err := c.Get(key)
		if err != nil {
			return err
		}
		if !found {
			if ended || ctx.Err() != nil {
				return nil
			}
			continue
		}
		id, err := l.msg.read(body, flags)
		if err != nil {
			return err
		}
		if arrived != nil {
			arrived(id)
		}
		if err := f.seen.mark(id); err != nil {
			return err
		}
		if f.slots != nil {
			<-f.slots
		}
		if ack {
			if err := deleted(c.Delete(queue)); err != nil {
				return err
			}
		}
		done.n.Add(1)
	}
}

// schedule says when each message of an open loop is to be stored.
type schedule struct {
	start    time.Time
	distance time.Duration
	measured int64 // the first message that counts
}

func (s schedule) time(id int64) time.Time { return s.start.Add(time.Duration(id) * s.distance) }

// record adds how late it is for a message, unless it belongs to the warm-up.
func (s schedule) record(l *latencies, id int64) {
	if id >= s.measured {
		l.add(time.Since(s.time(id)))
	}
}

// open stores at a rate and adds the latencies to p.
func (f *flow) open(ctx context.Context, wanted rate, p *paced) error {
	ctx, fail, cs, err := f.begin(ctx)
	if err != nil {
		return err
	}
	defer fail(nil)
	defer cs.close()
	each := int64((f.e.warm()+f.e.window()).Seconds()*float64(wanted)) / int64(f.producers) // messages of a producer
	plan := schedule{
		start:    time.Now().Add(20 * time.Millisecond),
		distance: time.Duration(float64(time.Second) / float64(wanted)),
		measured: int64(f.e.warm().Seconds() * float64(wanted)),
	}
	through, set := make([]*latencies, f.consumers), make([]*latencies, f.producers)
	var producing sync.WaitGroup
	producing.Add(f.producers)
	var last atomic.Int64 // when the last message arrived, in nanoseconds from plan.start
	err = together(f.producers+f.consumers, func(i int) (err error) {
		if i < f.producers {
			set[i] = newLatencies()
			err = f.pace(f.lane(cs[i], i), i, each, plan, set[i])
			producing.Done()
			if i == 0 {
				producing.Wait()
				f.ended.Store(true)
			}
		} else {
			latency := newLatencies()
			through[i-f.producers] = latency
			err = f.consume(ctx, cs[i], new(tally), func(id int64) {
				plan.record(latency, id)
				last.Store(int64(time.Since(plan.start)))
			})
		}
		if err != nil {
			fail(err)
		}
		return err
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	p.add(wanted, rate(float64(each*int64(f.producers))/time.Duration(last.Load()).Seconds()), through, set)
	return f.seen.complete(f.sent)
}

// pace stores n messages, each at its time or at once if that is over.
func (f *flow) pace(l *lane, i int, n int64, plan schedule, latency *latencies) error {
	ticks, err := newPacer(max(time.Until(plan.time(l.id(0))), 1), plan.distance*time.Duration(f.producers))
	if err != nil {
		return err
	}
	defer ticks.close()
	for f.sent[i] < n {
		due, err := ticks.wait()
		if err != nil {
			return err
		}
		for ; due > 0 && f.sent[i] < n; due-- {
			if err := l.set(f.sent[i]); err != nil {
				return err
			}
			plan.record(latency, l.id(f.sent[i]))
			f.sent[i]++
		}
	}
	return nil
}

func (p *paced) add(wanted, got rate, through, set []*latencies) {
	p.wanted, p.got = append(p.wanted, wanted), append(p.got, got)
	if p.through == nil {
		p.through, p.set = newLatencies(), newLatencies()
	}
	for _, l := range through {
		p.through.merge(l)
	}
	for _, l := range set {
		p.set.merge(l)
	}
}
