package admin_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"qserver/admin"
	"qserver/storage"
)

func master() (admin.Master, bool) {
	return admin.Master{
		Host: "db1", Port: 1978, Position: time.Unix(1_700_000_000, 0), Interval: 40 * time.Millisecond, Delay: 250 * time.Millisecond,
	}, true
}

func TestDatabaseArgument(t *testing.T) {
	s := &admin.Server{}
	s.Attach(newStore())
	for _, tt := range []struct {
		query string
		code  int
	}{
		{"", 200}, {"?DB=", 200}, {"?DB=0", 200}, {"?DB=00", 200}, {"?DB=casket.kct", 200}, {"?DB=casket%2ekct", 200},
		{"?DB=1", 400}, {"?DB=-0", 400}, {"?DB=casket", 400}, {"?DB=/data/casket.kct", 400}, {"?DB=%00", 400}, {"?DB=0x0", 400},
	} {
		w := ask(t, s, "GET", "/rpc/status"+tt.query)
		if w.Code != tt.code {
			t.Errorf("status%s: got %d, want %d", tt.query, w.Code, tt.code)
		}
		if tt.code == 400 && w.Body.String() != "ERROR\tno such database\n" {
			t.Errorf("status%s: got %q", tt.query, w.Body)
		}
	}
}

func TestProcedureCodes(t *testing.T) {
	for _, tt := range []struct {
		name, method, target string
		body                 string
		recovering           bool
		change               func(*admin.Server, *fakeStore)
		code                 int
		want                 string
		calls                []string
	}{
		{name: "name is decoded", method: "GET", target: "/rpc/%76oid", code: 200},
		{name: "unknown", method: "GET", target: "/rpc/", code: 501, want: "ERROR\tnot implemented: \n"},
		{name: "unknown with odd bytes", method: "GET", target: "/rpc/a%0ab", code: 501, want: "ERROR\tnot%20implemented%3a%20a%0ab\n"},
		{name: "unknown by any method", method: "DELETE", target: "/rpc/vacuum", code: 501, want: "ERROR\tnot implemented: vacuum\n"},
		{name: "void while recovering", method: "GET", target: "/rpc/void", recovering: true, code: 200},
		{name: "status while recovering", method: "GET", target: "/rpc/status", recovering: true, code: 503, want: "ERROR\trecovery\n"},
		{name: "report while recovering", method: "GET", target: "/rpc/report", recovering: true, code: 503, want: "ERROR\trecovery\n"},
		{name: "clear off", method: "POST", target: "/rpc/clear", change: forbidClear, code: 450, want: "ERROR\tDB: 4: no permission: clear not allowed\n"},
		{name: "clear by HEAD", method: "HEAD", target: "/rpc/clear", code: 405, want: "ERROR\tmethod not allowed; allowed: GET, POST\n"},
		{name: "clear other database", method: "POST", target: "/rpc/clear?DB=1", code: 400, want: "ERROR\tno such database\n"},
		{name: "clear fails", method: "POST", target: "/rpc/clear", change: failing, code: 500, want: "ERROR\tDB: 9: system error: disk gone\n", calls: []string{"purge all"}},
		{name: "synchronize soft", method: "POST", target: "/rpc/synchronize", code: 200, calls: []string{"sync"}},
		{name: "synchronize hard", method: "POST", target: "/rpc/synchronize?hard", code: 200, calls: []string{"sync", "checkpoint"}},
		{name: "synchronize fails", method: "POST", target: "/rpc/synchronize", change: failing, code: 500, want: "ERROR\tDB: 9: system error: disk gone\n", calls: []string{"sync"}},
		{name: "log files by GET", method: "GET", target: "/rpc/ulog_remove", code: 405, want: "ERROR\tmethod not allowed; allowed: POST\n"},
		{name: "log files", method: "GET", target: "/rpc/ulog_list", code: 200,
			want: "/data/casket.kct/log/1.ulog\t64:1700000000000000000\n/data/casket.kct/log/2.ulog\t128:1800000000000000000\n"},
		{name: "log files removed", method: "POST", target: "/rpc/ulog_remove", code: 200, calls: []string{"remove logs"}},
		{name: "log files older than now", method: "POST", target: "/rpc/ulog_remove?ts=now", code: 200, calls: []string{"remove logs"}},
		{name: "log files as old as", method: "POST", target: "/rpc/ulog_remove?ts=1700000000000000000", code: 200, calls: []string{"remove logs"}},
		{name: "log files older than all", method: "POST", target: "/rpc/ulog_remove?ts=1699999999999999999", code: 200},
		{name: "log files, bad time", method: "POST", target: "/rpc/ulog_remove?ts=yesterday", code: 400, want: "ERROR\tts must be nanoseconds since 1970, or now\n"},
		{name: "log files fail", method: "POST", target: "/rpc/ulog_remove", change: failing, code: 500, want: "ERROR\tDB: 9: system error: disk gone\n", calls: []string{"remove logs"}},
		{name: "body at the limit", method: "POST", target: "/rpc/void", body: strings.Repeat("x", 1<<20), code: 200},
		{name: "body over the limit", method: "POST", target: "/rpc/void", body: strings.Repeat("x", 1<<20+1), code: 413, want: "ERROR\tbody too large\n"},
		{name: "signal", method: "GET", target: "/rpc/status?SIGNAL=a", code: 501, want: "ERROR\tnot implemented: SIGNAL\n"},
		{name: "signal echoed", method: "GET", target: "/rpc/echo?SIGNAL=a", code: 200, want: "SIGNAL\ta\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st, s := newStore(), &admin.Server{AllowFlushAll: true}
			st.logs = []storage.LogFile{
				{Path: "/data/casket.kct/log/1.ulog", Size: 64, Modified: time.Unix(1_700_000_000, 0)},
				{Path: "/data/casket.kct/log/2.ulog", Size: 128, Modified: time.Unix(1_800_000_000, 0), Needed: true},
			}
			if tt.change != nil {
				tt.change(s, st)
			}
			if !tt.recovering {
				s.Attach(st)
			}
			w := askBody(t, s, tt.method, tt.target, tt.body)
			if w.Code != tt.code || w.Body.String() != tt.want {
				t.Errorf("got %d %q, want %d %q", w.Code, w.Body, tt.code, tt.want)
			}
			if got := st.done(); !slices.Equal(got, tt.calls) {
				t.Errorf("calls: got %q, want %q", got, tt.calls)
			}
		})
	}
}

func forbidClear(s *admin.Server, _ *fakeStore) { s.AllowFlushAll = false }

func failing(_ *admin.Server, st *fakeStore) { st.failure = errors.New("disk gone") }

func TestPlainValues(t *testing.T) {
	st, s := newStore(), &admin.Server{Version: "1.2.3"}
	s.Attach(st)
	st.stats.Path = "/data/\x01\t\n\x7f\xff" + strings.Repeat("é", 300)
	for _, target := range []string{"/rpc/status", "/rpc/report"} {
		w := ask(t, s, "GET", target)
		if got := w.Header().Get("Content-Type"); got != tsv {
			t.Errorf("%s: type %q, want %q", target, got, tsv)
		}
		for line := range strings.Lines(w.Body.String()) {
			if _, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); len(value) > 255 || strings.ContainsAny(value, "\t\x01\x7f") {
				t.Errorf("%s: not plain: %q", target, line)
			}
		}
	}
}

func TestClearNotFromBrowsers(t *testing.T) {
	for _, tt := range []struct {
		name, method string
		header       []string
		code         int
	}{
		{"tool", "GET", nil, 200},
		{"tool by POST", "POST", nil, 200},
		{"page on this server", "POST", []string{"Origin", "http://localhost", "Sec-Fetch-Site", "same-origin", "User-Agent", "Mozilla/5.0"}, 200},
		{"image in a page", "GET", []string{"Referer", "http://evil.example/"}, 403},
		{"fetch", "GET", []string{"Origin", "http://evil.example"}, 403},
		{"address bar", "GET", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"}, 403},
		{"Sec-Fetch of a kind to come", "GET", []string{"Sec-Fetch-Storage-Access", "active"}, 403},
		{"page that hides where it is from", "GET", []string{"User-Agent", "Mozilla/5.0 (X11; Linux x86_64)"}, 403},
		{"form in a page", "POST", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"form in an old browser", "POST", []string{"Origin", "http://evil.example"}, 403},
		{"form in a sandbox", "POST", []string{"Origin", "null"}, 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st, s := newStore(), &admin.Server{AllowFlushAll: true}
			s.Attach(st)
			w := ask(t, s, tt.method, "/rpc/clear", tt.header...)
			if w.Code != tt.code {
				t.Errorf("got %d %q, want %d", w.Code, w.Body, tt.code)
			}
			if purged := len(st.done()) > 0; purged != (tt.code == 200) {
				t.Errorf("purged: got %v", purged)
			}
			if got := w.Header().Get("Content-Type"); got != tsv {
				t.Errorf("type: got %q, want %q", got, tsv)
			}
		})
	}
}

func TestNoWriteByReading(t *testing.T) {
	st, s := newStore(), &admin.Server{} // without AllowFlushAll nothing at all changes by GET
	s.Attach(st)
	for _, name := range []string{"void", "echo", "report", "status", "clear", "synchronize", "ulog_list", "ulog_remove", "set", "vacuum"} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
			ask(t, s, method, "/rpc/"+name+"?hard&command=x&DB=0")
		}
	}
	if got := st.done(); len(got) > 0 {
		t.Errorf("calls: got %q, want none", got)
	}
}
