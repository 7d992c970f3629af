package replication

import (
	"encoding/hex"
	"fmt"
	"maps"
	"strconv"
	"time"

	"qserver/storage"
	"qserver/storage/ulog"
)

// State says what a slave does.
type State string

// The states of a slave, on both sides.
const (
	StateConnecting State = "connecting" // it tries
	StateRefused    State = "refused"    // the master doesn't serve it; it asks again
	StateCopying    State = "copying"    // it gets a copy of the tree
	StateFollowing  State = "following"  // it gets records
	StateGone       State = "gone"       // not connected; the log is kept for it
	StateLost       State = "lost"       // not connected, and too far behind: it will need a copy
)

// Lag is how far a slave is behind its master.
type Lag struct {
	Records uint64
	Bytes   int64         // of the master's log, about
	Time    time.Duration // since the first record that is missing was there
}

// SlaveStatus is a slave as its master sees it.
type SlaveStatus struct {
	Name             string // its sid
	Address, Version string
	State            State
	Since            time.Time // connected, or last heard of
	Applied, Durable uint64    // LSN
	Lag              Lag       // of what it has durably
	CopyDone         int64     // bytes, while it is copying
	CopySize         int64
}

// MasterStatus is the master as its slave sees it.
type MasterStatus struct {
	Address   string
	SID       int // 0: not known yet, or none
	State     State
	Error     string    // why it doesn't follow
	Refused   *Refused  // if it was refused
	Since     time.Time // of the state
	LSN       uint64    // up to which the master's disk has its log, as far as is known
	Lag       Lag       // of what is applied
	CopyDone  int64
	CopySize  int64
	Reconnect int64 // connections that ended, since start
}

// mark is a place in the log.
type mark = ulog.Place

// get returns what the peer is.
func (p *peer) get() SlaveStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return SlaveStatus{Name: p.name, Address: p.address, Version: p.version, State: p.state, Since: p.since, Applied: p.applied,
		Durable: p.durable, Lag: Lag{Time: p.lag.lag(time.Now())}, CopyDone: p.copied, CopySize: p.copySize}
}

// sentRecords notes a run that was sent and leads to lsn, of synced that could be had.
func (p *peer) sentRecords(lsn, synced uint64, at mark) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lag.there(max(lsn, synced), time.Now())
	if len(p.sent) == cap(p.sent) && len(p.sent) >= 4096 { // a slave that has not acked for long: every other one goes
		for i := range len(p.sent) / 2 {
			p.sent[i] = p.sent[2*i+1]
		}
		p.sent = p.sent[:len(p.sent)/2]
	}
	p.sent = append(p.sent, sentRun{lsn, at})
}

// acked notes how far the slave is. It says whether it has more durably.
func (p *peer) acked(a *ack) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	more = a.durable > p.durable
	p.applied, p.durable = a.applied, a.durable
	p.lag.came(a.durable)
	n := 0
	for n < len(p.sent) && p.sent[n].lsn <= a.durable {
		p.ackedAt = p.sent[n].at
		n++
	}
	p.sent = p.sent[:copy(p.sent, p.sent[n:])]
	return more
}

// Slaves lists the slaves, connected or known, by name.
func (m *Master) Slaves() []SlaveStatus {
	m.mu.Lock()
	st := m.store
	peers := make(map[string]*peer, len(m.peers))
	maps.Copy(peers, m.peers)
	m.mu.Unlock()
	if st == nil {
		return nil
	}
	end := st.SyncedLSN()
	var list []SlaveStatus
	for _, k := range st.Kept() {
		p := peers[k.Name]
		delete(peers, k.Name)
		if p == nil {
			s := SlaveStatus{Name: k.Name, State: StateGone, Since: k.Seen, Applied: k.LSN, Durable: k.LSN}
			if k.Lost {
				s.State = StateLost
			}
			s.Lag = Lag{behind(end, k.LSN), st.BehindBytes(k.LSN), 0}
			if s.Lag.Records > 0 {
				s.Lag.Time = time.Since(k.Seen)
			}
			list = append(list, s)
			continue
		}
		list = append(list, p.status(st, end))
	}
	for _, p := range peers {
		list = append(list, p.status(st, end))
	}
	return list
}

func (p *peer) status(st *storage.Store, end uint64) SlaveStatus {
	s := p.get()
	s.Lag.Records = behind(end, s.Durable)
	p.mu.Lock()
	at := p.ackedAt
	p.mu.Unlock()
	switch {
	case s.Lag.Records == 0:
		s.Lag.Time = 0
	case at != mark{}:
		s.Lag.Bytes = st.BytesFrom(at)
	default:
		s.Lag.Bytes = st.BehindBytes(s.Durable)
	}
	return s
}

func behind(end, lsn uint64) uint64 {
	if lsn >= end {
		return 0
	}
	return end - lsn
}

// Identity is what a server shows of itself.
type Identity struct {
	Node, History string // hexadecimal
	Epoch         uint64
	Position      ulog.Position
	Synced        uint64
}

// IdentityOf returns the store's.
func IdentityOf(st *storage.Store) Identity {
	node, history := st.Node(), st.History()
	return Identity{hex.EncodeToString(node[:]), hex.EncodeToString(history[:]), epochOf(st), st.Position(), st.SyncedLSN()}
}

// EmitStats gives the lines for memcached's stats: repl_… of each slave, and of the master if s is not nil. emit gets single words.
func EmitStats(m *Master, s *Slave, emit func(name, value string)) {
	num := func(name string, n int64) { emit(name, strconv.FormatInt(n, 10)) }
	lag := func(prefix string, l Lag) {
		num(prefix+"lag_records", int64(l.Records))
		num(prefix+"lag_bytes", l.Bytes)
		num(prefix+"lag_ms", l.Time.Milliseconds())
	}
	if s == nil {
		emit("repl_role", "master")
	} else {
		ms := s.Status()
		emit("repl_role", "slave")
		emit("repl_master", ms.Address)
		emit("repl_state", string(ms.State))
		num("repl_master_lsn", int64(ms.LSN))
		num("repl_reconnects", ms.Reconnect)
		lag("repl_", ms.Lag)
	}
	m.mu.Lock()
	st := m.store
	m.mu.Unlock()
	if st != nil {
		if sh := st.SharedState(); sh.Need > 0 {
			num("repl_min_slaves", int64(sh.Need))
			emit("repl_min_slaves_state", sharedText(sh))
			num("repl_min_slaves_late", sh.Late)
		}
	}
	slaves := m.Slaves()
	num("repl_slaves", int64(len(slaves)))
	for _, sl := range slaves {
		prefix := fmt.Sprintf("repl_slave_%s_", sl.Name)
		emit(prefix+"state", string(sl.State))
		num(prefix+"lsn", int64(sl.Durable))
		lag(prefix, sl.Lag)
	}
}
