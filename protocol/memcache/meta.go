package memcache

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"qserver/storage"
)

// meta runs one meta command.
func (c *conn) meta(v verb) {
	c.cmd.dialect = metaDialect
	x := c.extra()
	switch v {
	case verbMetaGet:
		c.metaGet(&x.meta)
	case verbMetaSet:
		c.metaSet(&x.meta)
	case verbMetaDelete:
		c.metaDelete(&x.meta)
	case verbMetaArithmetic:
		c.metaArithmetic(&x.meta)
	case verbMetaDebug:
		c.metaDebug(&x.meta)
	case verbNoop:
		c.fence(metaForm{})
		x.gets.reset()
		if c.ending == goOn {
			c.out.text(replyNoop)
		}
	}
}

// metaReply answers with a return code and the flags that were asked for; d is nil where they say nothing of a message.
func (c *conn) metaReply(code string, d *storage.Delivery, size int64) {
	b := append(c.out.begin(), code...)
	b = c.ext.meta.appendFlags(b, d, size)
	c.out.finish(append(b, '\r', '\n'))
}

// metaOutcome answers that a command had no effect.
func (c *conn) metaOutcome(line string) {
	switch line {
	case replyNotStored:
		c.metaReply("NS", nil, 0)
	case replyNotFound:
		c.metaReply("NF", nil, 0)
	default:
		c.metaReply("EX", nil, 0)
	}
}

// metaDone answers that a command other than mg has had its effect, unless it is quiet.
func (c *conn) metaDone(d *storage.Delivery, size int64) {
	if !c.ext.meta.has('q') {
		c.metaReply("HD", d, size)
	}
}

// metaGet reserves, with v; without it the message at the queue's head is looked at, or what is held is touched: never reserved.
func (c *conn) metaGet(m *metaCommand) {
	f := m.parse(c.cmd.args, getFlags)
	if f != faultNone || !m.has('q') {
		c.ext.gets.reset()
	}
	switch {
	case f != faultNone:
		c.fault(f)
	case m.has('T') && !m.has('v'):
		c.metaTouch(m)
	case m.has('T') && m.has('u'):
		c.fault(faultFlag)
	case !m.has('v') || m.has('u'):
		c.metaLook(m)
	default:
		c.metaReserve(m)
	}
}

// metaTouch gives a lease. Nothing is known of the message then, so flags that ask about it are refused.
func (c *conn) metaTouch(m *metaCommand) {
	if m.set&lettersOf("cfhlsu") != 0 {
		c.fault(faultFlag)
		return
	}
	f := c.parseMetaKey(touchOptions)
	lease, ok := leaseTime(m.ttl)
	if f == faultNone && !ok {
		f = faultExptime
	}
	if f != faultNone {
		c.fault(f)
		return
	}
	k := &c.cmd.key
	c.counts[cmdTouch]++
	switch err := c.session.Touch(k.name, storage.Pick{Receipt: k.receipt, Tag: k.tag}, lease); {
	case err == nil:
		c.counts[touchHits]++
		c.metaDone(&storage.Delivery{Lease: lease}, 0)
	case errors.Is(err, storage.ErrNotFound):
		c.counts[touchMisses]++
		c.metaMiss(m)
	default:
		c.storeError(err)
	}
}

// metaMiss answers a get that found nothing.
func (c *conn) metaMiss(m *metaCommand) {
	if !m.has('q') {
		c.metaReply("EN", nil, 0)
	}
}

// metaLook answers the message at the queue's head.
func (c *conn) metaLook(m *metaCommand) {
	if f := c.parseMetaKey(lookOptions); f != faultNone {
		c.fault(f)
		return
	}
	c.counts[cmdGet]++
	k := &c.cmd.key
	if k.options&(optClose|optAbort) != 0 {
		if _, ok := c.prepare(&getLine{}, k); ok {
			c.counts[getMisses]++
			c.metaMiss(m)
		}
		return
	}
	d, found, err := c.session.Peek(k.name)
	c.metaAnswer(m, d, found, err)
}

// metaAnswer answers a get: with the message, if it was found.
func (c *conn) metaAnswer(m *metaCommand, d storage.Delivery, found bool, err error) {
	switch {
	case err != nil:
		c.getFailed(err)
	case found:
		c.counts[getHits]++
		c.ext.gets.found()
		c.metaValue(m, &d)
	default:
		c.counts[getMisses]++
		c.metaMiss(m)
	}
}

// metaValue answers a message.
func (c *conn) metaValue(m *metaCommand, d *storage.Delivery) {
	size := int64(len(d.Body))
	if !m.has('v') {
		c.metaReply("HD", d, size)
		return
	}
	b := strconv.AppendInt(append(c.out.begin(), "VA "...), size, 10)
	b = append(m.appendFlags(b, d, size), '\r', '\n')
	b = c.out.body(b, d.Body)
	c.out.finish(append(b, '\r', '\n'))
}

func (c *conn) metaReserve(m *metaCommand) {
	f := c.parseMetaKey(oneOptions)
	lease, ok := leaseTime(m.ttl)
	if f == faultNone && !ok {
		f = faultExptime
	}
	if f != faultNone {
		c.fault(f)
		return
	}
	c.counts[cmdGet]++
	k, q, quiet := &c.cmd.key, &c.ext.gets, m.has('q')
	once := quiet && metaForm{}.once(c)
	if once && q.done.has(c.cmd.args) {
		c.counts[getMisses]++
		return
	}
	if done, ok := c.prepare(q.opened(quiet), k); !ok {
		return
	} else if done {
		c.counts[getMisses]++
		c.metaMiss(m)
		return
	}
	if k.options&optPeek != 0 {
		d, found, err := c.session.Peek(k.name)
		c.metaAnswer(m, d, found, err)
		return
	}
	d, found, err := c.session.Reserve(k.name, c.reserveOptions(k, lease))
	if err == nil && !found && (quiet || c.waitFor(k) > 0) {
		c.metaWait(m, quiet)
		return
	}
	c.metaAnswer(m, d, found, err)
	if once && found {
		q.done.add(bytes.Clone(c.cmd.args))
	}
}

// metaWait keeps a quiet get that missed for the pipeline's end; any other waits now.
func (c *conn) metaWait(m *metaCommand, quiet bool) {
	q := &c.ext.gets
	c.counts[getMisses]++
	q.missed(c.waitFor(&c.cmd.key), c.cmd.args)
	if quiet {
		return
	}
	if n, ok := c.fence(metaForm{}); ok && n == 0 {
		m.parse(q.request(0), getFlags)
		c.metaMiss(m)
	}
	q.reset()
}

// metaForm is mg with q.
type metaForm struct{}

func (metaForm) load(c *conn, request []byte) time.Duration {
	c.ext.meta.parse(request, getFlags)
	c.parseMetaKey(oneOptions)
	lease, _ := leaseTime(c.ext.meta.ttl)
	return lease
}

// once: a client that knows answers by their key alone would never see a second one.
func (metaForm) once(c *conn) bool { return c.ext.meta.has('k') && !c.ext.meta.has('O') }

func (metaForm) deliver(c *conn, d storage.Delivery) { c.metaValue(&c.ext.meta, &d) }

func (metaForm) miss(c *conn) {
	if c.ext.meta.has('q') {
		c.out.text(replyNoop)
		return
	}
	c.metaReply("EN", nil, 0)
}

func (c *conn) metaSet(m *metaCommand) {
	c.counts[cmdSet]++
	f := m.parseSet(c.cmd.args)
	if f == faultLength {
		c.fault(f)
		c.end(closeLinger)
		return
	}
	if m.length+2 > int64(len(c.in.buffered())) { // the line moves while the body arrives
		m.parseSet(bytes.Clone(c.cmd.args))
	}
	allowed := setOptions
	if m.has('C') || m.mode == 'R' {
		allowed = 0
	}
	if f == faultNone {
		f = c.parseMetaKey(allowed)
	}
	if f == faultNone && m.length > c.srv.maxItemSize() {
		f = faultTooLarge
	}
	switch {
	case f != faultNone:
		c.fault(f)
		c.swallow(m.length)
		return
	case m.mode == 'A', m.mode == 'P', m.mode == 'E' && m.has('C'):
		c.outcome(replyNotStored)
		c.swallow(m.length)
		return
	}
	body, ok := c.body(int(m.length))
	if ok {
		c.metaStore(m, body)
		c.staged += len(body)
	}
	c.releaseBody()
}

// metaStore enqueues, or replaces the body of what is held under C.
func (c *conn) metaStore(m *metaCommand, body []byte) {
	c.cmd.flags, c.cmd.exptime, c.cmd.cas = m.client, m.ttl, m.receipt
	var id uint64
	var ok bool
	if m.has('C') {
		ok = c.replaceBody(body)
	} else {
		switch m.mode {
		case 'E':
			c.cmd.verb = verbAdd
		case 'R':
			c.cmd.verb = verbReplace
		}
		id, ok = c.enqueue(body)
	}
	if ok {
		c.metaDone(&storage.Delivery{Receipt: id}, m.length)
	}
}

// metaDelete acks, or with I gives back.
func (c *conn) metaDelete(m *metaCommand) {
	f := m.parse(c.cmd.args, deleteFlags)
	if f == faultNone {
		f = c.parseMetaKey(deleteOptions)
	}
	k := &c.cmd.key
	if f == faultNone && m.has('C') {
		if k.options&optReceipt != 0 {
			f = faultTwice
		}
		k.options |= optReceipt
		k.receipt = m.receipt
	}
	if f == faultNone && m.has('I') && k.options&optBackoff != 0 {
		f = faultOption // two delays
	}
	if f == faultNone && m.has('T') {
		delay, ok := leaseTime(m.ttl)
		switch {
		case !m.has('I'):
			f = faultFlag // it would be taken for a delay, and be an ack
		case !ok:
			f = faultExptime
		}
		k.delay = delay
	}
	switch {
	case f != faultNone:
		c.fault(f)
		return
	case m.has('C') && (m.receipt == 0 || m.receipt > maxReceipt):
		c.counts[deleteMisses]++
		c.outcome(replyNotFound)
		return
	case m.has('I'):
		k.options |= optRelease
	}
	if c.ack() {
		c.metaDone(nil, 0)
	}
}

// metaArithmetic answers that there is no number: a queue is none.
func (c *conn) metaArithmetic(m *metaCommand) {
	f := m.parse(c.cmd.args, arithmeticFlags)
	if f == faultNone {
		f = c.parseMetaKey(optKick)
	}
	if f != faultNone {
		c.fault(f)
		return
	}
	if m.mode == 'D' || m.mode == '-' {
		c.counts[decrMisses]++
	} else {
		c.counts[incrMisses]++
	}
	c.outcome(replyNotFound)
}

// metaDebug answers a queue's counts.
func (c *conn) metaDebug(m *metaCommand) {
	f := m.parse(c.cmd.args, debugFlags)
	if f == faultUnknown {
		f = faultFormat
	}
	if f == faultNone {
		f = c.parseMetaKey(0)
	}
	if f != faultNone {
		c.fault(f)
		return
	}
	if !c.commit() { // it sees its connection's earlier commands
		return
	}
	q, there := c.srv.Store.Queue(c.cmd.key.name)
	if !there {
		c.metaReply("EN", nil, 0)
		return
	}
	b := append(append(c.out.begin(), "ME "...), m.key...)
	for _, v := range []struct {
		name string
		n    int64
	}{{" ready=", q.Ready}, {" reserved=", q.Reserved}, {" delayed=", q.Delayed}, {" dead=", q.Dead}, {" age_ms=", q.Age.Milliseconds()}} {
		b = strconv.AppendInt(append(b, v.name...), v.n, 10)
	}
	c.out.finish(append(m.appendFlags(b, nil, 0), '\r', '\n'))
}
