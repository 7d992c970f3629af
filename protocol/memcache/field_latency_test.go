package memcache_test

import (
	"io"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"qserver/protocol/memcache"
	"qserver/storage"
)

// CLI16: commands in two and three writes from a client that lets its system collect small ones. Where both sides wait for each other's
// next packet a step takes 40 ms.
func TestField_CLI16_SmallCommandsAreNotHeldBack(t *testing.T) {
	s := start(t, tcp, func(_ *memcache.Server, o *storage.Options) { o.Sync = storage.SyncNever })
	nc, err := net.Dial("tcp", s.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.(*net.TCPConn).SetNoDelay(false)
	nc.SetDeadline(time.Now().Add(time.Minute))
	steps := 300
	if testing.Short() {
		steps = 50
	}
	var took []time.Duration
	buf := make([]byte, 1000)
	step := func(want string, writes ...string) {
		t.Helper()
		begin := time.Now()
		for _, w := range writes {
			if _, err := io.WriteString(nc, w); err != nil {
				t.Fatal(err)
			}
		}
		n, err := nc.Read(buf) // a reply goes out in one write: one read has all of it
		if got := string(buf[:n]); got != want {
			t.Fatalf("%q: got %q in one read (%v), want %q", writes, got, err, want)
		}
		took = append(took, time.Since(begin))
	}
	for range steps {
		step("STORED\r\n", "set q 7 0 5\r\nhello\r\n")
		step("VALUE q 7 5\r\nhello\r\nEND\r\n", "get q\r\n")
		step("DELETED\r\n", "delete q\r\n")
	}
	prompt := func(what string) {
		slices.Sort(took)
		half := took[len(took)/2]
		t.Logf("%s: half within %v, 99 of 100 within %v", what, half, took[len(took)*99/100])
		if half > 5*time.Millisecond { // a busy machine may stall some steps, but not each second one
			t.Errorf("%s: half of the steps took %v and more, want 5 ms at most", what, half)
		}
		took = nil
	}
	prompt("one write a command")
	if runtime.GOOS != "linux" {
		return // elsewhere the server can't ask its system to acknowledge at once
	}
	for range steps {
		step("STORED\r\n", "set q 7 0 5\r\n", "hello\r\n")
	}
	prompt("body apart")
	for range steps {
		step("STORED\r\n", "set q 7 0 5\r\n", "hello", "\r\n")
	}
	prompt("body and its end apart")
}
