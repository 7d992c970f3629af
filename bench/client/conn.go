package client

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Conn is one connection to a server that keeps messages under keys, in whatever protocol. It serves one goroutine.
//
// A key names a queue (a tube, a list, a stream) or, for a cache, a message. Set, Get, GetWait and Delete are a round
// trip each. The Append methods collect requests without sending them, Flush sends what was collected, and the Read
// methods take one reply each in the order of the requests: so a caller pipelines.
type Conn interface {
	// Set stores a message at the tail and waits for the answer.
	Set(key []byte, flags uint32, body []byte) error
	// Get takes the first message without waiting for one. The body is valid until the next call; found is false
	// where the server had none. A queue keeps the message until Delete, or gives it to others when the connection ends.
	Get(key []byte) (body []byte, flags uint32, found bool, err error)
	// GetWait is Get that waits up to d for a message; where the protocol counts in whole seconds, d is rounded up.
	GetWait(key []byte, d time.Duration) (body []byte, flags uint32, found bool, err error)
	// Delete removes the message that this connection got first from key and still has. It returns false if there is none.
	Delete(key []byte) (bool, error)

	AppendSet(key []byte, flags uint32, body []byte)
	AppendGet(key []byte)
	// AppendDelete may follow only when the reply of the get before was read: some protocols name the message.
	AppendDelete(key []byte)
	Pending() int // bytes that Flush would send
	Flush() error
	ReadStored() error
	ReadValue() (body []byte, flags uint32, found bool, err error)
	ReadDeleted() (bool, error)

	// Count asks how many messages the server has, of all keys.
	Count() (int64, error)
	Close() error
}

// Preparer is a Conn for which a key must be made known before its first use, where that use is to be measured.
type Preparer interface{ Prepare(key []byte) error }

// Flagless is a Conn whose protocol has no client flags: they are 0 for every message.
type Flagless interface{ Flagless() }

// Limited is a Conn that can hold no more than Depth messages at a time.
type Limited interface{ Depth() int }

// Streamer is a Conn that stores without being answered.
type Streamer interface {
	AppendSetNoreply(key []byte, flags uint32, body []byte)
	// Version returns when the server has read all that was sent before.
	Version() (string, error)
}

// Chainer is a Conn that deletes the message it holds and takes the next in one round trip.
type Chainer interface {
	// Next deletes what this connection got first from key, if anything, and gets the next, waiting up to d for it.
	Next(key []byte, d time.Duration) (body []byte, flags uint32, found bool, err error)
}

// protocols are the names that Dial takes.
var protocols = map[string]func(ctx context.Context, address string) (Conn, error){
	"queue": func(ctx context.Context, address string) (Conn, error) { return dialed(DialMemcache(ctx, address)) },
	"memcached": func(ctx context.Context, address string) (Conn, error) {
		return dialed(DialMemcache(ctx, address))
	},
	"tycoon":     func(ctx context.Context, address string) (Conn, error) { return dialed(DialTycoon(ctx, address)) },
	"kestrel":    func(ctx context.Context, address string) (Conn, error) { return dialed(DialKestrel(ctx, address)) },
	"beanstalkd": func(ctx context.Context, address string) (Conn, error) { return dialed(DialBeanstalk(ctx, address)) },
	"redis":      func(ctx context.Context, address string) (Conn, error) { return dialed(DialRedis(ctx, address)) },
	"jetstream":  func(ctx context.Context, address string) (Conn, error) { return dialed(DialJetStream(ctx, address)) },
	"append":     func(ctx context.Context, address string) (Conn, error) { return dialed(OpenAppend(ctx, address)) },
}

// dialed keeps a nil pointer from becoming an interface that is not nil.
func dialed[C Conn](c C, err error) (Conn, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Known reports whether Dial knows a protocol.
func Known(protocol string) bool { return protocols[protocol] != nil }

// Dial connects to an address by a protocol: queue (memcached's, where set enqueues, get takes and delete acks),
// memcached, tycoon (Kyoto Tycoon's plug-in), kestrel (Kestrel's, Darner's and Siberite's reliable reads), beanstalkd, redis, jetstream, or append,
// whose address is a folder. When ctx ends the connection is closed and every call on it fails.
func Dial(ctx context.Context, protocol, address string) (Conn, error) {
	dial := protocols[protocol]
	if dial == nil {
		return nil, fmt.Errorf("no protocol %q", protocol)
	}
	return dial(ctx, address)
}

// A ReplyError is a reply that the client did not expect; the connection is of no use afterwards.
type ReplyError struct {
	Command string // the verb that it answered
	Reply   string // the line, without its end, at most 120 bytes
}

func (e *ReplyError) Error() string {
	return fmt.Sprintf("%s: unexpected reply %q", e.Command, e.Reply)
}

func replyError(command string, line []byte) error {
	return &ReplyError{Command: command, Reply: strings.TrimSpace(string(line[:min(len(line), 120)]))}
}
