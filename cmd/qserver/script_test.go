package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "8") // unless told otherwise: most of what runs in parallel here waits, for clients, leases and delays
	testscript.Main(tidy{m}, map[string]func(){"qserver": main, "talk": talk, "httpget": httpGet})
}

// tidy removes what the tests share when they have run.
type tidy struct{ m *testing.M }

func (t tidy) Run() int {
	code := t.m.Run()
	if builtProgram != "" {
		os.RemoveAll(filepath.Dir(builtProgram))
	}
	return code
}

// TestScripts runs the scenarios of testdata/script with the real program, each in a folder of its own. Beside
// testscript's own commands they have:
//
//	exits CODE PROGRAM [ARG]…   runs it to its end, which must be with CODE
//	server NAME [ARG]…          starts qserver and waits until it is ready; $NAME_ADDR and $NAME_ADMIN are its addresses
//	fifo NAME FILE [ARG]…       the same with -log FILE, a pipe that the script reads until the server closes it
//	signal NAME SIGNAL          sends it one: TERM, INT, HUP, KILL
//	closed NAME                 waits until the server has closed its log pipe
//	ends NAME CODE              waits for its end, which must be with CODE; what it printed is in the file NAME.out
//	logged NAME TEXT            waits until it has printed a line that holds TEXT
//	dial CONN ADDRESS           opens a memcached connection
//	say CONN LINE REPLY…        sends the line (\n in it ends a line; '' sends nothing) and compares the lines that come back
//	hangup CONN                 closes it
//	closedby CONN               waits until the server has closed it, without a word
//	damage FILE TEXT            changes a byte within the first TEXT in the file
//
// and the programs talk ADDRESS (sends standard input, prints what comes back until the server closes) and httpget
// [-host NAME] URL (prints status and body).
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Setup: func(e *testscript.Env) error {
			s := &scene{servers: make(map[string]*child), conns: make(map[string]*scriptConn)}
			e.Values[sceneKey{}] = s
			e.Defer(s.close)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": cmdExits, "server": cmdServer, "fifo": cmdFifo, "signal": cmdSignal, "closed": cmdClosed,
			"ends": cmdEnds, "logged": cmdLogged, "dial": cmdDial, "say": cmdSay, "hangup": cmdHangup, "closedby": cmdClosedBy, "damage": cmdDamage,
		},
	})
}

// sceneKey finds the scene among a script's values.
type sceneKey struct{}

// scene is what a script has started.
type scene struct {
	servers map[string]*child
	conns   map[string]*scriptConn
}

type scriptConn struct {
	net.Conn
	r *bufio.Reader
}

func (s *scene) close() {
	for _, c := range s.conns {
		c.Close()
	}
	for _, c := range s.servers {
		c.cmd.Process.Kill()
		<-c.ended
	}
}

func sceneOf(ts *testscript.TestScript) *scene { return ts.Value(sceneKey{}).(*scene) }

func (s *scene) server(ts *testscript.TestScript, name string) *child {
	c := s.servers[name]
	if c == nil {
		ts.Fatalf("no server %s", name)
	}
	return c
}

// child is a running qserver whose output is read line by line.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when its output has ended and it has been waited for
	shut  chan struct{} // closed when the reading of the log pipe ended

	mu     sync.Mutex // guards output and news
	output bytes.Buffer
	news   chan struct{} // closed and made anew with each line
}

func (c *child) read(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		c.mu.Lock()
		c.output.WriteString(line)
		close(c.news)
		c.news = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// patience is how long a script waits for what must come, before it fails.
const patience = 20 * time.Second

// line waits for a line that holds text; false: the output ended without one, or patience did.
func (c *child) line(text string) (string, bool) {
	late := time.After(patience)
	for ended := false; ; {
		c.mu.Lock()
		output, news := c.output.String(), c.news
		c.mu.Unlock()
		for line := range strings.Lines(output) {
			if strings.Contains(line, text) {
				return line, true
			}
		}
		if ended {
			return output, false
		}
		select {
		case <-news:
		case <-c.ended:
			ended = true
		case <-late:
			ended = true
		}
	}
}

func cmdExits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		code = e.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func cmdServer(ts *testscript.TestScript, _ bool, args []string) {
	start(ts, args[0], args[1:], nil)
}

func cmdFifo(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[1])
	ts.Check(syscall.Mkfifo(path, 0o600))
	start(ts, args[0], append([]string{"-log", args[1]}, args[2:]...), func() (io.ReadCloser, error) { return os.Open(path) })
}

// start runs a server whose log comes by its standard streams, or by what open opens.
func start(ts *testscript.TestScript, name string, args []string, open func() (io.ReadCloser, error)) {
	program, err := exec.LookPath("qserver")
	if found := ts.Getenv("PATH"); err != nil || found != "" {
		program = strings.Split(found, string(os.PathListSeparator))[0] + "/qserver"
	}
	r, w, err := os.Pipe()
	ts.Check(err)
	c := &child{cmd: exec.Command(program, args...), ended: make(chan struct{}), shut: make(chan struct{}), news: make(chan struct{})}
	c.cmd.Dir = ts.MkAbs(".")
	c.cmd.Stdout, c.cmd.Stderr = w, w
	c.cmd.Env = os.Environ()
	for _, k := range new(config).knobs() {
		c.cmd.Env = append(c.cmd.Env, k.env()+"="+ts.Getenv(k.env()))
	}
	ts.Check(c.cmd.Start())
	w.Close()
	if open == nil {
		close(c.shut)
	} else {
		go func() {
			defer close(c.shut)
			if pipe, err := open(); err == nil {
				c.read(pipe)
				pipe.Close()
			}
		}()
	}
	go func() {
		defer close(c.ended)
		c.read(r)
		r.Close()
		c.cmd.Wait()
	}()
	sceneOf(ts).servers[name] = c
	if all, ok := c.line("msg=ready"); !ok {
		ts.Fatalf("server %s ended before it was ready:\n%s", name, all)
	}
	for variable, text := range map[string]string{"_ADDR": "memcached port open", "_ADMIN": "admin port open"} {
		ts.Setenv(name+variable, c.address(text))
	}
	ts.Setenv(name+"_PID", strconv.Itoa(c.cmd.Process.Pid))
}

func cmdSignal(ts *testscript.TestScript, _ bool, args []string) {
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL}
	ts.Check(sceneOf(ts).server(ts, args[0]).cmd.Process.Signal(signals[args[1]]))
}

func cmdClosed(ts *testscript.TestScript, _ bool, args []string) {
	await(ts, "the end of the log pipe", sceneOf(ts).server(ts, args[0]).shut)
}

func cmdEnds(ts *testscript.TestScript, _ bool, args []string) {
	c := sceneOf(ts).server(ts, args[0])
	await(ts, "the end of "+args[0], c.ended)
	await(ts, "the end of the log pipe", c.shut)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".out"), c.output.Bytes(), 0o600))
	if code := c.cmd.ProcessState.ExitCode(); strconv.Itoa(code) != args[1] {
		ts.Fatalf("server %s: exit code %d, want %s\n%s", args[0], code, args[1], c.output.String())
	}
}

func await(ts *testscript.TestScript, what string, done <-chan struct{}) {
	select {
	case <-done:
	case <-time.After(patience):
		ts.Fatalf("%s did not come within %v", what, patience)
	}
}

func cmdLogged(ts *testscript.TestScript, _ bool, args []string) {
	if all, ok := sceneOf(ts).server(ts, args[0]).line(args[1]); !ok {
		ts.Fatalf("server %s never printed %q:\n%s", args[0], args[1], all)
	}
}

func cmdDial(ts *testscript.TestScript, _ bool, args []string) {
	nc, err := net.Dial("tcp", args[1])
	ts.Check(err)
	ts.Check(nc.SetDeadline(time.Now().Add(patience)))
	sceneOf(ts).conns[args[0]] = &scriptConn{nc, bufio.NewReader(nc)}
}

func cmdSay(ts *testscript.TestScript, _ bool, args []string) {
	c := sceneOf(ts).conns[args[0]]
	if args[1] != "" {
		_, err := io.WriteString(c, strings.ReplaceAll(args[1], `\n`, "\r\n")+"\r\n")
		ts.Check(err)
	}
	for _, want := range args[2:] {
		got, err := c.r.ReadString('\n')
		if got != want+"\r\n" {
			ts.Fatalf("%s: got %q (%v), want %q", args[1], got, err, want)
		}
	}
}

func cmdHangup(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(sceneOf(ts).conns[args[0]].Close())
}

func cmdClosedBy(ts *testscript.TestScript, _ bool, args []string) {
	if rest, err := io.ReadAll(sceneOf(ts).conns[args[0]].r); err != nil || len(rest) > 0 {
		ts.Fatalf("%s: got %q and %v, want the end of the connection", args[0], rest, err)
	}
}

func cmdDamage(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	i := bytes.Index(b, []byte(args[1]))
	if i < 0 {
		ts.Fatalf("no %q in %s", args[1], args[0])
	}
	b[i] ^= 1
	ts.Check(os.WriteFile(path, b, 0o600))
}

// talk sends standard input to a memcached port, lines ended by CRLF, and prints what comes back until the server closes.
func talk() {
	text, err := io.ReadAll(os.Stdin)
	nc, e := net.Dial("tcp", os.Args[1])
	if err = errors.Join(err, e); err == nil {
		nc.SetDeadline(time.Now().Add(patience))
		nc.Write(bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")))
		var reply []byte
		reply, err = io.ReadAll(nc)
		os.Stdout.Write(bytes.ReplaceAll(reply, []byte("\r\n"), []byte("\n")))
	}
	exit(err)
}

// httpGet prints the status and the body of an answer: httpget [-host NAME] URL.
func httpGet() {
	args := os.Args[1:]
	request, err := http.NewRequest(http.MethodGet, args[len(args)-1], nil)
	if err == nil && args[0] == "-host" {
		request.Host = args[1]
	}
	var response *http.Response
	if err == nil {
		response, err = http.DefaultClient.Do(request)
	}
	if err == nil {
		fmt.Println(response.StatusCode)
		_, err = io.Copy(os.Stdout, response.Body)
	}
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
