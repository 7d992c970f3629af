package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// JetStream publishes to a stream that is used as a queue (a work queue in a file, one durable pull consumer) and
// fetches from there, by NATS's Go client. It serves one goroutine at a time.
//
// A fetch is a request for one message that comes as its answer, which is the least that the client can do. An
// acknowledgement is answered too, since that of every other server here is.
type JetStream struct {
	nc     *nats.Conn
	js     nats.JetStreamContext
	stop   func() bool
	wait   time.Duration // for any answer
	queues map[string]*jetQueue
	sent   []pending // requests that were collected, oldest first
	inbox  *nats.Subscription
	last   *jetQueue // that the collected fetches are of
}

// jetQueue is what is known of a stream.
type jetQueue struct {
	next string      // subject that fetches from it
	held []*nats.Msg // got and not deleted, oldest first
}

// pending is a request that was collected.
type pending struct {
	op   byte // s, g, d
	key  string
	body []byte
	msg  *nats.Msg
}

// fetchOne asks for a message if there is one.
const fetchOne = `{"batch":1,"no_wait":true}`

var errJetStream = errors.New("jetstream")

// DialJetStream connects to a TCP address. When ctx ends the connection is closed and every call on it fails.
func DialJetStream(ctx context.Context, address string) (*JetStream, error) {
	nc, err := nats.Connect("nats://"+address, nats.NoReconnect())
	if err != nil {
		return nil, err
	}
	js, err := nc.JetStream(nats.MaxWait(time.Minute))
	if err != nil {
		nc.Close()
		return nil, err
	}
	c := &JetStream{nc: nc, js: js, wait: time.Minute, queues: make(map[string]*jetQueue)}
	c.stop = context.AfterFunc(ctx, nc.Close)
	return c, nil
}

// Flagless says that the messages here have no client flags.
func (*JetStream) Flagless() {}

// Close ends the connection.
func (c *JetStream) Close() error {
	c.stop()
	c.nc.Close()
	return nil
}

// Prepare makes the stream and the consumer of a key, unless they are there.
func (c *JetStream) Prepare(key []byte) error {
	_, err := c.queue(key)
	return err
}

func (c *JetStream) queue(key []byte) (*jetQueue, error) {
	if q := c.queues[string(key)]; q != nil {
		return q, nil
	}
	name := string(key)
	_, err := c.js.AddStream(&nats.StreamConfig{Name: name, Subjects: []string{name}, Retention: nats.WorkQueuePolicy, Storage: nats.FileStorage})
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	_, err = c.js.AddConsumer(name, &nats.ConsumerConfig{Durable: "bench", AckPolicy: nats.AckExplicitPolicy, AckWait: time.Hour, MaxAckPending: -1, MaxWaiting: 1 << 16})
	if err != nil {
		return nil, fmt.Errorf("consumer of %s: %w", name, err)
	}
	q := &jetQueue{next: "$JS.API.CONSUMER.MSG.NEXT." + name + ".bench"}
	c.queues[name] = q
	return q, nil
}

// Set publishes a message and waits for its acknowledgement. The stream must be there (Prepare, by any connection).
func (c *JetStream) Set(key []byte, _ uint32, body []byte) error {
	reply, err := c.nc.Request(string(key), body, c.wait)
	return stored(reply, err)
}

func stored(reply *nats.Msg, err error) error {
	if err != nil {
		return err
	}
	if !bytes.Contains(reply.Data, []byte(`"seq":`)) || bytes.Contains(reply.Data, []byte(`"error"`)) {
		return replyError("publish", reply.Data)
	}
	return nil
}

// Get fetches a message without waiting for one.
func (c *JetStream) Get(key []byte) (body []byte, flags uint32, found bool, err error) {
	return c.fetch(key, fetchOne, 0)
}

// GetWait fetches a message.
func (c *JetStream) GetWait(key []byte, d time.Duration) (body []byte, flags uint32, found bool, err error) {
	if d <= 0 {
		return c.Get(key)
	}
	return c.fetch(key, fmt.Sprintf(`{"batch":1,"expires":%d}`, d.Nanoseconds()), d)
}

func (c *JetStream) fetch(key []byte, request string, d time.Duration) (body []byte, flags uint32, found bool, err error) {
	q, err := c.queue(key)
	if err != nil {
		return nil, 0, false, err
	}
	m, err := c.nc.Request(q.next, []byte(request), d+c.wait)
	if err != nil {
		return nil, 0, false, err
	}
	return q.take(m)
}

// take keeps a message that was fetched until it is deleted. A status in its place says that there was none.
func (q *jetQueue) take(m *nats.Msg) (body []byte, flags uint32, found bool, err error) {
	switch status := m.Header.Get("Status"); status {
	case "":
		q.held = append(q.held, m)
		return m.Data, 0, true, nil
	case "404", "408": // none there, none in time
		return nil, 0, false, nil
	default:
		return nil, 0, false, replyError("fetch", []byte(status+" "+m.Header.Get("Description")))
	}
}

// Delete acknowledges the message that was got first, and waits for the answer.
func (c *JetStream) Delete(key []byte) (bool, error) {
	q, err := c.queue(key)
	if err != nil || len(q.held) == 0 {
		return false, err
	}
	m := q.pop()
	_, err = c.nc.Request(m.Reply, []byte("+ACK"), c.wait)
	return err == nil, err
}

func (q *jetQueue) pop() *nats.Msg {
	m := q.held[0]
	q.held = q.held[1:]
	return m
}

// AppendSet collects a publish.
func (c *JetStream) AppendSet(key []byte, _ uint32, body []byte) {
	c.sent = append(c.sent, pending{op: 's', key: string(key), body: bytes.Clone(body)})
}

// AppendGet collects a fetch of one more message.
func (c *JetStream) AppendGet(key []byte) {
	c.sent = append(c.sent, pending{op: 'g', key: string(key)})
}

// AppendDelete collects an acknowledgement.
func (c *JetStream) AppendDelete(key []byte) {
	p := pending{op: 'd', key: string(key)}
	if q := c.queues[p.key]; q != nil && len(q.held) > 0 {
		p.msg = q.pop()
	}
	c.sent = append(c.sent, p)
}

// Pending is an estimate: the bytes of the bodies, and some for each request.
func (c *JetStream) Pending() (n int) {
	for _, p := range c.sent {
		n += 64 + len(p.body)
	}
	return n
}

// Flush sends what was collected. The answers come to an inbox in the order of the requests, which are of one kind
// and of one key.
func (c *JetStream) Flush() error {
	if c.inbox == nil {
		var err error
		if c.inbox, err = c.nc.SubscribeSync(c.nc.NewInbox()); err != nil {
			return err
		}
		if err := c.inbox.SetPendingLimits(-1, -1); err != nil {
			return err
		}
	}
	defer func() { c.sent = c.sent[:0] }()
	for _, p := range c.sent {
		subject, body := p.key, p.body
		switch p.op {
		case 'g':
			q, err := c.queue([]byte(p.key))
			if err != nil {
				return err
			}
			c.last = q
			subject, body = q.next, []byte(fetchOne)
		case 'd':
			if p.msg == nil {
				return fmt.Errorf("%w: an acknowledgement of a message that is not held", errJetStream)
			}
			subject, body = p.msg.Reply, []byte("+ACK")
		}
		if err := c.nc.PublishRequest(subject, c.inbox.Subject, body); err != nil {
			return err
		}
	}
	return c.nc.Flush()
}

// ReadStored waits for the acknowledgement of a publish.
func (c *JetStream) ReadStored() error { return stored(c.inbox.NextMsg(c.wait)) }

// ReadValue waits for a message that was fetched, or to be told that there is none.
func (c *JetStream) ReadValue() (body []byte, flags uint32, found bool, err error) {
	m, err := c.inbox.NextMsg(c.wait)
	if err != nil {
		return nil, 0, false, err
	}
	return c.last.take(m)
}

// ReadDeleted waits for the answer of an acknowledgement.
func (c *JetStream) ReadDeleted() (bool, error) {
	_, err := c.inbox.NextMsg(c.wait)
	return err == nil, err
}

// Count is the sum of the streams' messages.
func (c *JetStream) Count() (int64, error) {
	var sum int64
	for info := range c.js.Streams() {
		sum += int64(info.State.Msgs)
	}
	return sum, nil
}
