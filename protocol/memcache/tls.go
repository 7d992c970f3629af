package memcache

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// ServeTLS is Serve with TLS. A handshake is its connection's business and holds up nobody else. For certificates that change
// while it runs config has GetConfigForClient.
func (s *Server) ServeTLS(ln net.Listener, config *tls.Config) error {
	return s.Serve(&tlsListener{ln, config, s})
}

type tlsListener struct {
	net.Listener
	config *tls.Config
	srv    *Server
}

func (l *tlsListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tune(nc)
	return tls.Server(&patientConn{nc, l.srv}, l.config), nil
}

// patientConn is what a TLS connection writes to. A record that is sent in part can't be taken back: after a write deadline TLS
// is out of order for good. So whether the peer makes progress is seen to here, below it, and deadlines of writing have no effect.
type patientConn struct {
	net.Conn
	srv *Server
}

// errStalled is the end of a peer that reads nothing.
var errStalled = errors.New("the peer has read nothing for 30 s")

func (p *patientConn) SetWriteDeadline(time.Time) error { return nil }

func (p *patientConn) SetDeadline(t time.Time) error { return p.SetReadDeadline(t) }

func (p *patientConn) Write(b []byte) (sent int, err error) {
	for last := time.Now(); ; {
		p.Conn.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := p.Conn.Write(b[sent:])
		sent += n
		switch {
		case err == nil || !errors.Is(err, os.ErrDeadlineExceeded):
			return sent, err
		case n > 0:
			last = time.Now()
		case time.Since(last) >= stalled:
			p.srv.totals[slowClosed].Add(1)
			return sent, errStalled
		}
	}
}

// handshake completes TLS's. false: the connection ends.
func (c *conn) handshake(t *tls.Conn) bool {
	err := t.Handshake()
	if err == nil {
		return true
	}
	c.counts[handshakeErrors]++
	c.end(closeNow)
	plain, isPlain := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.counts[timeouts]++
	case isPlain && plain.Conn != nil:
		c.srv.note(c.host(), "a client without TLS was disconnected", "peer", c.peer)
		if plain.RecordHeader[0] != binaryRequest {
			io.WriteString(plain.Conn, "CLIENT_ERROR this port speaks TLS only\r\n")
		}
	case !errors.Is(err, io.EOF): // who only looks whether the port is open is nothing to tell
		c.srv.note(c.host(), "TLS handshake failed", "peer", c.peer, "error", err)
	}
	return false
}

// noteTLS logs a TLS client where there is no TLS.
func (c *conn) noteTLS() {
	c.srv.note(c.host(), "a TLS client on the plain port was disconnected", "peer", c.peer)
}

// tune sets what each TCP connection is to have.
func tune(nc net.Conn) {
	if tcp, ok := nc.(*net.TCPConn); ok {
		tcp.SetNoDelay(true)
		tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3})
	}
}

// cut closes a connection from outside, without TLS's goodbye, which might have to wait for the peer.
func cut(nc net.Conn) {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	nc.Close()
}

// peerName is what logs and limits know a connection's other end by.
func peerName(nc net.Conn) string {
	addr := nc.RemoteAddr()
	if addr.Network() == "unix" {
		return "unix"
	}
	return addr.String()
}
