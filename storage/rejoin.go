package storage

import (
	"errors"
	"os"
	"path/filepath"

	"qserver/storage/queue"
	"qserver/storage/ulog"
)

// Standing says where a folder stands in which history.
type Standing struct {
	History  [16]byte
	Position ulog.Position
	Epochs   []queue.Epoch
	Names    map[uint32]string // of the queues, by number
}

// StandingOf opens a folder that no server has open, as a start as a slave of the node at master would, and says where it stands.
// All of its log that is there stays.
func StandingOf(dir, master string, progress Progress) (st Standing, err error) {
	lock, err := lockExisting(dir) // a folder must be there
	if err != nil {
		return st, err
	}
	if err := lock.Close(); err != nil {
		return st, err
	}
	s, err := openStill(dir, Options{Master: master, SegmentBytes: segmentBytes(dir), Progress: progress, keepLog: true})
	if err != nil {
		return st, err
	}
	st = Standing{s.History(), s.Position(), s.Epochs(), make(map[uint32]string)}
	s.mu.Lock()
	s.ix.Queues("", func(q *queue.Queue) bool {
		st.Names[q.Num] = q.Name
		return true
	})
	s.mu.Unlock()
	return st, s.Close()
}

// discardMark is a folder in a data folder whose log and tree are given up: while it is there, they count for nothing.
const discardMark = "discarded"

// Discard makes dir, which no server has open, an empty data folder: the next start as a slave gets a copy. Files that are none
// of the server's stay. A crash leaves it as it was, or as good as empty.
func Discard(dir string) error {
	lock, err := lockExisting(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := os.MkdirAll(filepath.Join(dir, discardMark), 0o700); err != nil {
		return err
	}
	if err := (ulog.OS{}).SyncDir(dir); err != nil {
		return err
	}
	return finishDiscard(dir)
}

// finishDiscard does what Discard began, if it did.
func finishDiscard(dir string) error {
	mark := filepath.Join(dir, discardMark)
	if _, err := os.Stat(mark); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, name := range []string{"ulog", incomingFolder, outgoingFolder, "slaves", "role", "tree"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := (ulog.OS{}).SyncDir(dir); err != nil {
		return err
	}
	return errors.Join(os.Remove(mark), ulog.OS{}.SyncDir(dir))
}
