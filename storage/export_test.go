package storage

import (
	"context"
	"errors"
	"path/filepath"

	"qserver/storage/tree"
)

// What tests need to be the only ones who do anything: without its loops a store does nothing by itself.

// OpenStill is Open without the store's own goroutines.
func OpenStill(dir string, o Options) (*Store, error) { return openStill(dir, o) }

// Stride takes one stride of the checkpoint.
func Stride(s *Store) error {
	_, err := s.checkpoint(context.Background(), s.applied.Load())
	return err
}

// Advances is how often the tree has advanced. It takes no lock.
func Advances(s *Store) int64 { return s.checkpoints.Load() }

// KeepTime does what the timekeeper does once.
func KeepTime(s *Store) error {
	s.keepTime()
	return s.flush()
}

// Chores does what is done about every second.
func Chores(s *Store) error {
	s.chores()
	return s.flush()
}

// Evict lets go of memory after a checkpoint.
func Evict(s *Store) { s.evict() }

// Seal seals the log, as in a quiet moment.
func Seal(s *Store) { s.seal() }

// MarkGap makes a closed folder one whose repair had to leave records out.
func MarkGap(dir string) error {
	t, err := tree.Open(filepath.Join(dir, "tree"), tree.Options{Tables: treeTables()})
	if err != nil {
		return err
	}
	err = t.Update(func(tx *tree.Tx) error { return tx.Put(tableMeta, recountKey, nil) })
	return errors.Join(err, t.Close())
}

// Staged is the LSN of the last staged record.
func Staged(s *Store) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.staged
}

// Abandon closes the files of a store as the end of its process would: without a last checkpoint, without a sync.
func Abandon(s *Store) error {
	s.lockIndex()
	s.closed = true
	s.unlockIndex()
	s.cancel()
	s.wg.Wait()
	return s.closeFiles()
}
