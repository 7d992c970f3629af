package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"qserver/replication"
)

// How this program reaches the HTTP ports of servers: plainly, or, with -admin-ca, over TLS.

// peerCA is the file of -admin-ca: an authority of these must have signed the certificate of an HTTP port.
type peerCA struct {
	file string
	pool atomic.Pointer[x509.CertPool]
}

// openPeerCA reads the file; "": there is none, and nil is returned.
func openPeerCA(file string) (*peerCA, error) {
	if file == "" {
		return nil, nil
	}
	p := &peerCA{file: file}
	if err := p.reload(); err != nil {
		return nil, withCode(exitConfig, fmt.Errorf("-admin-ca: %w", err))
	}
	return p, nil
}

// reload reads the file anew. After an error what was read before stays.
func (p *peerCA) reload() error {
	pool, err := readAuthorities(p.file)
	if err == nil {
		p.pool.Store(pool)
	}
	return err
}

// config is what the next connection is made with; nil: without TLS.
func (p *peerCA) config() *tls.Config {
	if p == nil {
		return nil
	}
	return &tls.Config{RootCAs: p.pool.Load(), MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
}

func readAuthorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("certificate authority %s: no certificate in PEM form is in it", file)
	}
	return pool, nil
}

// adminPort is a server's HTTP port.
type adminPort struct {
	address string
	tls     *tls.Config // nil: it speaks none
}

// request returns a request for a path with query. The list of allowed host names is for browsers, so it names none of them.
func (p adminPort) request(ctx context.Context, method, uri string) (*http.Request, error) {
	scheme := "http"
	if p.tls != nil {
		scheme = "https"
	}
	if !strings.HasPrefix(uri, "/") {
		return nil, fmt.Errorf("%s is no path", uri)
	}
	r, err := http.NewRequestWithContext(ctx, method, scheme+"://"+p.address+uri, nil)
	if err == nil {
		r.Host = "localhost"
	}
	return r, err
}

// send sends a request and returns the answer with its body, of which at most limit bytes are read.
func (p adminPort) send(r *http.Request, limit int64) (status int, body []byte, err error) {
	dial := func(ctx context.Context, _, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, shortAnswers)
		defer cancel()
		return replication.Dial(ctx, address, p.tls)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: dial, DialTLSContext: dial} // without a proxy
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return 0, nil, withCode(exitUnavailable, fmt.Errorf("no server answers at %s: %w", p.address, err))
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(io.LimitReader(answer.Body, limit))
	switch {
	case err != nil:
		err = withCode(exitUnavailable, fmt.Errorf("no whole answer of %s: %w", p.address, err))
	case replication.NeedsTLS(answer.StatusCode, body):
		err = withCode(exitUnavailable, fmt.Errorf("%s can't be asked: %w", p.address, replication.ErrNeedsTLS))
	}
	return answer.StatusCode, body, err
}

// noAdminPort says that an answer is none of ours.
func (p adminPort) noAdminPort(err error) error {
	return withCode(exitUnavailable, fmt.Errorf("what answers at %s is no qserver's admin port: %w", p.address, err))
}

// port is another server's HTTP port.
func (s *server) port(address string) adminPort { return adminPort{address, s.gate.peers.config()} }

// remote is the server that a command is for, and how to ask it.
type remote struct {
	admin  string
	config config // for the files of secret and authorities
}

func newRemote(environ []string) *remote {
	r := &remote{admin: "127.0.0.1:1978"}
	for name, p := range map[string]*string{"QSERVER_ADMIN=": &r.admin, "QSERVER_REPL_SECRET_FILE=": &r.config.replSecretFile,
		"QSERVER_ADMIN_CA=": &r.config.adminCA} {
		for _, e := range environ {
			if value, ok := strings.CutPrefix(e, name); ok && value != "" {
				*p = value
			}
		}
	}
	return r
}

func (r *remote) adminOption() option { return option{"admin", false, address(&r.admin)} }

func (r *remote) caOption() option {
	return option{"admin-ca", false, text(&r.config.adminCA, "a file")}
}

// options are those of the commands that change a role.
func (r *remote) options() []option {
	return []option{r.adminOption(), r.caOption(), {"repl-secret-file", false, text(&r.config.replSecretFile, "a file")}}
}

// port is the server's HTTP port, at the address if it is not the one of -admin.
func (r *remote) port(address string) (adminPort, error) {
	ca, err := openPeerCA(r.config.adminCA)
	return adminPort{reachable(address), ca.config()}, err
}

func (r *remote) post(ctx context.Context, uri string, into any) error {
	secret, secretErr := r.config.readSecret()
	port, err := r.port(r.admin)
	if err := errors.Join(secretErr, err); err != nil {
		return err
	}
	return port.ask(ctx, http.MethodPost, uri, secret, into)
}
