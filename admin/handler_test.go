package admin_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"qserver/admin"
	"qserver/storage"
)

func TestHealth(t *testing.T) {
	const ok = `{"status":"ok"}`
	unavailable := func(reason string) string { return `{"status":"unavailable","error":"` + reason + `"}` }
	st, s := newStore(), &admin.Server{}
	progress := ""
	s.Recovery = func() string { return progress }
	for _, step := range []struct {
		name  string
		do    func()
		code  int
		ready string
	}{
		{"listening", func() {}, 503, unavailable("recovery")},
		{"recovering", func() { progress = "recovery: log, 40 %" }, 503, unavailable("recovery: log, 40 %")},
		{"recovered", func() { s.Attach(st) }, 200, ok},
		{"disk full", func() { st.set(func() { st.writable = fmt.Errorf("door: %w", storage.ErrDiskFull) }) }, 503, unavailable("disk full")},
		{"space again", func() { st.set(func() { st.writable = nil }) }, 200, ok},
		{"log failed", func() { st.set(func() { st.writable = errors.New("update log: sync: input/output error") }) }, 503, unavailable("update log: sync: input/output error")},
		{"store closed", func() { st.set(func() { st.writable = storage.ErrClosed }) }, 503, unavailable("shutdown")},
		{"open", func() { st.set(func() { st.writable = nil }) }, 200, ok},
		{"draining", s.Drain, 503, unavailable("shutdown")},
	} {
		step.do()
		if w := ask(t, s, "GET", "/healthz"); w.Code != 200 || strings.TrimSpace(w.Body.String()) != ok {
			t.Errorf("%s: healthz: got %d %s", step.name, w.Code, w.Body)
		}
		if w := ask(t, s, "GET", "/readyz"); w.Code != step.code || strings.TrimSpace(w.Body.String()) != step.ready {
			t.Errorf("%s: readyz: got %d %s, want %d %s", step.name, w.Code, w.Body, step.code, step.ready)
		}
		if w := ask(t, s, "HEAD", "/readyz"); w.Code != step.code {
			t.Errorf("%s: HEAD readyz: got %d, want %d", step.name, w.Code, step.code)
		}
	}
}

func TestHosts(t *testing.T) {
	s := &admin.Server{Hosts: []string{"Queue.Example", "10.0.0.5", "[2001:DB8::1]", "svc:1978", ""}}
	s.Attach(newStore())
	for _, tt := range []struct {
		host string
		ok   bool
	}{
		{"localhost", true}, {"localhost:1978", true}, {"LOCALHOST:1", true}, {"localhost.", true}, {"localhost.:80", true},
		{"127.0.0.1", true}, {"127.0.0.1:1978", true}, {"127.9.9.9:5", true}, {"[::1]", true}, {"[::1]:1978", true}, {"[::ffff:127.0.0.1]:1", true},
		{"", true}, {":1978", true},
		{"queue.example", true}, {"QUEUE.example:8080", true}, {"10.0.0.5:1978", true}, {"[2001:db8::1]:1978", true}, {"svc", true},
		{"evil.example", false}, {"evil.example:1978", false}, {"localhost.evil.example", false}, {"127.0.0.1.evil.example", false},
		{"10.0.0.6", false}, {"0.0.0.0:1978", false}, {"[::]:1978", false}, {"192.168.0.1", false}, {"x.queue.example", false},
		{"queue.example.evil", false}, {"localhost:80:80", false}, {"0x7f000001", false}, {"2130706433", false}, {"localhost@evil.example", false},
	} {
		for _, target := range []string{"/readyz", "/api/v1/queues/mail", "/rpc/status", "/nowhere"} {
			w := ask(t, s, "GET", target, "Host", tt.host)
			if ok := w.Code != http.StatusMisdirectedRequest; ok != tt.ok {
				t.Errorf("Host %q, %s: got %d %s", tt.host, target, w.Code, w.Body)
			}
			if !tt.ok && strings.Count(w.Body.String(), "\n") != 1 {
				t.Errorf("Host %q: not one line: %q", tt.host, w.Body)
			}
		}
	}
}

func TestSecurityHeaders(t *testing.T) {
	s := &admin.Server{}
	for _, target := range []string{"/healthz", "/readyz", "/nowhere", "/rpc/void", "/rpc/none", "/api/v1/queues"} {
		h := ask(t, s, "GET", target).Header()
		for key, want := range map[string]string{
			"Cache-Control":                "no-store",
			"Content-Security-Policy":      "default-src 'none'; frame-ancestors 'none'",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Referrer-Policy":              "no-referrer",
			"X-Content-Type-Options":       "nosniff",
			"X-Frame-Options":              "DENY",
			"Access-Control-Allow-Origin":  "",
		} {
			if got := h.Get(key); got != want {
				t.Errorf("%s: %s: got %q, want %q", target, key, got, want)
			}
		}
	}
}

func TestKeepAliveAndClose(t *testing.T) {
	s := &admin.Server{}
	s.Attach(newStore())
	addr := serve(t, s)
	for _, tt := range []struct {
		name, send, want string
		closes           bool
	}{
		{"HTTP/1.1", "GET /rpc/void HTTP/1.1\r\nHost: localhost\r\n\r\n", expect("200 OK", tsv, ""), false},
		{"HTTP/1.1 close", "GET /rpc/void HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", expect("200 OK", tsv, "", "Connection: close\r\n"), true},
		{"HTTP/1.0", "GET /rpc/void HTTP/1.0\r\n\r\n", strings.Replace(expect("200 OK", tsv, ""), "1.1", "1.0", 1), true},
		{"HTTP/1.0 keep-alive", "GET /rpc/void HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
			strings.Replace(expect("200 OK", tsv, "", "Connection: keep-alive\r\n"), "1.1", "1.0", 1), false},
		{"pipeline", strings.Repeat("GET /rpc/echo?a=b HTTP/1.1\r\nHost: localhost\r\n\r\n", 2), expect("200 OK", tsv, "a\tb\n"), false},
		{"error keeps the connection", "POST /rpc/vacuum HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\na\tb",
			expect("501 Not Implemented", tsv, "ERROR\tnot implemented: vacuum\n"), false},
		{"wrong host", "GET /rpc/status HTTP/1.1\r\nHost: evil.example\r\n\r\n",
			expect("421 Misdirected Request", tsv, "ERROR\tthis server does not answer to the host of the request; allow it by name\n"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, addr)
			for range 2 {
				c.send(tt.send)
				if got := strings.Replace(c.answer(false), "HTTP/1.0 501", "HTTP/1.1 501", 1); got != tt.want {
					t.Fatalf("got %q\nwant %q", got, tt.want)
				}
				if tt.closes {
					c.closed()
					return
				}
			}
		})
	}
}

func TestHeaderLimit(t *testing.T) {
	s := &admin.Server{}
	c := dial(t, serve(t, s))
	c.send("GET /rpc/void HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 21<<10))
	if line, err := c.r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 431 ") {
		t.Errorf("got %q, %v", line, err)
	}
}

func TestConnectionLimit(t *testing.T) {
	s := &admin.Server{MaxConns: 2}
	addr := serve(t, s)
	const request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	first, second := dial(t, addr), dial(t, addr)
	for _, c := range []*wire{first, second} {
		c.send(request)
		c.answer(false)
	}
	dial(t, addr).closed()
	first.send(strings.Replace(request, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))
	first.answer(false)
	first.closed()
	second.send(request)
	second.answer(false)
}

func TestShutdown(t *testing.T) {
	s := &admin.Server{}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	c := dial(t, ln.Addr().String())
	c.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	c.answer(false)
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-served; err != http.ErrServerClosed {
		t.Errorf("Serve: got %v, want %v", err, http.ErrServerClosed)
	}
	c.closed()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

// Many clients ask everything at once while the store comes and goes bad.
func TestConcurrency(t *testing.T) {
	st := newStore()
	s := &admin.Server{AllowFlushAll: true, Traffic: traffic, Master: master, CmdDir: commands(t), CopyDir: t.TempDir()}
	addr := serve(t, s)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}, Timeout: 20 * time.Second}
	t.Cleanup(client.CloseIdleConnections)
	targets := []string{
		"/healthz", "/readyz", "/api/v1/status", "/api/v1/queues?prefix=m", "/api/v1/queues/mail", "/api/v1/queue?name=..",
		"/rpc/report", "/rpc/status?DB=0", "/rpc/echo?a=%00", "/rpc/clear", "/rpc/ulog_list", "/rpc/synchronize?hard", "/rpc/synchronize?command=copy",
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 3 * len(targets) {
				target := targets[(i+j)%len(targets)]
				answer, err := client.Post("http://"+addr+target, "", nil)
				if !strings.HasPrefix(target, "/rpc/") {
					answer, err = client.Get("http://" + addr + target)
				}
				if err != nil {
					t.Errorf("%s: %v", target, err)
					return
				}
				answer.Body.Close()
				switch answer.StatusCode {
				case 200, 404, 405, 450, 503:
				default:
					t.Errorf("%s: got %s", target, answer.Status)
				}
			}
		})
	}
	s.Attach(st)
	st.set(func() { st.writable = storage.ErrDiskFull })
	wg.Wait()
}
