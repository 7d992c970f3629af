package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"qserver/storage"
)

// tycoon reads Kyoto Tycoon's command line into a config. Each option of ktserver takes effect, is named once at start as
// being without effect, or is refused by name where a server that ignored it would do harm.
type tycoon struct {
	c    *config
	used bool     // the command line is one of Kyoto Tycoon's
	none []string // options without effect, as they are named at start

	host, port         string        // of the HTTP port
	plexHost, plexPort string        // of the memcached port
	memcached          bool          // -plsv or -plex is there
	qtout              time.Duration // wait of a get, from -plex; below 0: not given
	wantsSync          bool          // -oas
	syncEvery          time.Duration // shortest of -asi and -uasi; 0: none
}

func newTycoon(c *config) *tycoon { return &tycoon{c: c, qtout: -1} }

// options lists ktserver's options but for those that are qserver's own as well: -log, -ulim, -pid, -cmd, -sid, -mhost,
// -mport, -riv.
func (t *tycoon) options() []option {
	list := []option{
		{"host", false, keep(&t.host)},
		{"port", false, port(&t.port)},
		{"tout", false, seconds(&t.c.adminIdle)},
		{"li", true, t.level(slog.LevelInfo)},
		{"ls", true, t.level(slog.LevelInfo)},
		{"le", true, t.level(slog.LevelError)},
		{"lz", true, t.level(levelOff)},
		{"asi", false, t.syncInterval},
		{"uasi", false, t.syncInterval},
		{"oas", true, toggle(&t.wantsSync)},
		{"plsv", false, t.plugin},
		{"plex", false, t.plex},

		t.without("rts", false, "a slave's position is in its data folder"),
		t.without("th", false, "a connection costs no thread"),
		t.without("ulog", false, "the update log is in the data folder"),
		t.without("oat", true, ""),
		t.without("onl", true, ""),
		t.without("otl", true, ""),
		t.without("onr", true, "nothing is repaired but by qserver repair"),
		t.without("ash", true, "a sync is always one of the disk"),
		t.without("bgs", false, "messages are on disk"),
		t.without("bgsi", false, ""),
		t.without("bgsc", false, ""),

		t.refused("ord", true, "a queue can't be served from a read-only database"),
		t.refused("scr", false, "there are no Lua scripts"),
		t.refused("dmn", true, "run it under a service manager, or in the background with &"),
		t.refused("pldb", false, "there are no database plug-ins, messages are in the data folder"),
	}
	for i, o := range list {
		list[i].set = func(s string) error { t.used = true; return o.set(s) }
	}
	return list
}

func (t *tycoon) without(name string, bare bool, why string) option {
	return option{name, bare, func(string) error { t.ignore("-"+name, why); return nil }}
}

func (t *tycoon) refused(name string, bare bool, why string) option {
	return option{name, bare, func(string) error { return errors.New("not supported: " + why) }}
}

// ignore notes that what has no effect, once.
func (t *tycoon) ignore(what, why string) {
	if why != "" {
		what += " (" + why + ")"
	}
	if !slices.Contains(t.none, what) {
		t.none = append(t.none, what)
	}
}

func (t *tycoon) level(l slog.Level) func(string) error {
	return func(string) error { t.c.logLevel = l; return nil }
}

func (t *tycoon) syncInterval(s string) error {
	var d time.Duration
	if err := seconds(&d)(s); err != nil {
		return err
	}
	if d > 0 && (t.syncEvery == 0 || d < t.syncEvery) {
		t.syncEvery = max(d, time.Millisecond)
	}
	return nil
}

func (t *tycoon) plugin(s string) error {
	t.memcached = true
	if strings.Contains(filepath.Base(s), "memc") {
		t.ignore("-plsv", "memcached's protocol is built in")
	} else {
		t.ignore("-plsv", "there are no plug-ins, memcached's protocol is built in")
	}
	return nil
}

// plex reads 'host=H#port=P#tout=S#th=N#opts=fq#qtout=S'; a comma parts as "#" does.
func (t *tycoon) plex(s string) error {
	t.memcached = true
	queue := false
	for field := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == '#' || r == ',' }) {
		name, value, _ := strings.Cut(field, "=")
		var err error
		switch name {
		case "host":
			t.plexHost = value
		case "port":
			err = port(&t.plexPort)(value)
		case "tout":
			err = seconds(&t.c.connIdle)(value)
		case "qtout":
			err = seconds(&t.qtout)(value)
		case "opts":
			if strings.Contains(value, "r") {
				err = errors.New("r is not supported: a queue can't be read-only")
			}
			queue = strings.Contains(value, "q")
		case "th":
			t.ignore("-plex th", "")
		default:
			t.ignore("-plex "+name, "")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
	}
	if !queue {
		t.c.notes = append(t.c.notes, "-plex without opts=q: it is a queue all the same, a get reserves and a delete acks")
	}
	return nil
}

// finish brings what was read into the config. given are the flags of the command line and the environment's settings.
func (t *tycoon) finish(given, environment map[string]bool, operands []string) error {
	if err := t.database(given, operands); err != nil {
		return err
	}
	for _, name := range []string{"mport", "riv"} {
		if t.c.mhost == "" && given[name] {
			t.ignore("-"+name, "there is no -mhost")
		}
	}
	if err := join(&t.c.admin, given, "admin", t.host, t.port, "-host, -port"); err != nil {
		return err
	}
	if err := join(&t.c.listen, given, "listen", t.plexHost, t.plexPort, "-plex"); err != nil {
		return err
	}
	if t.used && (t.host == "" || t.plexHost == "" && t.memcached) {
		t.c.notes = append(t.c.notes, "without host it listens on loopback only (Kyoto Tycoon: on all addresses)")
	}
	if t.memcached && !given["wait"] {
		switch {
		case t.qtout >= 0:
			t.c.wait = t.qtout
		case !environment["wait"]:
			t.c.wait = 10 * time.Second // as there
		}
	}
	t.strengthen()
	if len(t.none) > 0 {
		t.c.notes = append(t.c.notes, "without effect here: "+strings.Join(t.none, ", "))
	}
	return nil
}

// strengthen makes -sync as strong as -oas, -asi and -uasi ask for, never weaker.
func (t *tycoon) strengthen() {
	c := t.c
	if t.wantsSync {
		c.sync, c.syncInterval = storage.SyncAlways, 0
		return
	}
	if t.syncEvery == 0 {
		return
	}
	if c.sync == storage.SyncNever || c.sync == storage.SyncInterval && t.syncEvery < c.syncInterval {
		c.sync, c.syncInterval = storage.SyncInterval, t.syncEvery
		return
	}
	t.ignore("-asi, -uasi", "-sync "+c.syncText()+" is as strong")
}

// join makes *p of host and port, if one of them was given, each from its default or the environment where it was not.
func join(p *string, given map[string]bool, flag, host, port, other string) error {
	if host == "" && port == "" {
		return nil
	}
	if given[flag] {
		return usageError("-%s and %s name the same address: give one of them", flag, other)
	}
	oldHost, oldPort, err := net.SplitHostPort(*p)
	if err != nil {
		return err
	}
	if host == "" {
		host = "127.0.0.1"
		if ip := net.ParseIP(oldHost); ip != nil && ip.IsLoopback() {
			host = oldHost
		}
	}
	if port == "" {
		port = oldPort
	}
	*p = net.JoinHostPort(host, port)
	return nil
}

func keep(p *string) func(string) error {
	return func(s string) error { *p = s; return nil }
}

func port(p *string) func(string) error {
	return func(s string) error {
		var n int
		if err := number(&n, 0, 65535)(s); err != nil {
			return err
		}
		*p = s
		return nil
	}
}

// millis sets *p to a decimal number of milliseconds, as Kyoto Tycoon's -riv is; below 0 is 0.
func millis(p *time.Duration) func(string) error {
	return func(s string) error {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(f) || f > 60_000 {
			return errors.New("want a number of milliseconds, such as 0.04")
		}
		*p = time.Duration(max(f, 0) * float64(time.Millisecond))
		return nil
	}
}

// seconds sets *p to a decimal number of seconds, as ktserver's times are; below 0 is 0.
func seconds(p *time.Duration) func(string) error {
	return func(s string) error {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(f) || f > 1e9 {
			return errors.New("want a number of seconds")
		}
		*p = time.Duration(max(f, 0) * float64(time.Second))
		return nil
	}
}
