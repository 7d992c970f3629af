package replication

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"qserver/storage"
)

// Path is where a master's HTTP port takes slaves, and Protocol what the request's Upgrade header names.
const (
	Path     = "/replication/v1/stream"
	Protocol = "qserver-replication/1"
)

// Master serves slaves. Its fields are options, not to be changed once it serves; the zero value works. Its methods are safe
// for concurrent use. A slave's server has one too: slaves of a slave.
type Master struct {
	SID     int           // this server's -sid; 0: none
	Secret  []byte        // what slaves must prove to know; empty: only those on loopback are served
	Gather  time.Duration // how long records are gathered between two sends to a slave that keeps up; 4 ms; below 0: not at all
	Version string
	// MinSlaves is how many slaves storage's Options.MinSlaves wants; Gather should be below 0 then. 0: none.
	MinSlaves int
	Log       *slog.Logger // discards if nil

	mu     sync.Mutex
	store  *storage.Store   // nil: not attached
	peers  map[string]*peer // connected slaves by name
	conns  map[net.Conn]struct{}
	gap    uint64        // records before this LSN are not all in the log: a repair left some out
	change chan struct{} // closed when a slave's durable LSN moves, or one comes or goes; nil: nobody waits
	wg     sync.WaitGroup

	copies sync.Mutex // one copy at a time
	sums   sync.Mutex // one request for sums at a time
}

const (
	defaultGather = 4 * time.Millisecond
	maxConns      = 256
)

// Attach hands over the store: from here on slaves are served.
func (m *Master) Attach(st *storage.Store) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store = st
}

// Detach cuts all slaves and returns when nothing uses the store any more. They come back by themselves.
func (m *Master) Detach() {
	m.mu.Lock()
	m.store = nil
	for c := range m.conns {
		c.Close()
	}
	m.mu.Unlock()
	m.wg.Wait()
}

// Handler takes slaves over HTTP.
func (m *Master) Handler() http.Handler { return http.HandlerFunc(m.serveHTTP) }

func (m *Master) serveHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "slaves POST here", http.StatusMethodNotAllowed)
		return
	case !strings.EqualFold(r.Header.Get("Upgrade"), Protocol):
		w.Header().Set("Upgrade", Protocol)
		w.Header().Set("Connection", "Upgrade")
		http.Error(w, "slaves ask here for "+Protocol, http.StatusUpgradeRequired)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "this connection can't be upgraded", http.StatusInternalServerError)
		return
	}
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+Protocol+"\r\n\r\n")
	if err != nil {
		conn.Close()
		return
	}
	m.serve(conn, rw.Reader, loopback(conn))
}

// ServeConn serves one slave on conn, which it closes. trusted: it need not prove anything where there is no secret.
func (m *Master) ServeConn(conn net.Conn, trusted bool) { m.serve(conn, nil, trusted) }

func (m *Master) serve(conn net.Conn, r io.Reader, trusted bool) {
	defer conn.Close()
	st := m.enter(conn)
	if st == nil {
		return
	}
	defer m.leave(conn)
	l := newLink(conn, r)
	log := m.log().With("peer", conn.RemoteAddr().String())
	h, err := m.greet(l, trusted)
	if err == nil {
		log = log.With("sid", h.sid)
		err = m.follow(st, l, h, log)
	}
	var refused *Refused
	switch {
	case errors.As(err, &refused):
		log.Warn("slave refused", "code", refused.Code.String(), "own_records", refused.Own, "reason", refused.Text)
		_ = l.send(refused.append(nil))
		lingers(l)
	case err != nil && !ended(err):
		log.Warn("slave's connection ended", "error", err)
	default:
		log.Info("slave's connection ended")
	}
}

// lingers waits until the other side has read what was sent and closes, or a moment is over: a close with unread input would
// throw away what is on its way.
func lingers(l *link) {
	for begin := time.Now(); time.Since(begin) < talkTimeout; {
		if _, _, err := l.next(talkTimeout); err != nil {
			return
		}
	}
}

// enter notes the connection, if it is not nil, and returns the store, which stays until leave; nil: there is none, or no room.
func (m *Master) enter(conn net.Conn) *storage.Store {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.store == nil || len(m.conns) >= maxConns {
		return nil
	}
	if m.conns == nil {
		m.conns, m.peers = make(map[net.Conn]struct{}), make(map[string]*peer)
	}
	if conn != nil {
		m.conns[conn] = struct{}{}
	}
	m.wg.Add(1)
	return m.store
}

func (m *Master) leave(conn net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.conns, conn)
	m.wg.Done()
}

// greet finds out who is there, and whether it may be.
func (m *Master) greet(l *link, trusted bool) (*greeting, error) {
	g := new(greeting)
	payload, err := l.expect(kindHello, &g.hello)
	if err != nil {
		return nil, err
	}
	g.payload = append([]byte(nil), payload...)
	c := challenge{nonce: newNonce(), proof: len(m.Secret) > 0}
	g.nonce = c.nonce
	if err := l.send(c.append(nil)); err != nil {
		return nil, err
	}
	var p proof
	if _, err := l.expect(kindProof, &p); err != nil {
		return nil, err
	}
	switch {
	case len(m.Secret) == 0 && !trusted:
		return nil, &Refused{Code: CodeAuth, Text: "this master has no -repl-secret-file and serves slaves on loopback only"}
	case len(m.Secret) > 0 && !proven(m.Secret, slaveSide, c.nonce, g.payload, p.mac):
		time.Sleep(time.Second) // a guess a second
		return nil, &Refused{Code: CodeAuth, Text: "the secret is another one: give both the same -repl-secret-file"}
	}
	return g, nil
}

// greeting is a slave's hello with what the welcome needs of it.
type greeting struct {
	hello
	payload []byte
	nonce   [32]byte
}

// follow serves a slave that may be there until its connection ends.
func (m *Master) follow(st *storage.Store, l *link, g *greeting, log *slog.Logger) error {
	p := &peer{name: strconv.Itoa(int(g.sid)), sid: int(g.sid), node: g.node, link: l, since: time.Now(), version: g.version,
		address: l.conn.RemoteAddr().String()}
	mode, feed, err := m.decide(st, &g.hello, p.name, askSlave(l))
	if err != nil {
		return err
	}
	if feed != nil {
		defer feed.Close()
	}
	if err := m.join(p); err != nil {
		return err
	}
	defer m.part(p)
	w := welcome{mode: mode, mac: prove(m.Secret, masterSide, g.nonce, g.payload), sid: uint16(m.SID), node: st.Node(),
		history: st.History(), epoch: epochOf(st)}
	if err := l.send(w.append(nil)); err != nil {
		return err
	}
	if mode == modeCopy {
		log.Info("slave gets a copy of the tree", "lsn", g.position.LSN)
		return m.sendCopy(st, p, log)
	}
	log.Info("slave follows", "lsn", g.position.LSN, "behind_bytes", feed.Behind())
	p.set(func() { p.state, p.applied, p.durable = StateFollowing, g.position.LSN, g.position.LSN })
	st.Keep(p.name, g.position.LSN)
	err = m.stream(st, p, feed)
	if errors.Is(err, storage.ErrPositionGone) { // records are missing behind where it stands: a copy has them
		m.mu.Lock()
		m.gap = max(m.gap, feed.Position().LSN+1)
		m.mu.Unlock()
	}
	return err
}

// join makes p the slave of its name. One of the same node that is there still is gone without our knowing.
func (m *Master) join(p *peer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.peers[p.name]; old != nil {
		if old.node != p.node {
			return &Refused{Code: CodeSID, Text: fmt.Sprintf("another slave with -sid %d is connected from %s: give each its own", p.sid, old.address)}
		}
		old.link.conn.Close()
	}
	m.peers[p.name] = p
	return nil
}

func (m *Master) part(p *peer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.peers[p.name] == p {
		delete(m.peers, p.name)
	}
	m.changedLocked()
}

// changedLocked wakes those who wait for slaves.
func (m *Master) changedLocked() {
	if m.change != nil {
		close(m.change)
		m.change = nil
	}
}

// Acked returns how far each connected slave's log is durable, by name, and a channel that is closed when that changes.
func (m *Master) Acked() (durable map[string]uint64, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	durable = make(map[string]uint64, len(m.peers))
	for name, p := range m.peers {
		if p.get().State == StateFollowing {
			durable[name] = p.get().Durable
		}
	}
	if m.change == nil {
		m.change = make(chan struct{})
	}
	return durable, m.change
}

func (m *Master) log() *slog.Logger {
	if m.Log != nil {
		return m.Log
	}
	return slog.New(slog.DiscardHandler)
}

func (m *Master) gather() time.Duration {
	if m.Gather == 0 {
		return defaultGather
	}
	return max(0, m.Gather)
}

func epochOf(st *storage.Store) uint64 {
	if e := st.Epochs(); len(e) > 0 {
		return e[len(e)-1].Number
	}
	return 1
}

var errLost = errors.New("the update log is not kept for this slave any more: it is too far behind and needs a copy")
