package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestValues(t *testing.T) {
	for _, tt := range []struct {
		value      any
		text, json string
	}{
		{rate(13806.4), "13,806", "13806.4"},
		{count(1234567), "1,234,567", "1234567"},
		{count(-1234), "-1,234", "-1234"},
		{count(-123), "-123", "-123"},
		{size(0), "0 B", "0"},
		{size(4096), "4 KiB", "4096"},
		{size(-3 << 20), "-3.0 MiB", "-3145728"},
		{size(5 << 29), "2.50 GiB", "2684354560"},
		{span(1500 * time.Nanosecond), "2 µs", "0.0000015"},
		{span(2345 * time.Microsecond), "2.35 ms", "0.002345"},
		{span(90 * time.Second), "1m30s", "90"},
		{ratio(0.954), "0.95", "0.954"},
		{spreadOf([]rate{3, 1000, 2}), "3 (2..1,000)", `{"median":3,"min":2,"max":1000,"turns":[3,1000,2]}`},
		{spreadOf([]ratio{1, 2}), "1.50 (1.00..2.00)", `{"median":1.5,"min":1,"max":2,"turns":[1,2]}`},
		{spreadOf([]rate{7}), "7", `{"median":7,"min":7,"max":7,"turns":[7]}`},
	} {
		if got := cell(tt.value); got != tt.text {
			t.Errorf("text: got %q, want %q", got, tt.text)
		}
		got, err := json.Marshal(tt.value)
		if err != nil {
			t.Fatal(err)
		}
		if s := strings.Replace(string(got), "1.5e-06", "0.0000015", 1); s != tt.json {
			t.Errorf("JSON of %s: got %s, want %s", tt.text, s, tt.json)
		}
	}
}

func TestRatios(t *testing.T) {
	got := spreadOf(ratios([]rate{10, 30, 5}, []rate{10, 10, 10}))
	if got.Median != 1 || got.Min != 0.5 || got.Max != 3 {
		t.Errorf("got %v", got)
	}
}

func TestLatencies(t *testing.T) {
	a, b := newLatencies(), newLatencies()
	for i := 1; i <= 1000; i++ {
		a.add(time.Duration(i) * time.Millisecond)
	}
	b.add(2 * time.Hour)
	b.add(-time.Second)
	a.merge(b)
	got := a.percentiles()
	if len(got) != len(percentileColumns) {
		t.Fatalf("%d values for %d columns", len(got), len(percentileColumns))
	}
	for i, want := range []time.Duration{500 * time.Millisecond, 900 * time.Millisecond, 950 * time.Millisecond, 990 * time.Millisecond, time.Second, time.Minute} {
		d := time.Duration(got[i].(span))
		if (d - want).Abs() > want/100 {
			t.Errorf("%s: got %v, want %v within 1 %%", percentileColumns[i], d, want)
		}
	}
}

func TestMessage(t *testing.T) {
	small, err := newMessage(minBody)
	if err != nil {
		t.Fatal(err)
	}
	large, err := newMessage(200)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*message{small, large, blogMessage()} {
		size := len(m.body)
		for _, n := range []int64{0, 7, 1234567890} {
			body := m.clone().number(n)
			if len(body) != size {
				t.Errorf("%d bytes, want %d", len(body), size)
			}
			if err := m.expect(body, m.flags, n); err != nil {
				t.Error(err)
			}
			if m.expect(body, m.flags, n+1) == nil || m.expect(body, m.flags+1, n) == nil || m.expect(body[1:], m.flags, n) == nil {
				t.Error("another number, other flags or a cut body pass")
			}
			for i := range body {
				body[i] ^= 0x80
				if _, err := m.read(body, m.flags); err == nil {
					t.Errorf("a changed byte %d passes", i)
				}
				body[i] ^= 0x80
			}
		}
	}
	if len(blogBody) != 243 {
		t.Errorf("the blog's payload has %d bytes, want 243", len(blogBody))
	}
	if _, err := newMessage(minBody - 1); err == nil {
		t.Error("a body that cannot hold its number is made")
	}
}

func TestKeys(t *testing.T) {
	for _, tt := range []struct {
		rule keyRule
		want string
	}{{queueKeys, "q"}, {singleKey, "q-3-0000000042"}, {keyForEach, "q-3-0000000042"}} {
		if got := string(newKeys("q", 3, tt.rule).at(42)); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestLedger(t *testing.T) {
	l := newLedger(3)
	sent := []int64{40_000, 30_000, 0}
	for s, n := range sent {
		for sequence := range n {
			if err := l.mark(l.id(s, sequence)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.complete(sent); err != nil {
		t.Error(err)
	}
	if err := l.complete([]int64{40_000, 30_000, 1}); err == nil || !strings.Contains(err.Error(), "1 of 70001") {
		t.Errorf("one that is missing: %v", err)
	}
	if l.complete([]int64{40_000, 29_999, 0}) == nil {
		t.Error("one too many passes")
	}
	for _, id := range []int64{0, -1, chunkBits * maxChunks} {
		if l.mark(id) == nil {
			t.Errorf("message %d passes", id)
		}
	}
}

func TestClosedLoop(t *testing.T) {
	for _, tt := range []struct {
		name         string
		warm, window time.Duration
		each         int64 // operations until a worker has nothing left to do, of 1 ms each
		want         float64
	}{
		{"ends with its window", time.Second, time.Second, 1 << 40, 4000},
		{"ends with its work", time.Second, time.Hour, 1500, 4000},
		{"too short", time.Second, time.Second, 1010, 0},
		{"over before the warm-up", time.Second, time.Second, 10, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, err := closedLoop(t.Context(), 4, tt.warm, tt.window, func(i int, done *tally, stop *atomic.Bool) error {
					time.Sleep(time.Duration(i+1) * time.Microsecond) // no two at the same moment
					for n := int64(0); n < tt.each && !stop.Load(); n++ {
						time.Sleep(time.Millisecond)
						done.n.Add(1)
					}
					return nil
				})
				if (err != nil) != (tt.want == 0) {
					t.Fatalf("error %v", err)
				}
				if diff := got - tt.want; diff < -20 || diff > 20 {
					t.Errorf("got %.0f a second, want %.0f", got, tt.want)
				}
			})
		})
	}
}

func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := schedule{start: time.Now(), distance: time.Millisecond, measured: 10}
		l := newLatencies()
		time.Sleep(25 * time.Millisecond)
		s.record(l, 9)  // of the warm-up
		s.record(l, 20) // 5 ms late
		if got := time.Duration(l.h.Max()); l.h.TotalCount() != 1 || (got-5*time.Millisecond).Abs() > 50*time.Microsecond {
			t.Errorf("got %d latencies, the largest %v", l.h.TotalCount(), got)
		}
	})
}

func TestParseTarget(t *testing.T) {
	for _, tt := range []struct {
		value, name, addr, admin string
		keys                     keyRule
		ok                       bool
	}{
		{"kt=queue@127.0.0.1:11311", "kt", "127.0.0.1:11311", "", queueKeys, true},
		{"q=queue@[::1]:11211+[::1]:1978", "q", "[::1]:11211", "[::1]:1978", queueKeys, true},
		{"m=memcached@host:1", "m", "host:1", "", singleKey, true},
		{"m=smtp@host:1", "", "", "", 0, false},
		{"m=memcached", "", "", "", 0, false},
		{"=memcached@host:1", "", "", "", 0, false},
		{"host:1", "", "", "", 0, false},
	} {
		c, err := parseTarget(tt.value)
		if (err == nil) != tt.ok {
			t.Errorf("%q: error %v", tt.value, err)
		} else if tt.ok && (c.name != tt.name || c.addr != tt.addr || c.admin != tt.admin || c.keys != tt.keys) {
			t.Errorf("%q: got %+v", tt.value, c)
		}
	}
}

func TestReplaceIn(t *testing.T) {
	r := &report{Scenario: "blog", Section: "blog", Command: "go run ./bench blog", Notes: []string{"a note"}}
	r.table("Rates", "server", "a second").row("qserver", rate(1000))
	file := filepath.Join(t.TempDir(), "README.md")
	const before = "above\n<!-- begin blog -->\nold\n<!-- end blog -->\nbelow\n"
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time changes nothing
		if err := r.replaceIn(file); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got := string(b)
		want := "above\n<!-- begin blog -->\n" + string(r.markdown()) + "<!-- end blog -->\nbelow\n"
		if got != want || !strings.Contains(got, "| qserver | 1,000 |\n") {
			t.Errorf("got\n%s", got)
		}
	}
	r.Section = "flow"
	if r.replaceIn(file) == nil {
		t.Error("a file without the section passes")
	}
}

func TestCommandLine(t *testing.T) {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	e := &env{dir: t.TempDir()}
	s := blogScenario()
	e.register(fs, s)
	if err := fs.Parse([]string{"-json", "-idle-check", "0", "-servers", "", "-turns", "4", "-server-flags", "-memory 1GiB"}); err != nil {
		t.Fatal(err)
	}
	got, want := newReport(s, fs, e).Command, "go run ./bench blog -server-flags '-memory 1GiB' -servers '' -turns 4"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestDiskUsage(t *testing.T) {
	dir := t.TempDir()
	for name, n := range map[string]int{"ulog/1.ulog": 100_000, "tree.db": 300_000} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	u, err := diskUsage(dir)
	if err != nil {
		t.Fatal(err)
	}
	if u.total() != u.Log+u.Rest || u.Log > 1<<18 || u.total() > 1<<20 {
		t.Errorf("got %+v", u)
	}
}
