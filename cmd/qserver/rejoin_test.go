package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRejoin: the slave is cut off, clients stay on the old master, the slave is promoted; the old master is refused as a slave,
// with the number of its own records, sets them aside, and follows. What was only there is put back by one command.
func TestRejoin(t *testing.T) {
	t.Parallel()
	master, slave, masterAdmin, slaveAdmin := masterAndSlave(t)
	enqueueRange(t, master.address, "jobs", 1, 200)
	follows(t, slaveAdmin, masterAdmin)
	slave.kill() // as good as a cut

	enqueueRange(t, master.address, "jobs", 201, 300)
	enqueueRange(t, master.address, "other", 1, 5) // a queue that only the old master has
	c, err := dialWire(master.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "set other/pri=3/delay=3600 7 0 4\r\nlate\r\n")
	if got, err := c.line(); got != "STORED" {
		t.Fatal(got, err)
	}
	c.take(t, "jobs", 50, true) // of both
	c.take(t, "other", 2, true) // never to come back
	before, err := askReplication(masterAdmin)
	if err != nil {
		t.Fatal(err)
	}
	master.kill()
	slave.start()
	mustRun(t, "promote", "-admin", slaveAdmin, "-force")
	enqueueRange(t, slave.address, "jobs", 1001, 1010)

	// It is refused as it is.
	master.args = append(master.args, "-mhost", "127.0.0.1", "-mport", portOf(slaveAdmin))
	master.start()
	var refused replicationAnswer
	for late := time.Now().Add(patience); refused.Master == nil || refused.Master.State != "refused"; time.Sleep(5 * time.Millisecond) {
		if refused, err = askReplication(masterAdmin); err != nil || time.Now().After(late) {
			t.Fatalf("%v, %+v: want that it is refused", err, refused.Master)
		}
	}
	var own int
	if i := strings.Index(refused.Master.Error, "has "); i < 0 {
		t.Fatal(refused.Master.Error)
	} else if _, err := fmt.Sscanf(refused.Master.Error[i:], "has %d records of its own", &own); err != nil || own < 100+7+52 {
		t.Fatalf("%q: want the number of its own records", refused.Master.Error)
	}
	if _, err := tryRun(t, "rejoin", master.k.dir, slaveAdmin); exitCode(err) != exitInUse {
		t.Errorf("rejoin of a folder in use: %v", err)
	}
	master.kill()

	out := mustRun(t, "rejoin", master.k.dir, slaveAdmin)
	if !strings.HasPrefix(out, fmt.Sprintf("%d records that %s has not", own, slaveAdmin)) {
		t.Errorf("rejoin printed %q, want the %d records of which the refusal spoke", out, own)
	}
	files, _ := filepath.Glob(filepath.Join(master.k.dir, "own-records-*"))
	if len(files) != 1 || !strings.HasSuffix(files[0], fmt.Sprintf("-%d", before.LSN)) {
		t.Fatalf("files %q, want one up to %d", files, before.LSN)
	}
	if n := strings.Count(mustRun(t, "ulog", files[0]), "\n"); n != own {
		t.Errorf("ulog prints %d lines of it, want %d", n, own)
	}
	master.start()
	follows(t, masterAdmin, slaveAdmin)

	if out := mustRun(t, "ulog", files[0], "-put", slave.address); out != "104 messages put back\n" {
		t.Errorf("put back: %q, want the 100 of jobs and the 4 left of other", out)
	}
	follows(t, masterAdmin, slaveAdmin)
	if n, d := slave.stat("other_items"), slave.stat("other_delayed"); n != 4 || d != 1 {
		t.Errorf("%d messages in other, %d delayed, want 4 and 1", n, d)
	}
	got := drainQueue(t, slave.address, "jobs")
	wantRange(t, got[:200], 1, 200) // the 50 that were acked on the old master come again
	wantRange(t, got[200:210], 1001, 1010)
	wantRange(t, got[210:], 201, 300)
	wantRange(t, drainQueue(t, slave.address, "other"), 3, 5)

	// It is put back once, unless -again is given.
	if out, err := tryRun(t, "ulog", files[0], "-put", slave.address); exitCode(err) != exitNotDone || !strings.Contains(fmt.Sprint(err), "-again") || out != "" {
		t.Errorf("put back twice: %q %v, want a refusal", out, err)
	}
	if out := mustRun(t, "ulog", files[0], "-put", slave.address, "-again"); out != "104 messages put back\n" {
		t.Errorf("put back again: %q", out)
	}
	drainQueue(t, slave.address, "jobs")

	// A changed file puts nothing back.
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{"cut": b[:len(b)-3], "changed": append(append([]byte(nil), b[:len(b)-3]...), b[len(b)-3]^1, b[len(b)-2], b[len(b)-1])} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := tryRun(t, "ulog", path, "-put", slave.address); exitCode(err) != exitData || out != "" {
			t.Errorf("%s: %q %v, want that it is damaged", name, out, err)
		}
	}
}

// TestRejoinWithout: a folder without records of its own is left as it is, and so is one of another history.
func TestRejoinWithout(t *testing.T) {
	t.Parallel()
	master, slave, masterAdmin, slaveAdmin := masterAndSlave(t)
	enqueueRange(t, master.address, "jobs", 1, 20)
	follows(t, slaveAdmin, masterAdmin)
	master.kill()
	mustRun(t, "promote", "-admin", slaveAdmin)
	if out := mustRun(t, "rejoin", master.k.dir, slaveAdmin); !strings.Contains(out, "has no records of its own") {
		t.Errorf("rejoin printed %q", out)
	}
	master.args = append(master.args, "-mhost", "127.0.0.1", "-mport", portOf(slaveAdmin))
	master.start()
	follows(t, masterAdmin, slaveAdmin)

	other := startNode(t, "-sid", "3")
	other.kill()
	if _, err := tryRun(t, "rejoin", other.k.dir, slaveAdmin); err == nil || !strings.Contains(err.Error(), "a history of its own") || exitCode(err) != exitNotDone {
		t.Errorf("rejoin of another history: %v", err)
	}
	if _, err := tryRun(t, "rejoin", t.TempDir(), slaveAdmin); exitCode(err) != exitNoInput {
		t.Errorf("rejoin of no data folder: %v", err)
	}
	wantRange(t, drainQueue(t, slave.address, "jobs"), 1, 20)
}

// TestRejoinSameEpoch: the master's folder was copied by hand and a second server wrote on it, in the same epoch. Just its own
// records are set aside.
func TestRejoinSameEpoch(t *testing.T) {
	t.Parallel()
	admin := freeAddress(t)
	master := startNode(t, "-sid", "1", "-admin", admin, "-drain", "0s")
	enqueueRange(t, master.address, "jobs", 1, 100)
	master.kill()
	copied := startNode(t, "-sid", "2", "-drain", "0s")
	copied.kill()
	if err := os.RemoveAll(copied.k.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(copied.k.dir, os.DirFS(master.k.dir)); err != nil {
		t.Fatal(err)
	}
	master.start()
	copied.start()
	enqueueRange(t, master.address, "jobs", 101, 300)
	enqueueRange(t, copied.address, "jobs", 1001, 1030)
	c, err := dialWire(copied.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wantRange(t, c.take(t, "jobs", 10, true), 1, 10)
	copied.kill()

	copied.args = []string{"-sid", "2", "-admin", freeAddress(t), "-drain", "0s", "-mhost", "127.0.0.1", "-mport", portOf(admin)}
	copied.start()
	var refused replicationAnswer
	for late := time.Now().Add(patience); refused.Master == nil || refused.Master.State != "refused"; time.Sleep(5 * time.Millisecond) {
		if refused, err = askReplication(copied.args[3]); err != nil || time.Now().After(late) {
			t.Fatalf("%v, %+v: want that it is refused", err, refused.Master)
		}
	}
	const own = 30 + 10
	if want := fmt.Sprintf("the slave has %d records of its own", own); !strings.Contains(refused.Master.Error, want) {
		t.Errorf("refused with %q, want %q", refused.Master.Error, want)
	}
	copied.kill()
	if out := mustRun(t, "rejoin", copied.k.dir, admin); !strings.HasPrefix(out, fmt.Sprintf("%d records that %s has not", own, admin)) {
		t.Errorf("rejoin printed %q", out)
	}
	files, _ := filepath.Glob(filepath.Join(copied.k.dir, "own-records-*"))
	if len(files) != 1 {
		t.Fatalf("files %q, want one", files)
	}
	if n := strings.Count(mustRun(t, "ulog", files[0]), "\n"); n != own {
		t.Errorf("ulog prints %d lines of it, want %d", n, own)
	}
	copied.start()
	follows(t, copied.args[3], admin)
	if out := mustRun(t, "ulog", files[0], "-put", master.address); out != "30 messages put back\n" {
		t.Errorf("put back: %q", out)
	}
	got := drainQueue(t, master.address, "jobs")
	wantRange(t, got[:300], 1, 300)
	wantRange(t, got[300:], 1001, 1030)
}
