package client_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"qserver/bench/client"
)

// An exchange is what a client is to send, and what it is answered.
type exchange struct{ sent, reply string }

// scriptedConn is the client's end of a connection whose server follows a script.
func scriptedConn(t *testing.T, script []exchange) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer theirs.Close()
		for _, e := range script {
			got := make([]byte, len(e.sent))
			if n, err := io.ReadFull(theirs, got); err != nil || string(got) != e.sent {
				t.Errorf("the server got %q (%v), want %q", got[:n], err, e.sent)
				return
			}
			if _, err := io.WriteString(theirs, e.reply); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { ours.Close(); <-done })
	return ours
}

// resp is a RESP array of bulk strings.
func resp(words ...string) string {
	var b strings.Builder
	b.WriteString("*" + string(rune('0'+len(words))) + "\r\n")
	for _, w := range words {
		b.WriteString("$" + itoa(len(w)) + "\r\n" + w + "\r\n")
	}
	return b.String()
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

// TestConns shows each protocol the same work: a message is stored, got, deleted; another is not there.
func TestConns(t *testing.T) {
	move := []string{"LMOVE", "q", "q:held", "RIGHT", "LEFT"}
	for _, tt := range []struct {
		name   string
		dial   func(net.Conn) client.Conn
		script []exchange
	}{
		{"memcache", func(c net.Conn) client.Conn { return client.NewMemcache(c) }, []exchange{
			{"set q 0 0 2\r\nab\r\n", "STORED\r\n"},
			{"get q\r\n", "VALUE q 0 2\r\nab\r\nEND\r\n"},
			{"delete q\r\n", "DELETED\r\n"},
			{"get q/t=1500\r\n", "END\r\n"},
			{"get q\r\n", "VALUE q 0 2\r\nab\r\nEND\r\n"},
			{"delete q\r\n", "DELETED\r\n"},
			{"stats\r\n", "STAT curr_items 3\r\nEND\r\n"},
		}},
		{"kestrel", func(c net.Conn) client.Conn { return client.NewKestrel(c) }, []exchange{
			{"set q 0 0 2\r\nab\r\n", "STORED\r\n"},
			{"get q/open\r\n", "VALUE q 0 2\r\nab\r\nEND\r\n"},
			{"get q/close\r\n", "END\r\n"},
			{"get q/t=1500/open\r\n", "END\r\n"},
			{"get q/open\r\n", "VALUE q 0 2\r\nab\r\nEND\r\n"},
			{"get q/close\r\n", "END\r\n"},
			{"stats\r\n", "STAT uptime 1\r\nSTAT queue_q_items 1\r\nSTAT queue_p_items 2\r\nEND\r\n"},
		}},
		{"beanstalk", func(c net.Conn) client.Conn { return client.NewBeanstalk(c) }, []exchange{
			{"use q\r\n", "USING q\r\n"},
			{"put 0 0 3600 2\r\nab\r\n", "INSERTED 7\r\n"},
			{"watch q\r\n", "WATCHING 2\r\n"},
			{"ignore default\r\n", "WATCHING 1\r\n"},
			{"reserve-with-timeout 0\r\n", "RESERVED 7 2\r\nab\r\n"},
			{"delete 7\r\n", "DELETED\r\n"},
			{"reserve-with-timeout 2\r\n", "TIMED_OUT\r\n"},
			{"reserve-with-timeout 0\r\n", "RESERVED 8 2\r\nab\r\n"},
			{"delete 8\r\n", "DELETED\r\n"},
			{"stats\r\n", "OK 64\r\n---\ncurrent-jobs-urgent: 9\ncurrent-jobs-ready: 2\ncurrent-jobs-reserved: 1\r\n"},
		}},
		{"redis", func(c net.Conn) client.Conn { return client.NewRedis(c) }, []exchange{
			{resp("LPUSH", "q", "ab"), ":1\r\n"},
			{resp(move...), "$2\r\nab\r\n"},
			{resp("LREM", "q:held", "-1", "ab"), ":1\r\n"},
			{resp("BLMOVE", "q", "q:held", "RIGHT", "LEFT", "1.500"), "*-1\r\n"},
			{resp(move...), "$2\r\nab\r\n"},
			{resp("LREM", "q:held", "-1", "ab"), ":1\r\n"},
			{resp("KEYS", "*"), "*2\r\n$1\r\nq\r\n$6\r\nq:held\r\n"},
			{resp("LLEN", "q") + resp("LLEN", "q:held"), ":2\r\n:1\r\n"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.dial(scriptedConn(t, fixed(tt.script)))
			work(t, c)
			if n, err := c.Count(); n != 3 || err != nil {
				t.Errorf("got a count of %d (%v), want 3", n, err)
			}
		})
	}
}

// fixed corrects the length that beanstalkd's stats tell.
func fixed(script []exchange) []exchange {
	for i, e := range script {
		if head, text, ok := strings.Cut(e.reply, "\r\n"); ok && strings.HasPrefix(head, "OK ") {
			script[i].reply = "OK " + itoa(len(text)-2) + "\r\n" + text
		}
	}
	return script
}

// work stores a message, gets and deletes it, waits for another in vain, and takes a third in a pipeline.
func work(t *testing.T, c client.Conn) {
	t.Helper()
	key := []byte("q")
	if err := c.Set(key, 0, []byte("ab")); err != nil {
		t.Fatalf("set: %v", err)
	}
	if body, _, found, err := c.Get(key); string(body) != "ab" || !found || err != nil {
		t.Fatalf("get: %q, %t, %v", body, found, err)
	}
	if ok, err := c.Delete(key); !ok || err != nil {
		t.Fatalf("delete: %t, %v", ok, err)
	}
	if _, _, found, err := c.GetWait(key, 1500*time.Millisecond); found || err != nil {
		t.Fatalf("wait: %t, %v", found, err)
	}
	c.AppendGet(key)
	if c.Pending() == 0 {
		t.Error("a request was not collected")
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	if body, _, found, err := c.ReadValue(); string(body) != "ab" || !found || err != nil {
		t.Fatalf("pipelined get: %q, %t, %v", body, found, err)
	}
	c.AppendDelete(key)
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	if ok, err := c.ReadDeleted(); !ok || err != nil {
		t.Fatalf("pipelined delete: %t, %v", ok, err)
	}
}

// TestOldestFirst holds that what was got first is deleted first, where the client itself has to know.
func TestOldestFirst(t *testing.T) {
	key := []byte("q")
	beanstalk := client.NewBeanstalk(scriptedConn(t, []exchange{
		{"use q\r\n", "USING q\r\n"}, {"watch q\r\n", "WATCHING 2\r\n"}, {"ignore default\r\n", "WATCHING 1\r\n"},
		{"reserve-with-timeout 0\r\nreserve-with-timeout 0\r\n", "RESERVED 7 1\r\na\r\nRESERVED 8 1\r\nb\r\n"},
		{"delete 7\r\ndelete 8\r\ndelete 0\r\n", "DELETED\r\nDELETED\r\nNOT_FOUND\r\n"},
	}))
	move := resp("LMOVE", "q", "q:held", "RIGHT", "LEFT")
	remove := func(body string) string { return resp("LREM", "q:held", "-1", body) }
	redis := client.NewRedis(scriptedConn(t, []exchange{
		{move + move, "$1\r\na\r\n$1\r\nb\r\n"},
		{remove("a") + remove("b") + remove(""), ":1\r\n:1\r\n:0\r\n"},
	}))
	if err := beanstalk.Prepare(key); err != nil {
		t.Fatal(err)
	}
	for _, c := range []client.Conn{beanstalk, redis} {
		c.AppendGet(key)
		c.AppendGet(key)
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, _, found, err := c.ReadValue(); !found || err != nil {
				t.Fatal(found, err)
			}
		}
		for range 3 {
			c.AppendDelete(key)
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []bool{true, true, false} {
			if ok, err := c.ReadDeleted(); ok != want || err != nil {
				t.Errorf("%T: got %t (%v), want %t", c, ok, err, want)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	key := []byte("q")
	for _, tt := range []struct {
		name   string
		client client.Conn
	}{
		{"beanstalk put", client.NewBeanstalk(scriptedConn(t, []exchange{{"use q\r\n", "USING q\r\n"}, {"put 0 0 3600 1\r\na\r\n", "DRAINING\r\n"}}))},
		{"beanstalk use", client.NewBeanstalk(scriptedConn(t, []exchange{{"use q\r\n", "BAD_FORMAT\r\n"}}))},
		{"redis", client.NewRedis(scriptedConn(t, []exchange{{resp("LPUSH", "q", "a"), "-OOM no memory\r\n"}}))},
		{"kestrel", client.NewKestrel(scriptedConn(t, []exchange{{"set q 0 0 1\r\na\r\n", "ERROR\r\n"}}))},
	} {
		if err := tt.client.Set(key, 0, []byte("a")); err == nil {
			t.Errorf("%s: an error of the server passes", tt.name)
		}
	}
}

func TestChain(t *testing.T) {
	c := client.NewMemcache(scriptedConn(t, []exchange{{"get q/t=250/close/open\r\n", "VALUE q 0 1\r\na\r\nEND\r\n"}, {"get q/close/open\r\n", "END\r\n"}}))
	if body, _, found, err := c.Next([]byte("q"), 250*time.Millisecond); string(body) != "a" || !found || err != nil {
		t.Errorf("got %q, %t, %v", body, found, err)
	}
	if _, _, found, err := c.Next([]byte("q"), 0); found || err != nil {
		t.Errorf("got %t, %v", found, err)
	}
}

func TestMeta(t *testing.T) {
	m := client.Meta{Memcache: client.NewMemcache(scriptedConn(t, []exchange{
		{"mn\r\n", "MN\r\n"},
		{"ms q 2 q F4\r\nab\r\nmn\r\n", "MN\r\n"},
		{"mg q v f q\r\nmd q q\r\nmg q v f q\r\nmn\r\n", "VA 2 f4\r\nab\r\nMN\r\n"},
		{"mn\r\n", "NF\r\n"},
	}))}
	key := []byte("q")
	if ok, err := m.Supported(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	m.AppendSet(key, 4, []byte("ab"))
	if err := m.End(); err != nil {
		t.Fatal(err)
	}
	if _, _, found, err := m.Next(); found || err != nil {
		t.Fatal(found, err)
	}
	m.AppendGet(key)
	m.AppendDelete(key)
	m.AppendGet(key)
	if err := m.End(); err != nil {
		t.Fatal(err)
	}
	if body, flags, found, err := m.Next(); string(body) != "ab" || flags != 4 || !found || err != nil {
		t.Fatal(string(body), flags, found, err)
	}
	if _, _, found, err := m.Next(); found || err != nil {
		t.Fatal(found, err)
	}
	if err := m.End(); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := m.Next(); err == nil {
		t.Error("an answer that says that a batch failed passes")
	}
}

func TestAppend(t *testing.T) {
	c, err := client.OpenAppend(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		if err := c.Set(nil, 0, []byte("ab")); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := c.Count(); n != 3 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if _, _, _, err := c.Get(nil); err == nil {
		t.Error("get passes")
	}
}

func TestDial(t *testing.T) {
	if _, err := client.Dial(t.Context(), "smtp", "127.0.0.1:1"); err == nil {
		t.Error("an unknown protocol passes")
	}
	for _, protocol := range []string{"queue", "memcached", "tycoon", "kestrel", "beanstalkd", "redis", "jetstream"} {
		if !client.Known(protocol) {
			t.Errorf("%s is not known", protocol)
		}
		if c, err := client.Dial(t.Context(), protocol, "127.0.0.1:1"); err == nil || c != nil {
			t.Errorf("%s: a connection to nobody passes", protocol)
		}
	}
}
