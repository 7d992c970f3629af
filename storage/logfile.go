package storage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"qserver/storage/queue"
	"qserver/storage/tree"
	"qserver/storage/ulog"
)

// LogRecord is one record of an update log, for people and for whoever puts messages back. Its byte strings are valid until
// the next one is read.
type LogRecord struct {
	ulog.Position
	Gap  uint64   // not 0: the Gap LSNs that end with this one were lost, and there is no record
	Op   queue.Op // what it says
	Name string   // of its queue; "": not known here, or about none
	Body []byte   // of a message, where the record has one
}

// LogReader reads the records of a data folder's log, or of a file that SetAside wrote.
type LogReader struct {
	names map[uint32]string
	next  func() (pos ulog.Position, gap uint64, head, body []byte, err error)
	close func() error
	rec   LogRecord
	aside *AsideHeader
}

// OpenLogFiles opens the data folder, or the file of records set aside, at path for reading from LSN from on. It changes
// nothing. A server may have the folder open: then the names of queues are known only from where the records begin that make
// them.
func OpenLogFiles(path string, from uint64) (*LogReader, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if fi.Mode().IsRegular() {
		return openAside(path, from)
	}
	dir := filepath.Join(path, "ulog")
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("%s is not a data folder of qserver: %w", path, err)
	}
	names, err := queueNames(path)
	if err != nil && !errors.Is(err, ErrInUse) && !errors.Is(err, os.ErrNotExist) && !errors.Is(classify(err), ErrDamaged) {
		return nil, classify(err)
	}
	o, err := ulog.OpenOutside(dir, nil, from)
	if err != nil {
		return nil, err
	}
	r := &LogReader{names: names, close: o.Close}
	r.next = func() (ulog.Position, uint64, []byte, []byte, error) {
		rec, err := o.Next()
		if err != nil {
			return ulog.Position{}, 0, nil, nil, err
		}
		return rec.Position, rec.Gap, rec.Head, rec.Body, nil
	}
	return r, nil
}

// queueNames reads the names of the queues by number from the tree of a folder that no server has open.
func queueNames(dir string) (map[uint32]string, error) {
	names := make(map[uint32]string)
	lock, err := lockExisting(dir)
	if err != nil {
		return names, err
	}
	defer lock.Close()
	t, err := tree.Open(filepath.Join(dir, "tree"), tree.Options{Tables: treeTables()})
	if err != nil {
		return names, err
	}
	err = t.View(func(v *tree.View) error {
		return v.Scan(tableQueues, nil, nil, func(key, value []byte) error {
			r, err := decodeQueueRow(key, value)
			if err == nil {
				names[r.Num] = r.Name
			}
			return nil
		})
	})
	return names, errors.Join(err, t.Close())
}

// Aside tells what a file of records set aside says of itself; nil for a folder.
func (r *LogReader) Aside() *AsideHeader { return r.aside }

// Next returns the next record, or io.EOF when there is no more; of a folder later calls go on. Errors are those of ulog.Outside's
// Next, and for a record of a newer version.
func (r *LogReader) Next() (*LogRecord, error) {
	pos, gap, head, body, err := r.next()
	if err != nil {
		if !errors.Is(err, io.EOF) {
			err = classify(err)
		}
		return nil, err
	}
	r.rec = LogRecord{Position: pos, Gap: gap, Body: body}
	if gap > 0 {
		return &r.rec, nil
	}
	if err := queue.DecodeHead(head, len(body), &r.rec.Op); err != nil {
		return nil, fmt.Errorf("LSN %d: %w (was it written by a newer qserver?)", pos.LSN, err)
	}
	op := &r.rec.Op
	if op.Kind == queue.KindCreate {
		r.names[op.Queue] = string(op.Name)
	}
	r.rec.Name = r.names[op.Queue]
	if op.Kind != queue.KindEnqueue && op.Kind != queue.KindReplace {
		r.rec.Body = nil
	}
	return &r.rec, nil
}

// Close closes the files. Idempotent.
func (r *LogReader) Close() error { return r.close() }
