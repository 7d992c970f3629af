package client

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"
)

// Redis speaks RESP to a list that is used as a reliable queue: LPUSH stores, LMOVE takes into a list of what this
// connection holds, LREM removes from there. It serves one goroutine at a time.
type Redis struct {
	stream
	suffix []byte   // of the names of this connection's lists of what it holds
	held   [][]byte // bodies that were taken and not deleted, oldest first, in held[from:]
	from   int
}

// connections tells the lists of one connection from those of others.
var connections atomic.Int64

// DialRedis connects to a TCP address. When ctx ends the connection is closed and every call on it fails.
func DialRedis(ctx context.Context, address string) (*Redis, error) {
	s, err := dialStream(ctx, address)
	if err != nil {
		return nil, err
	}
	suffix := fmt.Sprintf(":held:%s:%d", s.conn.LocalAddr(), connections.Add(1))
	return &Redis{stream: s, suffix: []byte(suffix)}, nil
}

// NewRedis returns a client on a connection that is open already; it holds messages in lists named key:held.
func NewRedis(conn net.Conn) *Redis { return &Redis{stream: newStream(conn), suffix: []byte(":held")} }

// Flagless says that list items have no client flags.
func (*Redis) Flagless() {}

// Set pushes a message and waits for the answer.
func (c *Redis) Set(key []byte, flags uint32, body []byte) error {
	c.AppendSet(key, flags, body)
	if err := c.Flush(); err != nil {
		return err
	}
	return c.ReadStored()
}

// Get takes a message by LMOVE.
func (c *Redis) Get(key []byte) (body []byte, flags uint32, found bool, err error) {
	c.AppendGet(key)
	if err := c.Flush(); err != nil {
		return nil, 0, false, err
	}
	return c.ReadValue()
}

// GetWait takes a message by BLMOVE.
func (c *Redis) GetWait(key []byte, d time.Duration) (body []byte, flags uint32, found bool, err error) {
	if d <= 0 { // which means for ever to BLMOVE
		return c.Get(key)
	}
	c.appendMove(6, "BLMOVE", key)
	var seconds [24]byte
	c.appendBulk(strconv.AppendFloat(seconds[:0], d.Seconds(), 'f', 3, 64))
	if err := c.Flush(); err != nil {
		return nil, 0, false, err
	}
	return c.ReadValue()
}

// Delete removes the message that was taken first.
func (c *Redis) Delete(key []byte) (bool, error) {
	c.AppendDelete(key)
	if err := c.Flush(); err != nil {
		return false, err
	}
	return c.ReadDeleted()
}

// AppendSet adds an LPUSH.
func (c *Redis) AppendSet(key []byte, _ uint32, body []byte) {
	c.appendArray(3)
	c.appendBulk([]byte("LPUSH"))
	c.appendBulk(key)
	c.appendBulk(body)
}

// AppendGet adds an LMOVE.
func (c *Redis) AppendGet(key []byte) { c.appendMove(5, "LMOVE", key) }

func (c *Redis) appendMove(n int, command string, key []byte) {
	c.appendArray(n)
	c.appendBulk([]byte(command))
	c.appendBulk(key)
	c.appendHeld(key)
	c.appendBulk([]byte("RIGHT"))
	c.appendBulk([]byte("LEFT"))
}

// AppendDelete adds an LREM of the message that was taken first, from the end where it lies.
func (c *Redis) AppendDelete(key []byte) {
	c.appendArray(4)
	c.appendBulk([]byte("LREM"))
	c.appendHeld(key)
	c.appendBulk([]byte("-1"))
	if c.from == len(c.held) {
		c.appendBulk(nil)
		return
	}
	c.appendBulk(c.held[c.from])
	if c.from++; c.from == len(c.held) {
		c.held, c.from = c.held[:0], 0
	}
}

func (c *Redis) appendArray(n int) {
	c.out = append(c.out, '*')
	c.out = strconv.AppendInt(c.out, int64(n), 10)
	c.out = append(c.out, "\r\n"...)
}

func (c *Redis) appendBulk(b []byte) {
	c.out = append(c.out, '$')
	c.out = strconv.AppendInt(c.out, int64(len(b)), 10)
	c.out = append(c.out, "\r\n"...)
	c.out = append(c.out, b...)
	c.out = append(c.out, "\r\n"...)
}

// appendHeld adds the name of this connection's list for a key.
func (c *Redis) appendHeld(key []byte) {
	c.out = append(c.out, '$')
	c.out = strconv.AppendInt(c.out, int64(len(key)+len(c.suffix)), 10)
	c.out = append(c.out, "\r\n"...)
	c.out = append(append(c.out, key...), c.suffix...)
	c.out = append(c.out, "\r\n"...)
}

// ReadStored reads the reply of an LPUSH.
func (c *Redis) ReadStored() error {
	_, err := c.number("LPUSH", ':')
	return err
}

// ReadDeleted reads the reply of an LREM.
func (c *Redis) ReadDeleted() (bool, error) {
	n, err := c.number("LREM", ':')
	return n == 1, err
}

// ReadValue reads the reply of an LMOVE or BLMOVE.
func (c *Redis) ReadValue() (body []byte, flags uint32, found bool, err error) {
	n, err := c.number("LMOVE", '$')
	if err != nil || n < 0 {
		return nil, 0, false, err
	}
	body, err = c.body("LMOVE", int(n), "\r\n")
	if err != nil {
		return nil, 0, false, err
	}
	if len(c.held) < cap(c.held) { // where a buffer may lie from before
		c.held = c.held[:len(c.held)+1]
	} else {
		c.held = append(c.held, nil)
	}
	last := &c.held[len(c.held)-1]
	*last = append((*last)[:0], body...)
	return body, 0, true, nil
}

// number reads a line that is a number behind a sign; the null bulk and the null array are -1.
func (c *Redis) number(command string, sign byte) (int64, error) {
	line, err := c.readLine()
	if err != nil {
		return 0, err
	}
	if string(line) == "$-1" || string(line) == "*-1" {
		return -1, nil
	}
	if len(line) < 2 || line[0] != sign {
		return 0, replyError(command, line)
	}
	n, rest := digits(line[1:])
	if len(rest) != 0 || n > maxBody {
		return 0, replyError(command, line)
	}
	return int64(n), nil
}

// Count is the sum of the lengths of all lists.
func (c *Redis) Count() (int64, error) {
	c.appendArray(2)
	c.appendBulk([]byte("KEYS"))
	c.appendBulk([]byte("*"))
	if err := c.Flush(); err != nil {
		return 0, err
	}
	n, err := c.number("KEYS", '*')
	if err != nil {
		return 0, err
	}
	for range n {
		length, err := c.number("KEYS", '$')
		if err != nil {
			return 0, err
		}
		name, err := c.body("KEYS", int(max(length, 0)), "\r\n")
		if err != nil {
			return 0, err
		}
		c.appendArray(2)
		c.appendBulk([]byte("LLEN"))
		c.appendBulk(name)
	}
	if n <= 0 {
		return 0, nil
	}
	if err := c.Flush(); err != nil {
		return 0, err
	}
	var sum int64
	for range n {
		length, err := c.number("LLEN", ':')
		if err != nil {
			return 0, err
		}
		sum += length
	}
	return sum, nil
}
