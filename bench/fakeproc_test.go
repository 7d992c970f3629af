package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// actAsServer makes the test binary a fake of the server's command, which keeps its messages in a journal.
const actAsServer = "BENCH_TEST_ACTS_AS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(actAsServer) == "" {
		os.Exit(m.Run())
	}
	if err := fakeCommand(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func fakeCommand(args []string) error {
	fs := flag.NewFlagSet("fake", flag.ContinueOnError)
	listen, admin, data := fs.String("listen", "", ""), fs.String("admin", "", ""), fs.String("data", "", "")
	fs.String("sync", "", "")
	fs.String("memory", "", "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	f := newFake(nil)
	if err := f.recover(filepath.Join(*data, "journal")); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	var serving sync.WaitGroup
	go f.listen(ln, &serving)
	go http.ListenAndServe(*admin, f)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	return nil
}

// recover reads the journal and goes on with it.
func (f *fakeQueue) recover(path string) error {
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	acked := make(map[int64]bool)
	var all []fakeMessage
	for line := range bytes.Lines(old) {
		var m fakeMessage
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		acked[m.Serial] = acked[m.Serial] || m.Acked
		all = append(all, m)
	}
	for _, m := range all {
		f.stored = max(f.stored, m.Serial)
		if !acked[m.Serial] {
			f.queues[m.Queue] = append(f.queues[m.Queue], m)
			f.items++
		}
	}
	f.journal, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return err
}

// ServeHTTP answers as the admin port does, as far as the scenarios ask.
func (f *fakeQueue) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.URL.Path {
	case "/readyz", "/rpc/synchronize":
	case "/api/v1/status":
		fmt.Fprintf(w, `{"log":{"lsn":%d},"tree":{"lsn":0}}`, f.stored)
	case "/api/v1/queues":
		var page queuesPage
		for name, messages := range f.queues {
			if strings.HasPrefix(name, r.URL.Query().Get("prefix")) {
				page.Queues = append(page.Queues, pageQueue{name, int64(len(messages))})
			}
		}
		if f.items == 1 && len(page.Queues) == 1 {
			page.Queues[0].Items = 1 // the one that is held
		}
		json.NewEncoder(w).Encode(page)
	default:
		http.NotFound(w, r)
	}
}

func TestWatchedScenarios(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory figures need /proc")
	}
	t.Setenv(actAsServer, "1")
	t.Setenv("GORACE", "atexit_sleep_ms=0") // else each server takes a second to end
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"queues", "-n", "200", "-connections", "3"}, []string{"stats queues", "one message each", "start after kill -9", "all taken"}},
		{[]string{"backlog", "-n", "2000", "-turns", "2", "-settle", "100ms"},
			[]string{"filled", "start after SIGTERM", "got at the head", "drained", "by payload bytes", "folder last changed"}},
	} {
		t.Run(tt.args[0], func(t *testing.T) {
			var out, errs bytes.Buffer
			args := append(tt.args, "-server", os.Args[0], "-servers", "qserver/never", "-dir", t.TempDir(), "-idle-check", "0")
			if err := run(t.Context(), args, &out, &errs); err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in the report:\n%s", want, out.String())
				}
			}
		})
	}
}
