package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// CLI28: clients and proxies that are given master and slave spread queues over them, and fail over from one to the other. Half of
// their enqueues are refused, visibly; nothing is accepted by both, and what was accepted is there once.
func TestField_CLI28_MasterAndSlaveInOnePool(t *testing.T) {
	t.Parallel()
	admin := freeAddress(t)
	master := startNode(t, "-sid", "1", "-admin", admin)
	slave := startNode(t, "-sid", "2", "-mhost", "127.0.0.1", "-mport", portOf(admin))
	const queues = 20
	stored := 0
	count := func(t *testing.T, set func(queue string) string) (refused int) {
		for i := range 2 * queues {
			switch got := set(fmt.Sprintf("tag%d", i%queues)); {
			case got == "stored" || got == "STORED":
				stored++
			case strings.HasPrefix(got, "failed: ") || strings.HasPrefix(got, "SERVER_ERROR "):
				refused++
			default:
				t.Errorf("a set was answered %q, want stored or an error", got)
			}
		}
		return refused
	}
	story := func(t *testing.T, set func(queue string) string) {
		before := stored
		if refused := count(t, set); refused == 0 || stored == before {
			t.Errorf("%d stored, %d refused, want some of both", stored-before, refused)
		}
		master.kill()
		down := stored
		count(t, set)
		if stored != down {
			t.Errorf("%d were stored while the master was dead", stored-down)
		}
		master.start()
		for late := time.Now().Add(patience); stored == down && time.Now().Before(late); { // the client tries it again
			count(t, set)
		}
		if stored == down {
			t.Error("nothing is stored after the master is back")
		}
	}
	t.Run("PHP", func(t *testing.T) {
		w := startAsker(t, needPHP(t), "testdata/clients/hashing.php", master.port(), slave.port())
		story(t, func(queue string) string { return w.ask("set %s x", queue) })
	})
	t.Run("twemproxy that ejects", func(t *testing.T) {
		p := startTwemproxy(t, master, slave, "auto_eject_hosts: true", "server_retry_timeout: 100", "server_failure_limit: 1")
		c := dialTalker(t, p.address())
		story(t, func(queue string) string { return c.ask("set {" + queue + "} 0 0 1\r\nx\r\n") })
	})

	total := func(n *node) (items int) {
		for i := range queues {
			items += max(n.stat(fmt.Sprintf("tag%d_items", i)), 0)
		}
		return items
	}
	if got := total(master); got != stored {
		t.Errorf("the master has %d messages, want the %d that were stored", got, stored)
	}
	for late := time.Now().Add(patience); total(slave) != stored; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("the slave has %d messages, want %d as its master", total(slave), stored)
		}
	}
}
