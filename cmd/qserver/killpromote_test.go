package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"qserver/storage"
	"qserver/storage/queue"
)

// TestKillAndPromote kills a master under load at a random moment, its slave too now and then, promotes the slave, and lets the
// old master rejoin. What the slave had acked is in the new master's log, which is the old one's up to the promotion, record
// for record, so the order of each queue is the master's; the counts of both folders hold.
func TestKillAndPromote(t *testing.T) {
	rounds := *killRounds
	if rounds == 0 {
		rounds, _ = strconv.Atoi(os.Getenv("QSERVER_KILL_ROUNDS"))
	}
	if rounds == 0 {
		rounds = 6
		if testing.Short() {
			rounds = 2
		}
	}
	p := &promotedPair{killedPair: newPair(newKiller(t))}
	for round := range rounds {
		p.round(round)
	}
	p.t.Logf("%d rounds; %d records were set aside", rounds, p.aside)
}

type promotedPair struct {
	*killedPair
	aside uint64 // records of old masters that no new one had
}

// runAs starts the server of folder i; following: as the slave of the other.
func (p *promotedPair) runAs(i int, following bool, more ...string) *victim {
	p.t.Helper()
	args := append([]string{"-data", p.dirs[i], "-admin", p.admin[i], "-sid", strconv.Itoa(i + 1), "-sync", p.sync}, more...)
	if following {
		host, port, _ := net.SplitHostPort(p.admin[1-i])
		args = append(args, "-mhost", host, "-mport", port)
	}
	s := p.start(nil, args...)
	if !s.ready() {
		p.fatal("no start of folder %d:\n%s", i, s.text())
	}
	return s
}

func (p *promotedPair) round(n int) {
	p.t.Helper()
	p.sync = []string{"always", "enqueue", "interval=20ms", "never"}[p.rng.IntN(4)]
	shared := p.rng.IntN(2) == 0
	var more []string
	if shared {
		more = []string{"-min-slaves", "1", "-min-slaves-mode", "refuse"}
	}
	where := fmt.Sprintf("round %d, -sync %s, -min-slaves %v", n, p.sync, shared)
	m, s := p.runAs(p.master, false, more...), p.runAs(1-p.master, true)
	p.caughtUp(n, s)
	before, err := askReplication(p.admin[p.master])
	if err != nil {
		p.fatal("%s: %v", where, err)
	}
	load := p.loadOn(m.address)
	p.pause(300)
	if p.rng.IntN(3) == 0 { // it comes back and goes on where it stood
		s.kill()
		s = p.runAs(1-p.master, true)
		p.pause(200)
	}
	acked := p.durable(where)
	m.kill()
	stored := load()

	begin := time.Now()
	mustRun(p.t, "promote", "-admin", p.admin[1-p.master], "-force")
	if took := time.Since(begin); took > time.Second {
		p.fatal("%s: promoted in %v", where, took)
	}
	p.sameHistory(where, max(acked, before.LSN), before.LSN)
	have := p.bodies(s.address)
	s.kill()
	if shared {
		for _, body := range stored {
			if !have[body] {
				p.fatal("%s: %s was STORED, and is not on the new master", where, body)
			}
		}
	}
	for _, dir := range p.dirs {
		p.dir = dir
		p.check(n + 1)
	}

	p.master = 1 - p.master
	s = p.runAs(p.master, false)
	mustRun(p.t, "rejoin", p.dirs[1-p.master], p.admin[p.master])
	old := p.runAs(1-p.master, true)
	p.caughtUp(n, old)
	old.kill()
	s.kill()
}

// loadOn enqueues over a few connections until the server is gone, and returns what was STORED then.
func (p *promotedPair) loadOn(address string) (end func() []string) {
	const clients = 4
	results := make(chan []string, clients)
	round := p.rng.Uint64()
	for client := range clients {
		go func() {
			var stored []string
			defer func() { results <- stored }()
			c, err := dialWire(address)
			if err != nil {
				return
			}
			defer c.Close()
			for i := 0; ; i++ {
				body := fmt.Sprintf("%x-%d-%d", round, client, i)
				fmt.Fprintf(c, "set q%d 0 0 %d\r\n%s\r\n", client%2, len(body), body)
				got, err := c.line()
				if err != nil {
					return
				}
				if got == "STORED" {
					stored = append(stored, body)
				}
				if i%3 == 0 {
					fmt.Fprintf(c, "get q%d/peek\r\n", client%2)
					if _, _, _, err := c.value(); err != nil {
						return
					}
				}
			}
		}()
	}
	return func() (all []string) {
		for range clients {
			all = append(all, <-results...)
		}
		return all
	}
}

// bodies drains a server.
func (p *promotedPair) bodies(address string) map[string]bool {
	have := make(map[string]bool)
	for _, q := range []string{"q0", "q1"} {
		for _, body := range drainQueue(p.t, address, q) {
			if have[body] {
				p.fatal("%s is there twice", body)
			}
			have[body] = true
		}
	}
	return have
}

// durable is how far the slave has acked, as the master says.
func (p *promotedPair) durable(where string) uint64 {
	var a struct {
		Slaves []struct {
			Durable uint64 `json:"durable_lsn"`
		}
	}
	if err := (adminPort{address: p.admin[p.master]}).get(p.t.Context(), "/api/v1/replication", &a); err != nil || len(a.Slaves) != 1 {
		p.fatal("%s: %v, slaves %+v", where, err, a)
	}
	return a.Slaves[0].Durable
}

// sameHistory compares the logs of both folders, of the killed master and the promoted slave: behind LSN before, where both stood, up to where the new
// master's epoch begins, which is behind what was acked, they are the same.
func (p *promotedPair) sameHistory(where string, acked, before uint64) {
	p.t.Helper()
	read := func(dir string) (chains map[uint64]uint32, epochs map[uint64]uint64, last uint64) {
		r, err := storage.OpenLogFiles(dir, 0)
		if err != nil {
			p.fatal("%s: %v", where, err)
		}
		defer r.Close()
		chains, epochs = make(map[uint64]uint32), make(map[uint64]uint64)
		for {
			rec, err := r.Next()
			if err != nil {
				return chains, epochs, last
			}
			last = rec.LSN
			chains[rec.LSN] = rec.Chain
			if rec.Op.Kind == queue.KindEpoch {
				epochs[rec.LSN] = rec.Op.ID
			}
		}
	}
	old, oldEpochs, oldLast := read(p.dirs[p.master])
	now, epochs, _ := read(p.dirs[1-p.master])
	var begins uint64
	for lsn := range epochs {
		if _, both := oldEpochs[lsn]; !both || old[lsn] != now[lsn] {
			begins = max(begins, lsn) // an older one may only be too old for the other log
		}
	}
	if begins == 0 {
		p.fatal("%s: the new master's log has no epoch of its own", where)
	}
	if begins <= acked {
		p.fatal("%s: the slave had acked record %d, and the new master's epoch begins with %d", where, acked, begins)
	}
	compared := 0
	for lsn := begins - 1; lsn > 0; lsn-- {
		a, inOld := old[lsn]
		b, inNow := now[lsn]
		if !inOld || !inNow {
			break // one has let go of it
		}
		if a != b {
			p.fatal("%s: record %d is not the old master's", where, lsn)
		}
		compared++
	}
	if compared == 0 && begins > before+1 {
		p.fatal("%s: nothing to compare before record %d", where, begins)
	}
	if oldLast >= begins {
		p.aside += oldLast - begins + 1
	}
}
