package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeQueue is a queue server as small as the scenarios need, which can be told to do wrong.
type fakeQueue struct {
	deliver func(n int64, body []byte) (what []byte, times int) // what becomes of message n; nil: as it should be

	mu     sync.Mutex // guards the rest
	queues map[string][]fakeMessage
	stored int64
	items  int64
	more   chan struct{} // closed when a message comes

	journal *os.File // of puts and acks; nil: none
}

type fakeMessage struct {
	Serial             int64
	Queue, Flags, Body string
	Acked              bool
}

// A wrong is what a server may do to a message.
type wrong func(body []byte) (what []byte, times int)

var wrongs = map[string]wrong{
	"loses":   func(b []byte) ([]byte, int) { return b, 0 },
	"doubles": func(b []byte) ([]byte, int) { return b, 2 },
	"changes": func(b []byte) ([]byte, int) { c := bytes.Clone(b); c[len(c)-1] ^= 1; return c, 1 },
	"cuts":    func(b []byte) ([]byte, int) { return b[:len(b)-1], 1 },
}

// with is a fake's deliver that does wrong with message n, the first of which is 0.
func (w wrong) with(n int64) func(int64, []byte) ([]byte, int) {
	return func(stored int64, body []byte) ([]byte, int) {
		if stored != n {
			return body, 1
		}
		return w(body)
	}
}

func newFake(deliver func(int64, []byte) ([]byte, int)) *fakeQueue {
	return &fakeQueue{deliver: deliver, queues: make(map[string][]fakeMessage), more: make(chan struct{})}
}

// startFake returns the address of a fake queue server that ends with the test.
func startFake(t *testing.T, deliver func(n int64, body []byte) ([]byte, int)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := newFake(deliver)
	var serving sync.WaitGroup
	serving.Go(func() { f.listen(ln, &serving) })
	t.Cleanup(func() {
		ln.Close()
		serving.Wait() // the scenarios have closed their connections
	})
	return ln.Addr().String()
}

func (f *fakeQueue) listen(ln net.Listener, serving *sync.WaitGroup) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		serving.Go(func() {
			defer conn.Close()
			f.serve(conn)
		})
	}
}

func (f *fakeQueue) serve(conn net.Conn) {
	r, w := bufio.NewReader(conn), bufio.NewWriter(conn)
	held := make(map[string][]fakeMessage)
	for {
		if r.Buffered() == 0 {
			w.Flush()
		}
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		switch words[0] {
		case "set":
			n, _ := strconv.Atoi(words[4])
			body := make([]byte, n+2)
			if _, err := io.ReadFull(r, body); err != nil {
				return
			}
			f.put(words[1], words[2], body[:n])
			if len(words) == 5 {
				fmt.Fprint(w, "STORED\r\n")
			}
		case "get":
			w.Flush()
			f.get(w, words[1], held)
		case "delete":
			if len(held[words[1]]) == 0 {
				fmt.Fprint(w, "NOT_FOUND\r\n")
				continue
			}
			f.ack(held, words[1])
			fmt.Fprint(w, "DELETED\r\n")
		case "stats":
			f.mu.Lock()
			fmt.Fprintf(w, "STAT curr_items %d\r\nEND\r\n", f.items)
			f.mu.Unlock()
		case "version":
			fmt.Fprint(w, "VERSION 1.0.0\r\n")
		default:
			fmt.Fprint(w, "ERROR\r\n")
		}
	}
}

func (f *fakeQueue) put(queue, flags string, body []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	times := 1
	if f.deliver != nil {
		body, times = f.deliver(f.stored, body)
	}
	f.stored++
	for range times {
		m := fakeMessage{Serial: f.stored, Queue: queue, Flags: flags, Body: string(body)}
		f.queues[queue] = append(f.queues[queue], m)
		f.items++
		f.write(m)
	}
	close(f.more)
	f.more = make(chan struct{})
}

func (f *fakeQueue) ack(held map[string][]fakeMessage, queue string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := held[queue][0]
	held[queue] = held[queue][1:]
	f.items--
	m.Acked = true
	f.write(m)
}

func (f *fakeQueue) write(m fakeMessage) {
	if f.journal != nil {
		json.NewEncoder(f.journal).Encode(m)
	}
}

func (f *fakeQueue) get(w *bufio.Writer, key string, held map[string][]fakeMessage) {
	queue, options, _ := strings.Cut(key, "/")
	var wait time.Duration
	for option := range strings.SplitSeq(options, "/") {
		if ms, ok := strings.CutPrefix(option, "t="); ok {
			n, _ := strconv.Atoi(ms)
			wait = time.Duration(n) * time.Millisecond
		}
		if option == "close" && len(held[queue]) > 0 {
			f.ack(held, queue)
		}
	}
	if strings.HasSuffix(options, "close") {
		fmt.Fprint(w, "END\r\n")
		return
	}
	limit := time.After(wait)
	for {
		f.mu.Lock()
		if q := f.queues[queue]; len(q) > 0 {
			f.queues[queue] = q[1:]
			f.mu.Unlock()
			held[queue] = append(held[queue], q[0])
			fmt.Fprintf(w, "VALUE %s %s %d\r\n%s\r\nEND\r\n", key, q[0].Flags, len(q[0].Body), q[0].Body)
			return
		}
		more := f.more
		f.mu.Unlock()
		select {
		case <-more:
		case <-limit:
			fmt.Fprint(w, "END\r\n")
			return
		}
	}
}
