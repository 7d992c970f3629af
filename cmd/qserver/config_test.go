package main

import (
	"io/fs"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"qserver/storage"
)

func TestDefaults(t *testing.T) {
	got, err := parseConfig(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &config{
		listen: "127.0.0.1:11211", admin: "127.0.0.1:1978", maxConns: 20000,
		data: "./qserver-data", sync: storage.SyncEnqueue, ulim: 64 * mib,
		memory: 256 * mib, bodyMemory: 128 * mib, maxItemSize: 64 * mib, maxHeld: 10000,
		socketMode: 0o600, get: "reserve", keyOptions: true, ttl: true,
		drain: 5 * time.Second, logLevel: slog.LevelInfo,
		mport: "1978", ulogKeep: 4 * gib, tlsPorts: "listen",
		promoteLag: 10000, minSlavesTimeout: time.Second, minSlavesMode: "degrade",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestKnobs gives every knob a good and a bad value, by flag and by environment.
func TestKnobs(t *testing.T) {
	rows := []struct {
		name, good, bad string
		get             func(*config) any
		want            any
		err             string // of bad
	}{
		{"listen", "localhost:0", "11211", func(c *config) any { return c.listen }, "localhost:0", "want host:port, such as 127.0.0.1:11211"},
		{"listen", "[::1]:65535", "127.0.0.1:65536", func(c *config) any { return c.listen }, "[::1]:65535", "want a port from 0 to 65535"},
		{"admin", ":80", "127.0.0.1:http", func(c *config) any { return c.admin }, ":80", "want a port from 0 to 65535"},
		{"admin-hosts", "q.example,q", "a b", func(c *config) any { return strings.Join(c.adminHosts, " ") }, "q.example q", "want host names without port, parted by commas"},
		{"insecure", "true", "perhaps", func(c *config) any { return c.insecure }, true, "want on or off"},
		{"insecure", "on", "2", func(c *config) any { return c.insecure }, true, "want on or off"},
		{"pprof", "on", "perhaps", func(c *config) any { return c.pprof }, pprofLoopback, "want on, off or public"},
		{"pprof", "public", "2", func(c *config) any { return c.pprof }, pprofPublic, "want on, off or public"},
		{"max-conns", "1", "0", func(c *config) any { return c.maxConns }, 1, "want a number from 1 to 10000000"},
		{"socket", "q.sock", "", func(c *config) any { return c.socket }, "q.sock", "want a file"},
		{"socket-mode", "0660", "0888", func(c *config) any { return c.socketMode }, fs.FileMode(0o660), "want an octal number from 0 to 0777, such as 0660"},
		{"socket-mode", "777", "1777", func(c *config) any { return c.socketMode }, fs.FileMode(0o777), "want an octal number from 0 to 0777, such as 0660"},
		{"auth-file", "users", "", func(c *config) any { return c.authFile }, "users", "want a file"},
		{"tls-cert", "c.pem", "", func(c *config) any { return c.tlsCert }, "c.pem", "want a file"},
		{"tls-key", "k.pem", "", func(c *config) any { return c.tlsKey }, "k.pem", "want a file"},
		{"tls-ports", "both", "TLS", func(c *config) any { return c.tlsPorts }, "both", "want listen, admin or both"},
		{"tls-ca", "a.pem", "", func(c *config) any { return c.tlsCA }, "a.pem", "want a file"},
		{"idle-timeout", "90s", "90", func(c *config) any { return c.connIdle }, 90 * time.Second, "the unit is missing: 90s or 90ms"},
		{"data", "x", "", func(c *config) any { return c.data }, "x", "want a folder"},
		{"sync", "always", "sometimes", func(c *config) any { return c.syncText() }, "always", "want always, enqueue, interval=DURATION or never"},
		{"sync", "never", "interval", func(c *config) any { return c.syncText() }, "never", "want always, enqueue, interval=DURATION or never"},
		{"sync", "enqueue", "never=1s", func(c *config) any { return c.syncText() }, "enqueue", "want always, enqueue, interval=DURATION or never"},
		{"sync", "interval=250ms", "interval=0", func(c *config) any { return c.syncText() }, "interval=250ms", "want 1ms to 1h0m0s"},
		{"sync", "interval=1h", "interval=1", func(c *config) any { return c.syncInterval }, time.Hour, "the unit is missing: 1s or 1ms"},
		{"ulim", "256M", "1k", func(c *config) any { return c.ulim }, int64(256 * mib), "want 64KiB to 64GiB"},
		{"memory", "64MiB", "1.5g", func(c *config) any { return c.memory }, int64(64 * mib), errSize.Error()},
		{"body-memory", "1g", "99999999999999999999", func(c *config) any { return c.bodyMemory }, int64(gib), "is too large"},
		{"max-item-size", "1", "2147483646", func(c *config) any { return c.maxItemSize }, int64(1), "want 1 to 2147483645"},
		{"max-held", "3", "-3", func(c *config) any { return c.maxHeld }, 3, "want a number from 1 to 10000000"},
		{"wait", "400ms", "10", func(c *config) any { return c.wait }, 400 * time.Millisecond, "the unit is missing: 10s or 10ms"},
		{"get", "remove", "take", func(c *config) any { return c.get }, "remove", "want reserve, open or remove"},
		{"key-options", "off", "false", func(c *config) any { return c.keyOptions }, false, "want on or off"},
		{"ttl", "off", "no", func(c *config) any { return c.ttl }, false, "want on or off"},
		{"allow-flush-all", "1", "yes", func(c *config) any { return c.allowFlushAll }, true, "want on or off"},
		{"drain", "1m", "2h", func(c *config) any { return c.drain }, time.Minute, "want 0s to 1h0m0s"},
		{"log", "q.log", "", func(c *config) any { return c.log }, "q.log", "want a file"},
		{"log-level", "debug", "INFO", func(c *config) any { return c.logLevel }, slog.LevelDebug, "want debug, info, warn, error or off"},
		{"log-level", "off", "none", func(c *config) any { return c.logLevel }, levelOff, "want debug, info, warn, error or off"},
		{"pid", "q.pid", "", func(c *config) any { return c.pid }, "q.pid", "want a file"},
		{"cmd", "bin", "", func(c *config) any { return c.cmd }, "bin", "want a folder"},
		{"sid", "65535", "65536", func(c *config) any { return c.sid }, 65535, "want a number from 0 to 65535"},
		{"mport", "10001", "65536", func(c *config) any { return c.mport }, "10001", "want a number from 0 to 65535"},
		{"mhost", "master", "", func(c *config) any { return c.masterAddress() }, "master:1978", "want a host"},
		{"riv", "0.04", "soon", func(c *config) any { return c.riv }, 40 * time.Microsecond, "want a number of milliseconds, such as 0.04"},
		{"repl-secret-file", "secret", "", func(c *config) any { return c.replSecretFile }, "secret", "want a file"},
		{"admin-ca", "ca.pem", "", func(c *config) any { return c.adminCA }, "ca.pem", "want a file"},
		{"ulog-keep", "1g", "1k", func(c *config) any { return c.ulogKeep }, int64(gib), "want 1MiB to 64TiB"},
		{"min-slaves", "2", "x", func(c *config) any { return c.minSlaves }, 2, "want a number from 0 to 100"},
		{"min-slaves-timeout", "2s", "2", func(c *config) any { return c.minSlavesTimeout }, 2 * time.Second, "the unit is missing: 2s or 2ms"},
		{"min-slaves-mode", "refuse", "x", func(c *config) any { return c.minSlavesMode }, "refuse", "want degrade or refuse"},
		{"promote-lag", "0", "-1", func(c *config) any { return c.promoteLag }, 0, "want a number from 0 to 2147483647"},
	}
	for _, k := range new(config).knobs() {
		if !slices.ContainsFunc(rows, func(r struct {
			name, good, bad string
			get             func(*config) any
			want            any
			err             string
		}) bool {
			return r.name == k.name
		}) {
			t.Errorf("no row for -%s", k.name)
		}
	}
	for _, tt := range rows {
		env := knob{name: tt.name}.env()
		for source, parse := range map[string]func(string) (*config, error){
			"-" + tt.name + " ": func(v string) (*config, error) {
				return parseConfig([]string{"-sid=1", "-" + tt.name + "=" + v, "-body-memory=1t"}, nil)
			},
			env + "=": func(v string) (*config, error) {
				return parseConfig([]string{"-body-memory=1t"}, []string{"QSERVER_SID=1", env + "=" + v})
			},
		} {
			if tt.name == "body-memory" {
				break // the sources above give it themselves; TestPrecedence has it
			}
			c, err := parse(tt.good)
			if err != nil {
				t.Errorf("%s%s: %v", source, tt.good, err)
				continue
			}
			if got := tt.get(c); got != tt.want {
				t.Errorf("%s%s: got %v, want %v", source, tt.good, got, tt.want)
			}
			if tt.bad == "" && strings.HasPrefix(source, "Q") {
				continue // an empty variable is as none
			}
			_, err = parse(tt.bad)
			if want := source + tt.bad + ": " + tt.err; errText(err) != want || exitCode(err) != exitUsage {
				t.Errorf("%s%s: got error %q with code %d, want %q", source, tt.bad, errText(err), exitCode(err), want)
			}
		}
	}
}

func TestPrecedence(t *testing.T) {
	environ := []string{"HOME=/root", "QSERVER_BODY_MEMORY=1g", "QSERVER_MAX_HELD=5", "QSERVER_DATA="}
	c, err := parseConfig([]string{"-max-held", "6", "-max-held", "7"}, environ)
	if err != nil {
		t.Fatal(err)
	}
	if c.bodyMemory != gib || c.maxHeld != 7 || c.data != "./qserver-data" {
		t.Errorf("got body memory %d, max held %d, data %q", c.bodyMemory, c.maxHeld, c.data)
	}
	if _, err := parseConfig([]string{"-max-held", "6"}, []string{"QSERVER_MAX_HELD=x"}); err == nil {
		t.Error("a wrong variable behind a good flag goes unnoticed")
	}
}

func TestUnknownVariable(t *testing.T) {
	c, err := parseConfig(nil, []string{"QSERVER_MEMROY=1g", "QSERVER_PORT=tcp://10.0.0.1:80", "QSERVER_SERVICE_HOST=10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"unknown environment variable QSERVER_MEMROY has no effect; the nearest is QSERVER_MEMORY"}
	if !slices.Equal(c.notes, want) {
		t.Errorf("got %q, want %q", c.notes, want)
	}
}

func TestConfigErrors(t *testing.T) {
	for _, tt := range []struct{ args, err string }{
		{"-memroy 1g", "unknown flag -memroy; the nearest is -memory (-help lists all)"},
		{"-memory", "-memory: its value is missing"},
		{"-max-item-size 256MiB", "-max-item-size 256MiB is more than -body-memory 128MiB: such a body could never arrive"},
		{"-listen 127.0.0.1:5 -admin 127.0.0.1:5", "-listen and -admin are both 127.0.0.1:5: they need a port each"},
		{"a b", `one data folder at most: "a" and "b" are given`},
		{"-data a b", `-data and the argument "b" name the same thing: give one of them`},
		{"statsu", "unknown command statsu; the nearest is status (for a folder of that name: -data statsu)"},
		{"chekc /tmp", "unknown command chekc; the nearest is check (for a folder of that name: -data chekc)"},
	} {
		_, err := parseConfig(strings.Fields(tt.args), nil)
		if errText(err) != tt.err || exitCode(err) != exitUsage {
			t.Errorf("%s: got %q with code %d, want %q", tt.args, errText(err), exitCode(err), tt.err)
		}
	}
}

// TestPprofGuard shows that profiles stay on the machine unless just that was asked for.
func TestPprofGuard(t *testing.T) {
	for _, tt := range []struct {
		args string
		code int
	}{
		{"-pprof", 0},
		{"-pprof -admin 0.0.0.0:0", exitRefused},
		{"-pprof -admin 0.0.0.0:0 -insecure", exitRefused},
		{"-pprof=off -admin 0.0.0.0:0", 0},
		{"-pprof=public -admin 0.0.0.0:0", 0},
	} {
		c, err := parseConfig(strings.Fields(tt.args), nil)
		if err != nil {
			t.Fatal(err)
		}
		e, err := resolve("admin", c.admin)
		if err == nil {
			err = c.pprof.guard(e)
		}
		if got := exitCode(err); got != tt.code {
			t.Errorf("%s: exit code %d (%v), want %d", tt.args, got, err, tt.code)
		}
	}
}

func TestEndpoint(t *testing.T) {
	for _, tt := range []struct {
		text     string
		insecure bool
		code     int
	}{
		{"127.0.0.1:0", false, 0},
		{"127.1.2.3:0", false, 0},
		{"localhost:0", false, 0},
		{"[::1]:0", false, 0},
		{":0", false, exitRefused},
		{"0.0.0.0:0", false, exitRefused},
		{"[::]:0", false, exitRefused},
		{"192.0.2.1:0", false, exitRefused},
		{"192.0.2.1:0", true, 0},
		{"host.invalid:0", true, exitUnavailable},
	} {
		e, err := resolve("listen", tt.text)
		if err == nil {
			err = e.guard(tt.insecure)
		}
		if got := exitCode(err); got != tt.code {
			t.Errorf("%s, insecure %v: exit code %d (%v), want %d", tt.text, tt.insecure, got, err, tt.code)
		}
	}
}
