package memcache

import (
	"errors"
	"time"

	"qserver/storage"
)

// execute runs the parsed command and answers it.
func (c *conn) execute() {
	switch v := c.cmd.verb; v {
	case verbSet, verbAdd, verbReplace, verbAppend, verbPrepend, verbCas:
		c.store()
	case verbGet, verbGets:
		c.get(c.cmd.args, 0)
	case verbGat, verbGats:
		c.gat()
	case verbDelete:
		c.delete()
	case verbTouch:
		c.touch()
	case verbIncr, verbDecr:
		c.count()
	case verbStats:
		c.stats()
	case verbDumpStats:
		c.dumpStats()
	case verbVersion:
		c.out.text("VERSION " + c.srv.version + "\r\n")
	case verbVerbosity:
		c.verbosity()
	case verbFlushAll, verbFlush:
		c.flushAll()
	case verbQuit:
		c.end(closeQuiet)
	case verbHTTP:
		c.counts[httpClosed]++
		c.srv.note(c.host(), "an HTTP client was disconnected", "peer", c.peer)
		c.end(closeQuiet)
	case verbMetaGet, verbMetaSet, verbMetaDelete, verbMetaArithmetic, verbNoop, verbMetaDebug:
		c.meta(v)
	default:
		c.fault(faultUnknown)
	}
}

// fault refuses a command that was not understood.
func (c *conn) fault(f fault) {
	if f == faultOption {
		c.counts[badOptions]++
		c.srv.note("", "unknown queue option", "key", string(c.cmd.key.raw), "peer", c.peer)
	}
	if f != faultTooLarge {
		c.counts[protocolErrors]++
	}
	if c.cmd.dialect == binaryDialect {
		c.binaryFault(f)
		return
	}
	c.refuse(f.reply())
}

// store runs the commands that have a body.
func (c *conn) store() {
	allowed := optionSet(0)
	if c.cmd.verb == verbSet || c.cmd.verb == verbAdd {
		allowed = setOptions
	}
	c.counts[cmdSet]++
	switch f := c.cmd.parseStore(allowed, c.srv.NoKeyOptions, c.srv.maxItemSize()); f {
	case faultNone:
	case faultLength:
		c.fault(f)
		c.end(closeLinger)
		return
	default:
		c.fault(f)
		c.swallow(c.cmd.length)
		return
	}
	if c.cmd.verb == verbAppend || c.cmd.verb == verbPrepend {
		c.refuse(replyNotStored)
		c.swallow(c.cmd.length)
		return
	}
	body, ok := c.body(int(c.cmd.length))
	if !ok {
		c.releaseBody()
		return
	}
	if c.cmd.verb == verbCas {
		ok = c.replaceBody(body)
	} else {
		_, ok = c.enqueue(body)
	}
	if ok {
		c.answer(replyStored)
	}
	c.staged += len(body)
	c.releaseBody()
}

// enqueue stores the command's message and returns its id. false: the refusal is answered.
func (c *conn) enqueue(body []byte) (id uint64, ok bool) {
	k := &c.cmd.key
	p := storage.PutRequest{
		Body:     body,
		Flags:    c.cmd.flags,
		Expire:   expiry(c.cmd.exptime),
		Delay:    k.delay,
		Priority: storage.DefaultPriority,
		Dedup:    k.dedup,
	}
	switch c.cmd.verb {
	case verbAdd:
		p.Mode = storage.PutAdd
	case verbReplace:
		p.Mode = storage.PutReplace
	}
	if k.options&optPriority != 0 {
		p.Priority = k.priority
	}
	id, err := c.session.Enqueue(k.name, p)
	if err != nil {
		c.storeError(err)
	}
	return id, err == nil
}

// replaceBody replaces the body of the message held under the command's receipt. false: the refusal is answered.
func (c *conn) replaceBody(body []byte) bool {
	if c.cmd.cas == 0 || c.cmd.cas > maxReceipt {
		c.counts[casMisses]++
		c.outcome(replyNotFound)
		return false
	}
	err := c.session.ReplaceBody(c.cmd.key.name, c.cmd.cas, body, c.cmd.flags, expiry(c.cmd.exptime))
	switch {
	case err == nil:
		c.counts[casHits]++
		return true
	case errors.Is(err, storage.ErrReceiptOver):
		c.counts[casBadval]++
		c.outcome(replyExists)
	case errors.Is(err, storage.ErrNotFound):
		c.counts[casMisses]++
		c.outcome(replyNotFound)
	default:
		c.storeError(err)
	}
	return false
}

func (c *conn) delete() {
	if f := c.cmd.parseDelete(c.srv.NoKeyOptions); f != faultNone {
		c.fault(f)
		return
	}
	if c.ack() {
		c.answer(replyDeleted)
	}
}

// ack ends the reservation that the command's key names: acks it, or gives it back with release= or backoff=. false: the refusal
// is answered.
func (c *conn) ack() bool {
	k := &c.cmd.key
	pick := storage.Pick{Receipt: k.receipt, Tag: k.tag}
	var err error
	switch {
	case k.options&optRelease != 0:
		err = c.session.Release(k.name, pick, k.delay)
	case k.options&optBackoff != 0:
		err = c.session.Backoff(k.name, pick, k.delay)
	default:
		err = c.session.Ack(k.name, pick)
	}
	if err != nil {
		c.counts[deleteMisses]++
		c.storeError(err)
		return false
	}
	c.counts[deleteHits]++
	return true
}

func (c *conn) touch() {
	f := c.cmd.parseTouch(c.srv.NoKeyOptions)
	lease, ok := leaseTime(c.cmd.exptime)
	if f == faultNone && !ok {
		f = faultExptime
	}
	if f != faultNone {
		c.fault(f)
		return
	}
	if c.setLease(lease) {
		c.answer(replyTouched)
	}
}

// setLease gives the reservation that the command's key names a lease. false: the refusal is answered.
func (c *conn) setLease(lease time.Duration) bool {
	c.counts[cmdTouch]++
	k := &c.cmd.key
	if err := c.session.Touch(k.name, storage.Pick{Receipt: k.receipt, Tag: k.tag}, lease); err != nil {
		c.counts[touchMisses]++
		c.storeError(err)
		return false
	}
	c.counts[touchHits]++
	return true
}

// count answers incr and decr: a queue is no number.
func (c *conn) count() {
	if f := c.cmd.parseDelta(c.srv.NoKeyOptions); f != faultNone {
		c.fault(f)
		return
	}
	if c.cmd.verb == verbIncr {
		c.counts[incrMisses]++
	} else {
		c.counts[decrMisses]++
	}
	c.refuse(replyNotFound)
}

// gat takes the lease off the line and gets.
func (c *conn) gat() {
	word, keys := token(c.cmd.args)
	if first, _ := token(keys); len(first) == 0 {
		c.fault(faultUnknown)
		return
	}
	exptime, ok := parseExptime(word)
	lease, future := leaseTime(exptime)
	if !ok || !future {
		c.fault(faultExptime)
		return
	}
	c.counts[cmdTouch]++
	c.get(keys, lease)
}

func (c *conn) verbosity() {
	c.cmd.noreply = string(lastToken(c.cmd.args)) == "noreply"
	level, _ := token(c.cmd.args)
	if _, ok := parseUint(level); !ok {
		c.fault(faultUnknown)
		return
	}
	c.answer(replyOK)
}

// flushAll purges every queue, or with Kestrel's `flush q` one; only if it is allowed, and never later than now.
func (c *conn) flushAll() {
	c.cmd.noreply = string(lastToken(c.cmd.args)) == "noreply"
	word, _ := token(c.cmd.args)
	one := c.cmd.verb == verbFlush
	if one && len(word) == 0 {
		c.fault(faultUnknown)
		return
	}
	if !c.srv.AllowFlushAll {
		c.srv.note(c.host(), "flush_all refused", "peer", c.peer)
		c.refuse(replyNoFlush)
		return
	}
	if one {
		c.flushQueue(word)
		return
	}
	if len(word) > 0 && string(word) != "noreply" {
		delay, ok := parseExptime(word)
		if !ok || delay != 0 {
			c.fault(faultExptime)
			return
		}
	}
	if c.purgeAll() {
		c.answer(replyOK)
	}
}

// purgeAll purges every queue. false: the refusal is answered.
func (c *conn) purgeAll() bool {
	c.counts[cmdFlush]++
	if !c.commit() {
		return false
	}
	_, err := c.srv.Store.PurgeAll()
	if err != nil {
		c.storeError(err)
	}
	return err == nil
}

func (c *conn) flushQueue(key []byte) {
	if f := c.cmd.parseKey(key, 0, c.srv.NoKeyOptions); f != faultNone {
		c.fault(f)
		return
	}
	c.counts[cmdFlush]++
	if !c.commit() {
		return
	}
	if _, err := c.srv.Store.Purge(c.cmd.key.name); err != nil {
		c.storeError(err)
		return
	}
	c.answer(replyEnd)
}

// openMode says whether the key's get gives back what the connection holds of its queue first. With -get=open a plain get does;
// one with a tag doesn't, since a tag may be asked for again.
func (c *conn) openMode(k *queueKey) bool {
	if k.options&optClose != 0 {
		return false
	}
	if k.options&optOpen != 0 {
		return true
	}
	return c.srv.GetMode == GetOpen && k.reserves() && k.options&optTag == 0
}

// reserveOptions are what the store is asked with, for a get of k whose line gave a lease (0: none).
func (c *conn) reserveOptions(k *queueKey, lease time.Duration) storage.ReserveOptions {
	if k.options&optLease != 0 {
		lease = k.lease
	}
	o := storage.ReserveOptions{Lease: lease, Tag: k.tag, MemoryOnly: c.inline}
	if c.srv.GetMode == GetRemove && lease == 0 && k.options&(optOpen|optClose|optLease) == 0 {
		o.Remove = true
	}
	return o
}
