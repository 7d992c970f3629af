package main

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"qserver/storage/ulog"
)

// failingFS is the operating system's file system until fail is set; then every sync fails with EIO.
type failingFS struct {
	ulog.OS
	fail atomic.Bool
}

type failingFile struct {
	ulog.File
	fs *failingFS
}

func (f *failingFS) OpenFile(name string, flag int) (ulog.File, error) {
	file, err := f.OS.OpenFile(name, flag)
	if err != nil {
		return nil, err
	}
	return &failingFile{file, f}, nil
}

func (f *failingFile) Sync() error {
	if f.fs.fail.Load() {
		return syscall.EIO
	}
	return f.File.Sync()
}

// lineLog hands each log line to the test.
type lineLog chan string

func (l lineLog) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestFailedSync is the end by a failed sync: the client is told that the outcome is unknown, and the server ends by itself
// within a second, with exit code 74 and the reason.
func TestFailedSync(t *testing.T) {
	dir := t.TempDir()
	c, err := parseConfig([]string{"-data", dir, "-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	adminAt, err := resolve("admin", c.admin)
	if err != nil {
		t.Fatal(err)
	}
	listenAt, err := resolve("listen", c.listen)
	if err != nil {
		t.Fatal(err)
	}
	lines := make(lineLog, 1000) // nobody reads any more once the address is known
	fs := new(failingFS)
	s := &server{config: c, data: dir, log: slog.New(slog.NewTextHandler(lines, nil)), started: time.Now(), fs: fs}
	ended := make(chan error, 1)
	go func() { ended <- s.run(t.Context(), adminAt, listenAt, newProgress(io.Discard)) }()

	var address string
	for line := range lines {
		if strings.Contains(line, "memcached port open") {
			_, address, _ = strings.Cut(strings.TrimSpace(line), "address=")
		}
		if strings.Contains(line, "msg=ready") {
			break
		}
	}
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	r := bufio.NewReader(nc)
	say := func(command string) string {
		t.Helper()
		if _, err := io.WriteString(nc, command); err != nil {
			t.Fatal(err)
		}
		reply, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	if got := say("set q 0 0 1\r\na\r\n"); got != "STORED\r\n" {
		t.Fatalf("got %q, want STORED", got)
	}
	fs.fail.Store(true)
	before := time.Now()
	if got := say("set q 0 0 1\r\nb\r\n"); !strings.HasPrefix(got, "SERVER_ERROR ") || !strings.Contains(got, "outcome unknown") {
		t.Errorf("got %q, want SERVER_ERROR with the words outcome unknown", got)
	}
	err = <-ended
	if took := time.Since(before); took > 3*time.Second { // one is promised; the machine may be busy with other tests
		t.Errorf("it took %v to end", took)
	}
	if exitCode(err) != exitIO || !errors.Is(err, syscall.EIO) || !strings.Contains(errText(err), "update log failed: ") {
		t.Errorf("got %v with exit code %d, want the reason with %d", err, exitCode(err), exitIO)
	}
}
