package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"qserver/storage"
	"qserver/storage/queue"
)

// Messages that only an old master had are put back through the memcached port of the new one: it decides about them as about
// any others, and gives them ids of its own.

const putTimeout = 30 * time.Second // for each message

// left is what a log leaves: which of its messages were neither acked, expired nor purged in it.
type left struct {
	gone   map[uint64]bool   // by id
	purged map[uint32]uint64 // by queue: up to this id
	latest map[uint64]uint64 // of a message whose body was replaced: LSN of the last body
}

func (l *left) note(rec *storage.LogRecord) {
	switch op := &rec.Op; op.Kind {
	case queue.KindRemove:
		l.gone[op.ID] = true
	case queue.KindPurge:
		l.purged[op.Queue] = max(l.purged[op.Queue], op.ID)
	case queue.KindReplace:
		l.latest[op.ID] = rec.LSN
	}
}

// has says whether the message of this enqueue is left.
func (l *left) has(op *queue.Op) bool { return !l.gone[op.ID] && op.ID > l.purged[op.Queue] }

// eachRecord calls fn for the records of the file at path, once it is known that it is a file.
func eachRecord(path string, fn func(*storage.LogRecord) error) error {
	r, err := openLogFiles(path, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	if r.Aside() == nil {
		return usageError("ulog: -put takes a file that qserver rejoin has set aside; %s is a folder", path)
	}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("ulog %s: %w", path, err)
		}
		if err := fn(rec); err != nil {
			return err
		}
	}
}

// putBack enqueues what the file's records from the LSN from on enqueued and is left. The whole file is verified before. again: also
// what was put back before.
func putBack(ctx context.Context, path string, from uint64, again bool, address string, stdout io.Writer) error {
	l := left{make(map[uint64]bool), make(map[uint32]uint64), make(map[uint64]uint64)}
	if err := eachRecord(path, func(rec *storage.LogRecord) error { l.note(rec); return nil }); err != nil {
		return err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return withCode(exitUnavailable, fmt.Errorf("no server answers at %s: %w", address, err))
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	mark, err := openPutMark(path, address, from, again)
	if err != nil {
		return err
	}
	p := putter{conn: conn, in: bufio.NewReader(conn)}
	var n, past, replaced int
	enqueued := make(map[uint64]queue.Op) // those whose body comes later
	err = eachRecord(path, func(rec *storage.LogRecord) error {
		op := rec.Op
		switch {
		case op.Kind == queue.KindEnqueue && l.has(&op):
			if l.latest[op.ID] != 0 {
				enqueued[op.ID] = op
				return nil
			}
		case op.Kind == queue.KindReplace && l.has(&op) && l.latest[op.ID] == rec.LSN:
			first, ok := enqueued[op.ID]
			if !ok { // both have the message: the other one's has its old body
				replaced++
				return nil
			}
			delete(enqueued, op.ID)
			first.Flags, first.Expire = op.Flags, op.Expire
			op = first
		default:
			return nil
		}
		switch {
		case rec.LSN < from:
			return nil
		case op.Expire != 0 && op.Expire <= time.Now().UnixMilli():
			past++
			return nil
		}
		if err := p.put(rec.Name, &op, rec.Body); err != nil {
			return withCode(exitUnavailable, fmt.Errorf("%d put back; the message of LSN %d was not, or it is not known: %w; to go on: -from %d",
				n, rec.LSN, err, rec.LSN))
		}
		n++
		return mark.passed(rec.LSN)
	})
	if err = mark.end(err); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d %s put back\n", n, plural(n, "message"))
	if past > 0 {
		fmt.Fprintf(stdout, "%d left out: expired meanwhile\n", past)
	}
	if replaced > 0 {
		fmt.Fprintf(stdout, "%d left out: a new body of a message that both servers had\n", replaced)
	}
	return nil
}

// putter speaks to a memcached port.
type putter struct {
	conn net.Conn
	in   *bufio.Reader
}

// put enqueues a message with what the log says of it.
func (p *putter) put(name string, op *queue.Op, body []byte) error {
	key := name
	if op.Pri != storage.DefaultPriority {
		key += fmt.Sprintf("/pri=%d", op.Pri)
	}
	if wait := time.Until(time.UnixMilli(op.Due)); op.Due != 0 && wait > 0 {
		key += fmt.Sprintf("/delay=%d", (wait+time.Second-1)/time.Second)
	}
	var expire int64
	if op.Expire != 0 {
		expire = (op.Expire + 999) / 1000
	}
	if err := p.conn.SetDeadline(time.Now().Add(putTimeout)); err != nil {
		return err
	}
	line := fmt.Appendf(nil, "set %s %d %d %d\r\n", key, op.Flags, expire, len(body))
	if _, err := p.conn.Write(append(append(line, body...), "\r\n"...)); err != nil {
		return err
	}
	answer, err := p.in.ReadString('\n')
	if err != nil {
		return err
	}
	if answer = strings.TrimRight(answer, "\r\n"); answer != "STORED" {
		return fmt.Errorf("queue %s: the server answers %q", quoted(name), answer)
	}
	return nil
}
