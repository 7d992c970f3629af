package main

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"time"
)

// certificates are the files of TLS: a chain of certificates, its key, and if clients need a certificate, the authority that must have
// signed it, all in PEM form.
type certificates struct {
	cert, key, ca string
	current       atomic.Pointer[tls.Config]
}

func openCertificates(cert, key, ca string) (*certificates, error) {
	c := &certificates{cert: cert, key: key, ca: ca}
	return c, c.reload()
}

// reload reads the files anew. After an error what was read before stays.
func (c *certificates) reload() error {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", c.cert, c.key, err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if c.ca != "" {
		if config.ClientCAs, err = readAuthorities(c.ca); err != nil {
			return err
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.SessionTicketsDisabled = true // each connection shows its certificate
	}
	c.current.Store(config)
	return nil
}

// config is what the memcached port's TLS asks for each connection.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil },
	}
}

// adminConfig is that of the HTTP port, which asks nobody for a certificate.
func (c *certificates) adminConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"}, // connections of slaves are upgraded, which HTTP/2 has not
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &c.current.Load().Certificates[0], nil },
	}
}

// ends is when the server's certificate does.
func (c *certificates) ends() time.Time { return c.current.Load().Certificates[0].Leaf.NotAfter }

// gate is who is let in, and how, and whom this server trusts. Its parts are nil where they were not asked for.
type gate struct {
	accounts     *accounts
	certificates *certificates // of the ports that -tls-ports names
	peers        *peerCA
}

func openGate(c *config) (g gate, err error) {
	if err := c.checkGate(); err != nil {
		return g, err
	}
	if c.authFile != "" {
		if g.accounts, err = openAccounts(c.authFile); err != nil {
			return g, withCode(exitConfig, fmt.Errorf("-auth-file: %w", err))
		}
	}
	if c.tlsCert != "" {
		if g.certificates, err = openCertificates(c.tlsCert, c.tlsKey, c.tlsCA); err != nil {
			return g, withCode(exitConfig, fmt.Errorf("-tls-cert: %w", err))
		}
	}
	g.peers, err = openPeerCA(c.adminCA)
	return g, err
}

// checkGate looks at settings of the gate that depend on each other.
func (c *config) checkGate() error {
	switch {
	case (c.tlsCert == "") != (c.tlsKey == ""):
		return usageError("-tls-cert and -tls-key go together: give both")
	case c.tlsCA != "" && c.tlsCert == "":
		return usageError("-tls-ca without -tls-cert: clients show certificates over TLS only")
	case c.tlsPorts != "listen" && c.tlsCert == "":
		return usageError("-tls-ports %s without -tls-cert: TLS needs a certificate", c.tlsPorts)
	case c.tlsCA != "" && !c.listenTLS():
		return usageError("-tls-ca with -tls-ports admin: it is for clients of the memcached port, which would speak no TLS")
	}
	return nil
}

// listenTLS and adminTLS say which ports speak TLS.
func (c *config) listenTLS() bool { return c.tlsCert != "" && c.tlsPorts != "admin" }
func (c *config) adminTLS() bool  { return c.tlsCert != "" && c.tlsPorts != "listen" }

// asks says whether the memcached port asks who somebody is.
func (c *config) asks() bool { return c.authFile != "" || c.tlsCA != "" }

// tellGate logs what an operator should know of the gate as it stands.
func (s *server) tellGate(listenAt endpoint) {
	if s.gate.certificates != nil {
		s.tellCertificate()
	}
	if !s.config.listenTLS() && s.gate.accounts != nil && !listenAt.addr.IP.IsLoopback() {
		s.log.Warn("passwords cross the network as they are: -listen is not a loopback address, and it speaks no TLS (-tls-cert)")
	}
}

func (s *server) tellCertificate() {
	ends := s.gate.certificates.ends()
	if left := time.Until(ends); left < 14*24*time.Hour {
		s.log.Warn("the certificate ends soon, or has ended", "file", s.config.tlsCert, "ends", ends)
	}
}

// reloadGate reads the files of the gate anew. Those that do not hold stay as they were.
func (s *server) reloadGate() {
	if t := s.gate.certificates; t != nil {
		if err := t.reload(); err != nil {
			s.log.Error("certificate not read anew, the old one stays", "error", err)
		} else {
			s.log.Info("certificate read anew", "file", t.cert, "ends", t.ends())
			s.tellCertificate()
		}
	}
	if p := s.gate.peers; p != nil {
		if err := p.reload(); err != nil {
			s.log.Error("authorities of -admin-ca not read anew, the old ones stay", "error", err)
		} else {
			s.log.Info("authorities of -admin-ca read anew", "file", p.file)
		}
	}
	if a := s.gate.accounts; a != nil {
		if err := a.reload(); err != nil {
			s.log.Error("auth file not read anew, the old accounts stay", "error", err)
			return
		}
		closed := s.mc.CloseUsers(func(user string) bool { return !a.Known(user) })
		s.log.Info("auth file read anew", "file", a.path, "users", len(a.users.Load().hashes), "connections_closed", closed)
	}
}
