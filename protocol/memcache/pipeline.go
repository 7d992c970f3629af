package memcache

import (
	"bytes"
	"time"

	"qserver/storage"
)

// extended is what a connection needs beyond classic text, made with its first meta command or binary frame.
type extended struct {
	meta    metaCommand
	frame   frame
	gets    quietGets
	scratch []byte // a key put together from what was sent
}

// extra returns the connection's extended part.
func (c *conn) extra() *extended {
	if c.ext == nil {
		c.ext = &extended{}
		c.ext.gets.line.lasting = true
	}
	return c.ext
}

// maxQuiet is how many bytes of quiet gets are remembered: a longer pipeline doesn't wait.
const maxQuiet = maxGetLine

// quietGets is the pipeline of quiet gets (mg with q, GETQ and the like) since the last other command. They take what is there;
// only if all of them missed does the fence at their end, mn or NOOP, wait for them together.
type quietGets struct {
	line     getLine // what they have opened
	done     keySet  // those that must not take another message
	requests []byte  // those that missed, one after another
	ends     []int   // where each of them ends in requests
	wait     time.Duration
	hit      bool // one had an answer, or there are too many: no wait
}

// quietForm is what the two protocols do differently.
type quietForm interface {
	load(c *conn, request []byte) (lease time.Duration) // parses a remembered request again: its key to c.cmd.key
	once(c *conn) bool                                  // whether the loaded one, spelt alike again, yields nothing more
	deliver(c *conn, d storage.Delivery)                // answers the loaded one
	miss(c *conn)                                       // answers the fence
}

func (q *quietGets) reset() {
	if cap(q.requests) > mediumBuffer {
		q.requests = nil
	}
	*q = quietGets{line: getLine{lasting: true}, requests: q.requests[:0], ends: q.ends[:0]}
}

// missed remembers a request that found nothing, and for how long it wants to wait.
func (q *quietGets) missed(wait time.Duration, request ...[]byte) {
	if q.hit {
		return
	}
	for _, part := range request {
		q.requests = append(q.requests, part...)
	}
	q.ends = append(q.ends, len(q.requests))
	q.wait = max(q.wait, wait)
	if len(q.requests) > maxQuiet {
		q.found()
	}
}

// found notes that a request had an answer.
func (q *quietGets) found() {
	q.hit = true
	q.requests, q.ends = q.requests[:0], q.ends[:0]
}

// opened is where a get notes which queues it has opened: a pipeline of quiet ones does it once.
func (q *quietGets) opened(quiet bool) *getLine {
	if quiet {
		return &q.line
	}
	return &getLine{}
}

// waitFor is how long a get of k waits.
func (c *conn) waitFor(k *queueKey) time.Duration {
	switch {
	case !k.reserves():
		return 0
	case k.options&optWait != 0:
		return k.wait
	}
	return c.srv.Wait
}

// fence waits for the quiet gets since the last one, if all of them missed and one of them wants to, and answers what there is
// then; n is with how many messages. false: the connection ends, or the error is answered.
func (c *conn) fence(form quietForm) (n int, ok bool) {
	q := &c.ext.gets
	if q.hit || q.wait == 0 || len(q.ends) == 0 {
		return 0, true
	}
	queues := make([][]byte, len(q.ends))
	options := make([]storage.ReserveOptions, len(q.ends))
	for i := range q.ends {
		lease := form.load(c, q.request(i))
		queues[i] = bytes.Clone(c.cmd.key.name)
		options[i] = c.reserveOptions(&c.cmd.key, lease)
		options[i].Tag = bytes.Clone(options[i].Tag)
	}
	arrived, first, ok := c.await(queues, options, q.wait, func() { form.miss(c) })
	if !ok || arrived < 0 {
		return 0, ok
	}
	defer func() {
		c.counts[getHits] += uint64(n)
		c.counts[getMisses] -= uint64(n) // they were counted as such
	}()
	for i := range q.ends {
		request := q.request(i)
		form.load(c, request)
		once := form.once(c)
		d := first
		if i != arrived {
			if once && q.done.has(request) {
				continue
			}
			next, found, err := c.session.Reserve(queues[i], options[i])
			if err != nil {
				return n, c.getFailed(err)
			} else if !found {
				continue
			}
			d = next
		}
		if once {
			q.done.add(request)
		}
		n++
		form.deliver(c, d)
		if c.out.size >= flushAt && !c.settle() {
			return n, false
		}
	}
	return n, true
}

// request is the i-th remembered one.
func (q *quietGets) request(i int) []byte {
	from := 0
	if i > 0 {
		from = q.ends[i-1]
	}
	return q.requests[from:q.ends[i]]
}
