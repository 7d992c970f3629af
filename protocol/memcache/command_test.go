package memcache_test

import (
	"bytes"
	"testing"

	"qserver/protocol/memcache"
)

// TestParseAllocates nothing: the set path has one allocation, its body.
func TestParseAllocates(t *testing.T) {
	var cmd memcache.Command
	for _, tt := range []struct {
		name  string
		line  string
		parse func() bool
	}{
		{"set", "set queue 5 60 200 noreply", cmd.ParseStore},
		{"set with options", "set queue/delay=5/pri=3/dedup=K 5 60 200", cmd.ParseStore},
		{"SET", "SET queue 5 60 200", cmd.ParseStore},
		{"cas", "cas queue 5 60 200 9007199254740991 noreply", cmd.ParseStore},
		{"delete", "delete queue/id=12345 0 noreply", cmd.ParseDelete},
		{"touch", "touch queue/n=tag 60", cmd.ParseTouch},
		{"incr", "incr queue 1", cmd.ParseDelta},
	} {
		t.Run(tt.name, func(t *testing.T) {
			line := []byte(tt.line)
			refused := false
			n := testing.AllocsPerRun(100, func() {
				cmd.Parse(line)
				refused = tt.parse()
			})
			if refused || n != 0 {
				t.Errorf("%s: got %v allocations, refused %v; want none, accepted", tt.line, n, refused)
			}
		})
	}
}

// FuzzCommand checks that no line makes the parsers panic, that a length they accept is in range, and that blanks between words
// change nothing.
func FuzzCommand(f *testing.F) {
	for _, s := range []string{
		"set q 0 0 5", "set q 0 0 5 noreply", "cas q 1 2 3 4 noreply", "get a b c", "delete q 0 noreply", "touch q 60",
		"incr q 18446744073709551616", "SET q/delay=5 4294967296 -1 2147483646", "  gat  10  q  ", "GET / HTTP/1.1", "Host: a", "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if len(line) > memcache.MaxLine || bytes.IndexByte(line, '\n') >= 0 {
			return
		}
		var cmd, wide memcache.Command
		parsers := []struct{ narrow, wide func() bool }{
			{cmd.ParseStore, wide.ParseStore}, {cmd.ParseDelete, wide.ParseDelete}, {cmd.ParseTouch, wide.ParseTouch}, {cmd.ParseDelta, wide.ParseDelta},
		}
		spread := append(bytes.ReplaceAll(line, []byte(" "), []byte("  ")), ' ')
		for _, p := range parsers {
			cmd.Parse(line)
			wide.Parse(spread)
			refused := p.narrow()
			if got := p.wide(); got != refused || wide.Known() != cmd.Known() || wide.Noreply() != cmd.Noreply() {
				t.Fatalf("%q: blanks change the meaning", line)
			}
			if !refused && (cmd.Length() < 0 || cmd.Length() > 2147483645) {
				t.Fatalf("%q: length %d", line, cmd.Length())
			}
		}
	})
}
