package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"qserver/bench/client"
)

// keyRule says how a server is used: what a key means to it.
type keyRule int

const (
	queueKeys  keyRule = iota // a key names a queue: set enqueues, get takes, delete acks
	singleKey                 // a cache at its best: set overwrites one key a connection
	keyForEach                // a cache that keeps each message under a key of its own
)

// A contestant is a server that can be measured: one to start, or one that is running.
type contestant struct {
	name        string
	keys        keyRule
	word        string // the -target of a running one
	addr, admin string // its addresses
	start       func(ctx context.Context, e *env, more ...string) (*server, error)
}

// A server is a contestant that is running. Stop ends it if it was started here.
type server struct {
	contestant
	addr, admin string   // TCP addresses; admin is empty if it has no HTTP port
	proc        *process // nil if it was not started here
	data        string   // its data folder, if it has one
	ready       time.Duration
	restart     func(ctx context.Context) (*server, error) // starts it again on the same data; nil if that is not possible
}

// contestants returns what -servers and -target name, in that order.
func (e *env) contestants() ([]contestant, error) {
	var all []contestant
	for word := range strings.SplitSeq(e.servers, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		c, err := parseServer(word)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	all = append(all, e.targets...)
	if len(all) == 0 {
		return nil, fmt.Errorf("nothing to measure: -servers and -target are empty")
	}
	return all, nil
}

// queues is contestants without those that are no queues, which the report then names.
func (e *env) queues(r *report) ([]contestant, error) {
	all, err := e.contestants()
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		if c.keys != queueKeys {
			r.note("%s is left out: it has no queues", c.name)
		}
	}
	all = slices.DeleteFunc(all, func(c contestant) bool { return c.keys != queueKeys })
	if len(all) == 0 {
		return nil, fmt.Errorf("no queue server among -servers and -target")
	}
	return all, nil
}

// parseServer reads one word of -servers.
func parseServer(word string) (contestant, error) {
	kind, setting, _ := strings.Cut(word, "/")
	switch {
	case kind == "qserver" && setting != "":
		return contestant{name: word, start: func(ctx context.Context, e *env, more ...string) (*server, error) {
			return startQserver(ctx, e, word, setting, more)
		}}, nil
	case word == "memcached":
		return contestant{name: word, keys: singleKey, start: startMemcached(word, singleKey)}, nil
	case word == "memcached/each":
		return contestant{name: word, keys: keyForEach, start: startMemcached(word, keyForEach)}, nil
	}
	return contestant{}, fmt.Errorf("no server %q: qserver/MODE, memcached and memcached/each are known", word)
}

// parseTarget reads a -target: name=protocol@addr, with +http-addr behind it where counts are to be asked over HTTP.
func parseTarget(value string) (contestant, error) {
	name, rest, ok := strings.Cut(value, "=")
	protocol, addr, ok2 := strings.Cut(rest, "@")
	addr, admin, _ := strings.Cut(addr, "+")
	if !ok || !ok2 || name == "" || addr == "" {
		return contestant{}, fmt.Errorf("%q is not of the form name=protocol@addr", value)
	}
	c := contestant{name: name, word: value, addr: addr, admin: admin}
	switch protocol {
	case "queue":
	case "memcached":
		c.keys = singleKey
	default:
		return contestant{}, fmt.Errorf("no protocol %q: queue and memcached are known", protocol)
	}
	c.start = func(context.Context, *env, ...string) (*server, error) {
		return &server{contestant: c, addr: c.addr, admin: c.admin}, nil
	}
	return c, nil
}

// startQserver starts the server of this project on free loopback ports with an empty data folder.
func startQserver(ctx context.Context, e *env, name, mode string, more []string) (*server, error) {
	data, err := os.MkdirTemp(e.dir, "data-")
	if err != nil {
		return nil, err
	}
	return startQserverOn(ctx, e, name, mode, data, more)
}

// startQserverOn starts it on a folder that may hold data. server.ready is the time from its start until /readyz was 200.
func startQserverOn(ctx context.Context, e *env, name, mode, data string, more []string) (*server, error) {
	path, err := e.qserver(ctx)
	if err != nil {
		return nil, err
	}
	s := &server{contestant: contestant{name: name}, data: data}
	s.restart = func(ctx context.Context) (*server, error) { return startQserverOn(ctx, e, name, mode, data, more) }
	if s.addr, err = freePort(); err != nil {
		return nil, err
	}
	if s.admin, err = freePort(); err != nil {
		return nil, err
	}
	args := []string{"-listen", s.addr, "-admin", s.admin, "-data", data, "-sync", mode}
	args = append(append(args, strings.Fields(e.serverFlags)...), more...)
	began := time.Now()
	if s.proc, err = startProcess(ctx, filepath.Join(e.dir, "server.log"), path, args...); err != nil {
		return nil, err
	}
	if err := s.proc.await(ctx, func() bool { return httpOK(ctx, "http://"+s.admin+"/readyz") }); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	s.ready = time.Since(began)
	return s, nil
}

// memcachedFlags are fair to it: memory so that nothing is evicted, a thread for each of two cores, nothing logged.
var memcachedFlags = []string{"-m", "4096", "-t", "2", "-c", "4096", "-U", "0"}

func startMemcached(name string, keys keyRule) func(context.Context, *env, ...string) (*server, error) {
	return func(ctx context.Context, e *env, _ ...string) (*server, error) {
		path, err := exec.LookPath("memcached")
		if err != nil {
			return nil, fmt.Errorf("memcached is not installed (Debian: apt-get install memcached): %w", err)
		}
		s := &server{contestant: contestant{name: name, keys: keys}}
		if s.addr, err = freePort(); err != nil {
			return nil, err
		}
		host, port, _ := net.SplitHostPort(s.addr)
		args := append([]string{"-l", host, "-p", port}, memcachedFlags...)
		if u, err := user.Current(); err == nil && u.Uid == "0" {
			args = append(args, "-u", u.Username) // it refuses to run as root unless told to
		}
		if s.proc, err = startProcess(ctx, filepath.Join(e.dir, "memcached.log"), path, args...); err != nil {
			return nil, err
		}
		err = s.proc.await(ctx, func() bool {
			conn, err := net.Dial("tcp", s.addr)
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
		if err != nil {
			return nil, fmt.Errorf("start memcached: %w", err)
		}
		return s, nil
	}
}

// stop ends the server in its own way (SIGTERM) and removes its data.
func (s *server) stop() error {
	if s.proc == nil {
		return nil
	}
	err := s.proc.stop()
	if s.data != "" {
		os.RemoveAll(s.data)
	}
	return err
}

// dial opens n connections to the server. On an error those that were opened are closed.
func (s *server) dial(ctx context.Context, n int) (conns, error) {
	var cs conns
	for range n {
		c, err := client.DialMemcache(ctx, s.addr)
		if err != nil {
			cs.close()
			return nil, err
		}
		cs = append(cs, c)
	}
	return cs, nil
}

type conns []*client.Memcache

func (cs conns) close() {
	for _, c := range cs {
		c.Close()
	}
}

// freePort returns a loopback address that was free a moment ago.
func freePort() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// noteServers says in the report which programs were measured and how they were set.
func (r *report) noteServers(all []contestant) {
	for _, c := range all {
		switch c.name {
		case "memcached":
			r.note("%s: set overwrites one key a connection, its best case; what is got and deleted lies under a key each", memcachedVersion())
		case "memcached/each":
			r.note("%s as memcached/each: a key for each message", memcachedVersion())
		}
	}
}

// memcachedVersion is its name, version and flags.
func memcachedVersion() string {
	out, err := exec.Command("memcached", "-V").Output()
	if err != nil {
		return "memcached"
	}
	return strings.TrimSpace(string(out)) + " " + strings.Join(memcachedFlags, " ")
}
