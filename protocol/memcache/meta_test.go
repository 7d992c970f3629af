package memcache_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"qserver/protocol/memcache"
)

// TestMetaParseAllocates nothing.
func TestMetaParseAllocates(t *testing.T) {
	for _, tt := range []struct{ verb, line string }{
		{"mg", "queue v c f t h l s k Oopaque T60 q Lt=500"},
		{"ms", "queue 200 T60 F5 c b k O1 MS Lpri=3"},
		{"md", "queue C12345 I T5 q"},
		{"ma", "queue/kick D100 v"},
	} {
		t.Run(tt.verb, func(t *testing.T) {
			var m memcache.MetaCommand
			line, refused := []byte(tt.line), false
			n := testing.AllocsPerRun(100, func() { refused = m.Parse(tt.verb, line) })
			if refused || n != 0 {
				t.Errorf("%s %s: got %v allocations, refused %v; want none, accepted", tt.verb, tt.line, n, refused)
			}
		})
	}
}

// FuzzMeta reads bytes as a script of meta commands, each followed by mn: the replies must be in step.
func FuzzMeta(f *testing.F) {
	for _, s := range []string{
		"\x00\x01q\x03abc\x05k O1 ", "\x01\x01q\x08v c k O1 \x02\x01q\x08v q O1 T5", "\x03\x04q/id\x06C5 I T2", "\x04\x06q/kick\x04D1 v", "\x05\x01q\x00",
		"\x01\x04Zm9v\x07b k v O\x01\x00\x04Zm9v\x02hi\x05b k c",
	} {
		f.Add([]byte(s), byte(3))
	}
	s := fuzzServer(f)
	f.Fuzz(func(t *testing.T, data []byte, piece byte) {
		if len(data) > 1<<12 {
			return
		}
		before := s.Stats().Panics
		stream, replies := metaScript(data)
		got := exchange(t, s, append(stream, "\r\nquit\r\n"...), int(piece)+1)
		if form := regexp.MustCompile("(?s)^(?:" + replies + ")ERROR\r\n$"); !form.MatchString(got) {
			t.Fatalf("sent %q\ngot  %q\nwant %s", stream, got, replies)
		}
		if n := s.Stats().Panics - before; n != 0 {
			t.Fatalf("%d panics for %q", n, data)
		}
	})
}

// metaScript turns fuzzed bytes into meta commands and a pattern that their replies match.
func metaScript(data []byte) (stream []byte, replies string) {
	var b bytes.Buffer
	var want strings.Builder
	take := func(n int) string {
		n = min(n, len(data))
		s := string(data[:n])
		data = data[n:]
		return s
	}
	next := func() int {
		if len(data) == 0 {
			return 0
		}
		return int(take(1)[0])
	}
	words := func(n int) string {
		return strings.Map(func(r rune) rune {
			if r == '\n' || r == '=' { // no second line, no wait
				return 'n'
			}
			return r
		}, strings.ToValidUTF8(take(n), "?"))
	}
	for len(data) > 0 && b.Len() < 1<<16 {
		op := next() % 6
		key := "k" + noBlanks(words(next()%32))
		switch op {
		case 0:
			body := take(next())
			fmt.Fprintf(&b, "ms %s %d %s\r\n%s\r\n", key, len(body), words(next()%32), body)
			want.WriteString(`(?:(?:HD|NS|EX|NF|CLIENT_ERROR)[^\n]*\r\n)?`)
		case 1, 2:
			fmt.Fprintf(&b, "mg %s %s%s\r\n", key, []string{"", "v "}[op-1], words(next()%32))
			want.WriteString(`(?:(?:HD|EN|CLIENT_ERROR)[^\n]*\r\n|VA [^\n]*\r\n.*?\r\n)?`)
		case 3:
			fmt.Fprintf(&b, "md %s %s\r\n", key, words(next()%32))
			want.WriteString(`(?:(?:HD|EX|NF|CLIENT_ERROR)[^\n]*\r\n)?`)
		case 4:
			fmt.Fprintf(&b, "ma %s %s\r\n", key, words(next()%32))
			want.WriteString(`(?:NF|CLIENT_ERROR)[^\n]*\r\n`)
		case 5:
			fmt.Fprintf(&b, "me %s %s\r\n", key, words(next()%8))
			want.WriteString(`(?:ME|EN|CLIENT_ERROR)[^\n]*\r\n`)
		}
		b.WriteString("mn\r\n")
		want.WriteString(`MN\r\n`)
	}
	return b.Bytes(), want.String()
}
