package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"qserver/storage"
	"qserver/storage/ulog"
)

const testMaster = "master:1978"

// ship gives the slave what the master has on its disk, in batches of about maxBytes.
func ship(t *testing.T, master, slave *storage.Store, maxBytes int) {
	t.Helper()
	if err := master.Sync(); err != nil {
		t.Fatal(err)
	}
	f, err := master.Feed("2", slave.Position())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b storage.Batch
	for {
		after := f.Position()
		payload, n, end, err := f.Append(nil, maxBytes)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		if err := b.Decode(payload, after, end); err != nil {
			t.Fatal(err)
		}
		if err := slave.ApplyMaster(&b); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := slave.Position(), master.Position(); got != want {
		t.Fatalf("slave stands at %+v, master at %+v", got, want)
	}
	lsn, err := slave.MakeDurable()
	if err != nil {
		t.Fatal(err)
	}
	master.Keep("2", lsn)
}

// counts are what both sides must agree on: what is reserved on the master is ready on the slave.
func agree(t *testing.T, master, slave *storage.Store) {
	t.Helper()
	norm := func(qs []storage.QueueStats) []storage.QueueStats {
		for i := range qs {
			q := &qs[i]
			q.Ready += q.Reserved
			q.Reserved, q.Waiters, q.Age, q.Returned, q.Gets, q.GetMisses = 0, 0, 0, 0, 0, 0
		}
		return qs
	}
	m, s := norm(master.Queues("", 0)), norm(slave.Queues("", 0))
	if !slices.Equal(m, s) {
		t.Fatalf("master %+v\nslave  %+v", m, s)
	}
	if err := countsError(slave); err != nil {
		t.Fatal(err)
	}
}

func openSlave(t *testing.T, dir string, o storage.Options) *storage.Store {
	t.Helper()
	o.Master = testMaster
	return open(t, dir, o)
}

// copyTo makes dir a slave's folder with the master's tree.
func copyTo(t *testing.T, master *storage.Store, dir string) {
	t.Helper()
	path, err := master.WriteCopy("2", func(int64, int64) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	part := storage.IncomingPart(dir)
	if err := errors.Join(os.MkdirAll(filepath.Dir(part), 0o700), os.Rename(path, part)); err != nil {
		t.Fatal(err)
	}
	if _, err := storage.ReadyCopy(dir, master.History(), testMaster, nil); err != nil {
		t.Fatal(err)
	}
}

// TestSlaveHasWhatTheMasterHas does random things on a master and compares after each round: counts while both run, and,
// after the slave was opened as one that leads, every message in order.
func TestSlaveHasWhatTheMasterHas(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			dirs := [2]string{t.TempDir(), t.TempDir()}
			o := storage.Options{SegmentBytes: 64 << 10, Memory: 1 << 20, Window: 16, Sync: storage.SyncNever}
			master := open(t, dirs[0], o)
			master.Keep("2", 0)
			if seed%2 == 1 {
				for range 500 {
					randomStep(t, rng, master.NewSession("early"))
				}
				copyTo(t, master, dirs[1])
			}
			slave := openSlave(t, dirs[1], o)
			for range 10 {
				c := master.NewSession("c")
				for range 100 {
					randomStep(t, rng, c)
				}
				if rng.IntN(2) == 0 {
					c.Close()
				}
				ship(t, master, slave, 1+rng.IntN(30000))
				agree(t, master, slave)
				switch rng.IntN(4) {
				case 0:
					if err := slave.Checkpoint(t.Context()); err != nil {
						t.Fatal(err)
					}
					agree(t, master, slave)
				case 1:
					if err := slave.Close(); err != nil {
						t.Fatal(err)
					}
					slave = openSlave(t, dirs[1], o)
					agree(t, master, slave)
				case 2:
					if err := master.Checkpoint(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := slave.Promote(); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(master.Close(), slave.Close()); err != nil {
				t.Fatal(err)
			}
			master, slave = open(t, dirs[0], o), open(t, dirs[1], o)
			for _, q := range []string{"a", "b", "c"} {
				want, got := drain(t, master, q), drain(t, slave, q)
				if !slices.Equal(got, want) {
					t.Errorf("queue %s: slave has %d messages, master %d", q, len(got), len(want))
				}
			}
		})
	}
}

// randomStep does something to a queue of the session's store.
func randomStep(t *testing.T, rng *rand.Rand, c *storage.Session) {
	t.Helper()
	q := []byte{"abc"[rng.IntN(3)]}
	var err error
	switch k := rng.IntN(20); {
	case k < 10:
		p := storage.PutRequest{Body: bytes.Repeat([]byte{byte(k) + 'a'}, rng.IntN(400)), Priority: uint32(rng.IntN(3)), Flags: rng.Uint32()}
		if k == 0 {
			p.Body = make([]byte, 20<<10)
		}
		if k == 1 {
			p.Dedup = []byte{byte(rng.IntN(50))}
		}
		if k == 2 {
			p.Delay = time.Hour
		}
		_, err = c.Enqueue(q, p)
	case k < 18:
		var d storage.Delivery
		var ok bool
		if d, ok, err = c.Reserve(q, storage.ReserveOptions{}); !ok {
			break
		}
		pick := storage.Pick{Receipt: d.Receipt}
		switch rng.IntN(6) {
		case 0: // held
		case 1:
			err = c.Release(q, pick, 0)
		case 2:
			err = c.Release(q, pick, time.Hour)
		case 3:
			err = c.ReplaceBody(q, d.Receipt, []byte("new"), 9, time.Time{})
		default:
			err = c.Ack(q, pick)
		}
	}
	if err = errors.Join(err, c.Commit()); err != nil {
		t.Fatal(err)
	}
}

// A slave refuses whatever would change anything, and answers everything else.
func TestSlaveIsReadOnly(t *testing.T) {
	master, slave := open(t, t.TempDir(), storage.Options{}), openSlave(t, t.TempDir(), storage.Options{})
	c := master.NewSession("c")
	defer c.Close()
	put(t, c, "q", "one")
	if _, ok := get(t, c, "q"); !ok { // held on the master
		t.Fatal("nothing to hold")
	}
	ship(t, master, slave, 1<<20)
	r := slave.NewSession("r")
	defer r.Close()
	q := []byte("q")
	_, _, reserve := r.Reserve(q, storage.ReserveOptions{})
	_, enqueue := r.Enqueue(q, storage.PutRequest{Body: []byte("x")})
	_, add := r.Enqueue(q, storage.PutRequest{Mode: storage.PutAdd, Body: []byte("x")})
	_, purge := slave.Purge(q)
	_, purgeAll := slave.PurgeAll()
	for what, err := range map[string]error{
		"Enqueue": enqueue, "add": add, "Reserve": reserve, "Purge": purge, "PurgeAll": purgeAll,
		"Ack": r.Ack(q, storage.Pick{}), "Ack by receipt": r.Ack(q, storage.Pick{Receipt: 1}),
		"Release": r.Release(q, storage.Pick{}, 0), "Touch": r.Touch(q, storage.Pick{}, time.Second),
		"ReplaceBody": r.ReplaceBody(q, 1, nil, 0, time.Time{}), "Writable": slave.Writable(),
	} {
		if !errors.Is(err, storage.ErrReadOnly) || err.Error() != "read-only: this is a slave of master:1978" {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if d, ok, err := r.Peek(q); err != nil || !ok || string(d.Body) != "one" {
		t.Errorf("Peek: %q %v %v, want what the master has reserved", d.Body, ok, err)
	}
	if st, _ := slave.Queue(q); st.Ready != 1 || st.Reserved != 0 {
		t.Errorf("counts: %+v", st)
	}
	if w := r.Wait([][]byte{q}, make([]storage.ReserveOptions, 1), func() {}); !w.Done() {
		t.Error("a wait on a slave does not end")
	}
}

// A message past its time stays on a slave until the master's record says so.
func TestSlaveNeverExpires(t *testing.T) {
	master, slave := open(t, t.TempDir(), storage.Options{}), openSlave(t, t.TempDir(), storage.Options{})
	c := master.NewSession("c")
	defer c.Close()
	putReq(t, c, "q", storage.PutRequest{Body: []byte("short"), Expire: time.Now().Add(time.Second)})
	ship(t, master, slave, 1<<20)
	if st, _ := slave.Queue([]byte("q")); st.Items != 1 {
		t.Fatalf("slave: %+v", st)
	}
	waitFor(t, "the master expires it", func() bool { st, _ := master.Queue([]byte("q")); return st.TotalExpired == 1 })
	if err := storage.KeepTime(slave); err != nil {
		t.Fatal(err)
	}
	r := slave.NewSession("r")
	defer r.Close()
	if _, ok, err := r.Peek([]byte("q")); !ok || err != nil {
		t.Errorf("Peek: %v %v, want what the slave was told", ok, err)
	}
	if st, _ := slave.Queue([]byte("q")); st.Items != 1 || st.TotalExpired != 0 {
		t.Errorf("slave before the record: %+v", st)
	}
	ship(t, master, slave, 1<<20)
	if st, _ := slave.Queue([]byte("q")); st.Items != 0 || st.TotalExpired != 1 {
		t.Errorf("slave behind the record: %+v", st)
	}
}

// What doesn't continue the history is refused whole.
func TestSlaveRefusesWrongRecords(t *testing.T) {
	master, slave := open(t, t.TempDir(), storage.Options{}), openSlave(t, t.TempDir(), storage.Options{})
	c := master.NewSession("c")
	defer c.Close()
	for i := range 20 {
		put(t, c, "q", fmt.Sprint("message ", i))
	}
	f, err := master.Feed("2", ulog.Position{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	payload, n, end, err := f.Append(nil, 1<<20)
	if err != nil || n < 21 {
		t.Fatalf("%d records, %v", n, err)
	}
	var b storage.Batch
	for i := range payload {
		bad := bytes.Clone(payload)
		bad[i] ^= 1 << (i % 8)
		if err := b.Decode(bad, ulog.Position{}, end); err == nil {
			t.Fatalf("byte %d changed: no error", i)
		}
		if err := b.Decode(payload[:i], ulog.Position{}, end); !errors.Is(err, storage.ErrStream) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
	if err := b.Decode(payload, ulog.Position{}, end); err != nil {
		t.Fatal(err)
	}
	if err := master.ApplyMaster(&b); !errors.Is(err, storage.ErrNotFollowing) {
		t.Errorf("a store that leads: %v", err)
	}
	if err := slave.ApplyMaster(&b); err != nil {
		t.Fatal(err)
	}
	if err := slave.ApplyMaster(&b); !errors.Is(err, storage.ErrStream) {
		t.Errorf("the same again: %v", err)
	}
	agree(t, master, slave)
}

// A folder that followed and then leads begins an epoch, once.
func TestEpochs(t *testing.T) {
	dirs := [2]string{t.TempDir(), t.TempDir()}
	master, slave := open(t, dirs[0], storage.Options{}), openSlave(t, dirs[1], storage.Options{})
	c := master.NewSession("c")
	defer c.Close()
	put(t, c, "q", "one")
	ship(t, master, slave, 1<<20)
	if n := len(slave.Epochs()); n != 0 {
		t.Errorf("%d epochs before anyone else leads", n)
	}
	if err := slave.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		slave = open(t, dirs[1], storage.Options{})
		e := slave.Epochs()
		if len(e) != 1 || e[0].Number != 2 || e[0].LSN != master.Position().LSN+1 || e[0].Nonce == 0 {
			t.Fatalf("epochs %+v, master at %d", e, master.Position().LSN)
		}
		if err := slave.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// It follows again, and is promoted while it runs.
	slave = openSlave(t, dirs[1], storage.Options{})
	if err := slave.Promote(); err != nil {
		t.Fatal(err)
	}
	if e := slave.Epochs(); len(e) != 2 || e[1].Number != 3 {
		t.Fatalf("epochs %+v", e)
	}
	r := slave.NewSession("r")
	defer r.Close()
	d, ok, err := r.Reserve([]byte("q"), storage.ReserveOptions{})
	if err != nil || !ok || d.Receipt <= 1<<20 {
		t.Errorf("promoted: %+v %v %v: its receipts must not have been given before", d, ok, err)
	}
	if err := r.Ack([]byte("q"), storage.Pick{}); err != nil {
		t.Fatal(err)
	}
	if err := r.Commit(); err != nil {
		t.Fatal(err)
	}
}

// What expired while the slave followed goes when it leads.
func TestPromotedSlaveExpires(t *testing.T) {
	master, slave := open(t, t.TempDir(), storage.Options{}), openSlave(t, t.TempDir(), storage.Options{})
	c := master.NewSession("c")
	defer c.Close()
	putReq(t, c, "q", storage.PutRequest{Body: []byte("short"), Expire: time.Now().Add(2 * time.Second)})
	ship(t, master, slave, 1<<20)
	if err := slave.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := slave.Promote(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the promoted slave expires it", func() bool { st, _ := slave.Queue([]byte("q")); return st.TotalExpired == 1 })
}
