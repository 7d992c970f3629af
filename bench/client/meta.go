package client

import (
	"bytes"
	"strconv"
)

// Meta sends memcached's meta commands over one connection, pipelined and quiet, as its clients do in bulk: a batch of
// requests that say nothing when all is well, then mn, whose answer says that the batch is done. It serves one goroutine.
type Meta struct{ *Memcache }

// Supported asks whether the server knows meta commands.
func (c Meta) Supported() (bool, error) {
	c.out = append(c.out, "mn\r\n"...)
	if err := c.Flush(); err != nil {
		return false, err
	}
	line, err := c.readLine()
	return string(line) == "MN", err
}

// AppendSet adds a quiet ms.
func (c Meta) AppendSet(key []byte, flags uint32, body []byte) {
	c.out = append(append(append(c.out, "ms "...), key...), ' ')
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(c.out, " q F"...)
	c.out = strconv.AppendUint(c.out, uint64(flags), 10)
	c.out = append(c.out, "\r\n"...)
	c.out = append(append(c.out, body...), "\r\n"...)
}

// AppendGet adds a quiet mg for body and flags.
func (c Meta) AppendGet(key []byte) {
	c.out = append(append(append(c.out, "mg "...), key...), " v f q\r\n"...)
}

// AppendDelete adds a quiet md of what this connection got first.
func (c Meta) AppendDelete(key []byte) {
	c.out = append(append(append(c.out, "md "...), key...), " q\r\n"...)
}

// End sends the batch, its mn behind it.
func (c Meta) End() error {
	c.out = append(c.out, "mn\r\n"...)
	return c.Flush()
}

// Next reads the next value of the batch; found is false at its end. Any other answer is an error. The body is valid
// until the next call.
func (c Meta) Next() (body []byte, flags uint32, found bool, err error) {
	line, err := c.readLine()
	if err != nil || string(line) == "MN" {
		return nil, 0, false, err
	}
	rest, ok := bytes.CutPrefix(line, []byte("VA "))
	n, rest := digits(rest)
	rest, ok2 := bytes.CutPrefix(rest, []byte(" f"))
	f, rest := digits(rest)
	if !ok || !ok2 || len(rest) != 0 || n > maxBody {
		return nil, 0, false, replyError("meta", line)
	}
	body, err = c.body("mg", int(n), "\r\n")
	return body, uint32(f), err == nil, err
}
