package replication_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"qserver/replication"
	"qserver/storage"
	"qserver/storage/ulog"
)

var (
	cutSeed   = flag.Uint64("cut.seed", 0, "seed of the tests that cut a stream; 0: a new one")
	cutPoints = flag.Int("cut.points", 0, "bytes of 64 KiB at which it is cut; 0: $QSERVER_CUT_POINTS, or 2,010, or 300 with -short")
)

// newCutSeed prints the seed and how to repeat the test with it.
func newCutSeed(t *testing.T) uint64 {
	t.Helper()
	seed := *cutSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())>>8 | 1
	}
	t.Logf("again: go test ./replication -run '^%s$' -cut.seed=%d", t.Name(), seed)
	return seed
}

// streamLen is how many bytes TestCutStream sends at least.
const streamLen = 65736

// TestCutStream sends 64 KiB of records of every kind, frame by frame, and cuts the connection at their bytes, one after the other:
// at every one if there are as many -cut.points, otherwise at the first and the last of each frame and at random ones. Behind each
// cut the slave stands where it did, and goes on from there; behind each frame it has what the master has.
func TestCutStream(t *testing.T) {
	rng := rand.New(rand.NewPCG(newCutSeed(t), 0))
	points := *cutPoints
	if points == 0 {
		points, _ = strconv.Atoi(os.Getenv("QSERVER_CUT_POINTS"))
	}
	if points == 0 {
		points = 2010
		if testing.Short() {
			points = 300
		}
	}
	m, s := pairOf(t, quiet(), quick())
	c := m.store.NewSession("load")
	defer c.Close()
	sent, frames, cuts := 0, 0, 0
	for sent < streamLen {
		for range 1 + rng.IntN(8) {
			randomStep(t, rng, m.store, c)
		}
		if err := m.store.Sync(); err != nil { // so that they come in one frame
			t.Fatal(err)
		}
		before := s.store.Position()
		if before == m.store.Position() {
			continue
		}
		frame := frameLen(t, m, before)
		for at := range frame {
			if at != 0 && at != frame-1 && rng.IntN(streamLen) >= points {
				continue
			}
			cuts++
			err := once(t, m, s, &badLine{readLeft: replication.GreetingLen() + at, toSend: -1, flip: -1})
			if now := s.store.Position(); err == nil || now != before {
				t.Fatalf("cut at byte %d of a frame of %d: %v; it stands at %+v, want %+v", at, frame, err, now, before)
			}
		}
		err := once(t, m, s, &badLine{readLeft: replication.GreetingLen() + frame, toSend: -1, flip: -1})
		if got, want := s.store.Position(), m.store.Position(); err == nil || got != want {
			t.Fatalf("cut behind a frame of %d bytes: %v; it stands at %+v, the master at %+v", frame, err, got, want)
		}
		agree(t, m.store, s.store)
		sent += frame
		frames++
	}
	t.Logf("%d cuts in %d bytes of %d frames", cuts, sent, frames)
	sameMessages(t, m, s)
}

// quiet is quick for a master that writes nothing by itself: no checkpoint is due.
func quiet() storage.Options {
	o := quick()
	o.SegmentBytes = 16 << 20
	return o
}

// frameLen is how long the frame is with which the master goes on behind a position.
func frameLen(t *testing.T, m *node, after ulog.Position) int {
	t.Helper()
	f, err := m.store.Feed("2", after)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records, n, end, err := f.Append(nil, 1<<20)
	if err != nil || n == 0 || end != m.store.Position() {
		t.Fatalf("%d records up to %+v, %v", n, end, err)
	}
	return replication.RecordsAt + len(records)
}

var stepQueues = []string{"a", "b", "c"}

// randomStep does something to one of the queues.
func randomStep(t *testing.T, rng *rand.Rand, st *storage.Store, c *storage.Session) {
	t.Helper()
	q := []byte(stepQueues[rng.IntN(len(stepQueues))])
	var err error
	switch k := rng.IntN(100); {
	case k < 55:
		p := storage.PutRequest{Body: bytes.Repeat([]byte{'a' + byte(k%26)}, rng.IntN(300)), Priority: uint32(rng.IntN(3)), Flags: rng.Uint32()}
		switch k {
		case 0:
			p.Body = make([]byte, 4<<10)
		case 1, 2:
			p.Dedup = []byte{byte(rng.IntN(50))}
		case 3, 4:
			p.Delay = time.Hour
		case 5:
			p.Expire = time.Now().Add(time.Hour)
		}
		_, err = c.Enqueue(q, p)
	case k < 98:
		d, ok, failed := c.Reserve(q, storage.ReserveOptions{})
		if err = failed; !ok {
			break
		}
		pick := storage.Pick{Receipt: d.Receipt}
		switch rng.IntN(6) {
		case 0: // held
		case 1:
			err = c.Release(q, pick, 0)
		case 2:
			err = c.Release(q, pick, time.Hour)
		case 3:
			err = c.ReplaceBody(q, d.Receipt, []byte("new"), 9, time.Time{})
		default:
			err = c.Ack(q, pick)
		}
	default:
		_, err = st.Purge(q)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
}

// sameMessages lets the slave lead and compares all messages with the master's, in their order. What the master's clients hold is
// given back first.
func sameMessages(t *testing.T, m, s *node) {
	t.Helper()
	if err := m.store.Yield("nobody:1"); err != nil {
		t.Fatal(err)
	}
	if err := m.store.Promote(); err != nil {
		t.Fatal(err)
	}
	s.promote()
	for _, q := range stepQueues {
		if got, want := bodies(t, s.store, q), bodies(t, m.store, q); !slices.Equal(got, want) {
			t.Errorf("queue %s: the slave gives %d messages, the master %d, or others", q, len(got), len(want))
		}
	}
}

// TestCutUnderLoad cuts connections at random bytes of either side's while the master takes messages, and runs of many frames are
// on their way.
func TestCutUnderLoad(t *testing.T) {
	rng := rand.New(rand.NewPCG(newCutSeed(t), 1))
	m, s := pair(t, quick())
	m.out.Detach()
	m.out = &replication.Master{SID: 1, Gather: -1, Log: m.log}
	m.out.Attach(m.store)
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i, q := range stepQueues {
		seed := rng.Uint64()
		load.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			c := m.store.NewSession("load")
			defer c.Close()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if m.store.SyncedLSN() > s.store.AppliedLSN()+30 {
					time.Sleep(time.Millisecond) // enough is on its way
					continue
				}
				body := fmt.Appendf(nil, "%d %*d", n, rng.IntN(500), n)
				if _, err := c.Enqueue([]byte(q), storage.PutRequest{Body: body, Priority: storage.DefaultPriority}); err != nil {
					t.Error(err)
					return
				}
				if n%2 == 0 {
					if d, ok, err := c.Reserve([]byte(q), storage.ReserveOptions{}); err != nil || ok && c.Ack([]byte(q), storage.Pick{Receipt: d.Receipt}) != nil {
						t.Errorf("reserve and ack: %v", err)
						return
					}
				}
				if err := c.Commit(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	cuts, moved := 100, 0
	if testing.Short() {
		cuts = 40
	}
	for range cuts {
		line := &badLine{readLeft: rng.IntN(32 << 10), toSend: -1, flip: -1}
		if rng.IntN(3) == 0 {
			line = &badLine{readLeft: 1 << 20, toSend: rng.IntN(500), flip: -1}
		}
		before := s.store.Position()
		if err := once(t, m, s, line); err == nil {
			t.Error("no error")
		}
		if after := s.store.Position(); after.LSN > before.LSN {
			moved++
		} else if after != before {
			t.Errorf("it stood at %+v, and stands at %+v", before, after)
		}
	}
	close(stop)
	load.Wait()
	if moved < cuts/10 {
		t.Errorf("%d of %d connections brought anything", moved, cuts)
	}
	s.turn(pipe(m))
	caughtUp(t, m, s)
	sameMessages(t, m, s)
}
