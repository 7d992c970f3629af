package replication_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"qserver/replication"
	"qserver/storage"
)

// acked waits until slave s has everything that m has, and m knows.
func acked(t *testing.T, m, s *node) {
	t.Helper()
	name := fmt.Sprint(s.sid)
	for {
		durable, changed := m.out.Acked()
		if durable[name] >= m.store.Position().LSN {
			return
		}
		<-changed
	}
}

func messages(from, to int) (list []string) {
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprintf("message %d", i))
	}
	return list
}

// TestFailover: the master is lost. Of its two slaves the one that is ahead leads, the other follows it and gets what it lacked.
func TestFailover(t *testing.T) {
	m := newNode(t, 1, quick()).lead()
	s2, s3 := newNode(t, 2, quick()).follow(pipe(m)), newNode(t, 3, quick()).follow(pipe(m))
	put(t, m.store, "q", 0, 500)
	caughtUp(t, m, s2, s3)
	s3.halt()
	put(t, m.store, "q", 500, 200)
	c := m.store.NewSession("worker")
	work(t, c, "q", 100, 2) // 50 are acked, 50 held
	acked(t, m, s2)
	c.Close()
	end := m.store.Position()
	m.stop()

	s2.promote()
	if e := s2.store.Epochs(); len(e) != 1 || e[0].Number != 2 || e[0].LSN > end.LSN+1 {
		t.Errorf("epochs %+v, the old master ended at %+v", e, end)
	}
	s3.turn(pipe(s2))
	caughtUp(t, s2, s3)
	put(t, s2.store, "q", 700, 100)
	caughtUp(t, s2, s3)
	if got, want := s3.store.Epochs(), s2.store.Epochs(); !slices.Equal(got, want) {
		t.Errorf("the slave has the epochs %+v, its master %+v", got, want)
	}

	// And once more.
	s2.stop()
	s3.promote()
	var want []string
	for i, body := range messages(0, 800) {
		if i >= 100 || i%2 == 0 {
			want = append(want, body)
		}
	}
	if got := bodies(t, s3.store, "q"); !slices.Equal(got, want) {
		t.Errorf("the last one gives %d messages, want %d", len(got), len(want))
	}
}

// TestFailoverToTheOneBehind: the slave that is ahead has records that the new master never got, and is refused with their number.
func TestFailoverToTheOneBehind(t *testing.T) {
	m := newNode(t, 1, quick()).lead()
	s2, s3 := newNode(t, 2, quick()).follow(pipe(m)), newNode(t, 3, quick()).follow(pipe(m))
	put(t, m.store, "q", 0, 50)
	caughtUp(t, m, s2, s3)
	s3.halt()
	common := m.store.Position().LSN
	put(t, m.store, "q", 50, 20)
	caughtUp(t, m, s2)
	own := m.store.Position().LSN - common
	m.stop()

	s3.promote()
	put(t, s3.store, "q", 100, 40)
	s2.halt()
	if r := refusal(t, s3, s2); r.Code != replication.CodeDiverged || r.Own != own || r.Common != common {
		t.Errorf("got %+v, want %d own records behind LSN %d", r, own, common)
	}
}

// TestSwitchOver: the master hands over to one of two slaves while clients enqueue, and follows it, as the other slave does. Nothing
// that was stored is missing. Then it takes over again.
func TestSwitchOver(t *testing.T) {
	m := newNode(t, 1, quick()).lead()
	s2, s3 := newNode(t, 2, quick()).follow(pipe(m)), newNode(t, 3, quick()).follow(pipe(m))
	put(t, m.store, "held", 0, 20)
	caughtUp(t, m, s2, s3)
	holder := m.store.NewSession("holder")
	work(t, holder, "held", 10, 1)

	const clients = 3
	var load sync.WaitGroup
	stored, begun := make([]int, clients), make(chan struct{}, clients)
	late := time.Now().Add(20 * time.Second)
	for i := range clients {
		load.Go(func() {
			c := m.store.NewSession("load")
			defer c.Close()
			for n := 0; ; n++ {
				_, err := c.Enqueue(fmt.Appendf(nil, "load%d", i), storage.PutRequest{Body: fmt.Appendf(nil, "message %d", n), Priority: storage.DefaultPriority})
				if err == nil {
					err = c.Commit()
				}
				if err != nil {
					if err.Error() != "read-only: this is a slave of s2:1978" {
						t.Errorf("client %d: %v", i, err)
					}
					stored[i] = n
					return
				}
				if time.Now().After(late) {
					t.Errorf("client %d: nothing is refused", i)
					return
				}
				if n == 100 {
					begun <- struct{}{}
				}
			}
		})
	}
	for range clients {
		<-begun
	}
	if err := m.store.Yield("s2:1978"); err != nil {
		t.Fatal(err)
	}
	load.Wait()
	holder.Close()
	acked(t, m, s2)
	handed := m.store.Position()
	s2.promote()
	if e := s2.store.Epochs(); len(e) != 1 || e[0].LSN != handed.LSN+1 {
		t.Errorf("epochs %+v, the old master stood at %+v", e, handed)
	}
	m.turn(pipe(s2))
	s3.turn(pipe(s2))
	put(t, s2.store, "held", 20, 10)
	caughtUp(t, s2, m, s3)

	if err := s2.store.Yield("m:1978"); err != nil {
		t.Fatal(err)
	}
	acked(t, s2, m)
	m.promote()
	s2.turn(pipe(m))
	s3.turn(pipe(m))
	put(t, m.store, "held", 30, 10)
	caughtUp(t, m, s2, s3)
	if e := m.store.Epochs(); len(e) != 2 || e[1].Number != 3 {
		t.Errorf("epochs %+v", e)
	}
	for i, n := range stored {
		if got := bodies(t, m.store, fmt.Sprint("load", i)); !slices.Equal(got, messages(0, n)) {
			t.Errorf("client %d: %d messages, %d were stored", i, len(got), n)
		}
	}
	if got := bodies(t, m.store, "held"); !slices.Equal(got, messages(0, 40)) {
		t.Errorf("of those that were held %q", got)
	}
}

// TestChainPromotedInTheMiddle: in a chain of four the second leads. Those behind it go on with it as they are; the old master, which
// had handed over nothing and wrote nothing more, follows the last one.
func TestChainPromotedInTheMiddle(t *testing.T) {
	m := newNode(t, 1, quick()).lead()
	s2 := newNode(t, 2, quick()).follow(pipe(m))
	s3 := newNode(t, 3, quick()).follow(pipe(s2))
	s4 := newNode(t, 4, quick()).follow(pipe(s3))
	put(t, m.store, "q", 0, 300)
	caughtUp(t, m, s2, s3, s4)
	s2.promote()
	put(t, s2.store, "q", 300, 300)
	caughtUp(t, s2, s3, s4)
	if err := m.store.Close(); err != nil {
		t.Fatal(err)
	}
	m.follow(pipe(s4))
	caughtUp(t, s4, m)
	put(t, s2.store, "q", 600, 300)
	caughtUp(t, s2, s3, s4, m)
	m.promote()
	if got := bodies(t, m.store, "q"); !slices.Equal(got, messages(0, 900)) {
		t.Errorf("the last one gives %d messages, want 900", len(got))
	}
}
