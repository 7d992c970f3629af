package memcache

import (
	"bytes"
	"time"
)

// fault is why a command is refused before the store is asked.
type fault uint8

const (
	faultNone     fault = iota
	faultUnknown        // ERROR
	faultFormat         // CLIENT_ERROR bad command line format
	faultLength         // the same, and the end of its body is unknown: close
	faultOption         // CLIENT_ERROR unknown queue option
	faultUsage          // delete's own line
	faultExptime        // CLIENT_ERROR invalid exptime argument
	faultDelta          // CLIENT_ERROR invalid numeric delta argument
	faultTooLarge       // SERVER_ERROR object too large for cache
	faultFlag           // the others are CLIENT_ERROR of the meta commands: a flag that the command has not
	faultTwice          // a flag given twice
	faultToken          // a flag's number is none
	faultMode           // M of ms
	faultModeMA         // M of ma
	faultOpaque         // O of more than 32 bytes
	faultDecode         // the key is not base64
)

const (
	maxLength    = 2147483645   // the largest length that is one
	maxExptime   = 253402300799 // the end of the year 9999
	relativeTime = 30 * 24 * 60 * 60
)

// dialect is the protocol that a command came in, and is answered in.
type dialect uint8

const (
	textDialect dialect = iota
	metaDialect
	binaryDialect
)

// command is one command line taken apart. Its slices point into the line.
type command struct {
	verb    verb
	dialect dialect
	upper   bool   // its verb was not in lower case, as Kestrel's clients send some
	args    []byte // what follows the verb
	noreply bool
	key     queueKey
	flags   uint32
	exptime int64 // as sent
	length  int64 // of the body
	cas     uint64
}

// parse takes the verb off line and fills in what all commands share. It allocates nothing.
func (c *command) parse(line []byte) {
	word, rest := token(line)
	*c = command{verb: lowerVerb(word), args: rest}
	if c.verb == verbUnknown {
		c.verb = verbOf(word)
		c.upper = c.verb != verbUnknown
	}
	if c.verb == verbUnknown || c.verb == verbGet || c.verb == verbDelete {
		if isHTTP(word, rest) {
			c.verb = verbHTTP
		}
	}
}

// quietGet says whether a command may be part of a pipeline of quiet gets, or is its end.
func (c *command) quietGet() bool { return c.verb == verbMetaGet || c.verb == verbNoop }

// token cuts the first word off line; words are separated by one or more spaces. It is empty at the line's end.
func token(line []byte) (word, rest []byte) {
	for len(line) > 0 && line[0] == ' ' {
		line = line[1:]
	}
	for i, b := range line {
		if b == ' ' {
			return line[:i], line[i+1:]
		}
	}
	return line, nil
}

// lastToken is the last word of line.
func lastToken(line []byte) []byte {
	line = bytes.TrimRight(line, " ")
	return line[bytes.LastIndexByte(line, ' ')+1:]
}

// isHTTP says whether a line is part of an HTTP request: a relayed one must not have its body run as commands. A lower-case get
// is never taken for one.
func isHTTP(word, rest []byte) bool {
	if string(word) == "POST" || len(word) == 5 && word[4] == ':' && bytes.EqualFold(word, []byte("host:")) {
		return true
	}
	for _, b := range word {
		if b < 'A' || b > 'Z' {
			return false
		}
	}
	return bytes.HasPrefix(lastToken(rest), []byte("HTTP/"))
}

// isGet says whether a line that is still arriving begins with one of the verbs whose lines may be long.
func isGet(line []byte) bool {
	word, _ := token(line)
	switch verbOf(word) {
	case verbGet, verbGets, verbGat, verbGats:
		return true
	}
	return false
}

// parseStore takes apart `<key> <flags> <exptime> <length> [<cas>] [noreply]`. After faultLength the body's end is unknown; after
// any other fault length says how much to swallow. noreply is right in every case.
func (c *command) parseStore(allowed optionSet, plain bool, maxItem int64) fault {
	key, rest := token(c.args)
	flags, rest := token(rest)
	exptime, rest := token(rest)
	length, rest := token(rest)
	f := c.storeWords(key, flags, exptime, length, rest, allowed, plain)
	if f != faultNone {
		c.noreply = string(lastToken(c.args)) == "noreply"
		return f
	}
	if c.length > maxItem {
		return faultTooLarge
	}
	return faultNone
}

func (c *command) storeWords(key, flags, exptime, length, rest []byte, allowed optionSet, plain bool) fault {
	n, ok := parseUint(length)
	if !ok || len(length) > 10 || n > maxLength {
		return faultLength
	}
	c.length = int64(n)
	word, rest := token(rest)
	var casWord []byte
	if c.verb == verbCas {
		casWord = word
		word, rest = token(rest)
	}
	if len(word) > 0 {
		if extra, _ := token(rest); len(extra) > 0 {
			return faultUnknown
		}
		if c.noreply = string(word) == "noreply"; !c.noreply {
			return faultFormat
		}
	}
	if c.verb == verbCas {
		if c.cas, ok = parseUint(casWord); !ok {
			return faultFormat
		}
	}
	if f := c.parseKey(key, allowed, plain); f != faultNone {
		return f
	}
	bits, ok := parseUint(flags)
	if !ok || bits > 1<<32-1 {
		return faultFormat
	}
	c.flags = uint32(bits)
	if c.exptime, ok = parseExptime(exptime); !ok {
		return faultFormat
	}
	return faultNone
}

func (c *command) parseKey(word []byte, allowed optionSet, plain bool) fault {
	return c.key.parse(word, allowed, plain).fault()
}

func (f keyFault) fault() fault {
	switch f {
	case keyMalformed:
		return faultFormat
	case keyOption:
		return faultOption
	}
	return faultNone
}

// parseDelete takes apart `<key> [0] [noreply]`.
func (c *command) parseDelete(plain bool) fault {
	key, rest := token(c.args)
	if len(key) == 0 {
		return faultUnknown
	}
	word, rest := token(rest)
	if string(word) == "0" {
		word, rest = token(rest)
	}
	if len(word) > 0 {
		c.noreply = string(lastToken(c.args)) == "noreply"
		if extra, _ := token(rest); string(word) != "noreply" || len(extra) > 0 {
			return faultUsage
		}
	}
	return c.parseKey(key, deleteOptions, plain)
}

// parseTouch takes apart `<key> <seconds> [noreply]`.
func (c *command) parseTouch(plain bool) fault {
	key, rest := token(c.args)
	seconds, rest := token(rest)
	if len(seconds) == 0 {
		return faultUnknown
	}
	if f := c.tail(rest); f != faultNone {
		return f
	}
	if f := c.parseKey(key, touchOptions, plain); f != faultNone {
		return f
	}
	var ok bool
	if c.exptime, ok = parseExptime(seconds); !ok || c.exptime < 0 {
		return faultExptime
	}
	return faultNone
}

// parseDelta takes apart `<key> <delta> [noreply]` of incr and decr.
func (c *command) parseDelta(plain bool) fault {
	key, rest := token(c.args)
	delta, rest := token(rest)
	if len(delta) == 0 {
		return faultUnknown
	}
	if f := c.tail(rest); f != faultNone {
		return f
	}
	if f := c.parseKey(key, 0, plain); f != faultNone {
		return f
	}
	if _, ok := parseUint(delta); !ok {
		return faultDelta
	}
	return faultNone
}

// tail takes an optional noreply at the line's end.
func (c *command) tail(rest []byte) fault {
	word, rest := token(rest)
	if len(word) == 0 {
		return faultNone
	}
	c.noreply = string(lastToken(c.args)) == "noreply"
	if extra, _ := token(rest); string(word) != "noreply" || len(extra) > 0 {
		return faultFormat
	}
	return faultNone
}

// parseUint reads decimal digits, and nothing else, as a 64-bit number.
func parseUint(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	var n uint64
	for i, d := range b {
		d -= '0'
		if d > 9 {
			return 0, false
		}
		if i == 19 && (n > (1<<64-1)/10 || n == (1<<64-1)/10 && d > 5) {
			return 0, false
		}
		n = n*10 + uint64(d)
	}
	return n, true
}

// parseExptime reads an expiry time: digits, with a minus in front if it is negative.
func parseExptime(b []byte) (int64, bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	n, ok := parseUint(b)
	if !ok || n > maxExptime {
		return 0, false
	}
	if negative {
		return -int64(n), true
	}
	return int64(n), true
}

// expiry is the moment that an exptime means: none for 0, past for a negative one, up to 30 days seconds from now, else the
// epoch's second.
func expiry(exptime int64) time.Time {
	switch {
	case exptime == 0:
		return time.Time{}
	case exptime < 0:
		return time.Now().Add(-time.Second)
	case exptime <= relativeTime:
		return time.Now().Add(time.Duration(exptime) * time.Second)
	}
	return time.Unix(exptime, 0)
}

// leaseTime is the lease that an exptime means, from now on; ok is false if it would have ended already.
func leaseTime(exptime int64) (lease time.Duration, ok bool) {
	if exptime <= relativeTime {
		return time.Duration(exptime) * time.Second, exptime >= 0
	}
	lease = time.Until(time.Unix(exptime, 0))
	return lease, lease > 0
}
