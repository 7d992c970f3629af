package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// blogPayload is the value of the blog that this project starts from, as PHP's Memcached sends it: 243 bytes, flags 4.
const blogPayload = `a:2:{s:4:"name";s:8:"testname";s:8:"testdata";a:13:{` +
	`i:0;i:1;i:1;i:2;i:2;i:3;i:3;i:4;i:4;i:5;i:5;i:6;i:6;i:7;i:7;i:8;i:8;i:9;i:9;i:0;` +
	`i:10;s:26:"abcdefghijklmnopqrstuvwxyz";s:6:"userid";s:10:"testuserid";s:5:"entry";s:19:"2011-10-20 12:00:00";}}`

// TestClients runs real clients against the real program. Each scenario has a server of its own, which must end in order
// when it is over. The scripts of testdata/clients can be run by hand: their first lines say how.
func TestClients(t *testing.T) {
	program := buildProgram(t)
	t.Run("PHP blog", func(t *testing.T) {
		t.Parallel() // most of the others wait for leases and delays
		php := needPHP(t)
		testBlog(t, startProgram(t, program), php)
	})
	stories := slices.Concat(phpStories(), perlStories(), pythonStories())
	runStories(t, program, stories...)
	t.Run("full", func(t *testing.T) {
		t.Parallel()
		testFull(t, startProgram(t, program, "-memory", "8MiB", "-sync", "never"), stories)
	})
	t.Run("libmemcached-tools", func(t *testing.T) {
		t.Parallel()
		testTools(t, startProgram(t, program))
	})
	t.Run("gomemcache", func(t *testing.T) {
		t.Parallel()
		testGomemcache(t, startProgram(t, program))
	})
	t.Run("README", func(t *testing.T) {
		t.Parallel()
		testReadme(t, program)
	})
}

// testBlog is the blog's experiment with its own loops, unmodified but for the port; the counts are compared at each step.
func testBlog(t *testing.T, s *programServer, php string) {
	n := 1000
	if testing.Short() {
		n = 100
	}
	run := func(script string) {
		t.Helper()
		if got, want := output(t, php, "testdata/clients/"+script, s.port(), fmt.Sprint(n)), fmt.Sprintln(n); got != want {
			t.Fatalf("%s: got %s, want %s", script, got, want)
		}
	}
	for i := range 3 {
		run("blog_enqueue.php")
		s.wantCounts(t, "testkey", counts{ready: (i + 1) * n})
	}
	payload := fmt.Sprintf("VALUE testkey/peek 4 %d\r\n%s\r\nEND\r\n", len(blogPayload), blogPayload)
	if got := s.talk(t, "get testkey/peek\r\nquit\r\n"); got != payload {
		t.Errorf("got %q, want %q", got, payload)
	}
	for i := range 3 {
		run("blog_work.php")
		s.wantCounts(t, "testkey", counts{ready: (2 - i) * n})
	}
	if got := output(t, php, "testdata/clients/blog_work.php", s.port(), "10"); got != "0\n" {
		t.Errorf("work on an empty queue: got %q, want 0", got)
	}
}

// builtProgram is what buildProgram has built; "": nothing yet.
var builtProgram string

var build = sync.OnceValue(func() error {
	folder, err := os.MkdirTemp("", "qserver-built")
	if err != nil {
		return err
	}
	builtProgram = filepath.Join(folder, "qserver")
	args := []string{"build", "-buildvcs=false", "-o", builtProgram}
	if os.Getenv("QSERVER_TEST_RACE") != "" {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

// buildProgram builds qserver as users do, once for all tests; with QSERVER_TEST_RACE set in the environment, with the race
// detector.
func buildProgram(t *testing.T) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return builtProgram
}

// need returns the first program with which the check succeeds, and skips the test if there is none.
func need(t *testing.T, what, flag, check string, programs ...string) string {
	t.Helper()
	for _, program := range programs {
		if exec.Command(program, flag, check).Run() == nil {
			return program
		}
	}
	t.Skipf("%s is not installed: scripts/test clients installs it", what)
	return ""
}

func needPHP(t *testing.T) string {
	t.Helper()
	return need(t, "PHP Memcached (php-cli and php-memcached on Debian)", "-r", `exit(class_exists("Memcached") ? 0 : 1);`, "php")
}

// output runs a client to its end and returns its standard output.
func output(t *testing.T, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(command, " "), err, out, stderr.String())
	}
	return string(out)
}

// programServer is a running qserver.
type programServer struct {
	*child
	addr, http string // addresses of the two ports
}

// startProgram starts qserver on ports of its own. At the test's end SIGTERM must end it with exit code 0; the race
// detector's is another.
func startProgram(t *testing.T, program string, args ...string) *programServer {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-data", t.TempDir()}, args...)
	s := &programServer{child: &child{cmd: exec.Command(program, args...), ended: make(chan struct{}), news: make(chan struct{})}}
	s.cmd.Stdout, s.cmd.Stderr = w, w
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	go func() {
		defer close(s.ended)
		s.read(r)
		r.Close()
		s.cmd.Wait()
	}()
	t.Cleanup(func() {
		s.cmd.Process.Signal(syscall.SIGTERM)
		<-s.ended
		if code := s.cmd.ProcessState.ExitCode(); code != 0 || t.Failed() {
			t.Errorf("qserver ended with exit code %d, want 0; it printed\n%s", code, s.output.String())
		}
	})
	if all, ok := s.line("msg=ready"); !ok {
		t.Fatalf("qserver ended before it was ready:\n%s", all)
	}
	s.addr, s.http = s.address("memcached port open"), s.address("admin port open")
	return s
}

// address is the one in the log line that contains text.
func (c *child) address(text string) string {
	line, _ := c.line(text)
	_, address, _ := strings.Cut(strings.TrimSpace(line), "address=")
	address, _, _ = strings.Cut(address, " ")
	return address
}

func (s *programServer) port() string     { return portOf(s.addr) }
func (s *programServer) httpPort() string { return portOf(s.http) }

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// talk sends commands that end with quit and returns all that comes back.
func (s *programServer) talk(t *testing.T, commands string) string {
	t.Helper()
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(nc, commands); err != nil {
		t.Fatal(err)
	}
	reply, err := io.ReadAll(nc)
	if err != nil {
		t.Fatal(err)
	}
	return string(reply)
}

// fetch reads an address of the HTTP port.
func (s *programServer) fetch(t *testing.T, path string) []byte {
	t.Helper()
	answer, err := http.Get("http://" + s.http + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", path, answer.Status, err)
	}
	return body
}

// counts are the live messages of a queue by state.
type counts struct{ ready, reserved, delayed int }

// wantCounts compares a queue's counts online, and all ways to ask for the sum over all queues.
func (s *programServer) wantCounts(t *testing.T, queue string, want counts) {
	t.Helper()
	got, all := s.counts(t, queue)
	if got != want {
		t.Errorf("%s: got %+v, want %+v", queue, got, want)
	}
	if got, want := field(string(s.fetch(t, "/rpc/status")), "count\t"), fmt.Sprint(all); got != want {
		t.Errorf("/rpc/status: got %s, want %s as /api/v1/queues says", got, want)
	}
	if got, want := field(s.talk(t, "stats\r\nquit\r\n"), "STAT curr_items "), fmt.Sprint(all); got != want {
		t.Errorf("stats: got %s, want %s as /api/v1/queues says", got, want)
	}
}

// waitCounts waits until a queue's counts are so: what a client has not waited for comes by and by.
func (s *programServer) waitCounts(t *testing.T, queue string, want counts) {
	t.Helper()
	deadline := time.Now().Add(clientPatience)
	for {
		got, _ := s.counts(t, queue)
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: got %+v, want %+v", queue, got, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// counts asks for the counts of a queue and for the sum over all.
func (s *programServer) counts(t *testing.T, queue string) (of counts, all int) {
	t.Helper()
	var list struct {
		Queues []struct {
			Name                            string
			Items, Ready, Reserved, Delayed int
		}
	}
	if err := json.Unmarshal(s.fetch(t, "/api/v1/queues"), &list); err != nil {
		t.Fatal(err)
	}
	for _, q := range list.Queues {
		all += q.Items
		if q.Name == queue {
			of = counts{q.Ready, q.Reserved, q.Delayed}
		}
	}
	return of, all
}

// field returns what follows the prefix on the line that begins with it.
func field(text, prefix string) string {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), prefix); ok {
			return value
		}
	}
	return ""
}
