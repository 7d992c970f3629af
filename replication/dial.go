package replication

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// Dial connects to the HTTP port of another server at address, over TLS if config is not nil; config needs no ServerName.
// Errors of TLS say on which side something is to be done.
func Dial(ctx context.Context, address string, config *tls.Config) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil || config == nil {
		return conn, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	config = config.Clone()
	config.ServerName = host
	c := tls.Client(conn, config)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(explainTLS(address, err), conn.Close())
	}
	return c, nil
}

// explainTLS adds to the error of a handshake what to do.
func explainTLS(address string, err error) error {
	var notTLS tls.RecordHeaderError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &notTLS):
		return fmt.Errorf("%s speaks no TLS: start its server with -tls-ports both (or admin), or leave out -admin-ca here", address)
	case errors.As(err, &unknown):
		return fmt.Errorf("the certificate of %s is not signed by any that -admin-ca names: give the authority that has signed it: %w", address, err)
	case errors.As(err, &name):
		return fmt.Errorf("the certificate of %s is another host's: name the host as its certificate does, or give it one with this name: %w", address, err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("the certificate of %s is not valid now: replace it there, or set the clock right: %w", address, err)
	}
	return fmt.Errorf("TLS with %s: %w", address, err)
}

// NeedsTLS says whether an answer to plain HTTP is that of a port which speaks TLS.
func NeedsTLS(status int, body []byte) bool {
	return status == http.StatusBadRequest && bytes.Contains(body, []byte("HTTP request to an HTTPS server"))
}

// ErrNeedsTLS tells of such an answer.
var ErrNeedsTLS = errors.New("it speaks TLS: give -admin-ca FILE, with the authority that has signed its certificate")

// dialHTTP connects to the master's HTTP port and asks for the protocol. The request names no host: the master's list of
// allowed names is for browsers.
func (s *Slave) dialHTTP(ctx context.Context) (net.Conn, error) {
	var config *tls.Config
	if s.TLS != nil {
		config = s.TLS()
	}
	conn, err := Dial(ctx, s.Address, config)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	_, err = io.WriteString(conn, "POST "+Path+" HTTP/1.1\r\nHost:\r\nConnection: Upgrade\r\nUpgrade: "+Protocol+"\r\nContent-Length: 0\r\n\r\n")
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	r := bufio.NewReaderSize(conn, 64<<10)
	res, err := http.ReadResponse(r, &http.Request{Method: http.MethodPost})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("what listens at %s is no qserver: %w", s.Address, err), conn.Close())
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 200))
		err := fmt.Errorf("what listens at %s takes no slaves: %s %s", s.Address, res.Status, strings.TrimSpace(string(text)))
		if NeedsTLS(res.StatusCode, text) {
			err = fmt.Errorf("the master at %s can't be asked: %w", s.Address, ErrNeedsTLS)
		}
		return nil, errors.Join(err, conn.Close())
	}
	return &upgraded{conn, r}, nil
}

// upgraded is a connection of which some may have been read ahead.
type upgraded struct {
	net.Conn
	r *bufio.Reader
}

func (u *upgraded) Read(p []byte) (int, error) { return u.r.Read(p) }
