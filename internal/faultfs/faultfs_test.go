package faultfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"testing"

	"qserver/internal/faultfs"
	"qserver/storage/ulog"
)

func create(t *testing.T, f *faultfs.FS, name string) ulog.File {
	t.Helper()
	file, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func write(t *testing.T, file ulog.File, s string, off int64) {
	t.Helper()
	if n, err := file.WriteAt([]byte(s), off); n != len(s) || err != nil {
		t.Fatalf("WriteAt: %d, %v", n, err)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// states returns every content of a file that crashes give, "-" for no file.
func states(f *faultfs.FS, name string, p faultfs.Policy) []string {
	seen := make(map[string]bool)
	for seed := range uint64(300) {
		b, err := f.Crash(p, seed).ReadFile(name)
		if err != nil {
			b = []byte("-")
		}
		seen[string(b)] = true
	}
	var all []string
	for s := range seen {
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}

func TestReadsAndWrites(t *testing.T) {
	f := faultfs.New()
	file := create(t, f, "/d/a")
	write(t, file, "hello", 3)
	got := make([]byte, 10)
	n, err := file.ReadAt(got, 0)
	if want := "\x00\x00\x00hello"; string(got[:n]) != want || err != io.EOF {
		t.Errorf("ReadAt: got %q, %v, want %q", got[:n], err, want)
	}
	must(t, file.Truncate(4), file.Allocate(6))
	if b, _ := f.ReadFile("/d/a"); string(b) != "\x00\x00\x00h\x00\x00" {
		t.Errorf("after Truncate and Allocate: %q", b)
	}
	if _, err := f.OpenFile("/d/b", os.O_RDWR); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open of no file: %v", err)
	}
	if _, err := f.OpenFile("/d/a", os.O_RDWR|os.O_CREATE|os.O_EXCL); !errors.Is(err, fs.ErrExist) {
		t.Errorf("exclusive open: %v", err)
	}
	create(t, f, "/d/b")
	create(t, f, "/e/c")
	must(t, f.Rename("/d/a", "/d/z"))
	if names, err := f.ReadDir("/d"); fmt.Sprint(names) != "[b z]" || err != nil {
		t.Errorf("ReadDir: %v, %v", names, err)
	}
	must(t, f.Remove("/d/b"), file.Close())
	if _, err := file.WriteAt(nil, 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("write to a closed file: %v", err)
	}
}

func TestInject(t *testing.T) {
	f := faultfs.New()
	file := create(t, f, "/a")
	f.Inject(faultfs.Nth(f.Len(), syscall.EIO))
	if _, err := file.WriteAt([]byte("abcd"), 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("WriteAt: %v", err)
	}
	f.Inject(faultfs.Nth(f.Len(), faultfs.Short(syscall.ENOSPC)))
	if n, err := file.WriteAt([]byte("abcd"), 0); n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("short WriteAt: %d, %v", n, err)
	}
	if b, _ := f.ReadFile("/a"); string(b) != "ab" {
		t.Errorf("after a short write: %q", b)
	}
	if op := f.Ops()[2]; op.Kind != faultfs.Write || op.N != 2 || op.Len != 4 || op.Name != "/a" {
		t.Errorf("recorded %+v", op)
	}
}

func TestSpace(t *testing.T) {
	f := faultfs.New()
	a, b := create(t, f, "/a"), create(t, f, "/b")
	f.SetSpace(10)
	must(t, a.Allocate(6))
	if n, err := b.WriteAt([]byte("abcdef"), 0); n != 4 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("WriteAt: %d, %v", n, err)
	}
	if err := a.Allocate(7); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Allocate: %v", err)
	}
	write(t, a, "within", 0)
	must(t, f.Remove("/b"))
	write(t, a, "0123456789", 0)
}

func TestCrashData(t *testing.T) {
	f := faultfs.New()
	file := create(t, f, "/a")
	write(t, file, "111", 0)
	must(t, file.Sync(), f.SyncDir("/"))
	write(t, file, "222", 0)
	write(t, file, "333", 3)
	for _, tt := range []struct {
		policy faultfs.Policy
		want   []string
	}{
		{faultfs.Dropped, []string{"111"}},
		{faultfs.Kept, []string{"222333"}},
		{faultfs.TornBytes, []string{"111", "211", "221", "222", "2223", "22233", "222333"}},
		{faultfs.TornSectors, []string{"111", "222", "222333"}},
	} {
		if got := states(f, "/a", tt.policy); fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("policy %d: got %q, want %q", tt.policy, got, tt.want)
		}
	}
	write(t, file, string(bytes.Repeat([]byte("4"), 512)), 512)
	reordered := false
	for _, s := range states(f, "/a", faultfs.Scattered) {
		reordered = reordered || len(s) == 1024 && s[:3] == "111" && s[512] == '4'
	}
	if !reordered {
		t.Error("the later write is never there without the earlier")
	}
}

func TestCrashNames(t *testing.T) {
	f := faultfs.New()
	file := create(t, f, "/d/a")
	write(t, file, "x", 0)
	must(t, file.Sync())
	if got := states(f, "/d/a", faultfs.Dropped); fmt.Sprint(got) != "[-]" {
		t.Errorf("a name that was not synced: %q", got)
	}
	if got := states(f, "/d/a", faultfs.Mixed); fmt.Sprint(got) != "[- x]" {
		t.Errorf("a name that was not synced: %q", got)
	}
	must(t, f.SyncDir("/d"))
	other := create(t, f, "/d/b")
	write(t, other, "y", 0)
	must(t, other.Sync(), f.Rename("/d/b", "/d/a"))
	if got := states(f, "/d/a", faultfs.Mixed); fmt.Sprint(got) != "[x y]" {
		t.Errorf("a rename that was not synced: %q", got)
	}
	must(t, f.SyncDir("/d"), f.Remove("/d/a"))
	if got := states(f, "/d/a", faultfs.Mixed); fmt.Sprint(got) != "[- y]" {
		t.Errorf("a removal that was not synced: %q", got)
	}
}

func TestFailedSync(t *testing.T) {
	f := faultfs.New()
	file := create(t, f, "/a")
	write(t, file, "111", 0)
	must(t, file.Sync(), f.SyncDir("/"))
	write(t, file, "2", 0)
	f.Inject(faultfs.Nth(f.Len(), syscall.EIO))
	if err := file.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	must(t, file.Sync())
	if b, _ := f.ReadFile("/a"); string(b) != "211" {
		t.Errorf("reads show %q", b)
	}
	if got := states(f, "/a", faultfs.Kept); fmt.Sprint(got) != "[111 211]" {
		t.Errorf("a second sync made it durable: %q", got)
	}
	write(t, file, "3", 0)
	must(t, file.Sync())
	if got := states(f, "/a", faultfs.Dropped); fmt.Sprint(got) != "[311]" {
		t.Errorf("written again and synced: %q", got)
	}
}

func TestReplay(t *testing.T) {
	f := faultfs.New()
	file := create(t, f, "/a")
	must(t, f.SyncDir("/"))
	for i := range 3 {
		write(t, file, fmt.Sprint(i), int64(i))
		must(t, file.Sync())
	}
	var got []string
	for c := f.Replay(); c.Next(); {
		b, err := c.Crash(faultfs.Dropped, 1).ReadFile("/a")
		if err != nil {
			b = []byte("-")
		}
		got = append(got, string(b))
	}
	if want := "[- -   0 0 01 01 012]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
