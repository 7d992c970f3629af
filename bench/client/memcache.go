package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Memcache speaks the classic text protocol of memcached over one connection. It serves one goroutine at a time.
//
// Set, Get and Delete are one round trip each. The Append methods collect requests without sending them, Flush
// sends what was collected, and the Read methods take one reply each in the order of the requests: so a caller
// pipelines.
type Memcache struct{ stream }

// DialMemcache connects to a TCP address. When ctx ends the connection is closed and every call on it fails.
func DialMemcache(ctx context.Context, address string) (*Memcache, error) {
	s, err := dialStream(ctx, address)
	if err != nil {
		return nil, err
	}
	return &Memcache{s}, nil
}

// NewMemcache returns a client on a connection that is open already.
func NewMemcache(conn net.Conn) *Memcache { return &Memcache{newStream(conn)} }

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

// GetWait asks for one key, by /t= behind it, and lets the server wait.
func (c *Memcache) GetWait(key []byte, d time.Duration) (body []byte, flags uint32, found bool, err error) {
	c.appendWait(key, d, "")
	if err := c.Flush(); err != nil {
		return nil, 0, false, err
	}
	return c.ReadValue()
}

// Next acks what is held of a queue and takes the next, by /close/open.
func (c *Memcache) Next(key []byte, d time.Duration) (body []byte, flags uint32, found bool, err error) {
	c.appendWait(key, d, "/close/open")
	if err := c.Flush(); err != nil {
		return nil, 0, false, err
	}
	return c.ReadValue()
}

func (c *Memcache) appendWait(key []byte, d time.Duration, options string) {
	c.out = append(c.out, "get "...)
	c.out = append(c.out, key...)
	if d > 0 {
		c.out = append(c.out, "/t="...)
		c.out = strconv.AppendInt(c.out, d.Milliseconds(), 10)
	}
	c.out = append(c.out, options...)
	c.out = append(c.out, "\r\n"...)
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

// Count is curr_items of stats or, where there is none, the sum of the queues' items.
func (c *Memcache) Count() (int64, error) {
	stats, err := c.Stats("")
	if err != nil {
		return 0, err
	}
	if _, ok := stats["curr_items"]; ok {
		return strconv.ParseInt(stats["curr_items"], 10, 64)
	}
	var sum int64
	for name, value := range stats {
		if strings.HasPrefix(name, "queue_") && strings.HasSuffix(name, "_items") {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("stats: %s %q", name, value)
			}
			sum += n
		}
	}
	return sum, nil
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
	if len(line) != 0 || n > maxBody {
		return nil, 0, false, errValue
	}
	body, err = c.body("get", int(n), "\r\nEND\r\n")
	return body, uint32(f), err == nil, err
}
