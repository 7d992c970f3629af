package tree_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"qserver/storage/tree"
)

const damagePage = 1024

// specimen is a small file with several levels, free pages, and rows with overflow pages.
type specimen struct {
	path   string
	bytes  []byte
	rows   model
	before model // as the last transaction found it
}

func newSpecimen(t *testing.T) *specimen {
	t.Helper()
	s := &specimen{path: filepath.Join(t.TempDir(), "tree"), rows: model{}}
	tr := open(t, s.path, tree.Options{PageSize: damagePage})
	r := rand.New(rand.NewPCG(1, 2))
	for len(s.rows) < 600 {
		s.before = maps.Clone(s.rows)
		if err := randomUpdate(tr, s.rows, r); err != nil {
			t.Fatal(err)
		}
	}
	put(t, tr, 1, 0, 3, "last")
	s.before = s.rows
	var err error
	if s.rows, err = content(tr); err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	checkFile(t, s.path, s.rows)
	if s.bytes, err = os.ReadFile(s.path); err != nil {
		t.Fatal(err)
	}
	return s
}

// verdict says what became of damage.
type verdict string

const (
	refused    verdict = "refused at open"
	found      verdict = "found by reading"
	foundFirst verdict = "found by writing"
	older      verdict = "older transaction, reported by check"
	foundLater verdict = "harmless at first, found by writing"
	harmless   verdict = "harmless"
)

// judge opens the damaged file, reads all of it (or not), goes on writing, and returns an error if anything wrong comes
// out of it unnoticed.
func (s *specimen) judge(t *testing.T, damaged []byte, read bool) (v verdict, err error) {
	t.Helper()
	if err := os.WriteFile(s.path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := tree.Check(s.path, tree.Options{Tables: tables}, nil, nil)
	if err != nil {
		return "", fmt.Errorf("check: %w", err)
	}
	tr, err := tree.Open(s.path, tree.Options{Tables: tables})
	if isDamage(err) {
		if len(report.Problems) == 0 {
			return "", fmt.Errorf("check found nothing, but: %w", err)
		}
		return refused, nil
	}
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, tr.Close()) }()
	if !read {
		return s.writeFirst(tr, report)
	}
	got, err := s.readAll(tr)
	switch {
	case isDamage(err):
		if len(report.Problems) == 0 {
			return "", fmt.Errorf("check found nothing, but: %w", err)
		}
		return found, nil
	case err != nil:
		return "", err
	case maps.Equal(got, s.before) && len(report.Problems) > 0:
		return older, nil
	case !maps.Equal(got, s.rows):
		return "", fmt.Errorf("silent: %d rows instead of %d; check found %d problems", len(got), len(s.rows), len(report.Problems))
	}
	return s.goOn(tr, got)
}

// writeFirst writes to a tree that was only opened.
func (s *specimen) writeFirst(tr *tree.Tree, report tree.Report) (verdict, error) {
	if len(report.Problems) > 0 && report.Problems[0].Offset >= 0 && report.Problems[0].Offset <= damagePage {
		return older, nil // a meta page
	}
	v, err := s.goOn(tr, maps.Clone(s.rows))
	if v == foundLater {
		v = foundFirst
	}
	if v == harmless && len(report.Problems) > 0 {
		// What was damaged is overwritten or gone, and nothing wrong came out of it.
		v = foundFirst
	}
	return v, err
}

// readAll reads by scan, by key and by count.
func (s *specimen) readAll(tr *tree.Tree) (model, error) {
	got, err := content(tr)
	if err != nil {
		return nil, err
	}
	groups := map[string]uint64{}
	return got, tr.View(func(v *tree.View) error {
		for k := range s.rows {
			value, ok, err := v.Get(int(k[0]-'A'), []byte(k[1:]))
			if err != nil {
				return err
			}
			if want, has := got[k]; ok != has || string(value) != want {
				return fmt.Errorf("row %q: %v, the scan had %v", k, ok, has)
			}
			if ok && k[0] == 'A' {
				groups[k[1:5]]++
			}
		}
		for g, want := range groups {
			if n, err := v.Count(messages, []byte(g)); err != nil || n != want {
				return errors.Join(err, fmt.Errorf("group %s: count %d, want %d", g, n, want))
			}
		}
		return nil
	})
}

// goOn writes to a tree that looked whole. If nothing is found the file must then be whole.
func (s *specimen) goOn(tr *tree.Tree, m model) (verdict, error) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 3 {
		if err := randomUpdate(tr, m, r); isDamage(err) {
			return foundLater, nil
		} else if err != nil {
			return "", err
		}
	}
	got, err := content(tr)
	if isDamage(err) {
		return foundLater, nil
	}
	if err != nil || !maps.Equal(got, m) {
		return "", fmt.Errorf("silent after writing: %d rows instead of %d: %w", len(got), len(m), err)
	}
	if err := tr.Close(); err != nil {
		return "", err
	}
	report, err := tree.Check(s.path, tree.Options{Tables: tables}, nil, nil)
	if err != nil {
		return "", err
	}
	if len(report.Problems) > 0 {
		return foundLater, nil
	}
	return harmless, nil
}

func isDamage(err error) bool {
	_, ok := errors.AsType[*tree.CorruptError](err)
	return ok
}

func cases(t *testing.T, n int) int {
	t.Helper()
	if testing.Short() {
		return n / 10
	}
	return n
}

func TestDamage(t *testing.T) {
	t.Parallel()
	s := newSpecimen(t)
	r := newRand(t)
	size := len(s.bytes)
	sector := func() int { return r.IntN(size/512) * 512 }
	for _, tt := range []struct {
		name   string
		n      int
		damage func(b []byte) string
	}{
		{"bit", cases(t, 2000), func(b []byte) string {
			at, bit := r.IntN(size), r.IntN(8)
			b[at] ^= 1 << bit
			return fmt.Sprintf("bit %d of byte %d", bit, at)
		}},
		{"header bit", cases(t, 1000), func(b []byte) string {
			at, bit := r.IntN(size/damagePage)*damagePage+r.IntN(64), r.IntN(8)
			b[at] ^= 1 << bit
			return fmt.Sprintf("bit %d of byte %d", bit, at)
		}},
		{"noise", cases(t, 500), func(b []byte) string {
			at := sector()
			for i := range 512 {
				b[at+i] = byte(r.Uint32())
			}
			return fmt.Sprintf("512 random bytes at %d", at)
		}},
		{"zeros", cases(t, 500), func(b []byte) string {
			at := sector()
			clear(b[at : at+512])
			return fmt.Sprintf("512 zeros at %d", at)
		}},
		{"misdirected sector", cases(t, 500), func(b []byte) string {
			from, to := sector(), sector()
			copy(b[to:to+512], s.bytes[from:])
			return fmt.Sprintf("512 bytes from %d at %d", from, to)
		}},
		{"misdirected page", cases(t, 500), func(b []byte) string {
			from, to := r.IntN(size/damagePage)*damagePage, r.IntN(size/damagePage)*damagePage
			copy(b[to:to+damagePage], s.bytes[from:])
			return fmt.Sprintf("a page from %d at %d", from, to)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			verdicts := map[verdict]int{}
			for i := range tt.n {
				b := bytes.Clone(s.bytes)
				what := tt.damage(b)
				v, err := s.judge(t, b, i%3 > 0)
				if err != nil {
					t.Fatalf("%s: %v\n%s", what, err, firstDifference(s.bytes, b))
				}
				verdicts[v]++
			}
			t.Logf("%d bytes, %d cases: %v", size, tt.n, verdicts)
		})
	}
}

func TestCuts(t *testing.T) {
	s := newSpecimen(t)
	for at := 0; at < len(s.bytes); at += 4096 {
		for _, size := range []int{at, at + 1, at + 512, at + 4095} {
			if size >= len(s.bytes) {
				continue
			}
			if v, err := s.judge(t, s.bytes[:size], true); err != nil || v != refused {
				t.Fatalf("cut at %d: %q, %v", size, v, err)
			}
		}
	}
}

// A write that never reached the disk leaves pages that hold by themselves. Reading can't tell; the digests do.
func TestLostWrites(t *testing.T) {
	s := newSpecimen(t)
	tr := open(t, s.path, tree.Options{})
	put(t, tr, 1, 0, 3, "newer")
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	newer := maps.Clone(s.rows)
	for i := range 3 {
		newer[rowKey(messages, key(1, i))] = fmt.Sprintf("newer %d", i)
	}
	lost, harmless := 0, 0
	for at := 2 * damagePage; at < min(len(whole), len(s.bytes)); at += damagePage {
		if bytes.Equal(whole[at:at+damagePage], s.bytes[at:at+damagePage]) {
			continue
		}
		b := bytes.Clone(whole)
		copy(b[at:], s.bytes[at:at+damagePage])
		if err := os.WriteFile(s.path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		report, err := tree.Check(s.path, tree.Options{Tables: tables}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if lost++; len(report.Problems) == 0 { // as with the unused end of the list of free pages
			checkFile(t, s.path, newer)
			harmless++
		}
	}
	if lost < 4 || harmless > 1 {
		t.Errorf("of %d lost pages %d are harmless", lost, harmless)
	}
}

// A file that shrinks while it is open makes faults on the mapped pages: an error, not the end of the process.
func TestTruncatedWhileOpen(t *testing.T) {
	s := newSpecimen(t)
	for _, size := range []int64{0, damagePage, 4096, int64(len(s.bytes)) / 2 &^ 4095} {
		if err := os.WriteFile(s.path, s.bytes, 0o600); err != nil {
			t.Fatal(err)
		}
		tr, err := tree.Open(s.path, tree.Options{Tables: tables})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(s.path, size); err != nil {
			t.Fatal(err)
		}
		if _, err := content(tr); !isDamage(err) {
			t.Errorf("cut to %d: reading: %v, want damage", size, err)
		}
		if err := tr.Update(func(x *tree.Tx) error { return x.Put(messages, key(9, 9), nil) }); err == nil {
			t.Errorf("cut to %d: writing: no error", size)
		}
		tr.DropPages()
		_ = tr.Close()
		if size > 0 {
			continue
		}
		if _, err := tree.Open(s.path, tree.Options{Tables: tables}); !isDamage(err) {
			t.Errorf("opening the empty file: %v, want damage", err)
		}
	}
}

// firstDifference is a dump of 64 bytes around the first byte in which b differs from a.
func firstDifference(a, b []byte) string {
	for i := range a {
		if a[i] != b[i] {
			at := i &^ 15
			return fmt.Sprintf("at %d\n%s", at, hex.Dump(b[at:min(at+64, len(b))]))
		}
	}
	return "no difference"
}
