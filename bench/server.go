package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
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
	protocol    string // as client.Dial knows it
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
func (e *env) contestants(r *report) ([]contestant, error) {
	var all []contestant
	for word := range strings.SplitSeq(e.servers, ",") {
		word = strings.TrimSpace(word)
		words := []string{word}
		switch word {
		case "":
			continue
		case allPeers:
			words = e.installed(r)
		}
		for _, word := range words {
			c, err := parseServer(word)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
	}
	all = append(all, e.targets...)
	if len(all) == 0 {
		return nil, errors.New("nothing to measure: -servers and -target are empty")
	}
	return all, nil
}

// queues is contestants without those that are no queues, which the report then names. may says more about which.
func (e *env) queues(r *report, may func(c contestant) bool) ([]contestant, error) {
	all, err := e.contestants(r)
	if err != nil {
		return nil, err
	}
	kept := slices.DeleteFunc(slices.Clone(all), func(c contestant) bool {
		return c.keys != queueKeys || c.protocol == "append" || !may(c)
	})
	for _, c := range all {
		if !slices.ContainsFunc(kept, func(k contestant) bool { return k.name == c.name }) {
			r.note("%s is left out: not a server for this scenario", c.name)
		}
	}
	if len(kept) == 0 {
		return nil, errors.New("no server for this scenario among -servers and -target")
	}
	return kept, nil
}

func anyQueue(contestant) bool { return true }

// ours are the servers of this project that are started here.
func ours(c contestant) bool { return strings.HasPrefix(c.name, "qserver/") && c.word == "" }

// chains says whether the server acks and takes the next in one round trip.
func (c contestant) chains() bool {
	return c.keys == queueKeys && (c.protocol == "queue" || c.protocol == "kestrel")
}

// parseServer reads one word of -servers.
func parseServer(word string) (contestant, error) {
	kind, setting, _ := strings.Cut(word, "/")
	if kind == "qserver" && setting != "" {
		return contestant{name: word, protocol: "queue", start: func(ctx context.Context, e *env, more ...string) (*server, error) {
			return startQserver(ctx, e, word, setting, more)
		}}, nil
	}
	if c, ok := peers(word, kind, setting); ok {
		return c, nil
	}
	return contestant{}, fmt.Errorf("no server %q: -help has those that are known", word)
}

// parseTarget reads a -target: name=protocol@addr, with +http-addr behind it where counts are to be asked over HTTP.
func parseTarget(value string) (contestant, error) {
	name, rest, ok := strings.Cut(value, "=")
	protocol, addr, ok2 := strings.Cut(rest, "@")
	addr, admin, _ := strings.Cut(addr, "+")
	if !ok || !ok2 || name == "" || addr == "" {
		return contestant{}, fmt.Errorf("%q is not of the form name=protocol@addr", value)
	}
	if !client.Known(protocol) || protocol == "append" {
		return contestant{}, fmt.Errorf("no protocol %q: queue, memcached, tycoon, kestrel, beanstalkd, redis and jetstream are known", protocol)
	}
	c := contestant{name: name, protocol: protocol, word: value, addr: addr, admin: admin}
	if protocol == "memcached" {
		c.keys = singleKey
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
	s := &server{contestant: contestant{name: name, protocol: "queue"}, data: data}
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
		c, err := client.Dial(ctx, s.protocol, s.addr)
		if err != nil {
			cs.close()
			return nil, err
		}
		cs = append(cs, c)
	}
	return cs, nil
}

type conns []client.Conn

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
