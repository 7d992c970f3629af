package memcache

import (
	"bytes"
	"encoding/binary"
	"time"

	"qserver/storage"
)

// binaryStep runs the next request. false: its header has not arrived.
func (c *conn) binaryStep() bool {
	if len(c.in.buffered()) < binaryHeader {
		return false
	}
	x := c.extra()
	faults := c.counts[protocolErrors]
	c.cmd = command{dialect: binaryDialect}
	if !x.frame.parse(c.in.buffered()) {
		c.counts[protocolErrors]++
		c.end(closeLinger) // the stream's position is lost
		return true
	}
	c.in.skip(binaryHeader)
	c.runFrame(&x.frame)
	c.ran(faults)
	return true
}

// runFrame runs the command whose header has been read.
func (c *conn) runFrame(f *frame) {
	c.cmd.verb = f.op.verb
	if !(f.op.quiet && (f.op.verb == verbGet || f.op.verb == verbGat)) && f.op.verb != verbNoop {
		c.ext.gets.reset()
	}
	switch {
	case f.op.verb == verbUnknown:
		c.fault(faultUnknown)
	case !f.fits():
		c.fault(faultFormat)
	default:
		if c.arrived(f.extras + f.key) {
			in := c.in.buffered()
			f.takeExtras(in[:f.extras])
			key := in[f.extras : f.extras+f.key]
			c.in.skip(f.extras + f.key)
			c.executeFrame(f, key)
		}
		return
	}
	c.discard(f.body)
}

// arrived waits until n bytes are buffered.
func (c *conn) arrived(n int) bool {
	c.partial = true
	defer func() { c.partial = false }()
	for len(c.in.buffered()) < n {
		if !c.more() {
			return false
		}
	}
	return true
}

func (c *conn) executeFrame(f *frame, key []byte) {
	switch f.op.verb {
	case verbSet, verbAdd, verbReplace, verbAppend, verbPrepend:
		c.binaryStore(f, key)
	case verbGet, verbGat:
		c.binaryGet(f, key)
	case verbDelete:
		c.binaryDelete(f, key)
	case verbTouch:
		c.binaryTouch(f, key)
	case verbIncr, verbDecr:
		c.binaryCount(f, key)
	case verbNoop:
		noop := *f
		c.fence(binaryForm{})
		c.ext.gets.reset()
		if c.ending == goOn {
			*f = noop
			c.binaryDone()
		}
	case verbStats:
		c.cmd.args = key
		c.stats()
	case verbVersion:
		c.respond(statusOK, nil, nil, []byte(c.srv.version), 0)
	case verbFlushAll:
		c.binaryFlush(f)
	case verbQuit:
		c.binaryDone()
		c.end(closeQuiet)
	}
}

// binaryKey takes the key apart; false: the refusal is answered.
func (c *conn) binaryKey(key []byte, allowed optionSet) bool {
	f := c.cmd.parseKey(key, allowed, c.srv.NoKeyOptions)
	if f != faultNone {
		c.fault(f)
	}
	return f == faultNone
}

// storedMark makes the CAS of a stored message from its id. Clients hold 0 for none: a set with it would enqueue once more where
// they meant to replace. This is never a receipt, so what comes back with it is refused.
const storedMark = maxReceipt + 1

func (c *conn) binaryStore(f *frame, key []byte) {
	c.counts[cmdSet]++
	allowed := optionSet(0)
	if f.cas == 0 && (f.op.verb == verbSet || f.op.verb == verbAdd) {
		allowed = setOptions
	}
	length := f.value()
	fault := c.cmd.parseKey(key, allowed, c.srv.NoKeyOptions)
	switch {
	case fault != faultNone:
	case f.cas != 0 && f.op.verb == verbAdd:
		fault = faultFormat
	case length > c.srv.maxItemSize():
		fault = faultTooLarge
	}
	switch {
	case fault != faultNone:
		c.fault(fault)
		c.discard(length)
		return
	case f.op.verb == verbAppend || f.op.verb == verbPrepend:
		c.outcome(replyNotStored)
		c.discard(length)
		return
	}
	body, ok := c.collect(int(length), false)
	if ok {
		c.cmd.flags, c.cmd.exptime, c.cmd.cas = f.flags, f.exptime, f.cas
		var id uint64
		if f.cas != 0 {
			ok = c.replaceBody(body)
		} else {
			id, ok = c.enqueue(body)
		}
		c.staged += len(body)
		if ok && !f.op.quiet {
			c.respond(statusOK, nil, nil, nil, id|storedMark)
		}
	}
	c.releaseBody()
}

// binaryGet answers GET and GAT in all their forms.
func (c *conn) binaryGet(f *frame, key []byte) {
	if !c.binaryKey(key, oneOptions) {
		return
	}
	lease, ok := leaseTime(f.exptime)
	if !ok {
		c.fault(faultExptime)
		return
	}
	c.counts[cmdGet]++
	k, q := &c.cmd.key, &c.ext.gets
	if f.op.quiet && q.done.has(c.request()) {
		c.counts[getMisses]++
		return
	}
	if done, ok := c.prepare(q.opened(f.op.quiet), k); !ok {
		return
	} else if done {
		c.binaryMiss(f)
		return
	}
	var d storage.Delivery
	var found bool
	var err error
	if k.options&optPeek != 0 {
		d, found, err = c.session.Peek(k.name)
	} else {
		d, found, err = c.session.Reserve(k.name, c.reserveOptions(k, lease))
	}
	switch {
	case err != nil:
		c.getFailed(err)
	case found:
		c.counts[getHits]++
		if q.found(); f.op.quiet && d.Receipt != 0 {
			q.done.add(bytes.Clone(c.request()))
		}
		c.binaryValue(f, &d)
	case f.op.quiet && k.reserves(), c.waitFor(k) > 0:
		c.binaryWait(f)
	default:
		c.binaryMiss(f)
	}
}

// binaryWait keeps a quiet get that missed for the pipeline's end; any other waits now.
func (c *conn) binaryWait(f *frame) {
	q := &c.ext.gets
	c.counts[getMisses]++
	q.missed(c.waitFor(&c.cmd.key), c.request())
	if f.op.quiet {
		return
	}
	if n, ok := c.fence(binaryForm{}); ok && n == 0 {
		binaryForm{}.load(c, q.request(0))
		c.binaryMissed(f)
	}
	q.reset()
}

// binaryValue answers a message.
func (c *conn) binaryValue(f *frame, d *storage.Delivery) {
	var key []byte
	if f.op.keyed {
		key = c.cmd.key.raw
	}
	var flags [4]byte
	binary.BigEndian.PutUint32(flags[:], d.Flags)
	c.respond(statusOK, flags[:], key, d.Body, d.Receipt)
}

// binaryMiss counts and answers a get that found nothing.
func (c *conn) binaryMiss(f *frame) {
	c.counts[getMisses]++
	c.binaryMissed(f)
}

func (c *conn) binaryMissed(f *frame) {
	switch {
	case f.op.quiet:
	case f.op.keyed:
		c.respond(statusNotFound, nil, c.cmd.key.raw, nil, 0)
	default:
		c.binaryRefuse(statusNotFound, "Not found")
	}
}

// request is the current get as the pipeline remembers it: opcode, opaque, exptime, key. It is valid until the next call.
func (c *conn) request() []byte {
	f := &c.ext.frame
	b := binary.BigEndian.AppendUint32(append(c.ext.scratch[:0], f.code), f.opaque)
	b = binary.BigEndian.AppendUint32(b, uint32(int32(f.exptime)))
	c.ext.scratch = append(b, c.cmd.key.raw...)
	return c.ext.scratch
}

// binaryForm is the quiet gets of the binary protocol.
type binaryForm struct{}

func (binaryForm) load(c *conn, request []byte) time.Duration {
	f := &c.ext.frame
	*f = frame{op: opcodes[request[0]], code: request[0]}
	f.opaque = binary.BigEndian.Uint32(request[1:])
	f.exptime = int64(int32(binary.BigEndian.Uint32(request[5:])))
	c.cmd.key.parse(request[9:], oneOptions, c.srv.NoKeyOptions)
	lease, _ := leaseTime(f.exptime)
	return lease
}

// once: a client that sends the same key and opaque twice can't tell the answers apart.
func (binaryForm) once(*conn) bool { return true }

func (binaryForm) deliver(c *conn, d storage.Delivery) { c.binaryValue(&c.ext.frame, &d) }

func (binaryForm) miss(*conn) {}

// binaryDelete acks: by receipt, which the CAS field carries, else by position.
func (c *conn) binaryDelete(f *frame, key []byte) {
	if !c.binaryKey(key, deleteOptions) {
		return
	}
	if k := &c.cmd.key; f.cas != 0 {
		if k.options&optReceipt != 0 {
			c.fault(faultFormat)
			return
		}
		if f.cas > maxReceipt {
			c.counts[deleteMisses]++
			c.outcome(replyNotFound)
			return
		}
		k.receipt = f.cas
	}
	if c.ack() {
		c.binaryDone()
	}
}

func (c *conn) binaryTouch(f *frame, key []byte) {
	if !c.binaryKey(key, touchOptions) {
		return
	}
	lease, ok := leaseTime(f.exptime)
	if !ok {
		c.fault(faultExptime)
		return
	}
	if c.setLease(lease) {
		c.binaryDone()
	}
}

// binaryCount answers INCREMENT and DECREMENT: a queue is no number.
func (c *conn) binaryCount(f *frame, key []byte) {
	if !c.binaryKey(key, optKick) {
		return
	}
	if f.op.verb == verbIncr {
		c.counts[incrMisses]++
	} else {
		c.counts[decrMisses]++
	}
	c.outcome(replyNotFound)
}

func (c *conn) binaryFlush(f *frame) {
	switch {
	case !c.srv.AllowFlushAll:
		c.srv.note(c.host(), "flush_all refused", "peer", c.peer)
		c.binaryRefuse(statusNotAllowed, "flush_all not allowed")
	case f.exptime != 0:
		c.fault(faultExptime)
	case c.purgeAll():
		c.binaryDone()
	}
}
