package memcache

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"time"

	"qserver/storage"
)

// letters is a set of ASCII letters, the flags of meta commands.
type letters uint64

func lettersOf(s string) (set letters) {
	for i := range len(s) {
		set |= letter(s[i])
	}
	return set
}

// letter is the set with b alone; it is empty if b is no letter.
func letter(b byte) letters {
	switch {
	case 'A' <= b && b <= 'Z':
		return 1 << (b - 'A')
	case 'a' <= b && b <= 'z':
		return 1 << (b - 'a' + 26)
	}
	return 0
}

// The flags that each meta command takes. P and L are for proxies; what L carries are queue options here.
var (
	getFlags        = lettersOf("bcfhklOqstuvTLP")
	setFlags        = lettersOf("bcCFkMNOqsTLP")
	deleteFlags     = lettersOf("bCIkOqTLP")
	arithmeticFlags = lettersOf("bcCDEJkMNOqstTvLP")
	debugFlags      = lettersOf("bkOLP")
)

const maxOpaque = 32 // bytes of O

// metaCommand is the line of a meta command taken apart. Its slices point into the line.
type metaCommand struct {
	key     []byte // as sent
	flags   []byte // the line from its first flag on
	set     letters
	length  int64 // of the body
	mode    byte  // of M, upper case; 0: not given
	ttl     int64 // of T, as sent
	client  uint32
	receipt uint64 // of C
	options []byte // of L
}

func (m *metaCommand) has(flag byte) bool { return m.set&letter(flag) != 0 }

// parse takes apart `<key> <flags>*`. It allocates nothing.
func (m *metaCommand) parse(args []byte, allowed letters) fault {
	*m = metaCommand{}
	if m.key, m.flags = token(args); len(m.key) == 0 {
		return faultUnknown
	}
	return m.parseFlags(allowed)
}

// parseSet takes apart `<key> <length> <flags>*`. After faultLength the body's end is unknown; after any other fault length says
// how much to swallow.
func (m *metaCommand) parseSet(args []byte) fault {
	*m = metaCommand{}
	var length []byte
	m.key, args = token(args)
	length, m.flags = token(args)
	n, ok := parseUint(length)
	if !ok || len(length) > 10 || n > maxLength {
		return faultLength
	}
	m.length = int64(n)
	return m.parseFlags(setFlags)
}

func (m *metaCommand) parseFlags(allowed letters) fault {
	for word, rest := token(m.flags); len(word) > 0; word, rest = token(rest) {
		l := letter(word[0])
		switch {
		case l&allowed == 0:
			return faultFlag
		case m.set&l != 0:
			return faultTwice
		}
		m.set |= l
		if f := m.flag(word[0], word[1:], allowed); f != faultNone {
			return f
		}
	}
	return faultNone
}

// flag takes the value of one flag.
func (m *metaCommand) flag(flag byte, value []byte, allowed letters) fault {
	ok, n := true, uint64(0)
	switch flag {
	case 'T':
		m.ttl, ok = parseExptime(value)
	case 'F':
		n, ok = parseUint(value)
		m.client = uint32(n)
		ok = ok && n <= 1<<32-1
	case 'C':
		m.receipt, ok = parseUint(value)
	case 'D', 'J', 'N', 'E':
		_, ok = parseUint(value)
	case 'L':
		m.options = value
	case 'O':
		if len(value) > maxOpaque {
			return faultOpaque
		}
	case 'M':
		return m.takeMode(value, allowed == setFlags)
	}
	if !ok {
		return faultToken
	}
	return faultNone
}

func (m *metaCommand) takeMode(value []byte, set bool) fault {
	modes, f := "EAPRS", faultMode
	if !set {
		modes, f = "ID+-", faultModeMA
	}
	if len(value) != 1 {
		return f
	}
	m.mode = value[0]
	if 'a' <= m.mode && m.mode <= 'z' {
		m.mode -= 'a' - 'A'
	}
	for i := range len(modes) {
		if m.mode == modes[i] {
			return faultNone
		}
	}
	return f
}

// appendFlags appends what the reply returns, in the order in which it was asked for: the opaque and the key always, the rest
// if d is there. size is the body's.
func (m *metaCommand) appendFlags(b []byte, d *storage.Delivery, size int64) []byte {
	for word, rest := token(m.flags); len(word) > 0; word, rest = token(rest) {
		switch word[0] {
		case 'O':
			b = append(append(b, ' '), word...)
		case 'k':
			b = append(append(b, ' ', 'k'), m.key...)
			if m.has('b') {
				b = append(b, ' ', 'b')
			}
		}
		if d == nil {
			continue
		}
		n := int64(0)
		switch word[0] {
		case 'c':
			n = int64(d.Receipt)
		case 'f':
			n = int64(d.Flags)
		case 'h':
			n = int64(min(d.Deliveries, 1))
		case 'l':
			n = int64(d.Age / time.Second)
		case 's':
			n = size
		case 't':
			if n = -1; d.Lease > 0 {
				n = int64((d.Lease + time.Second - 1) / time.Second)
			}
		default:
			continue
		}
		b = strconv.AppendInt(append(b, ' ', word[0]), n, 10)
	}
	return b
}

// parseMetaKey takes apart the key of the meta command, with the options of L, into the command's.
func (c *conn) parseMetaKey(allowed optionSet) fault {
	x := c.ext
	m, plain := &x.meta, c.srv.NoKeyOptions
	if len(m.options) == 0 && !m.has('b') || plain && !m.has('b') {
		return c.cmd.parseKey(m.key, allowed, plain)
	}
	key := x.scratch[:0]
	if m.has('b') {
		decoded, err := base64.StdEncoding.Strict().AppendDecode(key, m.key)
		if err != nil || bytes.IndexByte(m.key, '\r') >= 0 { // a decoder skips them
			return faultDecode
		}
		key = decoded
	} else {
		key = append(key, m.key...)
	}
	x.scratch = key
	if len(key) == 0 || len(key) > maxKey {
		return faultFormat
	}
	if len(m.options) > 0 && !plain {
		key = append(key, '/')
		for _, b := range m.options {
			if b == ',' {
				b = '/'
			}
			key = append(key, b)
		}
		x.scratch = key
	}
	return c.cmd.key.parseLong(key[:len(key):len(key)], allowed, plain).fault()
}
