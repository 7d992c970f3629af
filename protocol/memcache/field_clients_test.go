package memcache_test

import (
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"

	"qserver/internal/faultfs"
	"qserver/protocol/memcache"
	"qserver/storage"
)

func TestField_CLI01_Gomemcache(t *testing.T) {
	s := start(t, tcp, nil)
	c := gomemcache.New(s.ln.Addr().String())
	defer c.Close()
	if err := c.Set(&gomemcache.Item{Key: "q", Value: []byte("x"), Flags: 7}); err != nil {
		t.Fatal(err)
	}
	item, err := c.Get("q")
	if err != nil || string(item.Value) != "x" || item.Flags != 7 || item.CasID == 0 {
		t.Fatalf("got %+v, %v", item, err)
	}
	if err := c.Delete("q"); err != nil {
		t.Fatal(err)
	}
	if err := c.Ping(); err != nil {
		t.Fatal(err)
	}
	c.Set(&gomemcache.Item{Key: "q", Value: []byte("y")})
	item, err = c.Get("q/t=100/lease=60")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Touch("q/id="+strconv.FormatUint(item.CasID, 10), 60); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete("q/id=" + strconv.FormatUint(item.CasID, 10) + "/release=0"); err != nil {
		t.Fatal(err)
	}
	many, err := c.GetMulti([]string{"q/n=1", "q/n=2"})
	if err != nil || len(many) != 1 || string(many["q/n=1"].Value) != "y" {
		t.Fatalf("got %v, %v", many, err)
	}
}

// CLI10: what a pool's surplus connections held comes back: nothing is lost, and with one client a worker nothing comes twice.
func TestField_CLI10_GomemcachePool(t *testing.T) {
	const messages, workers = 200, 8
	for _, shared := range []bool{true, false} {
		s := start(t, tcp, func(_ *memcache.Server, o *storage.Options) { o.Sync = storage.SyncNever })
		addr := s.ln.Addr().String()
		one := gomemcache.New(addr)
		t.Cleanup(func() { one.Close() })
		for i := range messages {
			if err := one.Set(&gomemcache.Item{Key: "q", Value: []byte(strconv.Itoa(i))}); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		seen := make(map[string]int)
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				c := one
				if !shared {
					c = gomemcache.New(addr)
					defer c.Close()
				}
				for s.queue("q").Items > 0 {
					item, err := c.Get("q")
					if err != nil {
						continue
					}
					mu.Lock()
					seen[string(item.Value)]++
					mu.Unlock()
					if err := c.Delete("q"); err != nil && !shared {
						t.Errorf("delete: %v", err)
					}
				}
			})
		}
		wg.Wait()
		doubles := 0
		for _, n := range seen {
			doubles += n - 1
		}
		returned := int(s.queue("q").Returned) // by the ends of connections: nothing here releases
		if len(seen) != messages || doubles > returned || !shared && returned != 0 {
			t.Errorf("shared %v: got %d of %d messages, %d doubles, %d returned", shared, len(seen), messages, doubles, returned)
		}
	}
}

func TestField_CLI03_CLI05_VersionIsNumeric(t *testing.T) {
	for _, v := range []string{"", "1.0.0-rc1", "3.1.4+dirty", "devel"} {
		bubble(t, func(s *memcache.Server, _ *storage.Options) { s.Version = v }, func(t *testing.T, s *server) {
			c := s.dial()
			c.send("version\r\n")
			if got := c.line(); !regexp.MustCompile(`^VERSION [1-9]\d*\.\d+\.\d+$`).MatchString(got) {
				t.Errorf("%q: got %q", v, got)
			}
		})
	}
}

// CLI03: version is the first thing that many clients say, and one that gets no answer takes the server for dead. It is answered
// in every state in which a client can connect.
func TestField_CLI03_VersionInEveryState(t *testing.T) {
	fs := faultfs.New()
	bubble(t, func(_ *memcache.Server, o *storage.Options) { o.FS, o.SegmentBytes = fs, 1<<20 }, func(t *testing.T, s *server) {
		s.dial().wantOpen()
		p := s.dial()
		p.wantOpen()
		fs.Inject(func(op faultfs.Op) error {
			if op.Kind == faultfs.Allocate || op.Kind == faultfs.Rename {
				return syscall.ENOSPC // the disk is full
			}
			return nil
		})
		s.dial().wantOpen()
		s.store.EndWaits() // gets don't wait any more: the process is about to end
		s.dial().wantOpen()
		fs.Inject(func(op faultfs.Op) error {
			if op.Kind == faultfs.Sync {
				return syscall.EIO // the log fails, and the store with it
			}
			return nil
		})
		p.send("set q 0 0 1\r\nx\r\n")
		p.line()
		p.wantEnd()
		s.dial().wantOpen()
		s.broken = true
	})
}

// stats asks for a list and returns its names and values.
func (c *client) stats(what string) map[string]string {
	c.t.Helper()
	c.send("stats " + what + "\r\n")
	list := make(map[string]string)
	for {
		line := c.line()
		if line == "END" {
			return list
		}
		words := strings.Split(line, " ")
		if len(words) != 3 || words[0] != "STAT" || words[1] == "" || words[2] == "" {
			c.t.Fatalf("stats %s: line %q", what, line)
		}
		list[words[1]] = words[2]
	}
}

func TestField_CLI06_Stats(t *testing.T) {
	extra := func(s *memcache.Server, _ *storage.Options) {
		s.ExtraStats = func(emit func(name, value string)) { emit("role", "master") }
	}
	bubble(t, extra, func(t *testing.T, s *server) {
		c := s.dial()
		long := repeat("n", 250)
		for _, queues := range [][]string{nil, {"a", "a:b", long}} {
			for _, q := range queues {
				c.do("set "+q+" 0 0 1\r\nx\r\n", "STORED\r\n")
			}
			list := c.stats("")
			for name := range strings.FieldsSeq("pid uptime time curr_items total_items cmd_get cmd_set get_hits get_misses curr_connections bytes total_connections delete_hits delete_misses") {
				if _, err := strconv.ParseUint(list[name], 10, 64); err != nil {
					t.Errorf("stats %s: got %q, want a number", name, list[name])
				}
			}
			if list["version"] != "1.2.3" || list["role"] != "master" {
				t.Errorf("got version %q, role %q", list["version"], list["role"])
			}
			for _, what := range []string{"items", "slabs", "settings", "queues", "foo"} {
				c.stats(what)
			}
			c.do("stats reset\r\n", "RESET\r\n")
		}
		list := c.stats("queues")
		for _, q := range []string{"a", "a:b", long} {
			if list["queue_"+q+"_items"] != "1" || list["queue_"+q+"_total_items"] != "1" || list["queue_"+q+"_waiters"] != "0" {
				t.Errorf("%s: got %v", q, list)
			}
		}
		c.do("get a none none\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n")
		list = c.stats("")
		if list["get_hits"] != "1" || list["get_misses"] != "2" || list["cmd_get"] != "3" {
			t.Errorf("got hits %s, misses %s, gets %s; want 1, 2, 3", list["get_hits"], list["get_misses"], list["cmd_get"])
		}
	})
}

func TestField_CLI08_LateMessageOfAClientThatGaveUp(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		a, b := s.dial(), s.dial()
		a.send("gets q/t=10000/lease=60\r\n")
		sleep(5)
		b.do("set q 0 0 1\r\nM\r\n", "STORED\r\n")
		a.line() // the client has given up and drops it
		sleep(61)
		b.do("get q\r\n", "VALUE q 0 1\r\nM\r\nEND\r\n")
		if got := s.store.Stats().LeasesLapsed; got != 1 {
			t.Errorf("got %d lapsed leases, want 1", got)
		}
	})
}

func TestField_CLI11_AckFromAnotherConnection(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		a, b := s.dial(), s.dial()
		a.do("set q 0 0 1\r\nA\r\nset q 0 0 1\r\nB\r\n", "STORED\r\nSTORED\r\n")
		a.do("get q\r\n", "VALUE q 0 1\r\nA\r\nEND\r\n")
		b.do("get q\r\n", "VALUE q 0 1\r\nB\r\nEND\r\n")
		b.do("delete q\r\n", "DELETED\r\n")
		a.close()
		b.send("gets q\r\n")
		words := strings.Fields(b.line())
		b.want("A\r\nEND\r\n")
		c := s.dial()
		c.do("delete q/id="+words[4]+"\r\n", "DELETED\r\n")
		c.do("delete q/id="+words[4]+"\r\n", "NOT_FOUND\r\n")
	})
}

func TestField_CLI13_HeartbeatDuringAWait(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		a := s.dial()
		a.send("get q/t=60000\r\n")
		sleep(5)
		a.send("version\r\n")
		a.wantNothing()
		sleep(55)
		a.want("END\r\n" + version)
		a.send("get q/t=60000\r\n")
		sleep(5)
		a.send("version\r\n")
		a.close()
		if got := s.store.Stats().Waiters; got != 0 {
			t.Errorf("got %d waiters after the close, want none", got)
		}
		b := s.dial()
		b.do("set q 0 0 1\r\nx\r\nget q\r\n", "STORED\r\nVALUE q 0 1\r\nx\r\nEND\r\n")
	})
}

func TestField_CLI15_BurstOfSetsUnread(t *testing.T) {
	s := start(t, tcp, func(_ *memcache.Server, o *storage.Options) { o.Sync = storage.SyncNever })
	c := s.dial()
	const n = 10_000
	c.send(repeat("set q 0 0 5\r\nhello\r\n", n) + "get q\r\n")
	c.want(repeat("STORED\r\n", n) + "VALUE q 0 5\r\nhello\r\nEND\r\n")
	if got := s.queue("q").Items; got != n {
		t.Errorf("got %d messages, want %d", got, n)
	}
}

func TestField_CLI18_Names(t *testing.T) {
	names := []string{"ns:q", "ns:q:md5:d41d8c", "a+b", "q%20", "q\xc3\xa9", "_", "..", "a#b", "\xff"}
	s := start(t, tcp, nil)
	c := s.dial()
	for i, q := range names {
		c.do(fmt.Sprintf("set %s 0 0 1\r\n%d\r\n", q, i), "STORED\r\n")
	}
	for i, q := range names {
		c.do("get "+q+"\r\n", fmt.Sprintf("VALUE %s 0 1\r\n%d\r\nEND\r\n", q, i))
		c.do("delete "+q+"\r\n", "DELETED\r\n")
	}
}

func TestField_CLI21_EmptyAndOddBodies(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		c := s.dial()
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		for _, body := range []string{"", "\r\n", "END\r\n", "VALUE q 0 1\r\nx\r\nEND\r\n", string(all)} {
			c.do(fmt.Sprintf("set q 3 0 %d\r\n%s\r\n", len(body), body), "STORED\r\n")
			c.do("get q\r\n", fmt.Sprintf("VALUE q 3 %d\r\n%s\r\nEND\r\n", len(body), body))
			c.do("delete q\r\n", "DELETED\r\n")
		}
	})
}

func TestField_CLI23_OneGetForSeveralQueues(t *testing.T) {
	bubble(t, func(s *memcache.Server, _ *storage.Options) { s.Wait = 5 * time.Second }, func(t *testing.T, s *server) {
		c, p := s.dial(), s.dial()
		p.do("set q2 0 0 1\r\nM\r\n", "STORED\r\n")
		begin := time.Now()
		c.do("get q1 q2\r\n", "VALUE q2 0 1\r\nM\r\nEND\r\n")
		if took := time.Since(begin); took != 0 {
			t.Errorf("took %v, want no wait", took)
		}
		c.send("get q1 q2\r\n")
		sleep(4.9)
		c.wantNothing()
		sleep(0.2)
		c.want("END\r\n")
		c.send("get q1 q2\r\n")
		sleep(1)
		p.do("set q2 0 0 1\r\nL\r\n", "STORED\r\n")
		c.want("VALUE q2 0 1\r\nL\r\nEND\r\n")
	})
}

func TestField_CLI25_FlushAll(t *testing.T) {
	log := &logged{}
	bubble(t, func(s *memcache.Server, _ *storage.Options) { s.Log = slog.New(log) }, func(t *testing.T, s *server) {
		c := s.dial()
		for _, q := range []string{"a", "b", "c"} {
			c.do("set "+q+" 0 0 1\r\nx\r\n", "STORED\r\n")
		}
		const refused = "CLIENT_ERROR flush_all not allowed\r\n"
		c.do("flush_all\r\nflush_all 0 noreply\r\nflush_all 3600\r\nversion\r\n", refused+refused+version)
		if got := s.store.Stats().Items; got != 3 {
			t.Errorf("got %d messages, want 3", got)
		}
		if got := log.count("flush_all refused"); got != 1 {
			t.Errorf("got %d log lines, want 1", got)
		}
	})
}

func TestField_CLI26_BothSidesWrite(t *testing.T) {
	s := start(t, tcp, func(_ *memcache.Server, o *storage.Options) { o.Sync = storage.SyncNever })
	c := s.dial()
	const queues = 500
	body := repeat("x", 50_000)
	var gets strings.Builder
	for i := range queues {
		c.send(fmt.Sprintf("set q%d 0 0 %d noreply\r\n%s\r\n", i, len(body), body))
		fmt.Fprintf(&gets, "get q%d\r\n", i)
	}
	c.wantOpen()
	begin := time.Now()
	c.send(gets.String())
	for i := range queues {
		c.want(fmt.Sprintf("VALUE q%d 0 %d\r\n%s\r\nEND\r\n", i, len(body), body))
	}
	t.Logf("%d bodies of 50 kB in %v", queues, time.Since(begin))
}

func TestField_CLI30_CacheVerbs(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		c := s.dial()
		c.do("add q 0 0 1\r\nx\r\n", "STORED\r\n")
		c.do("replace q 0 0 1\r\nx\r\n", "STORED\r\n")
		c.do("append q 0 0 1\r\nx\r\n", "NOT_STORED\r\n")
		c.do("prepend q 0 0 1\r\nx\r\n", "NOT_STORED\r\n")
		c.do("cas q 0 0 1 5\r\nx\r\n", "NOT_FOUND\r\n")
		c.do("incr q 1\r\n", "NOT_FOUND\r\n")
		c.do("touch q 60\r\n", "NOT_FOUND\r\n")
		c.do("verbosity 1\r\n", "OK\r\n")
		if got := s.queue("q").Items; got != 2 {
			t.Errorf("got %d messages, want 2", got)
		}
		c.do("gat 60 q\r\n", "VALUE q 0 1\r\nx\r\nEND\r\n")
		c.do("touch q 60\r\n", "TOUCHED\r\n")
		c.do("get q\r\n", "VALUE q 0 1\r\nx\r\nEND\r\n")
	})
}
