package replication_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"qserver/storage"
)

// smallDisk mounts a file system of so many bytes, and returns its folder and what makes it larger.
func smallDisk(t *testing.T, bytes int64) (dir string, grow func(bytes int64)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIP limits: a small file system is mounted by root only: run the test so")
	}
	dir = t.TempDir()
	size := func(bytes int64) string { return fmt.Sprintf("size=%d", bytes) }
	if err := syscall.Mount("none", dir, "tmpfs", 0, size(bytes)); err != nil {
		t.Skipf("SKIP limits: a small file system can't be mounted here (in a container: --cap-add SYS_ADMIN): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		}
	})
	return dir, func(bytes int64) {
		if err := syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT, size(bytes)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSlaveOnSmallDisk: log and tree of a slave share a disk that gets full, by records or by the first copy. It says so, its log and
// what it had are whole, and it goes on by itself when there is room.
func TestSlaveOnSmallDisk(t *testing.T) {
	o := quick()
	o.SegmentBytes, o.MinFreeDisk = 1<<20, 1<<20
	for name, before := range map[string]int{"records": 0, "copy": 25000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, grow := smallDisk(t, 16<<20)
			m := newNode(t, 1, o).lead()
			body := strings.Repeat("x", 1000)
			fill := func(n int) {
				c := m.store.NewSession("fill")
				defer c.Close()
				for i := range n {
					if _, err := c.Enqueue([]byte("q"), storage.PutRequest{Body: fmt.Appendf(nil, "%d %s", i, body), Priority: storage.DefaultPriority}); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.Commit(); err != nil {
					t.Fatal(err)
				}
			}
			fill(100 + before)
			if err := m.store.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			s := newNode(t, 2, o)
			s.dir = filepath.Join(disk, "data")
			s.follow(pipe(m))
			if before == 0 {
				caughtUp(t, m, s)
				fill(25000)
			}
			waitFor(t, "the slave says that its disk is full", func() bool {
				text := s.slave().Status().Error
				return strings.Contains(text, "no space left on device") || strings.Contains(text, storage.ErrDiskFull.Error())
			})
			if err := s.current().Err(); err != nil {
				t.Fatalf("its log has failed: %v", err)
			}
			if n := s.current().Stats().Items; before == 0 && n < 100 || before > 0 && n != 0 {
				t.Errorf("it has %d messages", n)
			}
			grow(128 << 20)
			caughtUp(t, m, s)
			s.promote()
			if got, want := bodies(t, s.store, "q"), bodies(t, m.store, "q"); !slices.Equal(got, want) {
				t.Errorf("the slave gives %d messages, the master %d, or others", len(got), len(want))
			}
		})
	}
}
