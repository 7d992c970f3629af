package replication_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"qserver/replication"
)

// TestTLS follows a master whose HTTP port speaks TLS, and says what to do where the two sides don't fit.
func TestTLS(t *testing.T) {
	m := newNode(t, 1, quick()).lead()
	put(t, m.store, "q", 0, 100)
	mux := http.NewServeMux()
	mux.Handle(replication.Path, m.out.Handler())
	overTLS, plain := httptest.NewTLSServer(mux), httptest.NewServer(mux)
	defer overTLS.Close()
	defer plain.Close()
	right, none := x509.NewCertPool(), x509.NewCertPool()
	right.AddCert(overTLS.Certificate())
	trust := func(pool *x509.CertPool) func() *tls.Config {
		return func() *tls.Config { return &tls.Config{RootCAs: pool, NextProtos: []string{"http/1.1"}} }
	}
	address := overTLS.Listener.Addr().String()
	_, port, _ := strings.Cut(address, ":")

	s := newNode(t, 2, quick()).follow(nil)
	s.cancel()
	s.running.Wait()
	s.in.Dial = nil
	for _, tt := range []struct {
		name, address string
		tls           func() *tls.Config
		want          string
	}{
		{"plain to TLS", address, nil, "it speaks TLS: give -admin-ca FILE"},
		{"plain to TLS by a config of none", address, func() *tls.Config { return nil }, "it speaks TLS: give -admin-ca FILE"},
		{"TLS to plain", plain.Listener.Addr().String(), trust(right), "speaks no TLS: start its server with -tls-ports"},
		{"another authority", address, trust(none), "not signed by any that -admin-ca names"},
		{"another name", "localhost:" + port, trust(right), "is another host's"},
	} {
		s.in.Address, s.in.TLS = tt.address, tt.tls
		if err := replication.Once(s.in, t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}

	s.in.Address, s.in.TLS = address, trust(right)
	if err := replication.Once(s.in, t.Context()); !errors.Is(err, replication.ErrCopyReady) {
		t.Fatalf("got %v, want a copy", err)
	}
	s.reopen("master:1978")
	s.in.Address, s.in.TLS, s.in.Dial = address, trust(right), nil
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.in.Run(ctx) }()
	put(t, m.store, "q", 100, 3000) // more than a frame
	caughtUp(t, m, s)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	m.out.Detach()
}
