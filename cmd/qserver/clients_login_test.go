package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// TestLoginClients lets real clients log in, with the right password and a wrong one, over TCP, TLS and a Unix socket.
func TestLoginClients(t *testing.T) {
	program := buildProgram(t)
	dir := t.TempDir()
	users, socket := filepath.Join(dir, "users"), filepath.Join(dir, "s")
	writeAccounts(t, users, "ann", "secret")
	s := startProgram(t, program, "-auth-file", users, "-socket", socket)

	ca := newAuthority(t, dir, "ca")
	cert, key := ca.issue(t, dir, "server", 1)
	clientCert, clientKey := ca.issue(t, dir, "client", 2)
	overTLS := startProgram(t, program, "-auth-file", users, "-tls-cert", cert, "-tls-key", key)
	closed := startProgram(t, program, "-tls-cert", cert, "-tls-key", key, "-tls-ca", ca.file)

	for _, tt := range []struct {
		name    string
		command func(t *testing.T) []string
		address string
		rest    []string // behind user and password
	}{
		{"PHP SASL", func(t *testing.T) []string { return []string{needSASL(t, needPHP(t)), "testdata/clients/login.php"} }, s.port(), nil},
		{"PHP Unix socket", func(t *testing.T) []string { return []string{needPHP(t), "testdata/clients/login.php"} }, socket, nil},
		{"pylibmc SASL", func(t *testing.T) []string { return needLoginPython(t, "pylibmc") }, s.port(), nil},
		{"pymemcache", func(t *testing.T) []string { return needLoginPython(t, "pymemcache") }, s.port(), nil},
		{"pymemcache Unix socket", func(t *testing.T) []string { return needLoginPython(t, "pymemcache") }, socket, nil},
		{"pymemcache TLS", func(t *testing.T) []string { return needLoginPython(t, "pymemcache") }, overTLS.port(), []string{ca.file}},
		{"Dalli SASL", func(t *testing.T) []string {
			return []string{need(t, "Dalli (ruby-dalli on Debian)", "-e", `require "dalli"`, "ruby"), "testdata/clients/login.rb"}
		}, s.port(), nil},
		{"memjs SASL", func(t *testing.T) []string { return append(needNode(t, "memjs"), "testdata/clients/login.js") }, s.port(), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			command := append(tt.command(t), tt.address)
			for password, want := range map[string]string{"secret": "body\n", "wrong": "refused\n"} {
				if got := output(t, slices.Concat(command, []string{"ann", password}, tt.rest)...); got != want {
					t.Errorf("password %s: got %q, want %q", password, got, want)
				}
			}
		})
	}
	t.Run("pymemcache client certificate", func(t *testing.T) {
		t.Parallel()
		command := append(needLoginPython(t, "pymemcache"), closed.port(), "", "", ca.file)
		if got := output(t, append(command, clientCert, clientKey)...); got != "body\n" {
			t.Errorf("got %q, want body", got)
		}
		if out, err := exec.Command(command[0], command[1:]...).Output(); err == nil || len(out) > 0 {
			t.Errorf("without a certificate: got %s, want an error", out)
		}
	})
	t.Run("gomemcache Unix socket", func(t *testing.T) {
		t.Parallel()
		client := memcache.New(socket)
		client.MaxIdleConns = 1
		client.Timeout = 20 * time.Second
		t.Cleanup(func() { client.Close() })
		if err := client.Set(&memcache.Item{Key: "login", Value: []byte("ann secret")}); err != nil {
			t.Fatal(err)
		}
		if err := client.Set(&memcache.Item{Key: "gomemcache", Value: []byte("body")}); err != nil {
			t.Fatal(err)
		}
		if item, err := client.Get("gomemcache"); err != nil || string(item.Value) != "body" {
			t.Errorf("got %v, %v", item, err)
		}
	})
	talks := func(name, want string, command ...string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(command[0]); err != nil {
				t.Skip(command[0] + " is not installed: scripts/test clients installs it")
			}
			cmd := exec.Command(command[0], command[1:]...)
			cmd.Stdin = strings.NewReader("set x 0 0 10\r\nann secret\r\nget nothing\r\nquit\r\n")
			if got, err := cmd.Output(); err != nil || string(got) != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
	talks("nc -U", "STORED\r\nEND\r\n", "nc", "-N", "-U", socket)
	talks("openssl s_client", "STORED\r\nEND\r\n", "openssl", "s_client", "-quiet", "-verify_quiet", "-verify_return_error", "-connect", overTLS.addr,
		"-verify_ip", "127.0.0.1", "-CAfile", ca.file)
	talks("openssl s_client with a certificate", "STORED\r\nEND\r\n", "openssl", "s_client", "-quiet", "-verify_quiet", "-verify_return_error",
		"-connect", closed.addr, "-CAfile", ca.file, "-cert", clientCert, "-key", clientKey)
}

// needSASL skips the test where libsasl2 has no PLAIN: without its plug-in clients can't log in.
func needSASL(t *testing.T, program string) string {
	t.Helper()
	for _, pattern := range []string{"/usr/lib/*/sasl2/libplain.so", "/usr/lib/sasl2/libplain.so", "/usr/lib64/sasl2/libplain.so"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return program
		}
	}
	t.Skip("libsasl2 with PLAIN (libsasl2-modules on Debian) is not installed: scripts/test clients installs it")
	return ""
}

func needLoginPython(t *testing.T, library string) []string {
	t.Helper()
	check := "import " + library
	if library == "pylibmc" {
		check += "; assert pylibmc.support_sasl"
	}
	python := need(t, library+" (python3-"+library+" on Debian)", "-c", check, "python3", "/usr/bin/python3")
	if library == "pylibmc" {
		needSASL(t, python)
	}
	return []string{python, "testdata/clients/login.py", library}
}

// authority signs certificates.
type authority struct {
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()
	a := &authority{file: filepath.Join(dir, name+".pem")}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.key, a.cert = a.sign(t, template, a.file)
	return a
}

// sign makes a certificate and writes it; the authority's own it signs itself.
func (a *authority) sign(t *testing.T, template *x509.Certificate, file string) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, file, "CERTIFICATE", der)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, cert
}

// issue writes a certificate for 127.0.0.1 and its key, or replaces them, and returns their files.
func (a *authority) issue(t *testing.T, dir, name string, serial int64) (certFile, keyFile string) {
	t.Helper()
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem")
	key, _ := a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, certFile)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, keyFile, "PRIVATE KEY", der)
	return certFile, keyFile
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCertificateReload replaces the certificate of a running server: open connections go on, new ones see the new one; a file that
// does not hold changes nothing and is told once.
func TestCertificateReload(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir, "ca")
	cert, key := ca.issue(t, dir, "server", 10)
	s := startProgram(t, buildProgram(t), "-tls-cert", cert, "-tls-key", key)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	dial := func(want int64) *tls.Conn {
		t.Helper()
		nc, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", s.addr, &tls.Config{RootCAs: roots})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		nc.SetDeadline(time.Now().Add(patience))
		if got := nc.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != want {
			t.Errorf("got certificate %d, want %d", got, want)
		}
		return nc
	}
	say := func(nc *tls.Conn, command, want string) {
		t.Helper()
		got := make([]byte, len(want))
		_, err := nc.Write([]byte(command))
		if n, _ := nc.Read(got); err != nil || string(got[:n]) != want {
			t.Errorf("%q: got %q, %v, want %q", command, got[:n], err, want)
		}
	}
	hup := func(told string) {
		t.Helper()
		if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if all, ok := s.line(told); !ok {
			t.Fatalf("no %q in\n%s", told, all)
		}
	}
	old := dial(10)
	say(old, "set q 0 0 1\r\na\r\n", "STORED\r\n")
	say(old, "get q\r\n", "VALUE q 0 1\r\na\r\nEND\r\n")

	ca.issue(t, dir, "server", 11)
	hup("certificate read anew")
	say(dial(11), "get q\r\n", "END\r\n")
	say(old, "delete q\r\n", "DELETED\r\n")

	for name, text := range map[string]string{cert: "no certificate", key: "no key"} {
		good, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		hup("certificate not read anew, the old one stays")
		dial(11)
		if err := os.WriteFile(name, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	hup(key + ": no such file or directory")
	say(dial(11), "get q\r\n", "END\r\n")
}
