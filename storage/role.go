package storage

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"qserver/storage/queue"
	"qserver/storage/tree"
)

// A store leads or follows. One that leads takes writes; one that follows (Options.Master) has its records from another
// node, by ApplyMaster, and refuses everything that would change anything with a ReadOnlyError. The tree remembers that its
// folder has followed: whoever leads with it next begins an epoch, so that two nodes which both wrote after the same record
// are told apart.

// ErrReadOnly is what every ReadOnlyError is, for errors.Is.
var ErrReadOnly = errors.New("read-only")

// ReadOnlyError is returned for whatever would change the state of a store that follows another.
type ReadOnlyError struct{ Master string } // host:port

// Error says whose slave this is.
func (e *ReadOnlyError) Error() string { return "read-only: this is a slave of " + e.Master }

// Is makes it an ErrReadOnly.
func (e *ReadOnlyError) Is(target error) bool { return target == ErrReadOnly }

// Keys of the tree's meta table beside the checkpoint.
var (
	followerKey = []byte("follower") // the folder follows, or has followed and nobody led with it since; value: host:port of its master
	historyKey  = []byte("history")  // the number that all nodes with this history share [16]
)

// Master returns host:port of the node that this one follows; "" if it leads.
func (s *Store) Master() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.master
}

// History returns the number that all nodes with this history share: drawn where it began, and carried by every copy.
func (s *Store) History() [16]byte { return s.history }

// Epochs returns the epochs of the history, oldest first: see queue.Epoch.
func (s *Store) Epochs() []queue.Epoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ix.Epochs()
}

// takeRole makes the store lead or follow, as Options say, before it does anything.
func (s *Store) takeRole() error {
	var marked, named bool
	err := s.tree.View(func(v *tree.View) (err error) {
		if _, marked, err = v.Get(tableMeta, followerKey); err != nil {
			return err
		}
		value, found, err := v.Get(tableMeta, historyKey)
		named = found && copy(s.history[:], value) == len(s.history)
		return err
	})
	if err != nil {
		return err
	}
	if !named {
		s.history = s.ulog.ID()
	}
	if s.opts.Master != "" {
		s.mu.Lock()
		s.master = s.opts.Master
		s.ix.Follow(true)
		s.mu.Unlock()
		if marked {
			return nil
		}
		return s.mark(s.opts.Master)
	}
	if !marked {
		return nil
	}
	return s.lead()
}

// lead begins an epoch. The tree's mark goes only when that is on the disk.
func (s *Store) lead() error {
	s.lockIndex()
	if err := s.err; err != nil || s.closed {
		err = s.writableLocked()
		s.unlockIndex()
		return err
	}
	s.master = ""
	s.ix.Lead()
	op := s.ix.NextEpoch(nonce())
	s.actor.stage(&op, nil)
	if op, due := s.ix.DoorReceipts(); due {
		s.actor.stage(&op, nil)
	}
	s.unlockIndex()
	if err := s.flush(); err != nil {
		return err
	}
	s.log.Info("this node leads from here on", "epoch", op.ID, "lsn", op.LSN)
	s.pokeTime()
	return s.mark("")
}

// Promote makes a store that follows lead: from when it returns nil on it takes writes, in a new epoch. What it has of the
// master's records is what it has; ApplyMaster takes no more. It does nothing where the store leads already. An error of
// the tree leaves it leading: it is told, since the next start begins another epoch.
func (s *Store) Promote() error {
	s.follows.Lock()
	defer s.follows.Unlock()
	if s.Master() == "" {
		return nil
	}
	return s.lead()
}

// mark notes in the tree whom the folder follows; "": it leads. The history's number is noted with it.
func (s *Store) mark(master string) error {
	err := s.tree.Update(func(tx *tree.Tx) error {
		if err := tx.Put(tableMeta, historyKey, s.history[:]); err != nil {
			return err
		}
		if master != "" {
			return tx.Put(tableMeta, followerKey, []byte(master))
		}
		_, _, err := tx.Delete(tableMeta, followerKey)
		return err
	})
	if err != nil {
		return fmt.Errorf("note the role in the tree: %w", err)
	}
	return nil
}

func nonce() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
