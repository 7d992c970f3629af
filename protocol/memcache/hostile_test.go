package memcache_test

import (
	"net"
	"testing"
	"testing/synctest"

	"qserver/protocol/memcache"
	"qserver/storage"
)

const (
	format  = "CLIENT_ERROR bad command line format\r\n"
	version = "VERSION 1.2.3\r\n"
	chunk   = "CLIENT_ERROR bad data chunk\r\n"
	large   = "SERVER_ERROR object too large for cache\r\n"
	usage   = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"
)

// TestHostileInputs sends each odd input whole, byte by byte and in random pieces. A test's name begins with the number of
// its row in the table of odd inputs; the rows about time, limits and half-closed connections have tests of their own. Each runs
// with a message in queue victim that must survive, and where the connection lives on it must be in step.
func TestHostileInputs(t *testing.T) {
	s := start(t, tcp, func(s *memcache.Server, o *storage.Options) { s.MaxItemSize, o.Sync = 1024, storage.SyncNever })
	k250, k251 := repeat("k", 250), repeat("k", 251)
	for _, tt := range []struct {
		name, in, want string
		closed         bool
	}{
		{"01 empty line", "\r\n", "ERROR\r\n", false},
		{"02 unknown verb", "foo\r\nversion\r\n", "ERROR\r\n" + version, false},
		{"03 upper case get", "GET a\r\n", "END\r\n", false},
		{"03 upper case set", "SET q 0 0 3\r\nabc\r\n", "STORED\r\n", false},
		{"04 get without key", "get\r\n", "ERROR\r\n", false},
		{"04 get and a blank", "get \r\n", "ERROR\r\n", false},
		{"05 get K250", "get " + k250 + "\r\n", "END\r\n", false},
		{"06 get K251", "get " + k251 + "\r\n", format, false},
		{"06 get a K251", "get a " + k251 + "\r\n", format, false},
		{"07 set K251", "set " + k251 + " 0 0 1\r\nx\r\nversion\r\n", format + version, false},
		{"08 set K251 with a command for a body", "set " + k251 + " 0 0 11\r\nflush_all\r\n\r\n", format, false},
		{"09 length missing", "set a 0 0\r\nhello\r\n", format, true},
		{"09 only the verb", "set\r\n", format, true},
		{"10 length -1", "set a 0 0 -1\r\nflush_all\r\n", format, true},
		{"11 length -0", "set a 0 0 -0\r\n\r\n", format, true},
		{"12 length 2147483646", "set a 0 0 2147483646\r\n", format, true},
		{"12 length 2147483647", "set a 0 0 2147483647\r\n", format, true},
		{"12 length 2147483648", "set a 0 0 2147483648\r\n", format, true},
		{"12 length 4294967295", "set a 0 0 4294967295\r\n", format, true},
		{"13 length 4294967296", "set a 0 0 4294967296\r\nversion\r\n", format, true},
		{"14 length 2^63", "set a 0 0 9223372036854775808\r\nversion\r\n", format, true},
		{"14 length 2^64-1", "set a 0 0 18446744073709551615\r\nversion\r\n", format, true},
		{"14 length of 23 nines", "set a 0 0 99999999999999999999999\r\nversion\r\n", format, true},
		{"15 length 0x10", "set a 0 0 0x10\r\nversion\r\n", format, true},
		{"15 length 1e3", "set a 0 0 1e3\r\nversion\r\n", format, true},
		{"15 length abc", "set a 0 0 abc\r\nversion\r\n", format, true},
		{"15 length 3x", "set a 0 0 3x\r\nabc\r\n", format, true},
		{"15 length 3.0", "set a 0 0 3.0\r\nabc\r\n", format, true},
		{"16 length +5", "set a 0 0 +5\r\nhello\r\n", format, true},
		{"17 length 00000003", "set a 0 0 00000003\r\nabc\r\n", "STORED\r\n", false},
		{"17 length of 11 digits", "set a 0 0 00000000003\r\nabc\r\n", format, true},
		{"18 length 2147483645", "set a 0 0 2147483645\r\nabc", large, true},
		{"18 just over 256 MiB", "set a 0 0 268435457\r\nabc", large, true},
		{"19 one byte over the limit", "set a 0 0 1025\r\n" + repeat("x", 1025) + "\r\nversion\r\n", large + version, false},
		{"19 at the limit", "set a 0 0 1024\r\n" + repeat("x", 1024) + "\r\n", "STORED\r\n", false},
		{"20 too large for a queue with messages", "set victim 0 0 2048\r\n" + repeat("x", 2048) + "\r\n", large, false},
		{"21 empty body", "set z 0 0 0\r\n\r\nget z\r\n", "STORED\r\nVALUE z 0 0\r\n\r\nEND\r\n", false},
		{"22 body longer than said", "set a 0 0 3\r\nabcdef\r\nversion\r\n", chunk, true},
		{"23 body shorter than said", "set a 0 0 10\r\nabc\r\nget a\r\nversion\r\n", "STORED\r\n" + version, false},
		{"24 abcX", "set q 0 0 3\r\nabcX\r\n", chunk, true},
		{"24 abc CR CR LF", "set q 0 0 3\r\nabc\r\r\n", chunk, true},
		{"24 ab CR LF CR LF", "set q 0 0 3\r\nab\r\n\r\n", chunk, true},
		{"25 body ends in LF only", "set q 0 0 3\r\nabc\nversion\r\n", chunk, true},
		{"26 line ends in LF only", "version\nget a\nset a 0 0 1\nx\r\n", version + "END\r\nSTORED\r\n", false},
		{"26 two CRs", "version\r\r\n", "ERROR\r\n", false},
		{"27 CRLF and NUL in a body", "set a 0 0 5\r\n\r\n\x00\r\n\r\nget a\r\n", "STORED\r\nVALUE a 0 5\r\n\r\n\x00\r\n\r\nEND\r\n", false},
		{"28 NUL in a key", "set a\x00b 0 0 1\r\nx\r\n", format, false},
		{"28 NUL in a key, length unreadable", "set a\x00b 0 0 x\r\nx\r\n", format, true},
		{"29 tab in a key", "set a\tb 0 0 1\r\nx\r\n", format, false},
		{"29 DEL in a key", "set a\x7fb 0 0 1\r\nx\r\n", format, false},
		{"29 tab in a get", "get a\tb\r\n", format, false},
		{"30 UTF-8 key", "set q\xc3\xa9 0 0 1\r\nx\r\nget q\xc3\xa9\r\n", "STORED\r\nVALUE q\xc3\xa9 0 1\r\nx\r\nEND\r\n", false},
		{"31 bare CR in a line", "get a\rb\r\n", format, false},
		{"32 flags -1", "set a -1 0 1\r\nx\r\n", format, false},
		{"33 flags 4294967295", "set a 4294967295 0 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 4294967295 1\r\nx\r\nEND\r\n", false},
		{"34 flags 4294967296", "set a 4294967296 0 1\r\nx\r\n", format, false},
		{"35 exptime -1", "set a 0 -1 1\r\nx\r\nget a\r\n", "STORED\r\nEND\r\n", false},
		{"35 exptime abc", "set a 0 abc 1\r\nx\r\n", format, false},
		{"35 exptime 2^31", "set a 0 2147483648 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n", false},
		{"35 exptime 2^63", "set a 0 9223372036854775808 1\r\nx\r\n", format, false},
		{"36 noreply set, then get", "set a 0 0 1 noreply\r\nx\r\nget a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n", false},
		{"37 noreply and too large", "set a 0 0 2048 noreply\r\n" + repeat("x", 2048) + "\r\n", "", false},
		{"38 noreply and a bad length", "set a 0 0 x noreply\r\nversion\r\n", "", true},
		{"38 noreply for a length", "set a 0 0 noreply\r\nversion\r\n", "", true},
		{"39 noreply and K251", "set " + k251 + " 0 0 11 noreply\r\nflush_all\r\n\r\n", "", false},
		{"40 noreply and a body too long", "set a 0 0 3 noreply\r\nabcdef\r\nversion\r\n", "", true},
		{"41 norepl", "set a 0 0 1 norepl\r\nx\r\n", format, false},
		{"41 NOREPLY", "set a 0 0 1 NOREPLY\r\nx\r\n", format, false},
		{"42 words after noreply", "set a 0 0 1 noreply x\r\nx\r\n", "ERROR\r\n", false},
		{"42 more words after noreply", "set a 0 0 1 noreply x y z\r\nx\r\n", "ERROR\r\n", false},
		{"43 delete nope", "delete nope\r\n", "NOT_FOUND\r\n", false},
		{"44 delete d 0", "delete d 0\r\n", "NOT_FOUND\r\n", false},
		{"44 delete d 0 noreply", "delete d 0 noreply\r\n", "", false},
		{"44 delete d noreply", "delete d noreply\r\n", "", false},
		{"45 delete d 5", "delete d 5\r\n", usage, false},
		{"45 delete d junk", "delete d junk\r\n", usage, false},
		{"45 delete d 0 junk", "delete d 0 junk\r\n", usage, false},
		{"46 delete", "delete\r\n", "ERROR\r\n", false},
		{"46 delete K251", "delete " + k251 + "\r\n", format, false},
		{"47 cas without unique", "cas a 0 0 1\r\nx\r\n", format, false},
		{"47 cas with abc", "cas a 0 0 1 abc\r\nx\r\n", format, false},
		{"48 incr on a queue", "incr victim 1\r\n", "NOT_FOUND\r\n", false},
		{"48 incr by -1", "incr a -1\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n", false},
		{"48 incr by 2^64", "incr a 18446744073709551616\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n", false},
		{"49 the same name 1000 times", "set a 0 0 1 noreply\r\n1\r\nset a 0 0 1 noreply\r\n2\r\nget" + repeat(" a", 1000) + "\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n", false},
		{"51 over 8 KiB without newline", repeat("x", 8194), "CLIENT_ERROR line too long\r\n", true},
		{"51 over 8 KiB in one line", "set " + repeat("x", 8200) + "\r\n", "CLIENT_ERROR line too long\r\n", true},
		{"51 get over 64 KiB without newline", "get " + repeat("a ", 32770), "CLIENT_ERROR line too long\r\n", true},
		{"51 get of 64 KiB", "get" + repeat(" a", 32766) + "\r\n", "END\r\n", false},
		{"53 8,000 x A", repeat("A", 8000) + "\r\nversion\r\n", "ERROR\r\n" + version, false},
		{"55 TLS hello", "\x16\x03\x01\x02\x00\x01\x00", "", true},
		{"56 GET / HTTP/1.1", "GET / HTTP/1.1\r\nHost: a\r\n\r\nset pwned 0 0 1\r\nx\r\n", "", true},
		{"56 PUT", "PUT /x HTTP/1.1\r\n", "", true},
		{"56 OPTIONS", "OPTIONS * HTTP/1.1\r\n", "", true},
		{"56 DELETE", "DELETE /x HTTP/1.1\r\n", "", true},
		{"56 HTTP/2 preface", "PRI * HTTP/2.0\r\n", "", true},
		{"56 lower-case get is unaffected", "get a HTTP/1.1\r\n", "CLIENT_ERROR unknown queue option (see -key-options)\r\n", false},
		{"57 POST with a set", "POST /x HTTP/1.1\r\nHost: a\r\n\r\nset pwned 0 0 1\r\nx\r\n", "", true},
		{"57 POST", "POST\r\n", "", true},
		{"57 Host", "Host: a\r\n", "", true},
		{"58 leading space", " get a\r\n", "END\r\n", false},
		{"58 trailing spaces", "get a   \r\nversion  \r\n", "END\r\n" + version, false},
		{"60 three commands in one packet", "version\r\nget a\r\nfoo\r\n", version + "END\r\nERROR\r\n", false},
		{"63 version foo", "version foo\r\n", version, false},
		{"63 quit foo", "quit foo\r\nversion\r\n", "", true},
		{"64 shutdown", "shutdown\r\n", "ERROR\r\n", false},
		{"65 flush_all", "flush_all\r\n", "CLIENT_ERROR flush_all not allowed\r\n", false},
		{"65 flush_all -1", "flush_all -1\r\n", "CLIENT_ERROR flush_all not allowed\r\n", false},
		{"66 stats bogus", "stats bogus\r\n", "END\r\n", false},
		{"66 stats reset", "stats reset\r\n", "RESET\r\n", false},
		{"67 verbosity", "verbosity\r\n", "ERROR\r\n", false},
		{"67 verbosity 1", "verbosity 1\r\n", "OK\r\n", false},
		{"68 version and two LFs", "version\n\n\n", version + "ERROR\r\nERROR\r\n", false},
		{"69 mn", "mn\r\n", "MN\r\n", false},
		{"69 mg", "mg\r\n", "ERROR\r\n", false},
		{"69 ms a -1", "ms a -1\r\n", format, true},
		{"69 ms", "ms\r\n", format, true},
		{"69 ms a", "ms a\r\n", format, true},
		{"69 ms a T0 5", "ms a T0 5\r\nhello\r\n", format, true},
		{"69 ms K251", "ms " + k251 + " 11\r\nflush_all\r\n\r\n", format, false},
		{"69 ms too large", "ms a 1025 q k O1\r\n" + repeat("x", 1025) + "\r\nmn\r\n", large + "MN\r\n", false},
		{"69 ms far too large", "ms a 268435457\r\nabc", large, true},
		{"69 ms with a body too long", "ms a 3\r\nabcdef\r\n", chunk, true},
		{"69 ms with an unknown flag", "ms a 11 z\r\nflush_all\r\n\r\n", "CLIENT_ERROR invalid flag\r\n", false},
		{"69 mg with a key of NUL", "mg a\x00b v\r\n", format, false},
		{"69 mg with a key of NUL in base64", "mg AA== b v\r\n", format, false},
		{"69 me", "me\r\n", format, false},
		{"69 md", "md\r\n", "ERROR\r\n", false},
		{"69 ma", "ma\r\n", "ERROR\r\n", false},
		{"70 NUL", "\x00\r\n", "ERROR\r\n", false},
		{"70 FF FE", "\xff\xfe\r\n", "ERROR\r\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := s.with(t)
			for way, size := range splits(1) {
				s.dial().do("set victim 0 0 1\r\nv\r\n", "STORED\r\n")
				c := s.dial()
				c.sendSplit(tt.in, size)
				c.want(tt.want)
				if tt.closed {
					c.wantEnd()
				} else {
					c.wantOpen()
				}
				if got := s.queue("victim"); got.Items != 1 || got.Ready != 1 {
					t.Errorf("%s: victim: got %+v, want its one message", way, got)
				}
				if _, there := s.store.Queue([]byte("pwned")); there {
					t.Errorf("%s: a body was run as a command", way)
				}
				if _, err := s.store.PurgeAll(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The rows in which time passes. A connection that has not completed a command has its deadlines; afterwards it may stall.
func TestHostileSilence(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		drip     string // sent once every half second
		limit    float64
	}{
		{"50 2,047 bytes without newline", repeat("x", 2047), "", 10},
		{"72 silent connection", "", "", 10},
		{"72 drip of one byte in the line", "x", "x", 10},
		{"72 stuck in a body", "set a 0 0 100\r\nabc", "", 10},
		{"72 drip in a body", "set a 0 0 131072\r\nabc", "x", 12},
		{"72 stuck in a swallowed body", "set a\x01 0 0 131072\r\nabc", "", 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *server) {
				c := s.dial()
				c.send(tt.in)
				for waited := 0.0; waited < tt.limit-0.5; waited += 0.5 {
					select {
					case <-c.done:
						t.Fatalf("closed after %v s, want %v s", waited, tt.limit)
					default:
					}
					sleep(0.5)
					c.send(tt.drip)
				}
				sleep(1)
				synctest.Wait()
				c.take(100) // a refused body has had its answer
				c.wantEnd()
				if got := s.queue("a").TotalItems; got != 0 {
					t.Errorf("got %d messages, want none", got)
				}
			})
		})
	}
}

func TestHostile72StallsAfterACommandAreAllowed(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *server) {
		line, body := s.dial(), s.dial()
		line.wantOpen()
		body.wantOpen()
		line.send("vers")
		body.send("set a 0 0 5\r\nab")
		sleep(3600)
		line.do("ion\r\n", version)
		body.do("cde\r\n", "STORED\r\n")
	})
}

func TestHostile61HalfCloseAfterACommand(t *testing.T) {
	s := start(t, tcp, nil)
	c := s.dial()
	c.send("version\r\nget q\r\n")
	c.want(version + "END\r\n")
	c.close()
	c = s.dial()
	c.send("get q/t=60000\r\n")
	c.nc.(*net.TCPConn).CloseWrite()
	c.want("END\r\n")
	c.wantEnd()
}

func TestHostile62HalfCloseInABody(t *testing.T) {
	s := start(t, tcp, nil)
	c := s.dial()
	c.send("set q 0 0 10\r\nabc")
	c.close()
	if got := s.queue("q").TotalItems; got != 0 {
		t.Errorf("got %d messages, want none", got)
	}
}
