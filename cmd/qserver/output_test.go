package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"qserver/storage"
)

// golden compares got with the file of testdata, and rewrites that with -update.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

func TestCheckOutput(t *testing.T) {
	report := storage.CheckReport{
		Queues: []storage.QueueStats{
			{Name: "bill", Items: 1, Delayed: 1, Bytes: 12},
			{Name: "mail\xff\x1b[31m", Items: 3_000_000, Ready: 2_999_990, Reserved: 10, Dead: 7, Bytes: 729_000_000},
		},
		Records: 12, TreeRows: 3_000_001, CutFrames: 1,
		Problems: []storage.Problem{
			{File: "d/0000000000000003.ulog", Offset: 4096, What: "sum of the frame with LSN 17 is wrong", Messages: 4, Repair: "qserver repair d"},
			{File: "d/tree.db", Offset: -1, What: "the file is cut short", Messages: -1},
		},
	}
	var text bytes.Buffer
	if err := writeCheck(&text, report); err != nil {
		t.Fatal(err)
	}
	golden(t, "check.txt", text.Bytes())

	text.Reset()
	out := json.NewEncoder(&text)
	out.SetIndent("", "  ")
	if err := out.Encode(newCheckJSON(report)); err != nil {
		t.Fatal(err)
	}
	golden(t, "check.json", text.Bytes())

	text.Reset()
	if err := writeCheck(&text, storage.CheckReport{}); err != nil {
		t.Fatal(err)
	}
	golden(t, "check-empty.txt", text.Bytes())
}

func TestRepairOutput(t *testing.T) {
	var text bytes.Buffer
	for _, report := range []storage.RepairReport{
		{},
		{Kept: []string{"d/0000000000000003.ulog.damaged"}, Intact: 96, Missing: []string{"LSN 17 to 20 (4 records) of 0000000000000003.ulog"}},
	} {
		if err := writeRepair(&text, report); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "repair.txt", text.Bytes())
}

func TestStatusOutput(t *testing.T) {
	var text bytes.Buffer
	for _, a := range []statusAnswer{
		{
			Status: json.RawMessage(`{"version":"1.0.0","pid":7,"uptime_ms":3723004,"ready":true,"connections":{"open":5,"busy":2},
				"path":"/d","messages":{"queues":2},"log":{"lsn":9,"synced_lsn":8,"bytes":134217728},"tree":{"lsn":7,"bytes":32768},
				"memory":{"bytes":1024,"limit_bytes":268435456}}`),
			Queues: []json.RawMessage{
				json.RawMessage(`{"name_escaped":"mail","items":12,"ready":10,"reserved":2,"bytes":2916,"waiters":1,"age_ms":950}`),
				json.RawMessage(`{"name_escaped":"a%20%1B","items":1,"delayed":1,"dead":3,"bytes":5,"age_ms":61500}`),
			},
		},
		{Status: json.RawMessage(`{"version":"1.0.0","pid":7,"uptime_ms":900,"ready":false,"reason":"recovery: log: 40 %"}`)},
	} {
		if err := writeStatus(&text, a); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "status.txt", text.Bytes())
}

func TestReachable(t *testing.T) {
	for _, tt := range []struct{ admin, want string }{
		{":1978", "127.0.0.1:1978"},
		{"0.0.0.0:1978", "127.0.0.1:1978"},
		{"[::]:1978", "127.0.0.1:1978"},
		{"[::1]:1978", "[::1]:1978"},
		{"q.example:80", "q.example:80"},
	} {
		if got := reachable(tt.admin); got != tt.want {
			t.Errorf("reachable(%s) = %s, want %s", tt.admin, got, tt.want)
		}
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	p := &progress{w: &out, now: func() time.Time { return now }, every: time.Second, last: now}
	for i := range int64(25) {
		p.report("log", i*mib, 24*mib)
		now = now.Add(100 * time.Millisecond)
	}
	p.report("copy", 3*kib, 0)
	want := "qserver: log: 41 %\nqserver: log: 83 %\n"
	if got := out.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := progressText("copy", 3*kib, 0); got != "copy: 3072" {
		t.Errorf("got %q", got)
	}
}

func TestPIDFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	remove, err := writePID(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is there still")
	}
	if remove, err = writePID(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error("another process's file was removed")
	}
	if _, err := writePID(filepath.Join(path, "x")); exitCode(err) != exitCreate {
		t.Errorf("got %v, want an error with code %d", err, exitCreate)
	}
}

func TestLogFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	l, err := openLogFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(s string) {
		t.Helper()
		if _, err := l.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write("b")
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	write("c")
	if err := os.Rename(dir, dir+"x"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err == nil {
		t.Error("a path that is gone was opened")
	}
	write("d")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"log.1": "ab", "log": "cd"} {
		got, err := os.ReadFile(filepath.Join(dir+"x", name))
		if string(got) != want || err != nil {
			t.Errorf("%s holds %q (%v), want %q", name, got, err, want)
		}
	}
	if err := os.Rename(dir+"x", dir); err != nil {
		t.Fatal(err)
	}
	if _, err := openLogFile(dir); exitCode(err) != exitCreate {
		t.Errorf("got %v, want an error with code %d", err, exitCreate)
	}
}

func TestRecoveryText(t *testing.T) {
	var r recovery
	if got, want := r.text(), "recovery"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.set("replaying the update log", 30, 120)
	if got, want := r.text(), "recovery: replaying the update log: 25 %"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
