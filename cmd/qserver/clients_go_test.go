package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// goClient is gomemcache with helpers that end the test. It pools connections and closes those beyond two that are idle, so
// a reservation needs a lease and its receipt, which is the item's CasID.
type goClient struct {
	*memcache.Client
	t *testing.T
}

func (c goClient) enqueue(key string, flags uint32, body []byte) {
	c.t.Helper()
	if err := c.Set(&memcache.Item{Key: key, Value: body, Flags: flags}); err != nil {
		c.t.Fatalf("set %s: %v", key, err)
	}
}

func (c goClient) reserve(key, body string) *memcache.Item {
	c.t.Helper()
	item, err := c.Get(key)
	if err != nil {
		c.t.Fatalf("get %s: %v", key, err)
	}
	if string(item.Value) != body {
		c.t.Fatalf("get %s: got %.100q, want %.100q", key, item.Value, body)
	}
	return item
}

// end acks, or does whatever else the key's options say.
func (c goClient) end(key string, want error) {
	c.t.Helper()
	if err := c.Delete(key); !errors.Is(err, want) {
		c.t.Errorf("delete %s: got %v, want %v", key, err, want)
	}
}

func testGomemcache(t *testing.T, s *programServer) {
	dial := func() goClient {
		client := memcache.New(s.addr)
		client.Timeout = 20 * time.Second
		t.Cleanup(func() { client.Close() })
		return goClient{client, t}
	}
	a, b := dial(), dial()
	if version := s.talk(t, "version\r\nquit\r\n"); !regexp.MustCompile(`^VERSION \d+\.\d+\.\d+\r\n$`).MatchString(version) {
		t.Errorf("version: got %q", version)
	}
	if err := a.Ping(); err != nil {
		t.Errorf("ping: %v", err)
	}

	random := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(random)
	bodies := [][]byte{{}, {0}, []byte("a\r\nb"), []byte("END\r\nget odd\r\n"), bytes.Repeat([]byte("\x00\r\n\xff"), 1<<18), random}
	for i, body := range bodies {
		a.enqueue("odd", 1<<32-1-uint32(i), body)
	}
	s.wantCounts(t, "odd", counts{ready: len(bodies)})
	for i, body := range bodies {
		item := a.reserve("odd/lease=60", string(body))
		if item.Flags != 1<<32-1-uint32(i) {
			t.Errorf("body %d: got flags %d", i, item.Flags)
		}
		b.end(fmt.Sprintf("odd/id=%d", item.CasID), nil)
	}
	if _, err := a.Get("odd"); !errors.Is(err, memcache.ErrCacheMiss) {
		t.Errorf("get of nothing: got %v", err)
	}
	a.end("odd", memcache.ErrCacheMiss)

	// Two workers, acks by receipt from the other one's connections.
	for _, body := range []string{"one", "two", "three"} {
		a.enqueue("work", 0, []byte(body))
	}
	one, two := a.reserve("work/lease=60", "one"), b.reserve("work/lease=60", "two")
	s.wantCounts(t, "work", counts{ready: 1, reserved: 2})
	a.end(fmt.Sprintf("work/id=%d", two.CasID), nil)
	a.end(fmt.Sprintf("work/id=%d", two.CasID), memcache.ErrCacheMiss)
	b.end(fmt.Sprintf("work/id=%d/release=0", one.CasID), nil)
	s.wantCounts(t, "work", counts{ready: 2})
	one = a.reserve("work/lease=60", "one") // back in its old place
	a.end(fmt.Sprintf("work/id=%d", one.CasID), nil)
	three := a.reserve("work/lease=60", "three")
	a.end(fmt.Sprintf("work/id=%d/release=1", three.CasID), nil)
	s.wantCounts(t, "work", counts{delayed: 1})
	if _, err := a.Get("work/t=20"); !errors.Is(err, memcache.ErrCacheMiss) {
		t.Errorf("a wait for nothing: got %v", err)
	}
	three = b.reserve("work/t=15000/lease=60", "three")
	if err := a.Touch(fmt.Sprintf("work/id=%d", three.CasID), 1); err != nil {
		t.Errorf("touch: %v", err)
	}
	lapsed := three
	three = a.reserve("work/t=15000/lease=60", "three")
	a.end(fmt.Sprintf("work/id=%d", lapsed.CasID), memcache.ErrCacheMiss)

	// A pool closes what is idle; a lease outlives that, and the whole client.
	a.Close()
	s.wantCounts(t, "work", counts{reserved: 1})
	b.end(fmt.Sprintf("work/id=%d", three.CasID), nil)

	// Several at once; progress saved by cas.
	for _, body := range []string{"1", "2"} {
		a.enqueue("several", 0, []byte(body))
	}
	items, err := a.GetMulti([]string{"several/n=x/lease=60", "several/n=y/lease=60"})
	if err != nil || len(items) != 2 {
		t.Fatalf("got %d items, %v", len(items), err)
	}
	first := items["several/n=x/lease=60"]
	first.Key, first.Value = "several", []byte("1, half done")
	if err := b.CompareAndSwap(first); err != nil {
		t.Errorf("cas: %v", err)
	}
	if err := b.CompareAndSwap(first); !errors.Is(err, memcache.ErrCASConflict) && !errors.Is(err, memcache.ErrCacheMiss) {
		t.Errorf("a second cas: got %v", err)
	}
	b.end("several/n=y", nil)
	b.end(fmt.Sprintf("several/id=%d", a.reserve("several/lease=60", "1, half done").CasID), nil)

	// add and replace look at the queue.
	item := &memcache.Item{Key: "single", Value: []byte("x")}
	for _, tt := range []struct {
		name string
		do   func(*memcache.Item) error
		want error
	}{
		{"replace", a.Replace, memcache.ErrNotStored}, {"add", a.Add, nil}, {"add", a.Add, memcache.ErrNotStored}, {"replace", a.Replace, nil},
	} {
		if err := tt.do(item); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
	s.wantCounts(t, "single", counts{ready: 2})
	for range 2 {
		b.end(fmt.Sprintf("single/id=%d", a.reserve("single/lease=60", "x").CasID), nil)
	}

	// Without a lease a reservation ends with its connection.
	c := dial()
	a.enqueue("mortal", 0, []byte("job"))
	c.reserve("mortal", "job")
	s.wantCounts(t, "mortal", counts{reserved: 1})
	c.Close()
	b.end(fmt.Sprintf("mortal/id=%d", b.reserve("mortal/t=15000/lease=60", "job").CasID), nil)

	testPool(t, s, a, b)
	for _, queue := range []string{"odd", "work", "several", "single", "mortal", "pool"} {
		s.wantCounts(t, queue, counts{})
	}
}

// testPool lets many goroutines share one client's pool: every message is worked on exactly once.
func testPool(t *testing.T, s *programServer, a, b goClient) {
	const workers, n = 8, 400
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range n / workers {
				if err := a.Set(&memcache.Item{Key: "pool", Value: fmt.Append(nil, w, i)}); err != nil {
					t.Errorf("set: %v", err)
				}
			}
		})
	}
	var mu sync.Mutex // guards done
	done := make(map[string]int)
	for range workers {
		wg.Go(func() {
			for {
				mu.Lock()
				enough := len(done) == n
				mu.Unlock()
				if enough {
					return
				}
				item, err := b.Get("pool/t=50/lease=60")
				if errors.Is(err, memcache.ErrCacheMiss) {
					continue
				}
				if err == nil {
					err = b.Delete(fmt.Sprintf("pool/id=%d", item.CasID))
				}
				if err != nil {
					t.Errorf("work: %v", err)
					return
				}
				mu.Lock()
				done[string(item.Value)]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for body, times := range done {
		if times != 1 {
			t.Errorf("%s was worked on %d times", body, times)
		}
	}
}
