package client

import (
	"context"
	"net"
	"time"
)

// Kestrel speaks the text protocol with Kestrel's reliable reads, for Kestrel, Darner and Siberite: a plain get removes
// there, and delete drops the queue. A message is got by /open and deleted by /close.
type Kestrel struct{ Memcache }

// DialKestrel connects to a TCP address, as DialMemcache does.
func DialKestrel(ctx context.Context, address string) (*Kestrel, error) {
	s, err := dialStream(ctx, address)
	if err != nil {
		return nil, err
	}
	return &Kestrel{Memcache{s}}, nil
}

// NewKestrel returns a client on a connection that is open already.
func NewKestrel(conn net.Conn) *Kestrel { return &Kestrel{Memcache{newStream(conn)}} }

// Flagless says that Darner and Siberite answer 0 for all flags.
func (*Kestrel) Flagless() {}

// Get opens a message.
func (c *Kestrel) Get(key []byte) (body []byte, flags uint32, found bool, err error) {
	return c.GetWait(key, 0)
}

// GetWait opens a message, and lets the server wait for one.
func (c *Kestrel) GetWait(key []byte, d time.Duration) (body []byte, flags uint32, found bool, err error) {
	c.appendWait(key, d, "/open")
	if err := c.Flush(); err != nil {
		return nil, 0, false, err
	}
	return c.ReadValue()
}

// Delete closes the message that is open.
func (c *Kestrel) Delete(key []byte) (bool, error) {
	c.AppendDelete(key)
	if err := c.Flush(); err != nil {
		return false, err
	}
	return c.ReadDeleted()
}

// AppendGet adds a get that opens a message. These servers let one be open at a time.
func (c *Kestrel) AppendGet(key []byte) { c.appendWait(key, 0, "/open") }

// AppendDelete adds a get that closes a message.
func (c *Kestrel) AppendDelete(key []byte) { c.appendWait(key, 0, "/close") }

// ReadDeleted reads the reply of a close, which is END also when nothing was open.
func (c *Kestrel) ReadDeleted() (bool, error) {
	line, err := c.readLine()
	if err != nil {
		return false, err
	}
	if string(line) != "END" {
		return false, replyError("close", line)
	}
	return true, nil
}

// Depth is how many messages a connection may hold at once.
func (c *Kestrel) Depth() int { return 1 }
