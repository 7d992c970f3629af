package tree_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"qserver/storage/tree"
)

var update = flag.Bool("update", false, "write the golden files anew; they must never change for a format that was released")

// goldenRows is what testdata/v1.tree holds: two levels of pages of 1 KiB, free pages, and a row with overflow pages.
func goldenRows() model {
	m := model{rowKey(queues, []byte("jobs")): "", rowKey(queues, []byte{0, 255}): "\x00\xff"}
	for i := range 60 {
		m[rowKey(messages, key(i%2, i))] = fmt.Sprintf("message %d", i)
	}
	m[rowKey(messages, key(7, 1))] = strings.Repeat("long", 700)
	return m
}

func writeGolden(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	tr := open(t, path, tree.Options{PageSize: 1024})
	rows := goldenRows()
	for range 2 {
		if err := tr.Update(func(x *tree.Tx) error {
			for k, value := range rows {
				if err := x.Put(int(k[0]-'A'), []byte(k[1:]), []byte(value)); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
}

// golden returns the path of a copy of testdata/v1.tree.
func golden(t *testing.T) string {
	t.Helper()
	source := filepath.Join("testdata", "v1.tree")
	if *update {
		writeGolden(t, source)
	}
	b, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tree")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGolden(t *testing.T) {
	path := golden(t)
	checkFile(t, path, goldenRows())
	tr := open(t, path, tree.Options{})
	put(t, tr, 1, 100, 110, "v")
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	rows := goldenRows()
	for i := 100; i < 110; i++ {
		rows[rowKey(messages, key(1, i))] = fmt.Sprintf("v %d", i)
	}
	checkFile(t, path, rows)
}

func TestNewerFormat(t *testing.T) {
	path := golden(t)
	tr := open(t, path, tree.Options{})
	if err := tr.SetVersion(2); err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	_, openErr := tree.Open(path, tree.Options{Tables: tables})
	_, checkErr := tree.Check(path, tree.Options{Tables: tables}, nil, nil)
	_, _, defragErr := tree.Defrag(path, tree.Options{Tables: tables}, nil)
	const want = "written by a newer qserver (tree format 2; this one reads up to 1)"
	for what, err := range map[string]error{"open": openErr, "check": checkErr, "defrag": defragErr} {
		if !errors.Is(err, tree.ErrNewerFormat) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", what, err, want)
		}
	}
}

func TestTables(t *testing.T) {
	long := strings.Repeat("n", 256)
	for _, tt := range []struct {
		name   string
		tables []tree.TableSpec
		want   string
	}{
		{"the same", tables, ""},
		{"one more", append(tables[:2:2], tree.TableSpec{Name: "dedup", GroupLen: 2}), ""},
		{"one less", tables[:1], "it has 2 tables, 1 were asked for"},
		{"another name", []tree.TableSpec{tables[0], {Name: "q"}}, `table 1 is "queues" with groups of 0 bytes, "q" with 0 was asked for`},
		{"other groups", []tree.TableSpec{{Name: "messages", GroupLen: 5}, tables[1]}, `"messages" with 5 was asked for`},
		{"a long name", []tree.TableSpec{{Name: long}}, "at most 255 each"},
		{"long groups", []tree.TableSpec{{GroupLen: 256}}, "at most 255 each"},
		{"too many", make([]tree.TableSpec, 201), "201 tables; at most 200"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := golden(t)
			for range 2 { // what Open adds must be there the second time
				tr, err := tree.Open(path, tree.Options{Tables: tt.tables})
				if tt.want != "" {
					if err == nil || !strings.Contains(err.Error(), tt.want) {
						t.Fatalf("got %v, want %s", err, tt.want)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := tr.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestWrongArguments(t *testing.T) {
	tr := open(t, golden(t), tree.Options{})
	_ = tr.Update(func(x *tree.Tx) error {
		for what, err := range map[string]error{
			"put to no table":    x.Put(2, key(1, 1), nil),
			"put to table -1":    x.Put(-1, key(1, 1), nil),
			"put of a short key": x.Put(messages, []byte("000"), nil),
			"put of a long key":  x.Put(queues, make([]byte, 32768), nil),
			"scan of no table":   x.Scan(2, nil, nil, nil),
		} {
			if err == nil || isDamage(err) {
				t.Errorf("%s: got %v", what, err)
			}
		}
		return nil
	})
	_ = tr.View(func(v *tree.View) error {
		if _, err := v.Count(messages, []byte("12345")); err == nil {
			t.Error("count of a wrong group: no error")
		}
		if _, _, err := v.Get(7, nil); err == nil {
			t.Error("get of no table: no error")
		}
		return nil
	})
	for _, size := range []int{512, 1000, 2 << 20} {
		if _, err := tree.Open(filepath.Join(t.TempDir(), "tree"), tree.Options{PageSize: size}); err == nil {
			t.Errorf("page size %d: no error", size)
		}
	}
	checkFile(t, golden(t), goldenRows())
}

func TestEdgeKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tree")
	tr := open(t, path, tree.Options{PageSize: 1024})
	rows := model{}
	keys := []string{"", "\x00", strings.Repeat("k", 32766), strings.Repeat("\xff", 32767), "\xff"}
	if err := tr.Update(func(x *tree.Tx) error {
		for i, k := range keys {
			rows[rowKey(queues, []byte(k))] = fmt.Sprint(i)
			if err := x.Put(queues, []byte(k), fmt.Append(nil, i)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := content(tr); err != nil || len(got) != len(keys) {
		t.Errorf("%d rows, %v", len(got), err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	checkFile(t, path, rows)
}

func TestInUse(t *testing.T) {
	path := golden(t)
	tr := open(t, path, tree.Options{})
	if _, err := tree.Open(path, tree.Options{Tables: tables}); !errors.Is(err, tree.ErrInUse) {
		t.Errorf("open: got %v, want %v", err, tree.ErrInUse)
	}
	if err := tr.Shrink(); err != nil { // the lock must go over to the new file
		t.Fatal(err)
	}
	if _, err := tree.Check(path, tree.Options{Tables: tables}, nil, nil); !errors.Is(err, tree.ErrInUse) {
		t.Errorf("check: got %v, want %v", err, tree.ErrInUse)
	}
}

func TestClosed(t *testing.T) {
	tr := open(t, golden(t), tree.Options{})
	var late *tree.View
	var lateTx *tree.Tx
	_ = tr.View(func(v *tree.View) error { late = v; return nil })
	_ = tr.Update(func(x *tree.Tx) error { lateTx = x; return nil })
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, get := late.Get(queues, nil)
	_, _, getTx := lateTx.Get(queues, nil)
	for what, err := range map[string]error{
		"view":           tr.View(func(*tree.View) error { return nil }),
		"update":         tr.Update(func(*tree.Tx) error { return nil }),
		"shrink":         tr.Shrink(),
		"get of a view":  get,
		"scan of a view": late.Scan(queues, nil, nil, nil),
		"get of a tx":    getTx,
		"put of a tx":    lateTx.Put(queues, nil, nil),
		"scan of a tx":   lateTx.Scan(queues, nil, nil, nil),
	} {
		if !errors.Is(err, tree.ErrClosed) {
			t.Errorf("%s: got %v, want %v", what, err, tree.ErrClosed)
		}
	}
	tr.DropPages()
	if err := tr.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// A callback's panic is its own, and leaves the tree usable.
func TestPanicOfCallback(t *testing.T) {
	tr := open(t, golden(t), tree.Options{})
	for what, f := range map[string]func(){
		"view":   func() { _ = tr.View(func(*tree.View) error { panic("mine") }) },
		"update": func() { _ = tr.Update(func(*tree.Tx) error { panic("mine") }) },
		"scan": func() {
			_ = tr.View(func(v *tree.View) error {
				return v.Scan(messages, nil, nil, func(_, _ []byte) error { panic("mine") })
			})
		},
		"scan of a tx": func() {
			_ = tr.Update(func(x *tree.Tx) error {
				return x.Scan(messages, nil, nil, func(_, _ []byte) error { panic("mine") })
			})
		},
		"nil": func() {
			_ = tr.View(func(*tree.View) error { var p *int; *p = 1; return nil })
		},
	} {
		func() {
			defer func() {
				if r := recover(); r != "mine" && what != "nil" || r == nil {
					t.Errorf("%s: recovered %v", what, r)
				}
			}()
			f()
		}()
	}
	put(t, tr, 1, 100, 110, "v")
}
