package tree

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"unsafe"

	"go.etcd.io/bbolt"
)

// mapSize is how much address space is mapped at least, so that a file below it never needs to be mapped anew, for which
// bbolt makes the writer wait for all readers.
const mapSize = 1 << 30

// handle is a file that bbolt has open.
type handle struct {
	db       *bbolt.DB
	file     *os.File // the one that db uses
	pageSize int
}

// guarded runs f, which calls into bbolt and nothing else. bbolt trusts what it reads, so that whatever it panics with,
// faults on mapped pages included, is taken for damage of the file.
func guarded(file, step string, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = damage(file, step, r)
		}
	}()
	return f()
}

// damage turns what was recovered from a panic into an error.
func damage(file, step string, r any) *CorruptError {
	cause, ok := r.(error)
	if !ok {
		cause = fmt.Errorf("%v", r)
	}
	return &CorruptError{File: file, Offset: -1, What: step, Err: cause}
}

// openHandle locks, verifies and opens the file at path. With create it must not exist yet.
func openHandle(path string, pageSize int, create bool, log *slog.Logger) (*handle, error) {
	h := &handle{}
	options := &bbolt.Options{
		Timeout:         lockWait,
		NoGrowSync:      true, // a commit's fdatasync covers the new size
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: mapSize,
		PageSize:        pageSize,
		OpenFile: func(name string, _ int, _ os.FileMode) (f *os.File, err error) {
			h.file, err = openFile(name, create, log)
			return h.file, err
		},
	}
	err := guarded(path, "open", func() (err error) {
		if h.db, err = bbolt.Open(path, 0o600, options); err == nil {
			h.pageSize = h.db.Info().PageSize
		}
		return err
	})
	if err == nil {
		return h, nil
	}
	if _, ok := errors.AsType[*CorruptError](err); ok && h.file != nil {
		_, _ = unlock(h.file), h.file.Close() // bbolt has not, when it panicked
	}
	return nil, err
}

// openFile opens, locks and verifies the file before bbolt may look at it.
func openFile(path string, create bool, log *slog.Logger) (*os.File, error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE | os.O_EXCL
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err = lock(f, true); err == nil && !create {
		err = guarded(path, "read its structure", func() error { return verifyFile(f, path, log) })
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func verifyFile(f *os.File, path string, log *slog.Logger) error {
	m, err := openImage(f, path)
	if err != nil {
		return err
	}
	if !m.metas[0] || !m.metas[1] {
		log.Warn("a meta page does not hold: a torn write, or damage; going on from the transaction before",
			"file", path, "transaction", m.meta.txid)
	}
	return errors.Join(m.verify(), m.close(), settle(f))
}

// settle writes the newest meta page again and syncs. After a failed sync, or a crash that followed one, the system's
// cache may show a meta page that never reached the disk; bbolt would go on from it and reuse pages that the one on the
// disk still needs.
func settle(f *os.File) error {
	m, err := openImage(f, f.Name())
	if err != nil {
		return err
	}
	at := int64(0)
	if newest, ok := parseMeta(m.data); !ok || newest.txid != m.meta.txid {
		at = int64(m.pageSize)
	}
	b := make([]byte, headerLen+metaLen)
	copy(b, m.data[at:])
	if err := m.close(); err != nil {
		return err
	}
	if _, err := f.WriteAt(b, at); err != nil {
		return err
	}
	return f.Sync()
}

// mapped returns the first size bytes of db's mapping. It may only be used while a transaction is open, which keeps bbolt
// from mapping the file anew.
func mapped(db *bbolt.DB, size int64) []byte {
	info := db.Info()
	base := *(*unsafe.Pointer)(unsafe.Pointer(&info.Data)) // Info has the address as a number
	return unsafe.Slice((*byte)(base), size)
}

// sourceOf returns the state that tx began with.
func sourceOf(file string, tx *bbolt.Tx) source {
	db := tx.DB()
	pageSize := db.Info().PageSize
	return source{
		file:     file,
		data:     mapped(db, tx.Size()),
		pageSize: pageSize,
		pages:    uint64(tx.Size()) / uint64(pageSize),
		root:     uint64(tx.Cursor().Bucket().Root()),
	}
}
