package storage

import "qserver/storage/queue"

// Yield makes a store that leads follow the node at master, host:port, from here on: it takes no writes of clients any more,
// refused with a ReadOnlyError, waits end without a message, and what is held goes back, one delivery counted. When it returns
// nil everything that was answered, and what it has given back, is on the disk, and Position stays until ApplyMaster moves it.
// Promote undoes it. Errors are the log's, and a ReadOnlyError where it follows already.
func (s *Store) Yield(master string) error {
	s.follows.Lock()
	defer s.follows.Unlock()
	s.lockIndex()
	err := s.refusedLocked()
	if err == nil {
		s.ix.Yield()
		for _, m := range s.ix.TakeExpired() {
			op := s.ix.DoorRemove(m, queue.Expired)
			s.actor.stage(&op, nil)
		}
		for _, op := range s.ix.UnsavedCounts(1<<31 - 1) {
			s.actor.stage(&op, nil)
		}
		s.master = master
		s.ix.Follow(true)
	}
	s.unlockIndex()
	if err != nil {
		return err
	}
	if err := s.flush(); err != nil {
		return err
	}
	if err := s.Sync(); err != nil {
		return err
	}
	return s.mark(master)
}

// WriteFile puts a file with these bytes at path: after a crash the old one or the new one is there, whole.
func WriteFile(path string, b []byte) error { return writeWhole(path, b) }

// Turn makes a store that follows follow the node at master, host:port, instead.
func (s *Store) Turn(master string) error {
	s.follows.Lock()
	defer s.follows.Unlock()
	s.mu.Lock()
	led := s.master == ""
	if !led {
		s.master = master
	}
	s.mu.Unlock()
	if led {
		return ErrNotFollowing
	}
	return s.mark(master)
}
