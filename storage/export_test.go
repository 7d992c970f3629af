package storage

import "context"

// Stride takes one stride of the checkpoint.
func Stride(s *Store) error {
	_, err := s.checkpoint(context.Background(), s.applied.Load())
	return err
}
