package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestMinSlaves: what is STORED is on the slave, at any rate, when the master is killed the moment after.
func TestMinSlaves(t *testing.T) {
	t.Parallel()
	master, slave, masterAdmin, slaveAdmin := masterAndSlave(t, "-min-slaves", "1", "-min-slaves-mode", "refuse", "-min-slaves-timeout", "5s")
	on := func() (got string) {
		for late := time.Now().Add(patience); time.Now().Before(late); time.Sleep(5 * time.Millisecond) {
			c, err := dialWire(master.address)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(c, "stats\r\n")
			for {
				line, err := c.line()
				if err != nil || line == "END" {
					break
				}
				if v, ok := strings.CutPrefix(line, "STAT repl_min_slaves_state "); ok {
					got = v
				}
			}
			c.Close()
			if got == "on" {
				return got
			}
		}
		return got
	}
	if got := on(); got != "on" {
		t.Fatalf("repl_min_slaves_state is %q, want on", got)
	}
	begin := time.Now()
	enqueueRange(t, master.address, "jobs", 1, 300)
	t.Logf("an enqueue that waits for a slave takes %v", time.Since(begin)/300)
	master.kill()
	mustRun(t, "promote", "-admin", slaveAdmin)

	// Alone it refuses; with the old master as its slave it goes on.
	c, err := dialWire(slave.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "set jobs 0 0 1\r\nx\r\n")
	if got, _ := c.line(); !strings.HasPrefix(got, "SERVER_ERROR too few slaves") {
		t.Errorf("a set without slaves is answered %q", got)
	}
	master.args = append(master.args, "-mhost", "127.0.0.1", "-mport", portOf(slaveAdmin))
	mustRun(t, "rejoin", master.k.dir, slaveAdmin)
	master.start()
	follows(t, masterAdmin, slaveAdmin)
	for late := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		fmt.Fprint(c, "set jobs 0 0 3\r\n301\r\n")
		got, err := c.line()
		if got == "STORED" {
			break
		}
		if err != nil || time.Now().After(late) {
			t.Fatalf("a set with a slave again: %q %v", got, err)
		}
	}
	wantRange(t, drainQueue(t, slave.address, "jobs"), 1, 301)
}
