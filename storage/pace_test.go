package storage_test

import (
	"testing"
	"time"

	"qserver/storage"
)

// TestPacer: a store that takes records makes the work rest for four times its length, one that doesn't for no time.
func TestPacer(t *testing.T) {
	s, err := storage.Open(t.TempDir(), storage.Options{Sync: storage.SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rests := func(p *storage.Pacer, worked time.Duration) time.Duration {
		begin := time.Now()
		p.Rest(worked)
		return time.Since(begin)
	}
	p := s.NewPacer()
	if got := rests(p, 10*time.Millisecond); got < 40*time.Millisecond {
		t.Errorf("it rests for %v before it has looked, want 40 ms", got)
	}
	idle := time.Hour // the shortest of some: the machine may be busy
	for range 5 {
		idle = min(idle, rests(p, 10*time.Second))
		<-time.After(20 * time.Millisecond) // so long it takes a look for
	}
	if idle > 100*time.Millisecond {
		t.Errorf("an idle store makes it rest for %v", idle)
	}
	c := s.NewSession("c")
	defer c.Close()
	for range 10_000 {
		if _, err := c.Enqueue([]byte("q"), storage.PutRequest{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := rests(p, 10*time.Millisecond); got < 40*time.Millisecond {
		t.Errorf("a busy store makes it rest for %v, want 40 ms", got)
	}
}

// TestSumsOf: the sums are those of the positions, within the log and at both its ends.
func TestSumsOf(t *testing.T) {
	s, err := storage.Open(t.TempDir(), storage.Options{Sync: storage.SyncNever, SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := s.NewSession("c")
	defer c.Close()
	chains := map[uint64]uint32{0: 0}
	for range 2000 {
		if _, err := c.Enqueue([]byte("q"), storage.PutRequest{Body: []byte("0123456789012345678901234567890123456789")}); err != nil {
			t.Fatal(err)
		}
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
		p := s.Position()
		chains[p.LSN] = p.Chain
	}
	end := s.Position().LSN
	got, err := s.Sums([]uint64{end + 1, end, 0, end / 2, end - 1, 500, 501})
	if err != nil || got.After != 0 {
		t.Fatalf("the log begins behind %d, %v", got.After, err)
	}
	var lsns []uint64
	for _, p := range got.At {
		lsns = append(lsns, p.LSN)
		if want, known := chains[p.LSN]; !known || p.Chain != want {
			t.Errorf("sum of %d: got %08x, want %08x", p.LSN, p.Chain, want)
		}
	}
	for i, want := range []uint64{0, 500, 501, end / 2, end - 1, end} {
		if i >= len(lsns) || lsns[i] != want {
			t.Fatalf("got sums of %d, want those of 0, 500, 501, %d, %d, %d", lsns, end/2, end-1, end)
		}
	}
}
