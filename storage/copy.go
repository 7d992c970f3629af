package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"qserver/storage/tree"
	"qserver/storage/ulog"
)

// A slave's first copy is the tree at some position; the records behind it come from the log. The master writes its tree,
// page by page, to a file of its folder outgoing/ and sends that, so that a slow line keeps no read of the tree open. The
// slave receives it as incoming/tree.part; ReadyCopy verifies it, gives it this folder's part of the meta rows, and
// renames it to incoming/tree. From then on it counts: the next Open removes the old log, and moves it to its place. A
// crash at any step leaves the old state, or incoming/tree, whole.

const (
	incomingFolder = "incoming"
	outgoingFolder = "outgoing"
	partName       = "tree.part"
	copyPiece      = 1 << 20 // bytes written at a time
)

// IncomingPart is where a copy for the folder dir is to be received.
func IncomingPart(dir string) string { return filepath.Join(dir, incomingFolder, partName) }

// CopyReady says whether a whole copy waits in dir for the next Open.
func CopyReady(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, incomingFolder, "tree"))
	return err == nil
}

// WriteCopy writes the tree as it is, for the slave of this name, to a new file of the folder outgoing/, and returns its
// path; the caller removes it. From before it begins on the log behind it is kept for the slave. Clients come first: see Pacer.
// progress is called now and then; an error of its ends
// the copy.
func (s *Store) WriteCopy(name string, progress func(done, total int64) error) (path string, err error) {
	if s.cpLSN() == 0 { // a copy of nothing would be no copy
		if err := s.Checkpoint(context.Background()); err != nil {
			return "", err
		}
	}
	s.Keep(name, s.cpLSN())
	dir := filepath.Join(s.dir, outgoingFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "tree-*")
	if err != nil {
		return "", err
	}
	size, _ := s.tree.Size()
	w := &pacedFile{f: f, pace: s.NewPacer(), total: size, progress: progress}
	err = s.tree.Copy(w)
	if err == nil { // what the tree has is on this disk before another has it
		err = s.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("copy the tree for a slave: %w", err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// pacedFile writes in pieces and rests after each.
type pacedFile struct {
	f           *os.File
	pace        *Pacer
	since       time.Time // the end of the last rest; zero: there was none
	done, total int64
	progress    func(done, total int64) error
}

func (w *pacedFile) Write(p []byte) (n int, err error) {
	if w.since.IsZero() {
		w.since = time.Now()
	}
	for len(p) > 0 {
		piece := p[:min(len(p), copyPiece)]
		m, err := w.f.Write(piece)
		n += m
		if err != nil {
			return n, err
		}
		if w.done += int64(m); w.done > unsyncedMost && w.done/SyncEvery != (w.done-int64(m))/SyncEvery {
			if err := w.f.Sync(); err != nil {
				return n, err
			}
		}
		if err := w.progress(w.done, w.total); err != nil {
			return n, err
		}
		p = p[m:]
		w.pace.Rest(time.Since(w.since))
		w.since = time.Now()
	}
	return n, nil
}

const (
	// SyncEvery is how many bytes of a copy are brought to the disk at a time: what piles up would hold up the log's syncs.
	SyncEvery = 8 << 20
	// unsyncedMost is how much of a copy that is only to be sent is left to the system: so little is sent, and its file
	// removed, before it gets to the disk.
	unsyncedMost = 256 << 20
)

// ReadFrom keeps io.Copy from going round Write.
func (w *pacedFile) ReadFrom(r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, r, make([]byte, copyPiece))
}

// ReadyCopy makes the copy that was received at IncomingPart(dir) the one that the next Open takes. Every row is verified.
// history is the number of the master's history, master its host:port. progress, unless nil, is called now and then with bytes that
// are verified.
func ReadyCopy(dir string, history [16]byte, master string, progress func(done, total int64)) (at ulog.Position, err error) {
	part := IncomingPart(dir)
	rep, err := tree.Check(part, tree.Options{Tables: treeTables()}, progress, nil)
	if err == nil && len(rep.Problems) > 0 {
		err = fmt.Errorf("%w: %w", ErrDamaged, rep.Problems[0])
	}
	if err != nil {
		return at, fmt.Errorf("verify the copy: %w", classify(err))
	}
	t, err := tree.Open(part, tree.Options{Tables: treeTables()})
	if err != nil {
		return at, fmt.Errorf("open the copy: %w", classify(err))
	}
	err = t.Update(func(tx *tree.Tx) error {
		cp := checkpoint{}
		cp.NextID, cp.NextQueue = 1, 1
		value, found, err := tx.Get(tableMeta, baseKey)
		if err != nil {
			return err
		}
		if found {
			if cp, err = decodeCheckpoint(bytes.Clone(value)); err != nil {
				return err
			}
		}
		cp.Place = ulog.Place{} // this folder's log begins behind it
		at = cp.Position
		meta := appendCheckpoint(nil, &cp)
		return errors.Join(tx.Put(tableMeta, baseKey, meta), tx.Put(tableMetaCopy, baseKey, meta),
			tx.Put(tableMeta, historyKey, history[:]), tx.Put(tableMeta, followerKey, []byte(master)))
	})
	if err = errors.Join(err, t.Close()); err != nil {
		return at, fmt.Errorf("prepare the copy: %w", err)
	}
	if err := os.Rename(part, filepath.Join(dir, incomingFolder, "tree")); err != nil {
		return at, err
	}
	return at, ulog.OS{}.SyncDir(filepath.Join(dir, incomingFolder))
}

// installCopy puts a whole copy in the place of what was here, and removes what is left of others. Each step can be done again.
func (s *Store) installCopy() error {
	if err := os.RemoveAll(filepath.Join(s.dir, outgoingFolder)); err != nil {
		return err
	}
	incoming := filepath.Join(s.dir, incomingFolder)
	if !CopyReady(s.dir) {
		return os.RemoveAll(incoming)
	}
	if err := s.removeLog(); err != nil {
		return fmt.Errorf("make way for the copy: %w", err)
	}
	for _, name := range []string{"slaves"} { // their positions are of the log that is gone
		if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(filepath.Join(incoming, "tree"), s.treePath()); err != nil {
		return fmt.Errorf("install the copy: %w", err)
	}
	if err := (ulog.OS{}).SyncDir(s.dir); err != nil {
		return err
	}
	s.log.Info("copy of the master's tree is in its place")
	return os.RemoveAll(incoming)
}

// removeLog removes the files of the update log.
func (s *Store) removeLog() error {
	fs := s.opts.FS
	if err := fs.MkdirAll(s.logPath()); err != nil {
		return err
	}
	names, err := fs.ReadDir(s.logPath())
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := fs.Remove(filepath.Join(s.logPath(), name)); err != nil {
			return err
		}
	}
	return fs.SyncDir(s.logPath())
}
