package memcache_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"qserver/protocol/memcache"
	"qserver/storage"
)

// TestTranscripts plays the files of testdata/transcripts. A line is one of
//
//	# why                 a comment
//	server k=v …          options of the server, first thing in a file: wait, get, key-options, flush, ttl, max-item, max-held, dedup, accounts
//	C1> text              connection 1 sends text and CRLF; C1>> sends it without
//	C1< text              connection 1 receives text and CRLF; C1<< without
//	C1 close              the client closes
//	C1 end                the server has closed, and sent nothing more
//	C1 nothing            nothing was sent to connection 1 (files that play in a bubble only)
//	sleep 2s              time passes; such files play in a synctest bubble only
//
// In text, \r \n \t \0 \xHH \\ are escapes, {250*a} is 250 times a, and {R} in a received line keeps a number under the name R, for
// {R} in later lines; {_} is any number. Each file plays in every transport and way of splitting the stream.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txt")
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
				synctest.Test(t, func(t *testing.T) { play(t, pipes, string(text), size) })
			})
			if !timed {
				t.Run(name+"/tcp/"+way, func(t *testing.T) { play(t, tcp, string(text), size) })
			}
		}
	}
}

// player plays one transcript.
type player struct {
	t       *testing.T
	s       *server
	kind    transport
	size    func() int
	clients map[string]*client
	unsent  map[string]string // collected until something is expected
	names   map[string]string
}

func play(t *testing.T, kind transport, text string, size func() int) {
	p := &player{t: t, kind: kind, size: size, clients: map[string]*client{}, unsent: map[string]string{}, names: map[string]string{}}
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimRight(line, "\r"); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !p.step(line) {
			t.Fatalf("line %d: %s", i+1, line)
		}
	}
	p.sendAll()
	for name, c := range p.clients {
		if c.kind == pipes {
			synctest.Wait()
		}
		c.mu.Lock()
		if len(c.got) > 0 {
			t.Errorf("%s: left over: %q", name, c.got)
		}
		c.mu.Unlock()
	}
}

var stepForm = regexp.MustCompile(`^(C\d+)(>>|>|<<|<| )(?: ?)(.*)$`)

func (p *player) step(line string) bool {
	if options, ok := strings.CutPrefix(line, "server"); ok {
		p.s = start(p.t, p.kind, serverOptions(p.t, options))
		return true
	}
	if p.s == nil {
		p.s = start(p.t, p.kind, nil)
	}
	if d, ok := strings.CutPrefix(line, "sleep "); ok {
		p.sendAll()
		pause, err := time.ParseDuration(d)
		if err != nil {
			p.t.Fatal(err)
		}
		time.Sleep(pause)
		synctest.Wait()
		return true
	}
	m := stepForm.FindStringSubmatch(line)
	if m == nil {
		return false
	}
	c := p.clients[m[1]]
	if c == nil {
		c = p.s.dial()
		p.clients[m[1]] = c
	}
	switch m[2] {
	case ">":
		p.unsent[m[1]] += p.expand(m[3]) + "\r\n"
		return true
	case ">>":
		p.unsent[m[1]] += p.expand(m[3])
		return true
	}
	p.sendAll()
	switch m[2] {
	case "<":
		return p.expect(c, m[3]+`\r\n`)
	case "<<":
		return p.expect(c, m[3])
	}
	switch m[3] {
	case "close":
		c.close()
	case "end":
		c.wantEnd()
	case "nothing":
		c.wantNothing()
	default:
		return false
	}
	return true
}

func (p *player) sendAll() {
	for name, text := range p.unsent {
		delete(p.unsent, name)
		p.clients[name].sendSplit(text, p.size)
	}
}

var named = regexp.MustCompile(`\{([A-Z]\w*|_)\}`)

// expect checks the next line; it learns names that are new.
func (p *player) expect(c *client, text string) bool {
	if !named.MatchString(text) {
		want := p.expand(text)
		got := c.take(len(want))
		if got != want {
			p.t.Errorf("got  %q (then %q)\nwant %q", got, c.take(200), want)
		}
		return got == want
	}
	var news []string
	form := regexp.QuoteMeta(p.expand(strings.TrimSuffix(text, `\r\n`)))
	form = regexp.MustCompile(`\\\{([A-Z]\w*|_)\\\}`).ReplaceAllStringFunc(form, func(s string) string {
		news = append(news, strings.Trim(s, `\{}`))
		return `(\d+)`
	})
	got := c.line()
	m := regexp.MustCompile("^" + form + "$").FindStringSubmatch(got)
	if m == nil {
		p.t.Errorf("got  %q\nwant %q", got, text)
		return false
	}
	for i, name := range news {
		if name != "_" {
			p.names[name] = m[i+1]
		}
	}
	return true
}

var repeated = regexp.MustCompile(`\{(\d+)\*([^}]+)\}`)

func (p *player) expand(s string) string {
	s = repeated.ReplaceAllStringFunc(s, func(r string) string {
		m := repeated.FindStringSubmatch(r)
		n, _ := strconv.Atoi(m[1])
		return strings.Repeat(m[2], n)
	})
	for name, value := range p.names {
		s = strings.ReplaceAll(s, "{"+name+"}", value)
	}
	s, err := unescape(s)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			return "", fmt.Errorf("escape at the end of %q", s)
		}
		switch s[i] {
		case 'r':
			b.WriteByte('\r')
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case '0':
			b.WriteByte(0)
		case '\\':
			b.WriteByte('\\')
		case 'x':
			if i+2 >= len(s) {
				return "", fmt.Errorf("short escape in %q", s)
			}
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil {
				return "", err
			}
			b.WriteByte(byte(n))
			i += 2
		default:
			return "", fmt.Errorf("unknown escape in %q", s)
		}
	}
	return b.String(), nil
}

// serverOptions reads "wait=300ms get=open …".
func serverOptions(t *testing.T, text string) func(*memcache.Server, *storage.Options) {
	return func(s *memcache.Server, o *storage.Options) {
		for word := range strings.FieldsSeq(text) {
			name, value, _ := strings.Cut(word, "=")
			n, _ := strconv.Atoi(value)
			switch name {
			case "wait":
				s.Wait, _ = time.ParseDuration(value)
			case "get":
				s.GetMode = map[string]memcache.GetMode{"open": memcache.GetOpen, "remove": memcache.GetRemove}[value]
			case "key-options":
				s.NoKeyOptions = value == "off"
			case "flush":
				s.AllowFlushAll = value == "on"
			case "ttl":
				o.IgnoreTTL = value == "off"
			case "max-item":
				s.MaxItemSize = int64(n)
			case "max-held":
				o.MaxHeld = n
			case "accounts":
				s.Accounts = newAccounts()
			case "dedup":
				o.DedupWindow, _ = time.ParseDuration(value)
			default:
				t.Fatalf("unknown option %s", name)
			}
		}
	}
}
