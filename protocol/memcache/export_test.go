package memcache

// Seams for the external tests: the parser, the key parser and the limits.

type Command = command

func (c *command) Parse(line []byte) { c.parse(line) }

func (c *command) ParseStore() (refused bool) {
	return c.parseStore(setOptions, false, defaultMaxItemSize) != faultNone
}
func (c *command) ParseDelete() (refused bool) { return c.parseDelete(false) != faultNone }
func (c *command) ParseTouch() (refused bool)  { return c.parseTouch(false) != faultNone }
func (c *command) ParseDelta() (refused bool)  { return c.parseDelta(false) != faultNone }
func (c *command) Known() bool                 { return c.verb != verbUnknown && c.verb != verbNone }
func (c *command) Length() int64               { return c.length }
func (c *command) Noreply() bool               { return c.noreply }
func (c *command) Key() *queueKey              { return &c.key }

// ParsedKey is what a key means.
type ParsedKey struct {
	Name, Tag, Dedup           string
	WaitMS, LeaseS, DelayS     int64
	Priority                   uint32
	Batch                      int
	Receipt                    uint64
	Open, Close, Abort, Peek   bool
	Reserves, Malformed, Wrong bool
}

// ParseKey parses raw for the family of verbs: get, set, delete, touch or none.
func ParseKey(raw []byte, family string, plain bool) ParsedKey {
	allowed := map[string]optionSet{"get": getOptions, "set": setOptions, "delete": deleteOptions, "touch": touchOptions}[family]
	var k queueKey
	f := k.parse(raw, allowed, plain)
	return ParsedKey{
		Name: string(k.name), Tag: string(k.tag), Dedup: string(k.dedup),
		WaitMS: k.wait.Milliseconds(), LeaseS: int64(k.lease.Seconds()), DelayS: int64(k.delay.Seconds()),
		Priority: k.priority, Batch: k.batch, Receipt: k.receipt,
		Open: k.options&optOpen != 0, Close: k.options&optClose != 0, Abort: k.options&optAbort != 0, Peek: k.options&optPeek != 0,
		Reserves: k.reserves(), Malformed: f == keyMalformed, Wrong: f == keyOption,
	}
}

// ReparseDetached parses raw, moves it to memory of its own, wipes the line and returns what the key means then.
func ReparseDetached(raw []byte) (name, tag, dedup, whole string) {
	var k queueKey
	line := append([]byte("set "), raw...)
	k.parse(line[4:], setOptions|getOptions, false)
	k.detach()
	clear(line)
	return string(k.name), string(k.tag), string(k.dedup), string(k.raw)
}

var NumericVersion = numericVersion

// Seats is how many seats are taken.
func (s *Server) Seats() int { return int(s.seats.Load()) }

const (
	MaxLine    = maxLine
	MaxGetLine = maxGetLine
	MaxSwallow = maxSwallow
)

type MetaCommand = metaCommand

// Parse parses a meta command's line behind its verb.
func (m *metaCommand) Parse(verb string, line []byte) (refused bool) {
	if verb == "ms" {
		return m.parseSet(line) != faultNone
	}
	return m.parse(line, map[string]letters{"mg": getFlags, "md": deleteFlags, "ma": arithmeticFlags}[verb]) != faultNone
}

// Patience is patience, to be tested by itself.
type Patience struct{ p patience }

func (p *Patience) Left() bool { return p.p.left() }
func (p *Patience) InVain()    { p.p.inVain() }
func (p *Patience) Reset()     { p.p.reset() }
