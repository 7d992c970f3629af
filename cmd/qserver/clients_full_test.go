package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// testFull lets each client enqueue into a server whose memory is used up. It is told so, and goes on: the refusal costs those
// that don't drop it neither the connection nor what they hold on it, and the others get the message back.
func testFull(t *testing.T, s *programServer, cases []storyCase) {
	for i, c := range cases {
		if got := s.talk(t, fmt.Sprintf("set %skept%d 0 0 4\r\nkept\r\nquit\r\n", c.prefix, i)); got != "STORED\r\n" {
			t.Fatalf("set: got %q", got)
		}
	}
	for i, c := range cases {
		if c.silent || c.noLarge { // it doesn't hear of the refusal, or is a variant of another case
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if c.program != nil {
				c.program(t)
			}
			queue, body := fmt.Sprint("kept", i), []byte("kept")
			a := c.hire(t, s, clientPatience)
			h := a.reserve(queue, "", body)
			fill(t, s)
			if got := a.do("enqueue " + queue + " 0 - eA=="); got != "refused" && !strings.HasPrefix(got, "error ") {
				t.Fatalf("enqueue: got %q, want it refused", got)
			}
			if c.drops && !c.lease {
				a.want("missing", "ack", h.ack)
				h = a.reserve(queue, "/t=15000", body)
			}
			a.want("done", "ack", h.ack)
			s.waitCounts(t, c.prefix+queue, counts{})
		})
	}
}

// fill uses up the server's memory with what can't leave it: dedup keys.
func fill(t *testing.T, s *programServer) {
	t.Helper()
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(clientPatience))
	replies := bufio.NewReader(nc)
	long := strings.Repeat("k", 180)
	for sent := 0; ; {
		var commands strings.Builder
		const burst = 50
		for range burst {
			fmt.Fprintf(&commands, "set full/dedup=%s%d-%d 0 0 0\r\n\r\n", long, time.Now().UnixNano(), sent)
			sent++
		}
		if _, err := io.WriteString(nc, commands.String()); err != nil {
			t.Fatal(err)
		}
		full := 0
		for range burst {
			line, err := replies.ReadString('\n')
			switch {
			case err != nil:
				t.Fatal(err)
			case line == "SERVER_ERROR out of memory storing object\r\n":
				full++
			case line != "STORED\r\n":
				t.Fatalf("set: got %q", line)
			}
		}
		if full == burst {
			return
		}
		if sent > 1_000_000 {
			t.Fatal("a million dedup keys fit into 8 MiB")
		}
	}
}
