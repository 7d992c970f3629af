package main

import (
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"qserver/storage"
)

// blogMaster is the command line of a blog post of 2011, ktserver replaced.
var blogMaster = []string{
	"-host", "127.0.0.1", "-port", "10001", "-th", "4", "-log", "/path/to/log/queue_master.log", "-ls",
	"-ulog", "/path/to/log/ulog_queue_master", "-ulim", "256M", "-sid", "1",
	"-plsv", "/usr/local/kyototycoon/libexec/ktplugservmemc.so", "-plex", "port=11311#opts=fq",
	"/path/to/db/queue_master.kct#ktopts=p",
}

func TestBlogMaster(t *testing.T) {
	want, err := parseConfig([]string{
		"-admin", "127.0.0.1:10001", "-listen", "127.0.0.1:11311", "-log", "/path/to/log/queue_master.log",
		"-ulim", "256MiB", "-wait", "10s", "-ttl", "off", "-data", "/path/to/db/queue_master.kct", "-sid", "1",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want.notes = []string{
		"without host it listens on loopback only (Kyoto Tycoon: on all addresses)",
		"without effect here: -th (a connection costs no thread), -ulog (the update log is in the data folder)," +
			" -plsv (memcached's protocol is built in)",
	}
	last := len(blogMaster) - 1
	mixed := slices.Concat(blogMaster[:4], blogMaster[last:], blogMaster[4:last])
	first := slices.Concat(blogMaster[last:], blogMaster[:last])
	for name, args := range map[string][]string{"as it stands": blogMaster, "mixed": mixed, "database first": first} {
		got, err := parseConfig(args, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
		}
	}
}

func TestBlogSlave(t *testing.T) {
	slave := []string{"-mhost", "127.0.0.1", "-mport", "10001", "-rts", "/path/to/log/rts.log", "-riv", "0.04"}
	c, err := parseConfig(slices.Concat(blogMaster, slave), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.sid != 1 || c.masterAddress() != "127.0.0.1:10001" || c.riv != 40*time.Microsecond {
		t.Errorf("got sid %d, master %s, riv %s", c.sid, c.masterAddress(), c.riv)
	}
	without := slices.DeleteFunc(slices.Concat(blogMaster, slave), func(s string) bool { return s == "-sid" || s == "1" })
	_, err = parseConfig(without, nil)
	if want := "-mhost 127.0.0.1 needs -sid NUMBER: 1 to 65535, another than the master's"; errText(err) != want || exitCode(err) != exitUsage {
		t.Errorf("got %q with code %d, want %q", errText(err), exitCode(err), want)
	}
}

func TestTycoon(t *testing.T) {
	sync := func(c *config) any { return c.syncText() }
	for _, tt := range []struct {
		args string
		get  func(*config) any
		want any
	}{
		{"-port 1979", func(c *config) any { return c.admin }, "127.0.0.1:1979"},
		{"-host ::1", func(c *config) any { return c.admin }, "[::1]:1978"},
		{"-host 0.0.0.0 -port 5", func(c *config) any { return c.admin }, "0.0.0.0:5"},
		{"-log -", func(c *config) any { return c.log }, "-"},
		{"-li", func(c *config) any { return c.logLevel }, slog.LevelInfo},
		{"-ls", func(c *config) any { return c.logLevel }, slog.LevelInfo},
		{"-le", func(c *config) any { return c.logLevel }, slog.LevelError},
		{"-lz", func(c *config) any { return c.logLevel }, levelOff},
		{"-ulim 1048576", func(c *config) any { return c.ulim }, int64(mib)},
		{"-pid /tmp/p", func(c *config) any { return c.pid }, "/tmp/p"},
		{"-cmd /tmp/c", func(c *config) any { return c.cmd }, "/tmp/c"},

		{"-oas", sync, "always"},
		{"-sync never -oas", sync, "always"},
		{"-asi 1", sync, "enqueue"},
		{"-asi 0 -sync never", sync, "never"},
		{"-sync never -asi 2", sync, "interval=2s"},
		{"-sync never -asi 2 -uasi 0.5", sync, "interval=500ms"},
		{"-sync interval=1s -uasi 5", sync, "interval=1s"},
		{"-sync interval=10s -uasi 5", sync, "interval=5s"},
		{"-sync always -uasi 5", sync, "always"},

		{"-plex port=5", func(c *config) any { return c.listen }, "127.0.0.1:5"},
		{"-plex host=,port=11211#tout=30#th=16#opts=fq", func(c *config) any { return c.listen }, "127.0.0.1:11211"},
		{"-plex host=0.0.0.0#port=5", func(c *config) any { return c.listen }, "0.0.0.0:5"},
		{"-host h -tout 2.5", func(c *config) any { return c.adminIdle }, 2500 * time.Millisecond},
		{"-plex tout=30", func(c *config) any { return c.connIdle }, 30 * time.Second},
		{"-plex opts=fq", func(c *config) any { return c.wait }, 10 * time.Second},
		{"-plex qtout=0.5", func(c *config) any { return c.wait }, 500 * time.Millisecond},
		{"-plex qtout=5 -wait 1s", func(c *config) any { return c.wait }, time.Second},
		{"-plsv ktplugservmemc.so", func(c *config) any { return c.wait }, 10 * time.Second},
		{"-port 5", func(c *config) any { return c.wait }, time.Duration(0)},

		{"db.kct", func(c *config) any { return c.data }, "db.kct"},
		{"/a/db.kct#opts=l#bnum=5#ktopts=p", func(c *config) any { return c.data }, "/a/db.kct"},
		{"db.kct", func(c *config) any { return c.ttl }, true},
		{"db#bnum=5#ktopts=p", func(c *config) any { return c.ttl }, false},
		{"db#ktopts=p -ttl on", func(c *config) any { return c.ttl }, true},
		{"*", func(c *config) any { return c.data }, "./qserver-data"},
		{"#ktopts=p", func(c *config) any { return c.data }, "./qserver-data"},
		{"-- -x", func(c *config) any { return c.data }, "-x"},
	} {
		c, err := parseConfig(strings.Fields(tt.args), nil)
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		if got := tt.get(c); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.args, got, tt.want)
		}
	}
}

// TestTycoonWithout holds the one line that names what has no effect.
func TestTycoonWithout(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"-host h -oat -onl -otl -oat", "-oat, -onl, -otl"},
		{"-host h -onr -ash", "-onr (nothing is repaired but by qserver repair), -ash (a sync is always one of the disk)"},
		{"-host h -bgs d -bgsi 180 -bgsc zlib", "-bgs (messages are on disk), -bgsi, -bgsc"},
		{"-host h -mport 5 -rts f -riv 0.04 -sid 65535", "-rts (a slave's position is in its data folder), -mport (there is no -mhost), -riv (there is no -mhost)"},
		{"-host h -uasi 5", "-asi, -uasi (-sync enqueue is as strong)"},
		{"-host h db#opts=s#bnum=1#msiz=2g#pccap=2g", "#opts, #bnum, #msiz, #pccap"},
		{"-host h -plex opts=q#host=h#th=3#x=y", "-plex th, -plex x"},
		{"-host h -plsv other.so -plex host=h#opts=q", "-plsv (there are no plug-ins, memcached's protocol is built in)"},
	} {
		c, err := parseConfig(strings.Fields(tt.args), nil)
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		if want := []string{"without effect here: " + tt.want}; !slices.Equal(c.notes, want) {
			t.Errorf("%s: got %q, want %q", tt.args, c.notes, want)
		}
	}
}

func TestTycoonErrors(t *testing.T) {
	for _, tt := range []struct{ args, err string }{
		{"-ord", "-ord: not supported: a queue can't be served from a read-only database"},
		{"-scr x.lua", "-scr x.lua: not supported: there are no Lua scripts"},
		{"-dmn", "-dmn: not supported: run it under a service manager, or in the background with &"},
		{"-pldb x.so", "-pldb x.so: not supported: there are no database plug-ins, messages are in the data folder"},
		{"-port x", "-port x: want a number from 0 to 65535"},
		{"-sid 65536", "-sid 65536: want a number from 0 to 65535"},
		{"-tout x", "-tout x: want a number of seconds"},
		{"-uasi nan", "-uasi nan: want a number of seconds"},
		{"-plex opts=qr", "-plex opts=qr: opts=qr: r is not supported: a queue can't be read-only"},
		{"-plex port=x#opts=q", "-plex port=x#opts=q: port=x: want a number from 0 to 65535"},
		{"-port 5 -admin 127.0.0.1:5", "-admin and -host, -port name the same address: give one of them"},
		{"-plex port=5 -listen 127.0.0.1:5", "-listen and -plex name the same address: give one of them"},
		{"a.kct b.kct", `one data folder at most: "a.kct" and "b.kct" are given`},
	} {
		_, err := parseConfig(strings.Fields(tt.args), nil)
		if errText(err) != tt.err || exitCode(err) != exitUsage {
			t.Errorf("%s: got %q with code %d, want %q", tt.args, errText(err), exitCode(err), tt.err)
		}
	}
}

func TestTycoonOverEnvironment(t *testing.T) {
	environ := []string{"QSERVER_ADMIN=[::1]:7000", "QSERVER_WAIT=1s", "QSERVER_TTL=on", "QSERVER_SYNC=never", "QSERVER_DATA=x"}
	c, err := parseConfig([]string{"-port", "5", "-uasi", "1", "-plsv", "memc.so", "y#ktopts=p"}, environ)
	if err != nil {
		t.Fatal(err)
	}
	got := []any{c.admin, c.wait, c.ttl, c.sync, c.syncInterval, c.data}
	want := []any{"[::1]:5", time.Second, false, storage.SyncInterval, time.Second, "y"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
