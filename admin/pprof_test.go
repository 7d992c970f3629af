package admin_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"qserver/admin"
)

func TestPprof(t *testing.T) {
	for _, tt := range []struct {
		method, target string
		code           int    // with Pprof; without it is 404
		contains       string // in the answer
	}{
		{"GET", "/debug/pprof/", 200, "goroutine"},
		{"GET", "/debug/pprof/goroutine?debug=1", 200, "goroutine profile:"},
		{"GET", "/debug/pprof/symbol", 200, "num_symbols"},
		{"POST", "/debug/pprof/symbol", 200, "num_symbols"},
		{"GET", "/debug/pprof/none", 404, ""},
		{"GET", "/debug/pprof/cmdline", 404, "no such address"},
		{"GET", "/debug/pprof", 404, "no such address"},
		{"POST", "/debug/pprof/heap", 405, "allowed: GET, HEAD"},
		{"GET", "/debug/vars", 404, ""},
	} {
		on := ask(t, &admin.Server{Pprof: true}, tt.method, tt.target)
		if on.Code != tt.code || !strings.Contains(on.Body.String(), tt.contains) {
			t.Errorf("%s %s: got %d %.80s, want %d with %q", tt.method, tt.target, on.Code, on.Body, tt.code, tt.contains)
		}
		if off := ask(t, &admin.Server{}, tt.method, tt.target); off.Code != 404 && off.Code != 405 || strings.Contains(off.Body.String(), "goroutine") {
			t.Errorf("%s %s without Pprof: got %d %.80s", tt.method, tt.target, off.Code, off.Body)
		}
	}
}

// TestPprofProfiles takes the profiles that go tool pprof reads: gzipped, and not empty.
func TestPprofProfiles(t *testing.T) {
	s := &admin.Server{Pprof: true}
	for _, target := range []string{"/debug/pprof/heap", "/debug/pprof/profile?seconds=1"} {
		w := ask(t, s, "GET", target)
		z, err := gzip.NewReader(bytes.NewReader(w.Body.Bytes()))
		if w.Code != 200 || err != nil {
			t.Fatalf("%s: got %d, %v", target, w.Code, err)
		}
		if b, err := io.ReadAll(z); err != nil || len(b) == 0 {
			t.Errorf("%s: got %d bytes, %v", target, len(b), err)
		}
	}
}

// TestPprofIsGuarded shows that web pages get at profiles as little as at anything else.
func TestPprofIsGuarded(t *testing.T) {
	s := &admin.Server{Pprof: true}
	if w := ask(t, s, "GET", "/debug/pprof/heap", "Host", "evil.example"); w.Code != http.StatusMisdirectedRequest {
		t.Errorf("foreign host: got %d", w.Code)
	}
	if w := ask(t, s, "POST", "/debug/pprof/symbol", "Origin", "http://evil.example"); w.Code != http.StatusForbidden {
		t.Errorf("foreign page: got %d", w.Code)
	}
}
