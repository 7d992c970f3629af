package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestPairs(t *testing.T) {
	var all []contestant
	for _, word := range []string{"qserver/never", "memcached", "qserver/always", "redis/always", "append", "beanstalkd/50ms"} {
		c, err := parseServer(word)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	target, err := parseTarget("kt=tycoon@127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, target)
	for _, tt := range []struct{ against, want string }{
		{"", "qserver/never:memcached qserver/always:redis/always qserver/always:append qserver/never:kt qserver/always:kt"},
		{"memcached", "qserver/never:memcached qserver/always:memcached redis/always:memcached append:memcached beanstalkd/50ms:memcached kt:memcached"},
	} {
		e := &env{against: tt.against}
		var got []string
		for _, p := range e.pairs(all) {
			got = append(got, all[p[0]].name+":"+all[p[1]].name)
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("against %q:\ngot  %s\nwant %s", tt.against, s, tt.want)
		}
	}
}

func TestAims(t *testing.T) {
	for _, tt := range []struct {
		ours, theirs, operation string
		bytes, connections      int
		want                    any
	}{
		{"qserver/never", "memcached", opSet, 200, 1, aim(1.6)},
		{"qserver/never", "memcached", opTake, 200, 64, aim(0.95)},
		{"qserver/never", "memcached", opTake, 200, 512, nil},
		{"qserver/never", "memcached", opSet, 4096, 1, nil},
		{"qserver/never", "memcached", opNoreply, 200, 1, aimLess},
		{"qserver/never", "memcached/each", opNoreply, 200, 1, aimSame},
		{"qserver/never", "memcached/each", opSet, 200, 1, nil},
		{"qserver/enqueue", "memcached", opNoreply, 200, 1, nil},
		{"qserver/enqueue", "memcached", opSet, 200, 64, aim(0.6)},
		{"qserver/always", "beanstalkd/each", opSet, 200, 64, aim(8)},
		{"qserver/always", "beanstalkd/each", opTake, 200, 8, aimFirst},
		{"qserver/interval=50ms", "beanstalkd/50ms", opTake, 200, 64, aimFirst},
		{"qserver/interval=1s", "redis/everysec", opSet, 200, 1, aimFirst},
		{"qserver/interval=1s", "jetstream/default", opSet, 200, 1, aim(3)},
		{"qserver/always", "jetstream/always", opTake, 200, 8, aim(3)},
		{"qserver/always", "append", opSet, 200, 1, aim(0.8)},
		{"redis/always", "memcached", opSet, 200, 1, nil},
	} {
		if got := aimOf(tt.ours, tt.theirs, tt.operation, tt.bytes, tt.connections); got != tt.want {
			t.Errorf("%s against %s, %s at %d: got %v, want %v", tt.ours, tt.theirs, tt.operation, tt.connections, got, tt.want)
		}
	}
}

func TestParseServer(t *testing.T) {
	for word, want := range map[string]string{
		"qserver/interval=50ms": "queue", "memcached": "memcached", "memcached/each": "memcached", "beanstalkd/each": "beanstalkd",
		"beanstalkd/50ms": "beanstalkd", "redis/everysec": "redis", "jetstream/default": "jetstream", "jetstream/10s": "jetstream", "append": "append",
		"qserver": "", "memcached/some": "", "beanstalkd": "", "redis/often": "", "jetstream/never": "", "append/x": "", "mysql": "",
	} {
		if c, err := parseServer(word); (err == nil) != (want != "") || c.protocol != want && want != "" {
			t.Errorf("%q: got %q (%v), want %q", word, c.protocol, err, want)
		}
	}
}

// TestSections holds that README.md has a place for each section of the report, and that each can be asked for.
func TestSections(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, run := range reportRuns {
		names = append(names, run.section)
		for _, mark := range []string{"begin", "end"} {
			if want := fmt.Sprintf("<!-- %s %s -->\n", mark, run.section); bytes.Count(readme, []byte(want)) != 1 {
				t.Errorf("README.md should have the line %q once", want)
			}
		}
		at := slices.IndexFunc(scenarios(), func(s scenario) bool { return s.name == run.scenario })
		if at < 0 {
			t.Fatalf("%s: no scenario %s", run.section, run.scenario)
		}
		// A flag that cannot be is the last thing that is read: what stands before it is right.
		var out bytes.Buffer
		err := runOne(t.Context(), scenarios()[at], append(slices.Clone(run.args), "-turns", "0"), &out, &out)
		if err == nil || !strings.Contains(err.Error(), "-turns") {
			t.Errorf("%v: got %v, want a word on -turns", run, err)
		}
	}
	if slices.Sort(names); len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("a section twice among %v", names)
	}
	for _, s := range scenarios() {
		if !slices.ContainsFunc(reportRuns, func(r reportRun) bool { return r.scenario == s.name }) {
			t.Errorf("the report has no section of %s", s.name)
		}
	}
}

// TestInstalled has each peer that is installed keep a few messages, so that its flags and its client are right.
func TestInstalled(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a server of each kind: run it without -short")
	}
	for _, word := range []string{"memcached", "memcached/each", "beanstalkd/each", "beanstalkd/50ms", "redis/always", "redis/everysec", "jetstream/default"} {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			program := map[string]string{"memcached": "memcached", "beanstalkd": "beanstalkd", "redis": "redis-server", "jetstream": "nats-server"}
			kind, _, _ := strings.Cut(word, "/")
			ops := "take"
			if word == "memcached" {
				ops = "take,meta"
			}
			if _, err := exec.LookPath(program[kind]); err != nil {
				t.Skipf("%s is not installed (bench/README.md names the packages): %v", kind, err)
			}
			var out bytes.Buffer
			args := []string{"scale", "-servers", word, "-connections", "2", "-turns", "1", "-seconds", "0.04", "-warmup", "0.01", "-ops", ops, "-dir", t.TempDir(), "-idle-check", "0"}
			if err := run(t.Context(), args, &out, &out); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), "get+delete") {
				t.Errorf("got\n%s", out.String())
			}
		})
	}
}
