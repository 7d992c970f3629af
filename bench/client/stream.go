package client

import (
	"bytes"
	"context"
	"io"
	"net"
)

// maxBody is the largest length that a reply may tell.
const maxBody = 1 << 31

// stream is the TCP connection of a client with its two buffers.
type stream struct {
	conn net.Conn
	stop func() bool
	out  []byte // requests that were not sent yet
	in   []byte // in[r:w] was received and not read yet
	r, w int
}

func newStream(conn net.Conn) stream {
	return stream{conn: conn, out: make([]byte, 0, 16<<10), in: make([]byte, 16<<10)}
}

func dialStream(ctx context.Context, address string) (stream, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address) // with TCP_NODELAY, as net sets it unless told otherwise
	if err != nil {
		return stream{}, err
	}
	c := newStream(conn)
	c.stop = context.AfterFunc(ctx, func() { conn.Close() })
	return c, nil
}

// Close ends the connection.
func (c *stream) Close() error {
	if c.stop != nil {
		c.stop()
	}
	return c.conn.Close()
}

// Pending returns how many bytes Flush would send.
func (c *stream) Pending() int { return len(c.out) }

// Flush sends the requests collected so far.
func (c *stream) Flush() error {
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	return err
}

// readLine returns the next line without its end; it is valid until the next read.
func (c *stream) readLine() ([]byte, error) {
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

// body returns the next n bytes and checks that end follows them; the bytes are valid until the next read.
func (c *stream) body(command string, n int, end string) ([]byte, error) {
	if err := c.need(n + len(end)); err != nil {
		return nil, err
	}
	body := c.in[c.r : c.r+n : c.r+n]
	tail := c.in[c.r+n : c.r+n+len(end)]
	c.r += n + len(end)
	if string(tail) != end {
		return nil, replyError(command, tail)
	}
	return body, nil
}

// need reads until n bytes are there.
func (c *stream) need(n int) error {
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
func (c *stream) fill() error {
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

// digits reads a decimal number of at most 10 digits and returns what follows it.
func digits(b []byte) (n uint64, rest []byte) {
	i := 0
	for i < len(b) && i < 10 && b[i] >= '0' && b[i] <= '9' {
		n = n*10 + uint64(b[i]-'0')
		i++
	}
	return n, b[i:]
}
