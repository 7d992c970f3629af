package memcache_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"qserver/protocol/memcache"
	"qserver/storage"
)

// newCertificate is one that has signed itself, for the server's name in tests and for clients, and a pool with it.
func newCertificate(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "queue"}, DNSNames: []string{"queue"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(100 * 365 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// tlsServer is a server that speaks TLS on pipes.
type tlsServer struct {
	*server
	roots *x509.CertPool
	own   tls.Certificate
}

// tlsBubble runs f in a bubble with such a server. clients says whether it asks them for a certificate.
func tlsBubble(t *testing.T, clients tls.ClientAuthType, configure func(*memcache.Server, *storage.Options), f func(t *testing.T, s *tlsServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		own, roots := newCertificate(t)
		s := &tlsServer{server: start(t, pipes, configure), roots: roots, own: own}
		s.pipes = newPipeListener()
		served := make(chan error, 1)
		config := &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: clients, ClientCAs: roots}
		go func() { served <- s.ServeTLS(s.pipes, config) }()
		t.Cleanup(func() {
			s.Close()
			if err := <-served; !errors.Is(err, memcache.ErrServerClosed) {
				t.Errorf("ServeTLS: got %v, want ErrServerClosed", err)
			}
		})
		f(t, s)
	})
}

// raw is a connection below TLS.
func (s *tlsServer) raw() net.Conn {
	s.t.Helper()
	nc, err := s.pipes.Dial()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { nc.Close() })
	return nc
}

func (s *tlsServer) config(certificates ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: s.roots, ServerName: "queue", Certificates: certificates}
}

// dialTLS is a client over TLS, whose handshake is done with its first command.
func (s *tlsServer) dialTLS(certificates ...tls.Certificate) *client {
	s.t.Helper()
	c := &client{t: s.t, nc: tls.Client(s.raw(), s.config(certificates...)), kind: pipes, done: make(chan struct{})}
	c.moved = sync.NewCond(&c.mu)
	go c.receive()
	s.t.Cleanup(func() {
		cutClient(c.nc)
		<-c.done
	})
	return c
}

// cutClient ends a client's connection without TLS's goodbye, for which a pipe would need a reader.
func cutClient(nc net.Conn) { nc.(*tls.Conn).NetConn().Close() }

func TestTLS(t *testing.T) {
	tlsBubble(t, tls.NoClientCert, nil, func(t *testing.T, s *tlsServer) {
		a, b := s.dialTLS(), s.dialTLS()
		large := repeat("0123456789", 300_000)
		a.do("version\r\nset q 0 0 1\r\na\r\n", "VERSION 1.2.3\r\nSTORED\r\n")
		a.do("set q 0 0 3000000\r\n"+large+"\r\n", "STORED\r\n")
		b.do("get q\r\n", "VALUE q 0 1\r\na\r\nEND\r\n")
		b.do("get q\r\ndelete q\r\n", "VALUE q 0 3000000\r\n"+large+"\r\nEND\r\nDELETED\r\n")
		cutClient(b.nc)
		synctest.Wait()
		if q := s.queue("q"); q.Ready != 1 {
			t.Errorf("after the holder has gone: got %+v, want its message ready", q)
		}
		a.do("get q\r\ndelete q\r\n", "VALUE q 0 3000000\r\n"+large+"\r\nEND\r\nDELETED\r\n")

		// One that hangs up while it waits gets no message.
		c := s.dialTLS()
		c.send("get q/t=60000\r\n")
		sleep(1)
		cutClient(c.nc)
		synctest.Wait()
		a.do("set q 0 0 1\r\nb\r\n", "STORED\r\n")
		if q := s.queue("q"); q.Ready != 1 || q.Waiters != 0 {
			t.Errorf("got %+v, want one ready and nobody waiting", q)
		}
		// A wait ends by a message, and by its time.
		c = s.dialTLS()
		c.do("get q\r\n", "VALUE q 0 1\r\nb\r\nEND\r\n")
		c.send("get q/t=2000\r\n")
		sleep(1.9)
		c.wantNothing()
		sleep(0.1)
		c.want("END\r\n")
		c.send("get q/t=2000\r\n")
		sleep(1)
		a.do("set q 0 0 1\r\nc\r\n", "STORED\r\n")
		c.want("VALUE q/t=2000 0 1\r\nc\r\nEND\r\n")
	})
}

// Logins come over TLS as they do without, with commands right behind them.
func TestLoginOverTLS(t *testing.T) {
	accounts := func(s *memcache.Server, _ *storage.Options) { s.Accounts = newAccounts() }
	tlsBubble(t, tls.NoClientCert, accounts, func(t *testing.T, s *tlsServer) {
		s.dialTLS().do(loginLine("user", "pass")+"set q 0 0 1\r\na\r\n", "STORED\r\nSTORED\r\n")
		c := s.dialTLS()
		c.send(binaryRequest(0x21, nil, "PLAIN", "\x00user\x00pass", 1, 0) + binaryRequest(0x00, nil, "q", "", 2, 0))
		if got, want := readReply(c), "SASLAUTH 0000 opaque=1 value=Authenticated"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got, want := readReply(c), "GET 0000 opaque=2 cas="; !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s…", got, want)
		}
		// Handshake and login have 5 s together.
		late := s.dialTLS()
		synctest.Wait()
		sleep(4.9)
		late.send("set x")
		late.wantNothing()
		sleep(0.1)
		late.wantEnd()
	})
}

// A handshake that stalls is over after 5 s, wherever it has stopped, and holds up nobody.
func TestStalledHandshake(t *testing.T) {
	tlsBubble(t, tls.NoClientCert, nil, func(t *testing.T, s *tlsServer) {
		var stalled []net.Conn
		for _, part := range []string{"", "\x16", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"} {
			nc := s.raw()
			if _, err := io.WriteString(nc, part); err != nil {
				t.Fatal(err)
			}
			stalled = append(stalled, nc)
		}
		s.dialTLS().wantOpen()
		before := time.Now()
		for _, nc := range stalled {
			if n, err := nc.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
				t.Errorf("got %d bytes, %v, want the end", n, err)
			}
		}
		if took := time.Since(before); took != 5*time.Second {
			t.Errorf("it took %v, want 5 s", took)
		}
		s.dialTLS().wantOpen()
		if st := s.Stats(); st.HandshakeErrors != 3 {
			t.Errorf("got %d failed handshakes, want 3", st.HandshakeErrors)
		}
	})
}

// A client without TLS is told so, where it can be: what a binary client would make of a line nobody knows.
func TestPlainClientOnTLSPort(t *testing.T) {
	tlsBubble(t, tls.NoClientCert, nil, func(t *testing.T, s *tlsServer) {
		for in, want := range map[string]string{
			"version\r\n":                          "CLIENT_ERROR this port speaks TLS only\r\n",
			binaryRequest(0x0b, nil, "", "", 0, 0): "",
		} {
			nc := s.raw()
			go io.WriteString(nc, in)
			got, err := io.ReadAll(nc)
			if i := strings.Index(string(got), "CLIENT_ERROR"); i > 0 {
				got = got[i:] // TLS's own alert goes before it
			}
			if err != nil || want != "" && string(got) != want || want == "" && strings.Contains(string(got), "TLS") {
				t.Errorf("%q: got %q, %v, want %q", in, got, err, want)
			}
		}
		synctest.Wait()
		if st := s.Stats(); st.HandshakeErrors != 2 || st.CurrConnections != 0 {
			t.Errorf("got %d failed handshakes, %d connections", st.HandshakeErrors, st.CurrConnections)
		}
	})
}

func TestClientCertificates(t *testing.T) {
	tlsBubble(t, tls.RequireAndVerifyClientCert, nil, func(t *testing.T, s *tlsServer) {
		s.dialTLS(s.own).wantOpen()
		stranger, _ := newCertificate(t)
		for name, certificates := range map[string][]tls.Certificate{"none": nil, "a stranger's": {stranger}} {
			c := s.dialTLS(certificates...)
			c.send("version\r\n")
			if got := c.take(100); got != "" {
				t.Errorf("certificate %s: got %q", name, got)
			}
			c.wantEnd()
		}
	})
}

// A client that reads slowly, but reads, gets a large body in its own time; one that reads nothing for 30 s is gone, and what it
// held is back.
func TestSlowReaderOverTLS(t *testing.T) {
	tlsBubble(t, tls.NoClientCert, nil, func(t *testing.T, s *tlsServer) {
		const size = 1 << 20
		p := s.dialTLS()
		set := "set q 0 0 1048576\r\n" + repeat("x", size) + "\r\n"
		p.do(set, "STORED\r\n")
		slow := tls.Client(s.raw(), s.config())
		io.WriteString(slow, "get q\r\n")
		before, n := time.Now(), 0
		for buf := make([]byte, 16<<10); n < size; {
			k, err := slow.Read(buf)
			if err != nil {
				t.Fatalf("after %d bytes: %v", n, err)
			}
			n += k
			sleep(2)
		}
		if took := time.Since(before); took < time.Minute {
			t.Errorf("it took only %v", took)
		}
		cutClient(slow)
		synctest.Wait() // what it held is back

		deaf := tls.Client(s.raw(), s.config())
		io.WriteString(deaf, "version\r\n")
		if _, err := deaf.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		io.WriteString(deaf, "get q\r\n")
		sleep(29)
		if q := s.queue("q"); q.Reserved != 1 {
			t.Errorf("after 29 s: got %+v, want it reserved", q)
		}
		sleep(3)
		if q := s.queue("q"); q.Ready != 1 {
			t.Errorf("after 32 s: got %+v, want it ready", q)
		}
		if st := s.Stats(); st.SlowClosed != 1 {
			t.Errorf("got %d slow clients closed, want 1", st.SlowClosed)
		}
		p.wantOpen()
	})
}

// The limits are the same over TLS.
func TestLimitsOverTLS(t *testing.T) {
	configure := func(s *memcache.Server, _ *storage.Options) { s.MaxConns, s.IdleTimeout = 2, 5*time.Second }
	tlsBubble(t, tls.NoClientCert, configure, func(t *testing.T, s *tlsServer) {
		a, b := s.dialTLS(), s.dialTLS()
		a.wantOpen()
		b.wantOpen()
		c := s.dialTLS()
		c.send("version\r\n")
		c.want("SERVER_ERROR too many open connections\r\n")
		sleep(4)
		b.wantOpen()
		sleep(1)
		a.wantEnd()
		b.wantOpen()
	})
}
