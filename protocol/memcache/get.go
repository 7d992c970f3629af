package memcache

import (
	"bytes"
	"errors"
	"time"

	"qserver/storage"
)

// getLine is one get, gets, gat or gats while it runs.
type getLine struct {
	keys    []byte        // the line's part with the keys
	count   int           // of keys
	lease   time.Duration // of gat and gats
	receipt bool          // answer the CAS column
	waited  bool          // the second round, after a wait: close, abort and open have been done
	taken   int           // messages answered
	done    keySet        // keys that had an effect: spelt alike again they yield nothing more
	opened  keySet        // queues whose messages were given back for `open`
	lasting bool          // opened outlives the line: it keeps copies
}

// get answers all keys of one line. They are all checked before anything is reserved; if none has a message, the line waits for
// as long as its largest t= says.
func (c *conn) get(keys []byte, lease time.Duration) {
	wait, count, reserving, f := c.checkKeys(keys)
	if f != faultNone {
		c.fault(f)
		return
	}
	g := getLine{keys: keys, count: count, lease: lease, receipt: c.cmd.verb == verbGets || c.cmd.verb == verbGats}
	c.counts[cmdGet] += uint64(count)
	if !c.takeAll(&g, -1, storage.Delivery{}) {
		return
	}
	if g.taken > 0 || wait == 0 || reserving == 0 {
		c.got(&g)
		return
	}
	if c.inline || c.mayParkGet() {
		c.parkedGet = &parkedWait{get: g, reserving: reserving, duration: wait}
		c.parkedGet.get.keys = bytes.Clone(keys)
		return
	}
	c.getWaiting(&g, wait, reserving)
}

// getWaiting is the second half of a get that found nothing and waits.
func (c *conn) getWaiting(g *getLine, wait time.Duration, reserving int) {
	if c.wait(g, wait, reserving) {
		c.got(g)
	}
}

// got ends the answer of a get.
func (c *conn) got(g *getLine) {
	c.counts[getHits] += uint64(g.taken)
	if g.count > g.taken {
		c.counts[getMisses] += uint64(g.count - g.taken)
	}
	c.out.text(replyEnd)
}

// checkKeys parses every key, and says how long the line waits, how many keys it has and how many of them may take a message.
// c.cmd.key is the last one parsed.
func (c *conn) checkKeys(keys []byte) (wait time.Duration, count, reserving int, f fault) {
	word, rest := token(keys)
	if len(word) == 0 {
		return 0, 0, 0, faultUnknown
	}
	for ; len(word) > 0; word, rest = token(rest) {
		if f := c.cmd.parseKey(word, getOptions, c.srv.NoKeyOptions); f != faultNone {
			return 0, 0, 0, f
		}
		k := &c.cmd.key
		count++
		if !k.reserves() {
			continue
		}
		reserving++
		if k.options&optWait != 0 {
			wait = max(wait, k.wait)
		} else {
			wait = max(wait, c.srv.Wait)
		}
	}
	return wait, count, reserving, faultNone
}

// takeAll answers what each key has. The message that a wait brought, if there is one, belongs to the key at arrived. false: the
// answer is an error line, or the connection ends.
func (c *conn) takeAll(g *getLine, arrived int, d storage.Delivery) bool {
	k := &c.cmd.key
	at := 0 // among the keys that may take a message
	for word, rest := token(g.keys); len(word) > 0; word, rest = token(rest) {
		if g.count > 1 {
			k.parse(word, getOptions, c.srv.NoKeyOptions)
		}
		mine := k.reserves() && at == arrived
		if k.reserves() {
			at++
		}
		if g.count > 1 && g.done.has(k.raw) {
			continue
		}
		n, ok := c.take(g, k, mine, d)
		if !ok {
			return false
		}
		if g.count > 1 && (n > 0 || k.options&(optClose|optAbort) != 0) {
			g.done.add(k.raw)
		}
		g.taken += n
	}
	return true
}

// take answers one key and says with how many messages.
func (c *conn) take(g *getLine, k *queueKey, arrived bool, d storage.Delivery) (n int, ok bool) {
	if arrived {
		if !c.deliver(g, k, d) {
			return 1, false
		}
		n = 1
	} else if done, ok := c.prepare(g, k); done || !ok {
		return n, ok
	}
	if k.options&optPeek != 0 {
		d, found, err := c.session.Peek(k.name)
		if err != nil || !found {
			return 0, c.getFailed(err)
		}
		return 1, c.deliver(g, k, d)
	}
	o := c.reserveOptions(k, g.lease)
	for limit := max(k.batch, 1); n < limit; n++ {
		d, found, err := c.session.Reserve(k.name, o)
		if err != nil || !found {
			return n, c.getFailed(err)
		}
		if !c.deliver(g, k, d) {
			return n, false
		}
	}
	return n, true
}

// prepare does what comes before taking: close, abort, open. done: there is nothing to take.
func (c *conn) prepare(g *getLine, k *queueKey) (done, ok bool) {
	prepared := g.waited || c.prepared
	c.prepared = false
	switch {
	case prepared:
		return !k.reserves() && k.options&optPeek == 0, true
	case k.options&optAbort != 0:
		return true, c.ended(c.session.Release(k.name, storage.Pick{}, 0))
	case k.options&optClose != 0:
		return k.options&optOpen == 0, c.ended(c.session.Ack(k.name, storage.Pick{}))
	case c.openMode(k) && !g.opened.has(k.name):
		name := k.name
		if g.lasting {
			name = bytes.Clone(name)
		}
		g.opened.add(name)
		c.session.GiveBack(k.name)
	}
	return false, true
}

// ended takes the outcome of close or abort: that there was nothing to end is no error.
func (c *conn) ended(err error) bool {
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		c.storeError(err)
		return false
	}
	return true
}

// getFailed answers an error of the store; nil is none, and true.
func (c *conn) getFailed(err error) bool {
	switch {
	case err == nil:
	case errors.Is(err, storage.ErrNotInMemory):
		c.again, c.prepared = true, true
		c.counts[cmdGet]--
	default:
		c.storeError(err)
	}
	return err == nil
}

// deliver answers a message; a long list is sent while it is made, but not by an event loop.
func (c *conn) deliver(g *getLine, k *queueKey, d storage.Delivery) bool {
	receipt := int64(-1)
	if g.receipt {
		receipt = int64(d.Receipt)
	}
	c.out.value(k.raw, d.Flags, d.Body, receipt)
	return c.out.size < flushAt || c.inline || c.settle()
}

// keySet remembers byte strings of one command line. It is for few of them mostly, and stays quick with many.
type keySet struct {
	few  [][]byte
	many map[string]struct{}
}

const fewKeys = 16

func (s *keySet) has(k []byte) bool {
	if s.many != nil {
		_, ok := s.many[string(k)]
		return ok
	}
	for _, f := range s.few {
		if string(f) == string(k) {
			return true
		}
	}
	return false
}

func (s *keySet) add(k []byte) {
	if s.many != nil {
		s.many[string(k)] = struct{}{}
		return
	}
	if s.few = append(s.few, k); len(s.few) > fewKeys {
		s.many = make(map[string]struct{}, 4*fewKeys)
		for _, f := range s.few {
			s.many[string(f)] = struct{}{}
		}
	}
}
