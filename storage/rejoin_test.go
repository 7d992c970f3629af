package storage

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestDiscard: wherever a discard is cut off, the folder is as it was or as good as empty, and no stranger's file is lost.
func TestDiscard(t *testing.T) {
	steps := []string{"ulog", incomingFolder, outgoingFolder, "slaves", "role", "tree"}
	for done := range len(steps) + 1 {
		dir := t.TempDir()
		s, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := s.NewSession("")
		if _, err := c.Enqueue([]byte("jobs"), PutRequest{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, discardMark), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range steps[:done] {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		s, err = Open(dir, Options{})
		if err != nil {
			t.Fatalf("after %d steps: %v", done, err)
		}
		if st := s.Stats(); st.Items != 0 || st.Queues != 0 {
			t.Errorf("after %d steps: %d messages in %d queues, want an empty folder", done, st.Items, st.Queues)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		names, err := namesIn(dir)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(names, "mine") || slices.Contains(names, discardMark) {
			t.Errorf("after %d steps: %q", done, names)
		}
	}
}

func namesIn(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}
