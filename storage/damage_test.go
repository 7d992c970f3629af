package storage_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"qserver/storage"
)

var (
	damageSeed   = flag.Uint64("damage.seed", 1, "seed of the test of damaged folders")
	damageRounds = flag.Int("damage.rounds", 0, "how often a folder is damaged; 0: 200, or 40 with -short")
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

// sound is a folder to be damaged, and what is in it.
type sound struct {
	dir    string
	live   map[string]bool // bodies of the messages
	acked  map[string]bool // bodies of those that are no more
	inTree map[string]bool // of the live ones, those that only the tree has
}

// newSound makes a folder with a tree of 2,000 messages and a log of some segments behind it. ended says whether the server
// closed it or was killed.
func newSound(t *testing.T, ended bool) *sound {
	t.Helper()
	f := &sound{dir: memoryDir(t), live: make(map[string]bool), acked: make(map[string]bool), inTree: make(map[string]bool)}
	s, err := storage.OpenStill(f.dir, storage.Options{SegmentBytes: 64 << 10, MinFreeDisk: 1, Sync: storage.SyncAlways})
	if err != nil {
		t.Fatal(err)
	}
	c := s.NewSession("")
	n := 0
	fill := func(count int) {
		t.Helper()
		for range count {
			n++
			q := string(rune('a' + n%3))
			body := bodyOf(q, 7, n, 100+n%200)
			if _, err := c.Enqueue([]byte(q), storage.PutRequest{Body: []byte(body), Priority: 7}); err != nil {
				t.Fatal(err)
			}
			f.live[body] = true
		}
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	acks := func(count int) {
		t.Helper()
		for range count {
			d, ok, err := c.Reserve([]byte("a"), storage.ReserveOptions{})
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			if err := c.Ack([]byte("a"), storage.Pick{Receipt: d.Receipt}); err != nil {
				t.Fatal(err)
			}
			delete(f.live, string(d.Body))
			f.acked[string(d.Body)] = true
		}
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	fill(2000)
	acks(50)
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	acks(50)
	for body := range f.live {
		f.inTree[body] = true
	}
	for range 4 {
		fill(150)
		acks(20)
	}
	if err := storage.Abandon(s); err != nil {
		t.Fatal(err)
	}
	if ended {
		s, err := storage.OpenStill(f.dir, storage.Options{SegmentBytes: 64 << 10, MinFreeDisk: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		f.inTree = f.live // the last checkpoint has them all
	}
	return f
}

// copyTo copies the folder.
func (f *sound) copyTo(t *testing.T, dir string) {
	t.Helper()
	if err := os.CopyFS(dir, os.DirFS(f.dir)); err != nil {
		t.Fatal(err)
	}
}

// injury is what was done to which bytes of a folder: only messages that lie there may be missing after a repair.
type injury struct {
	file     string
	from, to int64
	what     string
}

func injure(t *testing.T, rng *rand.Rand, path string) injury {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	x := injury{file: path}
	at := rng.IntN(len(b))
	switch k := rng.IntN(10); {
	case k < 6:
		x.from, x.to, x.what = int64(at), int64(at)+1, "a bit flipped"
		b[at] ^= 1 << rng.IntN(8)
	case k == 6:
		x.from, x.to, x.what = int64(at), int64(len(b)), "cut"
		b = b[:at]
	case k == 7:
		from := at / 4096 * 4096
		to := min(from+4096, len(b))
		x.from, x.to, x.what = int64(from), int64(to), "a block zeroed"
		clear(b[from:to])
	case k == 8 && len(b) > 3*16384:
		from := rng.IntN(len(b)/16384-1) * 16384
		x.from, x.to, x.what = int64(from)+16384, int64(from)+2*16384, "a page copied over the next"
		copy(b[from+16384:from+2*16384], b[from:from+16384])
	default:
		n := min(at+1+rng.IntN(1000), len(b))
		x.from, x.to, x.what = int64(at), int64(n), "overwritten"
		for i := at; i < n; i++ {
			b[i] = byte(rng.Uint32())
		}
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return x
}

// TestDamage damages one file of a folder in one place: it is refused or cut or does not matter, never served as if
// it were right; Check finds it; after Repair the folder opens, and what lay elsewhere is there.
func TestDamage(t *testing.T) {
	rounds := *damageRounds
	if rounds == 0 {
		rounds = 200
		if testing.Short() {
			rounds = 40
		}
	}
	for _, ended := range []bool{false, true} {
		for _, part := range []string{"tree", "log"} {
			t.Run(fmt.Sprintf("%s/ended=%v", part, ended), func(t *testing.T) {
				t.Parallel()
				f := newSound(t, ended)
				d := &damaged{t: t, f: f, places: make(map[string]map[string]int64)}
				for n := range uint64(rounds / 4) {
					d.seed = *damageSeed + n
					d.round(part, rand.New(rand.NewPCG(d.seed, 0)))
				}
				t.Logf("%d harmless, %d refused, %d found while serving", d.harmless, d.refused, d.served)
			})
		}
	}
}

// damaged counts what became of damaged folders.
type damaged struct {
	t                         *testing.T
	f                         *sound
	seed                      uint64
	dir                       string // the damaged folder
	x                         injury
	places                    map[string]map[string]int64 // by file and body
	harmless, refused, served int
}

func (d *damaged) fatal(format string, args ...any) {
	d.t.Helper()
	d.t.Fatalf("%s, %s, bytes %d to %d: %s\nseed %d; again: go test ./storage -run '%s' -damage.seed=%d", filepath.Base(d.x.file), d.x.what,
		d.x.from, d.x.to, fmt.Sprintf(format, args...), d.seed, d.t.Name(), d.seed)
}

func (d *damaged) options() storage.Options {
	return storage.Options{SegmentBytes: 64 << 10, MinFreeDisk: 1}
}

func (d *damaged) round(part string, rng *rand.Rand) {
	d.t.Helper()
	dir := filepath.Join(d.f.dir, "..", fmt.Sprintf("%s-%d", filepath.Base(d.f.dir), d.seed))
	d.dir = dir
	d.f.copyTo(d.t, dir)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tree")
	if part == "log" {
		segs := segments(d.t, dir)
		path = segs[rng.IntN(len(segs))]
	}
	d.x = injure(d.t, rng, path)

	trial := dir + "-trial"
	if err := os.CopyFS(trial, os.DirFS(dir)); err != nil {
		d.t.Fatal(err)
	}
	found := d.serve(trial)
	os.RemoveAll(trial)

	rep, err := storage.Check(dir, nil)
	if err != nil {
		d.fatal("Check: %v", err)
	}
	switch {
	case found == nil && len(rep.Problems) == 0:
		d.harmless++
		return
	case found != nil && len(rep.Problems) == 0:
		d.fatal("Check finds nothing, and the server says: %v", found)
	}
	for _, p := range rep.Problems {
		if !strings.HasPrefix(p.File, dir) || p.What == "" || !strings.Contains(p.Repair, dir) {
			d.fatal("Check: a problem without place, words or command: %+v", p)
		}
	}
	d.repair(dir)
}

// serve opens the folder and takes everything. What comes is right; it returns the damage that was told.
func (d *damaged) serve(dir string) error {
	d.t.Helper()
	s, err := storage.OpenStill(dir, d.options())
	if errors.Is(err, storage.ErrDamaged) {
		d.refused++
		if !strings.Contains(err.Error(), dir) {
			d.fatal("refused without the file's name: %v", err)
		}
		return err
	}
	if err != nil {
		d.fatal("Open: %v, want %v", err, storage.ErrDamaged)
	}
	defer storage.Abandon(s)
	live, err := takeAll(s)
	if errors.Is(err, storage.ErrDamaged) {
		d.served++
		return err
	}
	if err != nil {
		d.fatal("serving: %v", err)
	}
	seen := make(map[string]bool)
	for _, m := range live {
		if !d.f.live[m.body] || seen[m.body] {
			d.fatal("served: message %d of %s, %.40q, twice %v", m.id, m.queue, m.body, seen[m.body])
		}
		seen[m.body] = true
	}
	if len(seen) != len(d.f.live) {
		d.fatal("served %d messages of %d as if that were all", len(seen), len(d.f.live))
	}
	if err := countsError(s); err != nil {
		d.fatal("%v", err)
	}
	return nil
}

// repair repairs the folder and opens it.
func (d *damaged) repair(dir string) {
	d.t.Helper()
	bodies := d.bodiesAt(d.x)
	rep, err := storage.Repair(dir, false, nil)
	if err != nil {
		d.fatal("Repair: %v", err)
	}
	for _, kept := range rep.Kept {
		if _, err := os.Stat(kept); err != nil {
			d.fatal("Repair: not kept: %v", err)
		}
	}
	after, err := storage.Check(dir, nil)
	if err != nil || len(after.Problems) > 0 {
		d.fatal("Check after Repair: %v %+v (repair: %+v)", err, after.Problems, rep)
	}
	s, err := storage.OpenStill(dir, d.options())
	if err != nil {
		d.fatal("Open after Repair: %v (repair: %+v)", err, rep)
	}
	defer storage.Abandon(s)
	live, err := takeAll(s)
	if err != nil {
		d.fatal("after Repair: %v", err)
	}
	if err := countsError(s); err != nil {
		d.fatal("after Repair: %v", err)
	}
	if n := s.Stats().Items; n != int64(len(live)) {
		d.fatal("after Repair %d messages are counted and %d can be had (repair: %+v)", n, len(live), rep)
	}
	var checked int64
	for _, q := range after.Queues {
		checked += q.Items
	}
	if len(rep.Missing) == 0 && checked != int64(len(live)) {
		d.fatal("after Repair Check counts %d messages, %d can be had", checked, len(live))
	}
	there := make(map[string]bool)
	back := 0
	for _, m := range live {
		switch {
		case there[m.body]:
			d.fatal("after Repair twice: %.40q", m.body)
		case d.f.acked[m.body]:
			back++
		case !d.f.live[m.body]:
			d.fatal("after Repair: invented or altered: %.40q", m.body)
		}
		there[m.body] = true
	}
	if back > 0 && len(rep.Missing) == 0 {
		d.fatal("%d acked messages have come back, and nothing is missing", back)
	}
	for body := range d.f.live {
		if there[body] || bodies[body] {
			continue
		}
		if d.lostWith(body) {
			continue
		}
		d.fatal("after Repair an intact message is missing: %.40q (repair: %+v)", body, rep)
	}
}

// lostWith says whether a message may be missing though its bytes are whole: rows of the tree go with the page that leads to
// them, and with the one that says how they lie.
func (d *damaged) lostWith(body string) bool {
	return filepath.Base(d.x.file) == "tree" && d.f.inTree[body]
}

// bodiesAt returns the messages whose record or row may be hit by the injury.
func (d *damaged) bodiesAt(x injury) map[string]bool {
	name, err := filepath.Rel(d.dir, x.file)
	if err != nil {
		d.t.Fatal(err)
	}
	if d.places[name] == nil {
		whole, err := os.ReadFile(filepath.Join(d.f.dir, name))
		if err != nil {
			d.t.Fatal(err)
		}
		d.places[name] = make(map[string]int64)
		for body := range d.f.live {
			d.places[name][body] = int64(bytes.Index(whole, []byte(body)))
		}
	}
	hit := make(map[string]bool)
	for body, at := range d.places[name] {
		if at >= 0 && at-150 < x.to && at+int64(len(body))+100 > x.from {
			hit[body] = true
		}
	}
	return hit
}

// DUR-04, DUR-10: a missing or doubled file of the log is refused at once, and told by name.
func TestMissingSegment(t *testing.T) {
	f := newSound(t, false)
	segs := segments(t, f.dir)
	if len(segs) < 4 {
		t.Fatalf("only %d segments", len(segs))
	}
	for i := range segs {
		for _, how := range []string{"removed", "copied over the next", "moved aside"} {
			dir := filepath.Join(memoryDir(t), "data")
			f.copyTo(t, dir)
			name := segments(t, dir)[i]
			var err error
			switch {
			case how == "removed":
				err = os.Remove(name)
			case how == "moved aside":
				err = os.Rename(name, name+".aside")
			case i+1 < len(segs):
				var b []byte
				if b, err = os.ReadFile(name); err == nil {
					err = os.WriteFile(segments(t, dir)[i+1], b, 0o600)
				}
			default:
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			s, err := storage.OpenStill(dir, storage.Options{SegmentBytes: 64 << 10, MinFreeDisk: 1})
			if d := time.Since(began); d > 5*time.Second {
				t.Errorf("segment %d %s: told after %v", i, how, d)
			}
			if err == nil {
				live, err := takeAll(s)
				// Whether there ever was a segment behind the end of the one before, nobody can know.
				if err != nil || len(live) != len(f.live) && i < len(segs)-1 {
					t.Errorf("segment %d %s: served %d messages of %d, %v", i, how, len(live), len(f.live), err)
				}
				storage.Abandon(s)
				continue
			}
			if !errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), ".ulog") {
				t.Errorf("segment %d %s: %v", i, how, err)
			}
			if _, err := storage.Repair(dir, false, nil); err != nil {
				t.Errorf("segment %d %s: Repair: %v", i, how, err)
				continue
			}
			s, err = storage.OpenStill(dir, storage.Options{SegmentBytes: 64 << 10, MinFreeDisk: 1})
			if err != nil {
				t.Errorf("segment %d %s: after Repair: %v", i, how, err)
				continue
			}
			live, err := takeAll(s)
			if n := s.Stats().Items; err != nil || n != int64(len(live)) || n < int64(len(f.inTree)) {
				t.Errorf("segment %d %s: after Repair %d counted, %d can be had, %d were in the tree, %v", i, how, n, len(live), len(f.inTree), err)
			}
			storage.Abandon(s)
		}
	}
}

// A checkpoint leaves out messages whose removal it knows of and the log tells only later. If the tree has to be repaired in such
// a state, its counts are made from its rows, and the removals that follow must not be counted against them.
func TestRepairBetweenStrides(t *testing.T) {
	dir := memoryDir(t)
	o := storage.Options{SegmentBytes: 4 << 20, MinFreeDisk: 1, Sync: storage.SyncNever}
	s, err := storage.OpenStill(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	putMany(t, s, "q", 1000, 20<<10)
	c := s.NewSession("")
	for range 300 {
		get(t, c, "q")
		ack(t, c, "q")
	}
	if err := storage.Stride(s); err != nil {
		t.Fatal(err)
	}
	if err := storage.Abandon(s); err != nil {
		t.Fatal(err)
	}
	wantChecked(t, dir, map[string]int64{"q": 700}, -1)
	b, err := os.ReadFile(filepath.Join(dir, "tree"))
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte("m650 "))
	if at < 0 {
		t.Fatal("the stride has not written what it should")
	}
	b[at+100] ^= 4
	if err := os.WriteFile(filepath.Join(dir, "tree"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := storage.Repair(dir, false, nil); err != nil {
		t.Fatal(err)
	}
	if s, err = storage.OpenStill(dir, o); err != nil {
		t.Fatal(err)
	}
	live, err := takeAll(s)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().Items; n != int64(len(live)) || n < 690 || n > 699 {
		t.Errorf("%d messages are counted and %d can be had, want a few less than 700", n, len(live))
	}
	if err := countsError(s); err != nil {
		t.Error(err)
	}
	if err := storage.Abandon(s); err != nil {
		t.Fatal(err)
	}
}

// A folder whose tree is gone is not an empty one.
func TestMissingTree(t *testing.T) {
	f := newSound(t, false)
	if err := os.Remove(filepath.Join(f.dir, "tree")); err != nil {
		t.Fatal(err)
	}
	s, err := storage.Open(f.dir, storage.Options{SegmentBytes: 64 << 10, MinFreeDisk: 1})
	if err == nil {
		n := s.Stats().Items
		s.Close()
		t.Fatalf("opened with %d messages", n)
	}
	if !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("got %v, want %v", err, storage.ErrDamaged)
	}
}
