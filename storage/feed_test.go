package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"qserver/storage"
	"qserver/storage/ulog"
)

// The log is kept for a slave that is behind, over a restart of the master, up to the limit.
func TestLogIsKeptForSlaves(t *testing.T) {
	dir := t.TempDir()
	o := storage.Options{SegmentBytes: 64 << 10, LogKeep: 1 << 20, Sync: storage.SyncNever}
	master := open(t, dir, o)
	c := master.NewSession("c")
	fill := func(n int) {
		for range n {
			put(t, c, "q", string(make([]byte, 1000)))
			get(t, c, "q")
			if err := c.Ack([]byte("q"), storage.Pick{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := master.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	at := master.Position()
	master.Keep("2", at.LSN)
	fill(500)
	f, err := master.Feed("2", at)
	if err != nil {
		t.Fatalf("half of what is kept: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := master.Close(); err != nil {
		t.Fatal(err)
	}
	master = open(t, dir, o)
	c = master.NewSession("c")
	defer c.Close()
	if f, err = master.Feed("2", at); err != nil {
		t.Fatalf("after a restart: %v", err)
	}
	fill(1000)
	select {
	case <-f.Lost():
	default:
		t.Error("the feed was not told")
	}
	if k := master.Kept(); len(k) != 1 || !k[0].Lost {
		t.Errorf("kept: %+v", k)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	fill(100)
	if _, err = master.Feed("2", at); !errors.Is(err, storage.ErrPositionGone) {
		t.Errorf("past the limit: %v", err)
	}
	if n := master.Stats().LogBytes; n > 512<<10 {
		t.Errorf("log of %d bytes without anyone who needs it", n)
	}
	if _, err := master.Feed("2", ulog.Position{LSN: 1 << 40}); !errors.Is(err, storage.ErrDiverged) {
		t.Errorf("ahead: %v", err)
	}
	if _, err := master.Feed("2", ulog.Position{LSN: master.Position().LSN, Chain: 1}); !errors.Is(err, storage.ErrDiverged) {
		t.Errorf("another history: %v", err)
	}
}

// A copy that was cut, or that was changed on its way, never serves; one that is whole takes the place of what was there.
func TestCopyInstalls(t *testing.T) {
	master := open(t, t.TempDir(), storage.Options{})
	c := master.NewSession("c")
	defer c.Close()
	for i := range 100 {
		put(t, c, "q", fmt.Sprint("message ", i))
	}
	dir := t.TempDir()
	slave := openSlave(t, dir, storage.Options{})
	path, err := master.WriteCopy("2", func(int64, int64) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	part := storage.IncomingPart(dir)
	if err := os.MkdirAll(filepath.Dir(part), 0o700); err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(whole)
	changed[bytes.Index(changed, []byte("message 50"))] ^= 1
	for name, b := range map[string][]byte{"cut": whole[:len(whole)/2], "changed": changed, "empty": nil} {
		if err := os.WriteFile(part, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := storage.ReadyCopy(dir, master.History(), testMaster, nil); err == nil || storage.CopyReady(dir) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(part, whole[:4096], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := slave.Close(); err != nil {
		t.Fatal(err)
	}
	slave = openSlave(t, dir, storage.Options{}) // with a half copy beside it
	if n := slave.Stats().Items; n != 0 {
		t.Fatalf("half a copy serves %d messages", n)
	}
	if err := slave.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(part), 0o700), os.WriteFile(part, whole, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := storage.ReadyCopy(dir, master.History(), testMaster, nil); err != nil {
		t.Fatal(err)
	}
	slave = openSlave(t, dir, storage.Options{})
	if slave.History() != master.History() {
		t.Error("another history's number")
	}
	agree(t, master, slave)
	put(t, c, "q", "later")
	ship(t, master, slave, 1<<20)
	agree(t, master, slave)
}

// A slave whose repair had to leave records out says so until it has a copy.
func TestGapNeedsCopy(t *testing.T) {
	master, dir := open(t, t.TempDir(), storage.Options{}), t.TempDir()
	c := master.NewSession("c")
	defer c.Close()
	put(t, c, "q", "one")
	copyTo(t, master, dir)
	slave := openSlave(t, dir, storage.Options{})
	if slave.NeedsCopy() {
		t.Error("a whole slave needs a copy")
	}
	if err := errors.Join(slave.Close(), storage.MarkGap(dir)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		slave = openSlave(t, dir, storage.Options{})
		if !slave.NeedsCopy() {
			t.Error("nothing is said of the gap")
		}
		if err := slave.Close(); err != nil {
			t.Fatal(err)
		}
	}
	copyTo(t, master, dir)
	if slave = openSlave(t, dir, storage.Options{}); slave.NeedsCopy() {
		t.Error("behind the copy it still needs one")
	}
}

// FuzzBatch: no panic, and nothing is taken that does not lead to the position.
func FuzzBatch(f *testing.F) {
	f.Add([]byte{2, 3, 7, 1, 'a', 'b', 'c'}, uint64(5), uint32(7))
	f.Add([]byte{0, 0}, uint64(0), uint32(0))
	f.Fuzz(func(t *testing.T, payload []byte, lsn uint64, chain uint32) {
		var b storage.Batch
		after := ulog.Position{LSN: lsn, Chain: chain}
		if err := b.Decode(payload, after, ulog.Position{LSN: lsn + uint64(b.Len()), Chain: chain}); err == nil && len(payload) > 0 && b.End == after {
			t.Fatalf("%x leads nowhere", payload)
		}
	})
}

// A feed gives what is on the disk, and nothing before; it is told when there is more.
func TestFeedGivesWhatIsDurable(t *testing.T) {
	master := open(t, t.TempDir(), storage.Options{Sync: storage.SyncNever})
	if err := master.Sync(); err != nil {
		t.Fatal(err)
	}
	f, err := master.Feed("2", master.Position())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, n, _, err := f.Append(nil, 1<<20); n != 0 || err != nil {
		t.Fatalf("%d records of none, %v", n, err)
	}
	c := master.NewSession("c")
	defer c.Close()
	put(t, c, "q", "one")
	<-f.More() // it was written
	if _, n, _, err := f.Append(nil, 1<<20); n != 0 || err != nil || !master.Unsynced() {
		t.Fatalf("%d records that are not on the disk, %v", n, err)
	}
	if err := master.SyncWritten(f.Position().LSN); err != nil {
		t.Fatal(err)
	}
	<-f.More()
	if _, n, end, err := f.Append(nil, 1<<20); n != 2 || err != nil || end != master.Position() {
		t.Fatalf("%d records to %+v, %v; want those of the queue and the message", n, end, err)
	}
}
