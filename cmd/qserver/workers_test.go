package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// worker is a worker of scripts/clients: a program that works on the queue "jobs" with the handler of testdata/clients. A job is
// three words: a name, which the handler logs when it begins, what to do, and with what:
//
//	NAME now -       nothing
//	NAME wait FILE   end when FILE is there
//	NAME fail N      fail N times
type worker struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	output bytes.Buffer // to be read after ended
	log    string       // where the handler writes the names of the jobs
}

// leaseOfWorkers is the lease that the tests' workers ask for.
const leaseOfWorkers = 3 * time.Second

// startWorker starts a worker, and kills it at the test's end unless it has ended.
func startWorker(t *testing.T, s *programServer, log string, command []string) *worker {
	t.Helper()
	w := &worker{cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{}), log: log}
	w.cmd.Env = append(os.Environ(), "SERVER="+s.addr, "LEASE=3", "BACKOFF=1", "LOG="+log)
	w.cmd.Stdout, w.cmd.Stderr = &w.output, &w.output
	w.cmd.WaitDelay = time.Second // a killed worker's children may still have its output open
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(w.ended)
		w.cmd.Wait()
	}()
	t.Cleanup(func() {
		w.cmd.Process.Kill()
		<-w.ended
		if t.Failed() {
			t.Logf("the worker printed\n%s", w.output.String())
		}
	})
	return w
}

// wantEnd waits for the worker's end, which must be in order.
func (w *worker) wantEnd(t *testing.T) {
	t.Helper()
	select {
	case <-w.ended:
		if code := w.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the worker ended with exit code %d, want 0", code)
		}
	case <-time.After(longPatience):
		t.Fatal("the worker did not stop")
	}
}

// wantLines waits until the handler has logged so many jobs, and compares them.
func (w *worker) wantLines(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	eventually(t, fmt.Sprintf("run %d of a job", len(want)), func() bool {
		text, _ := os.ReadFile(w.log)
		got = strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		t.Errorf("it ran %v, want %v", got, want)
	}
}

// longPatience is how long a test waits for what must come, on a machine that is busy with the other clients.
const longPatience = time.Minute

// eventually polls a condition until it is true.
func eventually(t *testing.T, what string, true func() bool) {
	t.Helper()
	for late := time.Now().Add(longPatience); !true(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%s: not within %v", what, longPatience)
		}
	}
}

// enqueueJob puts a job into the queue of the workers' tests.
func (s *programServer) enqueueJob(t *testing.T, job string) {
	t.Helper()
	if got := s.talk(t, fmt.Sprintf("set jobs 0 0 %d\r\n%s\r\nquit\r\n", len(job), job)); got != "STORED\r\n" {
		t.Fatalf("set: got %q", got)
	}
}

// TestWorkers runs the workers of scripts/clients, which the README shows, against the real program.
func TestWorkers(t *testing.T) {
	program := buildProgram(t)
	goWorker := filepath.Join(filepath.Dir(program), "worker")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", goWorker, "../../scripts/clients").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	const scripts, handlers = "../../scripts/clients/", "testdata/clients/"
	for _, tt := range []struct {
		name    string
		command func(t *testing.T) []string
	}{
		{"PHP", func(t *testing.T) []string {
			return []string{needPHP(t), scripts + "worker.php", "jobs", handlers + "handler.php"}
		}},
		{"Ruby", func(t *testing.T) []string {
			ruby := need(t, "Dalli (ruby-dalli on Debian)", "-e", `require "dalli"`, "ruby")
			return []string{ruby, scripts + "worker.rb", "jobs", handlers + "handler.rb"}
		}},
		{"Python", func(t *testing.T) []string {
			python := need(t, "pymemcache (python3-pymemcache on Debian)", "-c", "import pymemcache", "python3", "/usr/bin/python3")
			return []string{python, scripts + "worker.py", "jobs", handlers + "handler.py"}
		}},
		{"Node", func(t *testing.T) []string {
			return append(needNode(t, "memcached"), scripts+"worker.js", "jobs", handlers+"handler.js")
		}},
		{"Go", func(*testing.T) []string { return []string{goWorker, "jobs", handlers + "handler.sh"} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			command := tt.command(t)
			t.Run("jobs", func(t *testing.T) {
				t.Parallel()
				testWorkerJobs(t, program, command)
			})
			t.Run("a job longer than its lease", func(t *testing.T) {
				t.Parallel()
				testWorkerLongJob(t, startProgram(t, program), command)
			})
			t.Run("kill -9 in a job", func(t *testing.T) {
				t.Parallel()
				testWorkerKilled(t, startProgram(t, program), command)
			})
		})
	}
}

// testWorkerJobs has jobs done one after the other, one that fails twice, and another after a restart of the server; then SIGTERM
// while the worker waits for more.
func testWorkerJobs(t *testing.T, program string, command []string) {
	data := t.TempDir()
	s := startProgram(t, program, "-data", data)
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint("job", i))
		s.enqueueJob(t, want[i]+" now -")
	}
	w := startWorker(t, s, filepath.Join(t.TempDir(), "log"), command)
	w.wantLines(t, want...)
	s.waitCounts(t, "jobs", counts{})

	s.enqueueJob(t, "bad fail 2")
	w.wantLines(t, append(want, "bad")...)
	s.waitCounts(t, "jobs", counts{delayed: 1})
	first := time.Now()
	w.wantLines(t, append(want, "bad", "bad")...)
	s.waitCounts(t, "jobs", counts{delayed: 1})
	second := time.Now()
	want = append(want, "bad", "bad", "bad")
	w.wantLines(t, want...)
	s.waitCounts(t, "jobs", counts{})
	third := time.Now()
	// 1 second, then 2, measured from a moment after the nack.
	if pause := second.Sub(first); pause < 800*time.Millisecond {
		t.Errorf("the first pause was %v, want a second", pause)
	}
	if pause := third.Sub(second); pause < 1800*time.Millisecond {
		t.Errorf("the second pause was %v, want two seconds", pause)
	}

	s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.ended
	s = startProgram(t, program, "-data", data, "-listen", s.addr)
	s.enqueueJob(t, "next now -")
	want = append(want, "next")
	w.wantLines(t, want...)
	s.waitCounts(t, "jobs", counts{})

	eventually(t, "the next get", func() bool { return s.state(t, "jobs").Waiters == 1 })
	w.cmd.Process.Signal(syscall.SIGTERM)
	w.wantEnd(t)
	s.enqueueJob(t, "later now -")
	s.wantCounts(t, "jobs", counts{ready: 1}) // nobody waits for it any more
	w.wantLines(t, want...)
	if out := w.output.String(); !strings.Contains(out, "run 2 of bad") && !strings.Contains(out, "exit status 1") {
		t.Errorf("it does not say why the job failed, but %q", out)
	}
}

func testWorkerLongJob(t *testing.T, s *programServer, command []string) {
	done := filepath.Join(t.TempDir(), "done")
	s.enqueueJob(t, "long wait "+done)
	w := startWorker(t, s, filepath.Join(t.TempDir(), "log"), command)
	w.wantLines(t, "long")
	w.cmd.Process.Signal(syscall.SIGTERM)

	// Another worker waits for longer than the lease, and does not get the job.
	wait := 3 * leaseOfWorkers / 2
	if got := s.talk(t, fmt.Sprintf("get jobs/t=%d\r\nquit\r\n", wait.Milliseconds())); got != "END\r\n" {
		t.Errorf("the job was given away while it ran: got %q", got)
	}
	s.wantCounts(t, "jobs", counts{reserved: 1})
	s.enqueueJob(t, "next now -")
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.wantEnd(t)
	s.wantCounts(t, "jobs", counts{ready: 1}) // the long one is acked, the next one was not begun
	w.wantLines(t, "long")
}

func testWorkerKilled(t *testing.T, s *programServer, command []string) {
	done := filepath.Join(t.TempDir(), "done")
	s.enqueueJob(t, "first wait "+done)
	w := startWorker(t, s, filepath.Join(t.TempDir(), "log"), command)
	w.wantLines(t, "first")
	w.cmd.Process.Kill()
	<-w.ended
	want := "first wait " + done
	if got := s.talk(t, "get jobs/t=15000\r\ndelete jobs\r\nquit\r\n"); !strings.Contains(got, want) || !strings.HasSuffix(got, "DELETED\r\n") {
		t.Errorf("got %q, want %q and its ack", got, want)
	}
	s.wantCounts(t, "jobs", counts{})
	os.WriteFile(done, nil, 0o600) // ends a program that the killed worker had started
}

// queueState is a queue of /api/v1/queues.
type queueState struct {
	Name                                     string
	Items, Ready, Reserved, Delayed, Waiters int
}

// state returns a queue's state; one that is not there is empty.
func (s *programServer) state(t *testing.T, queue string) queueState {
	t.Helper()
	var list struct{ Queues []queueState }
	if err := json.Unmarshal(s.fetch(t, "/api/v1/queues"), &list); err != nil {
		t.Fatal(err)
	}
	for _, q := range list.Queues {
		if q.Name == queue {
			return q
		}
	}
	return queueState{Name: queue}
}
