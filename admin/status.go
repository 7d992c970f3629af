package admin

import (
	"net/http"
	"os"
	"time"
)

// statusJSON is the server. Parts of the store are absent until it has recovered.
type statusJSON struct {
	Version     string          `json:"version"`
	PID         int             `json:"pid"`
	StartedAt   time.Time       `json:"started_at"`
	UptimeMS    int64           `json:"uptime_ms"`
	Ready       bool            `json:"ready"`
	Reason      string          `json:"reason,omitempty"` // why it is not ready, as /readyz has it
	Connections connectionsJSON `json:"connections"`
	Path        string          `json:"path,omitempty"`
	Messages    *messagesJSON   `json:"messages,omitempty"`
	Log         *logJSON        `json:"log,omitempty"`
	Tree        *treeJSON       `json:"tree,omitempty"`
	Memory      *memoryJSON     `json:"memory,omitempty"`
}

type connectionsJSON struct {
	Open  int64 `json:"open"` // memcached connections
	Total int64 `json:"opened_total"`
	Busy  int64 `json:"busy"` // commands being worked on, waiting gets included
	HTTP  int64 `json:"http_open"`
}

type messagesJSON struct {
	Queues   int64 `json:"queues"`
	Sessions int64 `json:"sessions"`
	countsJSON
	LeasesLapsedTotal int64 `json:"leases_lapsed_total"`
	HeldLimitTotal    int64 `json:"held_limit_total"` // gets refused since the connection held its limit
}

type logJSON struct {
	LSN         uint64 `json:"lsn"`        // of the last applied record
	SyncedLSN   uint64 `json:"synced_lsn"` // known to be on the disk
	Bytes       int64  `json:"bytes"`
	SyncsTotal  int64  `json:"syncs_total"`
	Checkpoints int64  `json:"checkpoints_total"`
}

type treeJSON struct {
	LSN       uint64 `json:"lsn"` // up to which the tree has the log
	Bytes     int64  `json:"bytes"`
	UsedBytes int64  `json:"used_bytes"`
}

type memoryJSON struct {
	Bytes      int64 `json:"bytes"`
	LimitBytes int64 `json:"limit_bytes"`
}

func (s *Server) serveStatus(w http.ResponseWriter, r *http.Request) {
	reason, traffic := s.notReady(), s.traffic()
	a := statusJSON{
		Version:   s.Version,
		PID:       os.Getpid(),
		StartedAt: s.started.UTC(),
		UptimeMS:  time.Since(s.started).Milliseconds(),
		Ready:     reason == "",
		Reason:    reason,
		Connections: connectionsJSON{
			Open: traffic.Connections, Total: traffic.ConnectionsTotal, Busy: traffic.Busy, HTTP: s.conns.Load(),
		},
	}
	if st := s.attached(); st != nil {
		v := st.Stats()
		a.Path = text(v.Path)
		a.Messages = &messagesJSON{
			Queues: v.Queues, Sessions: v.Sessions, countsJSON: counts(v.QueueStats),
			LeasesLapsedTotal: v.LeasesLapsed, HeldLimitTotal: v.HeldLimit,
		}
		a.Messages.ReturnedTotal = v.Returned
		a.Log = &logJSON{LSN: v.LSN, SyncedLSN: v.Synced, Bytes: v.LogBytes, SyncsTotal: v.Syncs, Checkpoints: v.Checkpoints}
		a.Tree = &treeJSON{LSN: v.TreeLSN, Bytes: v.TreeBytes, UsedBytes: v.TreeUsed}
		a.Memory = &memoryJSON{Bytes: v.MemoryBytes, LimitBytes: v.MemoryLimit}
	}
	writeJSON(w, http.StatusOK, a)
}
