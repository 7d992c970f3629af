package memcache

import (
	"errors"
	"net"
	"os"
	"strconv"
	"time"

	"qserver/storage"
)

// The lines that answer a command.
const (
	replyError     = "ERROR\r\n"
	replyFormat    = "CLIENT_ERROR bad command line format\r\n"
	replyUsage     = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"
	replyOption    = "CLIENT_ERROR unknown queue option (see -key-options)\r\n"
	replyExptime   = "CLIENT_ERROR invalid exptime argument\r\n"
	replyDelta     = "CLIENT_ERROR invalid numeric delta argument\r\n"
	replyChunk     = "CLIENT_ERROR bad data chunk\r\n"
	replyLine      = "CLIENT_ERROR line too long\r\n"
	replyNoFlush   = "CLIENT_ERROR flush_all not allowed\r\n"
	replyTooLarge  = "SERVER_ERROR object too large for cache\r\n"
	replyTooMany   = "SERVER_ERROR too many open connections\r\n"
	replyStored    = "STORED\r\n"
	replyNotStored = "NOT_STORED\r\n"
	replyExists    = "EXISTS\r\n"
	replyDeleted   = "DELETED\r\n"
	replyTouched   = "TOUCHED\r\n"
	replyNotFound  = "NOT_FOUND\r\n"
	replyOK        = "OK\r\n"
	replyEnd       = "END\r\n"
	replyReset     = "RESET\r\n"
	replyNoop      = "MN\r\n"
	replyOver      = "receipt over" // what each protocol says in its own words
)

// What is said of an enqueue that finds no room: clients know the words.
const (
	textNoMemory = "out of memory storing object"
	textDiskFull = "out of memory storing object (disk full)"
)

// reply is the line for a fault.
func (f fault) reply() string {
	switch f {
	case faultUnknown:
		return replyError
	case faultOption:
		return replyOption
	case faultUsage:
		return replyUsage
	case faultExptime:
		return replyExptime
	case faultDelta:
		return replyDelta
	case faultTooLarge:
		return replyTooLarge
	case faultFlag:
		return "CLIENT_ERROR invalid flag\r\n"
	case faultTwice:
		return "CLIENT_ERROR duplicate flag\r\n"
	case faultToken:
		return "CLIENT_ERROR bad token in command line format\r\n"
	case faultMode:
		return "CLIENT_ERROR invalid mode for ms M token\r\n"
	case faultModeMA:
		return "CLIENT_ERROR invalid mode for ma M token\r\n"
	case faultOpaque:
		return "CLIENT_ERROR opaque token too long\r\n"
	case faultDecode:
		return "CLIENT_ERROR error decoding key\r\n"
	}
	return replyFormat
}

const (
	flushAt  = 64 << 10         // so many bytes of replies are sent without looking for more commands
	copyUpTo = 16 << 10         // larger bodies are sent from where they lie
	stalled  = 30 * time.Second // a reply that makes no progress for so long closes its connection
)

// output collects replies until they are sent together.
type output struct {
	buf    []byte // pooled; nil while it is empty and the connection waits
	safe   int    // buf[:safe] rests on nothing that is not committed
	bodies []sentBody
	size   int // bytes collected, bodies included
	sent   int // of these
}

// sentBody is a large body that goes out after buf[:at].
type sentBody struct {
	at   int
	body []byte
}

func (o *output) empty() bool { return o.size == 0 }

func (o *output) text(s string) {
	o.ready()
	o.buf = append(o.buf, s...)
	o.size += len(s)
}

func (o *output) ready() {
	if o.buf == nil {
		o.buf = takeBuffer(mediumBuffer)[:0]
	}
}

// value appends a VALUE block; receipt < 0 leaves the CAS column out.
func (o *output) value(key []byte, flags uint32, body []byte, receipt int64) {
	o.ready()
	before := len(o.buf)
	b := append(o.buf, "VALUE "...)
	b = append(b, key...)
	b = append(b, ' ')
	b = strconv.AppendUint(b, uint64(flags), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(len(body)), 10)
	if receipt >= 0 {
		b = append(b, ' ')
		b = strconv.AppendInt(b, receipt, 10)
	}
	b = append(b, '\r', '\n')
	if len(body) <= copyUpTo {
		b = append(b, body...)
	} else {
		o.bodies = append(o.bodies, sentBody{len(b), body})
		o.size += len(body)
	}
	o.buf = append(b, '\r', '\n')
	o.size += len(o.buf) - before
}

// begin returns what is collected, for a reply to be appended; finish takes it back.
func (o *output) begin() []byte {
	o.ready()
	return o.buf
}

func (o *output) finish(b []byte) {
	o.size += len(b) - len(o.buf)
	o.buf = b
}

// body appends a message's body to the reply b, which the caller is making: a large one is sent from where it lies.
func (o *output) body(b, body []byte) []byte {
	if len(body) <= copyUpTo {
		return append(b, body...)
	}
	o.bodies = append(o.bodies, sentBody{len(b), body})
	o.size += len(body)
	return b
}

// stat appends a STAT line.
func (o *output) stat(name, value string) {
	o.ready()
	before := len(o.buf)
	b := append(o.buf, "STAT "...)
	b = append(b, name...)
	b = append(b, ' ')
	b = append(b, value...)
	o.buf = append(b, '\r', '\n')
	o.size += len(o.buf) - before
}

// unsay takes back what rests on uncommitted records.
func (o *output) unsay() {
	for n := len(o.bodies); n > 0 && o.bodies[n-1].at > o.safe; n-- {
		o.bodies = o.bodies[:n-1]
	}
	o.buf = o.buf[:min(o.safe, len(o.buf))]
	o.size = len(o.buf)
	for _, s := range o.bodies {
		o.size += len(s.body)
	}
}

// clear forgets what was sent and gives a buffer back that had to grow.
func (o *output) clear() {
	if cap(o.buf) > largeBuffer {
		o.buf = nil
	}
	clear(o.bodies)
	o.buf, o.bodies, o.safe, o.size, o.sent = o.buf[:0], o.bodies[:0], 0, 0, 0
}

// release gives the buffer back; what is in it is lost.
func (o *output) release() {
	if o.buf != nil {
		giveBuffer(o.buf)
	}
	*o = output{}
}

// rest are the bytes that have not been sent, in order.
func (o *output) rest() net.Buffers {
	var v net.Buffers
	skip, from := o.sent, 0
	add := func(p []byte) {
		k := min(skip, len(p))
		if skip -= k; k < len(p) {
			v = append(v, p[k:])
		}
	}
	for _, s := range o.bodies {
		add(o.buf[from:s.at])
		add(s.body)
		from = s.at
	}
	add(o.buf[from:])
	return v
}

// flush sends what was collected, all of it or until the peer makes no progress for 30 s.
func (c *conn) flush() error {
	done, err := c.trySend()
	if !done && err == nil {
		err = c.writeAll(c.out.rest())
	}
	c.out.clear()
	return err
}

// trySend sends what the socket takes without waiting; done says that it was all.
func (c *conn) trySend() (done bool, err error) {
	o := &c.out
	if o.empty() {
		return true, nil
	}
	if o.sent == 0 {
		c.counts[bytesWritten] += uint64(o.size)
		c.publish()
	}
	n := 0
	switch {
	case c.sock == nil:
		return false, nil
	case len(o.bodies) == 0:
		n, err = c.sock.TryWrite(o.buf[o.sent:])
	default:
		n, err = c.sock.TryWriteAll(o.rest())
	}
	o.sent += n
	return o.sent == o.size, err
}

// writeAll writes in steps of a second, to see whether there is progress.
func (c *conn) writeAll(pieces net.Buffers) error {
	defer c.nc.SetWriteDeadline(time.Time{})
	last := time.Now()
	for {
		c.nc.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := pieces.WriteTo(c.nc)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if n > 0 {
			last = time.Now()
		} else if time.Since(last) >= stalled {
			c.counts[slowClosed]++
			return err
		}
	}
}

// settle commits what the collected replies rest on and sends them: one commit and one write for a whole pipeline. It
// says whether the connection goes on.
func (c *conn) settle() bool {
	if !c.commit() {
		return false
	}
	if err := c.flush(); err != nil {
		c.end(closeNow)
		return false
	}
	return true
}

// commit waits for the records of this session. After a failure nothing that rests on them is sent, only that their outcome
// is unknown.
func (c *conn) commit() bool {
	c.staged = 0
	var err error
	if c.seated { // nobody else has anything to stage
		err = c.session.CommitRound()
	} else {
		err = c.session.Commit()
	}
	if err != nil {
		c.lost(err)
		return false
	}
	c.out.safe = len(c.out.buf)
	return true
}

// lost answers a failed commit: what rests on it is taken back, the outcome is called unknown, the connection closes.
func (c *conn) lost(err error) {
	if c.ending != goOn {
		return
	}
	c.out.unsay()
	c.cmd.noreply = false // others wait for their answer, too
	c.serverError(statusInternal, outcomeUnknown(err))
	c.end(closeLinger)
	if err := c.flush(); err != nil {
		c.end(closeNow)
	}
}

// outcomeUnknown is err's text in one line, beginning with the words by which a client knows it.
func outcomeUnknown(err error) string {
	const words = "outcome unknown"
	text := oneLine(err)
	if len(text) >= len(words) && text[:len(words)] == words {
		return text
	}
	return words + ": " + text
}

// oneLine is err's text without line ends and other control bytes.
func oneLine(err error) string {
	b := []byte(err.Error())
	for i, c := range b {
		if c < ' ' || c == 0x7f {
			b[i] = ' '
		}
	}
	return string(b)
}

// answer appends a line, unless the command said noreply.
func (c *conn) answer(line string) {
	if !c.cmd.noreply {
		c.out.text(line)
	}
}

// refuse answers a command that failed; with noreply it is only counted.
func (c *conn) refuse(line string) {
	if c.cmd.noreply {
		c.counts[noreplyErrors]++
		return
	}
	c.out.text(line)
}

// storeError answers what the store refused. Ordinary outcomes are not error lines: those cost most clients the connection.
func (c *conn) storeError(err error) {
	switch {
	case errors.Is(err, storage.ErrNotStored):
		c.outcome(replyNotStored)
	case errors.Is(err, storage.ErrReceiptOver):
		c.outcome(replyOver)
	case errors.Is(err, storage.ErrNotFound):
		c.outcome(replyNotFound)
	case errors.Is(err, storage.ErrDiskFull):
		c.serverError(statusNoMemory, textDiskFull)
	case errors.Is(err, storage.ErrNoMemory):
		c.serverError(statusNoMemory, textNoMemory)
	case errors.Is(err, storage.ErrUnknownOutcome):
		c.lost(err)
	default:
		c.serverError(statusInternal, oneLine(err))
	}
}

// outcome answers that an ordinary command had no effect, in the client's protocol: one of replyNotStored, replyNotFound and
// replyOver, which classic text has no word for.
func (c *conn) outcome(line string) {
	switch c.cmd.dialect {
	case metaDialect:
		c.metaOutcome(line)
	case binaryDialect:
		c.binaryOutcome(line)
	default:
		if line == replyOver {
			line = replyNotFound
		}
		c.refuse(line)
	}
}

// serverError answers that the server can't do it now, in the client's protocol.
func (c *conn) serverError(s status, text string) {
	if c.cmd.dialect == binaryDialect {
		c.binaryRefuse(s, text)
		return
	}
	c.refuse("SERVER_ERROR " + text + "\r\n")
}
