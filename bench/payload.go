package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"qserver/bench/client"
)

func payloadScenario() scenario {
	return scenario{
		name:    "payload",
		title:   "one job that carries an array of a million rows: time in encoding, on the wire, in the server; its memory",
		servers: "qserver/enqueue,redis/everysec,beanstalkd/50ms,memcached",
		seconds: 1,
		turns:   3,
		about: `
The experiment of the post about delayed_job, whose YAML took 33 s for a million triples where JSON took 0.22 s. An
array of -rows triples is encoded as JSON, as YAML, and as JSON that is one string within YAML, which was the quick
cure; the proper one, the path of a file, is enqueued too. Each is stored, got, compared byte by byte and deleted, -turns
times. The time on the wire is that of the same bytes to a program which only reads them and answers; what the set took
beyond that is the server's. Its memory is read before, at its peak, and five seconds after. (-seconds and -warmup have
no meaning here.)`,
		prepare: func(fs *flag.FlagSet) func(context.Context, *env, *report) error {
			rows := fs.Int("rows", 1_000_000, "rows of the array")
			rest := fs.Duration("rest", 5*time.Second, "how long the server rests before its memory is read again")
			return func(ctx context.Context, e *env, r *report) error { return runPayload(ctx, e, r, *rows, *rest) }
		},
	}
}

// An argument is what a job carries, encoded.
type argument struct {
	name string
	body []byte
	took time.Duration // to encode
}

// arguments encodes rows triples in each way.
func arguments(rows int) ([]argument, error) {
	triples := make([][3]any, rows)
	for i := range triples {
		triples[i] = [3]any{i + 1, fmt.Sprintf("user%07d", i), i % 997}
	}
	var all []argument
	add := func(name string, encode func() ([]byte, error)) error {
		began := time.Now()
		body, err := encode()
		all = append(all, argument{name, body, time.Since(began)})
		return err
	}
	err := errors.Join(
		add("JSON", func() ([]byte, error) { return json.Marshal(triples) }),
		add("YAML", func() ([]byte, error) { return yaml.Marshal(triples) }),
		add("JSON in a YAML string", func() ([]byte, error) {
			text, err := json.Marshal(triples)
			if err != nil {
				return nil, err
			}
			return yaml.Marshal(map[string]string{"rows": string(text)})
		}),
		add("path of a file", func() ([]byte, error) { return yaml.Marshal(map[string]string{"path": "/srv/uploads/rows.csv"}) }),
	)
	return all, err
}

func runPayload(ctx context.Context, e *env, r *report, rows int, rest time.Duration) error {
	if rows < 1 {
		return errors.New("-rows must be above 0")
	}
	e.large = true
	all, err := e.contestants(r)
	if err != nil {
		return err
	}
	args, err := arguments(rows)
	if err != nil {
		return err
	}
	debug.FreeOSMemory() // the rows, and what encoding them took
	t := r.table(fmt.Sprintf("%s rows: encoding, and the same bytes to a program that only reads them", count(rows)),
		"encoding", "bytes", "encoded in", "on the wire", "delayed_job, as published")
	published := map[string]any{"JSON": span(220 * time.Millisecond), "YAML": span(33 * time.Second)}
	wires := make([]time.Duration, len(args))
	largest := 0
	for i, a := range args {
		largest = max(largest, len(a.body))
		if wires[i], err = onTheWire(ctx, a.body, e.turns); err != nil {
			return fmt.Errorf("%s on the wire: %w", a.name, err)
		}
		t.row(a.name, size(len(a.body)), span(a.took), span(wires[i]), published[a.name])
	}
	var more []string
	if largest > 60<<20 { // more than our server takes unless told to
		limit := strconv.Itoa(largest + 1<<20)
		more = []string{"-max-item-size", limit, "-body-memory", strconv.Itoa(4 * largest)}
	}
	t = r.table("stored, got and deleted, one at a time (best of the turns)", "server", "encoding", "bytes", "set", "in the server", "get", "delete",
		"RSS before", "peak", fmt.Sprintf("after %s", rest))
	e.step("payload", int64(len(all)*len(args)))
	for at, c := range all {
		if c.protocol == "append" {
			continue
		}
		for i, a := range args {
			s, err := c.start(ctx, e, more...)
			if err != nil {
				return err
			}
			p := payload{s: s, body: a.body, rest: rest}
			if err := errors.Join(p.run(ctx, e.turns), s.stop()); err != nil {
				return fmt.Errorf("%s, %s: %w", c.name, a.name, err)
			}
			t.row(c.name, a.name, size(len(a.body)), span(p.set), span(max(p.set-wires[i], 0)), span(p.get), span(p.delete), p.before, p.peak, p.after)
			e.bar.set(int64(at*len(args) + i + 1))
		}
	}
	r.noteServers(e, all)
	return nil
}

// payload is one body on one server.
type payload struct {
	s                   *server
	body                []byte
	rest                time.Duration
	set, get, delete    time.Duration // the shortest of the turns
	before, peak, after any           // resident bytes; nil where the server was not started here
}

func (p *payload) run(ctx context.Context, turns int) error {
	cs, err := p.s.dial(ctx, 1)
	if err != nil {
		return err
	}
	defer cs.close()
	key := []byte("payload")
	if c, ok := cs[0].(client.Preparer); ok {
		if err := c.Prepare(key); err != nil {
			return err
		}
	}
	if p.s.proc != nil {
		m, err := p.s.proc.memory()
		if err != nil {
			return err
		}
		p.before = m.RSS
		p.s.proc.resetPeak()
	}
	base, err := cs[0].Count()
	if err != nil {
		return err
	}
	p.set, p.get, p.delete = time.Hour, time.Hour, time.Hour
	for range turns {
		if err := p.once(cs[0], key); err != nil {
			return err
		}
		if left, err := awaitItems(cs[0], base); err != nil || left != base {
			return errors.Join(err, fmt.Errorf("the server counts %d messages after the only one was deleted", left-base))
		}
	}
	if p.s.proc == nil {
		return nil
	}
	select {
	case <-time.After(p.rest):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	m, err := p.s.proc.memory()
	p.peak, p.after = m.Peak, m.RSS // the highest may come when all was answered
	return err
}

// once stores the body, gets it, compares it and deletes it.
func (p *payload) once(c client.Conn, key []byte) error {
	began := time.Now()
	if err := c.Set(key, 0, p.body); err != nil {
		return err
	}
	p.set = min(p.set, time.Since(began))
	began = time.Now()
	got, _, found, err := c.Get(key)
	p.get = min(p.get, time.Since(began))
	switch {
	case err != nil:
		return err
	case !found:
		return errMissing
	case !bytes.Equal(got, p.body):
		return errBody
	}
	began = time.Now()
	err = deleted(c.Delete(key))
	p.delete = min(p.delete, time.Since(began))
	return err
}

// onTheWire is the shortest time, of some turns, in which the bytes go to a program that reads them and answers.
func onTheWire(ctx context.Context, body []byte, turns int) (time.Duration, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		head := int64(len(fmt.Sprintf("set payload 0 0 %d\r\n\r\n", len(body))))
		for range turns {
			if _, err := io.CopyN(io.Discard, conn, head+int64(len(body))); err != nil {
				return
			}
			if _, err := io.WriteString(conn, "STORED\r\n"); err != nil {
				return
			}
		}
	}()
	c, err := client.DialMemcache(ctx, ln.Addr().String())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	least := time.Hour
	for range turns {
		began := time.Now()
		if err := c.Set([]byte("payload"), 0, body); err != nil {
			return 0, err
		}
		least = min(least, time.Since(began))
	}
	return least, nil
}
