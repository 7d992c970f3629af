package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestKillMasterAndSlave kills a master and its slave by SIGKILL, at random moments and under load, and lets the slave's
// folder lead in the end: it has every message that was STORED and not acked exactly once, in the order of its producer, and
// none that was DELETED. In the next round the old master follows.
func TestKillMasterAndSlave(t *testing.T) {
	rounds := *killRounds
	if rounds == 0 {
		rounds = 6
		if testing.Short() {
			rounds = 2
		}
	}
	k := newKiller(t)
	p := newPair(k)
	for round := range rounds {
		p.round(round)
	}
	k.t.Logf("%d rounds: %s", rounds, k.l.summary())
}

// killedPair is two folders, one of which leads.
type killedPair struct {
	*killer
	dirs   [2]string
	admin  [2]string
	master int // which leads
	sync   string
}

func newPair(k *killer) *killedPair {
	p := &killedPair{killer: k, dirs: [2]string{k.dir + "/a", k.dir + "/b"}}
	both := k.dir // k.dir will be one of them
	k.t.Cleanup(func() {
		if !k.t.Failed() {
			os.RemoveAll(both)
		}
	})
	for i := range p.admin {
		ln, err := net.Listen("tcp", "127.0.0.1:0") // the slave must know it, and find it again
		if err != nil {
			k.fatal("%v", err)
		}
		p.admin[i] = ln.Addr().String()
		ln.Close()
	}
	return p
}

// run starts the server of folder i; following: as the slave of the other.
func (p *killedPair) run(i int, following bool) *victim {
	p.t.Helper()
	args := []string{"-data", p.dirs[i], "-admin", p.admin[i], "-sid", strconv.Itoa(i + 1), "-sync", p.sync}
	if following {
		host, port, _ := net.SplitHostPort(p.admin[1-i])
		args = append(args, "-mhost", host, "-mport", port)
	}
	return p.start(nil, args...)
}

func (p *killedPair) round(n int) {
	p.t.Helper()
	p.sync = []string{"always", "enqueue", "interval=20ms", "never"}[p.rng.IntN(4)]
	m, s := p.lead(n), p.run(1-p.master, true)
	for range 1 + p.rng.IntN(3) {
		load := p.l.run(m.address, p.rng.Uint64())
		for range p.rng.IntN(3) {
			p.pause(150)
			s.kill()
			s = p.run(1-p.master, true)
		}
		p.pause(300)
		m.kill()
		for _, err := range load.wait() {
			p.fatal("round %d, -sync %s: %v", n, p.sync, err)
		}
		m = p.lead(n)
		if err := p.l.verify(m.address, nil); err != nil {
			p.fatal("round %d, -sync %s: on the master: %v", n, p.sync, err)
		}
	}
	p.caughtUp(n, s)
	m.kill()
	s.kill()

	p.master = 1 - p.master
	p.dir = p.dirs[p.master]
	counts := p.check(n)
	s = p.lead(n)
	if err := p.l.verify(s.address, counts); err != nil {
		p.fatal("round %d, -sync %s: on the slave: %v", n, p.sync, err)
	}
	s.kill()
}

// lead starts the server of the folder that leads.
func (p *killedPair) lead(n int) *victim {
	p.t.Helper()
	m := p.run(p.master, false)
	if !m.ready() {
		p.fatal("round %d, -sync %s: no start of the master:\n%s", n, p.sync, m.text())
	}
	return m
}

func (p *killedPair) pause(most int) { time.Sleep(time.Duration(p.rng.IntN(most)) * time.Millisecond) }

// replicationAnswer is what the test needs of /api/v1/replication.
type replicationAnswer struct {
	LSN    uint64
	Chain  uint32
	Master *struct{ State, Error string }
}

func askReplication(admin string) (a replicationAnswer, err error) {
	res, err := http.Get("http://" + admin + "/api/v1/replication")
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	return a, json.NewDecoder(res.Body).Decode(&a)
}

// caughtUp waits until the slave stands where its master does.
func (p *killedPair) caughtUp(n int, s *victim) {
	p.t.Helper()
	var state string
	for late := time.Now().Add(time.Minute); time.Now().Before(late); time.Sleep(10 * time.Millisecond) {
		m, err := askReplication(p.admin[p.master])
		if err != nil {
			p.fatal("round %d: %v", n, err)
		}
		a, err := askReplication(p.admin[1-p.master])
		if state = fmt.Sprintf("master %+v, slave %+v %v", m, a, err); err != nil || a.Master == nil {
			continue
		}
		if a.Master.State == "following" && a.LSN == m.LSN && a.Chain == m.Chain {
			return
		}
	}
	p.fatal("round %d, -sync %s: the slave does not catch up: %s\n%s", n, p.sync, state, s.text())
}
