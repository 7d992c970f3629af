package client_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"qserver/bench/client"
)

// fakeNATS is as much of a NATS server with JetStream as the client asks of one: one connection, one stream.
type fakeNATS struct {
	w      *bufio.Writer
	sids   map[string]string // of subscriptions, by subject or what it begins with
	stream []string          // bodies that were published and not acknowledged
	given  int               // of these, how many were fetched
}

func startFakeNATS(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		f := &fakeNATS{w: bufio.NewWriter(conn), sids: make(map[string]string)}
		f.serve(bufio.NewReader(conn))
	})
	t.Cleanup(func() { ln.Close(); serving.Wait() })
	return ln.Addr().String()
}

func (f *fakeNATS) serve(r *bufio.Reader) {
	fmt.Fprintf(f.w, "INFO {\"server_id\":\"fake\",\"version\":\"2.10.0\",\"headers\":true,\"max_payload\":1048576}\r\n")
	f.w.Flush()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		switch strings.ToUpper(words[0]) {
		case "PING":
			fmt.Fprint(f.w, "PONG\r\n")
		case "SUB":
			f.sids[strings.TrimSuffix(words[1], "*")] = words[2]
		case "PUB":
			n, _ := strconv.Atoi(words[len(words)-1])
			body := make([]byte, n+2)
			if _, err := io.ReadFull(r, body); err != nil {
				return
			}
			if len(words) == 4 {
				f.request(words[1], words[2], string(body[:n]))
			}
		}
		if r.Buffered() == 0 {
			f.w.Flush()
		}
	}
}

// request answers what was sent to a subject.
func (f *fakeNATS) request(subject, reply, body string) {
	switch {
	case strings.HasPrefix(subject, "$JS.API.STREAM.CREATE"):
		f.answer(reply, "", `{"config":{"name":"q"},"state":{}}`)
	case strings.HasPrefix(subject, "$JS.API.CONSUMER.INFO"):
		f.answer(reply, "", `{"error":{"code":404,"err_code":10014,"description":"consumer not found"}}`)
	case strings.HasPrefix(subject, "$JS.API.CONSUMER.") && !strings.Contains(subject, ".NEXT."):
		f.answer(reply, "", `{"stream_name":"q","name":"bench","config":{"durable_name":"bench","ack_policy":"explicit"}}`)
	case strings.HasPrefix(subject, "$JS.API.STREAM.LIST"):
		f.answer(reply, "", fmt.Sprintf(`{"total":1,"streams":[{"config":{"name":"q"},"state":{"messages":%d}}]}`, len(f.stream)))
	case strings.Contains(subject, ".MSG.NEXT."):
		if f.given == len(f.stream) {
			f.status(reply, "NATS/1.0 404 No Messages")
			return
		}
		f.given++
		f.answer(reply, "$JS.ACK.q", f.stream[f.given-1])
	case subject == "$JS.ACK.q":
		f.stream, f.given = f.stream[1:], f.given-1
		f.answer(reply, "", "")
	default:
		f.stream = append(f.stream, body)
		f.answer(reply, "", `{"stream":"q","seq":1}`)
	}
}

func (f *fakeNATS) sid(subject string) string {
	for begin, sid := range f.sids {
		if strings.HasPrefix(subject, begin) {
			return sid
		}
	}
	return "0"
}

func (f *fakeNATS) answer(subject, reply, body string) {
	fmt.Fprintf(f.w, "MSG %s %s %s %d\r\n%s\r\n", subject, f.sid(subject), reply, len(body), body)
}

func (f *fakeNATS) status(subject, status string) {
	head := status + "\r\n\r\n"
	fmt.Fprintf(f.w, "HMSG %s %s %d %d\r\n%s\r\n", subject, f.sid(subject), len(head), len(head), head)
}

func TestJetStream(t *testing.T) {
	c, err := client.DialJetStream(t.Context(), startFakeNATS(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	key := []byte("q")
	if err := c.Prepare(key); err != nil {
		t.Fatal(err)
	}
	for range 2 { // one at once and one after the wait; then two in a pipeline
		c.AppendSet(key, 0, []byte("ab"))
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.ReadStored(); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := c.Count(); n != 2 || err != nil {
		t.Errorf("got a count of %d (%v), want 2", n, err)
	}
	for range 3 {
		c.AppendGet(key)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, true, false} {
		if body, _, found, err := c.ReadValue(); found != want || err != nil || found && string(body) != "ab" {
			t.Fatalf("got %q, %t, %v", body, found, err)
		}
	}
	for range 2 {
		c.AppendDelete(key)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if ok, err := c.ReadDeleted(); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if err := c.Set(key, 0, []byte("cd")); err != nil {
		t.Fatal(err)
	}
	if body, _, found, err := c.Get(key); string(body) != "cd" || !found || err != nil {
		t.Fatalf("got %q, %t, %v", body, found, err)
	}
	if ok, err := c.Delete(key); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := c.Delete(key); ok || err != nil {
		t.Fatal("what is not held was deleted", err)
	}
	if _, _, found, err := c.GetWait(key, 0); found || err != nil {
		t.Fatal(found, err)
	}
}
