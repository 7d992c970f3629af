package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// ledger is what the clients were told, kept over all kills.
type ledger struct {
	mu      sync.Mutex
	all     map[string]*entry // by body
	next    int
	stored  int
	acked   int
	maybe   int // neither, when the server was killed
	arrived int // of these, that were there afterwards
}

type entry struct {
	queue  string
	client int
	seq    int
	state  entryState
	held   bool
}

type entryState int

const (
	sent   entryState = iota // it may be there or not
	stored                   // it is there
	acking                   // it may be there or not, and was stored
	acked                    // it is gone
)

func newLedger() *ledger { return &ledger{all: make(map[string]*entry)} }

func (l *ledger) summary() string {
	return fmt.Sprintf("%d messages stored, %d acked, %d of unknown outcome of which %d were there", l.stored, l.acked, l.maybe, l.arrived)
}

// with runs fn on the entry of a body that the server has delivered, which must be one that may be there.
func (l *ledger) with(body string, fn func(e *entry) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.all[body]
	if e == nil {
		return fmt.Errorf("invented or altered: a body of %d bytes, %.40q", len(body), body)
	}
	return fn(e)
}

// load is a run of clients.
type load struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

const killClients = 8

// run starts the clients; they end when the server does.
func (l *ledger) run(address string, seed uint64) *load {
	w := new(load)
	for n := range killClients {
		w.wg.Go(func() {
			c := &killClient{l: l, n: n, address: address, rng: rand.New(rand.NewPCG(seed, uint64(n)))}
			err := c.work()
			if c.wire != nil {
				c.Close()
			}
			if gone(err) {
				return
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.errs = append(w.errs, fmt.Errorf("client %d: %w", n, err))
		})
	}
	return w
}

// gone says whether err is what the end of the server looks like.
func gone(err error) bool {
	var op *net.OpError
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.As(err, &op)
}

func (w *load) wait() []error {
	w.wg.Wait()
	return w.errs
}

// killClient is one client of the load.
type killClient struct {
	*wire
	l       *ledger
	n       int
	address string
	rng     *rand.Rand
	held    [][]heldBody // by queue, in the order of the server's list
}

type heldBody struct {
	body    string
	receipt uint64
}

func queueOf(n int) string { return string(rune('a' + n)) }

func (c *killClient) work() (err error) {
	for {
		if c.wire == nil {
			if c.wire, err = dialWire(c.address); err != nil {
				return err
			}
			c.held = make([][]heldBody, 3)
		}
		q := c.rng.IntN(3)
		switch k := c.rng.IntN(20); {
		case k < 4:
			err = c.enqueue(q, 1)
		case k < 5:
			err = c.enqueue(q, 2+c.rng.IntN(10))
		case k < 12:
			err = c.reserve(q)
		case k < 16:
			err = c.ackFirst(q)
		case k < 19:
			err = c.ackReceipt(q)
		default:
			err = c.hangUp()
		}
		if err != nil {
			return err
		}
	}
}

// enqueue sends n sets in one go and reads their answers.
func (c *killClient) enqueue(q, n int) error {
	var b strings.Builder
	var sends []*entry
	for range n {
		c.l.mu.Lock()
		c.l.next++
		e := &entry{queue: queueOf(q), client: c.n, seq: c.l.next}
		size := 20 + c.rng.IntN(400)
		if c.rng.IntN(50) == 0 {
			size = c.rng.IntN(150 << 10)
		}
		body := fmt.Sprintf("%s %d %d ", e.queue, c.n, e.seq)
		body += strings.Repeat(strconv.Itoa(e.seq), max(0, size-len(body))/8)
		c.l.all[body] = e
		c.l.mu.Unlock()
		sends = append(sends, e)
		fmt.Fprintf(&b, "set %s 0 0 %d\r\n%s\r\n", e.queue, len(body), body)
	}
	if _, err := io.WriteString(c, b.String()); err != nil {
		return err
	}
	for _, e := range sends {
		answer, err := c.line()
		if err != nil {
			return err
		}
		if answer != "STORED" {
			return fmt.Errorf("answer to set: %q", answer)
		}
		c.l.mu.Lock()
		if c.l.stored++; e.state == sent {
			e.state = stored
		}
		c.l.mu.Unlock()
	}
	return nil
}

func (c *killClient) reserve(q int) error {
	if _, err := fmt.Fprintf(c, "gets %s\r\n", queueOf(q)); err != nil {
		return err
	}
	body, receipt, ok, err := c.value()
	if err != nil || !ok {
		return err
	}
	err = c.l.with(body, func(e *entry) error {
		switch {
		case e.state == acked:
			return fmt.Errorf("message %d of %s is delivered after its ack", e.seq, e.queue)
		case e.held:
			return fmt.Errorf("message %d of %s is held twice", e.seq, e.queue)
		case e.queue != queueOf(q):
			return fmt.Errorf("message %d of %s is delivered from %s", e.seq, e.queue, queueOf(q))
		}
		e.held, e.state = true, max(e.state, stored)
		return nil
	})
	c.held[q] = append(c.held[q], heldBody{body, receipt})
	return err
}

func (c *killClient) ackFirst(q int) error {
	if len(c.held[q]) == 0 {
		return nil
	}
	h := c.held[q][0]
	c.held[q] = c.held[q][1:]
	return c.ack(h, "delete "+queueOf(q))
}

func (c *killClient) ackReceipt(q int) error {
	if len(c.held[q]) == 0 {
		return nil
	}
	i := c.rng.IntN(len(c.held[q]))
	h := c.held[q][i]
	c.held[q] = append(c.held[q][:i:i], c.held[q][i+1:]...)
	return c.ack(h, fmt.Sprintf("delete %s/id=%d", queueOf(q), h.receipt))
}

func (c *killClient) ack(h heldBody, command string) error {
	_ = c.l.with(h.body, func(e *entry) error { e.state = acking; return nil })
	if _, err := io.WriteString(c, command+"\r\n"); err != nil {
		return err
	}
	answer, err := c.line()
	if err != nil {
		return err
	}
	if answer != "DELETED" {
		return fmt.Errorf("answer to %s of a held message: %q", command, answer)
	}
	return c.l.with(h.body, func(e *entry) error { e.state, e.held = acked, false; c.l.acked++; return nil })
}

// hangUp closes the connection: what it holds goes back.
func (c *killClient) hangUp() error {
	for _, held := range c.held {
		for _, h := range held {
			_ = c.l.with(h.body, func(e *entry) error { e.held = false; return nil })
		}
	}
	c.Close()
	c.wire = nil
	return nil
}

// verify takes everything that a server has, compares it with the ledger, and gives it back. checked are the counts that a check
// of the folder found, or nil.
func (l *ledger) verify(address string, checked map[string]int) error {
	c, err := dialWire(address)
	if err != nil {
		return err
	}
	defer c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	there := make(map[string]bool)
	for q := range 3 {
		count, err := c.count(queueOf(q))
		if err != nil {
			return err
		}
		if checked != nil && checked[queueOf(q)] != count {
			return fmt.Errorf("queue %s counts %d messages, the check before the start %d", queueOf(q), count, checked[queueOf(q)])
		}
		last := make(map[int]int) // by client
		n := 0
		go io.WriteString(c, strings.Repeat("get "+queueOf(q)+"\r\n", count+1)) // reading goes on beside it
		for ; n <= count; n++ {
			body, _, ok, err := c.value()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			e := l.all[body]
			switch {
			case e == nil:
				return fmt.Errorf("invented or altered: a body of %d bytes in %s, %.40q", len(body), queueOf(q), body)
			case there[body]:
				return fmt.Errorf("message %d of %s is there twice", e.seq, e.queue)
			case e.state == acked:
				return fmt.Errorf("message %d of %s has come back after its ack", e.seq, e.queue)
			case e.seq < last[e.client]:
				return fmt.Errorf("message %d of client %d comes behind its %d", e.seq, e.client, last[e.client])
			}
			there[body], last[e.client] = true, e.seq
		}
		for range count - n {
			if _, _, _, err := c.value(); err != nil {
				return err
			}
		}
		if n != count {
			return fmt.Errorf("queue %s counts %d messages and has %d", queueOf(q), count, n)
		}
	}
	return l.settle(there)
}

// settle finds what is lost, and forgets what is over: what was of unknown outcome is known now.
func (l *ledger) settle(there map[string]bool) error {
	for body, e := range l.all {
		if e.state == stored && !there[body] {
			return fmt.Errorf("message %d of %s was stored, not acked, and is lost", e.seq, e.queue)
		}
		if e.state == sent || e.state == acking {
			l.maybe++
			if there[body] {
				l.arrived++
			}
		}
		if there[body] {
			e.state, e.held = stored, false
		} else if e.state != acked {
			e.state = acked // it never comes any more
		}
	}
	return nil
}

// count asks for the number of messages of a queue.
func (c *wire) count(queue string) (int, error) {
	if _, err := io.WriteString(c, "stats queues\r\n"); err != nil {
		return 0, err
	}
	n := 0
	for {
		l, err := c.line()
		if err != nil || l == "END" {
			return n, err
		}
		if v, ok := strings.CutPrefix(l, "STAT queue_"+queue+"_items "); ok {
			if n, err = strconv.Atoi(v); err != nil {
				return 0, err
			}
		}
	}
}

// TestLedger is a test of the test: it must see what it is there for.
func TestLedger(t *testing.T) {
	l := newLedger()
	l.all["x"] = &entry{state: stored}
	if err := l.settle(map[string]bool{}); err == nil {
		t.Error("a lost message is not seen")
	}
	if err := l.with("y", func(*entry) error { return nil }); err == nil {
		t.Error("an invented message is not seen")
	}
}
