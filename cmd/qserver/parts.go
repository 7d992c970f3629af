package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"qserver/admin"
	"qserver/protocol/memcache"
	"qserver/storage"
)

// Each part gets its options from the config here, and what it asks of another part as a func.

func newStorageOptions(s *server, p *progress) storage.Options {
	c := s.config
	segments := 0
	if c.sid > 0 {
		segments = logSegments
	}
	return storage.Options{
		Sync:         c.sync,
		SyncInterval: c.syncInterval,
		SegmentBytes: c.ulim,
		Memory:       c.memory,
		MaxHeld:      c.maxHeld,
		IgnoreTTL:    !c.ttl,
		Master:       s.replica.address,
		LogKeep:      c.ulogKeep,
		LogSegments:  segments,

		MinSlaves:        c.minSlaves,
		MinSlavesTimeout: c.minSlavesTimeout,
		RefuseAlone:      c.minSlavesMode == "refuse",

		Log: s.log,
		FS:  s.fs,
		Progress: func(step string, done, total int64) {
			s.recovery.set(step, done, total)
			p.report(step, done, total)
		},
	}
}

// logSegments is how much of its log a server among master and slaves keeps even where nobody needs it: where two wrote on in one epoch
// it tells which records are whose. A restart begins a segment.
const logSegments = 4

func newAdmin(s *server, at endpoint) *admin.Server {
	c := s.config
	return &admin.Server{
		Hosts:         append(ownNames(at), c.adminHosts...),
		AllowFlushAll: c.allowFlushAll,
		Pprof:         c.pprof != pprofOff,
		CmdDir:        c.cmd,
		IdleTimeout:   c.adminIdle,
		Version:       version,
		StartedAt:     s.started,
		Log:           s.log,
		Recovery:      s.recovery.text,
		Handlers:      s.replicationHandlers(),
		Master:        s.masterView,
		Traffic:       func() admin.Traffic { return traffic(s.mc.Stats()) },
	}
}

func traffic(st memcache.Stats) admin.Traffic {
	return admin.Traffic{
		Connections:      st.CurrConnections,
		ConnectionsTotal: st.TotalConnections,
		Sets:             int64(st.Sets),
		Removes:          int64(st.DeleteHits + st.DeleteMisses),
		RemoveMisses:     int64(st.DeleteMisses),
		Gets:             int64(st.Gets),
		GetMisses:        int64(st.GetMisses),
		Misc:             int64(st.TouchHits + st.TouchMisses),
	}
}

// newMemcached lacks the store, which comes with the end of recovery.
func newMemcached(s *server) *memcache.Server {
	c := s.config
	modes := map[string]memcache.GetMode{"reserve": memcache.GetReserve, "open": memcache.GetOpen, "remove": memcache.GetRemove}
	mc := &memcache.Server{
		Log:           s.log,
		MaxItemSize:   c.maxItemSize,
		BodyMemory:    c.bodyMemory,
		MaxConns:      c.maxConns,
		Wait:          c.wait,
		IdleTimeout:   c.connIdle,
		GetMode:       modes[c.get],
		NoKeyOptions:  !c.keyOptions,
		ExtraStats:    s.replicationStats,
		AllowFlushAll: c.allowFlushAll,
		Version:       version,
	}
	if s.gate.accounts != nil {
		mc.Accounts = s.gate.accounts
	}
	return mc
}

// ownNames lists what a Host header may name because -admin listens there: the host as given and its address, or every
// address of the machine. Addresses are safe, it is names that a stranger can make point here.
func ownNames(at endpoint) []string {
	var names []string
	if host, _, err := net.SplitHostPort(at.text); err == nil && host != "" {
		names = append(names, host)
	}
	if at.addr.IP != nil && !at.addr.IP.IsUnspecified() {
		return append(names, at.addr.IP.String())
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return names
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			names = append(names, n.IP.String())
		}
	}
	return names
}

// recovery is how far the start is, for /readyz.
type recovery struct{ now atomic.Pointer[string] }

func (r *recovery) set(step string, done, total int64) {
	text := "recovery: " + progressText(step, done, total)
	r.now.Store(&text)
}

func (r *recovery) text() string {
	if p := r.now.Load(); p != nil {
		return *p
	}
	return "recovery"
}

// whoElse tells more of a failed listen where another qserver has the address: most often it is the same server twice.
func (s *server) whoElse(ctx context.Context, at endpoint, listenErr error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var raw json.RawMessage
	var other statusView
	port := adminPort{address: reachable(at.text)}
	if s.config.adminTLS() { // what it says becomes part of a message, nothing else
		port.tls = &tls.Config{InsecureSkipVerify: true}
	}
	if port.get(ctx, "/api/v1/status", &raw) != nil || json.Unmarshal(raw, &other) != nil || other.PID == 0 {
		return listenErr
	}
	if other.Path == s.data {
		return fmt.Errorf("%w: a qserver, process %d, has %s and listens at %s", storage.ErrInUse, other.PID, s.data, at.text)
	}
	return withCode(exitUnavailable, fmt.Errorf("%w (it is a qserver, process %d, with the data folder %s)", listenErr, other.PID, other.Path))
}
