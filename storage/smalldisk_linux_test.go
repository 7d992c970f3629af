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
		t.Skip("SKIP limits: mounting a small file system takes root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skipf("SKIP limits: mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		}
	})
	return dir
}
