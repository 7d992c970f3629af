package memcache

import (
	"bytes"
	"time"
)

// maxKey is the longest key of the memcached protocol, in bytes, options included.
const maxKey = 250

// Ranges of the options' values; beyond them the option is refused.
const (
	maxWaitMS  = 24 * 60 * 60 * 1000     // t=: a day
	maxLease   = 30 * 24 * 60 * 60       // lease=, in seconds: 30 days, as far as memcached counts relative times
	maxDelay   = 10 * 365 * 24 * 60 * 60 // delay=, release= and backoff=, in seconds: ten years
	maxBatch   = 10_000                  // batch=
	maxReceipt = uint64(1)<<53 - 1       // id=
)

// optionSet is a set of key options.
type optionSet uint16

const (
	optWait optionSet = 1 << iota
	optOpen
	optClose
	optAbort
	optPeek
	optLease
	optTag
	optBatch
	optDelay
	optPriority
	optDedup
	optReceipt
	optRelease
	optKick
	optBackoff
)

// The options that each family of verbs takes.
const (
	getOptions    = optWait | optOpen | optClose | optAbort | optPeek | optLease | optTag | optBatch
	setOptions    = optDelay | optPriority | optDedup
	deleteOptions = optReceipt | optTag | optRelease | optBackoff
	touchOptions  = optReceipt | optTag
	oneOptions    = getOptions &^ optBatch // of gets that answer one message
	lookOptions   = optWait | optPeek | optClose | optAbort
)

// queueKey is a key taken apart: NAME[/option[=value]]… Its slices point into the command line.
type queueKey struct {
	raw  []byte // as sent: what VALUE repeats
	name []byte // the queue's

	options  optionSet
	wait     time.Duration
	lease    time.Duration
	delay    time.Duration // of delay=, release= or backoff=
	priority uint32
	batch    int // 0: not given
	receipt  uint64
	tag      []byte
	dedup    []byte
}

// keyFault says what is wrong with a key.
type keyFault uint8

const (
	keyGood      keyFault = iota
	keyMalformed          // its length or a byte of it
	keyOption             // an option that the verb does not take, or its value is out of range
)

// parse takes raw apart. Options outside allowed are faults; plain takes the key as it is (-key-options=off). It allocates nothing.
func (k *queueKey) parse(raw []byte, allowed optionSet, plain bool) keyFault {
	if len(raw) > maxKey {
		*k = queueKey{raw: raw, name: raw}
		return keyMalformed
	}
	return k.parseLong(raw, allowed, plain)
}

// parseLong is parse without a limit of the length.
func (k *queueKey) parseLong(raw []byte, allowed optionSet, plain bool) keyFault {
	*k = queueKey{raw: raw, name: raw}
	if len(raw) == 0 {
		return keyMalformed
	}
	slash := -1
	for i, b := range raw {
		if b <= ' ' || b == 0x7f {
			return keyMalformed
		}
		if b == '/' && slash < 0 {
			slash = i
		}
	}
	if plain {
		return keyGood
	}
	rest := raw[len(raw):]
	if slash >= 0 {
		k.name, rest = raw[:slash], raw[slash:]
	}
	k.name = unwrapName(k.name)
	if len(k.name) == 0 {
		return keyMalformed
	}
	for len(rest) > 0 {
		var word []byte
		if word, rest = cutOption(rest[1:]); !k.option(word, allowed) {
			return keyOption
		}
	}
	if !k.combines() {
		return keyOption
	}
	return keyGood
}

// unwrapName takes off what proxies hash on: twemproxy's {NAME} and mcrouter's NAME|#|.
func unwrapName(name []byte) []byte {
	if n := len(name); n > 2 && name[0] == '{' && name[n-1] == '}' {
		return name[1 : n-1]
	}
	if n := len(name); n > 3 && name[n-1] == '|' && name[n-2] == '#' && name[n-3] == '|' {
		return name[:n-3]
	}
	return name
}

// cutOption splits "a/b/c" into "a" and "/b/c".
func cutOption(s []byte) (word, rest []byte) {
	if i := bytes.IndexByte(s, '/'); i >= 0 {
		return s[:i], s[i:]
	}
	return s, nil
}

// option takes one word, such as "t=500" or "open", and says whether it is allowed and in range.
func (k *queueKey) option(word []byte, allowed optionSet) bool {
	name, value, valued := bytes.Cut(word, []byte{'='})
	opt := optionNamed(name, valued)
	if opt&allowed == 0 {
		return false
	}
	if k.options&opt != 0 && opt != optWait {
		return false
	}
	k.options |= opt
	switch opt {
	case optTag:
		k.tag = value
		return len(value) > 0
	case optDedup:
		k.dedup = value
		return len(value) > 0
	case optOpen, optClose, optAbort, optPeek, optKick:
		return true
	}
	n, ok := parseUint(value)
	return ok && k.number(opt, n)
}

func optionNamed(name []byte, valued bool) optionSet {
	if !valued {
		switch string(name) {
		case "open":
			return optOpen
		case "close":
			return optClose
		case "abort":
			return optAbort
		case "peek":
			return optPeek
		case "kick":
			return optKick
		}
		return 0
	}
	switch string(name) {
	case "t":
		return optWait
	case "n":
		return optTag
	case "id":
		return optReceipt
	case "lease":
		return optLease
	case "batch":
		return optBatch
	case "delay":
		return optDelay
	case "pri":
		return optPriority
	case "dedup":
		return optDedup
	case "release":
		return optRelease
	case "backoff":
		return optBackoff
	}
	return 0
}

// number stores the value of a numeric option and says whether it is in range.
func (k *queueKey) number(opt optionSet, n uint64) bool {
	switch opt {
	case optWait:
		k.wait = max(k.wait, time.Duration(min(n, maxWaitMS))*time.Millisecond) // the largest of several counts
		return n <= maxWaitMS
	case optLease:
		k.lease = time.Duration(min(n, maxLease)) * time.Second
		return n <= maxLease
	case optDelay, optRelease, optBackoff:
		k.delay = time.Duration(min(n, maxDelay)) * time.Second
		return n <= maxDelay
	case optPriority:
		k.priority = uint32(n)
		return n <= 1<<32-1
	case optBatch:
		k.batch = int(min(n, maxBatch))
		return n >= 1 && n <= maxBatch
	case optReceipt:
		k.receipt = n
		return n >= 1 && n <= maxReceipt
	}
	return false
}

// combines says whether the options make sense together: peek and abort stand alone but for t=, close alone or with open, a
// tag names one reservation, so it can't name a batch, and there is one delay.
func (k *queueKey) combines() bool {
	o := k.options &^ optWait
	switch {
	case o&(optPeek|optAbort) != 0:
		return o == optPeek || o == optAbort
	case o&optClose != 0 && o&optOpen == 0:
		return o == optClose
	case o&(optRelease|optBackoff) == optRelease|optBackoff:
		return false
	}
	return o&(optTag|optBatch) != optTag|optBatch
}

// reserves says whether a get with this key may take a message.
func (k *queueKey) reserves() bool {
	return k.options&(optPeek|optAbort) == 0 && k.options&(optClose|optOpen) != optClose
}
