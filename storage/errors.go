package storage

import "errors"

// Outcomes of a request that the server understood and could not grant. They change nothing.
var (
	// ErrNotStored is returned when Add met a live message, Replace met none, or a dedup key was seen within its window.
	ErrNotStored = errors.New("not stored")
	// ErrNotFound is returned when the session holds no such message, or its place in the list has ended.
	ErrNotFound = errors.New("not found")
	// ErrReceiptOver is returned by receipt when the server knows the delivery and it has ended. It wraps ErrNotFound.
	ErrReceiptOver = receiptOver{}
)

// Reasons for which the store takes no enqueue, or nothing at all.
var (
	// ErrDiskFull is returned by enqueues while the disk has no room; reserving and acking go on.
	ErrDiskFull = errors.New("disk full")
	// ErrNoMemory is returned by enqueues that would never fit into the memory budget.
	ErrNoMemory = errors.New("out of memory")
	// ErrNotInMemory is returned by a Reserve or TryTake that must not read the disk, where it would have to.
	ErrNotInMemory = errors.New("not in memory")
	// ErrUnknownOutcome is returned when a record may or may not have reached the disk: the log failed while it was written.
	ErrUnknownOutcome = errors.New("outcome unknown: the update log failed")
	// ErrFailed is returned for what came after the log has failed: it was refused, and changed nothing.
	ErrFailed = errors.New("refused: the update log has failed, restart the server")
	// ErrClosed is returned once Close or Shutdown has ended the store.
	ErrClosed = errors.New("store closed")
)

// Reasons for which a folder is not opened.
var (
	// ErrInUse is wrapped by the error for a folder that another process has open.
	ErrInUse = errors.New("data folder in use")
	// ErrDamaged is wrapped by the error for a log or tree whose sums do not hold (exit code 65).
	ErrDamaged = errors.New("data damaged")
	// ErrNewerFormat is wrapped by the error for a folder that a newer qserver wrote.
	ErrNewerFormat = errors.New("written by a newer qserver")
)

type receiptOver struct{}

func (receiptOver) Error() string        { return "receipt is over" }
func (receiptOver) Is(target error) bool { return target == ErrNotFound }
