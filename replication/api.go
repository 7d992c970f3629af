package replication

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"qserver/storage"
)

// The JSON of /api/v1/replication. Fields are added, never renamed; names end in their unit.

type replicationJSON struct {
	Role    string      `json:"role"` // "master" or "slave"
	SID     int         `json:"sid,omitempty"`
	Node    string      `json:"node,omitempty"`    // number of this folder's log
	History string      `json:"history,omitempty"` // the same on all nodes that are copies of one another
	Epoch   uint64      `json:"epoch,omitempty"`
	Epochs  []epochJSON `json:"epochs,omitempty"` // the last ones, oldest first; the first of a history has none
	LSN     uint64      `json:"lsn"`
	Chain   uint32      `json:"chain"` // sum chained over all records up to lsn
	Synced  uint64      `json:"synced_lsn"`
	Shared  *sharedJSON `json:"min_slaves,omitempty"` // with -min-slaves
	Master  *masterJSON `json:"master,omitempty"`
	Slaves  []slaveJSON `json:"slaves"`
}

type epochJSON struct {
	Number uint64 `json:"number"`
	Nonce  string `json:"nonce"` // hexadecimal
	LSN    uint64 `json:"lsn"`   // of its first record
}

type sharedJSON struct {
	Need      int    `json:"needed"`
	State     string `json:"state"` // "on": enqueues wait; "degraded" or "refusing": too few follow
	LSN       uint64 `json:"lsn"`   // up to which enough slaves have the log
	Late      int64  `json:"late_total"`
	TimeoutMS int64  `json:"timeout_ms"`
}

// sharedText is the state in one word.
func sharedText(s storage.SharedState) string {
	switch {
	case !s.Away:
		return "on"
	case s.Refuse:
		return "refusing"
	default:
		return "degraded"
	}
}

type lagJSON struct {
	Records uint64  `json:"lag_records"`
	Bytes   int64   `json:"lag_bytes"`
	Seconds float64 `json:"lag_seconds"`
}

type masterJSON struct {
	Address string `json:"address"`
	SID     int    `json:"sid,omitempty"`
	State   State  `json:"state"`
	SinceMS int64  `json:"since_ms"`
	LSN     uint64 `json:"lsn"`
	lagJSON
	Error      string       `json:"error,omitempty"`
	Refused    *refusedJSON `json:"refused,omitempty"`
	CopyDone   int64        `json:"copy_done_bytes,omitempty"`
	CopySize   int64        `json:"copy_size_bytes,omitempty"`
	Reconnects int64        `json:"reconnects_total"`
}

type refusedJSON struct {
	Code   string `json:"code"`
	Own    uint64 `json:"own_records"`
	Common uint64 `json:"common_lsn"`
	Text   string `json:"text"`
}

type slaveJSON struct {
	Name    string `json:"sid"`
	Address string `json:"address,omitempty"`
	Version string `json:"version,omitempty"`
	State   State  `json:"state"`
	SinceMS int64  `json:"since_ms"`
	Applied uint64 `json:"applied_lsn"`
	Durable uint64 `json:"durable_lsn"`
	lagJSON
	CopyDone int64 `json:"copy_done_bytes,omitempty"`
	CopySize int64 `json:"copy_size_bytes,omitempty"`
}

func (l Lag) json() lagJSON { return lagJSON{l.Records, l.Bytes, l.Time.Seconds()} }

// StatusHandler answers GET with the state of both sides. slave returns nil where this server follows none.
func StatusHandler(m *Master, slave func() *Slave) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, `{"error": "method not allowed; allowed: GET, HEAD"}`, http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(statusOf(m, slave()))
	})
}

func statusOf(m *Master, s *Slave) replicationJSON {
	a := replicationJSON{Role: "master", SID: m.SID, Slaves: []slaveJSON{}}
	m.mu.Lock()
	st := m.store
	m.mu.Unlock()
	if st != nil {
		id := IdentityOf(st)
		a.Node, a.History, a.Epoch, a.LSN, a.Chain, a.Synced = id.Node, id.History, id.Epoch, id.Position.LSN, id.Position.Chain, id.Synced
		if sh := st.SharedState(); sh.Need > 0 {
			a.Shared = &sharedJSON{sh.Need, sharedText(sh), sh.LSN, sh.Late, sh.Timeout.Milliseconds()}
		}
		for _, e := range st.Epochs() {
			a.Epochs = append(a.Epochs, epochJSON{e.Number, strconv.FormatUint(e.Nonce, 16), e.LSN})
		}
	}
	if s != nil {
		ms := s.Status()
		a.Role = "slave"
		a.Master = &masterJSON{Address: ms.Address, SID: ms.SID, State: ms.State, SinceMS: time.Since(ms.Since).Milliseconds(), LSN: ms.LSN,
			lagJSON: ms.Lag.json(), Error: ms.Error, CopyDone: ms.CopyDone, CopySize: ms.CopySize, Reconnects: ms.Reconnect}
		if r := ms.Refused; r != nil {
			a.Master.Refused = &refusedJSON{r.Code.String(), r.Own, r.Common, r.Text}
		}
	}
	for _, sl := range m.Slaves() {
		a.Slaves = append(a.Slaves, slaveJSON{Name: sl.Name, Address: sl.Address, Version: sl.Version, State: sl.State,
			SinceMS: time.Since(sl.Since).Milliseconds(), Applied: sl.Applied, Durable: sl.Durable, lagJSON: sl.Lag.json(),
			CopyDone: sl.CopyDone, CopySize: sl.CopySize})
	}
	return a
}

// Flush waits until every connected slave has durably what the master's disk has, or ctx ends.
func (m *Master) Flush(ctx context.Context) {
	for {
		durable, changed := m.Acked()
		m.mu.Lock()
		st := m.store
		m.mu.Unlock()
		if st == nil {
			return
		}
		end, all := st.SyncedLSN(), true
		for _, lsn := range durable {
			all = all && lsn >= end
		}
		if all {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
