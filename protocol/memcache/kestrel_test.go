package memcache_test

import (
	"regexp"
	"strings"
	"testing"
)

// Kestrel's Ruby client reads its queues' numbers from STATS, sent with a bare line feed. Memcached's clients, in lower case, get
// none but memcached's.
func TestKestrelStats(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		c := s.dial()
		c.do("set work 0 0 5\r\nhello\r\n", "STORED\r\n")
		c.do("set work_done 0 0 1\r\nx\r\nget work_done/open/t=10\r\n", "STORED\r\nVALUE work_done/open/t=10 0 1\r\nx\r\nEND\r\n")
		sleep(3)
		c.send("STATS\n")
		got := map[string]string{}
		form := regexp.MustCompile(`^STAT queue_(\S+?)_(items|bytes|total_items|logsize|expired_items|mem_items|mem_bytes|age|discarded|waiters|open_transactions) (\d+)$`)
		for line := c.line(); line != "END"; line = c.line() {
			if m := form.FindStringSubmatch(line); m != nil {
				got[m[1]+" "+m[2]] = m[3]
			} else if line == "" {
				t.Fatal("no END")
			}
		}
		for name, want := range map[string]string{
			"work items": "1", "work bytes": "5", "work total_items": "1", "work expired_items": "0", "work discarded": "0", "work waiters": "0",
			"work age": "3000", "work open_transactions": "0", "work_done items": "1", "work_done open_transactions": "1",
		} {
			if got[name] != want {
				t.Errorf("%s: got %q, want %q", name, got[name], want)
			}
		}
		c.send("stats\r\n")
		if all := c.take(1 << 20); strings.Contains(all, "queue_") || !strings.HasSuffix(all, "END\r\n") {
			t.Errorf("got %q, want no queues", all)
		}
		if age := c.stats("queues")["queue_work_age"]; age != "3" {
			t.Errorf("stats queues: got age %s, want 3: seconds, as in memcached's statistics", age)
		}
	})
}
