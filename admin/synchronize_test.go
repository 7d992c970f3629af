package admin_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"qserver/admin"
)

// commands makes a folder of programs for synchronize.
func commands(t *testing.T) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("its programs are shell scripts, which Windows does not run: run it elsewhere")
	}
	dir := t.TempDir()
	for name, script := range map[string]string{
		"copy":  `cp -f "$1" "$1.$2"`, // Kyoto Tycoon's own
		"show":  `cat "$1" > shown; printf ' %s %s' "$#" "$2" >> shown; env >> shown`,
		"fail":  `echo no tape in the drive >&2; exit 3`,
		"sleep": `echo started > started; sleep 600 & wait`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "data"), []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSynchronizeCommand(t *testing.T) {
	cmds := commands(t)
	for _, tt := range []struct {
		name, query string
		noDir       bool
		code        int
		want        string // pattern of the ERROR
		calls       []string
	}{
		{name: "copy", query: "command=copy", code: 200, calls: []string{"sync", "copy"}},
		{name: "hard", query: "command=copy&hard=", code: 200, calls: []string{"sync", "checkpoint", "copy"}},
		{name: "empty is none", query: "command=", code: 200, calls: []string{"sync"}},
		{name: "fails", query: "command=fail", code: 450, want: `^command failed: exit status 3$`, calls: []string{"sync", "copy"}},
		{name: "unknown", query: "command=none", code: 450, want: `^no such command: none$`, calls: []string{"sync"}},
		{name: "folder", query: "command=folder", code: 450, want: `^no such command: folder$`, calls: []string{"sync"}},
		{name: "not executable", query: "command=data", code: 450, want: `^command failed: .*permission denied$`, calls: []string{"sync", "copy"}},
		{name: "no folder", query: "command=copy", noDir: true, code: 450, want: `^no folder of commands is set$`, calls: []string{"sync"}},
		{name: "path", query: "command=/bin/sh", code: 400, want: `bare name`},
		{name: "upwards", query: "command=..%2Fcopy", code: 400, want: `bare name`},
		{name: "parent", query: "command=..", code: 400, want: `bare name`},
		{name: "itself", query: "command=.", code: 400, want: `bare name`},
		{name: "backslash", query: `command=a\b`, code: 400, want: `bare name`},
		{name: "NUL", query: "command=copy%00", code: 400, want: `bare name`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st, dir := newStore(), t.TempDir()
			s := &admin.Server{CmdDir: cmds, CopyDir: dir}
			if tt.noDir {
				s.CmdDir = ""
			}
			s.Attach(st)
			w := ask(t, s, "POST", "/rpc/synchronize?"+tt.query)
			message := strings.TrimPrefix(strings.TrimSuffix(w.Body.String(), "\n"), "ERROR\t")
			message = strings.TrimPrefix(message, "DB: 8: logical inconsistency: ")
			if w.Code != tt.code || !regexp.MustCompile(tt.want).MatchString(message) {
				t.Errorf("got %d %q, want %d %q", w.Code, w.Body, tt.code, tt.want)
			}
			if got := st.done(); !slices.Equal(got, tt.calls) {
				t.Errorf("calls: got %q, want %q", got, tt.calls)
			}
			if _, err := os.Stat(filepath.Join(dir, "casket.kct")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("copy left behind: %v", err)
			}
			backups, err := filepath.Glob(filepath.Join(dir, "casket.kct.????????????????????"))
			if want := slices.Contains(tt.calls, "copy") && tt.code == 200; err != nil || (len(backups) == 1) != want {
				t.Errorf("backups: got %q, %v", backups, err)
			}
			for _, path := range backups {
				if got, err := os.ReadFile(path); err != nil || string(got) != "tree" {
					t.Errorf("%s: got %q, %v", path, got, err)
				}
			}
		})
	}
}

func TestCommandSurroundings(t *testing.T) {
	t.Setenv("QSERVER_TEST_SECRET", "hunter2")
	st := newStore()
	st.stats.Path = filepath.Join(t.TempDir(), "data")
	s := &admin.Server{CmdDir: commands(t)}
	s.Attach(st)
	before := time.Now()
	if w := ask(t, s, "POST", "/rpc/synchronize?command=show"); w.Code != 200 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	dir := filepath.Join(st.stats.Path, "backup") // where it is by default
	shown, err := os.ReadFile(filepath.Join(dir, "shown"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`^tree 2 0*(\d{19})\D`).FindStringSubmatch(string(shown))
	if m == nil || m[1] < strconv.FormatInt(before.UnixNano(), 10) {
		t.Errorf("arguments: got %q", shown)
	}
	if strings.Contains(string(shown), "hunter2") {
		t.Error("the server's environment reaches the command")
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v", info.Mode(), err)
	}
}

func TestCommandCopyFails(t *testing.T) {
	st, dir := newStore(), t.TempDir()
	st.copyTo = func(_ context.Context, path string) error {
		return errors.Join(os.WriteFile(path, []byte("tr"), 0o600), errors.New("no space left on device"))
	}
	var log bytes.Buffer
	s := &admin.Server{CmdDir: commands(t), CopyDir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))}
	s.Attach(st)
	w := ask(t, s, "POST", "/rpc/synchronize?command=copy")
	if want := "ERROR\tDB: 9: system error: copy for command copy: no space left on device\n"; w.Code != 500 || w.Body.String() != want {
		t.Errorf("got %d %q, want 500 %q", w.Code, w.Body, want)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("left behind: %v, %v", list, err)
	}
	if !strings.Contains(log.String(), "no space left") {
		t.Errorf("log: got %q", log.String())
	}
}

func TestCommandTimeout(t *testing.T) {
	s := &admin.Server{CmdDir: commands(t), CopyDir: t.TempDir(), CommandTimeout: 200 * time.Millisecond}
	s.Attach(newStore())
	started := time.Now()
	w := ask(t, s, "POST", "/rpc/synchronize?command=sleep")
	if want := "ERROR\tDB: 8: logical inconsistency: command failed: context deadline exceeded\n"; w.Code != 450 || w.Body.String() != want {
		t.Errorf("got %d %q, want 450 %q", w.Code, w.Body, want)
	}
	if took := time.Since(started); took > 4*time.Second { // its child holds no output open
		t.Errorf("took %v", took)
	}
}

// A client that hangs up does not stop the command; a second one is refused meanwhile; Close stops it.
func TestCommandOutlivesClientNotServer(t *testing.T) {
	st, dir := newStore(), t.TempDir()
	copying, goOn := make(chan struct{}), make(chan struct{})
	st.copyTo = func(ctx context.Context, path string) error {
		copying <- struct{}{}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-goOn:
			return os.WriteFile(path, []byte("tree"), 0o600)
		}
	}
	s := &admin.Server{CmdDir: commands(t), CopyDir: dir}
	s.Attach(st)
	addr := serve(t, s)
	const request = "POST /rpc/synchronize?command=sleep HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
	c := dial(t, addr)
	c.send(request)
	<-copying
	c.conn.Close()
	other := dial(t, addr)
	other.send(request)
	want := expect("450 status code 450", tsv, "ERROR\tDB: 8: logical inconsistency: another command is running\n")
	if got := other.answer(false); got != want {
		t.Errorf("second: got %q, want %q", got, want)
	}
	close(goOn)
	if err := s.Close(); err != nil { // returns although the command sleeps for ten minutes
		t.Errorf("Close: %v", err)
	}
	if list, err := filepath.Glob(filepath.Join(dir, "casket*")); err != nil || len(list) > 0 {
		t.Errorf("copy left behind: %q, %v", list, err)
	}
}
