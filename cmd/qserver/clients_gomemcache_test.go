package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// TestGomemcacheStory runs the story with gomemcache, in this process. It shows neither version nor stats, and its map of what
// several keys answered can't hold a list.
func TestGomemcacheStory(t *testing.T) {
	t.Parallel()
	c := storyCase{
		name: "gomemcache", lease: true, noBatch: true, flags: 1<<32 - 1,
		dial: func(_ *testing.T, s *programServer, timeout time.Duration) storyClient {
			client := memcache.New(s.addr)
			client.Timeout = timeout
			return goStory{client}
		},
	}
	testStory(t, startProgram(t, buildProgram(t)), &c)
}

// goStory does what the lines of a story say with gomemcache.
type goStory struct{ *memcache.Client }

func (g goStory) kill() { g.Close() }

func (g goStory) do(line string) string {
	command, rest, _ := strings.Cut(line, " ")
	args := strings.Fields(rest)
	switch command {
	case "enqueue":
		flags, _ := strconv.ParseUint(args[2], 10, 32)
		return outcome("stored", "refused", g.Set(goItem(args[0], args[3], uint32(flags), 0)))
	case "add":
		return outcome("stored", "refused", g.Add(goItem(args[0], args[1], 0, 0)))
	case "replace":
		return outcome("stored", "refused", g.Replace(goItem(args[0], args[1], 0, 0)))
	case "progress":
		receipt, _ := strconv.ParseUint(args[1], 10, 64)
		return outcome("stored", "refused", g.CompareAndSwap(goItem(args[0], args[2], 0, receipt)))
	case "reserve":
		item, err := g.Get(args[0])
		if err != nil {
			return outcome("", "empty", err)
		}
		return fmt.Sprintf("message %d %d %s", item.CasID, item.Flags, encodeBody(item.Value))
	case "several":
		items, err := g.GetMulti(args)
		if err != nil {
			return outcome("", "", err)
		}
		var answer strings.Builder
		answer.WriteString("messages")
		for _, key := range args {
			if item := items[key]; item != nil {
				answer.WriteString(fmt.Sprintf(" %d %s", item.CasID, encodeBody(item.Value)))
			} else {
				answer.WriteString(" - -")
			}
		}
		return answer.String()
	case "ack":
		return outcome("done", "missing", g.Delete(args[0]))
	case "extend":
		seconds, _ := strconv.Atoi(args[1])
		return outcome("done", "missing", g.Touch(args[0], int32(seconds)))
	case "values", "flush": // it knows bytes only, and buffers nothing
		return "ok"
	case "close":
		g.Close()
		return "ok"
	case "version", "stat":
		return "-"
	}
	return "error unknown command " + command
}

func goItem(key, body string, flags uint32, receipt uint64) *memcache.Item {
	value, _ := base64.StdEncoding.DecodeString(strings.Trim(body, "-"))
	return &memcache.Item{Key: key, Value: value, Flags: flags, CasID: receipt}
}

// outcome says how a command went: well, with one of the ordinary answers, or with an error.
func outcome(well, ordinary string, err error) string {
	switch {
	case err == nil:
		return well
	case errors.Is(err, memcache.ErrCacheMiss), errors.Is(err, memcache.ErrNotStored), errors.Is(err, memcache.ErrCASConflict):
		return ordinary
	}
	return "error " + err.Error()
}

// TestGomemcachePool has 8 goroutines take a message at the same time, without leases. One client for all of them closes all
// connections but two when it is done with them, and what they have taken goes to the next one: nothing is lost, but it is delivered
// again, and an ack by place goes to the connection that was used last. With a client for each nothing goes back.
func TestGomemcachePool(t *testing.T) {
	const workers = 8
	s := startProgram(t, buildProgram(t))
	dial := func() *memcache.Client {
		client := memcache.New(s.addr)
		client.Timeout = longPatience
		t.Cleanup(func() { client.Close() })
		return client
	}
	shared := dial()
	for _, tt := range []struct {
		queue       string
		client      func() *memcache.Client
		took, acked counts // the queue's messages when all have taken one, and when all have acked
	}{
		{"shared", func() *memcache.Client { return shared }, counts{ready: workers - 2, reserved: 2}, counts{ready: workers - 2, reserved: 1}},
		{"own", dial, counts{reserved: workers}, counts{}},
	} {
		t.Run(tt.queue, func(t *testing.T) {
			producer := dial()
			enqueue := func(body string) {
				if err := producer.Set(&memcache.Item{Key: tt.queue, Value: []byte(body)}); err != nil {
					t.Fatal(err)
				}
			}
			enqueue("first") // so that the queue is there
			if err := deleteFirst(producer, tt.queue); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex // guards seen
			seen := make(map[string]int)
			var took sync.WaitGroup
			clients := make([]*memcache.Client, workers)
			for i := range workers {
				clients[i] = tt.client()
				took.Go(func() {
					item, err := clients[i].Get(tt.queue + "/t=50000")
					if err != nil {
						t.Errorf("get: %v", err)
						return
					}
					mu.Lock()
					seen[string(item.Value)]++
					mu.Unlock()
				})
			}
			eventually(t, "all wait", func() bool { return s.state(t, tt.queue).Waiters == workers })
			for i := range workers {
				enqueue(fmt.Sprint("job", i))
			}
			took.Wait()
			s.waitCounts(t, tt.queue, tt.took)
			if tt.acked == (counts{}) && len(seen) != workers {
				t.Errorf("got %v, want %d different ones", seen, workers)
			}
			for _, client := range clients {
				if err := client.Delete(tt.queue); err != nil && tt.acked == (counts{}) {
					t.Errorf("delete: %v", err)
				}
			}
			s.waitCounts(t, tt.queue, tt.acked)
			shared.Close()
			left := tt.acked.ready + tt.acked.reserved
			s.waitCounts(t, tt.queue, counts{ready: left})
			for range left {
				if err := deleteFirst(producer, tt.queue); err != nil {
					t.Fatal(err)
				}
			}
			s.waitCounts(t, tt.queue, counts{})
		})
	}
}

// deleteFirst takes a queue's first message, and acks it by receipt.
func deleteFirst(client *memcache.Client, queue string) error {
	item, err := client.Get(queue + "/lease=60")
	if err != nil {
		return err
	}
	return client.Delete(fmt.Sprintf("%s/id=%d", queue, item.CasID))
}
