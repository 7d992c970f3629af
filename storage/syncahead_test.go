package storage_test

import (
	"strings"
	"testing"
	"time"

	"qserver/storage"
)

// Where nobody waits for the disk the log is synced while a segment fills, not only when it is full: all would wait for that.
func TestSyncAhead(t *testing.T) {
	for _, o := range []storage.Options{{Sync: storage.SyncNever}, {Sync: storage.SyncInterval, SyncInterval: time.Hour}} {
		o.SegmentBytes = 64 << 20
		s := open(t, t.TempDir(), o)
		c := s.NewSession("test")
		begin := s.SyncedLSN()
		put(t, c, "q", "a")
		for range 32 {
			put(t, c, "q", strings.Repeat("x", 1<<20))
		}
		for deadline := time.Now().Add(10 * time.Second); s.SyncedLSN() <= begin+1; {
			if time.Now().After(deadline) {
				t.Fatalf("32 MiB were written, and nothing was synced")
			}
			put(t, c, "q", "b") // at rest it would be synced anyway
			time.Sleep(time.Millisecond)
		}
		c.Close()
	}
}
