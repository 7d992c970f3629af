package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// masterAndSlave starts a server and its slave, whose HTTP ports it returns. The slave follows and has nothing to catch up with.
func masterAndSlave(t *testing.T, more ...string) (master, slave *node, masterAdmin, slaveAdmin string) {
	t.Helper()
	masterAdmin, slaveAdmin = freeAddress(t), freeAddress(t)
	master = startNode(t, append([]string{"-sid", "1", "-admin", masterAdmin, "-drain", "0s"}, more...)...)
	slave = startNode(t, append([]string{"-sid", "2", "-admin", slaveAdmin, "-drain", "0s", "-mhost", "127.0.0.1", "-mport", portOf(masterAdmin)}, more...)...)
	follows(t, slaveAdmin, masterAdmin)
	return master, slave, masterAdmin, slaveAdmin
}

// follows waits until the server at slave follows the one at master and stands where it does.
func follows(t *testing.T, slave, master string) {
	t.Helper()
	var s, m replicationAnswer
	for late := time.Now().Add(patience); time.Now().Before(late); time.Sleep(5 * time.Millisecond) {
		var err error
		if m, err = askReplication(master); err != nil {
			t.Fatal(err)
		}
		if s, err = askReplication(slave); err == nil && s.Master != nil && s.Master.State == "following" && s.LSN == m.LSN && s.Chain == m.Chain {
			return
		}
	}
	t.Fatalf("it does not follow: it stands at %+v, the master at %+v", s, m)
}

// tryRun runs a subcommand and returns what it prints, or its error.
func tryRun(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), args, nil, &out, io.Discard)
	return out.String(), err
}

func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryRun(t, args...)
	if err != nil {
		t.Fatalf("qserver %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// enqueueRange enqueues the numbers from first up to last in a queue; each must be stored.
func enqueueRange(t *testing.T, address, queue string, first, last int) {
	t.Helper()
	c, err := dialWire(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := first; i <= last; i++ {
		body := fmt.Sprint(i)
		fmt.Fprintf(c, "set %s 0 0 %d\r\n%s\r\n", queue, len(body), body)
		if got, err := c.line(); got != "STORED" {
			t.Fatalf("set of %d: %q %v", i, got, err)
		}
	}
}

// take reserves n messages over c and acks them, if ack says so. It returns their bodies.
func (c *wire) take(t *testing.T, queue string, n int, ack bool) (bodies []string) {
	t.Helper()
	for range n {
		fmt.Fprintf(c, "get %s\r\n", queue)
		body, _, ok, err := c.value()
		if err != nil || !ok {
			t.Fatalf("get: %v, after %d messages", err, len(bodies))
		}
		bodies = append(bodies, body)
		if !ack {
			continue
		}
		fmt.Fprintf(c, "delete %s\r\n", queue)
		if got, err := c.line(); got != "DELETED" {
			t.Fatalf("delete: %q %v", got, err)
		}
	}
	return bodies
}

// drainQueue takes all there is.
func drainQueue(t *testing.T, address, queue string) (bodies []string) {
	t.Helper()
	c, err := dialWire(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for {
		fmt.Fprintf(c, "get %s\r\n", queue)
		body, _, ok, err := c.value()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return bodies
		}
		bodies = append(bodies, body)
		fmt.Fprintf(c, "delete %s\r\n", queue)
		if got, err := c.line(); got != "DELETED" {
			t.Fatalf("delete: %q %v", got, err)
		}
	}
}

func wantRange(t *testing.T, got []string, first, last int) {
	t.Helper()
	for i, body := range got {
		if body != fmt.Sprint(first+i) {
			t.Fatalf("message %d is %s, want %d", i, body, first+i)
		}
	}
	if len(got) != last-first+1 {
		t.Fatalf("%d messages, want %d", len(got), last-first+1)
	}
}

// TestPromote: of 1000 messages 300 are acked and 100 held when the master is killed. The slave leads within a second, has the
// 700, those that were held too, in their order, and leads after a restart with its old command line.
func TestPromote(t *testing.T) {
	t.Parallel()
	master, slave, masterAdmin, slaveAdmin := masterAndSlave(t)
	enqueueRange(t, master.address, "jobs", 1, 1000)
	c, err := dialWire(master.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.take(t, "jobs", 300, true)
	c.take(t, "jobs", 100, false)
	follows(t, slaveAdmin, masterAdmin)
	master.kill()

	begin := time.Now()
	out := mustRun(t, "promote", "-admin", slaveAdmin)
	enqueueRange(t, slave.address, "jobs", 1001, 1001)
	took := time.Since(begin)
	t.Logf("%sfrom the command to the first enqueue that was stored: %v", out, took)
	if took > time.Second {
		t.Errorf("it took %v, want less than a second", took)
	}
	if !strings.Contains(out, "in epoch 2; it was a slave of 127.0.0.1:"+portOf(masterAdmin)) {
		t.Errorf("promote printed %q", out)
	}
	if out := mustRun(t, "promote", "-admin", slaveAdmin); !strings.Contains(out, "leads already, in epoch 2") {
		t.Errorf("promote again printed %q", out)
	}
	slave.kill()
	slave.start()
	wantRange(t, drainQueue(t, slave.address, "jobs"), 301, 1001)
}

// TestPromoteRefused: above the limit, and where nothing is known of the master, it needs -force; the method must be POST.
func TestPromoteRefused(t *testing.T) {
	t.Parallel()
	master, slave, masterAdmin, slaveAdmin := masterAndSlave(t)
	res, err := http.Get("http://" + slaveAdmin + promotePath)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET is answered %s", res.Status)
	}
	enqueueRange(t, master.address, "jobs", 1, 10)
	follows(t, slaveAdmin, masterAdmin)
	master.kill()
	slave.kill()
	slave.start() // it has not reached its master since
	if _, err := tryRun(t, "promote", "-admin", slaveAdmin); err == nil || !strings.Contains(err.Error(), "is not known") || exitCode(err) != exitNotDone {
		t.Errorf("promote: %v, want that it is not known what is missing", err)
	}
	if c, err := dialWire(slave.address); err == nil {
		fmt.Fprint(c, "set jobs 0 0 1\r\nx\r\n")
		if got, _ := c.line(); !strings.HasPrefix(got, "SERVER_ERROR read-only") {
			t.Errorf("set after the refusal: %q", got)
		}
		c.Close()
	}
	mustRun(t, "promote", "-admin", slaveAdmin, "-force")
	wantRange(t, drainQueue(t, slave.address, "jobs"), 1, 10)
}

// TestSwitchOver hands over while a client enqueues: everything that was STORED is on the new master once, in its order, and the
// old one follows, after a restart too, and can take over again.
func TestSwitchOver(t *testing.T) {
	t.Parallel()
	master, slave, masterAdmin, slaveAdmin := masterAndSlave(t)
	c, err := dialWire(master.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stored, refused := make(chan int, 1), make(chan string, 1)
	begun := make(chan struct{})
	go func() {
		for i := 1; ; i++ {
			body := fmt.Sprint(i)
			fmt.Fprintf(c, "set jobs 0 0 %d\r\n%s\r\n", len(body), body)
			got, _ := c.line()
			if got != "STORED" {
				stored <- i - 1
				refused <- got
				return
			}
			if i == 200 {
				close(begun)
			}
		}
	}()
	held, err := dialWire(master.address)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	<-begun
	held.take(t, "jobs", 50, false)
	waits, err := dialWire(master.address)
	if err != nil {
		t.Fatal(err)
	}
	defer waits.Close()
	fmt.Fprint(waits, "get empty/t=25000\r\n")
	out := mustRun(t, "follow", "127.0.0.1:"+portOf(slaveAdmin), "-admin", masterAdmin)
	t.Log(out)
	n := <-stored
	if got := <-refused; got != "SERVER_ERROR read-only: this is a slave of 127.0.0.1:"+portOf(slaveAdmin) {
		t.Errorf("the first set that was not stored is answered %q", got)
	}
	if got, err := waits.line(); got != "END" {
		t.Errorf("the get that waited is answered %q %v", got, err)
	}
	follows(t, masterAdmin, slaveAdmin)
	enqueueRange(t, slave.address, "jobs", n+1, n+100)
	follows(t, masterAdmin, slaveAdmin)
	fmt.Fprint(held, "delete jobs\r\n")
	if got, _ := held.line(); !strings.HasPrefix(got, "SERVER_ERROR read-only") {
		t.Errorf("an ack of what was held is answered %q", got)
	}
	if out := mustRun(t, "follow", "127.0.0.1:"+portOf(slaveAdmin), "-admin", masterAdmin); !strings.Contains(out, "follows") {
		t.Error(out)
	}

	master.kill()
	slave.kill()
	slave.start()
	master.start() // both with the command lines that made the other one the master
	follows(t, masterAdmin, slaveAdmin)
	mustRun(t, "follow", "127.0.0.1:"+portOf(masterAdmin), "-admin", slaveAdmin)
	follows(t, slaveAdmin, masterAdmin)
	wantRange(t, drainQueue(t, master.address, "jobs"), 1, n+100)
}

// TestFollowRefused: whoever would not follow, or would lose something, goes on as before.
func TestFollowRefused(t *testing.T) {
	t.Parallel()
	master, slave, masterAdmin, slaveAdmin := masterAndSlave(t)
	other := freeAddress(t)
	startNode(t, "-sid", "3", "-admin", other)
	for _, tt := range []struct{ admin, to, want string }{
		{masterAdmin, masterAdmin, "is this server itself"},
		{masterAdmin, other, "has another history"},
		{masterAdmin, freeAddress(t), "no server answers"},
		{slaveAdmin, other, "has another history"},
	} {
		if _, err := tryRun(t, "follow", tt.to, "-admin", tt.admin); err == nil || !strings.Contains(err.Error(), tt.want) || exitCode(err) != exitNotDone {
			t.Errorf("follow %s: %v, want %q", tt.to, err, tt.want)
		}
	}
	slave.s.stop() // it answers, and does not ack
	done := make(chan error, 1)
	go func() {
		_, err := tryRun(t, "follow", slaveAdmin, "-admin", masterAdmin, "-timeout", "200ms")
		done <- err
	}()
	if err := <-done; err == nil {
		t.Error("handed over to a slave that does not answer")
	}
	enqueueRange(t, master.address, "jobs", 1, 10)
	slave.s.resume()
	follows(t, slaveAdmin, masterAdmin)
}

func TestProof(t *testing.T) {
	secret, now := []byte("a secret of some length"), time.Unix(1_700_000_000, 0)
	request := func(proof string) *http.Request {
		r, err := http.NewRequest(http.MethodPost, "http://x"+promotePath+"?force=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(proofHeader, proof)
		return r
	}
	good := proofOf(secret, http.MethodPost, promotePath+"?force=true", now.Unix())
	for _, tt := range []struct {
		name   string
		proof  string
		secret []byte
		at     time.Time
		want   bool
	}{
		{"good", good, secret, now, true},
		{"a little later", good, secret, now.Add(4 * time.Minute), true},
		{"too late", good, secret, now.Add(6 * time.Minute), false},
		{"too early", good, secret, now.Add(-6 * time.Minute), false},
		{"another secret", good, []byte("another secret, as long"), now, false},
		{"no secret", good, nil, now, false},
		{"none", "", secret, now, false},
		{"of another request", proofOf(secret, http.MethodPost, promotePath, now.Unix()), secret, now, false},
		{"of another time", strings.Replace(good, "1700000000", "1700000001", 1), secret, now, false},
		{"no number", "x" + good, secret, now, false},
	} {
		if got := proofHolds(tt.secret, request(tt.proof), tt.at); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// stop makes the server stand still, and resume lets it go on.
// stop returns when every thread stands still, where that can be seen (Linux).
func (s *victim) stop() {
	syscall.Kill(s.pid, syscall.SIGSTOP)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		running := false
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.pid))
		for _, stat := range stats {
			b, err := os.ReadFile(stat)
			_, state, _ := strings.Cut(string(b), ") ")
			running = running || err == nil && !strings.HasPrefix(state, "T")
		}
		if !running {
			return
		}
	}
}

func (s *victim) resume() { syscall.Kill(s.pid, syscall.SIGCONT) }

// TestRoleFromAnotherMachine: a role is not changed from elsewhere without a proof.
func TestRoleFromAnotherMachine(t *testing.T) {
	s := &server{secret: []byte("a secret of some length"), log: slog.New(slog.DiscardHandler)}
	served := 0
	h := s.roleHandler(func(context.Context, *http.Request) (roleAnswer, error) {
		served++
		return roleAnswer{Role: "master"}, nil
	})
	for _, tt := range []struct {
		from   string
		secret []byte
		status int
	}{
		{"127.0.0.1:5000", nil, http.StatusOK},
		{"[::1]:5000", nil, http.StatusOK},
		{"10.0.0.1:5000", nil, http.StatusForbidden},
		{"10.0.0.1:5000", []byte("another secret, as long"), http.StatusForbidden},
		{"10.0.0.1:5000", s.secret, http.StatusOK},
	} {
		before := served
		r := httptest.NewRequest(http.MethodPost, promotePath, nil)
		r.RemoteAddr = tt.from
		if tt.secret != nil {
			r.Header.Set(proofHeader, proofOf(tt.secret, r.Method, promotePath, time.Now().Unix()))
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.status || (served > before) != (tt.status == http.StatusOK) {
			t.Errorf("from %s with the secret %q: %d, served %v, want %d", tt.from, tt.secret, w.Code, served > before, tt.status)
		}
	}
}
