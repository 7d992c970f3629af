package main

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// node is a server that can be killed, and started again with its address and its messages.
type node struct {
	k       *killer
	s       *victim
	args    []string
	address string
}

func startNode(t *testing.T, args ...string) *node {
	t.Helper()
	n := &node{k: newKiller(t), args: args, address: "127.0.0.1:0"}
	n.start()
	return n
}

func (n *node) start() {
	n.k.t.Helper()
	n.s = n.k.start(nil, append([]string{"-listen", n.address}, n.args...)...)
	if !n.s.ready() {
		n.k.fatal("no start:\n%s", n.s.text())
	}
	n.address = n.s.address
}

func (n *node) kill() { n.s.kill() }

func (n *node) port() string { return portOf(n.address) }

// stat is a number of `stats queues`, such as "jobs_items"; -1 if there is none.
func (n *node) stat(name string) int {
	n.k.t.Helper()
	c, err := dialWire(n.address)
	if err != nil {
		n.k.fatal("%v", err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "stats queues\r\n"); err != nil {
		n.k.fatal("%v", err)
	}
	number := -1
	for {
		line, err := c.line()
		if err != nil {
			n.k.fatal("stats: %v", err)
		}
		if line == "END" {
			return number
		}
		if value, ok := strings.CutPrefix(line, "STAT queue_"+name+" "); ok {
			number, _ = strconv.Atoi(value)
		}
	}
}

// asker is a client's program that is asked a line and answers one.
type asker struct {
	t    *testing.T
	name string
	in   io.Writer
	out  *bufio.Reader
}

func startAsker(t *testing.T, command ...string) *asker {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("%s: %v\n%s", command, err, stderr.String())
		}
	})
	return &asker{t, command[0], in, bufio.NewReader(out)}
}

func (w *asker) ask(format string, args ...any) string {
	w.t.Helper()
	if _, err := fmt.Fprintf(w.in, format+"\n", args...); err != nil {
		w.t.Fatal(err)
	}
	answer, err := w.out.ReadString('\n')
	if err != nil {
		w.t.Fatalf("%s: %q was not answered: %v", w.name, fmt.Sprintf(format, args...), err)
	}
	return strings.TrimSuffix(answer, "\n")
}

// want asks until the answer is right, at once or before patience ends.
func (w *asker) want(answer string, atOnce bool, format string, args ...any) {
	w.t.Helper()
	got := w.ask(format, args...)
	for late := time.Now().Add(patience); got != answer && !atOnce && time.Now().Before(late); got = w.ask(format, args...) {
		time.Sleep(20 * time.Millisecond)
	}
	if got != answer {
		w.t.Fatalf("%s: %s: got %q, want %q", w.name, fmt.Sprintf(format, args...), got, answer)
	}
}

const now, soon = true, false

// TestHashing spreads queues over two servers by what the clients have for it, kills one server and starts it again.
func TestHashing(t *testing.T) {
	t.Run("PHP Memcached", func(t *testing.T) {
		t.Parallel()
		testHashing(t, needPHP(t), "testdata/clients/hashing.php")
	})
	t.Run("pymemcache HashClient", func(t *testing.T) {
		t.Parallel()
		testHashing(t, needPymemcache(t), "testdata/clients/hashing.py", "stay")
	})
	t.Run("pymemcache HashClient with its failover", func(t *testing.T) {
		t.Parallel()
		testFailover(t, needPymemcache(t))
	})
}

func needPymemcache(t *testing.T) string {
	t.Helper()
	return need(t, "pymemcache (python3-pymemcache on Debian)", "-c", "import pymemcache", "python3", "/usr/bin/python3")
}

// spread names a queue of each server, as the client places them.
func spread(t *testing.T, w *asker, a, b *node) (atA, atB string) {
	t.Helper()
	for i := 0; i < 100 && (atA == "" || atB == ""); i++ {
		name := fmt.Sprintf("jobs%d", i)
		switch w.ask("where %s", name) {
		case a.port():
			atA = name
		case b.port():
			atB = name
		}
	}
	if atA == "" || atB == "" {
		t.Fatal("100 queues are all on one server")
	}
	return atA, atB
}

func testHashing(t *testing.T, command ...string) {
	a, b := startNode(t), startNode(t)
	command = append(command, a.port(), b.port())
	producer, consumer := startAsker(t, command...), startAsker(t, command...)
	atA, atB := spread(t, producer, a, b)

	// Each queue is on its own server, whatever the options in its keys.
	for _, name := range []string{atA, atB} {
		for _, body := range []string{"one", "two", "three"} {
			producer.want("stored", now, "set %s %s", name, body)
		}
	}
	for _, tt := range []struct {
		n           *node
		name, other string
	}{{a, atA, atB}, {b, atB, atA}} {
		if items, strange := tt.n.stat(tt.name+"_items"), tt.n.stat(tt.other+"_items"); items != 3 || strange != -1 {
			t.Errorf("%s: got %d messages, and %d of the other server's queue, want 3 and none", tt.name, items, strange)
		}
		consumer.want("one", now, "work %s", tt.name)
	}

	// One is killed. Its queue fails visibly, and nothing of it goes to the other server; the other's queue goes on.
	a.kill()
	for range 5 {
		for _, command := range []string{"set %s lost", "work %s"} {
			w := producer
			if command == "work %s" {
				w = consumer
			}
			got := w.ask(command, atA)
			t.Logf(command+" while its server is dead: %s", atA, got)
			if !strings.HasPrefix(got, "failed") && (got != "empty" || command != "work %s") {
				t.Errorf("%s: got %q from a dead server", command, got)
			}
		}
	}
	producer.want("stored", now, "set %s four", atB)
	consumer.want("two", now, "work %s", atB)
	if got := b.stat(atA + "_items"); got != -1 {
		t.Errorf("%d messages of the dead server's queue are on the other", got)
	}

	// It comes back: so do its messages, in their order, and the same clients find them.
	a.start()
	consumer.want("two", soon, "work %s", atA)
	producer.want("stored", soon, "set %s four", atA)
	consumer.want("three", now, "work %s", atA)
	consumer.want("four", now, "work %s", atA)
	consumer.want("empty", now, "work %s", atA)
	for name, n := range map[string]*node{atA: a, atB: b} {
		if items := n.stat(name + "_items"); name == atA && items != 0 || name == atB && items != 2 {
			t.Errorf("%s: %d messages at the end", name, items)
		}
	}
}

// testFailover is what a client does that moves a dead server's queues to the others: messages lie on a server where, once the
// dead one is back, only a worker that looks at every server finds them.
func testFailover(t *testing.T, python string) {
	a, b := startNode(t), startNode(t)
	script := "testdata/clients/hashing.py"
	producer := startAsker(t, python, script, "failover", a.port(), b.port())
	atA, _ := spread(t, producer, a, b)
	producer.want("stored", now, "set %s before", atA)
	a.kill()
	producer.want("stored", soon, "set %s meanwhile", atA)
	if got := b.stat(atA + "_items"); got != 1 {
		t.Fatalf("%d messages on the other server, want 1", got)
	}
	a.start()
	consumer := startAsker(t, python, script, "failover", a.port(), b.port())
	consumer.want("before", now, "work %s", atA)
	consumer.want("empty", now, "work %s", atA)
	atOther := startAsker(t, python, script, "failover", b.port())
	atOther.want("meanwhile", now, "work %s", atA)
	atOther.want("empty", now, "work %s", atA)
}
