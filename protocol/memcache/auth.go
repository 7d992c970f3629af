package memcache

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"os"
	"time"
)

// Accounts says who may log in. Many connections ask it at a time.
type Accounts interface {
	// Known says whether there is a user of that name.
	Known(user string) bool

	// Remembers says at once whether a login is known to be right: false means that Verify must be asked.
	Remembers(user, password string) bool

	// Verify says whether the password is the user's. It may take the time of a slow hash; once ctx is over it is false.
	Verify(ctx context.Context, user, password string) bool
}

// What a peer may do before it is let in.
const (
	enterTime  = 5 * time.Second // to complete the TLS handshake and the login
	maxLogin   = 1 << 10         // bytes of a line, a body, a frame
	maxWrong   = 3               // wrong logins
	maxRefused = 16              // other commands
)

const replyUnauthenticated = "CLIENT_ERROR unauthenticated\r\n"

// enter does what comes before a connection's first command: the TLS handshake, and the login where the server has accounts. It
// waits and reads in its own way, past the connection's buffers, so it needs a goroutine; what came behind the login is in c.in
// afterwards. false: the connection ends.
func (c *conn) enter() bool {
	t, overTLS := c.nc.(*tls.Conn)
	if !overTLS && c.srv.Accounts == nil {
		return true
	}
	c.srv.busy.Add(-1)
	defer c.srv.busy.Add(1)
	d := &door{c: c, until: time.Now().Add(enterTime), buf: make([]byte, 0, smallBuffer)}
	c.nc.SetDeadline(d.until)
	if c.srv.stopping.Load() || overTLS && !c.handshake(t) {
		return false
	}
	if c.srv.Accounts != nil {
		if !d.login() {
			return false
		}
		c.completed = true // it may take its time from here on
	}
	c.nc.SetDeadline(time.Time{})
	c.in.preload(d.buf)
	return true
}

// preload puts bytes that were read already where fill puts those that it reads. The buffer is empty, and large enough.
func (in *input) preload(b []byte) {
	if len(b) > 0 {
		in.room()
		in.w += copy(in.buf[in.w:], b)
	}
}

// door is where a connection waits to be let in.
type door struct {
	c       *conn
	until   time.Time
	buf     []byte // has arrived and is not used up
	wrong   int    // wrong logins
	refused int    // other commands
}

// login lets a peer log in, by memcached's text protocol or by SASL. false: the connection ends.
func (d *door) login() bool {
	if !d.arrived(1) {
		return false
	}
	switch d.buf[0] {
	case tlsHandshake:
		d.c.noteTLS()
		d.c.end(closeQuiet)
	case binaryRequest:
		return d.loginBinary()
	}
	for d.c.ending == goOn {
		if line, ok := d.line(); ok && d.command(line) {
			return true
		}
	}
	return false
}

// command answers one line. true: it was the login. memcached takes the words of a `set`, whatever its key, for user and password.
func (d *door) command(line []byte) bool {
	c := d.c
	c.cmd.parse(line)
	switch c.cmd.verb {
	case verbQuit:
		c.end(closeQuiet)
	case verbHTTP:
		c.execute()
	case verbSet:
		body, ok := d.body(3)
		return ok && d.words(body)
	case verbAdd, verbReplace, verbAppend, verbPrepend, verbCas:
		if _, ok := d.body(3); ok {
			d.refuse()
		}
	case verbMetaSet:
		if _, ok := d.body(1); ok {
			d.refuse()
		}
	default:
		d.refuse()
	}
	return false
}

// words is a login by `set`. The password is all that follows the first blank.
func (d *door) words(body []byte) bool {
	user, password, ok := bytes.Cut(body, []byte(" "))
	if !ok || len(user) == 0 || len(password) == 0 {
		d.say("CLIENT_ERROR bad authentication token format\r\n")
		d.failed()
		return false
	}
	if !d.attempt(string(user), string(password)) {
		d.say(replyUnauthenticated)
		return false
	}
	return d.say(replyStored) // also where the client said noreply, as memcached does
}

// body uses up the body of the parsed command, whose length is the word behind the first skip of its arguments. A length that is
// none, or too large, and a body that does not end with CRLF, end the connection: nobody knows where the next command begins.
func (d *door) body(skip int) ([]byte, bool) {
	word, rest := token(d.c.cmd.args)
	for range skip {
		word, rest = token(rest)
	}
	n, ok := parseUint(word)
	if !ok || n > maxLogin {
		d.say(replyUnauthenticated)
		d.c.end(closeLinger)
		return nil, false
	}
	if !d.arrived(int(n) + 2) {
		return nil, false
	}
	body := d.buf[:n]
	if string(d.buf[n:n+2]) != "\r\n" {
		d.say(replyChunk)
		d.c.end(closeLinger)
		return nil, false
	}
	d.buf = d.buf[n+2:]
	return body, true
}

// attempt checks a login. A wrong one is counted, logged without what was sent, and answered late.
func (d *door) attempt(user, password string) bool {
	s, c := d.c.srv, d.c
	ctx, cancel := context.WithDeadline(context.Background(), d.until)
	defer cancel()
	go func() {
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	name := user
	if !s.Accounts.Known(user) {
		name = ""
	}
	turn, ok := s.attempts.enter(guesser{c.host(), name})
	if !ok {
		d.late()
		return false
	}
	defer s.attempts.leave(turn)
	right := s.Accounts.Remembers(user, password)
	if !right {
		if !turn.begin(ctx) {
			d.late()
			return false
		}
		defer turn.end()
		right = s.Accounts.Verify(ctx, user, password)
	}
	right = right && s.letIn(c, user)
	if !right && ctx.Err() != nil {
		d.late()
		return false
	}
	if c.counts[authCmds]++; !right {
		c.counts[authErrors]++
	}
	c.publish()
	if right {
		return true
	}
	if name == "" {
		name = "(unknown)"
	}
	s.note(c.host(), "login refused", "peer", c.peer, "user", name)
	select {
	case <-time.After(penalty):
	case <-ctx.Done():
	}
	d.failed()
	return false
}

// letIn notes whose connection it is. false: the user's account is gone by now.
func (s *Server) letIn(c *conn, user string) bool {
	s.mu.Lock()
	c.user = user
	s.mu.Unlock()
	return s.Accounts.Known(user)
}

// CloseUsers closes the connections of the users for whom gone is true, and says how many. What they hold without a lease goes back.
func (s *Server) CloseUsers(gone func(user string) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for c := range s.conns {
		if c.user != "" && gone(c.user) {
			c.abort()
			n++
		}
	}
	return n
}

// failed counts a wrong login.
func (d *door) failed() {
	if d.wrong++; d.wrong >= maxWrong {
		d.c.end(closeLinger)
	}
}

// refuse answers a command that only those who are in may give.
func (d *door) refuse() {
	d.say(replyUnauthenticated)
	if d.refused++; d.refused >= maxRefused {
		d.c.end(closeLinger)
	}
}

// late ends a connection that had no time left.
func (d *door) late() {
	d.c.counts[timeouts]++
	d.c.end(closeQuiet)
}

// line returns the next line without its end. It is valid until the next read.
func (d *door) line() ([]byte, bool) {
	for {
		line, rest, ok := bytes.Cut(d.buf, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(line) > maxLogin {
			d.say(replyLine)
			d.c.end(closeLinger)
			return nil, false
		}
		if ok {
			d.buf = rest
			return line, true
		}
		if !d.read() {
			return nil, false
		}
	}
}

// arrived waits until n bytes are there, which is less than the buffer holds.
func (d *door) arrived(n int) bool {
	for len(d.buf) < n {
		if !d.read() {
			return false
		}
	}
	return true
}

// read reads once. false: the connection ends.
func (d *door) read() bool {
	if cap(d.buf)-len(d.buf) < maxLogin {
		d.buf = append(make([]byte, 0, smallBuffer), d.buf...)
	}
	n, err := d.c.nc.Read(d.buf[len(d.buf):cap(d.buf)])
	d.buf = d.buf[:len(d.buf)+n]
	d.c.in.arrived += uint64(n)
	switch {
	case n > 0 || err == nil:
		return true
	case errors.Is(err, os.ErrDeadlineExceeded):
		d.late()
	case errors.Is(err, io.EOF):
		d.c.end(closeQuiet)
	default:
		d.c.end(closeNow)
	}
	return false
}

// say sends a reply at once, unless there is nothing more to say. false: the connection ends.
func (d *door) say(reply string) bool {
	if d.c.ending != goOn && d.c.ending != closeLinger {
		return false
	}
	d.c.nc.SetWriteDeadline(time.Now().Add(time.Second))
	_, err := io.WriteString(d.c.nc, reply)
	d.c.counts[bytesWritten] += uint64(len(reply))
	if err != nil {
		d.c.end(closeNow)
	}
	return err == nil
}
