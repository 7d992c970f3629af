package storage

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestYield: what is held goes back with its delivery counted, waits end, nothing is written any more, and the store leads
// again in a new epoch where it is told to.
func TestYield(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := s.NewSession("")
	defer c.Close()
	name := []byte("jobs")
	put := func(body string) error {
		if _, err := c.Enqueue(name, PutRequest{Body: []byte(body), Priority: DefaultPriority}); err != nil {
			return err
		}
		return c.Commit()
	}
	for i := range 10 {
		if err := put(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 { // two with a lease, two without; one is acked
		if _, ok, err := c.Reserve(name, ReserveOptions{Lease: time.Duration(i%2) * time.Hour}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if err := c.Ack(name, Pick{}); err != nil {
		t.Fatal(err)
	}
	waiting := s.NewSession("")
	defer waiting.Close()
	woken := make(chan struct{})
	w := waiting.Wait([][]byte{[]byte("empty")}, make([]ReserveOptions, 1), func() { close(woken) })

	if err := s.Yield("other:1978"); err != nil {
		t.Fatal(err)
	}
	<-woken
	if _, _, ok, err := w.Take(); ok || err != nil {
		t.Errorf("the wait ended with %v %v, want nothing", ok, err)
	}
	at := s.Position()
	if at.LSN != s.SyncedLSN() {
		t.Errorf("it stands at %d, the disk has %d", at.LSN, s.SyncedLSN())
	}
	var readOnly *ReadOnlyError
	_, _, getErr := c.Reserve(name, ReserveOptions{})
	for what, err := range map[string]error{"enqueue": put("x"), "ack": c.Ack(name, Pick{}), "reserve": getErr, "yield": s.Yield("x:1")} {
		if !errors.As(err, &readOnly) || readOnly.Master != "other:1978" {
			t.Errorf("%s: %v, want that it is read-only", what, err)
		}
	}
	if st, _ := s.Queue(name); st.Ready != 9 || st.Reserved != 0 || st.Items != 9 {
		t.Errorf("%d ready, %d reserved of %d, want 9 ready of 9", st.Ready, st.Reserved, st.Items)
	}
	if s.Position() != at {
		t.Error("something was written")
	}

	if err := s.Promote(); err != nil {
		t.Fatal(err)
	}
	if e := s.Epochs(); len(e) != 1 || e[0].Number != 2 || e[0].LSN != at.LSN+1 {
		t.Errorf("epochs %+v, want the second from LSN %d", e, at.LSN+1)
	}
	fresh := s.NewSession("") // c's places of what it held are used up first
	defer fresh.Close()
	for i := range 9 {
		d, ok, err := fresh.Reserve(name, ReserveOptions{})
		if err != nil || !ok || string(d.Body) != fmt.Sprint(i+1) {
			t.Fatalf("message %d is %q %v %v", i, d.Body, ok, err)
		}
		if want := uint32(1); (i < 3) != (d.Deliveries == want) {
			t.Errorf("message %d was delivered %d times", i, d.Deliveries)
		}
	}
}
