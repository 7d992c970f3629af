package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// A ReplyError is a reply that the client did not expect; the connection is of no use afterwards.
type ReplyError struct {
	Command string // the verb that it answered
	Reply   string // the line, without its end, at most 120 bytes
}

func (e *ReplyError) Error() string {
	return fmt.Sprintf("%s: unexpected reply %q", e.Command, e.Reply)
}

// Memcache speaks the classic text protocol of memcached over one connection. It serves one goroutine at a time.
//
// Set, Get and Delete are one round trip each. The Append methods collect requests without sending them, Flush
// sends what was collected, and the Read methods take one reply each in the order of the requests: so a caller
// pipelines.
type Memcache struct {
	conn net.Conn
	stop func() bool
	out  []byte // requests that were not sent yet
	in   []byte // in[r:w] was received and not read yet
	r, w int
}

// DialMemcache connects to a TCP address. When ctx ends the connection is closed and every call on it fails.
func DialMemcache(ctx context.Context, address string) (*Memcache, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address) // with TCP_NODELAY, as net sets it unless told otherwise
	if err != nil {
		return nil, err
	}
	c := NewMemcache(conn)
	c.stop = context.AfterFunc(ctx, func() { conn.Close() })
	return c, nil
}

// NewMemcache returns a client on a connection that is open already.
func NewMemcache(conn net.Conn) *Memcache {
	return &Memcache{conn: conn, out: make([]byte, 0, 16<<10), in: make([]byte, 16<<10)}
}

// Close ends the connection.
func (c *Memcache) Close() error {
	if c.stop != nil {
		c.stop()
	}
	return c.conn.Close()
}

// Set stores a body under a key and waits for STORED.
func (c *Memcache) Set(key []byte, flags uint32, body []byte) error {
	c.AppendSet(key, flags, body)
	if err := c.Flush(); err != nil {
		return err
	}
	return c.ReadStored()
}

// Get asks for one key. The body is valid until the next call; found is false where the server had none.
func (c *Memcache) Get(key []byte) (body []byte, flags uint32, found bool, err error) {
	c.AppendGet(key)
	if err := c.Flush(); err != nil {
		return nil, 0, false, err
	}
	return c.ReadValue()
}

// Delete deletes one key; it returns false for NOT_FOUND.
func (c *Memcache) Delete(key []byte) (bool, error) {
	c.AppendDelete(key)
	if err := c.Flush(); err != nil {
		return false, err
	}
	return c.ReadDeleted()
}

// Version asks for the server's version. Its reply says that the server has read all that was sent before.
func (c *Memcache) Version() (string, error) {
	c.out = append(c.out, "version\r\n"...)
	if err := c.Flush(); err != nil {
		return "", err
	}
	line, err := c.readLine()
	if err != nil {
		return "", err
	}
	version, ok := bytes.CutPrefix(line, []byte("VERSION "))
	if !ok {
		return "", replyError("version", line)
	}
	return string(version), nil
}

// Stats returns the lines of `stats` or, with a section, of `stats SECTION`, by name.
func (c *Memcache) Stats(section string) (map[string]string, error) {
	c.out = append(c.out, strings.TrimRight("stats "+section, " ")+"\r\n"...)
	if err := c.Flush(); err != nil {
		return nil, err
	}
	stats := make(map[string]string)
	for {
		line, err := c.readLine()
		if err != nil {
			return nil, err
		}
		if string(line) == "END" {
			return stats, nil
		}
		rest, ok := strings.CutPrefix(string(line), "STAT ")
		if !ok {
			return nil, replyError("stats", line)
		}
		name, value, _ := strings.Cut(rest, " ")
		stats[name] = value
	}
}

// AppendSet adds a set to what Flush will send.
func (c *Memcache) AppendSet(key []byte, flags uint32, body []byte) {
	c.appendSet(key, flags, body, "\r\n")
}

// AppendSetNoreply adds a set that will not be answered.
func (c *Memcache) AppendSetNoreply(key []byte, flags uint32, body []byte) {
	c.appendSet(key, flags, body, " noreply\r\n")
}

func (c *Memcache) appendSet(key []byte, flags uint32, body []byte, end string) {
	c.out = append(c.out, "set "...)
	c.out = append(c.out, key...)
	c.out = append(c.out, ' ')
	c.out = strconv.AppendUint(c.out, uint64(flags), 10)
	c.out = append(c.out, " 0 "...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(c.out, end...)
	c.out = append(c.out, body...)
	c.out = append(c.out, "\r\n"...)
}

// AppendGet adds a get of one key.
func (c *Memcache) AppendGet(key []byte) {
	c.out = append(c.out, "get "...)
	c.out = append(c.out, key...)
	c.out = append(c.out, "\r\n"...)
}

// AppendDelete adds a delete.
func (c *Memcache) AppendDelete(key []byte) {
	c.out = append(c.out, "delete "...)
	c.out = append(c.out, key...)
	c.out = append(c.out, "\r\n"...)
}

// Pending returns how many bytes Flush would send.
func (c *Memcache) Pending() int { return len(c.out) }

// Flush sends the requests collected so far.
func (c *Memcache) Flush() error {
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	return err
}

// ReadStored reads the reply of a set.
func (c *Memcache) ReadStored() error {
	line, err := c.readLine()
	if err != nil {
		return err
	}
	if string(line) != "STORED" {
		return replyError("set", line)
	}
	return nil
}

// ReadDeleted reads the reply of a delete; it returns false for NOT_FOUND.
func (c *Memcache) ReadDeleted() (bool, error) {
	line, err := c.readLine()
	if err != nil {
		return false, err
	}
	switch string(line) {
	case "DELETED":
		return true, nil
	case "NOT_FOUND":
		return false, nil
	}
	return false, replyError("delete", line)
}

var errValue = errors.New("get: malformed VALUE")

// ReadValue reads the reply of a get of one key. The body is valid until the next call.
func (c *Memcache) ReadValue() (body []byte, flags uint32, found bool, err error) {
	line, err := c.readLine()
	if err != nil {
		return nil, 0, false, err
	}
	if string(line) == "END" {
		return nil, 0, false, nil
	}
	if !bytes.HasPrefix(line, []byte("VALUE ")) {
		return nil, 0, false, replyError("get", line)
	}
	line = line[len("VALUE "):]
	line = line[bytes.IndexByte(line, ' ')+1:]
	f, line := digits(line)
	if len(line) == 0 || line[0] != ' ' {
		return nil, 0, false, errValue
	}
	n, line := digits(line[1:])
	if len(line) != 0 || n > 1<<31 {
		return nil, 0, false, errValue
	}
	const end = "\r\nEND\r\n"
	if err := c.need(int(n) + len(end)); err != nil {
		return nil, 0, false, err
	}
	body = c.in[c.r : c.r+int(n) : c.r+int(n)]
	tail := c.in[c.r+int(n) : c.r+int(n)+len(end)]
	c.r += int(n) + len(end)
	if string(tail) != end {
		return nil, 0, false, replyError("get", tail)
	}
	return body, uint32(f), true, nil
}

// digits reads a decimal number of at most 10 digits and returns what follows it.
func digits(b []byte) (n uint64, rest []byte) {
	i := 0
	for i < len(b) && i < 10 && b[i] >= '0' && b[i] <= '9' {
		n = n*10 + uint64(b[i]-'0')
		i++
	}
	return n, b[i:]
}

// readLine returns the next line without its end; it is valid until the next read.
func (c *Memcache) readLine() ([]byte, error) {
	from := c.r
	for {
		if i := bytes.IndexByte(c.in[from:c.w], '\n'); i >= 0 {
			line := c.in[c.r : from+i]
			c.r = from + i + 1
			if n := len(line); n > 0 && line[n-1] == '\r' {
				line = line[:n-1]
			}
			return line, nil
		}
		from = c.w - c.r // fill may move what is there to the front
		if err := c.fill(); err != nil {
			return nil, err
		}
		from += c.r
	}
}

// need reads until n bytes are there.
func (c *Memcache) need(n int) error {
	for c.w-c.r < n {
		if len(c.in) < n {
			c.in = append(c.in, make([]byte, n)...)
		}
		if err := c.fill(); err != nil {
			return err
		}
	}
	return nil
}

// fill reads once, after making room.
func (c *Memcache) fill() error {
	if c.r == c.w {
		c.r, c.w = 0, 0
	}
	if c.w == len(c.in) {
		if c.r == 0 {
			c.in = append(c.in, make([]byte, len(c.in))...)
		}
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	}
	n, err := c.conn.Read(c.in[c.w:])
	c.w += n
	if n > 0 {
		return nil
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func replyError(command string, line []byte) error {
	return &ReplyError{Command: command, Reply: string(line[:min(len(line), 120)])}
}
