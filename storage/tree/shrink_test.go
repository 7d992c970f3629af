package tree_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"qserver/storage/tree"
)

// filled makes a tree of 5,000 rows of which every tenth is left, and returns these.
func filled(t *testing.T, path string) model {
	t.Helper()
	tr := open(t, path, tree.Options{PageSize: 4096})
	value := strings.Repeat("v", 250)
	put(t, tr, 1, 0, 5000, value)
	if err := tr.Update(func(x *tree.Tx) error {
		return x.Scan(messages, nil, nil, func(k, _ []byte) error {
			if k[len(k)-1] == '0' {
				return nil
			}
			_, _, err := x.Delete(messages, bytes.Clone(k))
			return err
		})
	}); err != nil {
		t.Fatal(err)
	}
	m, err := content(tr)
	if err != nil || len(m) != 500 {
		t.Fatalf("%d rows, %v", len(m), err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestShrink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tree")
	m := filled(t, path)
	tr := open(t, path, tree.Options{})
	before, used := tr.Size()
	if err := tr.Shrink(); err != nil {
		t.Fatal(err)
	}
	after, usedAfter := tr.Size()
	if after*5 > before || usedAfter > used {
		t.Errorf("from %d bytes (%d used) to %d (%d used)", before, used, after, usedAfter)
	}
	put(t, tr, 2, 0, 10, "v")
	if got, err := content(tr); err != nil || len(got) != len(m)+10 {
		t.Errorf("%d rows after it, %v", len(got), err)
	}
}

func TestDefrag(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tree")
	m := filled(t, path)
	calls := 0
	before, after, err := tree.Defrag(path, tree.Options{Tables: tables}, func(done, total int64) {
		if calls++; done <= 0 || done > total {
			t.Errorf("progress: %d of %d", done, total)
		}
	})
	info, statErr := os.Stat(path)
	if err != nil || statErr != nil || after*5 > before || info.Size() != after || calls == 0 {
		t.Errorf("from %d to %d bytes, %d calls, %v, %v", before, after, calls, err, statErr)
	}
	checkFile(t, path, m)
	if _, _, err := tree.Defrag(filepath.Join(t.TempDir(), "none"), tree.Options{}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// Views that began before an exchange see their state to the end; others see the new file.
func TestShrinkBesideViews(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tree")
	m := filled(t, path)
	tr := open(t, path, tree.Options{})
	inside, done := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		n := 0
		err := tr.View(func(v *tree.View) error {
			return v.Scan(messages, nil, nil, func(_, _ []byte) error {
				if n++; n == 10 {
					close(inside)
					<-done
				}
				return nil
			})
		})
		if err != nil || n != len(m) {
			t.Errorf("the view saw %d rows, %v", n, err)
		}
	})
	<-inside
	tr.SetStep(func(name string) {
		if name == "swapped" {
			if got, err := content(tr); err != nil || !maps.Equal(got, m) {
				t.Errorf("%d rows after the exchange, %v", len(got), err)
			}
			close(done)
		}
	})
	if err := tr.Shrink(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// Readers, a writer and shrinking at the same time.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	tr := open(t, filepath.Join(t.TempDir(), "tree"), tree.Options{PageSize: 1024})
	put(t, tr, 1, 0, 100, "v")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := tr.View(func(v *tree.View) error {
					n := uint64(0)
					if err := v.Scan(messages, nil, nil, func(_, _ []byte) error { n++; return nil }); err != nil {
						return err
					}
					if count, err := v.Count(messages, []byte("0001")); err != nil || count != n || n%100 != 0 {
						return fmt.Errorf("%d rows, %d counted, %w", n, count, err)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
				tr.DropPages()
			}
		})
	}
	for i := range 20 {
		put(t, tr, 1, i*100, i*100+100, "v")
		if i%5 == 4 {
			if err := tr.Shrink(); err != nil {
				t.Error(err)
			}
		}
	}
	close(stop)
	wg.Wait()
}

// TestShrinkKilled kills a process before each step of Shrink and opens what it left.
func TestShrinkKilled(t *testing.T) {
	t.Parallel()
	if path := os.Getenv("TREE_SHRINK"); path != "" {
		shrinkAndDie(t, path)
		return
	}
	for step := 0; ; step++ {
		path := filepath.Join(t.TempDir(), "tree")
		m := filled(t, path)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestShrinkKilled$")
		cmd.Env = append(os.Environ(), "TREE_SHRINK="+path, "TREE_STEP="+strconv.Itoa(step))
		out, err := cmd.CombinedOutput()
		if err == nil {
			if step < 6 {
				t.Fatalf("only %d steps:\n%s", step, out)
			}
			return
		}
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
			t.Fatalf("step %d: %v\n%s", step, err, out)
		}
		checkFile(t, path, m)
		tr := open(t, path, tree.Options{})
		if got, err := content(tr); err != nil || !maps.Equal(got, m) {
			t.Errorf("step %d: %d rows, %v", step, len(got), err)
		}
		put(t, tr, 3, 0, 10, "v")
		if files, err := filepath.Glob(path + "*"); err != nil || len(files) != 1 {
			t.Errorf("step %d leaves %q, %v", step, files, err)
		}
	}
}

func shrinkAndDie(t *testing.T, path string) {
	t.Helper()
	step, err := strconv.Atoi(os.Getenv("TREE_STEP"))
	if err != nil {
		t.Fatal(err)
	}
	tr := open(t, path, tree.Options{})
	tr.SetStep(func(string) {
		if step--; step < 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	if err := tr.Shrink(); err != nil {
		t.Fatal(err)
	}
}

func TestCopies(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tree")
	m := filled(t, path)
	tr := open(t, path, tree.Options{})
	verified, raw := filepath.Join(dir, "verified"), filepath.Join(dir, "raw")
	for range 2 { // the second goes over the first
		if err := tr.CopyFile(verified); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tr.Copy(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	put(t, tr, 2, 0, 10, "not in the copies")
	checkFile(t, verified, m)
	checkFile(t, raw, m)
	small, err := os.Stat(verified)
	if err != nil {
		t.Fatal(err)
	}
	if large, err := os.Stat(raw); err != nil || small.Size()*5 > large.Size() || small.Mode().Perm() != 0o600 {
		t.Errorf("the verified copy has %d bytes and mode %v, %v", small.Size(), small.Mode(), err)
	}
	if err := tr.CopyFile(filepath.Join(dir, "none", "copy")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a copy to nowhere: %v", err)
	}
}

// A damaged tree is not copied, and Shrink leaves it as it is.
func TestCopyOfDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tree")
	filled(t, path)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tr := open(t, path, tree.Options{})
	b = bytes.ReplaceAll(b, []byte("vvvvv 300"), []byte("vvvvw 300"))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"shrink": tr.Shrink(), "copy": tr.CopyFile(path + "2")} {
		if !isDamage(err) {
			t.Errorf("%s: %v, want damage", what, err)
		}
	}
	if files, err := filepath.Glob(path + "*"); err != nil || len(files) != 1 {
		t.Errorf("left: %q, %v", files, err)
	}
}
