package memcache

import (
	"encoding/binary"
	"strings"
)

// SASL of the binary protocol, with the one mechanism PLAIN (RFC 4616): its message is an identity to act as, the user and the
// password, parted by NUL.
const (
	opSASLList  = 0x20
	opSASLAuth  = 0x21
	opSASLStep  = 0x22
	opVersion   = 0x0b
	mechanism   = "PLAIN"
	authRefused = "Auth failure."
)

const statusAuth status = 0x0020

// loginBinary lets a peer log in by SASL. Anything but that, a version and a quit is refused, and ends the connection, as memcached
// does. false: the connection ends.
func (d *door) loginBinary() bool {
	for d.c.ending == goOn {
		var f frame
		if !d.arrived(binaryHeader) || !f.parse(d.buf) {
			d.c.end(closeLinger) // the stream's position is lost
			return false
		}
		if f.body > maxLogin {
			d.answer(&f, statusAuth, authRefused)
			d.c.end(closeLinger)
			return false
		}
		if !d.arrived(binaryHeader + int(f.body)) {
			return false
		}
		body := d.buf[binaryHeader : binaryHeader+int(f.body)]
		d.buf = d.buf[binaryHeader+int(f.body):]
		if d.frame(&f, string(body)) {
			return true
		}
	}
	return false
}

// frame answers one request. true: it was the login.
func (d *door) frame(f *frame, body string) bool {
	if f.extras+f.key > len(body) {
		d.answer(f, statusInvalid, "Invalid arguments")
		d.c.end(closeLinger)
		return false
	}
	switch f.code {
	case opSASLList:
		d.answer(f, statusOK, mechanism)
	case opSASLAuth:
		body = body[f.extras:]
		if !d.plain(body[:f.key], body[f.key:]) {
			d.answer(f, statusAuth, authRefused)
			return false
		}
		return d.answer(f, statusOK, "Authenticated")
	case opSASLStep: // PLAIN has one step only
		d.answer(f, statusAuth, authRefused)
		d.failed()
	case opVersion:
		d.answer(f, statusOK, d.c.srv.version)
	default:
		if f.op.verb != verbQuit {
			d.answer(f, statusAuth, authRefused)
		} else if !f.op.quiet {
			d.answer(f, statusOK, "")
		}
		d.c.end(closeLinger)
	}
	return false
}

// plain says whether a PLAIN message is a right login. Nobody may act as somebody else.
func (d *door) plain(mech, message string) bool {
	parts := strings.Split(message, "\x00")
	if mech != mechanism || len(parts) != 3 || parts[1] == "" || parts[2] == "" || parts[0] != "" && parts[0] != parts[1] {
		d.failed()
		return false
	}
	return d.attempt(parts[1], parts[2])
}

// answer sends a reply to f. false: the peer is gone.
func (d *door) answer(f *frame, s status, value string) bool {
	b := append(make([]byte, 0, binaryHeader+len(value)), binaryResponse, f.code, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(s))
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	b = binary.BigEndian.AppendUint32(b, f.opaque)
	b = binary.BigEndian.AppendUint64(b, 0)
	return d.say(string(append(b, value...)))
}
