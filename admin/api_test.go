package admin_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"qserver/admin"
	"qserver/storage"
)

const mailJSON = `{"name":"mail","name_escaped":"mail","items":5,"ready":3,"delayed":0,"reserved":2,"dead":0,"bytes":500,` +
	`"age_ms":1500,"waiters":0,"enqueued_total":11,"acked_total":0,"purged_total":0,"expired_total":0,"returned_total":0,` +
	`"gets_total":9,"get_misses_total":0}`

func TestAPI(t *testing.T) {
	for _, tt := range []struct {
		name, method, target string
		recovering           bool
		code                 int
		want                 string
		allow                string
	}{
		{name: "queue", method: "GET", target: "/api/v1/queues/mail", code: 200, want: mailJSON},
		{name: "queue by query", method: "GET", target: "/api/v1/queue?name=mail", code: 200, want: mailJSON},
		{name: "list", method: "GET", target: "/api/v1/queues?prefix=ma", code: 200, want: `{"queues":[` + mailJSON + `]}`},
		{name: "page", method: "GET", target: "/api/v1/queues?limit=1", code: 200,
			want: `{"queues":[` + mailJSON + `],"next":"/api/v1/queues?after=mail\u0026limit=1"}`},
		{name: "empty list", method: "GET", target: "/api/v1/queues?after=z", code: 200, want: `{"queues":[]}`},
		{name: "unknown queue", method: "GET", target: "/api/v1/queues/mails", code: 404, want: `{"error":"no such queue"}`},
		{name: "no name", method: "GET", target: "/api/v1/queues/", code: 404, want: `{"error":"no such queue"}`},
		{name: "no name in query", method: "GET", target: "/api/v1/queue", code: 400, want: `{"error":"the query must be name=, percent-encoded"}`},
		{name: "limit 0", method: "GET", target: "/api/v1/queues?limit=0", code: 400, want: `{"error":"limit must be 1 to 1000"}`},
		{name: "limit too large", method: "GET", target: "/api/v1/queues?limit=1001", code: 400, want: `{"error":"limit must be 1 to 1000"}`},
		{name: "limit no number", method: "GET", target: "/api/v1/queues?limit=1e3", code: 400, want: `{"error":"limit must be 1 to 1000"}`},
		{name: "bad query", method: "GET", target: "/api/v1/queues?prefix=%zz", code: 400, want: `{"error":"malformed query"}`},
		{name: "other address", method: "GET", target: "/", code: 404, want: `{"error":"no such address"}`},
		{name: "no profiler", method: "GET", target: "/debug/pprof/", code: 404, want: `{"error":"no such address"}`},
		{name: "prefix is not the path", method: "GET", target: "/api/v1/queues%2Fmail", code: 404, want: `{"error":"no such address"}`},
		{name: "POST", method: "POST", target: "/api/v1/queues/mail", code: 405, want: `{"error":"method not allowed; allowed: GET, HEAD"}`, allow: "GET, HEAD"},
		{name: "DELETE", method: "DELETE", target: "/api/v1/queues", code: 405, want: `{"error":"method not allowed; allowed: GET, HEAD"}`, allow: "GET, HEAD"},
		{name: "OPTIONS", method: "OPTIONS", target: "/readyz", code: 405, want: `{"error":"method not allowed; allowed: GET, HEAD"}`, allow: "GET, HEAD"},
		{name: "list while recovering", method: "GET", target: "/api/v1/queues", recovering: true, code: 503, want: `{"error":"recovery"}`},
		{name: "queue while recovering", method: "GET", target: "/api/v1/queues/mail", recovering: true, code: 503, want: `{"error":"recovery"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &admin.Server{}
			if !tt.recovering {
				s.Attach(newStore())
			}
			w := ask(t, s, tt.method, tt.target)
			if got := strings.TrimSuffix(w.Body.String(), "\n"); w.Code != tt.code || got != tt.want {
				t.Errorf("got %d %s\nwant %d %s", w.Code, got, tt.code, tt.want)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("type: got %q", got)
			}
			if got := w.Header().Get("Allow"); got != tt.allow {
				t.Errorf("Allow: got %q, want %q", got, tt.allow)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	started := time.Now().Add(-time.Hour)
	s := &admin.Server{Version: "1.2.3", StartedAt: started, Traffic: traffic}
	var got struct {
		Version  string
		Started  time.Time `json:"started_at"`
		UptimeMS int64     `json:"uptime_ms"`
		Ready    bool
		Reason   string
		Path     string
		Messages map[string]int64
		Log      map[string]int64
		Tree     map[string]int64
		Memory   map[string]int64
		Conns    map[string]int64 `json:"connections"`
	}
	read := func() {
		t.Helper()
		w := ask(t, s, "GET", "/api/v1/status")
		if w.Code != 200 {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
	}
	read()
	if got.Ready || got.Reason != "recovery" || got.Messages != nil || got.Version != "1.2.3" || got.UptimeMS < 3_600_000 || !got.Started.Equal(started) {
		t.Errorf("while recovering: got %+v", got)
	}
	s.Attach(newStore())
	got.Reason = ""
	read()
	if !got.Ready || got.Reason != "" || got.Path != "/data/casket.kct" {
		t.Errorf("ready: got %+v", got)
	}
	for _, tt := range []struct {
		part string
		got  map[string]int64
		want string
	}{
		{"messages", got.Messages, "map[acked_total:8 age_ms:1500 bytes:700 dead:3 delayed:1 enqueued_total:20 expired_total:1 get_misses_total:0 " +
			"gets_total:0 held_limit_total:1 items:7 leases_lapsed_total:2 purged_total:1 queues:2 ready:4 reserved:2 returned_total:6 sessions:5 waiters:1]"},
		{"log", got.Log, "map[bytes:1048576 checkpoints_total:3 lsn:30 synced_lsn:29 syncs_total:12]"},
		{"tree", got.Tree, "map[bytes:65536 lsn:20 used_bytes:4096]"},
		{"memory", got.Memory, "map[bytes:1000 limit_bytes:2000]"},
		{"connections", got.Conns, "map[busy:1 http_open:0 open:4 opened_total:40]"},
	} {
		if got := fmt.Sprint(tt.got); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.part, got, tt.want)
		}
	}
}

// oddNames are names that a queue may have where keys have no options, and that paths make hard.
var oddNames = []string{
	"a/b", "a+b", "a b", "a%2Fb", "a%252Fb", "..", ".", "a?x=1", "a#b", "héllo", "\xff", "\x01\x00", "/", "//", "../x", "a//b/", "<script>", `"\`,
	"queues", "%", "%zz", "a;b", "a&b=c", "*", "~", "a\u2028b",
}

func TestOddNames(t *testing.T) {
	st, s := newStore(), &admin.Server{}
	s.Attach(st)
	st.queues = nil
	for i, name := range oddNames {
		st.queues = append(st.queues, storage.QueueStats{Name: name, Items: int64(i)})
	}
	for i, name := range oddNames {
		targets := []string{
			"/api/v1/queues/" + url.PathEscape(name), "/api/v1/queue?name=" + url.QueryEscape(name), "/api/v1/queues/" + escapeAll(name),
		}
		if !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || strings.ContainsRune("%?#\ufffd", r) }) {
			targets = append(targets, "/api/v1/queues/"+name) // as it is
		}
		for _, target := range targets {
			w := ask(t, s, "GET", target)
			var got struct {
				NameEscaped string `json:"name_escaped"`
				Items       int
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || got.Items != i {
				t.Errorf("%q by %s: got %d %s", name, target, w.Code, w.Body)
				continue
			}
			if back, err := url.PathUnescape(got.NameEscaped); err != nil || back != name {
				t.Errorf("%q: name_escaped %q", name, got.NameEscaped)
			}
			if strings.ContainsAny(w.Body.String(), "<>\u2028") {
				t.Errorf("%q: not safe in a page: %s", name, w.Body)
			}
		}
	}
}

func escapeAll(name string) string {
	var b strings.Builder
	for i := range len(name) {
		fmt.Fprintf(&b, "%%%02x", name[i])
	}
	return b.String()
}

func TestPages(t *testing.T) {
	st, s := newStore(), &admin.Server{}
	s.Attach(st)
	st.queues = nil
	for _, name := range slices.Concat(oddNames, []string{"m", "m+", "m+1", "m+2", "m+2\xff", "m,", "n"}) {
		st.queues = append(st.queues, storage.QueueStats{Name: name})
	}
	for _, prefix := range []string{"", "m", "m+", "m+2", "a", "a%", "\xff", "none", "."} {
		var want []string
		for _, q := range st.queues {
			if strings.HasPrefix(q.Name, prefix) {
				want = append(want, q.Name)
			}
		}
		slices.Sort(want)
		for limit := 1; limit <= len(want)+1; limit++ {
			if got := walk(t, s, fmt.Sprintf("/api/v1/queues?limit=%d&prefix=%s", limit, escapeAll(prefix)), limit); !slices.Equal(got, want) {
				t.Errorf("prefix %q, limit %d: got %q, want %q", prefix, limit, got, want)
			}
		}
	}
}

// walk follows the pages from target on and returns all names.
func walk(t *testing.T, s *admin.Server, target string, limit int) (names []string) {
	t.Helper()
	for target != "" {
		var page struct {
			Queues []struct {
				NameEscaped string `json:"name_escaped"`
			}
			Next string
		}
		w := ask(t, s, "GET", target)
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != 200 {
			t.Fatalf("%s: got %d %s", target, w.Code, w.Body)
		}
		if len(page.Queues) > limit {
			t.Fatalf("%s: %d queues", target, len(page.Queues))
		}
		for _, q := range page.Queues {
			name, err := url.PathUnescape(q.NameEscaped)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		target = page.Next
	}
	return names
}

// oneQueue knows a single queue and remembers which one it was asked for.
type oneQueue struct {
	*fakeStore
	asked *string
}

func (o oneQueue) Queue(name []byte) (storage.QueueStats, bool) {
	*o.asked = string(name)
	return storage.QueueStats{Name: string(name)}, true
}

// FuzzQueuePath sends any path, raw and escaped: it never panics, and the name asked for is the path's rest, decoded once.
func FuzzQueuePath(f *testing.F) {
	for _, name := range oddNames {
		f.Add(name)
	}
	var asked string
	s := &admin.Server{}
	s.Attach(oneQueue{newStore(), &asked})
	f.Fuzz(func(t *testing.T, name string) {
		if w := ask(t, s, "GET", "/api/v1/queues/"+escapeAll(name)); w.Code != 200 || asked != name {
			t.Fatalf("escaped %q: got %d, asked for %q", name, w.Code, asked)
		}
		if strings.ContainsAny(name, "\r\n") {
			return // would be more than a path
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET /api/v1/queues/" + name + " HTTP/1.1\r\nHost: localhost\r\n\r\n")))
		if err != nil {
			return
		}
		asked = ""
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		raw, _, _ := strings.Cut(r.RequestURI, "?")
		rest, ok := strings.CutPrefix(raw, "/api/v1/queues/")
		if !ok {
			return
		}
		want, err := url.PathUnescape(rest)
		if err != nil || asked != want || w.Code != 200 {
			t.Errorf("raw %q: got %d, asked for %q, want %q (%v)", raw, w.Code, asked, want, err)
		}
	})
}
