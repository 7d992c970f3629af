package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"qserver/storage"
)

var (
	killSeed   = flag.Uint64("kill.seed", 0, "seed of the test that kills the server; 0: a new one")
	killRounds = flag.Int("kill.rounds", 0, "how often it is killed; 0: $QSERVER_KILL_ROUNDS, or 30, or 5 with -short")
)

// TestKill kills the real program by SIGKILL while 8 clients enqueue, reserve and ack, starts it again, and compares what it
// has with what the clients were told: each message that was STORED and not acked is there exactly once, and none that was
// DELETED comes back.
func TestKill(t *testing.T) {
	rounds := *killRounds
	if rounds == 0 {
		rounds, _ = strconv.Atoi(os.Getenv("QSERVER_KILL_ROUNDS"))
	}
	if rounds == 0 {
		rounds = 30
		if testing.Short() {
			rounds = 5
		}
	}
	k := newKiller(t)
	for round := range rounds {
		k.round(round)
	}
	k.t.Logf("%d rounds: %s", rounds, k.l.summary())
}

// TestKillAtCall has the kernel kill the program at the nth call of one kind, by strace.
func TestKillAtCall(t *testing.T) {
	if out, err := exec.Command("strace", "-f", "-o", "/dev/null", "-e", "inject=fdatasync:signal=KILL:when=1000", "true").CombinedOutput(); err != nil {
		t.Skipf("SKIP real kill: strace is not installed, or may not trace (in a container: --cap-add SYS_PTRACE): %v %s", err, out)
	}
	k := newKiller(t)
	calls := strings.Fields("fdatasync pwrite64 rename renameat ftruncate fallocate unlinkat")
	rounds := 2 * len(calls)
	if testing.Short() {
		rounds = 2
	}
	hits := 0
	for round := range rounds {
		call := calls[round%len(calls)]
		k.wrap = []string{"strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=" + call, "-e",
			fmt.Sprintf("inject=%s:signal=KILL:when=%d", call, 1+k.rng.IntN(6))}
		if k.round(round) {
			hits++
		}
	}
	k.t.Logf("%d rounds, %d of them ended by the call: %s", rounds, hits, k.l.summary())
}

// killer starts and kills servers on one folder.
type killer struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand
	dir  string
	wrap []string // a program, with arguments, that runs the server
	l    *ledger
}

func newKiller(t *testing.T) *killer {
	k := &killer{t: t, seed: *killSeed, l: newLedger()}
	if k.seed == 0 {
		k.seed = uint64(time.Now().UnixNano())>>8 | 1
	}
	k.rng = rand.New(rand.NewPCG(k.seed, 0))
	t.Logf("seed %d", k.seed)
	var err error
	if k.dir, err = os.MkdirTemp("", "qserver-kill"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the data folder is kept: %s", k.dir)
			return
		}
		os.RemoveAll(k.dir)
	})
	return k
}

func (k *killer) fatal(format string, args ...any) {
	k.t.Helper()
	k.t.Fatalf("%s\nagain: go test ./cmd/qserver -run '^%s$' -kill.seed=%d", fmt.Sprintf(format, args...), k.t.Name(), k.seed)
}

// round lets a server work under load until it is killed, and verifies what the next one has. It says whether the server
// ended before it was killed.
func (k *killer) round(n int) (itself bool) {
	k.t.Helper()
	sync := []string{"always", "enqueue", "interval=20ms", "never"}[k.rng.IntN(4)]
	s := k.start(k.wrap, "-sync", sync)
	if s.ready() {
		load := k.l.run(s.address, k.rng.Uint64())
		select {
		case <-s.ended:
			itself = true
		case <-time.After(time.Duration(10+k.rng.IntN(250)) * time.Millisecond):
		}
		s.kill()
		for _, err := range load.wait() {
			k.fatal("round %d, -sync %s: %v", n, sync, err)
		}
	} else { // killed by a call of its start
		itself = true
		s.kill()
	}
	for range k.rng.IntN(3) { // killed on its way up
		s := k.start(nil, "-sync", sync)
		select {
		case <-time.After(time.Duration(k.rng.IntN(40)) * time.Millisecond):
		case <-s.ended:
		}
		s.kill()
		if code := s.cmd.ProcessState.ExitCode(); code > 0 {
			k.fatal("round %d: start after a kill ended with %d:\n%s", n, code, s.text())
		}
	}
	counts := k.check(n)
	s = k.start(nil, "-sync", sync)
	if !s.ready() {
		k.fatal("round %d, -sync %s: no start after the kill:\n%s", n, sync, s.text())
	}
	if err := k.l.verify(s.address, counts); err != nil {
		k.fatal("round %d, -sync %s: %v", n, sync, err)
	}
	k.litter(n)
	s.kill()
	return itself
}

// check looks at what a kill has left: it is sound, always. It returns how many messages each queue has.
func (k *killer) check(n int) map[string]int {
	k.t.Helper()
	rep, err := storage.Check(k.dir, nil)
	if errors.Is(err, os.ErrNotExist) && n == 0 {
		return nil // killed before there was anything
	}
	if err != nil || len(rep.Problems) > 0 {
		k.fatal("round %d: check after the kill: %v, problems %+v", n, err, rep.Problems)
	}
	counts := make(map[string]int)
	for _, q := range rep.Queues {
		counts[q.Name] = int(q.Items)
	}
	return counts
}

// litter finds files that the start of the running server should have removed or should never have made. A file that it is just
// making may be empty for a moment.
func (k *killer) litter(n int) {
	k.t.Helper()
	err := k.emptyFile()
	for deadline := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(deadline); err = k.emptyFile() {
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		k.fatal("round %d: %v", n, err)
	}
}

func (k *killer) emptyFile() error {
	return filepath.WalkDir(k.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() == 0 {
			return fmt.Errorf("%s is empty", path)
		}
		return err
	})
}

// victim is a running server.
type victim struct {
	cmd     *exec.Cmd
	pid     int
	address string
	ended   chan struct{}
	lines   chan string
	mu      sync.Mutex
	output  strings.Builder
}

func (k *killer) start(wrap []string, args ...string) *victim {
	k.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		k.fatal("%v", err)
	}
	program := filepath.Join(k.t.TempDir(), "qserver") // its name makes the test's program the server
	if err := os.Symlink(exe, program); err != nil {
		k.fatal("%v", err)
	}
	args = append([]string{"-data", k.dir, "-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-ulim", "64KiB", "-memory", "8MiB",
		"-max-held", "1000000"}, args...)
	s := &victim{cmd: exec.Command(program, args...), ended: make(chan struct{}), lines: make(chan string, 1000)}
	if wrap != nil {
		s.cmd = exec.Command(wrap[0], append(append(wrap[1:len(wrap):len(wrap)], program), args...)...)
	}
	r, w, err := os.Pipe()
	if err != nil {
		k.fatal("%v", err)
	}
	s.cmd.Stdout, s.cmd.Stderr = w, w
	if err := s.cmd.Start(); err != nil {
		k.fatal("%v", err)
	}
	w.Close()
	s.pid = s.cmd.Process.Pid
	k.t.Cleanup(func() { s.kill() })
	go func() {
		defer close(s.ended)
		defer close(s.lines)
		for in := bufio.NewScanner(r); in.Scan(); {
			s.mu.Lock()
			s.output.WriteString(in.Text() + "\n")
			s.mu.Unlock()
			select {
			case s.lines <- in.Text():
			default:
			}
		}
		r.Close()
		s.cmd.Wait()
	}()
	return s
}

var (
	pidIn     = regexp.MustCompile(`msg="qserver starts".* pid=(\d+)`)
	addressIn = regexp.MustCompile(`msg="memcached port open" address=(\S+)`)
)

// ready waits until the server serves; false: it ended before.
func (s *victim) ready() bool {
	late := time.After(time.Minute)
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				return false
			}
			if m := pidIn.FindStringSubmatch(line); m != nil {
				s.pid, _ = strconv.Atoi(m[1])
			}
			if m := addressIn.FindStringSubmatch(line); m != nil {
				s.address = m[1]
			}
			if strings.Contains(line, "msg=ready") {
				return true
			}
		case <-late:
			return false
		}
	}
}

// kill ends the server by SIGKILL and waits for its end.
func (s *victim) kill() {
	select {
	case <-s.ended:
		return
	default:
	}
	syscall.Kill(s.pid, syscall.SIGKILL)
	if s.pid != s.cmd.Process.Pid {
		select { // strace ends behind it
		case <-s.ended:
			return
		case <-time.After(5 * time.Second):
		}
	}
	s.cmd.Process.Kill()
	<-s.ended
}

func (s *victim) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.String()
}

// wire is a connection that speaks the text protocol.
type wire struct {
	net.Conn
	r *bufio.Reader
}

func dialWire(address string) (*wire, error) {
	nc, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	if err := nc.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return &wire{nc, bufio.NewReaderSize(nc, 64<<10)}, nil
}

// line reads one line.
func (c *wire) line() (string, error) {
	l, err := c.r.ReadString('\n')
	return strings.TrimSuffix(l, "\r\n"), err
}

// value reads the reply to a get of one key; receipt is 0 unless it was a gets.
func (c *wire) value() (body string, receipt uint64, ok bool, err error) {
	l, err := c.line()
	if err != nil || l == "END" {
		return "", 0, false, err
	}
	f := strings.Fields(l)
	if len(f) < 4 || f[0] != "VALUE" {
		return "", 0, false, fmt.Errorf("answer to get: %q", l)
	}
	n, err := strconv.Atoi(f[3])
	if err != nil {
		return "", 0, false, fmt.Errorf("answer to get: %q", l)
	}
	if len(f) == 5 {
		receipt, _ = strconv.ParseUint(f[4], 10, 64)
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(c.r, b); err != nil {
		return "", 0, false, err
	}
	end, err := c.line()
	if err == nil && end != "END" {
		err = fmt.Errorf("behind a value: %q", end)
	}
	return string(b[:n]), receipt, true, err
}
