package storage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"qserver/storage"
)

// The model: every queue is a plain list, every rule is spelt out once, nothing is clever. The store must agree with
// it after every step, whatever is done in whatever order, over checkpoints and restarts.

type modelMessage struct {
	id         uint64
	body       string
	flags, pri uint32
	due        time.Time
	expire     time.Time
	deliveries uint32
	holder     int // session that holds it without a lease or with one; -1: none
	receipt    uint64
	leaseEnd   time.Time
}

func (m *modelMessage) state(now time.Time) string {
	switch {
	case m.receipt != 0:
		return "reserved"
	case m.due.After(now):
		return "delayed"
	}
	return "ready"
}

type model struct {
	queues map[string][]*modelMessage
	lists  []map[string][]uint64 // per session and queue: receipts in order
	dedup  map[string]time.Time
	counts map[string]*storage.QueueStats
}

const modelSessions = 3

func newModel() *model {
	m := &model{queues: map[string][]*modelMessage{}, dedup: map[string]time.Time{}, counts: map[string]*storage.QueueStats{}}
	for range modelSessions {
		m.lists = append(m.lists, map[string][]uint64{})
	}
	return m
}

func (m *model) stats(q string) *storage.QueueStats {
	if m.counts[q] == nil {
		m.counts[q] = &storage.QueueStats{}
	}
	return m.counts[q]
}

// tick lets leases lapse and messages expire.
func (m *model) tick(now time.Time) {
	for q, all := range m.queues {
		for _, x := range all {
			if x.receipt != 0 && !x.leaseEnd.IsZero() && !x.leaseEnd.After(now) {
				m.giveBack(x)
			}
		}
		m.queues[q] = slices.DeleteFunc(all, func(x *modelMessage) bool {
			dead := x.receipt == 0 && !x.expire.IsZero() && !x.expire.After(now)
			if dead {
				m.stats(q).TotalExpired++
			}
			return dead
		})
	}
}

func (m *model) giveBack(x *modelMessage) {
	x.receipt, x.leaseEnd, x.holder = 0, time.Time{}, -1
	x.deliveries++
}

func (m *model) head(q string, now time.Time) *modelMessage {
	var first *modelMessage
	for _, x := range m.queues[q] {
		if x.state(now) == "ready" && (first == nil || x.pri < first.pri || x.pri == first.pri && x.id < first.id) {
			first = x
		}
	}
	return first
}

func (m *model) byReceipt(q string, r uint64) *modelMessage {
	for _, x := range m.queues[q] {
		if x.receipt == r && r != 0 {
			return x
		}
	}
	return nil
}

// pick is the positional choice: it uses up a place that has ended.
func (m *model) pick(c int, q string) *modelMessage {
	list := m.lists[c][q]
	if len(list) == 0 {
		return nil
	}
	x := m.byReceipt(q, list[0])
	if x == nil {
		m.lists[c][q] = list[1:]
	}
	return x
}

func (m *model) leave(q string, r uint64) {
	for _, lists := range m.lists {
		lists[q] = slices.DeleteFunc(slices.Clone(lists[q]), func(o uint64) bool { return o == r })
	}
}

func (m *model) remove(q string, x *modelMessage) {
	m.queues[q] = slices.DeleteFunc(m.queues[q], func(o *modelMessage) bool { return o == x })
}

func (m *model) closeSession(c int) {
	for q, list := range m.lists[c] {
		for _, r := range list {
			if x := m.byReceipt(q, r); x != nil && x.leaseEnd.IsZero() {
				m.giveBack(x)
			}
		}
	}
	m.lists[c] = map[string][]uint64{}
}

func (m *model) restart() {
	for _, all := range m.queues {
		for _, x := range all {
			if x.receipt != 0 {
				x.receipt, x.leaseEnd, x.holder = 0, time.Time{}, -1
			}
		}
	}
	for c := range m.lists {
		m.lists[c] = map[string][]uint64{}
	}
}

// modelOp is one step; which numbers it uses depends on its verb.
type modelOp struct {
	Verb    string
	Queue   string
	Session int
	N       int
}

var modelVerbs = strings.Fields("put put put put putpri putpri putbig add replace delay ttl dedup get get get get lease ack ack ack ackreceipt " +
	"release releaselater touch cas purge peek giveback close sleep sleep checkpoint checkpoint checkpoint restart")

func genModelOp(t *rapid.T) modelOp {
	return modelOp{
		Verb:    rapid.SampledFrom(modelVerbs).Draw(t, "verb"),
		Queue:   rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue"),
		Session: rapid.IntRange(0, modelSessions-1).Draw(t, "session"),
		N:       rapid.IntRange(0, 5).Draw(t, "n"),
	}
}

func TestModel(t *testing.T) {
	checks := rapid.Custom(genModelOp)
	rapid.Check(t, func(rt *rapid.T) {
		ops := rapid.SliceOfN(checks, 1, 100).Draw(rt, "ops")
		dir, err := os.MkdirTemp("", "model")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		synctest.Test(t, func(*testing.T) { err = runModel(dir, ops) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// modelRun drives a store and the model side by side.
type modelRun struct {
	dir      string
	s        *storage.Store
	sessions []*storage.Session
	m        *model
}

func modelOptions() storage.Options {
	return storage.Options{SegmentBytes: 1 << 16, Memory: 1 << 18, Window: 3, MinFreeDisk: 1, ForgetAfter: 1000 * time.Hour}
}

func (r *modelRun) open() (err error) {
	if r.s, err = storage.Open(r.dir, modelOptions()); err != nil {
		return err
	}
	r.sessions = nil
	for range modelSessions {
		r.sessions = append(r.sessions, r.s.NewSession(""))
	}
	return nil
}

func runModel(dir string, ops []modelOp) (err error) {
	r := &modelRun{dir: dir, m: newModel()}
	if err := r.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.s.Close()) }()
	for i, op := range ops {
		if err := r.step(op); err != nil {
			return fmt.Errorf("step %d %+v: %w", i, op, err)
		}
		synctest.Wait()
		r.m.tick(time.Now())
		if err := r.compare(); err != nil {
			return fmt.Errorf("after step %d %+v: %w", i, op, err)
		}
	}
	return nil
}

// compare holds counts and invariants against the model.
func (r *modelRun) compare() error {
	now := time.Now()
	for _, q := range []string{"a", "b"} {
		got, _ := r.s.Queue([]byte(q))
		want := *r.m.stats(q)
		for _, x := range r.m.queues[q] {
			want.Items++
			want.Bytes += int64(len(x.body))
			switch x.state(now) {
			case "ready":
				want.Ready++
			case "delayed":
				want.Delayed++
			default:
				want.Reserved++
			}
		}
		g := storage.QueueStats{Items: got.Items, Ready: got.Ready, Delayed: got.Delayed, Reserved: got.Reserved, Bytes: got.Bytes,
			TotalItems: got.TotalItems, TotalAcked: got.TotalAcked, TotalPurged: got.TotalPurged, TotalExpired: got.TotalExpired}
		w := storage.QueueStats{Items: want.Items, Ready: want.Ready, Delayed: want.Delayed, Reserved: want.Reserved, Bytes: want.Bytes,
			TotalItems: want.TotalItems, TotalAcked: want.TotalAcked, TotalPurged: want.TotalPurged, TotalExpired: want.TotalExpired}
		if g != w {
			return fmt.Errorf("queue %s:\n got %+v\nwant %+v", q, g, w)
		}
	}
	return nil
}

func (r *modelRun) step(op modelOp) error {
	c, q, m := r.sessions[op.Session], []byte(op.Queue), r.m
	switch op.Verb {
	case "put", "putpri", "putbig", "add", "replace", "delay", "ttl", "dedup":
		return r.enqueue(op)
	case "get", "lease":
		return r.reserve(op)
	case "ack":
		want := m.pick(op.Session, op.Queue)
		if want != nil {
			m.leave(op.Queue, want.receipt)
			m.remove(op.Queue, want)
			m.stats(op.Queue).TotalAcked++
		}
		return r.same(c.Ack(q, storage.Pick{}), want != nil)
	case "ackreceipt":
		var want *modelMessage
		for _, x := range m.queues[op.Queue] {
			if x.receipt != 0 {
				want = x
			}
		}
		if want == nil {
			return nil
		}
		receipt := want.receipt
		m.leave(op.Queue, receipt)
		m.remove(op.Queue, want)
		m.stats(op.Queue).TotalAcked++
		return r.same(c.Ack(q, storage.Pick{Receipt: receipt}), true)
	case "release", "releaselater", "touch", "cas":
		return r.change(op)
	case "purge":
		n, err := r.s.Purge(q)
		if int(n) != len(m.queues[op.Queue]) {
			return fmt.Errorf("purged %d, want %d", n, len(m.queues[op.Queue]))
		}
		m.stats(op.Queue).TotalPurged += n
		m.queues[op.Queue] = nil
		return err
	case "peek":
		d, ok, err := c.Peek(q)
		want := m.head(op.Queue, time.Now())
		if err != nil || ok != (want != nil) || ok && (d.ID != want.id || string(d.Body) != want.body) {
			return fmt.Errorf("peek: got %d %v %v, want %+v", d.ID, ok, err, want)
		}
	case "giveback":
		c.GiveBack(q)
		for _, receipt := range m.lists[op.Session][op.Queue] {
			x := m.byReceipt(op.Queue, receipt)
			if x == nil || x.leaseEnd.IsZero() {
				m.leave(op.Queue, receipt)
			}
			if x != nil && x.leaseEnd.IsZero() {
				m.giveBack(x)
			}
		}
	case "close":
		c.Close()
		m.closeSession(op.Session)
		r.sessions[op.Session] = r.s.NewSession("")
	case "sleep":
		time.Sleep(time.Duration(op.N*op.N) * 700 * time.Millisecond)
	case "checkpoint":
		return r.s.Checkpoint(context.Background())
	case "restart":
		for _, c := range r.sessions {
			c.Close()
		}
		for i := range r.sessions {
			m.closeSession(i)
		}
		if err := r.s.Close(); err != nil {
			return err
		}
		m.restart()
		return r.open()
	}
	return nil
}

func (r *modelRun) same(err error, want bool) error {
	if errors.Is(err, storage.ErrNotFound) && !want {
		return nil
	}
	if err != nil || !want {
		return fmt.Errorf("got %v, want it to be found: %v", err, want)
	}
	for _, c := range r.sessions {
		if err := c.Commit(); err != nil {
			return err
		}
	}
	return nil
}

func (r *modelRun) enqueue(op modelOp) error {
	m, now := r.m, time.Now()
	p := storage.PutRequest{Priority: storage.DefaultPriority, Flags: uint32(op.N)}
	body := fmt.Sprintf("%s-%d-%d", op.Queue, op.N, m.stats(op.Queue).TotalItems)
	want := true
	switch op.Verb {
	case "putpri":
		p.Priority = uint32(1022 + op.N)
	case "putbig":
		body = strings.Repeat(body, 3000)
	case "add":
		p.Mode = storage.PutAdd
		want = len(m.queues[op.Queue]) == 0
	case "replace":
		p.Mode = storage.PutReplace
		want = len(m.queues[op.Queue]) > 0
	case "delay":
		p.Delay = time.Duration(op.N) * 1500 * time.Millisecond
	case "ttl":
		p.Expire = now.Add(time.Duration(op.N+1) * 1500 * time.Millisecond)
		p.Delay = time.Duration(op.N%3) * 1500 * time.Millisecond
	case "dedup":
		p.Mode, p.Dedup = storage.PutAdd, []byte{byte('0' + op.N%2)}
		key := op.Queue + string(p.Dedup)
		if want = !m.dedup[key].After(now); want {
			m.dedup[key] = now.Add(2 * time.Minute)
		}
	}
	p.Body = []byte(body)
	c := r.sessions[op.Session]
	id, err := c.Enqueue([]byte(op.Queue), p)
	if errors.Is(err, storage.ErrNotStored) && !want {
		return c.Commit()
	}
	if err != nil || !want {
		return fmt.Errorf("enqueue: got %v, want stored: %v", err, want)
	}
	x := &modelMessage{id: id, body: body, flags: p.Flags, pri: p.Priority, holder: -1}
	if p.Delay > 0 {
		x.due = now.Add(p.Delay)
	}
	x.expire = p.Expire
	m.queues[op.Queue] = append(m.queues[op.Queue], x)
	m.stats(op.Queue).TotalItems++
	return c.Commit()
}

func (r *modelRun) reserve(op modelOp) error {
	m := r.m
	var o storage.ReserveOptions
	if op.Verb == "lease" {
		o.Lease = time.Duration(op.N+1) * time.Second
	}
	d, ok, err := r.sessions[op.Session].Reserve([]byte(op.Queue), o)
	want := m.head(op.Queue, time.Now())
	if err != nil || ok != (want != nil) {
		return fmt.Errorf("reserve: got %v %v, want %+v", ok, err, want)
	}
	if !ok {
		return nil
	}
	if d.ID != want.id || string(d.Body) != want.body || d.Flags != want.flags || d.Deliveries != want.deliveries {
		return fmt.Errorf("reserve: got id %d, %d bytes, flags %d, deliveries %d, want %+v", d.ID, len(d.Body), d.Flags, d.Deliveries, want)
	}
	want.receipt, want.holder = d.Receipt, op.Session
	if o.Lease > 0 {
		want.leaseEnd = time.Now().Add(o.Lease)
	}
	m.lists[op.Session][op.Queue] = append(m.lists[op.Session][op.Queue], d.Receipt)
	return nil
}

func (r *modelRun) change(op modelOp) error {
	m, c, q := r.m, r.sessions[op.Session], []byte(op.Queue)
	want := m.pick(op.Session, op.Queue)
	now := time.Now()
	switch op.Verb {
	case "release":
		if want != nil {
			m.leave(op.Queue, want.receipt)
			m.giveBack(want)
		}
		return r.same(c.Release(q, storage.Pick{}, 0), want != nil)
	case "releaselater":
		delay := time.Duration(op.N+1) * 1200 * time.Millisecond
		if want != nil {
			m.leave(op.Queue, want.receipt)
			m.giveBack(want)
			want.due = now.Add(delay)
		}
		return r.same(c.Release(q, storage.Pick{}, delay), want != nil)
	case "touch":
		if want != nil {
			want.leaseEnd = now.Add(time.Duration(op.N+1) * time.Second)
		}
		return r.same(c.Touch(q, storage.Pick{}, time.Duration(op.N+1)*time.Second), want != nil)
	}
	if want == nil {
		return nil
	}
	body := fmt.Sprintf("new-%d", op.N)
	err := c.ReplaceBody(q, want.receipt, []byte(body), 9, time.Time{})
	m.leave(op.Queue, want.receipt)
	m.giveBack(want)
	want.body, want.flags = body, 9
	return r.same(err, true)
}
