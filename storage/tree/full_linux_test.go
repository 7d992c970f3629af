package tree_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"qserver/storage/tree"
)

func mountSmall(dir string) error { return syscall.Mount("none", dir, "tmpfs", 0, "size=4m") }

func unmountSmall(dir string) error { return syscall.Unmount(dir, 0) }

// mappedMemory is how many bytes of files are in the memory of the process.
func mappedMemory(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skipf("what is mapped is read from /proc, which is not mounted here (mount -t proc proc /proc): %v", err)
	}
	for line := range strings.Lines(string(b)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "RssFile: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	t.Skip("/proc/self/status has no RssFile: it came with Linux 4.5: run it on a newer kernel")
	return 0
}

func TestDropPages(t *testing.T) {
	tr := open(t, filepath.Join(t.TempDir(), "tree"), tree.Options{})
	for i := range 8 {
		put(t, tr, 1, i*4096, i*4096+4096, strings.Repeat("v", 500))
	}
	size, _ := tr.Size()
	if _, err := content(tr); err != nil {
		t.Fatal(err)
	}
	before := mappedMemory(t)
	tr.DropPages()
	if after := mappedMemory(t); before-after < size/2 {
		t.Errorf("of a file of %d bytes: %d bytes mapped before, %d after", size, before, after)
	}
	if rows, err := content(tr); err != nil || len(rows) != 8*4096 {
		t.Errorf("after it: %d rows, %v", len(rows), err)
	}
}
