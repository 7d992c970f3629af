package storage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"qserver/storage/queue"
	"qserver/storage/tree"
	"qserver/storage/ulog"
)

// RepairReport is what Repair did.
type RepairReport struct {
	Kept    []string // damaged files, kept beside the new ones
	Intact  int64    // records and rows carried over
	Missing []string // what is missing, for people: "LSN 17 to 20 (4 records) of 0000000000000003.ulog"
}

// Repair makes a folder startable again with everything intact in it; cut drops what lies behind the first damage of the
// log. Damaged files are kept beside the new ones. In the end it starts and stops once, so that log and tree are one again
// and the counts are those of what is there.
func Repair(dir string, cut bool, progress Progress) (RepairReport, error) {
	r, err := repairFiles(dir, cut, progress)
	if err != nil || len(r.Kept)+len(r.Missing) == 0 {
		return r, classify(err)
	}
	s, err := openStill(dir, Options{SegmentBytes: segmentBytes(dir), Progress: progress})
	if err != nil {
		return r, err
	}
	return r, s.Close()
}

// segmentBytes is the size of the log's files in dir; 0: there is none of a usual size.
func segmentBytes(dir string) (n int64) {
	names, _ := filepath.Glob(filepath.Join(dir, "ulog", "*.ulog"))
	for _, name := range names {
		if fi, err := os.Stat(name); err == nil {
			n = max(n, min(fi.Size(), ulog.DefaultSegmentBytes))
		}
	}
	if n < minRepairSegment {
		return 0
	}
	return n
}

const minRepairSegment = 64 << 10 // bytes: the smallest that a server takes

func repairFiles(dir string, cut bool, progress Progress) (r RepairReport, err error) {
	lock, err := lockExisting(dir)
	if err != nil {
		return r, err
	}
	defer lock.Close()
	cp, err := r.tree(dir, progress)
	if err != nil {
		return r, err
	}
	log, err := ulog.Repair(filepath.Join(dir, "ulog"), ulog.OS{}, cp.Position, cp.Place, cut)
	r.Kept = append(append(r.Kept, log.SetAside...), log.Dropped...)
	for _, m := range log.Missing {
		r.Missing = append(r.Missing, fmt.Sprintf("records of the update log: LSN %d to %d (%d)", m.First, m.Last, m.Last-m.First+1))
	}
	if log.Last.LSN > cp.Position.LSN {
		r.Intact += int64(log.Last.LSN - cp.Position.LSN)
	}
	for _, m := range log.Missing {
		r.Intact -= int64(m.Last - m.First + 1)
	}
	return r, err
}

// tree rebuilds the tree from its intact rows if it is damaged, and says where it stands.
func (r *RepairReport) tree(dir string, progress Progress) (checkpoint, error) {
	path := filepath.Join(dir, "tree")
	cp := checkpoint{Base: queue.Base{NextID: 1, NextQueue: 1}}
	opts := tree.Options{Tables: treeTables()}
	rep, err := tree.Check(path, opts, stepOf(progress, "reading the tree"), func(table int, key, value []byte) (err error) {
		if table == tableMeta && bytes.Equal(key, baseKey) || table == tableMetaCopy {
			cp, err = decodeCheckpoint(value)
		}
		return err
	})
	if err != nil || len(rep.Problems) == 0 {
		return cp, err
	}
	for _, p := range rep.Problems {
		r.Missing = append(r.Missing, "rows of the tree: "+p.Error())
	}
	fresh := path + ".repaired"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return cp, err
	}
	t, err := tree.Open(fresh, opts)
	if err != nil {
		return cp, err
	}
	if err := r.salvage(t, path, opts, cp, progress); err != nil {
		return cp, errors.Join(err, t.Close())
	}
	if err := t.Close(); err != nil {
		return cp, err
	}
	kept, err := keepAside(path)
	if err != nil {
		return cp, err
	}
	r.Kept = append(r.Kept, kept)
	if err := os.Rename(fresh, path); err != nil {
		return cp, err
	}
	return cp, ulog.OS{}.SyncDir(dir)
}

// salvage copies every intact row of the damaged file into t, and has the messages counted anew.
func (r *RepairReport) salvage(t *tree.Tree, damaged string, opts tree.Options, cp checkpoint, progress Progress) error {
	type tableRow struct {
		table      int
		key, value []byte
	}
	var batch []tableRow
	size := 0
	flush := func() error {
		err := t.Update(func(tx *tree.Tx) error {
			for _, w := range batch {
				if err := tx.Put(w.table, w.key, w.value); err != nil {
					return err
				}
			}
			return nil
		})
		r.Intact += int64(len(batch))
		batch, size = nil, 0
		return err
	}
	_, err := tree.Check(damaged, opts, stepOf(progress, "saving the tree's rows"), func(table int, key, value []byte) error {
		if row, err := decodeMessageRow(key, value); table == tableMessages && err == nil {
			cp.NextID, cp.NextQueue = max(cp.NextID, row.ID+1), max(cp.NextQueue, row.Queue+1)
		}
		batch = append(batch, tableRow{table, bytes.Clone(key), bytes.Clone(value)})
		if size += len(key) + len(value); size < strideBytes {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	meta := appendCheckpoint(nil, &cp)
	batch = append(batch, tableRow{tableMeta, baseKey, meta}, tableRow{tableMetaCopy, baseKey, meta}, tableRow{tableMeta, recountKey, nil})
	return flush()
}

// keepAside gives a damaged file a second name, under which it stays, and returns that.
func keepAside(path string) (string, error) {
	for i := 1; ; i++ {
		name := fmt.Sprintf("%s.damaged-%d", path, i)
		if _, err := os.Lstat(name); errors.Is(err, os.ErrNotExist) {
			if os.Link(path, name) == nil {
				return name, nil
			}
			return name, os.Rename(path, name) // a file system without links
		}
	}
}
