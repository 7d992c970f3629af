package memcache

import "encoding/binary"

// First bytes of a connection that tell what its client speaks.
const (
	binaryRequest = 0x80
	tlsHandshake  = 0x16
)

// A frame of the binary protocol is a header of 24 bytes and a body. The header: magic, opcode, key length (2), extras length, data
// type, status (2), body length (4), opaque (4), CAS (8), numbers in network order. The body: extras, key, value.
const (
	binaryHeader   = 24
	binaryResponse = 0x81
)

// status is that of a binary reply.
type status uint16

const (
	statusOK         status = 0
	statusNotFound   status = 0x0001
	statusExists     status = 0x0002
	statusTooLarge   status = 0x0003
	statusInvalid    status = 0x0004
	statusNotStored  status = 0x0005
	statusNotAllowed status = 0x0020
	statusUnknown    status = 0x0081
	statusNoMemory   status = 0x0082
	statusInternal   status = 0x0084
)

// opcode is what one of the binary protocol's commands is.
type opcode struct {
	verb   verb
	extras uint8   // bytes, exactly
	key    keyRule // whether there must be one
	value  bool    // the body may go on behind the key
	quiet  bool    // success (of a get: a miss) has no answer
	keyed  bool    // a get's answer has the key
}

type keyRule uint8

const (
	noKey keyRule = iota
	mayKey
	needsKey
)

var opcodes = [256]opcode{
	0x00: {verb: verbGet, key: needsKey},
	0x01: {verb: verbSet, extras: 8, key: needsKey, value: true},
	0x02: {verb: verbAdd, extras: 8, key: needsKey, value: true},
	0x03: {verb: verbReplace, extras: 8, key: needsKey, value: true},
	0x04: {verb: verbDelete, key: needsKey},
	0x05: {verb: verbIncr, extras: 20, key: needsKey},
	0x06: {verb: verbDecr, extras: 20, key: needsKey},
	0x07: {verb: verbQuit},
	0x08: {verb: verbFlushAll},
	0x09: {verb: verbGet, key: needsKey, quiet: true},
	0x0a: {verb: verbNoop},
	0x0b: {verb: verbVersion},
	0x0c: {verb: verbGet, key: needsKey, keyed: true},
	0x0d: {verb: verbGet, key: needsKey, quiet: true, keyed: true},
	0x0e: {verb: verbAppend, key: needsKey, value: true},
	0x0f: {verb: verbPrepend, key: needsKey, value: true},
	0x10: {verb: verbStats, key: mayKey},
	0x11: {verb: verbSet, extras: 8, key: needsKey, value: true, quiet: true},
	0x12: {verb: verbAdd, extras: 8, key: needsKey, value: true, quiet: true},
	0x13: {verb: verbReplace, extras: 8, key: needsKey, value: true, quiet: true},
	0x14: {verb: verbDelete, key: needsKey, quiet: true},
	0x15: {verb: verbIncr, extras: 20, key: needsKey, quiet: true},
	0x16: {verb: verbDecr, extras: 20, key: needsKey, quiet: true},
	0x17: {verb: verbQuit, quiet: true},
	0x18: {verb: verbFlushAll, quiet: true},
	0x19: {verb: verbAppend, key: needsKey, value: true, quiet: true},
	0x1a: {verb: verbPrepend, key: needsKey, value: true, quiet: true},
	0x1c: {verb: verbTouch, extras: 4, key: needsKey},
	0x1d: {verb: verbGat, extras: 4, key: needsKey},
	0x1e: {verb: verbGat, extras: 4, key: needsKey, quiet: true},
	0x23: {verb: verbGat, extras: 4, key: needsKey, keyed: true},
	0x24: {verb: verbGat, extras: 4, key: needsKey, quiet: true, keyed: true},
}

// frame is one request.
type frame struct {
	op      opcode
	code    byte
	key     int   // bytes
	extras  int   // bytes
	body    int64 // bytes, with key and extras
	opaque  uint32
	cas     uint64
	flags   uint32 // of the extras
	exptime int64  // of the extras, as sent: a signed number
}

// parse takes a header apart. false: it is none.
func (f *frame) parse(h []byte) bool {
	*f = frame{
		op:     opcodes[h[1]],
		code:   h[1],
		key:    int(binary.BigEndian.Uint16(h[2:])),
		extras: int(h[4]),
		body:   int64(binary.BigEndian.Uint32(h[8:])),
		opaque: binary.BigEndian.Uint32(h[12:]),
		cas:    binary.BigEndian.Uint64(h[16:]),
	}
	return h[0] == binaryRequest
}

// fits says whether the lengths are those of the opcode.
func (f *frame) fits() bool {
	value := f.body - int64(f.key) - int64(f.extras)
	switch {
	case value < 0 || value > 0 && !f.op.value:
		return false
	case f.op.verb == verbFlushAll && f.extras == 4: // its delay may be left out
	case f.extras != int(f.op.extras):
		return false
	}
	return f.op.key == mayKey && f.key <= maxKey || f.op.key == needsKey && 0 < f.key && f.key <= maxKey || f.key == 0
}

// value is the length of what is behind the key.
func (f *frame) value() int64 { return f.body - int64(f.key) - int64(f.extras) }

// takeExtras reads them.
func (f *frame) takeExtras(b []byte) {
	switch f.op.verb {
	case verbSet, verbAdd, verbReplace:
		f.flags = binary.BigEndian.Uint32(b)
		f.exptime = int64(int32(binary.BigEndian.Uint32(b[4:])))
	case verbTouch, verbGat, verbFlushAll:
		if len(b) == 4 {
			f.exptime = int64(int32(binary.BigEndian.Uint32(b)))
		}
	}
}

// respond answers the current frame.
func (c *conn) respond(s status, extras, key, body []byte, cas uint64) {
	f := &c.ext.frame
	b := append(c.out.begin(), binaryResponse, f.code)
	b = binary.BigEndian.AppendUint16(b, uint16(len(key)))
	b = append(b, byte(len(extras)), 0)
	b = binary.BigEndian.AppendUint16(b, uint16(s))
	b = binary.BigEndian.AppendUint32(b, uint32(len(extras)+len(key)+len(body)))
	b = binary.BigEndian.AppendUint32(b, f.opaque)
	b = binary.BigEndian.AppendUint64(b, cas)
	b = append(append(b, extras...), key...)
	c.out.finish(c.out.body(b, body))
}

// binaryRefuse answers an error.
func (c *conn) binaryRefuse(s status, text string) { c.respond(s, nil, nil, []byte(text), 0) }

// binaryDone answers a success, unless the command is a quiet one.
func (c *conn) binaryDone() {
	if !c.ext.frame.op.quiet {
		c.respond(statusOK, nil, nil, nil, 0)
	}
}

// binaryOutcome answers that a command had no effect.
func (c *conn) binaryOutcome(line string) {
	switch verb := c.cmd.verb; {
	case line == replyNotStored && verb == verbAdd:
		c.binaryRefuse(statusExists, "Data exists for key.")
	case line == replyNotStored && verb != verbReplace:
		c.binaryRefuse(statusNotStored, "Not stored.")
	case line == replyExists || line == replyOver:
		c.binaryRefuse(statusExists, "Data exists for key.")
	default:
		c.binaryRefuse(statusNotFound, "Not found")
	}
}

// binaryFault refuses a command that was not understood.
func (c *conn) binaryFault(f fault) {
	switch f {
	case faultUnknown:
		c.binaryRefuse(statusUnknown, "Unknown command")
	case faultTooLarge:
		c.binaryRefuse(statusTooLarge, "Too large.")
	case faultOption:
		c.binaryRefuse(statusInvalid, "unknown queue option (see -key-options)")
	default:
		c.binaryRefuse(statusInvalid, "Invalid arguments")
	}
}
