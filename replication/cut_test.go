package replication_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"

	"qserver/internal/faultfs"
	"qserver/replication"
	"qserver/storage"
	"time"
)

// badLine is a connection that ends after some bytes in one direction or the other, or changes one.
type badLine struct {
	net.Conn
	mu               sync.Mutex
	readLeft, toSend int // bytes until it ends; below 0: for ever
	flip             int // byte that is changed; below 0: none
	got              int
}

func (b *badLine) Read(p []byte) (int, error) {
	b.mu.Lock()
	left := b.readLeft
	b.mu.Unlock()
	if left == 0 {
		b.Close()
		return 0, io.ErrUnexpectedEOF
	}
	if left > 0 {
		p = p[:min(len(p), left)]
	}
	n, err := b.Conn.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flip >= b.got && b.flip < b.got+n {
		p[b.flip-b.got] ^= 0x10
	}
	b.got += n
	if left > 0 {
		b.readLeft -= n
	}
	return n, err
}

// SetReadDeadline is soon where a byte is changed: a changed length makes both sides wait.
func (b *badLine) SetReadDeadline(at time.Time) error {
	if soon := time.Now().Add(2 * time.Second); b.flip >= 0 && at.After(soon) {
		at = soon
	}
	return b.Conn.SetReadDeadline(at)
}

func (b *badLine) Write(p []byte) (int, error) {
	b.mu.Lock()
	left := b.toSend
	if left >= 0 && left < len(p) {
		b.mu.Unlock()
		n, _ := b.Conn.Write(p[:left])
		b.Close()
		return n, io.ErrClosedPipe
	}
	if left > 0 {
		b.toSend -= len(p)
	}
	b.mu.Unlock()
	return b.Conn.Write(p)
}

// pair is a master and the store of a slave that has its first copy.
func pair(t *testing.T, slave storage.Options) (m, s *node) {
	t.Helper()
	return pairOf(t, quick(), slave)
}

func pairOf(t *testing.T, master, slave storage.Options) (m, s *node) {
	t.Helper()
	m = newNode(t, 1, master).lead()
	s = newNode(t, 2, slave).follow(pipe(m))
	put(t, m.store, "q", 0, 5)
	caughtUp(t, m, s)
	s.halt()
	return m, s
}

// once connects a slave over a line.
func once(t *testing.T, m, s *node, line *badLine) error {
	t.Helper()
	s.in.Dial = func(context.Context) (net.Conn, error) {
		a, b := net.Pipe()
		line.Conn = a
		go m.out.ServeConn(b, true)
		return line, nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := replication.Once(s.in, ctx)
	if ctx.Err() != nil {
		t.Fatal("the connection did not end")
	}
	return err
}

// conversation is how many bytes a slave reads until it has two new messages and a heartbeat.
func conversation(t *testing.T, m, s *node) int {
	t.Helper()
	put(t, m.store, "q", 5, 2)
	line := &badLine{readLeft: -1, toSend: -1, flip: -1}
	s.in.Dial = func(context.Context) (net.Conn, error) {
		a, b := net.Pipe()
		line.Conn = a
		go m.out.ServeConn(b, true)
		return line, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- replication.Once(s.in, ctx) }()
	waitFor(t, "slave has all", func() bool { return s.store.Position() == m.store.Position() })
	cancel()
	<-ended
	line.mu.Lock()
	defer line.mu.Unlock()
	return line.got
}

// TestCutAtEveryByte cuts the connection at every byte of what the master sends, and of what the slave does: with the next
// connection it goes on, without a gap or a doubling.
func TestCutAtEveryByte(t *testing.T) {
	m, s := pair(t, quick())
	n := conversation(t, m, s)
	from := 7
	for cut := range n {
		put(t, m.store, "q", from, 2)
		from += 2
		if err := once(t, m, s, &badLine{readLeft: cut, toSend: -1, flip: -1}); err == nil {
			t.Fatalf("cut at byte %d: no error", cut)
		}
	}
	for cut := range 300 { // hello, proof and acks; a later one comes with a heartbeat only
		put(t, m.store, "q", from, 1)
		from++
		if err := once(t, m, s, &badLine{readLeft: n, toSend: cut, flip: -1}); err == nil {
			t.Fatalf("cut at byte %d of the slave's: no error", cut)
		}
	}
	_ = conversation(t, m, s)
	agree(t, m.store, s.store)
	if err := s.store.Promote(); err != nil {
		t.Fatal(err)
	}
	want, got := bodies(t, m.store, "q"), bodies(t, s.store, "q")
	if !slices.Equal(got, want) {
		t.Errorf("slave has %d messages, master %d", len(got), len(want))
	}
}

// TestFlipEveryByte changes every byte of what the master sends: the connection ends with an error, and nothing of the frame
// is taken.
func TestFlipEveryByte(t *testing.T) {
	m, s := pair(t, quick())
	n := conversation(t, m, s)
	for flip := range n {
		put(t, m.store, "q", 7+2*flip, 2)
		before := s.store.Position()
		err := once(t, m, s, &badLine{readLeft: n, toSend: -1, flip: flip})
		if err == nil {
			t.Fatalf("byte %d changed: no error", flip)
		}
		if after := s.store.Position(); after != before && flip < n/2 {
			t.Fatalf("byte %d of the handshake changed, and records were taken: %v", flip, err)
		}
	}
	_ = conversation(t, m, s)
	agree(t, m.store, s.store)
}

// TestSlaveWithFullDisk: it stops taking records while the log is whole, and goes on by itself.
func TestSlaveWithFullDisk(t *testing.T) {
	disk := faultfs.New()
	o := quick()
	o.FS = disk
	m := newNode(t, 1, quick()).lead()
	s := newNode(t, 2, o).follow(pipe(m))
	put(t, m.store, "q", 0, 100)
	caughtUp(t, m, s)
	disk.SetSpace(0)
	c := m.store.NewSession("filler")
	defer c.Close()
	body := make([]byte, 2000)
	for range 200 { // several segments
		if _, err := c.Enqueue([]byte("big"), storage.PutRequest{Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the slave says that its disk is full", func() bool {
		st := s.slave().Status()
		return st.Error == storage.ErrDiskFull.Error() && st.Lag.Records > 0
	})
	if s.store.Err() != nil {
		t.Fatal("its log has failed")
	}
	disk.SetSpace(-1)
	caughtUp(t, m, s)
}

// TestCopyIsInterrupted cuts first copies at random bytes: each is begun anew, and nothing of it serves before it is whole.
func TestCopyIsInterrupted(t *testing.T) {
	const seed = 5
	rng := rand.New(rand.NewPCG(seed, 0))
	m := newNode(t, 1, quick()).lead()
	put(t, m.store, "q", 0, 3000)
	if err := m.store.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := newNode(t, 2, quick())
	s.opts.Master = "master:1978"
	s.out = &replication.Master{Log: s.log}
	s.open()
	size := int(m.store.Stats().TreeBytes)
	for range 30 {
		cut := rng.IntN(size)
		err := once(t, m, s, &badLine{readLeft: cut, toSend: -1, flip: -1})
		if err == nil || errors.Is(err, replication.ErrCopyReady) || storage.CopyReady(s.dir) {
			t.Fatalf("seed %d: cut at %d of %d: %v", seed, cut, size, err)
		}
		if n := s.store.Stats().Items; n != 0 {
			t.Fatalf("%d messages before the copy is whole", n)
		}
	}
	err := once(t, m, s, &badLine{readLeft: -1, toSend: -1, flip: size / 2})
	if err == nil || errors.Is(err, replication.ErrCopyReady) {
		t.Fatalf("a changed copy: %v", err)
	}
	if err := once(t, m, s, &badLine{readLeft: -1, toSend: -1, flip: -1}); !errors.Is(err, replication.ErrCopyReady) {
		t.Fatalf("a whole copy: %v", err)
	}
	s.out.Detach()
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
	s.open()
	_ = conversation(t, m, s)
	agree(t, m.store, s.store)
}
