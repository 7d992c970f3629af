package memcache_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"qserver/protocol/memcache"
	"qserver/storage"
)

// TestRefusedBodiesAreNeverRun sends sets that are refused for a random reason and whose body is a command with a visible effect.
// Nothing of a body may run, nothing is answered but the refusal, and the stream stays in step.
func TestRefusedBodiesAreNeverRun(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 100
	}
	seed := newSeed(t)
	rng := rand.New(rand.NewPCG(seed, 2))
	const limit = 4096
	for _, kind := range []transport{pipes, tcp} {
		run := func(t *testing.T, s *server) {
			c := s.dial()
			c.do("set victim 0 0 5\r\nhello\r\n", "STORED\r\n")
			var stream, want strings.Builder
			for range rounds {
				in, answer := refusedSet(rng, limit)
				stream.WriteString(in)
				want.WriteString(answer)
				if rng.IntN(3) == 0 {
					stream.WriteString("version\r\n")
					want.WriteString(version)
				}
			}
			c.sendSplit(stream.String(), func() int { return 1 + rng.IntN(3000) })
			c.want(want.String())
			c.wantOpen()
			if got := s.queue("victim"); got.Ready != 1 || got.TotalItems != 1 {
				t.Errorf("victim: got %+v, want its one message", got)
			}
			if _, there := s.store.Queue([]byte("pwned")); there {
				t.Error("a refused body was run as a command")
			}
		}
		configure := func(s *memcache.Server, _ *storage.Options) { s.MaxItemSize, s.AllowFlushAll = limit, true }
		if kind == pipes {
			bubble(t, configure, run)
		} else {
			run(t, start(t, tcp, configure))
		}
	}
}

// refusedSet makes one, and the answer that it must have.
func refusedSet(rng *rand.Rand, limit int) (in, answer string) {
	pick := func(s ...string) string { return s[rng.IntN(len(s))] }
	effect := pick("flush_all\r\n", "set pwned 0 0 1\r\nx\r\n", "delete victim\r\n", "get victim\r\n", "quit\r\n", "version\r\n")
	body := pick("", "\r\n", "x\r\n", "\n") + strings.Repeat(effect, 1+rng.IntN(20))
	verb, key, flags, exptime, tail := pick("set", "add", "replace", "SET"), "q", "0", "0", ""
	const option = "CLIENT_ERROR unknown queue option (see -key-options)\r\n"
	switch answer = format; rng.IntN(11) {
	case 0:
		key = strings.Repeat("k", 251+rng.IntN(2000))
	case 1:
		key = pick("a\x00b", "a\tb", "a\x7f", "\x01", "/t=5")
	case 2:
		key, answer = pick("q/bogus", "q/t=5", "q/delay=x", "q/", "q/pri=4294967296", "q/id=3"), option
	case 3:
		flags = pick("-1", "4294967296", "x", "1.5", "+1")
	case 4:
		exptime = pick("x", "1.5", "9223372036854775808", "+1", "--1")
	case 5:
		tail = pick(" norepl", " NOREPLY", " 0")
	case 6:
		tail, answer = pick(" noreply x", " a b", " noreply noreply noreply x"), "ERROR\r\n"
	case 7:
		verb, tail = "cas", pick("", " x", " -1", " 18446744073709551616")
	case 8:
		verb, answer = pick("append", "prepend"), "NOT_STORED\r\n"
	case 9:
		body, answer = strings.Repeat(effect, 1+limit/len(effect)), large
	case 10:
		verb, key, answer = "cas", "q/delay=5", option
		tail = " 1"
	}
	if rng.IntN(3) == 0 && !strings.Contains(tail, "noreply") {
		tail, answer = tail+" noreply", ""
		if verb == "cas" && tail == " noreply" {
			tail = " x noreply"
		}
	}
	return fmt.Sprintf("%s %s %s %s %d%s\r\n%s\r\n", verb, key, flags, exptime, len(body), tail, body), answer
}
