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
	"syscall"
	"time"
)

// allPeers in -servers stands for all that are installed, each beside ours with the same promise about syncing.
const allPeers = "peers"

// A rival is a server of others, and which of ours it is compared with: the one that promises the same. Never: the
// system writes to the disk when it likes. An interval: the last of it may be lost. Always: what was answered is there.
type rival struct {
	ours, theirs string
	program      string // that must be installed; empty: nothing
	aside        bool   // compared where both were asked for, but not one of the peers
}

var rivals = []rival{
	{"qserver/never", "memcached", "memcached", false},
	{"qserver/enqueue", "memcached", "memcached", false},
	{"qserver/never", "memcached/each", "memcached", true},
	{"qserver/interval=50ms", "beanstalkd/50ms", "beanstalkd", false},
	{"qserver/interval=1s", "redis/everysec", "redis-server", false},
	{"qserver/interval=1s", "jetstream/default", "nats-server", false},
	{"qserver/always", "beanstalkd/each", "beanstalkd", false},
	{"qserver/always", "redis/always", "redis-server", false},
	{"qserver/always", "jetstream/always", "nats-server", false},
	{"qserver/always", "append", "", false},
}

// installed returns the words for all rivals that are installed and for ours, each of ours before its rivals. The
// report names what is missing.
func (e *env) installed(r *report) []string {
	var words []string
	add := func(word string) {
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	for _, v := range rivals {
		if v.aside {
			continue
		}
		add(v.ours)
		missing := error(nil)
		switch {
		case v.program == "nats-server":
			_, missing = e.natsServer(v.theirs == "jetstream/always")
		case v.program != "":
			_, missing = exec.LookPath(v.program)
		}
		if missing != nil {
			r.note("%s is left out: %v", v.theirs, missing)
			continue
		}
		add(v.theirs)
	}
	return words
}

// serverWords explain the words of -servers.
const serverWords = `what to start and measure, comma separated:
qserver/MODE with a mode of -sync; memcached (set overwrites one key a connection), memcached/each (a key a message);
beanstalkd/each, /50ms (any interval), /never; redis/always, /everysec, /no; jetstream/always, /default, /INTERVAL;
append (appends and syncs the same bytes, without a server);
peers: all of them that are installed`

// peers returns the server of others that a word of -servers means.
func peers(word, kind, setting string) (contestant, bool) {
	c := contestant{name: word, protocol: kind}
	switch kind {
	case "memcached":
		if c.keys = singleKey; setting == "each" {
			c.keys = keyForEach
		} else if setting != "" {
			return c, false
		}
		c.start = c.starter(memcachedCommand)
	case "beanstalkd":
		flags, ok := map[string][]string{"each": {"-f0"}, "never": {"-F"}}[setting]
		if d, err := time.ParseDuration(setting); !ok && err == nil {
			flags, ok = []string{fmt.Sprintf("-f%d", d.Milliseconds())}, true
		}
		if !ok {
			return c, false
		}
		c.start = c.starter(beanstalkdCommand(flags))
	case "redis":
		if setting != "always" && setting != "everysec" && setting != "no" {
			return c, false
		}
		c.start = c.starter(redisCommand(setting))
	case "jetstream":
		interval, err := time.ParseDuration(setting)
		if setting != "always" && setting != "default" && (err != nil || interval <= 0) {
			return c, false
		}
		c.start = c.starter(natsCommand(setting))
	case "append":
		c.start = func(_ context.Context, e *env, _ ...string) (*server, error) {
			dir, err := os.MkdirTemp(e.dir, "data-")
			return &server{contestant: c, addr: dir, data: dir}, err
		}
		return c, setting == ""
	default:
		return c, false
	}
	return c, true
}

// A command is what starts a peer: its program, and the arguments for an address and an empty data folder.
type command func(e *env, host, port, data string) (program string, args []string, err error)

// starter returns what starts a peer and waits until it accepts connections.
func (c contestant) starter(build command) func(context.Context, *env, ...string) (*server, error) {
	return func(ctx context.Context, e *env, _ ...string) (*server, error) {
		s := &server{contestant: c}
		var err error
		if s.data, err = os.MkdirTemp(e.dir, "data-"); err != nil {
			return nil, err
		}
		if s.addr, err = freePort(); err != nil {
			return nil, err
		}
		host, port, _ := net.SplitHostPort(s.addr)
		program, args, err := build(e, host, port, s.data)
		if err != nil {
			return nil, err
		}
		path, err := exec.LookPath(program)
		if err != nil {
			return nil, fmt.Errorf("%s is not installed (Debian: apt-get install %s): %w", program, program, err)
		}
		began := time.Now()
		if s.proc, err = startProcess(ctx, filepath.Join(e.dir, c.protocol+".log"), path, args...); err != nil {
			return nil, err
		}
		if c.protocol == "jetstream" {
			s.proc.end = syscall.SIGINT // its exit code after SIGTERM is that of an error
		}
		err = s.proc.await(ctx, func() bool {
			conn, err := net.Dial("tcp", s.addr)
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", c.name, err)
		}
		s.ready = time.Since(began)
		return s, nil
	}
}

// memcachedFlags are fair to it: memory so that nothing is evicted, a thread for each of two cores.
var memcachedFlags = []string{"-m", "4096", "-t", "2", "-c", "16384", "-U", "0"}

func memcachedCommand(e *env, host, port, _ string) (string, []string, error) {
	args := append([]string{"-l", host, "-p", port}, memcachedFlags...)
	if u, err := user.Current(); err == nil && u.Uid == "0" {
		args = append(args, "-u", u.Username) // it refuses to run as root unless told to
	}
	if e.large {
		args = append(args, "-I", "256m")
	}
	return "memcached", args, nil
}

func beanstalkdCommand(flags []string) command {
	return func(e *env, host, port, data string) (string, []string, error) {
		args := append([]string{"-l", host, "-p", port, "-b", data, "-z", "268435456"}, flags...)
		if e.large {
			args = append(args, "-s", "536870912") // a job must fit into a file
		}
		return "beanstalkd", args, nil
	}
}

func redisCommand(fsync string) command {
	return func(_ *env, host, port, data string) (string, []string, error) {
		return "redis-server", []string{"--bind", host, "--port", port, "--dir", data, "--save", "",
			"--appendonly", "yes", "--appendfsync", fsync, "--maxclients", "16000", "--loglevel", "warning"}, nil
	}
}

// natsConfig is JetStream's configuration; "default" leaves its interval of two minutes.
func natsConfig(host, port, data, sync string) string {
	interval := ""
	if sync != "default" {
		interval = ", sync_interval: " + sync
	}
	return fmt.Sprintf("listen: \"%s:%s\"\nmax_payload: 64MB\nmax_pending: 256MB\njetstream { store_dir: %q%s }\n", host, port, data, interval)
}

func natsCommand(sync string) command {
	return func(e *env, host, port, data string) (string, []string, error) {
		path, err := e.natsServer(sync != "default")
		if err != nil {
			return "", nil, err
		}
		config := filepath.Join(e.dir, "nats.conf")
		err = os.WriteFile(config, []byte(natsConfig(host, port, data, sync)), 0o600)
		return path, []string{"-c", config}, err
	}
}

// natsServer returns the path of a nats-server that knows sync_interval, which came with 2.10, or, unless that is
// needed, of any. It looks in PATH and where `go install` puts programs.
func (e *env) natsServer(needInterval bool) (string, error) {
	home, _ := os.UserHomeDir()
	var first string
	for _, name := range []string{"nats-server", filepath.Join(os.Getenv("GOBIN"), "nats-server"), filepath.Join(home, "go", "bin", "nats-server")} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if first == "" {
			first = path
		}
		config := filepath.Join(e.dir, "nats-test.conf")
		if err := os.WriteFile(config, []byte(natsConfig("127.0.0.1", "4222", e.dir, "always")), 0o600); err != nil {
			return "", err
		}
		if exec.Command(path, "-t", "-c", config).Run() == nil {
			return path, nil
		}
	}
	const install = "go install github.com/nats-io/nats-server/v2@latest"
	switch {
	case first == "":
		return "", fmt.Errorf("nats-server is not installed (Debian: apt-get install nats-server; or %s)", install)
	case needInterval:
		return "", fmt.Errorf("%s has no sync_interval: nats-server 2.10 or newer is needed (%s)", version(first, "--version"), install)
	}
	return first, nil
}

// noteServers says in the report which programs were measured and how they were set.
func (r *report) noteServers(e *env, all []contestant) {
	for _, c := range all {
		if c.word != "" {
			continue
		}
		switch kind, setting, _ := strings.Cut(c.name, "/"); kind {
		case "memcached":
			r.note("%s: %s; memcached overwrites one key a connection by set, its best case, and what is got and deleted lies under a key each; memcached/each has a key for each message throughout",
				version("memcached", "-V"), strings.Join(memcachedFlags, " "))
		case "beanstalkd":
			r.note("%s: -b and -f0 (each), -f50 (50ms); put, then reserve and delete", version("beanstalkd", "-v"))
		case "redis":
			r.note("%s: --save '' --appendonly yes --appendfsync always, everysec; LPUSH, then LMOVE into a list of its own for each connection, and LREM from there", version("redis-server", "--version"))
		case "jetstream":
			if path, err := e.natsServer(setting != "default"); err == nil {
				r.note("%s: streams in files, a work queue each with one durable consumer; sync_interval always, or two minutes (default); publish, then fetch of one message and an acknowledgement that is answered", version(path, "--version"))
			}
		case "append":
			r.note("append: one loop that appends the bodies to a file and calls fdatasync after each")
		}
	}
}

// version is the first line of what a program tells of itself.
func version(program, flag string) string {
	out, err := exec.Command(program, flag).Output()
	if err != nil {
		return filepath.Base(program)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	line, _, _ = strings.Cut(line, " sha=") // what follows Redis's
	return line
}
