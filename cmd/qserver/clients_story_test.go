package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// clientPatience is how long the clients of the story wait for an answer: no test waits for it unless something hangs.
const clientPatience = 2 * time.Minute

// storyCase is a client library with some of its options. Every one of them goes through the same story, testStory.
//
// Its program, in testdata/clients, has one client object and does what lines on its standard input say, each with one line on
// its standard output. A body is in base64, an empty one is -. PORT is its first argument; timeout=MS, how long the library
// waits for an answer, its second; then come those of the case.
//
//	enqueue KEY EXPTIME FLAGS BODY    stored, or refused; FLAGS - are the library's own
//	add KEY BODY, replace KEY BODY    the same
//	reserve KEY                       message RECEIPT FLAGS BODY, or empty; - is what the library does not show
//	several KEY…                      messages, then RECEIPT BODY of each key's, - - for a key without
//	batch KEY                         the same, of a key with /batch=
//	ack KEY                           done, or missing: a delete, with whatever the key's options say
//	extend KEY SECONDS                the same, a touch
//	progress KEY RECEIPT BODY         stored, or refused: a cas
//	values KEY                        ok: has enqueued, reserved, compared and acked a value of each type that the library knows
//	version                           X.Y.Z as the library has parsed it, or - if it doesn't show it
//	stat NAME                         the value of that statistic, or - likewise
//	flush                             ok: sends what the library has buffered
//	close                             ok: ends the library's connections; the next command may open new ones
//
// Where the library doesn't ask for an answer (noreply, buffered writes) it is sent in place of stored, refused, done and
// missing. Whatever else goes wrong is error TEXT.
type storyCase struct {
	name    string
	program func(t *testing.T) []string                                             // what runs the script; it skips the test where the library isn't installed
	command []string                                                                // the script, and the arguments after port and timeout
	dial    func(t *testing.T, s *programServer, timeout time.Duration) storyClient // in place of these, for a client in Go
	prefix  string                                                                  // what the library puts before each key

	lease      bool     // it moves between connections: reserves with a lease, acks by receipt, or by tag if it shows none
	silent     bool     // it asks for no answers to what it stores and deletes
	noReceipts bool     // it doesn't show receipts
	noBulk     bool     // of what it takes several at once it doesn't show receipts
	noBatch    bool     // it can't read a list
	noProgress bool     // it has no cas
	noMissing  bool     // its delete takes NOT_FOUND for success
	server     []string // arguments for the server
	noLarge    bool     // it is spared the body of 20 MiB: another case of its library has it, or reading it takes minutes
	keeps      bool     // it keeps its connection after a wait that timed out, and drops what comes late: it waits with a lease
	noOrder    bool     // it asks for several in an order of its own
	flags      uint32   // the highest flags that a user may set; 0: none
	compresses bool
	drops      bool // an error line costs it the connection
}

// storyClient is one client object in a process of its own, or in this one. do passes one command on and returns its answer.
type storyClient interface {
	do(command string) string
	kill() // ends it with no time to say anything
}

// actor is a client of the story. Its methods end the test where an answer is not as it should be.
type actor struct {
	storyClient
	t *testing.T
	c *storyCase
}

// hire starts a client of the case.
func (c *storyCase) hire(t *testing.T, s *programServer, timeout time.Duration) actor {
	t.Helper()
	var client storyClient
	if c.dial != nil {
		client = c.dial(t, s, timeout)
	} else {
		var command []string
		if c.program != nil {
			command = c.program(t)
		}
		client = startStoryProgram(t, append(command, c.command...), s.port(), timeout)
	}
	t.Cleanup(client.kill)
	return actor{client, t, c}
}

// storyProgram is a client in a process of its own.
type storyProgram struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err bytes.Buffer
}

// startStoryProgram puts port and timeout behind the name of the script.
func startStoryProgram(t *testing.T, command []string, port string, timeout time.Duration) *storyProgram {
	t.Helper()
	script := 1 + slices.IndexFunc(command, func(s string) bool { return strings.HasPrefix(s, "testdata/") })
	return startStory(t, slices.Insert(slices.Clone(command), script, port, fmt.Sprintf("timeout=%d", timeout.Milliseconds()))...)
}

// startStory starts a client with all its arguments.
func startStory(t *testing.T, args ...string) *storyProgram {
	t.Helper()
	p := &storyProgram{cmd: exec.Command(args[0], args[1:]...)}
	p.cmd.Stderr = &p.err
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, bufio.NewReaderSize(out, 64<<10)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *storyProgram) do(command string) string {
	if _, err := io.WriteString(p.in, command+"\n"); err != nil {
		return fmt.Sprintf("error write to the client: %v", err)
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.kill()
		return fmt.Sprintf("error read from the client: %v\n%s", err, p.err.String())
	}
	return strings.TrimSuffix(line, "\n")
}

func (p *storyProgram) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// want sends a command and compares its answer; in place of the answer a silent client says sent to what changes something.
func (a actor) want(answer string, command ...any) {
	a.t.Helper()
	line := strings.TrimSuffix(fmt.Sprintln(command...), "\n")
	got := a.do(line)
	switch {
	case got == "sent" && a.c.silent:
		a.settle()
	case got == "done" && answer == "missing" && a.c.noMissing:
	case got != answer:
		a.t.Fatalf("%.100s: got %.300s, want %.100s", line, got, answer)
	}
}

// settle makes the library send what it has buffered.
func (a actor) settle() {
	a.t.Helper()
	if got := a.do("flush"); got != "ok" {
		a.t.Fatalf("flush: got %.300s, want ok", got)
	}
}

func (a actor) enqueue(key string, body []byte) { a.t.Helper(); a.enqueueFlags(key, "-", body) }

func (a actor) enqueueFlags(key, flags string, body []byte) {
	a.t.Helper()
	a.want("stored", "enqueue", key, 0, flags, encodeBody(body))
}

// held is a message that a client has taken.
type held struct {
	receipt string // - if it isn't shown
	flags   string
	ack     string // the key for an ack: that of the queue, or one with the receipt or tag
}

// reserve takes the message with that body from a queue, with a lease where the client needs one. The options follow the
// queue's name.
func (a actor) reserve(queue, options string, body []byte) held {
	a.t.Helper()
	key, ack := queue+options, queue
	if a.c.lease {
		key += "/lease=60"
		if a.c.noReceipts {
			tag := fmt.Sprintf("/n=t%x", rand.Uint64())
			key, ack = key+tag, queue+tag
		}
	}
	h := a.take(key, body)
	h.ack = ack
	if a.c.lease && !a.c.noReceipts {
		h.ack = queue + "/id=" + h.receipt
	}
	return h
}

// take is reserve with just this key, which is the ack's as well.
func (a actor) take(key string, body []byte) held {
	a.t.Helper()
	got := strings.Split(a.do("reserve "+key), " ")
	if len(got) != 4 || got[0] != "message" {
		a.t.Fatalf("reserve %s: got %.300s, want a message", key, strings.Join(got, " "))
	}
	if (got[1] == "-") != a.c.noReceipts {
		a.t.Fatalf("reserve %s: got receipt %s; shows none: %v", key, got[1], a.c.noReceipts)
	}
	wantBody(a.t, "reserve "+key, got[3], body)
	return held{receipt: got[1], flags: got[2], ack: key}
}

// several takes one message for each key. The keys are put into the order of the bodies where the client has one of its own.
func (a actor) several(command string, keys []string, bodies ...string) []string {
	a.t.Helper()
	line := command + " " + strings.Join(keys, " ")
	got := strings.Split(a.do(line), " ")
	if got[0] != "messages" || len(got) != 1+2*len(bodies) {
		a.t.Fatalf("%s: got %.300s, want %d messages", line, strings.Join(got, " "), len(bodies))
	}
	if swapped := bodies[0] != bodies[1] && got[4] == encodeBody([]byte(bodies[0])); swapped && a.c.noOrder {
		keys[0], keys[1] = keys[1], keys[0]
		got[1], got[2], got[3], got[4] = got[3], got[4], got[1], got[2]
	}
	var receipts []string
	for i, body := range bodies {
		wantBody(a.t, line, got[2+2*i], []byte(body))
		receipts = append(receipts, got[1+2*i])
	}
	return receipts
}

// largeBody is 20 MiB that can't be compressed, and largeEncoded the same for the clients; made once, since many send it.
var (
	largeBody = sync.OnceValue(func() []byte {
		body := make([]byte, 20<<20)
		rand.NewChaCha8([32]byte{1}).Read(body)
		return body
	})
	largeEncoded = sync.OnceValue(func() string { return base64.StdEncoding.EncodeToString(largeBody()) })
)

func encodeBody(body []byte) string {
	switch {
	case len(body) == 0:
		return "-"
	case len(body) == len(largeBody()) && bytes.Equal(body, largeBody()):
		return largeEncoded()
	}
	return base64.StdEncoding.EncodeToString(body)
}

func wantBody(t *testing.T, what, encoded string, want []byte) {
	t.Helper()
	if encoded == encodeBody(want) {
		return
	}
	got, err := base64.StdEncoding.DecodeString(strings.Trim(encoded, "-"))
	t.Fatalf("%s: got a body of %d bytes, %.60q, want %d bytes, %.60q (%v)", what, len(got), got, len(want), want, err)
}

// runStories runs the story with each of the clients.
func runStories(t *testing.T, program string, cases ...storyCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // they wait for their clients, for leases and delays
			if c.program != nil {
				c.program(t)
			}
			testStory(t, startProgram(t, program, c.server...), &c)
		})
	}
}

// testStory is what every client must be able to do. What takes time is begun first and looked at last.
func testStory(t *testing.T, s *programServer, c *storyCase) {
	a, b := c.hire(t, s, clientPatience), c.hire(t, s, clientPatience)
	counted := func(queue string, want counts) {
		t.Helper()
		s.waitCounts(t, c.prefix+queue, want)
	}
	for _, key := range []string{"soon/delay=1", "later/delay=600", "nack", "nack", "lapse"} {
		a.enqueue(key, []byte(key))
	}
	counted("later", counts{delayed: 1})
	counted("nack", counts{ready: 2})
	for _, release := range []string{"/release=600", "/release=1"} {
		a.want("done", "ack", a.reserve("nack", "", []byte("nack")).ack+release)
	}
	lapsing := a.reserve("lapse", "", []byte("lapse"))
	a.want("done", "extend", lapsing.ack, 1)

	if got := a.do("version"); got != "-" && !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(got) {
		t.Errorf("version: got %q", got)
	}
	stat := func(name, want string) {
		t.Helper()
		if got := a.do("stat " + name); got != "-" && got != want {
			t.Errorf("stat %s: got %s, want %s", name, got, want)
		}
	}
	stat("pid", strconv.Itoa(s.cmd.Process.Pid))

	storyBodies(t, s, a, counted)
	storyTwoWorkers(a, b, counted)
	storyHolders(t, s, a, b, counted)
	storySeveral(a, b, counted)
	storyTimeout(t, s, b, counted)

	for _, key := range []string{"soon/delay=1", "nack"} {
		queue, _, _ := strings.Cut(key, "/")
		b.want("done", "ack", b.reserve(queue, "/t=15000", []byte(key)).ack)
	}
	relapsed := b.reserve("lapse", "/t=15000", []byte("lapse"))
	if !c.noReceipts {
		a.want("missing", "ack", "lapse/id="+lapsing.receipt) // too late, and never the next holder's
	}
	counted("lapse", counts{reserved: 1})
	b.want("done", "ack", relapsed.ack)
	for queue, left := range map[string]counts{"soon": {}, "lapse": {}, "later": {delayed: 1}, "nack": {delayed: 1}} {
		counted(queue, left)
	}
	stat("curr_items", "2")
}

// storyBodies sends bodies of all kinds through the server, with flags where the library lets its user set some.
func storyBodies(t *testing.T, s *programServer, a actor, counted func(string, counts)) {
	t.Helper()
	random := largeBody()
	bodies := [][]byte{{}, {0}, []byte("a\r\nb"), []byte("END\r\nget odd\r\n"), []byte("\xff\xfe"), bytes.Repeat([]byte("word "), 1<<20/5),
		random[:1<<20], random}
	if a.c.noLarge {
		bodies = bodies[:len(bodies)-1]
	}
	flags := func(i int) string {
		if a.c.flags == 0 {
			return "-"
		}
		return strconv.FormatUint(uint64(a.c.flags)-uint64(i), 10)
	}
	for i, body := range bodies {
		a.enqueueFlags("odd", flags(i), body)
	}
	counted("odd", counts{ready: len(bodies)})
	for i, body := range bodies {
		if i == 5 { // the one that can be compressed
			head, _, _ := strings.Cut(s.talk(t, "get "+a.c.prefix+"odd/peek\r\nquit\r\n"), "\r\n")
			words := strings.Fields(head)
			if size, err := strconv.Atoi(words[len(words)-1]); err != nil || (size < len(body)/10) != a.c.compresses {
				t.Errorf("the server has %q of a body of %d bytes; compresses: %v", head, len(body), a.c.compresses)
			}
		}
		h := a.reserve("odd", "", body)
		if a.c.flags != 0 && h.flags != flags(i) {
			t.Errorf("body %d: got flags %s, want %s", i, h.flags, flags(i))
		}
		a.want("done", "ack", h.ack)
	}
	counted("odd", counts{})
	a.want("empty", "reserve", "odd")
	a.want("missing", "ack", "odd")
	a.want("ok", "values", "typed")
	counted("typed", counts{})
}

// storyTwoWorkers lets each take another message and ack its own, then one that the other has taken.
func storyTwoWorkers(a, b actor, counted func(string, counts)) {
	a.t.Helper()
	for _, body := range []string{"one", "two", "three"} {
		a.enqueue("work", []byte(body))
	}
	counted("work", counts{ready: 3})
	one, two := a.reserve("work", "", []byte("one")), b.reserve("work", "", []byte("two"))
	counted("work", counts{ready: 1, reserved: 2})
	b.want("done", "ack", two.ack)
	b.want("missing", "ack", two.ack)
	a.want("done", "ack", one.ack)
	counted("work", counts{ready: 1})
	a.take("work/n=job3/lease=60", []byte("three"))
	b.want("done", "ack", "work/n=job3")
	a.want("missing", "ack", "work/n=job3")
	counted("work", counts{})
}

// storyHolders ends connections that hold something: a lease outlives that, the rest goes back.
func storyHolders(t *testing.T, s *programServer, a, b actor, counted func(string, counts)) {
	t.Helper()
	a.enqueue("long", []byte("job"))
	h := a.take("long/n=job/lease=60", []byte("job"))
	a.want("ok", "close")
	counted("long", counts{reserved: 1})
	key := "long/n=job"
	if h.receipt != "-" {
		key = "long/id=" + h.receipt
	}
	b.want("done", "extend", key, 60)
	b.want("done", "ack", key)
	b.want("missing", "ack", key)
	counted("long", counts{})

	mortal := a.c.hire(t, s, clientPatience)
	b.enqueue("mortal", []byte("job"))
	counted("mortal", counts{ready: 1})
	mortal.take("mortal", []byte("job"))
	counted("mortal", counts{reserved: 1})
	mortal.kill()
	b.want("done", "ack", b.reserve("mortal", "/t=15000", []byte("job")).ack)
	counted("mortal", counts{})
}

// storySeveral takes several at once, and saves progress.
func storySeveral(a, b actor, counted func(string, counts)) {
	a.t.Helper()
	for _, body := range []string{"1", "2", "3"} {
		a.enqueue("bulk", []byte(body))
	}
	counted("bulk", counts{ready: 3})
	keys := []string{"bulk/n=x", "bulk/n=y"}
	if a.c.lease {
		keys = []string{"bulk/n=x/lease=60", "bulk/n=y/lease=60"}
	}
	receipts := a.several("several", keys, "1", "2")
	if (receipts[0] == "-") != (a.c.noBulk || a.c.noReceipts) {
		a.t.Errorf("several: got receipts %v", receipts)
	}
	ack := strings.TrimSuffix(keys[1], "/lease=60")
	if receipts[1] != "-" {
		ack = "bulk/id=" + receipts[1]
	}
	b.want("done", "ack", ack)
	b.want("done", "ack", strings.TrimSuffix(keys[0], "/lease=60")+"/release=0")
	counted("bulk", counts{ready: 2})
	if a.c.noBatch {
		a.want("done", "ack", a.reserve("bulk", "", []byte("1")).ack)
		a.want("done", "ack", a.reserve("bulk", "", []byte("3")).ack)
	} else {
		for _, receipt := range a.several("batch", []string{"bulk/batch=9/lease=60"}, "1", "3") {
			b.want("done", "ack", "bulk/id="+receipt)
		}
	}
	counted("bulk", counts{})

	if !a.c.noProgress && !a.c.noReceipts {
		a.enqueue("steps", []byte("step 1"))
		h := a.reserve("steps", "", []byte("step 1"))
		a.want("stored", "progress", "steps", h.receipt, encodeBody([]byte("step 2")))
		a.want("refused", "progress", "steps", h.receipt, encodeBody([]byte("step 3")))
		a.want("done", "ack", a.reserve("steps", "", []byte("step 2")).ack)
		counted("steps", counts{})
	}
	a.want("refused", "replace", "single", encodeBody([]byte("x")))
	a.want("stored", "add", "single", encodeBody([]byte("x")))
	a.want("refused", "add", "single", encodeBody([]byte("y")))
	a.want("stored", "replace", "single", encodeBody([]byte("z")))
	counted("single", counts{ready: 2})
	a.want("done", "ack", a.reserve("single", "", []byte("x")).ack)
	a.want("done", "ack", a.reserve("single", "", []byte("z")).ack)
	counted("single", counts{})
}

// storyTimeout lets a client give up waiting. A message that comes afterwards is not lost to the wait, and the client goes on.
func storyTimeout(t *testing.T, s *programServer, b actor, counted func(string, counts)) {
	t.Helper()
	hasty := b.c.hire(t, s, 300*time.Millisecond)
	hasty.want("empty", "reserve", "hasty") // so that the time to start is not counted
	wait := "hasty/t=4000"
	if b.c.keeps {
		wait += "/lease=1"
	}
	if got := hasty.do("reserve " + wait); got != "empty" && !strings.HasPrefix(got, "error ") {
		t.Fatalf("a wait that takes too long: got %.300s", got)
	}
	b.enqueue("hasty", []byte("late"))
	if !b.c.keeps {
		counted("hasty", counts{ready: 1})
	}
	deadline := time.Now().Add(clientPatience)
	for {
		got := hasty.do("reserve hasty/lease=60/n=late")
		if words := strings.Split(got, " "); words[0] == "message" {
			wantBody(t, "reserve hasty", words[3], []byte("late"))
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a wait that took too long: got %.300s", got)
		}
	}
	hasty.want("done", "ack", "hasty/n=late")
	counted("hasty", counts{})
}
