package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// secured is what both servers of a pair over TLS are started with, and what others ask them by.
type secured struct {
	authority *authority
	dir       string
	args      []string
}

func newSecured(t *testing.T, ports string) *secured {
	t.Helper()
	s := &secured{dir: t.TempDir()}
	s.authority = newAuthority(t, s.dir, "ca")
	cert, key := s.authority.issue(t, s.dir, "server", 1)
	secret := filepath.Join(s.dir, "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = []string{"-tls-cert", cert, "-tls-key", key, "-tls-ports", ports, "-admin-ca", s.authority.file, "-repl-secret-file", secret, "-drain", "0s"}
	return s
}

// ask reads /api/v1/replication over TLS.
func (s *secured) ask(t *testing.T, admin string) (a replicationAnswer, err error) {
	t.Helper()
	ca, err := openPeerCA(s.authority.file)
	if err != nil {
		t.Fatal(err)
	}
	return a, adminPort{admin, ca.config()}.get(t.Context(), "/api/v1/replication", &a)
}

func (s *secured) follows(t *testing.T, slave, master string) {
	t.Helper()
	var a, m replicationAnswer
	var err error
	for late := time.Now().Add(patience); time.Now().Before(late); time.Sleep(5 * time.Millisecond) {
		if m, err = s.ask(t, master); err != nil {
			t.Fatal(err)
		}
		if a, err = s.ask(t, slave); err == nil && a.Master != nil && a.Master.State == "following" && a.LSN == m.LSN && a.Chain == m.Chain {
			return
		}
	}
	t.Fatalf("it does not follow: it stands at %+v (%v), the master at %+v", a, err, m)
}

// TestAdminTLS: replication and every command over an HTTP port that speaks TLS, while the memcached port does not.
func TestAdminTLS(t *testing.T) {
	t.Parallel()
	s := newSecured(t, "admin")
	masterAdmin, slaveAdmin := freeAddress(t), freeAddress(t)
	master := startNode(t, append([]string{"-sid", "1", "-admin", masterAdmin}, s.args...)...)
	slave := startNode(t, append([]string{"-sid", "2", "-admin", slaveAdmin, "-mhost", "127.0.0.1", "-mport", portOf(masterAdmin)}, s.args...)...)
	enqueueRange(t, master.address, "jobs", 1, 100)
	s.follows(t, slaveAdmin, masterAdmin)
	secret := []string{"-repl-secret-file", filepath.Join(s.dir, "secret"), "-admin-ca", s.authority.file}
	command := func(name, admin string, more ...string) []string {
		return append(append([]string{name, "-admin", admin}, secret...), more...)
	}

	if out := mustRun(t, "status", "-admin", masterAdmin, "-admin-ca", s.authority.file); !strings.Contains(out, "1 queue\n") {
		t.Errorf("status printed %q", out)
	}
	other := newAuthority(t, s.dir, "other")
	plainAdmin := freeAddress(t)
	startNode(t, "-admin", plainAdmin)
	for _, tt := range []struct {
		name, want string
		args       []string
	}{
		{"plain to TLS", "it speaks TLS: give -admin-ca FILE", []string{"status", "-admin", masterAdmin}},
		{"another authority", "not signed by any that -admin-ca names", []string{"status", "-admin", masterAdmin, "-admin-ca", other.file}},
		{"TLS to plain", "speaks no TLS: start its server with -tls-ports", []string{"promote", "-admin", plainAdmin, "-admin-ca", s.authority.file}},
		{"plain promotion", "it speaks TLS: give -admin-ca FILE", []string{"promote", "-admin", slaveAdmin}},
	} {
		if _, err := tryRun(t, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) || exitCode(err) != exitUnavailable {
			t.Errorf("%s: got %v (exit code %d), want %q", tt.name, err, exitCode(err), tt.want)
		}
	}
	if _, err := tryRun(t, "status", "-admin", masterAdmin, "-admin-ca", filepath.Join(s.dir, "secret")); exitCode(err) != exitConfig {
		t.Errorf("a file without certificates: %v, exit code %d", err, exitCode(err))
	}

	// A planned switch-over there and back, and a failover.
	mustRun(t, command("follow", masterAdmin, slaveAdmin)...)
	s.follows(t, masterAdmin, slaveAdmin)
	mustRun(t, command("follow", slaveAdmin, masterAdmin)...)
	s.follows(t, slaveAdmin, masterAdmin)
	enqueueRange(t, master.address, "jobs", 101, 120)
	s.follows(t, slaveAdmin, masterAdmin)
	master.kill()
	if out := mustRun(t, command("promote", slaveAdmin, "-force")...); !strings.Contains(out, "leads from record") {
		t.Errorf("promote printed %q", out)
	}
	if out := mustRun(t, "rejoin", "-admin-ca", s.authority.file, master.k.dir, slaveAdmin); !strings.Contains(out, "has no records of its own") {
		t.Errorf("rejoin printed %q", out)
	}
	master.args = append(master.args, "-mhost", "127.0.0.1", "-mport", portOf(slaveAdmin))
	master.start()
	s.follows(t, masterAdmin, slaveAdmin)
	wantRange(t, drainQueue(t, slave.address, "jobs"), 1, 120)
}

// TestAdminTLSReload: a new certificate of another authority is taken at SIGHUP by both, and what a slave trusts as well.
func TestAdminTLSReload(t *testing.T) {
	t.Parallel()
	s := newSecured(t, "both")
	masterAdmin, slaveAdmin := freeAddress(t), freeAddress(t)
	args := func(sid string) []string { return append([]string{"-sid", sid}, s.args...) }
	master := startNode(t, append(args("1"), "-admin", masterAdmin)...)
	slave := startNode(t, append(args("2"), "-admin", slaveAdmin, "-mhost", "127.0.0.1", "-mport", portOf(masterAdmin))...)
	s.follows(t, slaveAdmin, masterAdmin)
	c, err := dialWire(master.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "version\r\n")
	if got, _ := c.line(); !strings.Contains(got, "TLS only") {
		t.Errorf("the memcached port answers %q without TLS", got)
	}

	// The master gets a certificate that its slave does not trust.
	trusts := s.authority.file
	s.authority = newAuthority(t, s.dir, "new")
	s.authority.issue(t, s.dir, "server", 7)
	hangUp(t, master, "certificate read anew")
	s.await(t, masterAdmin, func(a *replicationAnswer) bool { return a.Master == nil })
	slave.kill() // it has to connect again
	slave.start()
	s.awaitError(t, slaveAdmin, "not signed by any that -admin-ca names")

	// The slave's file gets the new authority.
	b, err := os.ReadFile(s.authority.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(trusts, b, 0o600); err != nil {
		t.Fatal(err)
	}
	hangUp(t, slave, "authorities of -admin-ca read anew")
	s.follows(t, slaveAdmin, masterAdmin)

	// One that does not hold changes nothing.
	if err := os.WriteFile(trusts, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	hangUp(t, slave, "authorities of -admin-ca not read anew")
	s.follows(t, slaveAdmin, masterAdmin)
}

// hangUp sends SIGHUP and waits until the log says what it led to.
func hangUp(t *testing.T, n *node, want string) {
	t.Helper()
	before := strings.Count(n.s.text(), want)
	if err := n.s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(patience); strings.Count(n.s.text(), want) == before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("the log does not say %q:\n%s", want, n.s.text())
		}
	}
}

func (s *secured) await(t *testing.T, admin string, fn func(*replicationAnswer) bool) {
	t.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		a, err := s.ask(t, admin)
		if err == nil && fn(&a) {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%s answers %+v, %v", admin, a, err)
		}
	}
}

func (s *secured) awaitError(t *testing.T, admin, want string) {
	t.Helper()
	s.await(t, admin, func(a *replicationAnswer) bool { return a.Master != nil && strings.Contains(a.Master.Error, want) })
}

// TestTLSPorts: which settings don't go together.
func TestTLSPorts(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"-tls-ports both", "without -tls-cert"},
		{"-tls-ports admin -tls-cert c -tls-key k -tls-ca a", "-tls-ca with -tls-ports admin"},
	} {
		err := run(context.Background(), strings.Fields(tt.args), nil, nil, nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) || exitCode(err) != exitUsage {
			t.Errorf("%s: got %v, want %q", tt.args, err, tt.want)
		}
	}
}
