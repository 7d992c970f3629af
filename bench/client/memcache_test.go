package client_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"qserver/bench/client"
)

// scripted returns a client whose server reads want and answers reply in pieces of n bytes.
func scripted(t *testing.T, want, reply string, n int) *client.Memcache {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(theirs, got); err != nil || string(got) != want {
			t.Errorf("the server got %q (%v), want %q", got, err, want)
		}
		for s := reply; s != ""; {
			piece := s[:min(n, len(s))]
			if _, err := io.WriteString(theirs, piece); err != nil {
				break
			}
			s = s[len(piece):]
		}
		theirs.Close()
	}()
	t.Cleanup(func() { ours.Close(); <-done })
	return client.NewMemcache(ours)
}

func TestMemcache(t *testing.T) {
	large := strings.Repeat("x", 20_000)
	for _, tt := range []struct {
		name, sent, reply string
		do                func(c *client.Memcache) (string, error)
		want              string
		fails             bool
	}{
		{"set", "set k 4 0 2\r\nab\r\n", "STORED\r\n", set, "", false},
		{"set refused", "set k 4 0 2\r\nab\r\n", "SERVER_ERROR out of memory\r\n", set, "", true},
		{"get", "get k\r\n", "VALUE k 4 5\r\na\r\nb\n\r\nEND\r\n", get, "4 a\r\nb\n", false},
		{"get large", "get k\r\n", "VALUE k 0 20000\r\n" + large + "\r\nEND\r\n", get, "0 " + large, false},
		{"get nothing", "get k\r\n", "END\r\n", get, "none", false},
		{"get an error", "get k\r\n", "ERROR\r\n", get, "", true},
		{"get without flags", "get k\r\n", "VALUE k\r\n", get, "", true},
		{"get a length too long", "get k\r\n", "VALUE k 0 99999999999\r\n", get, "", true},
		{"get a body too long", "get k\r\n", "VALUE k 0 2\r\nabc\r\nEND\r\n", get, "", true},
		{"get cut off", "get k\r\n", "VALUE k 0 20\r\nab", get, "", true},
		{"delete", "delete k\r\n", "DELETED\r\n", remove, "true", false},
		{"delete nothing", "delete k\r\n", "NOT_FOUND\r\n", remove, "false", false},
		{"delete an error", "delete k\r\n", "CLIENT_ERROR x\r\n", remove, "", true},
		{"version", "version\r\n", "VERSION 1.2.3\r\n", (*client.Memcache).Version, "1.2.3", false},
		{"version of nobody", "version\r\n", "ERROR\r\n", (*client.Memcache).Version, "", true},
		{"stats", "stats\r\n", "STAT curr_items 7\r\nSTAT x a b\r\nEND\r\n", stats, "7", false},
	} {
		for _, pieces := range []int{1, 7, 1 << 20} {
			t.Run(tt.name, func(t *testing.T) {
				got, err := tt.do(scripted(t, tt.sent, tt.reply, pieces))
				if (err != nil) != tt.fails {
					t.Fatalf("error %v", err)
				}
				if got != tt.want {
					t.Errorf("got %.60q, want %.60q", got, tt.want)
				}
			})
		}
	}
}

func set(c *client.Memcache) (string, error) { return "", c.Set([]byte("k"), 4, []byte("ab")) }

func get(c *client.Memcache) (string, error) {
	body, flags, found, err := c.Get([]byte("k"))
	if err != nil {
		return "", err
	}
	if !found {
		return "none", nil
	}
	return string(rune('0'+flags)) + " " + string(body), nil
}

func remove(c *client.Memcache) (string, error) {
	ok, err := c.Delete([]byte("k"))
	if err != nil {
		return "", err
	}
	if ok {
		return "true", nil
	}
	return "false", nil
}

func stats(c *client.Memcache) (string, error) {
	m, err := c.Stats("")
	return m["curr_items"], err
}

func TestReplyError(t *testing.T) {
	_, err := get(scripted(t, "get k\r\n", "SERVER_ERROR no\r\n", 100))
	e, ok := errors.AsType[*client.ReplyError](err)
	if !ok || e.Command != "get" || e.Reply != "SERVER_ERROR no" {
		t.Errorf("got %v", err)
	}
}

func TestPipeline(t *testing.T) {
	c := scripted(t, "set a 0 0 1 noreply\r\nx\r\nset a 0 0 1\r\ny\r\nget a\r\ndelete a\r\n",
		"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\nDELETED\r\n", 3)
	key := []byte("a")
	c.AppendSetNoreply(key, 0, []byte("x"))
	c.AppendSet(key, 0, []byte("y"))
	c.AppendGet(key)
	c.AppendDelete(key)
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	if c.Pending() != 0 {
		t.Errorf("%d bytes pending after Flush", c.Pending())
	}
	if err := c.ReadStored(); err != nil {
		t.Error(err)
	}
	if body, _, found, err := c.ReadValue(); err != nil || !found || string(body) != "x" {
		t.Errorf("got %q, %t, %v", body, found, err)
	}
	if ok, err := c.ReadDeleted(); !ok || err != nil {
		t.Errorf("got %t, %v", ok, err)
	}
}

// TestAllocations holds the promise that an operation allocates nothing, which else would be taken from the server.
func TestAllocations(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		replies := [][]byte{[]byte("STORED\r\n"), []byte("VALUE k 0 2\r\nab\r\nEND\r\n"), []byte("DELETED\r\n")}
		lines := []int{2, 1, 1} // of each request
		for r := bufio.NewReader(conn); ; {
			for i, reply := range replies {
				for range lines[i] {
					if _, err := r.ReadSlice('\n'); err != nil {
						return
					}
				}
				if _, err := conn.Write(reply); err != nil {
					return
				}
			}
		}
	}()
	c, err := client.DialMemcache(t.Context(), ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	key, body := []byte("k"), []byte("ab")
	allocations := testing.AllocsPerRun(200, func() {
		if err := c.Set(key, 0, body); err != nil {
			t.Error(err)
		}
		if _, _, found, err := c.Get(key); err != nil || !found {
			t.Error(found, err)
		}
		if ok, err := c.Delete(key); err != nil || !ok {
			t.Error(ok, err)
		}
	})
	if allocations > 0 {
		t.Errorf("%v allocations for set, get and delete, want none", allocations)
	}
}
