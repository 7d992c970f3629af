package queue_test

import (
	"testing"
	"time"

	"qserver/storage/queue"
)

// bench is an index with a log in front that loses nothing: what is staged is applied at once.
type bench struct {
	t   *testing.T
	ix  *queue.Index
	lsn uint64
	now int64
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, ix: queue.NewIndex(), now: 1_700_000_000_000}
	b.ix.Restore(queue.Base{}, b.now)
	op, _ := b.ix.DoorReceipts()
	b.apply(op)
	b.tick(0)
	return b
}

func (b *bench) tick(d time.Duration) {
	b.now += d.Milliseconds()
	b.ix.Tick(b.now, time.Duration(b.now)*time.Millisecond)
}

func (b *bench) apply(op queue.Op) {
	b.lsn++
	op.LSN = b.lsn
	b.ix.Apply(&op)
}

func (b *bench) put(name, body string, pri uint32) uint64 {
	q, op, created := b.ix.DoorCreate([]byte(name))
	if created {
		b.apply(op)
	}
	m := &queue.Message{Pri: pri, Size: uint32(len(body)), Body: []byte(body), Enqueued: b.now}
	b.apply(b.ix.DoorEnqueue(q, m, nil, 0))
	return m.ID
}

func (b *bench) take(name string, h *queue.Holder, o queue.ReserveOpts) *queue.Reservation {
	b.t.Helper()
	r, refill := b.ix.Reserve(b.ix.Lookup([]byte(name)), h, o)
	if refill {
		b.t.Fatal("refill wanted")
	}
	return r
}

func (b *bench) pick(h *queue.Holder, name string, receipt uint64, tag string) *queue.Reservation {
	var t []byte
	if tag != "" {
		t = []byte(tag)
	}
	return b.ix.Pick(h, b.ix.Lookup([]byte(name)), receipt, t)
}

func wantBody(t *testing.T, r *queue.Reservation, want string) {
	t.Helper()
	if r == nil {
		t.Fatalf("got nothing, want %s", want)
	}
	if got := string(r.Msg.Body); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

func TestOrderIsPriorityThenID(t *testing.T) {
	b := newBench(t)
	b.put("q", "c", 5)
	b.put("q", "d", 5)
	b.put("q", "a", 1)
	var h queue.Holder
	first := b.take("q", &h, queue.ReserveOpts{})
	wantBody(t, first, "a")
	wantBody(t, b.take("q", &h, queue.ReserveOpts{}), "c")
	b.ix.Release(first)
	wantBody(t, b.take("q", &h, queue.ReserveOpts{}), "a") // I3: back in its old place
	wantBody(t, b.take("q", &h, queue.ReserveOpts{}), "d")
	if r := b.take("q", &h, queue.ReserveOpts{}); r != nil {
		t.Fatalf("got %s from an empty queue", r.Msg.Body)
	}
}

func TestListKeepsThePlaceOfALapsedLease(t *testing.T) {
	b := newBench(t)
	b.put("q", "a", 1)
	b.put("q", "b", 1)
	var h, other queue.Holder
	b.take("q", &h, queue.ReserveOpts{Lease: time.Second})
	kept := b.take("q", &h, queue.ReserveOpts{})
	b.tick(2 * time.Second)
	b.ix.Lapse(10)
	wantBody(t, b.take("q", &other, queue.ReserveOpts{}), "a")
	if r := b.pick(&h, "q", 0, ""); r != nil {
		t.Fatalf("the lapsed place gave %s", r.Msg.Body)
	}
	if r := b.pick(&h, "q", 0, ""); r != kept {
		t.Fatal("the next place is not the one behind it")
	}
}

func TestTagsPreferTheirOwnSession(t *testing.T) {
	b := newBench(t)
	for _, body := range []string{"a", "b", "c"} {
		b.put("q", body, 1)
	}
	var h, o, third queue.Holder
	mine := b.take("q", &h, queue.ReserveOpts{Tag: "t"})
	if again := b.take("q", &h, queue.ReserveOpts{Tag: "t"}); again != mine {
		t.Fatal("a retry under the same tag took another message")
	}
	theirs := b.take("q", &o, queue.ReserveOpts{Tag: "t"})
	if b.pick(&h, "q", 0, "t") != mine || b.pick(&o, "q", 0, "t") != theirs {
		t.Fatal("a tag means the session's own message first")
	}
	if r := b.pick(&third, "q", 0, "t"); r != nil {
		t.Fatal("a tag that two others carry was picked")
	}
	b.apply(b.ix.DoorAck(mine))
	if b.pick(&third, "q", 0, "t") != theirs {
		t.Fatal("the only one that carries a tag is not found from elsewhere")
	}
}

func TestWaitersAreServedInOrder(t *testing.T) {
	b := newBench(t)
	b.put("q", "x", 1)
	var h queue.Holder
	b.apply(b.ix.DoorAck(b.take("q", &h, queue.ReserveOpts{})))
	q := b.ix.Lookup([]byte("q"))
	var ws [3]queue.Waiter
	var hs [3]queue.Holder
	for i := range ws {
		ws[i].Holder = &hs[i]
		b.ix.Wait(&ws[i], []*queue.Queue{q}, make([]queue.ReserveOpts, 1))
	}
	b.ix.Cancel(&ws[1])
	b.put("q", "a", 1)
	b.put("q", "b", 1)
	b.put("q", "c", 1)
	for i, want := range map[int]string{0: "a", 2: "b"} {
		r, _ := ws[i].Result()
		wantBody(t, r, want)
	}
	if r, _ := ws[1].Result(); r != nil {
		t.Fatal("a cancelled waiter was served")
	}
	if c := q.Counts(); c.Ready != 1 || c.Reserved != 2 || c.Waiters != 0 {
		t.Fatalf("%+v", c)
	}
}

func TestPurgeReachesWhatIsHeld(t *testing.T) {
	b := newBench(t)
	b.put("q", "a", 1)
	b.put("q", "b", 1)
	var h queue.Holder
	b.take("q", &h, queue.ReserveOpts{})
	q := b.ix.Lookup([]byte("q"))
	op, n := b.ix.DoorPurge(q)
	if n != 2 {
		t.Fatalf("purged %d, want 2", n)
	}
	if b.pick(&h, "q", 0, "") != nil {
		t.Fatal("picked behind a staged purge")
	}
	b.apply(op)
	b.put("q", "new", 1)
	b.ix.CloseHolder(&h)
	if c := q.Counts(); c.Live != 1 || c.Ready != 1 || c.Reserved != 0 || c.Purged != 2 {
		t.Fatalf("%+v", c)
	}
}

func TestReceiptsAreNeverGivenTwice(t *testing.T) {
	b := newBench(t)
	b.put("q", "a", 1)
	var h queue.Holder
	first := b.take("q", &h, queue.ReserveOpts{}).Receipt

	ix := queue.NewIndex()
	ix.Restore(queue.Base{LSN: b.lsn, NextID: 2, NextQueue: 2, Receipts: 1 << 20}, b.now)
	if ix.Given(first) {
		t.Fatal("a new run knows a receipt of the one before")
	}
	if left := ix.ReceiptsLeft(); left != 0 {
		t.Fatalf("%d receipts left before the log reserved any", left)
	}
}

// Messages that leave memory between the reading of a queue's next rows and their arrival are read again, not forgotten.
func TestEvictedWhileRowsAreRead(t *testing.T) {
	b := newBench(t)
	var rows []queue.Row
	for i := range 3 {
		id := b.put("q", string('a'+rune(i)), 1)
		rows = append(rows, queue.Row{ID: id, Queue: 1, Pri: 1, Size: 1, Body: []byte{'a' + byte(i)}})
	}
	q := b.ix.Lookup([]byte("q"))
	b.ix.BeginStride(1)
	b.ix.TreeAdvanced(b.lsn, rows[2].ID+1)
	none := queue.Limits{}
	for !b.ix.Settle(100, none) {
	}
	fill := func(rows []queue.Row, pri uint32, id uint64, complete bool) bool {
		t.Helper()
		if _, refill := b.ix.Head(q); !refill {
			t.Fatal("no refill wanted")
		}
		return b.ix.FillWindow(q, pri, id, rows, complete)
	}
	pri, id := q.ColdFrom()
	if id != rows[0].ID || !fill(rows[:2], pri, id, false) {
		t.Fatalf("begin at %d, want %d, and the first two taken", id, rows[0].ID)
	}
	pri, id = q.ColdFrom() // where a refill begins to read
	if id != rows[2].ID {
		t.Fatalf("goes on at %d, want %d", id, rows[2].ID)
	}
	b.ix.EvictWarm(0, none)
	if b.ix.FillWindow(q, pri, id, rows[2:], true) {
		t.Error("the last row was taken although others before it had left")
	}
	pri, id = q.ColdFrom()
	if q.ColdReady() > 0 && !b.ix.FillWindow(q, pri, id, rows[id-rows[0].ID:], true) {
		t.Error("not taken")
	}
	var h queue.Holder
	for _, want := range []string{"a", "b", "c"} {
		wantBody(t, b.take("q", &h, queue.ReserveOpts{}), want)
	}
}
