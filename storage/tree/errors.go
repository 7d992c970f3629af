package tree

import (
	"errors"
	"fmt"
)

var (
	// ErrStop is returned by a Scan callback to end the scan; Scan then returns nil.
	ErrStop = errors.New("stop")
	// ErrClosed is returned by every call on a closed tree.
	ErrClosed = errors.New("tree closed")
	// ErrInUse is wrapped by the error for a file that another process has open.
	ErrInUse = errors.New("file in use")
	// ErrNewerFormat is wrapped by the error for a file that a newer qserver wrote.
	ErrNewerFormat = errors.New("written by a newer qserver")
)

// CorruptError says that bytes of the file do not hold.
type CorruptError struct {
	File   string
	Offset int64 // of the page in the file, in bytes; -1: unknown
	What   string
	Err    error // may be nil
}

// Error names file, offset and what does not hold.
func (e *CorruptError) Error() string {
	s := e.File
	if e.Offset >= 0 {
		s = fmt.Sprintf("%s at offset %d", s, e.Offset)
	}
	s += ": damaged: " + e.What
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause, which may be nil.
func (e *CorruptError) Unwrap() error { return e.Err }
