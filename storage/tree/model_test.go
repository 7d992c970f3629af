package tree_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"qserver/storage/tree"
)

var seedFlag = flag.Uint64("seed", 0, "seed of random tests; 0: by the clock")

func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// model is the content of a tree: rows by table number and key.
type model map[string]string

func rowKey(table int, key []byte) string { return string(rune('A'+table)) + string(key) }

// content reads all of a tree.
func content(tr *tree.Tree) (model, error) {
	m := model{}
	err := tr.View(func(v *tree.View) error {
		for table := range tables {
			if err := v.Scan(table, nil, nil, func(k, value []byte) error {
				m[rowKey(table, k)] = string(value)
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return m, err
}

// checkFile fails the test unless the file holds and has just what m has.
func checkFile(t testing.TB, path string, m model) {
	t.Helper()
	got := model{}
	report, err := tree.Check(path, tree.Options{Tables: tables}, nil, func(table int, k, value []byte) error {
		got[rowKey(table, k)] = string(value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Error(p)
	}
	if !maps.Equal(got, m) {
		t.Errorf("the file has %d rows that differ from the model's %d", len(got), len(m))
	}
}

// randomUpdate changes tree and model alike.
func randomUpdate(tr *tree.Tree, m model, r *rand.Rand) error {
	changed := maps.Clone(m)
	failing := r.IntN(10) == 0
	boom := errors.New("boom")
	keys := slices.Sorted(maps.Keys(m))
	err := tr.Update(func(x *tree.Tx) error {
		for range 1 + r.IntN(4) {
			if err := randomRun(x, changed, keys, r); err != nil {
				return err
			}
		}
		if failing {
			return boom
		}
		return nil
	})
	if failing && errors.Is(err, boom) {
		return nil
	}
	if err == nil {
		clear(m)
		maps.Copy(m, changed)
	}
	return err
}

// randomRun puts or deletes a run of rows, ascending or not.
func randomRun(x *tree.Tx, m model, keys []string, r *rand.Rand) error {
	n := 1 + r.IntN(1<<r.IntN(9))
	group, from, step := r.IntN(5), r.IntN(3000), 1+r.IntN(3)
	if r.IntN(4) == 0 {
		step = -step
	}
	kind := r.IntN(6)
	for i := range n {
		table, k := r.IntN(8)/7, key(group, from+n*3+i*step)
		if k[len(k)-1] == '7' && k[len(k)-2] < '4' { // long enough for branches with overflow pages
			k = append(k, bytes.Repeat([]byte("k"), 900)...)
		}
		if kind == 5 && len(keys) > 0 { // rows that exist, at random
			old := keys[r.IntN(len(keys))]
			table, k = int(old[0]-'A'), []byte(old[1:])
		}
		if kind < 3 {
			value := bytes.Repeat([]byte{byte(i)}, r.IntN(40))
			if r.IntN(200) == 0 {
				value = bytes.Repeat([]byte{byte(i)}, r.IntN(9000))
			}
			if err := x.Put(table, k, value); err != nil {
				return err
			}
			m[rowKey(table, k)] = string(value)
			continue
		}
		want, exists := m[rowKey(table, k)]
		got, found, err := x.Get(table, k)
		if err != nil || found != exists || string(got) != want {
			return errors.Join(err, fmt.Errorf("get %s: %d bytes, %v; want %d, %v", k, len(got), found, len(want), exists))
		}
		got, found, err = x.Delete(table, k)
		if err != nil || found != exists || string(got) != want {
			return errors.Join(err, fmt.Errorf("delete %s: %d bytes, %v; want %d, %v", k, len(got), found, len(want), exists))
		}
		delete(m, rowKey(table, k))
	}
	return nil
}

func TestModel(t *testing.T) {
	t.Parallel()
	r := newRand(t)
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	path := filepath.Join(t.TempDir(), "tree")
	m := model{}
	tr := open(t, path, tree.Options{PageSize: 1024 << r.IntN(3)})
	for round := range rounds {
		if err := randomUpdate(tr, m, r); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		got, err := content(tr)
		if err != nil || !maps.Equal(got, m) {
			t.Fatalf("round %d: %d rows, %v; want %d", round, len(got), err, len(m))
		}
		checkCounts(t, tr, m)
		switch r.IntN(20) {
		case 0:
			if err := tr.Shrink(); err != nil {
				t.Fatal(err)
			}
		case 1:
			tr.DropPages()
		case 2, 3:
			if err := tr.Close(); err != nil {
				t.Fatal(err)
			}
			checkFile(t, path, m)
			tr = open(t, path, tree.Options{})
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	checkFile(t, path, m)
}

func checkCounts(t *testing.T, tr *tree.Tree, m model) {
	t.Helper()
	want := map[string]uint64{}
	for k := range m {
		if k[0] == 'A' {
			want[k[1:5]]++
		}
	}
	err := tr.View(func(v *tree.View) error {
		for group := range 6 {
			g := fmt.Sprintf("%04d", group)
			if got, err := v.Count(messages, []byte(g)); err != nil || got != want[g] {
				t.Errorf("group %s: got %d, %v, want %d", g, got, err, want[g])
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A scan inside a transaction sees its writes, and may write.
func TestScanWhileWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tree")
	tr := open(t, path, tree.Options{PageSize: 1024})
	put(t, tr, 1, 0, 1000, "v")
	put(t, tr, 2, 0, 1000, "v")
	m, err := content(tr)
	if err != nil {
		t.Fatal(err)
	}
	err = tr.Update(func(x *tree.Tx) error {
		if err := x.Put(messages, key(1, 5000), []byte("new")); err != nil {
			return err
		}
		m[rowKey(messages, key(1, 5000))] = "new"
		n := 0
		err := x.Scan(messages, []byte("0001"), []byte("0002"), func(k, _ []byte) error {
			if n++; n%3 == 0 {
				return nil
			}
			delete(m, rowKey(messages, k))
			_, _, err := x.Delete(messages, bytes.Clone(k))
			return err
		})
		if n != 1001 {
			t.Errorf("the scan met %d rows, want 1001", n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	checkFile(t, path, m)
}
