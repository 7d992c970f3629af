package memcache_test

import (
	"testing"
	"testing/synctest"

	"qserver/protocol/memcache"
	"qserver/storage"
)

// CLI28: a client or proxy that is given master and slave and spreads keys over them, or fails over from one to the other. The slave
// refuses whatever would change anything, with an error that is no miss and no "not stored", and keeps the connection; so nothing
// is accepted by both.
func TestField_CLI28_SlaveRefuses(t *testing.T) {
	const refused = "SERVER_ERROR read-only: this is a slave of 10.0.0.1:1978\r\n"
	configure := func(s *memcache.Server, o *storage.Options) { o.Master, s.AllowFlushAll = "10.0.0.1:1978", true }
	bubble(t, configure, func(t *testing.T, s *server) {
		c := s.dial()
		for _, tt := range []struct{ in, want string }{
			{"set q 0 0 1\r\nx\r\n", refused},
			{"set q/delay=5 0 0 1\r\nx\r\n", refused},
			{"set q 0 -1 1\r\nx\r\n", refused},
			{"add q 0 0 1\r\nx\r\n", refused},
			{"replace q 0 0 1\r\nx\r\n", refused},
			{"cas q 0 0 1 7\r\nx\r\n", refused},
			{"get q\r\n", refused},
			{"gets q/lease=60\r\n", refused},
			{"get a b c\r\n", refused},
			{"get q/t=60000\r\n", refused}, // at once: it must not wait for a message that it may not give out
			{"get q/open\r\n", refused},
			{"get q/close/open\r\n", refused},
			{"gat 60 q\r\n", refused},
			{"delete q\r\n", refused},
			{"delete q/id=7\r\n", refused},
			{"delete q/id=7/release=5\r\n", refused},
			{"touch q 60\r\n", refused},
			{"touch q/id=7 60\r\n", refused},
			{"flush_all\r\n", refused},
			{"FLUSH q\r\n", refused},
			{"ms q 1\r\nx\r\n", refused},
			{"mg q v\r\n", refused},
			{"md q\r\n", refused},
			{"set q 0 0 1 noreply\r\nx\r\n", ""},
			{"get q/peek\r\n", "END\r\n"},
			{"version\r\n", version},
			{"mn\r\n", "MN\r\n"},
		} {
			c.send(tt.in)
			synctest.Wait()
			if got := c.take(1000); got != tt.want {
				t.Errorf("%q: got %q, want %q", tt.in, got, tt.want)
			}
		}
		c.wantOpen()
		if st := s.store.Stats(); st.TotalItems != 0 || st.Waiters != 0 {
			t.Errorf("got %d messages and %d waiters, want none", st.TotalItems, st.Waiters)
		}
		if got := c.stats("")["curr_items"]; got != "0" {
			t.Errorf("stats: got %s messages, want 0", got)
		}
	})
}
