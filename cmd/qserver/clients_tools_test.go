package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// testTools runs libmemcached's command line tools: what memccp enqueues memccat takes, and gives back when it ends, since it has
// no way to ack. Over the binary protocol as well.
func testTools(t *testing.T, s *programServer) {
	for _, tool := range []string{"memccp", "memccat", "memcexist", "memcstat", "memcping", "memcrm", "memctouch", "memcdump", "memcflush"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s (libmemcached-tools on Debian) is not installed: scripts/test clients installs it", tool)
		}
	}
	const body = "one\r\n\x00two"
	dir := t.TempDir()
	for name, content := range map[string]string{"tools": body, "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// run wants the exit code and, unless it is -, the output.
	run := func(code int, want string, tool string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), tool, append([]string{"--servers=127.0.0.1:" + s.port()}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code || want != "-" && string(out) != want {
			t.Errorf("%s %s: got exit code %d and %q, want %d and %q (%v)", tool, strings.Join(args, " "), got, out, code, want, err)
		}
		return string(out)
	}
	run(0, "", "memcping")
	if version := run(0, "-", "memcstat", "--server-version"); !strings.Contains(version, " 1.0.0") {
		t.Errorf("memcstat: got version %q", version)
	}
	for _, protocol := range [][]string{nil, {"--binary"}} {
		with := func(args ...string) []string { return slices.Concat(protocol, args) }
		run(1, "", "memccat", with("tools")...)
		run(0, "", "memccp", with("tools", "empty")...)
		for range 2 { // it comes back
			run(0, body+"\n", "memccat", with("tools")...)
			s.waitCounts(t, "tools", counts{ready: 1})
		}
		run(0, "\n", "memccat", with("empty")...)
		s.waitCounts(t, "empty", counts{ready: 1})
		s.talk(t, "get tools empty\r\ndelete tools\r\ndelete empty\r\nquit\r\n")
		s.wantCounts(t, "tools", counts{})
		s.wantCounts(t, "empty", counts{})
	}

	run(1, "", "memcexist", "tools") // it asks by an add that has expired already, and stores nothing
	s.wantCounts(t, "tools", counts{})
	run(0, "", "memccp", "tools")
	run(0, "", "memcexist", "tools")
	run(1, "", "memcrm", "tools") // acks only what its own connection holds, which is nothing
	run(1, "", "memctouch", "--expire=60", "tools")
	run(0, "", "memcdump")
	stats := run(0, "-", "memcstat")
	for _, want := range []string{"\tcurr_items: 1\n", "\ttotal_items: 5\n"} {
		if !strings.Contains(stats, want) {
			t.Errorf("memcstat: %q is not in\n%s", want, stats)
		}
	}
	if stats := run(0, "-", "memcstat", "--args=queues"); !strings.Contains(stats, "\tqueue_tools_ready: 1\n") {
		t.Errorf("memcstat --args=queues: got\n%s", stats)
	}
	run(1, "-", "memcflush") // refused
	s.wantCounts(t, "tools", counts{ready: 1})
}
