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
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestActiveJob runs the adapter and the worker for ActiveJob of scripts/clients against the real program.
func TestActiveJob(t *testing.T) {
	program := buildProgram(t)
	ruby := need(t, "ActiveJob (ruby-activejob on Debian)", "-e", `require "active_job"`, "ruby")
	for _, tt := range []struct {
		name string
		test func(t *testing.T, program string, r rails)
	}{
		{"options", testActiveJobOptions},
		{"perform_all_later", testActiveJobAll},
		{"one round trip", testActiveJobRoundTrip},
		{"restart, fork and threads", testActiveJobIdle},
		{"failing jobs", testActiveJobFails},
		{"a job longer than its lease, and SIGTERM meanwhile", testActiveJobLong},
		{"kill -9 in a job", testActiveJobKilled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.test(t, program, rails{ruby: ruby, log: filepath.Join(t.TempDir(), "log")})
		})
	}
}

// rails is an application with ActiveJob.
type rails struct{ ruby, log string }

// command makes a command of activejob_enqueue.rb.
func (r rails) command(t *testing.T, addr string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), r.ruby, append([]string{"testdata/clients/activejob_enqueue.rb"}, args...)...)
	cmd.Env = append(os.Environ(), "SERVER="+addr, "LOG="+r.log)
	return cmd
}

// enqueue runs one to its end, and returns what it printed.
func (r rails) enqueue(t *testing.T, addr string, args ...string) string {
	t.Helper()
	cmd := r.command(t, addr, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("enqueue %v: %v\n%s%s", args, err, out, stderr.Bytes())
	}
	return string(out)
}

// work starts a worker.
func (r rails) work(t *testing.T, s *programServer, queues ...string) *worker {
	t.Helper()
	command := append([]string{r.ruby, "../../scripts/clients/activejob_worker.rb", "testdata/clients/activejob_application.rb"}, queues...)
	return startWorker(t, s, r.log, command)
}

// stop ends a worker, which must do so in order.
func (w *worker) stop(t *testing.T) {
	t.Helper()
	w.cmd.Process.Signal(syscall.SIGTERM)
	w.wantEnd(t)
}

func testActiveJobOptions(t *testing.T, program string, r rails) {
	s := startProgram(t, program)
	if got, want := r.enqueue(t, s.addr, "named"), "queue \"a/b\": a name has no slash, blank or control character\n"; got != want {
		t.Errorf("a bad name: got %q, want %q", got, want)
	}
	if d, c := s.state(t, "default"), s.state(t, "critical"); d.Items != 6 || d.Delayed == 0 || c.Ready != 1 {
		t.Errorf("got %+v and %+v, want 6 jobs, some of them delayed, and 1", d, c)
	}
	w := r.work(t, s, "critical", "default")
	w.wantLines(t, "critical", "first", "plain ä", "past", "last", "later")
	s.waitCounts(t, "critical", counts{})
	s.waitCounts(t, "default", counts{delayed: 1})
	// It waits for all its queues at once.
	eventually(t, "the next get", func() bool { return s.state(t, "default").Waiters == 1 && s.state(t, "critical").Waiters == 1 })
	w.stop(t)
}

func testActiveJobAll(t *testing.T, program string, r rails) {
	s := startProgram(t, program)
	if got, want := r.enqueue(t, s.addr, "all", "2500"), "2500 enqueued, 0 refused, []\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.waitCounts(t, "default", counts{ready: 2499, delayed: 1})
	for i := range 3 {
		got := s.talk(t, "get default/open\r\ndelete default\r\nquit\r\n")
		if want := fmt.Sprintf(`"arguments":["job%d"]`, i); !strings.Contains(got, want) || !strings.Contains(got, `"priority":7`) {
			t.Errorf("message %d: got %q, want %s and its priority", i, got, want)
		}
	}
}

// testActiveJobRoundTrip is a server that answers nothing before it has all 1000 jobs, and then has no room for two of them.
func testActiveJobRoundTrip(t *testing.T, _ string, r rails) {
	const n = 1000
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	served := make(chan error, 1)
	go func() {
		served <- func() error {
			nc, err := ln.Accept()
			if err != nil {
				return err
			}
			defer nc.Close()
			nc.SetDeadline(time.Now().Add(longPatience))
			in := bufio.NewReader(nc)
			for i := range n {
				line, err := in.ReadString('\n')
				if err != nil {
					return fmt.Errorf("job %d: %w", i, err)
				}
				var key string
				var size int
				if _, err := fmt.Sscanf(line, "ms %s %d c\r\n", &key, &size); err != nil {
					return fmt.Errorf("job %d: %q: %w", i, line, err)
				}
				if _, err := in.Discard(size + 2); err != nil {
					return fmt.Errorf("job %d: %w", i, err)
				}
			}
			for i := range n {
				answer := fmt.Sprintf("HD c%d\r\n", i+1)
				if i == 5 || i == 6 {
					answer = "NS\r\n"
				}
				if _, err := io.WriteString(nc, answer); err != nil {
					return err
				}
			}
			if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
				return fmt.Errorf("after the answers: %v, want the end", err)
			}
			return nil
		}()
	}()
	got := r.enqueue(t, ln.Addr().String(), "all", fmt.Sprint(n))
	if want := "998 enqueued, 2 refused, [\"queue default: it is full\"]\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func testActiveJobIdle(t *testing.T, program string, r rails) {
	data := t.TempDir()
	s := startProgram(t, program, "-data", data)
	cmd := r.command(t, s.addr, "idle")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "before\n" {
		t.Fatalf("got %q, %v, want before", line, err)
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.ended
	s = startProgram(t, program, "-data", data, "-listen", s.addr)
	io.WriteString(in, "go on\n")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	s.wantCounts(t, "default", counts{ready: 103})
}

func testActiveJobFails(t *testing.T, program string, r rails) {
	s := startProgram(t, program)
	r.enqueue(t, s.addr, "bad", "bad", "2")
	w := r.work(t, s, "default")
	w.wantLines(t, "bad")
	s.waitCounts(t, "default", counts{delayed: 1})
	first := time.Now()
	w.wantLines(t, "bad", "bad")
	s.waitCounts(t, "default", counts{delayed: 1})
	second := time.Now()
	w.wantLines(t, "bad", "bad", "bad")
	s.waitCounts(t, "default", counts{})
	if one, two := second.Sub(first), time.Since(second); one < 800*time.Millisecond || two < 1800*time.Millisecond {
		t.Errorf("it came again after %v and %v, want 1 and 2 seconds", one, two)
	}

	// A job that ActiveJob retries is acked each time, and enqueued anew.
	r.enqueue(t, s.addr, "retried", "retried")
	w.wantLines(t, "bad", "bad", "bad", "retried", "retried", "retried")
	s.waitCounts(t, "default", counts{})
	w.stop(t)
	if out := w.output.String(); !strings.Contains(out, "run 2 of bad") || strings.Contains(out, "once more") {
		t.Errorf("got %q, want why the bad job failed, and nothing of the retried one", out)
	}
}

func testActiveJobLong(t *testing.T, program string, r rails) {
	s := startProgram(t, program)
	done := filepath.Join(t.TempDir(), "done")
	r.enqueue(t, s.addr, "long", "long", done)
	w := r.work(t, s, "default")
	w.wantLines(t, "long")
	w.cmd.Process.Signal(syscall.SIGTERM)
	wait := 3 * leaseOfWorkers / 2
	if got := s.talk(t, fmt.Sprintf("get default/t=%d\r\nquit\r\n", wait.Milliseconds())); got != "END\r\n" {
		t.Errorf("the job was given away while it ran: got %q", got)
	}
	s.wantCounts(t, "default", counts{reserved: 1})
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.wantEnd(t)
	s.wantCounts(t, "default", counts{})
}

func testActiveJobKilled(t *testing.T, program string, r rails) {
	s := startProgram(t, program)
	r.enqueue(t, s.addr, "long", "long", "never")
	w := r.work(t, s, "default")
	w.wantLines(t, "long")
	w.cmd.Process.Kill()
	<-w.ended
	if got := s.talk(t, "get default/t=15000\r\ndelete default\r\nquit\r\n"); !strings.Contains(got, "LongJob") || !strings.HasSuffix(got, "DELETED\r\n") {
		t.Errorf("got %q, want the job and its ack", got)
	}
	s.wantCounts(t, "default", counts{})
}
