package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"qserver/storage"
)

// logFolder makes a folder with a log of a record of most kinds.
func logFolder(t *testing.T) (dir string, s *storage.Store) {
	t.Helper()
	dir = t.TempDir()
	s, err := storage.Open(dir, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := s.NewSession("")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	put := func(name, body string, p storage.PutRequest) {
		t.Helper()
		p.Body, p.Mode = []byte(body), storage.PutSet
		_, err := c.Enqueue([]byte(name), p)
		must(err)
	}
	put("mail", "hello", storage.PutRequest{Priority: storage.DefaultPriority})
	put("mail", strings.Repeat("long ", 40), storage.PutRequest{Priority: 3, Flags: 7, Expire: time.UnixMilli(9_000_000_000_000)})
	put("a\x1b", "\xff\x00", storage.PutRequest{Priority: storage.DefaultPriority, Delay: time.Hour})
	must(c.Commit())
	_, _, err = c.Reserve([]byte("mail"), storage.ReserveOptions{})
	must(err)
	must(c.Ack([]byte("mail"), storage.Pick{}))
	must(c.Commit())
	c.Close()
	return dir, s
}

var (
	timeText  = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	timeJSON  = regexp.MustCompile(`"(enqueued|due)_ms":\d+`)
	chainJSON = regexp.MustCompile(`"chain":\d+`)
)

func TestUlogOutput(t *testing.T) {
	dir, s := logFolder(t)
	// Beside the running server names are known from the records that make the queues.
	run := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if err := printLog(t.Context(), append(args, dir), nil, &out, io.Discard); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	running := run()
	golden(t, "ulog.txt", timeText.ReplaceAll([]byte(running), []byte("TIME")))
	asJSON := []byte(run("-json"))
	for line := range bytes.Lines(asJSON) {
		if !json.Valid(line) {
			t.Errorf("no JSON: %s", line)
		}
	}
	golden(t, "ulog.json", chainJSON.ReplaceAll(timeJSON.ReplaceAll(asJSON, []byte(`"${1}_ms":TIME`)), []byte(`"chain":SUM`)))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := run(); !strings.HasPrefix(got, running) {
		t.Errorf("after the server's end:\n%sbefore:\n%s", got, running)
	}
	// Of a stopped server's folder names are known wherever one begins.
	lines := strings.SplitAfter(running, "\n")
	if got, want := run("-from", "4"), strings.Join(lines[3:], ""); !strings.HasPrefix(got, want) {
		t.Errorf("-from 4:\n%swant\n%s", got, want)
	}
}

func TestUlogFollow(t *testing.T) {
	dir, s := logFolder(t)
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := printLog(ctx, []string{"-follow", dir}, nil, w, io.Discard)
		w.Close()
		done <- err
	}()
	seen := make(chan string)
	go func() {
		defer close(seen)
		var text []byte
		buf := make([]byte, 4096)
		for {
			n, err := r.Read(buf)
			text = append(text, buf[:n]...)
			if i := bytes.Index(text, []byte("late arrival")); i >= 0 {
				seen <- string(text)
				text = nil
			}
			if err != nil {
				return
			}
		}
	}()
	c := s.NewSession("")
	if _, err := c.Enqueue([]byte("mail"), storage.PutRequest{Body: []byte("late arrival"), Priority: storage.DefaultPriority}); err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	select {
	case text := <-seen:
		if !strings.Contains(text, "hello") {
			t.Errorf("what was there before is missing:\n%s", text)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nothing of what was written later")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestUlogErrors(t *testing.T) {
	dir, s := logFolder(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(file, []byte("no such thing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{}, "ulog: DIR is missing", exitUsage},
		{[]string{"-from", "x", dir}, "-from x: want the number of a record", exitUsage},
		{[]string{dir + "/none"}, "no such file", exitNoInput},
		{[]string{filepath.Dir(file)}, "is not a data folder of qserver", exitNoInput},
		{[]string{file}, "neither a data folder nor a file of records set aside", exitSoftware},
		{[]string{"-put", "127.0.0.1:1", dir}, "-put takes a file", exitUsage},
		{[]string{"-put", "127.0.0.1:1", "-json", file}, "-put goes with -from and -again only", exitUsage},
	} {
		err := printLog(t.Context(), tt.args, nil, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tt.want) || exitCode(err) != tt.code {
			t.Errorf("ulog %q: %v (exit code %d), want %q (%d)", tt.args, err, exitCode(err), tt.want, tt.code)
		}
	}
}
