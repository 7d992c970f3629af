package memcache_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestEveryVerbAndOption tries each option on each verb: it is taken where the table of options says so, and refused by the one
// line for that elsewhere, with the body swallowed and nothing reserved.
func TestEveryVerbAndOption(t *testing.T) {
	options := strings.Fields("t=1 open close abort peek close/open lease=5 n=tag batch=2 delay=5 pri=3 dedup=K id=7 release=0 backoff=5 bury kick bogus bogus=1")
	get := strings.Fields("t=1 open close abort peek close/open lease=5 n=tag batch=2")
	for _, tt := range []struct {
		verb, line string // %s is the key
		takes      []string
	}{
		{"set", "set %s 0 0 7\r\nversion\r\n", []string{"delay=5", "pri=3", "dedup=K"}},
		{"add", "add %s 0 0 7\r\nversion\r\n", []string{"delay=5", "pri=3", "dedup=K"}},
		{"replace", "replace %s 0 0 7\r\nversion\r\n", nil},
		{"cas", "cas %s 0 0 7 5\r\nversion\r\n", nil},
		{"append", "append %s 0 0 7\r\nversion\r\n", nil},
		{"prepend", "prepend %s 0 0 7\r\nversion\r\n", nil},
		{"get", "get none %s\r\n", get},
		{"gets", "gets %s\r\n", get},
		{"gat", "gat 60 %s\r\n", get},
		{"gats", "gats 60 %s none\r\n", get},
		{"delete", "delete %s\r\n", []string{"id=7", "n=tag", "release=0", "backoff=5"}},
		{"touch", "touch %s 60\r\n", []string{"id=7", "n=tag"}},
		{"incr", "incr %s 1\r\n", nil},
		{"decr", "decr %s 1\r\n", nil},
	} {
		t.Run(tt.verb, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *server) {
				const refused = "CLIENT_ERROR unknown queue option (see -key-options)"
				for i, option := range options {
					c := s.dial()
					c.do("set q 0 0 1\r\nx\r\n", "STORED\r\n")
					c.send(fmt.Sprintf(tt.line, "q/"+option))
					got, want := c.line(), slices.Contains(tt.takes, option)
					if (got != refused) != want || strings.HasPrefix(got, "ERROR") {
						t.Errorf("%s: got %q, want taken %v", option, got, want)
					}
					if !want {
						c.wantOpen()
						if q := s.queue("q"); q.Reserved != 0 {
							t.Errorf("%s: refused, and %d messages reserved", option, q.Reserved)
						}
						c.do(strings.Replace(fmt.Sprintf(tt.line, "q/"+option), "\r\n", " noreply\r\n", 1), noreplyAnswer(tt.verb, refused))
						c.wantOpen()
					}
					c.nc.Close()
					if _, err := s.store.PurgeAll(); err != nil {
						t.Fatal(i, err)
					}
				}
			})
		})
	}
}

// noreplyAnswer is what a refused command with noreply gets: nothing, but from a get, to which the word is a key.
func noreplyAnswer(verb, refused string) string {
	if strings.HasPrefix(verb, "g") {
		return refused + "\r\n"
	}
	return ""
}
