package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// actAsServer makes the test binary a fake of the server's command, which keeps its messages in a journal.
const actAsServer = "BENCH_TEST_ACTS_AS_SERVER"

func TestMain(m *testing.M) {
	var err error
	switch {
	case isWorker(os.Args[1:]): // of the scenario jobs
		err = workerMain(context.Background(), os.Args[1:])
	case os.Getenv(actAsServer) == "":
		os.Setenv(actAsServer, "1")              // for the processes that tests start
		os.Setenv("GORACE", "atexit_sleep_ms=0") // else each of them takes a second to end
		os.Exit(m.Run())
	default:
		err = fakeCommand(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func fakeCommand(args []string) error {
	if len(args) == 2 && args[0] == "defrag" {
		return nil
	}
	fs := flag.NewFlagSet("fake", flag.ContinueOnError)
	listen, admin, data := fs.String("listen", "", ""), fs.String("admin", "", ""), fs.String("data", "", "")
	fs.String("sync", "", "")
	fs.String("memory", "", "")
	fs.Bool("pprof", false, "")
	does, at := fs.String("wrong", "", ""), fs.Int64("wrong-with", 0, "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var deliver func(int64, []byte) ([]byte, int)
	if *does != "" {
		deliver = wrongs[*does].with(*at)
	}
	f := newFake(deliver)
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
	case "/readyz", "/rpc/synchronize", "/debug/pprof/profile":
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
		t.Skip("memory is read from /proc, which only Linux has: run it there")
	}
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"queues", "-n", "200", "-connections", "3"}, []string{"stats queues", "one message each", "start after kill -9", "all taken"}},
		{[]string{"backlog", "-n", "2000", "-turns", "2", "-settle", "100ms"},
			[]string{"filled", "start after SIGTERM", "got at the head", "drained", "by payload bytes", "folder last changed"}},
		{[]string{"blog", "-n", "200", "-turns", "1", "-backlog", "500"}, []string{"a backlog of 500 messages", "774.0 MiB", "qserver/never"}},
		{[]string{"idle", "-n", "30", "-queues", "7", "-seconds", "0.05", "-warmup", "0"}, []string{"30 idle", "30 waiting", "under 80 MB"}},
		{[]string{"payload", "-rows", "300", "-turns", "1", "-rest", "1ms"}, []string{"qserver/never", "path of a file"}},
		{[]string{"jobs", "-kinds", "io,cpu", "-cost", "4", "-delay", "2ms", "-wait", "15ms", "-ramp", "60", "-most", "60", "-seconds", "0.4", "-frame", "200ms", "-warmup", "0.02",
			"-processes", "1", "-threads", "1,2", "-svg", t.TempDir()}, []string{"Sidekiq alone", "highest rate passed", "1/"}},
		{[]string{"ab", "-seconds", "0.3", "-warmup", "0.02", "-turns", "2", "-rate", "800", "-workers", "3", "-queues", "4", "-b", "-memory 1MiB", "-profile", filepath.Join(t.TempDir(), "pgo")},
			[]string{"A: as it is; B: -memory 1MiB", "close/open", "RSS at the end"}},
	} {
		t.Run(tt.args[0], func(t *testing.T) {
			t.Parallel()
			out, err := benchFake(t, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in the report:\n%s", want, out)
				}
			}
		})
	}
}

// benchFake runs a scenario on fakes of the server's command that it starts.
func benchFake(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, errs bytes.Buffer
	args = append(slices.Clone(args), "-server", os.Args[0], "-servers", "qserver/never", "-dir", t.TempDir(), "-idle-check", "0")
	err := run(t.Context(), args, &out, &errs)
	return out.String(), err
}

// TestWatchedScenariosCheck shows each scenario that starts its servers one that does wrong with a message.
func TestWatchedScenariosCheck(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory is read from /proc, which only Linux has: run it there")
	}
	for _, tt := range []struct {
		name    string
		message int // that goes wrong
		args    []string
	}{
		{"queues", 40, []string{"queues", "-n", "60", "-connections", "3"}},
		{"backlog", 600, []string{"backlog", "-n", "1000", "-turns", "1", "-settle", "10ms"}},
		{"blog's backlog", 150, []string{"blog", "-n", "40", "-turns", "1", "-backlog", "300"}},
		{"idle", 17, []string{"idle", "-n", "30", "-queues", "7", "-seconds", "0.01", "-warmup", "0"}},
		{"idle, the last one", 29, []string{"idle", "-n", "30", "-queues", "7", "-seconds", "0.01", "-warmup", "0"}},
		{"payload", 0, []string{"payload", "-rows", "50", "-turns", "1", "-rest", "1ms"}},
		{"jobs", 10, []string{"jobs", "-kinds", "io", "-cost", "4", "-delay", "1ms", "-wait", "15ms", "-ramp", "60", "-most", "60", "-seconds", "0.4", "-frame", "200ms", "-warmup", "0.02",
			"-processes", "1", "-threads", "2"}},
		{"ab", 30, []string{"ab", "-seconds", "0.3", "-warmup", "0.02", "-turns", "1", "-rate", "800", "-workers", "3", "-queues", "4"}},
	} {
		for name := range wrongs {
			t.Run(tt.name+" "+name, func(t *testing.T) {
				t.Parallel()
				out, err := benchFake(t, append(tt.args, "-server-flags", fmt.Sprintf("-wrong %s -wrong-with %d", name, tt.message))...)
				if err == nil {
					t.Errorf("no error; report:\n%s", out)
				}
				t.Log(err)
			})
		}
	}
}
