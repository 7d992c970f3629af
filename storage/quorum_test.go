package storage

import (
	"errors"
	"testing"
	"time"
)

// TestMinSlaves: an enqueue is answered when enough slaves have it. When they don't come in time it is answered without them, or its
// outcome is unknown and what follows is refused, until they are there again.
func TestMinSlaves(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		s, err := Open(t.TempDir(), Options{MinSlaves: 2, MinSlavesTimeout: 100 * time.Millisecond, RefuseAlone: refuse})
		if err != nil {
			t.Fatal(err)
		}
		c := s.NewSession("")
		put := func() error {
			if _, err := c.Enqueue([]byte("jobs"), PutRequest{Body: []byte("x")}); err != nil {
				return err
			}
			return c.Commit()
		}
		alone := func(when string) {
			t.Helper()
			begin := time.Now()
			err := put()
			if refuse && !errors.Is(err, ErrFewSlaves) || !refuse && err != nil {
				t.Errorf("refuse %v, %s: %v", refuse, when, err)
			}
			if refuse != errors.Is(s.Writable(), ErrFewSlaves) {
				t.Errorf("refuse %v, %s: Writable says %v", refuse, when, s.Writable())
			}
			if !refuse && time.Since(begin) > 90*time.Millisecond {
				t.Errorf("%s: it waited %v", when, time.Since(begin))
			}
		}
		alone("at the start")
		s.Shared(s.Position().LSN, 1)
		alone("with one slave of two")
		s.Shared(s.Position().LSN, 2)
		if s.SharedState().Away {
			t.Fatal("two slaves are not enough")
		}

		done := make(chan error, 1)
		go func() { done <- put() }()
		for s.Position().LSN == s.SharedState().LSN { // until it is written
			time.Sleep(time.Millisecond)
		}
		select {
		case err := <-done:
			t.Fatalf("refuse %v: answered without the slaves: %v", refuse, err)
		default:
		}
		s.Shared(s.Position().LSN, 2)
		if err := <-done; err != nil {
			t.Errorf("refuse %v: %v", refuse, err)
		}

		begin := time.Now()
		err = put()
		if took := time.Since(begin); took < 100*time.Millisecond {
			t.Errorf("refuse %v: it waited %v only", refuse, took)
		}
		if refuse != errors.Is(err, ErrUnknownOutcome) || !refuse && err != nil {
			t.Errorf("refuse %v: in vain: %v", refuse, err)
		}
		if err := c.CommitRound(); refuse != errors.Is(err, ErrUnknownOutcome) || !refuse && err != nil {
			t.Errorf("refuse %v: asked again what became of it: %v", refuse, err)
		}
		alone("behind one that waited in vain")
		lost := s.quorum.from
		s.Shared(lost-1, 2)
		alone("with slaves that have less")
		s.Shared(lost, 2)
		if s.SharedState().Away {
			t.Error("the slaves are back, and are not waited for")
		}
		if st := s.SharedState(); st.Late < 1 {
			t.Errorf("%d enqueues waited in vain", st.Late)
		}
		if err := c.Ack([]byte("jobs"), Pick{}); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		if _, ok, err := c.Reserve([]byte("jobs"), ReserveOptions{}); !ok || err != nil {
			t.Error(ok, err)
		}
		begin = time.Now()
		if err := errors.Join(c.Ack([]byte("jobs"), Pick{}), c.Commit()); err != nil || time.Since(begin) > 90*time.Millisecond {
			t.Errorf("an ack took %v, %v; it waits for no slave", time.Since(begin), err)
		}
		c.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
