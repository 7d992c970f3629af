package memcache

import (
	"sync"

	"qserver/protocol/memcache/eventloop"
)

// syncer waits for the disk in place of the event loops, which go on meanwhile: an ack never waits for the sync of an enqueue. Its
// connections go back to their loops to be answered, and the next sync begins at once.
type syncer struct {
	mu      sync.Mutex // guards waiting
	waiting []*conn
	more    chan struct{} // capacity 1
	loops   *eventloop.Group
	ended   sync.WaitGroup
}

func (s *syncer) start(loops *eventloop.Group) {
	s.loops = loops
	s.more = make(chan struct{}, 1)
	s.ended.Go(s.run)
}

// stop waits until all that was added is answered.
func (s *syncer) stop() {
	close(s.more)
	s.ended.Wait()
}

// add takes over a connection, which its event loop has served.
func (s *syncer) add(c *conn) {
	s.mu.Lock()
	s.waiting = append(s.waiting, c)
	first := len(s.waiting) == 1
	s.mu.Unlock()
	if first {
		s.more <- struct{}{}
	}
}

func (s *syncer) run() {
	var spare []*conn
	var done []*eventloop.Socket
	for range s.more {
		s.mu.Lock()
		round := s.waiting
		s.waiting = spare[:0]
		s.mu.Unlock()
		for _, c := range round { // the first one's commit syncs for all of them
			if c.session.CommitRound() != nil {
				go c.resume() // which finds the same error
			} else {
				done = append(done, c.sock)
			}
		}
		s.loops.Requeue(done...)
		clear(done)
		done = done[:0]
		clear(round)
		spare = round
	}
}
