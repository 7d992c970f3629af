package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"qserver/storage"
)

// config is what a server is started with.
type config struct {
	listen, admin string // host:port
	socket        string // path of a Unix socket; "": none
	socketMode    fs.FileMode
	adminHosts    []string
	insecure      bool
	pprof         pprofMode
	maxConns      int

	authFile               string // "": nobody needs to log in
	tlsCert, tlsKey, tlsCA string // files; "": none
	tlsPorts               string // listen, admin or both

	data         string
	sync         storage.SyncMode
	syncInterval time.Duration // with storage.SyncInterval
	ulim         int64

	memory, bodyMemory, maxItemSize int64
	maxHeld                         int

	wait          time.Duration
	get           string // reserve, open or remove
	keyOptions    bool
	ttl           bool
	allowFlushAll bool

	drain    time.Duration
	log      string // file; "": standard error; "-": standard output
	logLevel slog.Level
	pid      string
	cmd      string // folder of the programs that /rpc/synchronize may run; "": none

	connIdle  time.Duration // idle memcached connections end after it; 0: never
	adminIdle time.Duration // idle HTTP connections end after it; 0: the default; only Kyoto Tycoon's -tout sets it

	sid            int    // 0: none
	mhost, mport   string // of the master that it follows; mhost "": none
	riv            time.Duration
	replSecretFile string
	adminCA        string // file; "": the HTTP ports of other servers speak no TLS
	ulogKeep       int64
	promoteLag     int

	minSlaves        int // 0: none
	minSlavesTimeout time.Duration
	minSlavesMode    string // degrade or refuse

	help, version bool
	notes         []string // said once at start
}

// levelOff is above every level that is logged.
const levelOff = slog.Level(math.MaxInt16)

// knob is one setting: everything about it is in its row of the table below.
type knob struct {
	group string // heading in the help
	name  string // of the flag; the environment variable is QSERVER_ and the name in capitals, "-" as "_"
	unit  string // placeholder of the value in the help; "": a switch
	def   string // default, as one would write it
	help  string
	set   func(string) error // checks the value as well
}

func (k knob) env() string {
	return "QSERVER_" + strings.ToUpper(strings.ReplaceAll(k.name, "-", "_"))
}

// knobs is the table of all settings, in the order of the help.
func (c *config) knobs() []knob {
	const (
		addresses = "Addresses"
		data      = "Data"
		gate      = "Who is let in to the memcached port (docs/security.md)"
		limits    = "Memory and limits"
		queues    = "Queues"
		process   = "Process"
		slaves    = "Master and slaves"
	)
	return []knob{
		{addresses, "listen", "ADDRESS", "127.0.0.1:11211", "memcached protocol, host:port", address(&c.listen)},
		{addresses, "admin", "ADDRESS", "127.0.0.1:1978", "HTTP: health, counts, Kyoto Tycoon's procedures", address(&c.admin)},
		{addresses, "admin-hosts", "NAME,…", "", "names that HTTP requests may be sent to besides loopback and\nthe address of -admin", c.setHosts},
		{addresses, "insecure", "", "off", "listen beyond loopback although nothing asks for a password", toggle(&c.insecure)},
		{addresses, "pprof", "", "off", "Go's profiles at /debug/pprof/ of -admin, if that is a loopback\naddress; -pprof=public: wherever it is", c.pprof.set},

		{addresses, "socket", "FILE", "", "memcached protocol at a Unix socket as well", text(&c.socket, "a file")},
		{addresses, "socket-mode", "MODE", "0600", "permissions of the socket's file", fileMode(&c.socketMode)},

		{gate, "auth-file", "FILE", "", "users and bcrypt hashes of passwords, see qserver passwd;\nclients log in by SASL PLAIN or memcached's first set", text(&c.authFile, "a file")},
		{gate, "tls-cert", "FILE", "", "speak TLS with this chain of certificates, in PEM form", text(&c.tlsCert, "a file")},
		{gate, "tls-key", "FILE", "", "its private key", text(&c.tlsKey, "a file")},
		{gate, "tls-ports", "PORTS", "listen", "which ports speak it: listen, admin or both", choice(&c.tlsPorts, "listen", "admin", "both")},
		{gate, "tls-ca", "FILE", "", "clients must show a certificate signed by one of these", text(&c.tlsCA, "a file")},

		{data, "data", "DIR", "./qserver-data", "folder of the messages; made if it is not there", text(&c.data, "a folder")},
		{data, "sync", "MODE", "enqueue", "what waits for the disk before it is answered: always (all),\nenqueue (acks may come again after a power cut), interval=1s\n(a power cut undoes at most that long), never", c.setSync},
		{data, "ulim", "SIZE", "64MiB", "size of a file of the update log", size(&c.ulim, 64*kib, 64*gib)},

		{limits, "memory", "SIZE", "256MiB", "for messages in memory; what is more is on disk only", size(&c.memory, 8*mib, 64*tib)},
		{limits, "body-memory", "SIZE", "128MiB", "for bodies that are still arriving, of all connections", size(&c.bodyMemory, mib, 64*tib)},
		{limits, "max-item-size", "SIZE", "64MiB", "largest body", size(&c.maxItemSize, 1, 2147483645)},
		{limits, "max-held", "NUMBER", "10000", "messages that a connection may hold unacked", number(&c.maxHeld, 1, 10_000_000)},
		{limits, "max-conns", "NUMBER", "20000", "memcached connections", number(&c.maxConns, 1, 10_000_000)},
		{limits, "idle-timeout", "DURATION", "0s", "close memcached connections that send nothing for so long;\n0s: never", duration(&c.connIdle, 0, 365*24*time.Hour)},

		{queues, "wait", "DURATION", "0s", "how long a get on an empty queue waits; keep it below the\nclient's timeout", duration(&c.wait, 0, 24*time.Hour)},
		{queues, "get", "MODE", "reserve", "what a plain get does: reserve, open (give back first what\nthe connection holds of that queue), remove (ack at once)", choice(&c.get, "reserve", "open", "remove")},
		{queues, "key-options", "on|off", "on", "read options in keys, as in get mail/t=500", onOff(&c.keyOptions)},
		{queues, "ttl", "on|off", "on", "off: ignore the expiry times of what is enqueued", onOff(&c.ttl)},
		{queues, "allow-flush-all", "", "off", "let flush_all and /rpc/clear empty every queue", toggle(&c.allowFlushAll)},

		{slaves, "sid", "NUMBER", "", "this server's number among master and slaves: each has its own,\n1 to 65535", number(&c.sid, 0, 65535)},
		{slaves, "mhost", "HOST", "", "be a slave of the master there: read-only, with all it has", text(&c.mhost, "a host")},
		{slaves, "mport", "PORT", "1978", "the master's HTTP port (its -admin)", port(&c.mport)},
		{slaves, "riv", "MS", "0", "pause of a slave for each record, in milliseconds, such as 0.04", millis(&c.riv)},
		{slaves, "repl-secret-file", "FILE", "", "what slaves and master must prove to know; without it a master\nserves slaves on loopback only", text(&c.replSecretFile, "a file")},
		{slaves, "admin-ca", "FILE", "", "the HTTP ports of master and slaves speak TLS, with certificates\nsigned by one of these, in PEM form", text(&c.adminCA, "a file")},
		{slaves, "ulog-keep", "SIZE", "4GiB", "how much of the update log is kept for slaves that are\nbehind", size(&c.ulogKeep, mib, 64*tib)},
		{slaves, "promote-lag", "NUMBER", "10000", "qserver promote refuses where more records of the master's are\nmissing", number(&c.promoteLag, 0, 1<<31-1)},
		{slaves, "min-slaves", "NUMBER", "0", "an enqueue is STORED when so many slaves have it on their disks", number(&c.minSlaves, 0, 100)},
		{slaves, "min-slaves-timeout", "DURATION", "1s", "how long it waits for them", duration(&c.minSlavesTimeout, time.Millisecond, time.Minute)},
		{slaves, "min-slaves-mode", "MODE", "degrade", "afterwards, until they are back: degrade (enqueues are STORED\nwithout them) or refuse", choice(&c.minSlavesMode, "degrade", "refuse")},

		{process, "drain", "DURATION", "5s", "at the end, how long what is held may still be acked", duration(&c.drain, 0, time.Hour)},
		{process, "log", "FILE", "", "instead of standard error; SIGHUP opens it anew; - is\nstandard output", text(&c.log, "a file")},
		{process, "log-level", "LEVEL", "info", "debug, info, warn, error or off", c.setLogLevel},
		{process, "pid", "FILE", "", "write the process number there", text(&c.pid, "a file")},
		{process, "cmd", "DIR", "", "folder of the programs that /rpc/synchronize may run", text(&c.cmd, "a folder")},
	}
}

// parseConfig reads the command line over the environment over the defaults. Errors are usage errors.
func parseConfig(args, environ []string) (*config, error) {
	c := new(config)
	kt := newTycoon(c)
	knobs := c.knobs()
	options := []option{
		{"help", true, toggle(&c.help)}, {"h", true, toggle(&c.help)},
		{"version", true, toggle(&c.version)},
	}
	for _, k := range knobs {
		options = append(options, option{k.name, k.unit == "", k.set})
	}
	given, operands, err := parseArgs(args, append(options, kt.options()...))
	if err != nil {
		return nil, err
	}
	if err := c.setDefaults(knobs); err != nil {
		return nil, err
	}
	environment, err := c.setEnvironment(knobs, environ)
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool, len(given))
	for _, s := range given {
		names[s.name] = true
		if err := s.apply(); err != nil {
			return nil, err
		}
	}
	if err := kt.finish(names, environment, operands); err != nil {
		return nil, err
	}
	return c, c.check()
}

func (c *config) setDefaults(knobs []knob) error {
	for _, k := range knobs {
		if k.def == "" {
			continue
		}
		if err := k.set(k.def); err != nil {
			return fmt.Errorf("default of -%s: %w", k.name, err)
		}
	}
	return nil
}

// setEnvironment reads QSERVER_… variables and says which knobs they set; an empty one is as none. One that is nobody's is named only if it looks like a
// slip: container platforms set some that begin alike (QSERVER_PORT for a service of the name).
func (c *config) setEnvironment(knobs []knob, environ []string) (map[string]bool, error) {
	values, set := make(map[string]string), make(map[string]bool)
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "QSERVER_") && name != "QSERVER_PORT" && value != "" {
			values[name] = value
		}
	}
	names := make([]string, len(knobs))
	for i, k := range knobs {
		names[i] = k.env()
		value, ok := values[k.env()]
		delete(values, k.env())
		if !ok {
			continue
		}
		if err := k.set(value); err != nil {
			return nil, usageError("%s=%s: %w", k.env(), value, err)
		}
		set[k.name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		i := slices.IndexFunc(names, func(known string) bool { return distance(name, known) <= 2 })
		if i >= 0 {
			c.notes = append(c.notes, fmt.Sprintf("unknown environment variable %s has no effect; the nearest is %s", name, names[i]))
		}
	}
	return set, nil
}

// check looks at settings that depend on each other.
func (c *config) check() error {
	if c.maxItemSize > c.bodyMemory {
		return usageError("-max-item-size %s is more than -body-memory %s: such a body could never arrive",
			formatSize(c.maxItemSize), formatSize(c.bodyMemory))
	}
	if c.listen == c.admin && !strings.HasSuffix(c.listen, ":0") {
		return usageError("-listen and -admin are both %s: they need a port each", c.listen)
	}
	if c.mhost != "" && c.sid == 0 {
		return usageError("-mhost %s needs -sid NUMBER: 1 to 65535, another than the master's", c.mhost)
	}
	return nil
}

func (c *config) setSync(s string) error {
	mode, value, hasValue := strings.Cut(s, "=")
	if mode == "interval" && hasValue {
		var d time.Duration
		if err := duration(&d, time.Millisecond, time.Hour)(value); err != nil {
			return err
		}
		c.sync, c.syncInterval = storage.SyncInterval, d
		return nil
	}
	modes := map[string]storage.SyncMode{"always": storage.SyncAlways, "enqueue": storage.SyncEnqueue, "never": storage.SyncNever}
	m, ok := modes[s]
	if !ok {
		return errors.New("want always, enqueue, interval=DURATION or never")
	}
	c.sync, c.syncInterval = m, 0
	return nil
}

// syncText is the value of -sync, as one would write it.
func (c *config) syncText() string {
	switch c.sync {
	case storage.SyncAlways:
		return "always"
	case storage.SyncInterval:
		return "interval=" + c.syncInterval.String()
	case storage.SyncNever:
		return "never"
	default:
		return "enqueue"
	}
}

func (c *config) setHosts(s string) error {
	names := strings.Split(s, ",")
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, " /") {
			return errors.New("want host names without port, parted by commas")
		}
	}
	c.adminHosts = names
	return nil
}

func (c *config) setLogLevel(s string) error {
	levels := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError, "off": levelOff,
	}
	level, ok := levels[s]
	if !ok {
		return errors.New("want debug, info, warn, error or off")
	}
	c.logLevel = level
	return nil
}

// text sets *p to a value that is not empty; what says what it is, for the error.
func text(p *string, what string) func(string) error {
	return func(s string) error {
		if s == "" {
			return errors.New("want " + what)
		}
		*p = s
		return nil
	}
}

func choice(p *string, names ...string) func(string) error {
	return func(s string) error {
		if !slices.Contains(names, s) {
			last := len(names) - 1
			return errors.New("want " + strings.Join(names[:last], ", ") + " or " + names[last])
		}
		*p = s
		return nil
	}
}

func onOff(p *bool) func(string) error {
	return func(s string) error {
		if s != "on" && s != "off" {
			return errors.New("want on or off")
		}
		*p = s == "on"
		return nil
	}
}

// toggle sets a switch: -insecure, -insecure=false, QSERVER_INSECURE=1.
func toggle(p *bool) func(string) error {
	return func(s string) error {
		on, err := strconv.ParseBool(s)
		if err != nil {
			return onOff(p)(s)
		}
		*p = on
		return nil
	}
}
