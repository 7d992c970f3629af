package admin_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"qserver/admin"
	"qserver/storage"
)

var _ admin.Store = (*storage.Store)(nil)

// fakeStore is a store of counters. Its funcs, where set, take the place of what it would do.
type fakeStore struct {
	mu       sync.Mutex // guards all below
	stats    storage.Stats
	queues   []storage.QueueStats
	logs     []storage.LogFile
	writable error
	failure  error // of Sync, Checkpoint, PurgeAll, RemoveLogs
	copyTo   func(ctx context.Context, path string) error
	calls    []string
}

func (f *fakeStore) did(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
}

// done returns the calls that change something and forgets them.
func (f *fakeStore) done() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

func (f *fakeStore) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeStore) Stats() storage.Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

func (f *fakeStore) Queue(name []byte) (storage.QueueStats, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.queues {
		if q.Name == string(name) {
			return q, true
		}
	}
	return storage.QueueStats{}, false
}

func (f *fakeStore) Queues(after string, limit int) []storage.QueueStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(f.queues), func(q storage.QueueStats) bool { return q.Name <= after })
	slices.SortFunc(list, func(a, b storage.QueueStats) int { return cmp.Compare(a.Name, b.Name) })
	if limit > 0 && len(list) > limit {
		list = list[:limit]
	}
	return list
}

func (f *fakeStore) Writable() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writable
}

func (f *fakeStore) PurgeAll() (int64, error) {
	f.did("purge all")
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats.Items, f.failure
}

func (f *fakeStore) Sync() error {
	f.did("sync")
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failure
}

func (f *fakeStore) Checkpoint(context.Context) error {
	f.did("checkpoint")
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failure
}

func (f *fakeStore) CopyTo(ctx context.Context, path string) error {
	f.did("copy")
	if f.copyTo != nil {
		return f.copyTo(ctx, path)
	}
	return os.WriteFile(path, []byte("tree"), 0o600)
}

func (f *fakeStore) LogFiles() []storage.LogFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.logs
}

func (f *fakeStore) RemoveLogs() (int, error) {
	f.did("remove logs")
	f.mu.Lock()
	defer f.mu.Unlock()
	return 1, f.failure
}

// newStore is a store with 7 live messages in data folder /data/casket.kct.
func newStore() *fakeStore {
	return &fakeStore{
		stats: storage.Stats{
			QueueStats: storage.QueueStats{
				Items: 7, Ready: 4, Delayed: 1, Reserved: 2, Dead: 3, Bytes: 700, Age: 1500 * time.Millisecond, Waiters: 1,
				TotalItems: 20, TotalAcked: 8, TotalPurged: 1, TotalExpired: 1,
			},
			Queues: 2, Sessions: 5, LSN: 30, Synced: 29, TreeLSN: 20, TreeBytes: 65536, TreeUsed: 4096, LogBytes: 1 << 20,
			MemoryBytes: 1000, MemoryLimit: 2000, Returned: 6, LeasesLapsed: 2, HeldLimit: 1, Syncs: 12, Checkpoints: 3,
			Path: "/data/casket.kct",
		},
		queues: []storage.QueueStats{
			{Name: "mail", Items: 5, Ready: 3, Reserved: 2, Bytes: 500, Age: 1500 * time.Millisecond, TotalItems: 11, Gets: 9},
			{Name: "thumbs", Items: 2, Ready: 1, Delayed: 1, Dead: 3, Bytes: 200, Waiters: 1, TotalItems: 9, GetMisses: 4},
		},
	}
}

func traffic() admin.Traffic {
	return admin.Traffic{
		Connections: 4, ConnectionsTotal: 40, Busy: 1, Sets: 10, SetMisses: 1, Removes: 8, RemoveMisses: 2, Gets: 12, GetMisses: 3, Misc: 5,
	}
}

// ask sends one request to the handler of s and returns the recorded answer.
func ask(t testing.TB, s *admin.Server, method, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	return askBody(t, s, method, target, "", header...)
}

// askBody is ask with a body. header alternates names and values; Host is one of them.
func askBody(t testing.TB, s *admin.Server, method, target, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	raw := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", method, target, len(body), body)
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// serve starts s on a port of its own and returns the address. It is closed with the test.
func serve(t *testing.T, s *admin.Server) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-served; err != http.ErrServerClosed {
			t.Errorf("Serve: got %v, want %v", err, http.ErrServerClosed)
		}
	})
	return ln.Addr().String()
}

// wire is one connection that speaks raw bytes.
type wire struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func dial(t *testing.T, addr string) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	t.Cleanup(func() { conn.Close() })
	return &wire{t, conn, bufio.NewReader(conn)}
}

func (c *wire) send(raw string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, raw); err != nil {
		c.t.Fatal(err)
	}
}

var date = regexp.MustCompile(`(?m)^Date: .*\r\n`)

// answer reads one answer as it comes, but for its date. A HEAD's has no body.
func (c *wire) answer(head bool) string {
	c.t.Helper()
	var b strings.Builder
	length := 0
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			c.t.Fatalf("after %q: %v", b.String(), err)
		}
		b.WriteString(line)
		if v, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			length, _ = strconv.Atoi(strings.TrimSpace(v))
		}
		if line == "\r\n" {
			break
		}
	}
	if !head {
		body := make([]byte, length)
		if _, err := io.ReadFull(c.r, body); err != nil {
			c.t.Fatal(err)
		}
		b.Write(body)
	}
	return date.ReplaceAllString(b.String(), "")
}

// closed fails the test unless the server has closed the connection.
func (c *wire) closed() {
	c.t.Helper()
	if _, err := c.r.ReadByte(); err == nil {
		c.t.Error("connection still open")
	}
}

// expect is the exact answer with status, type and body, date apart. extra are header lines, CRLF included, that come behind.
func expect(status, contentType, body string, extra ...string) string {
	return "HTTP/1.1 " + status + "\r\n" +
		"Cache-Control: no-store\r\n" +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\n" +
		"Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n" +
		"Content-Type: " + contentType + "\r\n" +
		"Cross-Origin-Resource-Policy: same-origin\r\n" +
		"Referrer-Policy: no-referrer\r\n" +
		"X-Content-Type-Options: nosniff\r\n" +
		"X-Frame-Options: DENY\r\n" +
		strings.Join(extra, "") + "\r\n" + body
}
