package storage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"qserver/storage/queue"
	"qserver/storage/tree"
	"qserver/storage/ulog"
)

// CheckReport is what Check found.
type CheckReport struct {
	Queues    []QueueStats // per queue, in the order of the names, as the next start will have them
	Records   int64        // of the log behind the tree
	TreeRows  int64
	CutFrames int // of a torn tail that the next start will cut
	Problems  []Problem
}

// Problem is one place that does not hold.
type Problem struct {
	File     string
	Offset   int64 // -1: unknown
	What     string
	Messages int64  // at stake; -1: unknown
	Repair   string // the command that mends it
}

// Progress is called now and then by long work on a folder; nil is allowed wherever it is taken.
type Progress = func(step string, done, total int64)

// checker adds up what tree and log say.
type checker struct {
	dir    string
	cp     checkpoint
	queues map[uint32]*checkedQueue
	// A checkpoint leaves out messages whose removal follows in the log: counted by the tree's totals, without a row.
	leftOut map[uint64]uint32 // message id to queue number
	recount bool              // the next start counts anew, since a repair did not come to its end
	report  CheckReport
}

type checkedQueue struct {
	queueRow
	rows, bytes int64 // live rows in the tree
	treeTotals  queue.Totals
	treePurged  uint64
	delayed     int64 // live messages whose due time is still to come
	noRows      int64 // live at the tree's position and left out of it
}

// Check verifies every sum and invariant of a data folder that no server has open, and changes nothing. Damage is in the
// report; an error is for what kept it from looking: it wraps ErrInUse or ErrNewerFormat, or is the system's.
func Check(dir string, progress Progress) (CheckReport, error) {
	lock, err := lockExisting(dir)
	if err != nil {
		return CheckReport{}, err
	}
	defer lock.Close()
	c := &checker{dir: dir, queues: make(map[uint32]*checkedQueue)}
	if err := c.tree(progress); err != nil {
		return c.report, classify(err)
	}
	if err := c.ulog(progress); err != nil {
		return c.report, classify(err)
	}
	c.finish()
	return c.report, nil
}

// lockExisting locks a data folder that must be there already.
func lockExisting(dir string) (*folderLock, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "tree")); err != nil {
		return nil, fmt.Errorf("%s is not a data folder of qserver: %w", dir, err)
	}
	return lockFolder(dir)
}

func stepOf(progress Progress, step string) func(done, total int64) {
	if progress == nil {
		return nil
	}
	return func(done, total int64) { progress(step, done, total) }
}

func (c *checker) problem(p Problem) {
	p.Repair = "qserver repair " + c.dir
	c.report.Problems = append(c.report.Problems, p)
}

func (c *checker) tree(progress Progress) error {
	path := filepath.Join(c.dir, "tree")
	c.cp.NextID, c.cp.NextQueue = 1, 1
	now := time.Now().UnixMilli()
	rep, err := tree.Check(path, tree.Options{Tables: treeTables()}, stepOf(progress, "tree"), func(table int, key, value []byte) error {
		if err := c.row(table, key, value, now); err != nil {
			c.problem(Problem{File: path, Offset: -1, What: err.Error(), Messages: -1})
		}
		return nil
	})
	for _, n := range rep.Rows {
		c.report.TreeRows += n
	}
	for _, p := range rep.Problems {
		c.problem(Problem{File: p.File, Offset: p.Offset, What: p.What, Messages: -1})
	}
	return err
}

// row takes one row of the tree: the tables come in their order, so queues are known before their messages.
func (c *checker) row(table int, key, value []byte, now int64) (err error) {
	switch table {
	case tableMeta:
		switch {
		case bytes.Equal(key, recountKey):
			c.recount = true
			return nil
		case bytes.Equal(key, followerKey) || bytes.Equal(key, historyKey):
			return nil
		}
		if c.cp, err = decodeCheckpoint(value); err == nil {
			c.findLeftOut()
		}
	case tableMetaCopy:
		c.cp, err = decodeCheckpoint(value)
	case tableQueues:
		r, err := decodeQueueRow(key, value)
		if err != nil {
			return err
		}
		c.queues[r.Num] = &checkedQueue{queueRow: r, treeTotals: r.Totals, treePurged: r.PurgedID}
	case tableMessages:
		row, err := decodeMessageRow(key, value)
		if err != nil {
			return err
		}
		q := c.queues[row.Queue]
		if q == nil {
			return fmt.Errorf("message %d lies in queue number %d, which is not there", row.ID, row.Queue)
		}
		delete(c.leftOut, row.ID)
		if row.ID > q.PurgedID {
			q.rows++
			q.bytes += int64(row.Size)
			if row.Due > now {
				q.delayed++
			}
		}
	case tableTimes:
		_, err = decodeTimeRow(key, value)
	case tableDedup:
		_, _, _, err = decodeDedupKey(key)
	}
	return err
}

// findLeftOut collects the messages which the log's tail removes and the tree may have left out; rows strike them off again.
func (c *checker) findLeftOut() {
	c.leftOut = make(map[uint64]uint32)
	_, _ = ulog.Check(filepath.Join(c.dir, "ulog"), ulog.OS{}, c.cp.Position, c.cp.Place, func(rec *ulog.Record) error {
		var op queue.Op
		if queue.DecodeHead(rec.Head, len(rec.Body), &op) == nil && op.Kind == queue.KindRemove && op.ID < c.cp.NextID {
			c.leftOut[op.ID] = op.Queue
		}
		return nil
	}) // damage is found again, and told, when the records are read
}

// ulog reads the log behind the tree.
func (c *checker) ulog(progress Progress) error {
	now := time.Now().UnixMilli()
	rep, err := ulog.Check(filepath.Join(c.dir, "ulog"), ulog.OS{}, c.cp.Position, c.cp.Place, func(rec *ulog.Record) error {
		c.report.Records++
		var op queue.Op
		if err := queue.DecodeHead(rec.Head, len(rec.Body), &op); err != nil {
			c.problem(Problem{File: filepath.Join(c.dir, "ulog"), Offset: rec.Place.Offset, What: fmt.Sprintf("LSN %d: %v", rec.LSN, err), Messages: 1})
			return nil
		}
		op.LSN = rec.LSN
		c.op(&op, now)
		return nil
	})
	c.report.CutFrames = rep.CutFrames
	if p, damaged := errors.AsType[*ulog.CorruptError](err); damaged {
		c.problem(Problem{File: p.File, Offset: p.Offset, Messages: damagedMessages(p),
			What: fmt.Sprintf("%v: LSN %d expected, %d intact records behind it", p.Err, p.LSN, p.Later)})
		err = nil
	}
	if progress != nil {
		progress("update log", c.report.Records, c.report.Records)
	}
	return err
}

// damagedMessages is how many records, of which each may be a message, a damage has swallowed; -1: unknown.
func damagedMessages(p *ulog.CorruptError) int64 {
	if p.LaterLSN > p.LSN {
		return int64(p.LaterLSN - p.LSN)
	}
	if p.Highest >= p.LSN {
		return int64(p.Highest - p.LSN + 1)
	}
	return -1
}

func (c *checker) op(op *queue.Op, now int64) {
	q := c.queues[op.Queue]
	switch {
	case op.Kind == queue.KindSeal || op.Kind == queue.KindReceipts || op.Kind == queue.KindEpoch:
		return
	case op.Kind == queue.KindCreate:
		q = &checkedQueue{queueRow: queueRow{QueueRow: queue.QueueRow{Num: op.Queue, Name: string(op.Name)}}}
		c.queues[op.Queue] = q
	case q == nil:
		c.problem(Problem{File: filepath.Join(c.dir, "ulog"), Offset: -1, Messages: -1,
			What: fmt.Sprintf("LSN %d is about queue number %d, which is not there", op.LSN, op.Queue)})
		return
	}
	q.Totals.Apply(op)
	switch {
	case op.Kind == queue.KindForget:
		q.forgotten = true
	case op.Kind == queue.KindPurge:
		q.delayed = 0
	case op.Kind == queue.KindEnqueue && op.Due > now, op.Kind == queue.KindRelease && op.NewDue > now:
		q.delayed++
	case op.Kind == queue.KindRemove && op.Due > now:
		q.delayed--
	}
}

// finish compares counters with rows and lists the queues.
func (c *checker) finish() {
	path := filepath.Join(c.dir, "tree")
	for id, num := range c.leftOut {
		if q := c.queues[num]; q != nil && id > q.treePurged {
			q.noRows++
		}
	}
	for _, q := range c.queues {
		t := q.treeTotals
		if t.Live -= q.noRows; !q.forgotten && !c.recount && (t.Live != q.rows || q.noRows == 0 && t.Bytes != q.bytes) {
			c.problem(Problem{File: path, Offset: -1, Messages: max(t.Live-q.rows, q.rows-t.Live),
				What: fmt.Sprintf("queue %q counts %d messages of %d bytes, its rows are %d of %d bytes", q.Name, t.Live, t.Bytes, q.rows, q.bytes)})
		}
		if n := t.Acked + t.Purged + t.Expired + t.Live + q.noRows + t.Dead; n != t.Enqueued {
			c.problem(Problem{File: path, Offset: -1, Messages: max(n-t.Enqueued, t.Enqueued-n),
				What: fmt.Sprintf("queue %q has enqueued %d messages and accounts for %d", q.Name, t.Enqueued, n)})
		}
		if q.forgotten {
			continue
		}
		counts := queue.Counts{Totals: q.Totals, Delayed: max(0, q.delayed)}
		counts.Ready = counts.Live - counts.Delayed
		c.report.Queues = append(c.report.Queues, queueStats(q.Name, counts, 0))
	}
	sortQueues(c.report.Queues)
}

// Defrag rewrites the tree's file without its free pages. Sizes are bytes on disk before and after. An interrupted one leaves
// the old file whole. It refuses a folder in use.
func Defrag(dir string, progress Progress) (before, after int64, err error) {
	lock, err := lockExisting(dir)
	if err != nil {
		return 0, 0, err
	}
	defer lock.Close()
	before, after, err = tree.Defrag(filepath.Join(dir, "tree"), tree.Options{Tables: treeTables()}, stepOf(progress, "defrag"))
	return before, after, classify(err)
}
