package client

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// Append is no server but the least that storing can be: it appends a message's bytes to a file and syncs it. What is
// appended is not given back.
type Append struct {
	file *os.File
	out  []byte
	n    int64
}

var errAppend = errors.New("only appends")

// OpenAppend makes a file in a folder.
func OpenAppend(_ context.Context, dir string) (*Append, error) {
	f, err := os.OpenFile(filepath.Join(dir, "appended"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Append{file: f}, nil
}

// Set appends a body and syncs the file.
func (c *Append) Set(_ []byte, _ uint32, body []byte) error {
	c.AppendSet(nil, 0, body)
	return c.Flush()
}

// AppendSet collects a body.
func (c *Append) AppendSet(_ []byte, _ uint32, body []byte) {
	c.out, c.n = append(c.out, body...), c.n+1
}

// Pending returns how many bytes Flush will write.
func (c *Append) Pending() int { return len(c.out) }

// Flush writes what was collected and waits until it is on the disk.
func (c *Append) Flush() error {
	if _, err := c.file.Write(c.out); err != nil {
		return err
	}
	c.out = c.out[:0]
	return syncData(c.file)
}

// ReadStored returns nil: Flush has stored.
func (*Append) ReadStored() error { return nil }

// Get is not possible.
func (*Append) Get([]byte) ([]byte, uint32, bool, error) { return nil, 0, false, errAppend }

// GetWait is not possible.
func (*Append) GetWait([]byte, time.Duration) ([]byte, uint32, bool, error) {
	return nil, 0, false, errAppend
}

// Delete is not possible.
func (*Append) Delete([]byte) (bool, error) { return false, errAppend }

// AppendGet does nothing.
func (*Append) AppendGet([]byte) {}

// AppendDelete does nothing.
func (*Append) AppendDelete([]byte) {}

// ReadValue is not possible.
func (*Append) ReadValue() ([]byte, uint32, bool, error) { return nil, 0, false, errAppend }

// ReadDeleted is not possible.
func (*Append) ReadDeleted() (bool, error) { return false, errAppend }

// Count is the number of messages that were appended here.
func (c *Append) Count() (int64, error) { return c.n, nil }

// Close ends it.
func (c *Append) Close() error { return c.file.Close() }
