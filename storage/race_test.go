package storage_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"qserver/storage"
)

var (
	stressSeed = flag.Uint64("stress.seed", 1, "seed of the stress test")
	stressTime = flag.Duration("stress.time", 0, "how long the stress test works; 0: 3 s, or 300 ms with -short")
)

// stress is a store that many goroutines use in every way at once, and what must hold of its messages. Queue "a" and
// "b" are neither purged nor do their messages expire: nothing in them may get lost.
type stress struct {
	t       *testing.T
	s       *storage.Store
	done    atomic.Bool
	stored  sync.Map // id -> body, of a and b
	acked   sync.Map // id -> true, once Commit has returned
	holders sync.Map // id -> receipt, while somebody holds it for sure
	puts    atomic.Int64
	gets    atomic.Int64
	waits   atomic.Int64
	samples atomic.Int64
	once    sync.Once
}

func (x *stress) fail(format string, args ...any) {
	x.once.Do(func() {
		x.t.Errorf("%s\nseed %d; again: go test -race ./storage -run TestStress -stress.seed=%d", fmt.Sprintf(format, args...),
			*stressSeed, *stressSeed)
	})
	x.done.Store(true)
}

// TestStress lets many goroutines do everything at the same time, with little memory and small windows and segments, so
// that checkpoints, refills and evictions go on all the while.
func TestStress(t *testing.T) {
	length := *stressTime
	if length == 0 {
		length = 3 * time.Second
		if testing.Short() {
			length = 300 * time.Millisecond
		}
	}
	for i, o := range []storage.Options{
		{Sync: storage.SyncNever, Window: 8, Memory: 512 << 10},
		{Sync: storage.SyncInterval, SyncInterval: 5 * time.Millisecond},
		{Sync: storage.SyncAlways, Window: 64, Memory: 2 << 20},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) { runStress(t, o, length/3) })
	}
}

func runStress(t *testing.T, o storage.Options, length time.Duration) {
	dir := memoryDir(t)
	o.SegmentBytes, o.MinFreeDisk, o.ForgetAfter, o.DedupWindow, o.MaxHeld = 64<<10, 1, 50*time.Millisecond, 20*time.Millisecond, 5000
	x := &stress{t: t, s: open(t, filepath.Join(dir, "data"), o)}
	var wg sync.WaitGroup
	work := func(n int, f func(rng *rand.Rand)) {
		for i := range n {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(*stressSeed, uint64(i)))
				for !x.done.Load() {
					f(rng)
				}
			})
		}
	}
	work(3, x.producer)
	work(4, x.consumer)
	work(3, x.waiter)
	work(1, x.operator)
	work(2, x.sampler)
	time.AfterFunc(length, func() { x.done.Store(true) })
	wg.Wait()
	x.finish()
	x.restart(filepath.Join(dir, "data"), o)
	t.Logf("%d enqueued, %d reserved, %d waited for, %d samples of the counts; %+v", x.puts.Load(), x.gets.Load(), x.waits.Load(),
		x.samples.Load(), x.s.Stats())
}

func (x *stress) queue(rng *rand.Rand) string {
	return []string{"a", "a", "b", "purged", "expiring", fmt.Sprint("short", rng.IntN(20))}[rng.IntN(6)]
}

func kept(q string) bool { return q == "a" || q == "b" }

// ok says whether an error is none, or one of the ordinary outcomes given.
func (x *stress) ok(err error, ordinary ...error) bool {
	for _, o := range ordinary {
		if errors.Is(err, o) {
			return false
		}
	}
	if err != nil {
		x.fail("%v", err)
	}
	return err == nil
}

func (x *stress) producer(rng *rand.Rand) {
	c := x.s.NewSession("producer")
	defer c.Close()
	for range 1 + rng.IntN(20) {
		if x.s.Stats().Items > 3000 {
			time.Sleep(time.Millisecond)
			return
		}
		q := x.queue(rng)
		p := storage.PutRequest{Priority: uint32(rng.IntN(3)), Flags: rng.Uint32()}
		p.Body = []byte(bodyOf(q, p.Priority, int(x.puts.Add(1)), rng.IntN(1000)))
		switch rng.IntN(10) {
		case 0:
			p.Delay = time.Duration(rng.IntN(20)) * time.Millisecond
		case 1:
			p.Dedup = []byte{byte(rng.IntN(10))}
		case 2:
			p.Mode = storage.PutMode(rng.IntN(3))
		}
		if q == "expiring" {
			p.Expire = time.Now().Add(time.Duration(rng.IntN(30)-2) * time.Millisecond)
		}
		id, err := c.Enqueue([]byte(q), p)
		if !x.ok(err, storage.ErrNotStored) {
			continue
		}
		if id != 0 && kept(q) {
			x.stored.Store(id, string(p.Body))
		}
		if rng.IntN(3) == 0 && !x.ok(c.Commit()) {
			return
		}
	}
	x.ok(c.Commit())
}

// got looks at a delivery, and says whether somebody else holds it or had it acked.
func (x *stress) got(q string, d storage.Delivery) {
	x.gets.Add(1)
	if !kept(q) {
		return
	}
	if _, acked := x.acked.Load(d.ID); acked {
		x.fail("message %d of %s is delivered after its ack", d.ID, q)
	}
	if other, held := x.holders.LoadOrStore(d.ID, d.Receipt); held {
		x.fail("message %d of %s is held under receipts %d and %d", d.ID, q, other, d.Receipt)
	}
	if body, ok := x.stored.Load(d.ID); ok && body != string(d.Body) && !strings.HasSuffix(string(d.Body), " replaced") {
		x.fail("message %d of %s has the body %.40q, want %.40q", d.ID, q, d.Body, body)
	}
}

func (x *stress) consumer(rng *rand.Rand) {
	c := x.s.NewSession("consumer")
	type heldMessage struct {
		q string
		d storage.Delivery
	}
	var held []heldMessage
	defer func() {
		for _, h := range held {
			x.holders.Delete(h.d.ID)
		}
		c.Close()
	}()
	for range 1 + rng.IntN(60) {
		if x.s.Stats().Items < 1000 { // a backlog is wanted, so that windows are refilled
			time.Sleep(100 * time.Microsecond)
			return
		}
		q := x.queue(rng)
		o := storage.ReserveOptions{Remove: rng.IntN(10) == 0}
		if rng.IntN(10) == 0 && !kept(q) {
			o.Lease = time.Duration(1+rng.IntN(5)) * time.Millisecond
		}
		d, ok, err := c.Reserve([]byte(q), o)
		if !x.ok(err) {
			return
		}
		if ok {
			x.got(q, d)
			if !o.Remove {
				held = append(held, heldMessage{q, d})
			} else if x.ok(c.Commit()) {
				x.acked.Store(d.ID, true)
				x.holders.Delete(d.ID)
			}
		}
		if len(held) == 0 || rng.IntN(3) == 0 {
			continue
		}
		i := rng.IntN(len(held))
		h := held[i]
		pick := storage.Pick{Receipt: h.d.Receipt}
		switch k := rng.IntN(12); {
		case k < 7:
			if x.ok(c.Ack([]byte(h.q), pick), storage.ErrNotFound) && x.ok(c.Commit()) {
				x.acked.Store(h.d.ID, true)
			}
			x.holders.Delete(h.d.ID)
		case k < 9:
			x.holders.Delete(h.d.ID)
			x.ok(c.Release([]byte(h.q), pick, time.Duration(rng.IntN(3))*time.Millisecond), storage.ErrNotFound)
		case k == 9:
			x.holders.Delete(h.d.ID)
			x.ok(c.ReplaceBody([]byte(h.q), h.d.Receipt, fmt.Appendf(nil, "%d replaced", priOf(string(h.d.Body))), 1, time.Time{}), storage.ErrNotFound)
		case k == 10 && !kept(h.q):
			x.ok(c.Touch([]byte(h.q), pick, time.Duration(rng.IntN(4))*time.Millisecond), storage.ErrNotFound)
		case k == 11:
			for _, o := range held {
				if o.q == h.q {
					x.holders.Delete(o.d.ID)
				}
			}
			c.GiveBack([]byte(h.q))
		default:
			continue
		}
		rest := held[:0]
		for j, o := range held {
			if j != i && (o.q != h.q || x.stillHeld(o.d.ID) || !kept(o.q)) {
				rest = append(rest, o)
			}
		}
		held = rest
	}
}

func (x *stress) stillHeld(id uint64) bool {
	_, held := x.holders.Load(id)
	return held
}

func (x *stress) waiter(rng *rand.Rand) {
	c := x.s.NewSession("waiter")
	defer c.Close()
	names := [][]byte{[]byte(x.queue(rng)), []byte(x.queue(rng))}
	woken := make(chan struct{})
	w := c.Wait(names, make([]storage.ReserveOptions, 2), func() { close(woken) })
	if rng.IntN(4) == 0 {
		return // hangs up
	}
	select {
	case <-woken:
		x.waits.Add(1)
	case <-time.After(time.Duration(rng.IntN(4)) * time.Millisecond):
	}
	i, d, ok, err := w.Take()
	if !x.ok(err) || !ok {
		return
	}
	q := string(names[i])
	x.got(q, d)
	if rng.IntN(2) == 0 {
		x.holders.Delete(d.ID)
		return // goes back with the session
	}
	if x.ok(c.Ack([]byte(q), storage.Pick{}), storage.ErrNotFound) && x.ok(c.Commit()) {
		x.acked.Store(d.ID, true)
	}
	x.holders.Delete(d.ID)
}

// operator does what people and the server's own parts do beside the clients.
func (x *stress) operator(rng *rand.Rand) {
	time.Sleep(time.Millisecond)
	switch rng.IntN(8) {
	case 0:
		_, err := x.s.Purge([]byte("purged"))
		x.ok(err)
	case 1, 2:
		x.ok(x.s.Checkpoint(context.Background()))
	case 3:
		x.ok(x.s.Sync())
	case 4:
		_, err := x.s.RemoveLogs()
		x.ok(err)
		x.s.LogFiles()
	case 5:
		c := x.s.NewSession("peek")
		defer c.Close()
		_, _, err := c.Peek([]byte(x.queue(rng)))
		x.ok(err)
	default:
		x.s.Held()
	}
}

// sampler holds I9 against the counts at all times.
func (x *stress) sampler(rng *rand.Rand) {
	x.samples.Add(1)
	if err := countsError(x.s); err != nil {
		x.fail("%v", err)
	}
	if q, ok := x.s.Queue([]byte("a")); ok {
		if err := queueError(q); err != nil {
			x.fail("%v", err)
		}
	}
	time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
}

// restart looks at the folder without a server and with a new one: all is as it was.
func (x *stress) restart(dir string, o storage.Options) {
	if x.t.Failed() {
		return
	}
	before, err := takeAll(x.s)
	if err != nil {
		x.fail("%v", err)
	}
	if err := x.s.Close(); err != nil {
		x.fail("Close: %v", err)
	}
	rep, err := storage.Check(dir, nil)
	if err != nil || len(rep.Problems) > 0 {
		x.fail("Check: %v %+v", err, rep.Problems)
	}
	x.s = open(x.t, dir, o)
	waitFor(x.t, "delayed messages are due", func() bool { return x.s.Stats().Delayed == 0 })
	after, err := takeAll(x.s)
	if err != nil {
		x.fail("%v", err)
	}
	live := func(ms []message) (kept []message) { // what expires meanwhile is another matter
		for _, m := range ms {
			if m.queue != "expiring" {
				kept = append(kept, m)
			}
		}
		return kept
	}
	if got, want := live(after), live(before); !slices.Equal(got, want) {
		x.fail("after a restart there are %d messages, before it %d", len(got), len(want))
	}
}

// finish drains the store: what was stored and not acked is there once.
func (x *stress) finish() {
	if x.t.Failed() {
		return
	}
	waitFor(x.t, "delayed messages are due", func() bool { return x.s.Stats().Delayed == 0 })
	live, err := takeAll(x.s)
	if err != nil {
		x.fail("%v", err)
		return
	}
	there := make(map[uint64]bool)
	for _, m := range live {
		if _, acked := x.acked.Load(m.id); acked && kept(m.queue) || there[m.id] {
			x.fail("message %d of %s has come back after its ack, or is there twice", m.id, m.queue)
		}
		there[m.id] = true
	}
	x.stored.Range(func(id, body any) bool {
		if _, acked := x.acked.Load(id); !acked && !there[id.(uint64)] {
			x.fail("message %d is lost: %.40q", id, body)
		}
		return true
	})
}
