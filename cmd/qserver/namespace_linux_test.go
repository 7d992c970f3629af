package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// namespace is a network of its own, with one end of a cable to another. It has no name that could be left over: it is gone with
// the last process and file that is in it, however the test ends.
type namespace struct {
	t       *testing.T
	file    *os.File // keeps it
	address string   // of its end of the cable
	peer    string   // of the other's
}

const cable = "cable" // the interface

// cabled returns two namespaces, joined by a cable.
func cabled(t *testing.T) (a, b *namespace) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIP network namespaces: only root makes them: run the test so")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("SKIP network namespaces: ip (iproute2 on Debian) is not installed: scripts/test clients installs it")
	}
	a, b = newNamespace(t), newNamespace(t)
	a.address, b.address = "10.77.0.1", "10.77.0.2"
	a.peer, b.peer = b.address, a.address
	other := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), b.file.Fd())
	if out, err := a.command("ip", "link", "add", cable, "type", "veth", "peer", "name", cable, "netns", other).CombinedOutput(); err != nil {
		t.Skipf("SKIP network namespaces: no veth pair can be made here (in a container: --cap-add NET_ADMIN): %v %s", err, out)
	}
	for _, n := range []*namespace{a, b} {
		n.run("ip", "link", "set", "lo", "up")
		n.run("ip", "address", "add", n.address+"/24", "dev", cable)
		n.run("ip", "link", "set", cable, "up")
	}
	return a, b
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	n := &namespace{t: t}
	var err error
	onThread(func() {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			n.file, err = os.Open("/proc/thread-self/ns/net")
		}
	})
	if err != nil {
		t.Skipf("SKIP network namespaces: none can be made here (in a container: --cap-add SYS_ADMIN): %v", err)
	}
	t.Cleanup(func() { n.file.Close() })
	return n
}

// The main goroutine keeps the main thread: that can't end, and would keep the namespace of an onThread that happened to run on it.
func init() { runtime.LockOSThread() }

// onThread runs fn on a thread that ends with it, as what is changed of a thread must.
func onThread(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked
		fn()
	}()
	<-done
}

// in runs fn in the namespace: sockets that it opens and programs that it starts itself, not by other goroutines, are there.
func (n *namespace) in(fn func()) {
	n.t.Helper()
	whole := false
	onThread(func() {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			n.t.Fatal(err)
		}
		fn()
		whole = true
	})
	if !whole { // it has ended the test
		n.t.FailNow()
	}
}

// inside is a program to be run in the namespace.
type inside struct {
	n *namespace
	*exec.Cmd
}

func (n *namespace) command(name string, args ...string) inside {
	return inside{n, exec.Command(name, args...)}
}

func (c inside) CombinedOutput() (out []byte, err error) {
	c.n.in(func() { out, err = c.Cmd.CombinedOutput() })
	return out, err
}

func (n *namespace) run(name string, args ...string) {
	n.t.Helper()
	if out, err := n.command(name, args...).CombinedOutput(); err != nil {
		n.t.Fatalf("%s %s: %v %s", name, strings.Join(args, " "), err, out)
	}
}

// qserver runs a subcommand of the real program there.
func (n *namespace) qserver(args ...string) string {
	n.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	program := filepath.Join(n.t.TempDir(), "qserver") // its name makes the test's program the server
	if err := os.Symlink(exe, program); err != nil {
		n.t.Fatal(err)
	}
	out, err := n.command(program, args...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("qserver %s: %v %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// dialWire connects to a server there, from there.
func (n *namespace) dialWire(address string) (c *wire, err error) {
	n.in(func() { c, err = dialWire(address) })
	return c, err
}

// ask gets JSON of the server's HTTP port there.
func (n *namespace) ask(path string, answer any) error {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (c net.Conn, err error) {
			n.in(func() { c, err = net.Dial(network, address) })
			return c, err
		},
	}}
	res, err := client.Get("http://127.0.0.1:1978" + path)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return json.NewDecoder(res.Body).Decode(answer)
}

// The faults. Each returns what mends it.

// unplug takes the cable out: both ends are without carrier.
func (n *namespace) unplug() (mend func()) {
	n.run("ip", "link", "set", cable, "down")
	return func() { n.run("ip", "link", "set", cable, "up") }
}

// blackhole loses what is sent to the other end.
func (n *namespace) blackhole() (mend func()) {
	n.run("ip", "route", "add", "blackhole", n.peer+"/32")
	return func() { n.run("ip", "route", "del", "blackhole", n.peer+"/32") }
}

// deaf loses what comes over the cable.
func (n *namespace) deaf() (mend func()) { return n.drop("") }

// lossy loses one packet of 30 that come over the cable.
func (n *namespace) lossy() (mend func()) { return n.drop("numgen random mod 30 0") }

// drop drops what comes over the cable and matches.
func (n *namespace) drop(match string) (mend func()) {
	n.t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		n.t.Skip("SKIP lost packets: nft (nftables on Debian) is not installed: scripts/test clients installs it")
	}
	rules := fmt.Sprintf("table inet faults { chain in { type filter hook input priority 0; iifname %q %s drop; }; }", cable, match)
	if out, err := n.command("nft", rules).CombinedOutput(); err != nil {
		n.t.Skipf("SKIP lost packets: nft can make no table: it needs root and a kernel with CONFIG_NF_TABLES: %v %s", err, out)
	}
	return func() { n.run("nft", "delete", "table", "inet", "faults") }
}

// slow delays what is sent by some 20 ms: by netem where the kernel has it, otherwise by the queue of a narrow line, from which is
// dropped when it is full. It says which.
func (n *namespace) slow() string {
	if _, err := n.command("tc", "qdisc", "replace", "dev", cable, "root", "netem", "delay", "20ms", "5ms").CombinedOutput(); err == nil {
		return "netem: a delay of 15 to 25 ms"
	}
	if out, err := n.command("tc", "qdisc", "replace", "dev", cable, "root", "tbf", "rate", "4mbit", "burst", "2kb", "limit", "20kb").CombinedOutput(); err != nil {
		n.t.Skipf("SKIP delay: tc can add neither netem nor tbf: it needs root and a kernel with CONFIG_NET_SCH_NETEM or CONFIG_NET_SCH_TBF: %v %s", err, out)
	}
	return "no netem in this kernel; tbf: 4 Mbit/s with a queue of 40 ms, which drops when it is full"
}
