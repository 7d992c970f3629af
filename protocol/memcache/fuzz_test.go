package memcache_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"qserver/protocol/memcache"
	"qserver/storage"
)

// fuzzServer is one for a whole fuzzing process.
func fuzzServer(f *testing.F) *server {
	store, err := storage.Open(f.TempDir(), storage.Options{Sync: storage.SyncNever})
	if err != nil {
		f.Fatal(err)
	}
	srv := &memcache.Server{Store: store, Version: "1.2.3", MaxItemSize: 1 << 16, AllowFlushAll: true}
	ln := newPipeListener()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	f.Cleanup(func() {
		srv.Close()
		<-served
		store.Close()
	})
	return &server{Server: srv, store: store, kind: pipes, pipes: ln, ln: ln}
}

// send dials, sends a stream in pieces of the given size and gathers what comes back. It fails if the server neither reads nor closes.
func send(t *testing.T, s *server, stream []byte, piece int) (net.Conn, <-chan string) {
	nc, err := s.pipes.Dial()
	if err != nil {
		t.Fatal(err)
	}
	nc.SetDeadline(time.Now().Add(patience))
	received := make(chan string, 1)
	go func() {
		var got bytes.Buffer
		io.Copy(&got, nc)
		received <- got.String()
	}()
	for len(stream) > 0 {
		n := min(piece, len(stream))
		if _, err := nc.Write(stream[:n]); err != nil {
			if err, ok := err.(net.Error); ok && err.Timeout() {
				t.Fatal("the server neither reads nor closes")
			}
			break
		}
		stream = stream[n:]
	}
	return nc, received
}

// feedTo sends a stream that may end inside a command or a body, and hangs up.
func feedTo(t *testing.T, s *server, stream []byte, piece int) {
	nc, received := send(t, s, stream, piece)
	nc.Close()
	<-received
}

// exchange sends a stream of whole commands, the last of which ends the connection, and returns all that came back.
func exchange(t *testing.T, s *server, stream []byte, piece int) string {
	nc, received := send(t, s, stream, piece)
	defer nc.Close()
	return <-received // the deadline ends it
}

// FuzzStream plays arbitrary bytes to a connection: no panic, no hang. Then it reads the same bytes as a script of commands, each
// followed by version: the replies must be in step.
func FuzzStream(f *testing.F) {
	for _, s := range []string{
		"set q 0 0 3\r\nabc\r\nget q\r\ndelete q\r\n", "get q/close/open q/peek\r\n", "set q/delay=1 0 0 3 noreply\r\nab", "\x80\x0b", "gat 5 q q\r\ntouch q 5\r\n",
		"cas q 0 0 1 5\r\nx\r\n", "flush_all\r\nstats\r\n", "GET / HTTP/1.1\r\n\r\n",
	} {
		f.Add([]byte(s), byte(3))
	}
	s := fuzzServer(f)
	f.Fuzz(func(t *testing.T, data []byte, piece byte) {
		if len(data) > 1<<12 {
			return
		}
		before := s.Stats().Panics
		if wait := regexp.MustCompile(`(?i)/t=`); !wait.Match(data) {
			feedTo(t, s, data, int(piece)+1)
		}
		stream, replies := script(data)
		got := exchange(t, s, append(stream, "\r\nquit\r\n"...), int(piece)+1)
		if form := regexp.MustCompile("(?s)^(?:" + replies + ")ERROR\r\n$"); !form.MatchString(got) {
			t.Fatalf("sent %q\ngot  %q\nwant %s", stream, got, replies)
		}
		if n := s.Stats().Panics - before; n != 0 {
			t.Fatalf("%d panics for %q", n, data)
		}
	})
}

// script turns fuzzed bytes into commands, each followed by version, and a pattern that their replies match.
func script(data []byte) (stream []byte, replies string) {
	var b bytes.Buffer
	var want strings.Builder
	next := func() byte {
		if len(data) == 0 {
			return 0
		}
		c := data[0]
		data = data[1:]
		return c
	}
	word := func(n int) string {
		n = min(n, len(data))
		w := strings.Map(func(r rune) rune {
			if r == '\n' || r == '=' { // no second line, no wait
				return 'n'
			}
			return r
		}, string(data[:n]))
		data = data[n:]
		return "k" + strings.ToValidUTF8(w, "?")
	}
	const line = `[A-Z_]+[^\n]*\r\n`
	const values = `(?:VALUE .*?\r\n)?(?:END|CLIENT_ERROR [^\n]*|ERROR)\r\n`
	for len(data) > 0 && b.Len() < 1<<16 {
		switch op := next() % 8; op {
		case 0, 1, 2:
			verb := []string{"set", "add", "cas"}[op]
			key, n := word(int(next()%32)), int(next())
			body := append([]byte(nil), data[:min(n, len(data))]...)
			body = append(body, make([]byte, n-len(body))...)
			fmt.Fprintf(&b, "%s %s %d %d %d", verb, noBlanks(key), int8(next()), int8(next()), n)
			if verb == "cas" {
				b.WriteString(" 7")
			}
			fmt.Fprintf(&b, "\r\n%s\r\n", body)
			want.WriteString(line)
		case 3, 4:
			fmt.Fprintf(&b, "%s %s\r\n", []string{"get", "gets"}[op-3], noBlanks(word(int(next()%64))))
			want.WriteString(values)
		case 5:
			fmt.Fprintf(&b, "delete %s\r\n", noBlanks(word(int(next()%64))))
			want.WriteString(line)
		case 6:
			fmt.Fprintf(&b, "touch %s %d\r\n", noBlanks(word(int(next()%64))), int8(next()))
			want.WriteString(line)
		case 7:
			fmt.Fprintf(&b, "Xx%s\r\n", noBlanks(word(int(next()%64))))
			want.WriteString(`ERROR\r\n`)
		}
		b.WriteString("version\r\n")
		want.WriteString(`VERSION 1\.2\.3\r\n`)
	}
	return b.Bytes(), want.String()
}

func noBlanks(s string) string { return strings.ReplaceAll(s, " ", "_") }
