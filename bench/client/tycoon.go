package client

import (
	"context"
	"time"
)

// Tycoon speaks the text protocol as Kyoto Tycoon's plug-in does with opts=q: keys have no options, and how long a get
// waits is the server's own setting.
type Tycoon struct{ Memcache }

// DialTycoon connects to a TCP address, as DialMemcache does.
func DialTycoon(ctx context.Context, address string) (*Tycoon, error) {
	s, err := dialStream(ctx, address)
	if err != nil {
		return nil, err
	}
	return &Tycoon{Memcache{s}}, nil
}

// Flagless says that flags are kept only with opts=f, which is not to be relied on.
func (*Tycoon) Flagless() {}

// GetWait is Get: the server waits as it was told to when it started.
func (c *Tycoon) GetWait(key []byte, _ time.Duration) (body []byte, flags uint32, found bool, err error) {
	return c.Get(key)
}

// Next deletes and gets, in two round trips.
func (c *Tycoon) Next(key []byte, _ time.Duration) (body []byte, flags uint32, found bool, err error) {
	if _, err := c.Delete(key); err != nil {
		return nil, 0, false, err
	}
	return c.Get(key)
}
