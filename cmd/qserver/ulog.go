package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"qserver/storage"
	"qserver/storage/queue"
)

func ulogCommand() command {
	return command{
		name:  "ulog",
		usage: "[flags] DIR|FILE",
		short: "print an update log, or put back what was set aside",
		help: `Prints the records of the update log in the data folder DIR, or of a FILE that qserver rejoin
has set aside, one a line, oldest first. The log goes back as far as its server still needs it.

It only reads, and so works beside a running server too: what it shows then is written, and may
not be synced yet; queues are called by their numbers (#7) unless the log still has the record
that made them. With a stopped server's folder all names are known.

  -from LSN        begin with this record
  -follow          go on as more is written, until SIGINT
  -json            for programs: an object a line; a body that is no UTF-8 is in "body_base64"
  -put HOST:PORT   enqueue at the server there (its memcached port) every message of FILE that
                   was enqueued and neither acked, expired nor purged in it. It prints how many.
                   If it breaks off it says with which -from to go on. FILE.put says how far it
                   has come: what was put back is not put back again
  -again           unless this is given
`,
		run: printLog,
	}
}

// lsn reads the number of a record.
func lsn(p *uint64) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return errors.New("want the number of a record")
		}
		*p = n
		return nil
	}
}

// followEvery is how often -follow looks for more.
const followEvery = 50 * time.Millisecond

func printLog(ctx context.Context, args, _ []string, stdout, _ io.Writer) error {
	var from uint64
	var follow, asJSON, again bool
	var put string
	operands, err := parseCommand("ulog", args, []option{{"from", false, lsn(&from)}, {"follow", true, toggle(&follow)},
		{"json", true, toggle(&asJSON)}, {"put", false, address(&put)}, {"again", true, toggle(&again)}}, "DIR")
	if err != nil {
		return err
	}
	path := operands[0]
	if put != "" {
		if follow || asJSON {
			return usageError("ulog: -put goes with -from and -again only")
		}
		return putBack(ctx, path, from, again, put, stdout)
	}
	r, err := openLogFiles(path, from)
	if err != nil {
		return err
	}
	defer r.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	write := writeRecord
	if asJSON {
		write = writeRecordJSON
	}
	for {
		rec, err := r.Next()
		switch {
		case errors.Is(err, io.EOF) && follow && r.Aside() == nil:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(followEvery):
			}
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("ulog %s: %w", path, err)
		case ctx.Err() != nil:
			return nil
		}
		if err := write(stdout, rec); err != nil {
			return err
		}
	}
}

func openLogFiles(path string, from uint64) (*storage.LogReader, error) {
	r, err := storage.OpenLogFiles(path, from)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, withCode(exitNoInput, err)
		}
		return nil, fmt.Errorf("ulog %s: %w", path, err)
	}
	return r, nil
}

var kindNames = map[queue.Kind]string{queue.KindSeal: "seal", queue.KindCreate: "create", queue.KindEnqueue: "enqueue",
	queue.KindRelease: "release", queue.KindReplace: "replace", queue.KindPurge: "purge", queue.KindForget: "forget",
	queue.KindReceipts: "receipts", queue.KindCount: "count", queue.KindEpoch: "epoch"}

func kindName(rec *storage.LogRecord) string {
	switch {
	case rec.Gap > 0:
		return "lost"
	case rec.Op.Kind == queue.KindRemove && rec.Op.Reason == queue.Expired:
		return "expire"
	case rec.Op.Kind == queue.KindRemove:
		return "ack"
	}
	return kindNames[rec.Op.Kind]
}

// shownBytes is how much of a body is shown to people.
const shownBytes = 60

// writeRecord is a record for people.
func writeRecord(w io.Writer, rec *storage.LogRecord) error {
	var b strings.Builder
	op := &rec.Op
	fmt.Fprintf(&b, "%d %s", rec.LSN, kindName(rec))
	if rec.Gap > 0 {
		fmt.Fprintf(&b, ": %d %s up to here", rec.Gap, plural(int(rec.Gap), "record"))
	}
	if op.Queue != 0 {
		if rec.Name != "" {
			b.WriteString(" " + quoted(rec.Name))
		} else {
			fmt.Fprintf(&b, " #%d", op.Queue)
		}
	}
	switch op.Kind {
	case queue.KindPurge:
		fmt.Fprintf(&b, " up to message %d", op.ID)
	case queue.KindReceipts:
		fmt.Fprintf(&b, " up to %d", op.ID)
	case queue.KindEpoch:
		fmt.Fprintf(&b, " %d: another server leads", op.ID)
	case queue.KindEnqueue, queue.KindReplace, queue.KindRemove, queue.KindRelease, queue.KindCount:
		fmt.Fprintf(&b, " message %d", op.ID)
	}
	at := func(name string, ms int64) {
		if ms != 0 {
			fmt.Fprintf(&b, " %s %s", name, time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z"))
		}
	}
	switch op.Kind {
	case queue.KindEnqueue:
		at("at", op.Enqueued)
		at("due", op.Due)
		at("expires", op.Expire)
	case queue.KindReplace:
		at("expires", op.Expire)
	case queue.KindRelease:
		at("due", op.NewDue)
	}
	if op.Kind == queue.KindRelease || op.Kind == queue.KindCount {
		fmt.Fprintf(&b, " delivered %d %s", op.Count, plural(int(op.Count), "time"))
	}
	if rec.Body != nil {
		more := ""
		if len(rec.Body) > shownBytes {
			more = "…"
		}
		fmt.Fprintf(&b, " %d bytes %q%s", len(rec.Body), rec.Body[:min(len(rec.Body), shownBytes)], more)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// recordJSON is a record for programs. Times are Unix milliseconds.
type recordJSON struct {
	LSN       uint64  `json:"lsn"`
	Chain     uint32  `json:"chain"` // sum chained over all records up to this one
	Kind      string  `json:"kind"`
	Lost      uint64  `json:"lost_records,omitempty"`
	Queue     *string `json:"queue,omitempty"`
	Number    uint32  `json:"queue_number,omitempty"`
	ID        uint64  `json:"id,omitempty"` // of the message; purge: the last one that is; receipts: the end of the block; epoch: its number
	Priority  uint32  `json:"priority,omitempty"`
	Flags     uint32  `json:"flags,omitempty"`
	Count     uint32  `json:"deliveries,omitempty"`
	Enqueued  int64   `json:"enqueued_ms,omitempty"`
	Due       int64   `json:"due_ms,omitempty"`
	Expire    int64   `json:"expire_ms,omitempty"`
	Size      int     `json:"body_bytes,omitempty"`
	Body      *string `json:"body,omitempty"`
	BodyBytes []byte  `json:"body_base64,omitempty"`
}

func writeRecordJSON(w io.Writer, rec *storage.LogRecord) error {
	op := &rec.Op
	out := recordJSON{LSN: rec.LSN, Chain: rec.Chain, Kind: kindName(rec), Lost: rec.Gap, Number: op.Queue, ID: op.ID, Priority: op.Pri,
		Flags: op.Flags, Count: op.Count, Enqueued: op.Enqueued, Due: op.Due, Expire: op.Expire, Size: len(rec.Body)}
	if op.Kind == queue.KindRelease {
		out.Due = op.NewDue
	}
	if rec.Name != "" {
		out.Queue = &rec.Name
	}
	switch {
	case rec.Body == nil:
	case utf8.Valid(rec.Body):
		text := string(rec.Body)
		out.Body = &text
	default:
		out.BodyBytes = rec.Body
	}
	return json.NewEncoder(w).Encode(out)
}
