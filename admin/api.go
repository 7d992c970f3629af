package admin

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"qserver/storage"
)

const (
	queuePrefix  = "/api/v1/queues/"
	defaultLimit = 100  // queues on a page
	maxLimit     = 1000 // the largest that may be asked for
)

// countsJSON are the counters of one queue, or their sums over all. Ages are in milliseconds, bytes are of bodies. Those
// of the last block count since the server's start, the other totals since the queue was created.
type countsJSON struct {
	Items    int64 `json:"items"` // live messages: ready + delayed + reserved
	Ready    int64 `json:"ready"`
	Delayed  int64 `json:"delayed"`
	Reserved int64 `json:"reserved"`
	Dead     int64 `json:"dead"`
	Bytes    int64 `json:"bytes"`  // of live messages' bodies
	AgeMS    int64 `json:"age_ms"` // of the oldest ready message in memory; 0 if there is none
	Waiters  int64 `json:"waiters"`

	EnqueuedTotal int64 `json:"enqueued_total"`
	AckedTotal    int64 `json:"acked_total"`
	PurgedTotal   int64 `json:"purged_total"`
	ExpiredTotal  int64 `json:"expired_total"`

	ReturnedTotal  int64 `json:"returned_total"` // deliveries that ended without an ack
	GetsTotal      int64 `json:"gets_total"`
	GetMissesTotal int64 `json:"get_misses_total"`
}

// queueJSON is one queue.
type queueJSON struct {
	Name        string `json:"name"`         // as text; bytes that are no UTF-8 are shown as U+FFFD
	NameEscaped string `json:"name_escaped"` // exact: percent-encoded, for paths and queries
	countsJSON
}

// queuesJSON is a page of queues.
type queuesJSON struct {
	Queues []queueJSON `json:"queues"`
	Next   string      `json:"next,omitempty"` // where the next page is; absent on the last
}

type errorJSON struct {
	Error string `json:"error"`
}

// route finds the handler by the path as it was sent. It is no ServeMux, which would redirect names such as ".." and "a//b".
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	if strings.HasPrefix(path, rpcPrefix) {
		s.serveRPC(w, r, strings.TrimPrefix(r.URL.Path, rpcPrefix))
		return
	}
	if s.Pprof && strings.HasPrefix(path, pprofPrefix) {
		s.servePprof(w, r)
		return
	}
	handlers := map[string]http.HandlerFunc{
		"/healthz":       s.serveHealth,
		"/readyz":        s.serveReady,
		"/api/v1/status": s.serveStatus,
		"/api/v1/queues": s.serveQueues,
		"/api/v1/queue":  s.serveQueueByQuery,
	}
	handler := handlers[path]
	if strings.HasPrefix(path, queuePrefix) {
		handler = func(w http.ResponseWriter, r *http.Request) {
			s.serveQueue(w, strings.TrimPrefix(r.URL.Path, queuePrefix))
		}
	}
	if h := s.Handlers[path]; h != nil && handler == nil {
		h.ServeHTTP(w, r)
		return
	}
	if handler == nil {
		fail(w, r, http.StatusNotFound, "no such address")
		return
	}
	if allowMethods(w, r, http.MethodGet, http.MethodHead) {
		handler(w, r)
	}
}

func (s *Server) serveQueues(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, errorJSON{"malformed query"})
		return
	}
	limit := defaultLimit
	if v := query.Get("limit"); v != "" {
		limit, err = strconv.Atoi(v)
		if err != nil || limit < 1 || limit > maxLimit {
			writeJSON(w, http.StatusBadRequest, errorJSON{"limit must be 1 to " + strconv.Itoa(maxLimit)})
			return
		}
	}
	st := s.attached()
	if st == nil {
		writeJSON(w, http.StatusServiceUnavailable, errorJSON{s.recovering()})
		return
	}
	prefix := query.Get("prefix")
	list := queuesWith(st, prefix, query.Get("after"), limit+1)
	a := queuesJSON{Queues: make([]queueJSON, 0, min(len(list), limit))}
	for _, q := range list[:min(len(list), limit)] {
		a.Queues = append(a.Queues, queueOf(q))
	}
	if len(list) > limit {
		a.Next = "/api/v1/queues?after=" + escapeName(list[limit-1].Name) + "&limit=" + strconv.Itoa(limit)
		if prefix != "" {
			a.Next += "&prefix=" + escapeName(prefix)
		}
	}
	writeJSON(w, http.StatusOK, a)
}

// queuesWith lists at most limit queues whose names begin with prefix and come after after, in byte order.
func queuesWith(st Store, prefix, after string, limit int) []storage.QueueStats {
	var list []storage.QueueStats
	if after < prefix { // the names with this prefix begin with the prefix itself, which "after" would leave out
		if q, ok := st.Queue([]byte(prefix)); ok {
			list = append(list, q)
		}
		after = prefix
	}
	list = append(list, st.Queues(after, limit)...)
	for i, q := range list {
		if i == limit || !strings.HasPrefix(q.Name, prefix) {
			return list[:i]
		}
	}
	return list
}

func (s *Server) serveQueueByQuery(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || !query.Has("name") {
		writeJSON(w, http.StatusBadRequest, errorJSON{"the query must be name=, percent-encoded"})
		return
	}
	s.serveQueue(w, query.Get("name"))
}

func (s *Server) serveQueue(w http.ResponseWriter, name string) {
	st := s.attached()
	if st == nil {
		writeJSON(w, http.StatusServiceUnavailable, errorJSON{s.recovering()})
		return
	}
	q, ok := st.Queue([]byte(name))
	if !ok {
		writeJSON(w, http.StatusNotFound, errorJSON{"no such queue"})
		return
	}
	writeJSON(w, http.StatusOK, queueOf(q))
}

func queueOf(q storage.QueueStats) queueJSON {
	return queueJSON{Name: text(q.Name), NameEscaped: escapeName(q.Name), countsJSON: counts(q)}
}

func counts(q storage.QueueStats) countsJSON {
	return countsJSON{
		Items: q.Items, Ready: q.Ready, Delayed: q.Delayed, Reserved: q.Reserved, Dead: q.Dead,
		Bytes: q.Bytes, AgeMS: q.Age.Milliseconds(), Waiters: q.Waiters,
		EnqueuedTotal: q.TotalItems, AckedTotal: q.TotalAcked, PurgedTotal: q.TotalPurged, ExpiredTotal: q.TotalExpired,
		ReturnedTotal: q.Returned, GetsTotal: q.Gets, GetMissesTotal: q.GetMisses,
	}
}

func text(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// escapeName is a name for paths and queries: every byte but A-Z a-z 0-9 - _ . ~ is %XX. "." and ".." are escaped whole.
func escapeName(name string) string {
	if name == "." || name == ".." {
		return strings.Repeat("%2E", len(name))
	}
	return string(appendEscaped(nil, name, "0123456789ABCDEF"))
}

// writeJSON answers with v and a newline.
func writeJSON(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types always marshal
	}
	writeBody(w, code, "application/json", append(body, '\n'))
}

// writeBody sends a whole answer. A failed write means that the client has gone; there is nobody to tell.
func writeBody(w http.ResponseWriter, code int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	w.Write(body)
}
