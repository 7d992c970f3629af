package storage_test

import (
	"testing"

	"qserver/storage"
)

// wantChecked runs Check, which must find no problem, these queues, and so many rows in the tree (-1: any number).
func wantChecked(t *testing.T, dir string, items map[string]int64, rows int64) {
	t.Helper()
	rep, err := storage.Check(dir, nil)
	if err != nil {
		t.Fatalf("Check: %v", err)
	}
	for _, p := range rep.Problems {
		t.Errorf("Check: %s at %d: %s", p.File, p.Offset, p.What)
	}
	for _, q := range rep.Queues {
		if want := items[q.Name]; q.Items != want {
			t.Errorf("Check: queue %s has %d messages, want %d", q.Name, q.Items, want)
		}
	}
	if len(rep.Queues) != len(items) {
		t.Errorf("Check: %d queues, want %d", len(rep.Queues), len(items))
	}
	if rows >= 0 && rep.TreeRows != rows {
		t.Errorf("Check: %d rows in the tree, want %d", rep.TreeRows, rows)
	}
}
