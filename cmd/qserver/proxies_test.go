package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A proxy shares one connection to the server among all its clients, so the server takes them for one. These tests show what goes
// wrong with acks by position and what works, through a small proxy of this file, and through twemproxy where it is installed.

// proxy is what the stories need of one.
type proxy interface {
	address() string // of its port for clients
	cut()            // ends its connection to the server; it makes another when it needs one
}

// TestMultiplexingProxy tells the stories through the small proxy.
func TestMultiplexingProxy(t *testing.T) {
	n := startNode(t)
	p := startMux(t, n.address)
	t.Run("acks by position go wrong", func(t *testing.T) { acksByPosition(t, p, n, "wrong") })
	t.Run("acks by receipt and a lease work", func(t *testing.T) { acksByReceipt(t, p, n, "right") })
	t.Run("with mcrouter's hash stop", func(t *testing.T) { acksByReceipt(t, p, n, "stop|#|") })
	t.Run("a wait holds up all others", func(t *testing.T) { sharedWait(t, p, known(t, p, "wait", n), "wait") })
}

// TestTwemproxy tells them through twemproxy, and spreads queues over two servers by its hash tag.
func TestTwemproxy(t *testing.T) {
	a, b := startNode(t), startNode(t)
	p := startTwemproxy(t, a, b)
	t.Run("one queue, one server", func(t *testing.T) { hashTags(t, p, a, b) })
	t.Run("acks by position go wrong", func(t *testing.T) { acksByPosition(t, p, known(t, p, "{wrong}", a, b), "{wrong}") })
	t.Run("acks by receipt and a lease work", func(t *testing.T) { acksByReceipt(t, p, known(t, p, "{right}", a, b), "{right}") })
	t.Run("a wait holds up all others", func(t *testing.T) { sharedWait(t, p, known(t, p, "{wait}", a, b), "{wait}") })
	t.Run("a dead server comes back", func(t *testing.T) { deadBehindProxy(t, p, known(t, p, "{dead}", a, b), "{dead}") })
}

// known makes a queue through the proxy, empties it, and says on which server it is.
func known(t *testing.T, p proxy, key string, nodes ...*node) *node {
	t.Helper()
	c := dialTalker(t, p.address())
	c.do("set "+key+" 0 0 1\r\nx\r\n", "STORED")
	for _, n := range nodes {
		if n.stat(bareName(key)+"_items") == 1 {
			c.wantTaken(key+"/lease=60", "x")
			c.do(fmt.Sprintf("delete %s/id=%d\r\n", key, c.receipt), "DELETED")
			return n
		}
	}
	t.Fatalf("%s is on no server", key)
	return nil
}

// bareName takes off what proxies hash on.
func bareName(key string) string { return strings.TrimSuffix(strings.Trim(key, "{}"), "|#|") }

// talker is a client's connection that ends the test when an answer is another than the story has.
type talker struct {
	*wire
	t       *testing.T
	receipt uint64 // of the last message taken
}

func dialTalker(t *testing.T, address string) *talker {
	t.Helper()
	c, err := dialWire(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &talker{wire: c, t: t}
}

// ask sends a command whose answer is one line, and returns that.
func (c *talker) ask(command string) string {
	c.t.Helper()
	if _, err := io.WriteString(c, command); err != nil {
		c.t.Fatal(err)
	}
	got, err := c.line()
	if err != nil {
		c.t.Fatalf("%q: %v", command, err)
	}
	return got
}

func (c *talker) do(command, answer string) {
	c.t.Helper()
	if got := c.ask(command); got != answer {
		c.t.Fatalf("%q: got %q, want %q", command, got, answer)
	}
}

// take is `gets`; ok is false if there is no message.
func (c *talker) take(key string) (body string, ok bool) {
	c.t.Helper()
	if _, err := io.WriteString(c, "gets "+key+"\r\n"); err != nil {
		c.t.Fatal(err)
	}
	body, receipt, ok, err := c.value()
	if err != nil {
		c.t.Fatalf("gets %s: %v", key, err)
	}
	c.receipt = receipt
	return body, ok
}

func (c *talker) wantTaken(key, body string) {
	c.t.Helper()
	if got, ok := c.take(key); !ok || got != body {
		c.t.Fatalf("gets %s: got %q %v, want %q", key, got, ok, body)
	}
}

// acksByPosition is what must not be done: `delete q` acks what the connection holds first, and that is another client's job.
// key names the queue as the clients do; n has it.
func acksByPosition(t *testing.T, p proxy, n *node, key string) {
	name := bareName(key)
	a, b := dialTalker(t, p.address()), dialTalker(t, p.address())
	a.do("set "+key+" 0 0 1\r\nA\r\n", "STORED")
	a.do("set "+key+" 0 0 1\r\nB\r\n", "STORED")
	a.wantTaken(key, "A")
	b.wantTaken(key, "B")
	b.do("delete "+key+"\r\n", "DELETED") // says B, and acks A
	a.Close()                             // A's worker dies in the midst of it
	if got := n.stat(name + "_reserved"); got != 1 {
		t.Errorf("got %d reserved, want 1: a worker's end gives nothing back, the proxy's connection lives on", got)
	}
	if body, ok := b.take(key); ok {
		t.Errorf("got %q, want nothing while the proxy lives", body)
	}
	p.cut()
	direct := dialTalker(t, n.address)
	direct.wantSoon(name, "B") // was done and acked, and comes again
	direct.do("delete "+name+"\r\n", "DELETED")
	if body, ok := direct.take(name); ok {
		t.Errorf("got %q, want nothing: A is lost", body)
	}
}

// wantSoon takes a message that is about to come back.
func (c *talker) wantSoon(key, body string) {
	c.t.Helper()
	for late := time.Now().Add(patience); time.Now().Before(late); time.Sleep(10 * time.Millisecond) {
		if got, ok := c.take(key); ok {
			if got != body {
				c.t.Fatalf("gets %s: got %q, want %q", key, got, body)
			}
			return
		}
	}
	c.t.Fatalf("gets %s: %q did not come back", key, body)
}

// acksByReceipt is what works: each message under a lease and acked, extended and given back by its receipt.
func acksByReceipt(t *testing.T, p proxy, n *node, key string) {
	name := bareName(key)
	a, b := dialTalker(t, p.address()), dialTalker(t, p.address())
	for _, body := range []string{"A", "B", "C"} {
		a.do("set "+key+"/pri=9 0 0 1\r\n"+body+"\r\n", "STORED")
	}
	a.wantTaken(key+"/lease=1", "A")
	b.wantTaken(key+"/lease=60", "B")
	b.do(fmt.Sprintf("delete %s/id=%d\r\n", key, b.receipt), "DELETED")
	a.Close() // A's worker dies: A comes back when its lease ends
	if got := n.stat(name + "_total_acked"); got < 1 {
		t.Error("nothing was acked")
	}
	b.wantTaken(key+"/lease=60", "C")
	c := dialTalker(t, p.address())
	c.wantSoon(key+"/lease=60", "A")

	// The dead one's ack comes late after all: it is told so, and harms nobody.
	late := dialTalker(t, p.address())
	late.do(fmt.Sprintf("delete %s/id=%d\r\n", key, a.receipt), "NOT_FOUND")

	// The proxy may lose its connection: a lease does not end with it.
	p.cut()
	c, b.wire = redial(t, p, c), redial(t, p, b).wire
	c.do(fmt.Sprintf("touch %s/id=%d 60\r\n", key, c.receipt), "TOUCHED")
	c.do(fmt.Sprintf("delete %s/id=%d/release=0\r\n", key, c.receipt), "DELETED")
	c.wantTaken(key+"/lease=60", "A")
	c.do(fmt.Sprintf("delete %s/id=%d\r\n", key, c.receipt), "DELETED")
	b.do(fmt.Sprintf("delete %s/id=%d\r\n", key, b.receipt), "DELETED")
	if got := n.stat(name + "_items"); got != 0 {
		t.Errorf("%d messages left, want none", got)
	}
}

// redial is c on another connection to the proxy, which may have begun anew.
func redial(t *testing.T, p proxy, c *talker) *talker {
	t.Helper()
	c.Close()
	again := dialTalker(t, p.address())
	again.receipt = c.receipt
	return again
}

// sharedWait is why nobody may wait through a proxy: the others' commands come behind the wait.
func sharedWait(t *testing.T, p proxy, n *node, key string) {
	name := bareName(key)
	a, b, direct := dialTalker(t, p.address()), dialTalker(t, p.address()), dialTalker(t, n.address)
	if _, err := fmt.Fprintf(a, "get %s/t=60000\r\n", key); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(patience); n.stat(name+"_waiters") != 1; {
		if time.Now().After(late) {
			t.Fatal("nobody waits")
		}
	}
	if _, err := fmt.Fprintf(b, "delete %s\r\n", key); err != nil {
		t.Fatal(err)
	}
	b.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if got, err := b.r.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("answered (%q, %v) while another client waits", got, err)
	}
	b.SetReadDeadline(time.Now().Add(patience))
	direct.do("set "+name+" 0 0 1\r\nx\r\n", "STORED")
	if got, err := b.line(); got != "DELETED" { // and it acked what the other had waited for
		t.Errorf("behind the wait: got %q, %v", got, err)
	}
}

// hashTags puts queues on two servers: with {NAME} all keys of a queue go to one, without they don't.
func hashTags(t *testing.T, p proxy, a, b *node) {
	c := dialTalker(t, p.address())
	const queues = 20
	for i := range queues {
		tag := fmt.Sprintf("{tag%d}", i)
		for _, option := range []string{"", "/delay=0", "/pri=7", "/dedup=x"} {
			c.do("set "+tag+option+" 0 0 1\r\nx\r\n", "STORED")
			c.do(fmt.Sprintf("set bare%d%s 0 0 1\r\nx\r\n", i, option), "STORED")
		}
	}
	atA, atB, split := 0, 0, 0
	for i := range queues {
		switch na, nb := a.stat(fmt.Sprintf("tag%d_items", i)), b.stat(fmt.Sprintf("tag%d_items", i)); {
		case na == 4 && nb == -1:
			atA++
		case nb == 4 && na == -1:
			atB++
		default:
			t.Errorf("tag%d: %d messages on one server, %d on the other, want 4 on one", i, na, nb)
		}
		if a.stat(fmt.Sprintf("bare%d_items", i)) > 0 && b.stat(fmt.Sprintf("bare%d_items", i)) > 0 {
			split++
		}
	}
	t.Logf("%d queues are on one server, %d on the other; %d of %d without a tag are split", atA, atB, split, queues)
	if atA == 0 || atB == 0 {
		t.Error("all queues are on one server")
	}
	if split == 0 {
		t.Error("no queue without a tag is split: then the tag would not be needed")
	}
	for i := range queues {
		key := fmt.Sprintf("{tag%d}", i)
		for range 4 {
			c.wantTaken(key+"/lease=60", "x")
			c.do(fmt.Sprintf("delete %s/id=%d\r\n", key, c.receipt), "DELETED")
		}
		if _, ok := c.take(key + "/lease=60"); ok {
			t.Errorf("%s: a fifth message", key)
		}
	}
}

// deadBehindProxy kills the queue's server and starts it again.
func deadBehindProxy(t *testing.T, p proxy, n *node, key string) {
	c := dialTalker(t, p.address())
	c.do("set "+key+" 0 0 4\r\nkept\r\n", "STORED")
	n.kill()
	for i := range 3 {
		got := c.ask("set " + key + " 0 0 4\r\nlost\r\n")
		if !strings.HasPrefix(got, "SERVER_ERROR ") || i > 0 && got != "SERVER_ERROR Connection refused" { // the first may meet the end of the old connection
			t.Errorf("set on a dead server: got %q, want SERVER_ERROR Connection refused", got)
		}
	}
	n.start()
	c.do("set "+key+" 0 0 5\r\nafter\r\n", "STORED")
	for _, body := range []string{"kept", "after"} {
		c.wantTaken(key+"/lease=60", body)
		c.do(fmt.Sprintf("delete %s/id=%d\r\n", key, c.receipt), "DELETED")
	}
}

// mux is a small proxy as twemproxy and mcrouter are: one connection to the server, on which its clients' commands follow each
// other.
type mux struct {
	t       *testing.T
	backend string
	ln      net.Listener

	mu     sync.Mutex // one exchange at a time
	server *wire      // nil: not connected
}

func startMux(t *testing.T, backend string) *mux {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mux{t: t, backend: backend, ln: ln}
	var clients sync.WaitGroup
	clients.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			clients.Go(func() { m.serve(nc) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		m.cut()
		clients.Wait()
	})
	return m
}

func (m *mux) address() string { return m.ln.Addr().String() }

func (m *mux) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.server != nil {
		m.server.Close()
		m.server = nil
	}
}

// serve passes one client's commands on, each when the one before is answered.
func (m *mux) serve(nc net.Conn) {
	defer nc.Close()
	client := &wire{nc, bufio.NewReader(nc)}
	for {
		line, err := client.line()
		if err != nil {
			return
		}
		command := []byte(line + "\r\n")
		if f := strings.Fields(line); f[0] == "set" {
			n, err := strconv.Atoi(f[4])
			body := make([]byte, n+2)
			if _, readErr := io.ReadFull(client.r, body); errors.Join(err, readErr) != nil {
				return
			}
			command = append(command, body...)
		}
		reply, err := m.exchange(command)
		if err == nil {
			_, err = nc.Write(reply)
		}
		if err != nil {
			return
		}
	}
}

// exchange sends a command to the server and returns the whole answer.
func (m *mux) exchange(command []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.server == nil {
		var err error
		if m.server, err = dialWire(m.backend); err != nil {
			return nil, err
		}
	}
	if _, err := m.server.Write(command); err != nil {
		return nil, err
	}
	var reply []byte
	for {
		line, err := m.server.line()
		if err != nil {
			return nil, err
		}
		reply = append(reply, line+"\r\n"...)
		f := strings.Fields(line)
		if f[0] != "VALUE" {
			return reply, nil
		}
		n, err := strconv.Atoi(f[3])
		body := make([]byte, n+2)
		if _, readErr := io.ReadFull(m.server.r, body); errors.Join(err, readErr) != nil {
			return nil, errors.Join(err, readErr)
		}
		reply = append(reply, body...)
	}
}

// twemproxy is a running one.
type twemproxy struct {
	t       *testing.T
	program string
	config  string
	listen  string
	cmd     *exec.Cmd
	output  bytes.Buffer
}

// startTwemproxy runs one in front of two servers. It hashes what is in braces and, if no other options are given, leaves dead
// servers in their places.
func startTwemproxy(t *testing.T, a, b *node, options ...string) *twemproxy {
	t.Helper()
	if options == nil {
		options = []string{"auto_eject_hosts: false"}
	}
	program, err := exec.LookPath("nutcracker")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/nutcracker") // not every user's path has it
	}
	if err != nil {
		t.Skip("twemproxy (nutcracker on Debian) is not installed: scripts/test clients installs it")
	}
	p := &twemproxy{t: t, program: program, config: filepath.Join(t.TempDir(), "nutcracker.yml"), listen: freeAddress(t)}
	config := fmt.Sprintf(`queues:
  listen: %s
  hash: fnv1a_64
  hash_tag: "{}"
  distribution: ketama
  %s
  servers:
   - %s:1 first
   - %s:1 second
`, p.listen, strings.Join(options, "\n  "), a.address, b.address)
	if err := os.WriteFile(p.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	p.start()
	return p
}

func (p *twemproxy) start() {
	p.t.Helper()
	p.cmd = exec.Command(p.program, "-c", p.config, "-a", "127.0.0.1", "-s", portOf(freeAddress(p.t)))
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	for late := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		nc, err := net.Dial("tcp", p.listen)
		if err == nil {
			nc.Close()
			return
		}
		if time.Now().After(late) {
			p.stop()
			p.t.Fatalf("twemproxy is not there: %v\n%s", err, p.output.String())
		}
	}
}

func (p *twemproxy) stop() {
	p.cmd.Process.Signal(syscall.SIGKILL)
	p.cmd.Wait()
}

func (p *twemproxy) address() string { return p.listen }

// cut starts it anew: it closes a connection to the server only with itself.
func (p *twemproxy) cut() {
	p.stop()
	p.start()
}

// freeAddress is one that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
