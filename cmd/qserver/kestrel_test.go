package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestKestrelMove runs the program of docs/kestrel.md that moves messages. The source is a qserver, which takes the same options in
// the key; it keeps flags, which Kestrel does not.
func TestKestrelMove(t *testing.T) {
	t.Parallel()
	python := need(t, "Python 3.8 or newer", "-c", "import sys; assert sys.version_info >= (3, 8)", "python3", "/usr/bin/python3")
	script := filepath.Join(t.TempDir(), "move.py")
	for _, b := range readmeBlocks(t, "../../docs/kestrel.md") {
		if b.language == "python" {
			if err := os.WriteFile(script, []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	from, to := startNode(t), startNode(t)
	old := dialTalker(t, from.address)
	bodies := []string{"one", "", "END\r\n", "VALUE two 0 1\r\nx", "\x00\r\n\xff"}
	for i, body := range bodies {
		for _, queue := range []string{"two", "one"} {
			old.do(fmt.Sprintf("set %s %d 0 %d\r\n%s\r\n", queue, i, len(body), body), "STORED")
		}
	}
	if got, want := output(t, python, script, from.address, to.address, "one", "none", "two"), "one 5\nnone 0\ntwo 5\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	c := dialTalker(t, to.address)
	for _, queue := range []string{"one", "two"} {
		if items := from.stat(queue + "_items"); items != 0 {
			t.Errorf("%s: %d messages are left on the old server", queue, items)
		}
		for i, body := range bodies {
			c.do("get "+queue+"/peek\r\n", fmt.Sprintf("VALUE %s/peek %d %d", queue, i, len(body)))
			if _, err := io.CopyN(io.Discard, c.r, int64(len(body)+len("\r\nEND\r\n"))); err != nil {
				t.Fatal(err)
			}
			c.wantTaken(queue, body)
			c.do("delete "+queue+"\r\n", "DELETED")
		}
		if _, ok := c.take(queue); ok {
			t.Errorf("%s: more than was moved", queue)
		}
	}
}
