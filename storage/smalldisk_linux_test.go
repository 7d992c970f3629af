package storage_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// smallDisk mounts a file system of so many bytes and returns its folder.
func smallDisk(t *testing.T, bytes int64) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIP limits: a small file system is mounted by root only: run the test so")
	}
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skipf("SKIP limits: a small file system can't be mounted here (in a container: --cap-add SYS_ADMIN): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		}
	})
	return dir
}
