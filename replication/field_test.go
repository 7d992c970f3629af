package replication_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"qserver/replication"
	"qserver/storage"
)

// churn enqueues n messages of a queue and acks them, and lets go of the log that is not needed.
func churn(t *testing.T, st *storage.Store, q string, n int) {
	t.Helper()
	c := st.NewSession("churn")
	defer c.Close()
	body := make([]byte, 1000)
	for range n {
		if _, err := c.Enqueue([]byte(q), storage.PutRequest{Body: body, Priority: storage.DefaultPriority}); err != nil {
			t.Fatal(err)
		}
		work(t, c, q, 1, 0)
	}
	if err := st.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// REPL01: a slave that is new, or older than what is left of the log, gets a copy first, and never seems to be in step with gaps.
func TestField_REPL01_OlderThanTheLog(t *testing.T) {
	o := quick()
	o.LogKeep = 256 << 10
	m := newNode(t, 1, o).lead()
	put(t, m.store, "q", 0, 1000)
	churn(t, m.store, "acked", 500) // the log does not begin with the first record any more
	s2 := newNode(t, 2, quick()).follow(pipe(m))
	caughtUp(t, m, s2)
	s2.halt()
	put(t, m.store, "q", 1000, 1000)
	churn(t, m.store, "acked", 1500)
	if list := m.out.Slaves(); len(list) != 1 || list[0].State != replication.StateLost {
		t.Errorf("the master says %+v, want that it is lost", list)
	}
	if n := m.store.Stats().LogBytes; n > 1<<20 {
		t.Errorf("a log of %d bytes is kept for it", n)
	}

	before := s2.store
	s2.turn(pipe(m))
	caughtUp(t, m, s2)
	if s2.current() == before {
		t.Error("it has caught up without a copy")
	}
	s2.promote()
	if got := bodies(t, s2.store, "q"); !slices.Equal(got, messages(0, 2000)) {
		t.Errorf("it gives %d messages, want 2000", len(got))
	}
}

// REPL04: what is acked on the master leaves the slave, too, and its disk; after a failover there is nothing.
func TestField_REPL04_AckedLeavesTheSlave(t *testing.T) {
	m := newNode(t, 1, quick()).lead()
	s := newNode(t, 2, quick()).follow(pipe(m))
	churn(t, m.store, "q", 5000) // 5 MB
	caughtUp(t, m, s)
	if st := s.store.Stats(); st.Items != 0 {
		t.Errorf("%d messages are left", st.Items)
	}
	acked(t, m, s)
	s.promote()
	for name, st := range map[string]*storage.Store{"master": m.store, "slave": s.store} {
		if err := st.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st := st.Stats(); st.LogBytes+st.TreeBytes > 1<<20 {
			t.Errorf("%s: %d bytes of log and %d of tree for nothing", name, st.LogBytes, st.TreeBytes)
		}
	}
	if got := bodies(t, s.store, "q"); len(got) != 0 {
		t.Errorf("%d messages are delivered again", len(got))
	}
}

// REPL16: a slave whose folder is set back to an older state goes on from there, whatever lies between, a purge too, and one whose
// folder is emptied gets a copy.
func TestField_REPL16_SetBack(t *testing.T) {
	m := newNode(t, 1, quick()).lead()
	s := newNode(t, 2, quick()).follow(pipe(m))
	put(t, m.store, "q", 0, 500)
	caughtUp(t, m, s)
	s.stop()
	backup := t.TempDir()
	if err := os.CopyFS(backup, os.DirFS(s.dir)); err != nil {
		t.Fatal(err)
	}
	s.follow(pipe(m))
	if _, err := m.store.Purge([]byte("q")); err != nil {
		t.Fatal(err)
	}
	put(t, m.store, "q", 500, 500)
	churn(t, m.store, "gone", 200)
	put(t, m.store, "q", 1000, 500)
	caughtUp(t, m, s)
	acked(t, m, s)
	end := m.store.Position()

	set := func(from string) {
		t.Helper()
		s.stop()
		if err := os.RemoveAll(s.dir); err != nil {
			t.Fatal(err)
		}
		if from == "" {
			return
		}
		if err := os.CopyFS(s.dir, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	for name, from := range map[string]string{"set back": backup, "emptied": ""} {
		set(from)
		s.follow(pipe(m))
		if from != "" && s.current().Position().LSN >= end.LSN {
			t.Errorf("%s: it stands at %+v already", name, s.current().Position())
		}
		caughtUp(t, m, s)
		if st, _ := s.current().Queue([]byte("q")); st.Items != 1000 || st.TotalPurged != 500 {
			t.Errorf("%s: %+v", name, st)
		}
	}
	s.promote()
	if got := bodies(t, s.store, "q"); !slices.Equal(got, messages(500, 1500)) {
		t.Errorf("it gives %d messages, want 1000", len(got))
	}
}

// The file in which a master remembers its slaves may be lost, empty, or nonsense: at worst they get a copy.
func TestSlavesFileIsLost(t *testing.T) {
	m := newNode(t, 1, quick()).lead()
	s := newNode(t, 2, quick()).follow(pipe(m))
	put(t, m.store, "q", 0, 100)
	caughtUp(t, m, s)
	for i, text := range []string{"", "2\t18446744073709551615\t0\n", "2\t0\t0\n3 nonsense\n\x00\n"} {
		s.halt()
		put(t, m.store, "q", 100+100*i, 100)
		churn(t, m.store, "gone", 100)
		m.stop()
		if err := os.WriteFile(filepath.Join(m.dir, "slaves"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m.lead()
		churn(t, m.store, "gone", 100)
		s.turn(pipe(m))
		caughtUp(t, m, s)
	}
	s.promote()
	if got := bodies(t, s.store, "q"); !slices.Equal(got, messages(0, 400)) {
		t.Errorf("it gives %d messages, want 400", len(got))
	}
}
