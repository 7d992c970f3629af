package memcache

import (
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"qserver/storage"
)

// counter is one of the numbers that connections count up.
type counter int

const (
	cmdGet counter = iota // keys, as memcached counts them
	cmdSet
	cmdTouch
	cmdFlush
	getHits
	getMisses
	deleteHits
	deleteMisses
	touchHits
	touchMisses
	casHits
	casMisses
	casBadval
	incrMisses
	decrMisses
	badOptions
	noreplyErrors
	protocolErrors
	httpClosed
	timeouts
	authCmds
	authErrors
	handshakeErrors
	slowClosed
	waits
	bytesWritten
	bytesRead
	numCounters
)

// counterNames are the names in `stats`, memcached's where it has one.
var counterNames = [numCounters]string{
	cmdGet:          "cmd_get",
	cmdSet:          "cmd_set",
	cmdTouch:        "cmd_touch",
	cmdFlush:        "cmd_flush",
	getHits:         "get_hits",
	getMisses:       "get_misses",
	deleteHits:      "delete_hits",
	deleteMisses:    "delete_misses",
	touchHits:       "touch_hits",
	touchMisses:     "touch_misses",
	casHits:         "cas_hits",
	casMisses:       "cas_misses",
	casBadval:       "cas_badval",
	incrMisses:      "incr_misses",
	decrMisses:      "decr_misses",
	badOptions:      "cmd_bad_option",
	noreplyErrors:   "noreply_errors",
	protocolErrors:  "protocol_errors",
	httpClosed:      "http_closed",
	timeouts:        "conn_timeouts",
	authCmds:        "auth_cmds",
	authErrors:      "auth_errors",
	handshakeErrors: "ssl_handshake_errors",
	slowClosed:      "slow_clients_closed",
	waits:           "cmd_wait",
	bytesWritten:    "bytes_written",
	bytesRead:       "bytes_read",
}

// counters are one connection's, since it last published them.
type counters [numCounters]uint64

// counters64 are the server's, added up.
type counters64 [numCounters]atomic.Uint64

// publish adds what this connection counted to the server's numbers.
func (c *conn) publish() {
	c.counts[bytesRead], c.in.arrived = c.counts[bytesRead]+c.in.arrived, 0
	for i, n := range c.counts {
		if n != 0 {
			c.srv.totals[i].Add(n)
			c.counts[i] = 0
		}
	}
}

// Stats are the server's numbers at one moment: of connections now, and of commands since it started or since `stats reset`.
type Stats struct {
	CurrConnections, MaxConnections       int64
	TotalConnections, RejectedConnections int64
	StalledClosed, SlowClosed, Panics     int64
	BytesRead, BytesWritten               uint64
	Gets, GetHits, GetMisses              uint64 // keys of get lines
	Sets                                  uint64 // set, add, replace, cas, append, prepend
	DeleteHits, DeleteMisses              uint64
	TouchHits, TouchMisses                uint64
	BadOptions, ProtocolErrors            uint64
	NoreplyErrors                         uint64 // commands with noreply that failed
	Waits                                 uint64 // gets that had to wait
	AuthCmds, AuthErrors                  uint64 // logins, and those that were wrong
	HandshakeErrors                       uint64 // of TLS
}

// Stats reads the counters. Connections add theirs whenever they answer or wait.
func (s *Server) Stats() Stats {
	n := func(i counter) uint64 { return s.totals[i].Load() }
	return Stats{
		CurrConnections:     s.open.Load(),
		MaxConnections:      int64(s.maxConns()),
		TotalConnections:    s.accepted.Load(),
		RejectedConnections: s.rejected.Load(),
		StalledClosed:       s.stalledClosed.Load(),
		SlowClosed:          int64(n(slowClosed)),
		Panics:              s.panics.Load(),
		BytesRead:           n(bytesRead),
		BytesWritten:        n(bytesWritten),
		Gets:                n(cmdGet),
		GetHits:             n(getHits),
		GetMisses:           n(getMisses),
		Sets:                n(cmdSet),
		DeleteHits:          n(deleteHits),
		DeleteMisses:        n(deleteMisses),
		TouchHits:           n(touchHits),
		TouchMisses:         n(touchMisses),
		BadOptions:          n(badOptions),
		ProtocolErrors:      n(protocolErrors),
		NoreplyErrors:       n(noreplyErrors),
		Waits:               n(waits),
		AuthCmds:            n(authCmds),
		AuthErrors:          n(authErrors),
		HandshakeErrors:     n(handshakeErrors),
	}
}

// stats answers `stats` and its sub-commands. What memcached has and a queue has not is an empty list.
func (c *conn) stats() {
	if !c.commit() { // a connection sees its own earlier commands, also when it counts
		return
	}
	c.publish()
	word, _ := token(c.cmd.args)
	switch string(word) {
	case "":
		c.generalStats()
		if c.cmd.upper && !c.queueStats(true) { // Kestrel's clients look for their queues here
			return
		}
	case "items":
		c.itemStats()
	case "settings":
		c.settingStats()
	case "queues":
		if !c.queueStats(false) {
			return
		}
	case "noreply": // it would leave a client that waits for nothing with all these lines
		c.fault(faultUnknown)
		return
	case "reset":
		for i := range c.srv.totals {
			c.srv.totals[i].Store(0)
		}
		c.endStats(replyReset)
		return
	}
	c.endStats(replyEnd)
}

// stat answers one statistic, in the client's protocol.
func (c *conn) stat(name, value string) {
	if c.cmd.dialect == binaryDialect {
		c.respond(statusOK, nil, []byte(name), []byte(value), 0)
		return
	}
	c.out.stat(name, value)
}

func (c *conn) endStats(line string) {
	if c.cmd.dialect == binaryDialect {
		c.respond(statusOK, nil, nil, nil, 0)
		return
	}
	c.out.text(line)
}

func (c *conn) statInt(name string, n int64) { c.stat(name, strconv.FormatInt(n, 10)) }

func (c *conn) generalStats() {
	s := c.srv
	now := time.Now()
	c.statInt("pid", int64(os.Getpid()))
	c.statInt("uptime", int64(now.Sub(s.started)/time.Second))
	c.statInt("time", now.Unix())
	c.stat("version", s.version)
	c.stat("product", "qserver")
	c.statInt("pointer_size", strconv.IntSize)
	c.statInt("max_connections", int64(s.maxConns()))
	c.statInt("curr_connections", s.open.Load())
	c.statInt("total_connections", s.accepted.Load())
	c.statInt("rejected_connections", s.rejected.Load())
	c.statInt("stalled_closed", s.stalledClosed.Load())
	c.statInt("panics", s.panics.Load())
	for i, name := range counterNames {
		c.stat(name, strconv.FormatUint(s.totals[i].Load(), 10))
	}
	c.statInt("threads", s.cores)
	c.statInt("goroutines", int64(runtime.NumGoroutine()))
	c.statInt("accepting_conns", 1)
	c.statInt("evictions", 0)
	c.storeStats(s.Store.Stats())
	if s.ExtraStats != nil {
		s.ExtraStats(c.stat)
	}
}

func (c *conn) storeStats(st storage.Stats) {
	c.statInt("limit_maxbytes", st.MemoryLimit)
	c.statInt("memory_bytes", st.MemoryBytes)
	c.statInt("curr_items", st.Items)
	c.statInt("total_items", st.TotalItems)
	c.statInt("bytes", st.Bytes)
	c.statInt("queues", st.Queues)
	c.statInt("items_ready", st.Ready)
	c.statInt("items_reserved", st.QueueStats.Reserved)
	c.statInt("items_delayed", st.Delayed)
	c.statInt("items_dead", st.Dead)
	c.statInt("waiters", st.Waiters)
	c.statInt("total_acked", st.TotalAcked)
	c.statInt("total_purged", st.TotalPurged)
	c.statInt("total_expired", st.TotalExpired)
	c.statInt("total_returned", st.Returned)
	c.statInt("leases_lapsed", st.LeasesLapsed)
	c.statInt("held_limit", st.HeldLimit)
	c.statInt("log_bytes", st.LogBytes)
	c.statInt("tree_bytes", st.TreeBytes)
	c.statInt("syncs", st.Syncs)
	c.statInt("checkpoints", st.Checkpoints)
}

// itemStats is for tools that look at memcached's slab classes: all messages are of class 1.
func (c *conn) itemStats() {
	st := c.srv.Store.Stats()
	if st.Items == 0 {
		return
	}
	c.statInt("items:1:number", st.Items)
	c.statInt("items:1:age", int64(st.Age/time.Second))
}

func (c *conn) settingStats() {
	s := c.srv
	mode := map[GetMode]string{GetReserve: "reserve", GetOpen: "open", GetRemove: "remove"}[s.GetMode]
	onOff := func(on bool) string {
		if on {
			return "yes"
		}
		return "no"
	}
	c.statInt("maxconns", int64(s.maxConns()))
	c.statInt("item_size_max", s.maxItemSize())
	c.statInt("body_memory", s.bodyMemory())
	c.statInt("wait_ms", int64(s.Wait/time.Millisecond))
	c.statInt("idle_timeout", int64(s.IdleTimeout/time.Second))
	c.stat("get", mode)
	c.stat("key_options", onOff(!s.NoKeyOptions))
	c.stat("flush_enabled", onOff(s.AllowFlushAll))
	c.stat("auth_enabled_sasl", onOff(s.Accounts != nil))
	c.stat("auth_enabled_ascii", onOff(s.Accounts != nil))
	c.stat("evictions", "off")
	c.stat("cas_enabled", "yes")
	c.stat("binding_protocol", "auto-negotiate")
}
