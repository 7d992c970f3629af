package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// farPair is a master and a slave, real programs, in two networks with a cable between them, and clients of the master on its
// side of the cable.
type farPair struct {
	t             *testing.T
	m, s          *namespace
	master, slave *node
	secret        string // file

	stop    chan struct{}
	clients sync.WaitGroup
	mu      sync.Mutex // guards what follows
	stored  map[string]bool
	acked   map[string]bool
	answers []string // the first that was not STORED, of each client that had one
}

// newFarPair starts both; more are flags of the master's.
func newFarPair(t *testing.T, more ...string) *farPair {
	t.Helper()
	p := &farPair{t: t, stop: make(chan struct{}), stored: make(map[string]bool), acked: make(map[string]bool)}
	p.m, p.s = cabled(t)
	p.secret = filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(p.secret, []byte("a secret of some length\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.master = p.start(p.m, append([]string{"-sid", "1"}, more...)...)
	p.slave = p.start(p.s, "-sid", "2", "-mhost", p.m.address, "-mport", "1978")
	t.Cleanup(p.end)
	return p
}

func (p *farPair) start(n *namespace, more ...string) (server *node) {
	p.t.Helper()
	args := []string{"-admin", "0.0.0.0:1978", "-insecure", "-repl-secret-file", p.secret, "-drain", "0s", "-sync", "enqueue", "-ulim", "1MiB"}
	n.in(func() { server = startNode(p.t, append(args, more...)...) })
	return server
}

const farQueues, farClients = 2, 4

// load starts clients that enqueue one by one, and one that takes and acks from the first queue, and waits until they are at work.
func (p *farPair) load() {
	p.t.Helper()
	for i := range farClients {
		c, err := p.m.dialWire(p.master.address)
		if err != nil {
			p.t.Fatal(err)
		}
		p.clients.Go(func() {
			defer c.Close()
			p.enqueue(c, i)
		})
	}
	c, err := p.m.dialWire(p.master.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.clients.Go(func() {
		defer c.Close()
		p.work(c)
	})
	p.grows(200)
}

// farQueue is a queue's name; queue 0 is the worker's.
func farQueue(i int) string { return fmt.Sprintf("far%d", i%farQueues) }

func (p *farPair) ended() bool {
	select {
	case <-p.stop:
		return true
	default:
		return false
	}
}

func (p *farPair) enqueue(c *wire, client int) {
	for i := 0; !p.ended(); i++ {
		body := fmt.Sprintf("%d %06d %s", client, i, strings.Repeat("x", 150))
		fmt.Fprintf(c, "set %s 0 0 %d\r\n%s\r\n", farQueue(client), len(body), body)
		got, err := c.line()
		p.mu.Lock()
		if got == "STORED" {
			p.stored[body] = true
		} else {
			p.answers = append(p.answers, fmt.Sprint(got, err))
		}
		p.mu.Unlock()
		if got != "STORED" {
			return
		}
	}
}

// work acks every message that it gets, until one is not acked.
func (p *farPair) work(c *wire) {
	q := farQueue(0)
	for !p.ended() {
		fmt.Fprintf(c, "get %s/t=50\r\n", q)
		body, _, ok, err := c.value()
		if err != nil {
			return
		}
		if !ok {
			continue
		}
		fmt.Fprintf(c, "delete %s\r\n", q)
		got, err := c.line()
		if err != nil || got != "DELETED" {
			return
		}
		p.mu.Lock()
		p.acked[body] = true
		p.mu.Unlock()
	}
}

func (p *farPair) end() {
	if !p.ended() {
		close(p.stop)
	}
	p.clients.Wait()
}

func (p *farPair) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.stored)
}

// grows waits until so many more messages are STORED.
func (p *farPair) grows(n int) {
	p.t.Helper()
	n += p.count()
	eventually(p.t, "clients enqueue", func() bool { return p.count() >= n })
}

// farView is what both sides say.
type farView struct {
	LSN    uint64
	Chain  uint32
	Master *struct {
		State, Error string
		Reconnects   int `json:"reconnects_total"`
	}
	Slaves []struct {
		State string
		Lag   int `json:"lag_records"`
	}
}

func (p *farPair) view(n *namespace) (v farView) {
	p.t.Helper()
	if err := n.ask("/api/v1/replication", &v); err != nil {
		p.t.Fatal(err)
	}
	return v
}

// behind waits until the master says that the slave lacks so many records, for a second at least: the next attempt to send anything
// is well after the fault then.
func (p *farPair) behind(n int) {
	p.t.Helper()
	begin := time.Now()
	eventually(p.t, fmt.Sprintf("the slave is %d records behind", n), func() bool {
		v := p.view(p.m)
		return len(v.Slaves) == 1 && v.Slaves[0].Lag >= n && time.Since(begin) > time.Second
	})
}

// same ends the load and waits until the slave stands where the master does. Then it lets the slave lead, and both have the same
// messages in the same order, with every one that was STORED and not acked.
func (p *farPair) same() {
	p.t.Helper()
	p.end()
	p.standTogether(p.m, p.s)
	for _, text := range p.answers {
		p.t.Errorf("an enqueue was answered %q", text)
	}
	p.s.qserver("promote")
	lists := p.lists(p.s, p.slave)
	for i, want := range p.lists(p.m, p.master) {
		if !slices.Equal(lists[i], want) {
			p.t.Errorf("queue %d: the slave has %d messages, the master %d, or others", i, len(lists[i]), len(want))
		}
	}
	p.whole(lists, false)
	p.t.Logf("%d messages stored, %d acked", len(p.stored), len(p.acked))
}

// standTogether waits until the server in s follows the one in m and stands where it does.
func (p *farPair) standTogether(m, s *namespace) {
	p.t.Helper()
	begin := time.Now()
	var have, want farView
	for late := begin.Add(longPatience); ; time.Sleep(5 * time.Millisecond) {
		have, want = p.view(s), p.view(m)
		if have.Master != nil && have.Master.State == "following" && have.LSN == want.LSN && have.Chain == want.Chain {
			break
		}
		if time.Now().After(late) {
			p.t.Fatalf("the slave stands at %+v, the master at %+v", have, want)
		}
	}
	p.t.Logf("both stand at LSN %d, sum %08x; it took %v", have.LSN, have.Chain, time.Since(begin).Round(time.Millisecond))
}

// whole says what is wrong with the messages of a server: one that was STORED is missing, there twice, altered, or not in its
// client's order. again: those that were acked may be there.
func (p *farPair) whole(lists [][]string, again bool) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	there := make(map[string]bool)
	for i, list := range lists {
		last := make(map[byte]string)
		for _, body := range list {
			client := body[0]
			switch {
			case there[body]:
				p.t.Errorf("%.12q is there twice", body)
			case int(client-'0')%farQueues != i:
				p.t.Errorf("%.12q is in queue %d", body, i)
			case body <= last[client]:
				p.t.Errorf("%.12q comes behind %.12q", body, last[client])
			case p.acked[body] && !again:
				p.t.Errorf("%.12q has come back after its ack", body)
			}
			there[body], last[client] = true, body
		}
	}
	lost := 0
	for body := range p.stored {
		if !there[body] && !p.acked[body] {
			lost++
		}
	}
	if lost > 0 {
		p.t.Errorf("%d of %d messages were STORED, not acked, and are lost", lost, len(p.stored))
	}
}

// lists takes everything that a server has, in the order in which it gives it.
func (p *farPair) lists(n *namespace, server *node) (lists [][]string) {
	p.t.Helper()
	c, err := n.dialWire(server.address)
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	for i := range farQueues {
		want, err := c.count(farQueue(i))
		if err != nil {
			p.t.Fatal(err)
		}
		go fmt.Fprint(c, strings.Repeat("get "+farQueue(i)+"\r\n", want+1)) // reading goes on beside it
		var list []string
		for {
			body, _, ok, err := c.value()
			if err != nil {
				p.t.Fatal(err)
			}
			if !ok {
				break
			}
			list = append(list, body)
		}
		if len(list) != want {
			p.t.Fatalf("%s counts %d messages and has %d", farQueue(i), want, len(list))
		}
		lists = append(lists, list)
	}
	return lists
}

// TestNetwork parts master and slave in every way, while clients enqueue and ack, and joins them again: the slave catches up by
// itself, stands where the master does, and has every message in the master's order.
func TestNetwork(t *testing.T) {
	t.Parallel()
	t.Run("cable", func(t *testing.T) {
		t.Parallel()
		p := newFarPair(t)
		p.load()
		for _, end := range []*namespace{p.m, p.s} {
			mend := end.unplug()
			p.behind(500)
			mend()
			p.grows(100)
		}
		p.same()
	})
	t.Run("one way for a while", func(t *testing.T) {
		t.Parallel()
		p := newFarPair(t)
		p.load()
		for _, end := range []*namespace{p.m, p.s} {
			mend := end.deaf()
			p.behind(500)
			mend()
			p.grows(100)
		}
		p.same()
	})
	t.Run("slow, and one packet of 30 is lost", func(t *testing.T) {
		t.Parallel()
		p := newFarPair(t)
		for _, end := range []*namespace{p.m, p.s} {
			t.Log(end.slow())
			end.lossy()
		}
		p.load()
		p.grows(2000)
		p.same()
	})
	t.Run("routes, until both have given up", func(t *testing.T) {
		long(t)
		p := newFarPair(t)
		p.load()
		mends := []func(){p.m.blackhole(), p.s.blackhole()}
		p.behind(500)
		p.end()
		p.givenUp()
		for _, mend := range mends {
			mend()
		}
		p.same()
	})
	t.Run("one way, until both have given up", func(t *testing.T) {
		long(t)
		p := newFarPair(t)
		p.load()
		mend := p.m.deaf() // the slave's end of the connection is not seen either: it comes back beside it
		p.behind(500)
		p.end()
		p.givenUp()
		mend()
		p.same()
	})
}

// long is for what waits until a silent connection is given up, after ten seconds.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it waits for ten seconds: run it without -short")
	}
	t.Parallel()
}

// givenUp waits until master and slave have noticed that they are parted, and say so.
func (p *farPair) givenUp() {
	p.t.Helper()
	eventually(p.t, "the slave says that it has lost its master", func() bool {
		v := p.view(p.s)
		return v.Master.State == "connecting" && v.Master.Error != "" && v.Master.Reconnects > 0
	})
	eventually(p.t, "the master says that its slave is gone", func() bool {
		v := p.view(p.m)
		return len(v.Slaves) == 1 && v.Slaves[0].State == "gone" && v.Slaves[0].Lag > 0
	})
}

// TestPromoteWhileCutOff: the master is cut off while clients enqueue there, with -min-slaves 1. The slave leads, and has every
// message that was STORED. The old master, which has records of its own, rejoins when the cable is back.
func TestPromoteWhileCutOff(t *testing.T) {
	t.Parallel()
	p := newFarPair(t, "-min-slaves", "1", "-min-slaves-mode", "refuse", "-min-slaves-timeout", "500ms")
	eventually(t, "enqueues wait for the slave", func() bool {
		var v struct {
			Shared struct{ State string } `json:"min_slaves"`
		}
		return p.m.ask("/api/v1/replication", &v) == nil && v.Shared.State == "on"
	})
	p.load()
	mend := p.m.unplug()
	eventually(t, "the clients of the old master are told", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.answers) == farClients
	})
	for _, text := range p.answers {
		if !strings.HasPrefix(text, "SERVER_ERROR outcome unknown") && !strings.HasPrefix(text, "SERVER_ERROR too few slaves") {
			t.Errorf("behind the cut an enqueue was answered %q", text)
		}
	}
	t.Log(p.s.qserver("promote"))
	p.end()
	lists := p.lists(p.s, p.slave)
	p.whole(lists, true)

	p.s.in(func() { enqueueRange(t, p.slave.address, "later", 1, 100) })
	mend()
	p.master.kill()
	p.master.args = []string{"-admin", "0.0.0.0:1978", "-insecure", "-repl-secret-file", p.secret, "-sid", "1", "-mhost", p.s.address, "-mport", "1978"}
	p.m.in(p.master.start)
	eventually(t, "the old master is refused", func() bool {
		v := p.view(p.m)
		return v.Master != nil && v.Master.State == "refused" && strings.Contains(v.Master.Error, "records of its own")
	})
	p.master.kill()
	t.Log(p.m.qserver("rejoin", p.master.k.dir, p.s.address+":1978"))
	p.m.in(p.master.start)
	p.standTogether(p.s, p.m)
}
