package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Cases from public bug reports that need real clients, processes or a restart; a test's name has the case's id.

func TestField_CLI15_PHPBuffersWrites(t *testing.T) {
	t.Parallel()
	php, n := needPHP(t), startNode(t)
	const jobs = 10_000
	if got := output(t, php, "testdata/clients/buffered.php", n.port(), fmt.Sprint(jobs)); got != "job 0\n" {
		t.Errorf("got %q, want the first job", got)
	}
	if got := n.stat("buffered_total_items"); got != jobs {
		t.Errorf("got %d jobs, want %d", got, jobs)
	}
	c := dialTalker(t, n.address)
	for i := range jobs { // the first one is back
		c.wantSoon("buffered", fmt.Sprintf("job %d", i))
	}
}

// Names with the characters that client libraries put into keys, over a kill, and in the admin's paths.
func TestField_CLI18_NamesOutliveAKill(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args  []string
		names []string
	}{
		{nil, []string{"ns:q", "ns:q:md5:d41d8c", "a+b", "q%20", "q\xc3\xa9", "_", "..", ".", "a#b", "a?b", "{", "q|#"}},
		{[]string{"-key-options", "off"}, []string{"a/b.c", "q/t=5", "{q}", "/", "a//"}},
	} {
		n := startNode(t, tt.args...)
		c := dialTalker(t, n.address)
		for i, name := range tt.names {
			c.do(fmt.Sprintf("set %s 0 0 3\r\n%03d\r\n", name, i), "STORED")
		}
		n.kill()
		n.start()
		c = dialTalker(t, n.address)
		for i, name := range tt.names {
			var q struct{ Name string }
			path := "http://" + n.admin() + "/api/v1/queues/" + strings.ReplaceAll(url.PathEscape(name), ".", "%2E")
			answer, err := http.Get(path)
			if err != nil {
				t.Fatal(err)
			}
			err = json.NewDecoder(answer.Body).Decode(&q)
			answer.Body.Close()
			if err != nil || q.Name != name {
				t.Errorf("%s: %s, got queue %q, want %q (%v)", path, answer.Status, q.Name, name, err)
			}
			c.wantTaken(name, fmt.Sprintf("%03d", i))
			c.do("delete "+name+"\r\n", "DELETED")
		}
	}
}

// Flags and bodies are kept: every type comes back equal, directly, after a kill, and from a folder that was defragmented.
func TestField_CLI20_TypesComeBack(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	var scripts [][]string
	for _, tt := range []struct {
		what, flag, check, script string
		programs                  []string
	}{
		{"PHP Memcached (php-cli and php-memcached on Debian)", "-r", `exit(class_exists("Memcached") ? 0 : 1);`, "values.php", []string{"php"}},
		{"python-memcached (python3-memcache on Debian)", "-c", "import memcache", "values.py", []string{"python3", "/usr/bin/python3"}},
		{"Dalli (ruby-dalli on Debian)", "-e", `require "dalli"`, "values.rb", []string{"ruby"}},
	} {
		t.Run(tt.what, func(t *testing.T) { // so that each client that is not there is named
			scripts = append(scripts, []string{need(t, tt.what, tt.flag, tt.check, tt.programs...), "testdata/clients/" + tt.script})
		})
	}
	run := func(mode string) {
		t.Helper()
		for _, script := range scripts {
			if got := output(t, script[0], script[1], mode, n.port()); got != "ok\n" {
				t.Errorf("%s %s: got %q, want ok", script[1], mode, got)
			}
		}
	}
	for range 3 {
		run("put")
	}
	run("get")
	n.kill()
	n.start()
	run("get")
	n.end()
	if out, err := exec.Command(n.s.cmd.Path, "defrag", n.k.dir).CombinedOutput(); err != nil {
		t.Fatalf("defrag: %v\n%s", err, out)
	}
	n.start()
	run("get")
}

// A connection that was inherited by a fork ends for both when one of them ends it.
func TestField_CLI31_ForkedClients(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dialTalker(t, n.address)
	t.Run("PHP", func(t *testing.T) {
		php := need(t, "PHP Memcached with pcntl (php-cli and php-memcached on Debian)", "-r", `exit(class_exists("Memcached") && function_exists("pcntl_fork") ? 0 : 1);`, "php")
		for _, body := range []string{"A", "B"} {
			c.do("set fork 0 0 1\r\n"+body+"\r\n", "STORED")
		}
		if got := output(t, php, "testdata/clients/fork.php", n.port()); got != "A not acked\n" {
			t.Errorf("got %q, want that the parent's ack fails visibly", got)
		}
		c.wantSoon("fork", "A")
		c.wantTaken("fork", "B")
		if got := n.stat("fork_total_acked"); got != 0 {
			t.Errorf("got %d acked, want none", got)
		}
		c.do("delete fork\r\n", "DELETED")
		c.do("delete fork\r\n", "DELETED")
	})
	t.Run("Python", func(t *testing.T) {
		python := need(t, "Python", "-c", "import socket", "python3", "/usr/bin/python3")
		const jobs = 100
		before := max(n.stat("fork_total_acked"), 0)
		for i := range jobs {
			c.do(fmt.Sprintf("set fork 0 0 2\r\n%02d\r\n", i), "STORED")
		}
		if got := output(t, python, "testdata/clients/fork.py", n.port()); got != "ok\n" {
			t.Errorf("got %q, want ok", got)
		}
		for late := time.Now().Add(patience); n.stat("fork_reserved") != 0; {
			if time.Now().After(late) {
				t.Fatalf("%d still held after all have ended", n.stat("fork_reserved"))
			}
		}
		acked, ready := n.stat("fork_total_acked")-before, n.stat("fork_ready")
		t.Logf("%d acked, %d back", acked, ready)
		if acked+ready != jobs || ready == 0 {
			t.Errorf("%d acked and %d ready of %d", acked, ready, jobs)
		}
	})
}

// Row 77 of the odd inputs: no UDP at all.
func TestHostile77NoUDP(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", n.s.pid))
	if err != nil || len(fds) == 0 {
		t.Skip("the server's sockets are read from /proc, which only Linux has: run it there")
	}
	tables := map[string]string{}
	for _, table := range []string{"udp", "udp6", "udplite", "tcp"} {
		b, _ := os.ReadFile("/proc/net/" + table) // not every kernel has each
		tables[table] = string(b)
	}
	listens := 0
	for _, fd := range fds {
		target, _ := os.Readlink(fd)
		m := regexp.MustCompile(`^socket:\[(\d+)\]$`).FindStringSubmatch(target)
		if m == nil {
			continue
		}
		for table, text := range tables {
			switch found := regexp.MustCompile(`(?m) ` + m[1] + ` `).MatchString(text); {
			case found && table == "tcp":
				listens++
			case found:
				t.Errorf("a socket of %s is open", table)
			}
		}
	}
	if listens < 2 {
		t.Errorf("found %d TCP sockets, want the two ports: this test does not see them", listens)
	}
}

// admin is the address of the HTTP port.
func (n *node) admin() string {
	m := regexp.MustCompile(`msg="admin port open" address=(\S+)`).FindStringSubmatch(n.s.text())
	if m == nil {
		n.k.fatal("no admin port:\n%s", n.s.text())
	}
	return m[1]
}

// end stops the server in order.
func (n *node) end() {
	syscall.Kill(n.s.pid, syscall.SIGTERM)
	<-n.s.ended
}
