package tree_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"qserver/storage/tree"
)

const (
	messages = iota
	queues
)

var tables = []tree.TableSpec{{Name: "messages", GroupLen: 4}, {Name: "queues"}}

func open(t testing.TB, path string, o tree.Options) *tree.Tree {
	t.Helper()
	if o.Tables == nil {
		o.Tables = tables
	}
	tr, err := tree.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

func key(group, n int) []byte { return fmt.Appendf(nil, "%04d%08d", group, n) }

func put(t testing.TB, tr *tree.Tree, group, from, to int, value string) {
	t.Helper()
	err := tr.Update(func(x *tree.Tx) error {
		for i := from; i < to; i++ {
			if err := x.Put(messages, key(group, i), fmt.Appendf(nil, "%s %d", value, i)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPutGetScanDelete(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tree")
	tr := open(t, path, tree.Options{PageSize: 1024})
	for i := range 20 {
		put(t, tr, i%3, i*100, i*100+100, "v")
	}
	count := func(group int) uint64 {
		var n uint64
		if err := tr.View(func(v *tree.View) (err error) {
			n, err = v.Count(messages, fmt.Appendf(nil, "%04d", group))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for group, want := range []uint64{700, 700, 600, 0} {
		if got := count(group); got != want {
			t.Errorf("count of group %d: got %d, want %d", group, got, want)
		}
	}
	err := tr.Update(func(x *tree.Tx) error {
		for i := range 300 {
			old, found, err := x.Delete(messages, key(0, i))
			if err != nil || found != (i < 100) || found && string(old) != fmt.Sprint("v ", i) {
				return fmt.Errorf("delete %d: %q, %v, %w", i, old, found, err)
			}
		}
		return x.Put(messages, key(2, 200), []byte("other"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := count(0); got != 600 {
		t.Errorf("count after deletes: got %d, want 600", got)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	tr = open(t, path, tree.Options{})
	var keys []string
	err = tr.View(func(v *tree.View) error {
		if value, found, err := v.Get(messages, key(2, 200)); err != nil || !found || string(value) != "other" {
			t.Errorf("get: %q, %v, %v", value, found, err)
		}
		if _, found, err := v.Get(messages, key(0, 5)); err != nil || found {
			t.Errorf("get of a deleted row: %v, %v", found, err)
		}
		return v.Scan(messages, key(0, 0), key(0, 302), func(k, value []byte) error {
			keys = append(keys, string(k)+"="+string(value))
			return nil
		})
	})
	if want := "[000000000300=v 300 000000000301=v 301]"; err != nil || fmt.Sprint(keys) != want {
		t.Errorf("scan: got %v, %v, want %v", keys, err, want)
	}
}

func TestUpdateRollsBack(t *testing.T) {
	tr := open(t, filepath.Join(t.TempDir(), "tree"), tree.Options{})
	put(t, tr, 1, 0, 10, "v")
	boom := errors.New("boom")
	err := tr.Update(func(x *tree.Tx) error {
		if err := x.Put(messages, key(1, 100), nil); err != nil {
			return err
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Errorf("got %v, want %v", err, boom)
	}
	put(t, tr, 1, 10, 11, "v")
	_ = tr.View(func(v *tree.View) error {
		if n, err := v.Count(messages, []byte("0001")); n != 11 || err != nil {
			t.Errorf("count: got %d, %v, want 11", n, err)
		}
		return nil
	})
}
