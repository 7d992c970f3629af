package tree_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"qserver/storage/tree"
)

// smallDisk mounts a file system of 4 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("a full disk is a small file system, which is mounted by root on Linux only: run the test so")
	}
	if err := mountSmall(dir); err != nil {
		t.Skipf("a small file system can't be mounted here (in a container: --cap-add SYS_ADMIN): %v", err)
	}
	t.Cleanup(func() {
		if err := unmountSmall(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestFullDisk(t *testing.T) {
	dir := smallDisk(t)
	path := filepath.Join(dir, "tree")
	tr := open(t, path, tree.Options{})
	put(t, tr, 1, 0, 100, "v")
	m, err := content(tr)
	if err != nil {
		t.Fatal(err)
	}
	big := bytes.Repeat([]byte("b"), 1000)
	fill := func(rows int) error {
		return tr.Update(func(x *tree.Tx) error {
			for i := range rows {
				if err := x.Put(messages, key(2, i), big); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for range 3 {
		if err := fill(6000); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("got %v, want %v", err, syscall.ENOSPC)
		}
	}
	if got, err := content(tr); err != nil || len(got) != len(m) {
		t.Errorf("after it: %d rows, %v", len(got), err)
	}
	// The file was extended by what failed; a smaller update goes into that.
	if err := fill(100); err != nil {
		t.Errorf("an update that fits: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 3<<20), 0o600); err == nil {
		t.Log("the failed update left no blocks")
	}
	if err := tr.CopyFile(filepath.Join(dir, "copy")); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("copy: %v", err)
	}
	if err := tr.Shrink(); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("shrink: %v", err)
	}
	if m, err = content(tr); err != nil || len(m) != 200 {
		t.Errorf("at the end: %d rows, %v", len(m), err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	checkFile(t, path, m)
}
