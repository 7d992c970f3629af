package memcache_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

// opNames are the opcodes by name, as the binary transcripts write them.
var opNames = map[string]byte{
	"GET": 0x00, "SET": 0x01, "ADD": 0x02, "REPLACE": 0x03, "DELETE": 0x04, "INCREMENT": 0x05, "DECREMENT": 0x06, "QUIT": 0x07, "FLUSH": 0x08,
	"GETQ": 0x09, "NOOP": 0x0a, "VERSION": 0x0b, "GETK": 0x0c, "GETKQ": 0x0d, "APPEND": 0x0e, "PREPEND": 0x0f, "STAT": 0x10, "SETQ": 0x11,
	"ADDQ": 0x12, "REPLACEQ": 0x13, "DELETEQ": 0x14, "INCREMENTQ": 0x15, "DECREMENTQ": 0x16, "QUITQ": 0x17, "FLUSHQ": 0x18, "APPENDQ": 0x19,
	"PREPENDQ": 0x1a, "VERBOSITY": 0x1b, "TOUCH": 0x1c, "GAT": 0x1d, "GATQ": 0x1e, "SASLLIST": 0x20, "SASLAUTH": 0x21, "SASLSTEP": 0x22, "GATK": 0x23, "GATKQ": 0x24, "RGET": 0x30,
}

func opName(code byte) string {
	for _, name := range slices.Sorted(maps.Keys(opNames)) {
		if opNames[name] == code {
			return name
		}
	}
	return fmt.Sprintf("%#x", code)
}

// TestBinaryTranscripts plays the files of testdata/binary. Their form is that of the other transcripts, except that what is sent
// and received are frames:
//
//	C1> OP field=…        fields of a request: key, value, opaque, cas, flags, exptime; extras=hex overrides what the opcode has
//	C1> hex 80 0b …       bytes as they are
//	C1< OP status field=… fields of a reply, in this order, those that are 0 or empty left out: opaque, cas, flags, key, value
func TestBinaryTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/binary/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	seed := newSeed(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		timed := regexp.MustCompile(`(?m)^(sleep |C\d+ nothing)`).Match(text)
		for way, size := range splits(seed) {
			t.Run(name+"/pipe/"+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { playBinary(t, pipes, string(text), size) })
			})
			if !timed {
				t.Run(name+"/tcp/"+way, func(t *testing.T) { playBinary(t, tcp, string(text), size) })
			}
		}
	}
}

func playBinary(t *testing.T, kind transport, text string, size func() int) {
	p := &player{t: t, kind: kind, size: size, clients: map[string]*client{}, unsent: map[string]string{}, names: map[string]string{}}
	for i, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !p.binaryStep(line) {
			t.Fatalf("line %d: %s", i+1, line)
		}
	}
	p.sendAll()
	for name, c := range p.clients {
		if c.kind == pipes {
			if got := c.take(100); got != "" {
				t.Errorf("%s: left over: %q", name, got)
			}
		}
	}
}

func (p *player) binaryStep(line string) bool {
	m := regexp.MustCompile(`^(C\d+)([<>]) (.*)$`).FindStringSubmatch(line)
	if m == nil {
		return p.step(line)
	}
	if p.s == nil {
		p.s = start(p.t, p.kind, nil)
	}
	c := p.clients[m[1]]
	if c == nil {
		c = p.s.dial()
		p.clients[m[1]] = c
	}
	if m[2] == ">" {
		p.unsent[m[1]] += p.request(m[3])
		return true
	}
	p.sendAll()
	return p.reply(c, m[3])
}

// request makes the frame that a line describes.
func (p *player) request(line string) string {
	if digits, ok := strings.CutPrefix(line, "hex "); ok {
		b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil {
			p.t.Fatal(err)
		}
		return string(b)
	}
	words := strings.Split(line, " ")
	f := map[string]string{}
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		f[name] = p.expand(value)
	}
	number := func(name string) uint64 {
		if f[name] == "" {
			return 0
		}
		n, err := strconv.ParseInt(f[name], 10, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		return uint64(n)
	}
	code, known := opNames[words[0]]
	if !known {
		p.t.Fatalf("unknown opcode %s", words[0])
	}
	var extras []byte
	switch strings.TrimSuffix(words[0], "Q") {
	case "SET", "ADD", "REPLACE":
		extras = binary.BigEndian.AppendUint32(extras, uint32(number("flags")))
		extras = binary.BigEndian.AppendUint32(extras, uint32(number("exptime")))
	case "TOUCH", "GAT", "GATK":
		extras = binary.BigEndian.AppendUint32(extras, uint32(number("exptime")))
	case "INCREMENT", "DECREMENT":
		extras = make([]byte, 20)
	}
	if e, there := f["extras"]; there {
		extras, _ = hex.DecodeString(e)
	}
	return binaryRequest(code, extras, f["key"], f["value"], uint32(number("opaque")), number("cas"))
}

func binaryRequest(code byte, extras []byte, key, value string, opaque uint32, cas uint64) string {
	b := binary.BigEndian.AppendUint16([]byte{0x80, code}, uint16(len(key)))
	b = append(b, byte(len(extras)), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(extras)+len(key)+len(value)))
	b = binary.BigEndian.AppendUint32(b, opaque)
	b = binary.BigEndian.AppendUint64(b, cas)
	return string(b) + string(extras) + key + value
}

// reply checks the next frame received; it learns names that are new.
func (p *player) reply(c *client, want string) bool {
	var news []string
	form := regexp.MustCompile(`\\\{([A-Z]\w*|_)\\\}`).ReplaceAllStringFunc(regexp.QuoteMeta(p.expand(want)), func(s string) string {
		news = append(news, strings.Trim(s, `\{}`))
		return `(\d+)`
	})
	got := readReply(c)
	m := regexp.MustCompile("^" + form + "$").FindStringSubmatch(got)
	if m == nil {
		p.t.Errorf("got  %.300q\nwant %.300q", got, p.expand(want))
		return false
	}
	for i, name := range news {
		if name != "_" {
			p.names[name] = m[i+1]
		}
	}
	return true
}

// readReply reads a frame and describes it.
func readReply(c *client) string {
	h := c.take(24)
	if len(h) < 24 || h[0] != 0x81 {
		return fmt.Sprintf("no reply: %q", h)
	}
	b := []byte(h)
	body := c.take(int(binary.BigEndian.Uint32(b[8:])))
	extras, keyLen := int(h[4]), int(binary.BigEndian.Uint16(b[2:]))
	s := fmt.Sprintf("%s %04x", opName(h[1]), binary.BigEndian.Uint16(b[6:]))
	add := func(name string, n uint64) {
		if n != 0 {
			s += fmt.Sprintf(" %s=%d", name, n)
		}
	}
	add("opaque", uint64(binary.BigEndian.Uint32(b[12:])))
	add("cas", binary.BigEndian.Uint64(b[16:]))
	if len(body) < extras+keyLen {
		return s + fmt.Sprintf(" and a short body %q", body)
	}
	if extras == 4 {
		add("flags", uint64(binary.BigEndian.Uint32([]byte(body))))
	}
	if key := body[extras : extras+keyLen]; key != "" {
		s += " key=" + key
	}
	if value := body[extras+keyLen:]; value != "" {
		s += " value=" + value
	}
	return s
}

// TestBinaryLimits sends frames whose lengths contradict each other, or whose bodies are too large. What has a readable length stays
// in step, and no body runs as commands.
func TestBinaryLimits(t *testing.T) {
	s := start(t, tcp, serverOptions(t, "max-item=1024"))
	noop := binaryRequest(0x0a, nil, "", "", 7, 0)
	inner := binaryRequest(0x01, make([]byte, 8), "pwned", "x", 0, 0)
	set := func(key, value string) string { return binaryRequest(0x01, make([]byte, 8), key, value, 1, 0) }
	for _, tt := range []struct{ name, in, want string }{
		{"too large", set("q", repeat(inner, 30)), "SET 0003 opaque=1 value=Too large."},
		{"at the limit", set("q", repeat("x", 1024)), "SET 0000 opaque=1"},
		{"key too long", set(repeat("k", 251), inner), "SET 0004 opaque=1 value=Invalid arguments"},
		{"key of 250", set(repeat("k", 250), "x"), "SET 0000 opaque=1"},
		{"key with a blank", set("a b", inner), "SET 0004 opaque=1 value=Invalid arguments"},
		{"no key", set("", inner), "SET 0004 opaque=1 value=Invalid arguments"},
		{"bad option", set("q/bogus", inner), "SET 0004 opaque=1 value=unknown queue option (see -key-options)"},
		{"no extras", binaryRequest(0x01, nil, "q", inner, 1, 0), "SET 0004 opaque=1 value=Invalid arguments"},
		{"get with a value", binaryRequest(0x00, nil, "q", inner, 1, 0), "GET 0004 opaque=1 value=Invalid arguments"},
		{"key longer than the body", "\x80\x01\x00\x09\x08\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x01" + repeat("\x00", 8) + "abcd", "SET 0004 opaque=1 value=Invalid arguments"},
		{"unknown with a body", binaryRequest(0x55, make([]byte, 3), "key", inner, 1, 0), "0x55 0081 opaque=1 value=Unknown command"},
		{"append", binaryRequest(0x0e, nil, "q", inner, 1, 0), "APPEND 0005 opaque=1 value=Not stored."},
		{"SASL without accounts", binaryRequest(0x21, nil, "PLAIN", "\x00user\x00password", 1, 0), "SASLAUTH 0081 opaque=1 value=Unknown command"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for way, size := range splits(1) {
				c := s.with(t).dial()
				c.sendSplit(tt.in+noop, size)
				if got := readReply(c); got != tt.want && !strings.HasPrefix(got, tt.want+" cas=") {
					t.Errorf("%s: got %q, want %q", way, got, tt.want)
				}
				if got, want := readReply(c), "NOOP 0000 opaque=7"; got != want {
					t.Errorf("%s: got %q, want %q", way, got, want)
				}
			}
			if _, there := s.store.Queue([]byte("pwned")); there {
				t.Error("a body was run as a command")
			}
		})
	}
	for name, in := range map[string]string{
		"far too large": binaryRequest(0x01, nil, "", "", 1, 0)[:8] + "\xff\xff\xff\xff" + repeat("\x00", 12),
		"no magic":      noop + "version\r\n" + repeat("x", 30),
	} {
		t.Run(name, func(t *testing.T) {
			c := s.with(t).dial()
			c.send(in)
			readReply(c)
			c.wantEnd()
		})
	}
}

// A connection that has not completed a command must send a frame and its body in time.
func TestBinarySilence(t *testing.T) {
	for _, tt := range []struct{ name, in string }{
		{"header", "\x80\x01"},
		{"key", binaryRequest(0x00, nil, "queue", "", 0, 0)[:26]},
		{"body", binaryRequest(0x01, make([]byte, 8), "queue", "value", 0, 0)[:40]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *server) {
				c, done := s.dial(), s.dial()
				done.send(binaryRequest(0x0a, nil, "", "", 0, 0) + tt.in)
				c.send(tt.in)
				sleep(11)
				c.wantEnd()
				if got, want := readReply(done), "NOOP 0000"; got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				sleep(600)
				select {
				case <-done.done:
					t.Error("a connection with a completed command was closed")
				default:
				}
			})
		})
	}
}

// FuzzBinary plays arbitrary bytes as a stream of the binary protocol, and then as a script of well-formed requests, each followed by
// NOOP: every NOOP is answered, in order.
func FuzzBinary(f *testing.F) {
	f.Add([]byte(binaryRequest(0x01, make([]byte, 8), "q", "hello", 1, 0)+binaryRequest(0x0d, nil, "q", "", 2, 0)), byte(3))
	f.Add([]byte("\x00\x01q\x00\x09\x03q/n\x00\x1d\x04q/id\x04"), byte(30))
	s := fuzzServer(f)
	f.Fuzz(func(t *testing.T, data []byte, piece byte) {
		if len(data) > 1<<12 || strings.Contains(string(data), "/t=") {
			return
		}
		before := s.Stats().Panics
		quit := binaryRequest(0x17, nil, "", "", 0, 0)
		feedTo(t, s, []byte("\x80"+string(data)+quit), int(piece)+1)
		var stream []byte
		noops := 0
		for rest := data; len(rest) > 2; noops++ {
			code, key, extras := rest[0], min(int(rest[1]), len(rest)-2), int(rest[2])%24
			if code == 0x07 || code == 0x17 { // the end
				code = 0x0a
			}
			rest = rest[2:]
			n := min(len(rest)-key, int(code)*3)
			stream = append(stream, binaryRequest(code, make([]byte, extras), string(rest[:key]), string(rest[key:key+n]), 1, uint64(extras&1))...)
			stream = append(stream, binaryRequest(0x0a, nil, "", "", uint32(1000+noops), 0)...)
			rest = rest[key+n:]
			if len(stream) > 1<<16 {
				break
			}
		}
		got := exchange(t, s, append(stream, quit...), int(piece)+1)
		next := 0
		for len(stream) > 0 && len(got) >= 24 {
			n := 24 + int(binary.BigEndian.Uint32([]byte(got[8:])))
			if got[0] != 0x81 || len(got) < n {
				t.Fatalf("reply out of step: %q", got)
			}
			if opaque := binary.BigEndian.Uint32([]byte(got[12:])); opaque >= 1000 {
				if int(opaque) != 1000+next {
					t.Fatalf("got NOOP %d, want %d", opaque, 1000+next)
				}
				next++
			}
			got = got[n:]
		}
		if next < noops {
			t.Fatalf("got %d NOOPs of %d for %q", next, noops, data)
		}
		if n := s.Stats().Panics - before; n != 0 {
			t.Fatalf("%d panics for %q", n, data)
		}
	})
}
