package main

import (
	"context"
	"testing"
	"time"
)

// TestPacer begins before, at and after the first tick: at no moment have there been more or fewer ticks than are due.
func TestPacer(t *testing.T) {
	const period = 3 * time.Millisecond
	for _, ahead := range []time.Duration{10 * time.Millisecond, 0, -time.Second} {
		first := time.Now().Add(ahead)
		p, err := newPacer(first, period)
		if err != nil {
			t.Fatal(err)
		}
		due := func() int64 {
			if late := time.Since(first); late >= 0 {
				return int64(late/period) + 1
			}
			return 0
		}
		var ticks int64
		for range 5 {
			least := due()
			n, err := p.wait()
			if err != nil {
				t.Fatal(err)
			}
			if ticks += n; ticks < least || ticks > due() {
				t.Errorf("%v ahead: %d ticks, from %d to %d were due", ahead, ticks, least, due())
			}
		}
		p.close()
	}
}

// TestFeedBeginsLate has a feed begin when the time of all its messages is over: they come at once. A feed that stored
// them at even distances from then on would show its own delay as the server's latency, the same for every message.
func TestFeedBeginsLate(t *testing.T) {
	s := &server{contestant: contestant{protocol: "queue"}, addr: startFake(t, nil)}
	cs, err := s.dial(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.close()
	msg, err := newMessage(jobBytes)
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFeed(cs, jobQueue, msg)
	if err != nil {
		t.Fatal(err)
	}
	f.plan, f.n = schedule{start: time.Now().Add(-time.Hour), distance: time.Second}, 20
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := f.run(ctx); err != nil || f.total() != 20 {
		t.Fatalf("%d of 20 messages were stored, error %v", f.total(), err)
	}
	if err := f.lanes[0].drainAny(f.seen); err != nil {
		t.Fatal(err)
	}
	if err := f.seen.complete(f.sent); err != nil {
		t.Error(err)
	}
}
