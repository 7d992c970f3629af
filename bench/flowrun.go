package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"qserver/bench/client"
)

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
	for i, c := range cs[f.producers:] {
		p, ok := c.(client.Preparer)
		if !ok {
			break
		}
		if err := p.Prepare(newKeys("bench", 0, f.rule()).at(int64(i % f.queues))); err != nil {
			fail(err)
			cs.close()
			return nil, nil, nil, err
		}
	}
	f.seen, f.sent, f.slots = newLedger(f.producers), make([]int64, f.producers), nil
	f.ended.Store(false)
	return ctx, fail, cs, nil
}

// lane makes the way of producer i. Where there are many queues, message n goes to the queue of its number.
func (f *flow) lane(c client.Conn, i int) (*lane, error) {
	l := newLane(c, f.rule(), "bench", 0, f.msg)
	l.number = func(sequence int64) int64 { return f.seen.id(i, sequence) }
	if f.queues > 1 {
		return l, nil
	}
	return l, l.prepare()
}

func (f *flow) rule() keyRule {
	if f.queues > 1 {
		return keyForEach
	}
	return queueKeys
}

// store sets the lane's message of that sequence number, in the queue that it belongs to.
func (f *flow) store(l *lane, sequence int64) error {
	id := l.id(sequence)
	return l.c.Set(l.keys.at(id%int64(f.queues)), l.msg.flags, l.msg.number(id))
}

// get takes a message as -take says; it may leave the last one to be deleted yet.
func (f *flow) get(c client.Conn, key []byte) (body []byte, flags uint32, found bool, err error) {
	switch f.take {
	case "close/open":
		return c.(client.Chainer).Next(key, f.wait)
	case "plain":
		return c.Get(key)
	}
	return c.GetWait(key, f.wait)
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
			err = f.produce(ctx, cs[i], i, stop)
			producing.Done()
			if i == 0 {
				producing.Wait()
				f.ended.Store(true)
			}
		} else {
			err = f.consume(ctx, cs[i], i-f.producers, done, nil)
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

func (f *flow) produce(ctx context.Context, c client.Conn, i int, stop *atomic.Bool) error {
	l, err := f.lane(c, i)
	if err != nil {
		return err
	}
	for !stop.Load() {
		select {
		case f.slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := f.store(l, f.sent[i]); err != nil {
			return err
		}
		f.sent[i]++
	}
	return nil
}

// consume takes messages until the producers have ended and nothing more comes. arrived is told each number.
func (f *flow) consume(ctx context.Context, c client.Conn, i int, done *tally, arrived func(id int64)) error {
	l := newLane(c, f.rule(), "bench", 0, f.msg)
	key := l.keys.at(int64(i % f.queues))
	for {
		ended := f.ended.Load() // before the get: an END behind it means that nothing is left
		body, flags, found, err := f.get(c, key)
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
		if f.take != "close/open" {
			if err := deleted(c.Delete(key)); err != nil {
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
func (s schedule) record(l recorder, id int64) {
	if id >= s.measured {
		l.add(time.Since(s.time(id)))
	}
}

// tenth is the length of a step of a timeline.
const tenth = 100 * time.Millisecond

// A timeline has the slowest message of each tenth of a second, in nanoseconds, for many goroutines at once.
type timeline []atomic.Int64

func (t timeline) add(plan schedule, id int64) {
	at := int(plan.time(id).Sub(plan.start) / tenth)
	if at < 0 || at >= len(t) {
		return
	}
	late := int64(time.Since(plan.time(id)))
	for old := t[at].Load(); late > old && !t[at].CompareAndSwap(old, late); old = t[at].Load() {
	}
}

func (t timeline) durations() []time.Duration {
	d := make([]time.Duration, len(t))
	for i := range t {
		d[i] = time.Duration(t[i].Load())
	}
	return d
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
	through, set := newSharedLatencies(), newSharedLatencies()
	slowest := make(timeline, int((f.e.warm()+f.e.window())/tenth)+1)
	var producing sync.WaitGroup
	producing.Add(f.producers)
	var last atomic.Int64 // when the last message arrived, in nanoseconds from plan.start
	err = together(f.producers+f.consumers, func(i int) (err error) {
		if i < f.producers {
			err = f.pace(cs[i], i, each, plan, set)
			producing.Done()
			if i == 0 {
				producing.Wait()
				f.ended.Store(true)
			}
		} else {
			err = f.consume(ctx, cs[i], i-f.producers, new(tally), func(id int64) {
				slowest.add(plan, id)
				plan.record(through, id)
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
	p.slowest = slowest.durations()
	p.add(wanted, rate(float64(each*int64(f.producers))/time.Duration(last.Load()).Seconds()), through, set)
	return f.seen.complete(f.sent)
}

// pace stores n messages, each at its time or at once if that is over.
func (f *flow) pace(c client.Conn, i int, n int64, plan schedule, latency recorder) error {
	l, err := f.lane(c, i)
	if err != nil {
		return err
	}
	ticks, err := newPacer(plan.time(l.id(0)), plan.distance*time.Duration(f.producers))
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
			if err := f.store(l, f.sent[i]); err != nil {
				return err
			}
			plan.record(latency, l.id(f.sent[i]))
			f.sent[i]++
		}
	}
	return nil
}

func (p *paced) add(wanted, got rate, through, set *sharedLatencies) {
	p.wanted, p.got = append(p.wanted, wanted), append(p.got, got)
	if p.through == nil {
		p.through, p.set = newLatencies(), newLatencies()
	}
	p.through.merge(through.all)
	p.set.merge(set.all)
}
