package client

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"time"
)

// Beanstalk speaks beanstalkd's protocol: a key is a tube, a message a job, and the jobs that are held are known by
// their ids. It serves one goroutine at a time.
type Beanstalk struct {
	stream
	using, watching []byte   // tubes
	held            []uint64 // ids of jobs that were reserved and not deleted, oldest first
	from            int      // held[from:] are still held
	failed          error    // of an exchange that an Append method needed
}

// DialBeanstalk connects to a TCP address. When ctx ends the connection is closed and every call on it fails.
func DialBeanstalk(ctx context.Context, address string) (*Beanstalk, error) {
	s, err := dialStream(ctx, address)
	if err != nil {
		return nil, err
	}
	return newBeanstalk(s), nil
}

// NewBeanstalk returns a client on a connection that is open already.
func NewBeanstalk(conn net.Conn) *Beanstalk { return newBeanstalk(newStream(conn)) }

func newBeanstalk(s stream) *Beanstalk {
	return &Beanstalk{stream: s, using: []byte("default"), watching: []byte("default")}
}

// Flagless says that jobs have no client flags.
func (*Beanstalk) Flagless() {}

// Prepare makes a tube the one of this connection.
func (c *Beanstalk) Prepare(key []byte) error {
	c.use(key)
	c.watch(key)
	return c.failed
}

// use makes puts go to a tube. It is a round trip of its own, only where the tube is another than before; nothing may
// be outstanding then.
func (c *Beanstalk) use(tube []byte) {
	if c.failed != nil || bytes.Equal(tube, c.using) {
		return
	}
	c.out = append(append(append(c.out, "use "...), tube...), "\r\n"...)
	c.failed = c.exchange("USING ")
	c.using = append(c.using[:0], tube...)
}

func (c *Beanstalk) watch(tube []byte) {
	if c.failed != nil || bytes.Equal(tube, c.watching) {
		return
	}
	c.out = append(append(append(c.out, "watch "...), tube...), "\r\n"...)
	if c.failed = c.exchange("WATCHING "); c.failed != nil {
		return
	}
	c.out = append(append(append(c.out, "ignore "...), c.watching...), "\r\n"...)
	c.failed = c.exchange("WATCHING ")
	c.watching = append(c.watching[:0], tube...)
}

// exchange sends what was collected and reads one line that must begin as told.
func (c *Beanstalk) exchange(begin string) error {
	if err := c.stream.Flush(); err != nil {
		return err
	}
	line, err := c.readLine()
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(line, []byte(begin)) {
		return replyError(begin, line)
	}
	return nil
}

// Set puts a job and waits for INSERTED.
func (c *Beanstalk) Set(key []byte, flags uint32, body []byte) error {
	c.AppendSet(key, flags, body)
	if err := c.Flush(); err != nil {
		return err
	}
	return c.ReadStored()
}

// Get reserves a job.
func (c *Beanstalk) Get(key []byte) (body []byte, flags uint32, found bool, err error) {
	return c.GetWait(key, 0)
}

// GetWait reserves a job and waits for one in whole seconds.
func (c *Beanstalk) GetWait(key []byte, d time.Duration) (body []byte, flags uint32, found bool, err error) {
	c.appendReserve(key, d)
	if err := c.Flush(); err != nil {
		return nil, 0, false, err
	}
	return c.ReadValue()
}

// Delete deletes the job that was reserved first.
func (c *Beanstalk) Delete(key []byte) (bool, error) {
	c.AppendDelete(key)
	if err := c.Flush(); err != nil {
		return false, err
	}
	return c.ReadDeleted()
}

// AppendSet adds a put: priority 0, no delay, an hour to run. The tube must not change in the midst of a pipeline.
func (c *Beanstalk) AppendSet(key []byte, _ uint32, body []byte) {
	c.use(key)
	c.out = append(c.out, "put 0 0 3600 "...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(c.out, "\r\n"...)
	c.out = append(c.out, body...)
	c.out = append(c.out, "\r\n"...)
}

// AppendGet adds a reserve that does not wait.
func (c *Beanstalk) AppendGet(key []byte) { c.appendReserve(key, 0) }

func (c *Beanstalk) appendReserve(key []byte, d time.Duration) {
	c.watch(key)
	c.out = append(c.out, "reserve-with-timeout "...)
	c.out = strconv.AppendInt(c.out, int64((d+time.Second-1)/time.Second), 10)
	c.out = append(c.out, "\r\n"...)
}

// AppendDelete adds a delete of the job that was reserved first, of job 0, which there never is, if none is held.
func (c *Beanstalk) AppendDelete([]byte) {
	id := uint64(0)
	if c.from < len(c.held) {
		id = c.held[c.from]
		c.from++
	}
	if c.from == len(c.held) {
		c.held, c.from = c.held[:0], 0
	}
	c.out = append(c.out, "delete "...)
	c.out = strconv.AppendUint(c.out, id, 10)
	c.out = append(c.out, "\r\n"...)
}

// Flush sends the requests collected so far.
func (c *Beanstalk) Flush() error {
	if c.failed != nil {
		return c.failed
	}
	return c.stream.Flush()
}

// ReadStored reads the reply of a put.
func (c *Beanstalk) ReadStored() error {
	line, err := c.readLine()
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(line, []byte("INSERTED ")) {
		return replyError("put", line)
	}
	return nil
}

// ReadValue reads the reply of a reserve.
func (c *Beanstalk) ReadValue() (body []byte, flags uint32, found bool, err error) {
	line, err := c.readLine()
	if err != nil {
		return nil, 0, false, err
	}
	if string(line) == "TIMED_OUT" {
		return nil, 0, false, nil
	}
	rest, ok := bytes.CutPrefix(line, []byte("RESERVED "))
	if !ok {
		return nil, 0, false, replyError("reserve", line)
	}
	id, rest := digits(rest)
	if len(rest) == 0 || rest[0] != ' ' {
		return nil, 0, false, replyError("reserve", line)
	}
	n, rest := digits(rest[1:])
	if len(rest) != 0 || n > maxBody {
		return nil, 0, false, replyError("reserve", line)
	}
	c.held = append(c.held, id)
	body, err = c.body("reserve", int(n), "\r\n")
	return body, 0, err == nil, err
}

// ReadDeleted reads the reply of a delete.
func (c *Beanstalk) ReadDeleted() (bool, error) {
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

// Count is the sum of the server's jobs by state.
func (c *Beanstalk) Count() (int64, error) {
	c.out = append(c.out, "stats\r\n"...)
	if err := c.Flush(); err != nil {
		return 0, err
	}
	line, err := c.readLine()
	if err != nil {
		return 0, err
	}
	rest, ok := bytes.CutPrefix(line, []byte("OK "))
	n, rest := digits(rest)
	if !ok || len(rest) != 0 || n > maxBody {
		return 0, replyError("stats", line)
	}
	text, err := c.body("stats", int(n), "\r\n")
	if err != nil {
		return 0, err
	}
	var sum int64
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		switch string(name) {
		case "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed", "current-jobs-buried":
			n, err := strconv.ParseInt(string(value), 10, 64)
			if err != nil {
				return 0, replyError("stats", line)
			}
			sum += n
		}
	}
	return sum, nil
}
