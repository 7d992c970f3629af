package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

func replicateScenario() scenario {
	return scenario{
		name:    "replicate",
		title:   "a master with a slave on the same machine: lag, CPU time, catching up, the first copy",
		servers: "qserver/enqueue",
		seconds: 5,
		turns:   1,
		about: `
A master and a slave on loopback. Workers store a message, get and delete it, each in a queue of its own: first as fast
as they can, without the slave and with it (the master's CPU time for each message), then with it at half of that rate,
while the lag is asked for on both sides every 10 ms. Then the slave is ended, -n messages of -size bytes are stored, and the
slave comes back: how many records a second it catches up by. Then another slave, which has nothing, gets its first copy while
workers store at their highest rate, which is compared with the rate without it. At last that slave is promoted, and
must give all messages in order with their bytes. Aims: lag under 10 ms; less than 10 %
more CPU time; 500,000 records of 200 bytes a second; 80 % of the rate during a copy. Both share the machine's cores with the
workers.`,
		prepare: func(fs *flag.FlagSet) func(context.Context, *env, *report) error {
			o := replicateOptions{}
			fs.IntVar(&o.workers, "workers", 8, "connections")
			fs.IntVar(&o.size, "size", 200, "bytes of a body")
			fs.Int64Var(&o.n, "n", 1_000_000, "messages that the slave catches up by, and that its copy has")
			return func(ctx context.Context, e *env, r *report) error { return runReplicate(ctx, e, r, o) }
		},
	}
}

type replicateOptions struct {
	workers, size int
	n             int64
}

// replicatedQueue has the messages that the slaves get as a copy or to catch up.
const replicatedQueue = "backlog"

// replicated is a master and what is measured with it.
type replicated struct {
	replicateOptions
	e      *env
	r      *report
	mode   string
	master *server
	msg    *message
	t      *table
}

func runReplicate(ctx context.Context, e *env, r *report, o replicateOptions) error {
	if o.workers < 1 || o.n < 1 {
		return errors.New("-workers and -n must be above 0")
	}
	all, err := e.contestants(r)
	if err != nil {
		return err
	}
	for _, c := range all {
		mode, started := strings.CutPrefix(c.name, "qserver/")
		if !started || !ours(c) {
			r.note("%s is left out: only servers of this project that are started here", c.name)
			continue
		}
		if err := replicateTurn(ctx, e, r, o, mode); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func replicateTurn(ctx context.Context, e *env, r *report, o replicateOptions, mode string) error {
	msg, err := newMessage(o.size)
	if err != nil {
		return err
	}
	m, err := startQserver(ctx, e, "qserver/"+mode, mode, []string{"-sid", "1"})
	if err != nil {
		return err
	}
	defer m.stop()
	b := &replicated{replicateOptions: o, e: e, r: r, mode: mode, master: m, msg: msg}
	b.t = r.table(fmt.Sprintf("master and slave, -sync %s, bodies of %d bytes, %d workers", mode, o.size, o.workers), "what", "figure", "aim")

	alone, aloneCPU, err := b.load(ctx, 0)
	if err != nil {
		return err
	}
	data, err := os.MkdirTemp(e.dir, "slave-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(data)
	s, err := b.slave(ctx, data, "2", "following")
	if err != nil {
		return err
	}
	with, withCPU, err := b.load(ctx, 0)
	if err != nil {
		return errors.Join(err, s.proc.stop())
	}
	b.t.row("messages a second through the master, alone", rate(alone), nil)
	b.t.row("the same with a slave", rate(with), nil)
	b.t.row("CPU time of the master a message, alone", aloneCPU.Round(10*time.Nanosecond).String(), nil)
	b.t.row("the same with a slave", fmt.Sprintf("%s, %+.1f %%", withCPU.Round(10*time.Nanosecond), 100*(float64(withCPU)/float64(aloneCPU)-1)), "+10 %")
	if err := b.lags(ctx, s, with/2); err != nil {
		return errors.Join(err, s.proc.stop())
	}
	if err := b.catchUp(ctx, s, data); err != nil {
		return err
	}
	return b.firstCopy(ctx)
}

// load works for a window, at most at a rate if that is not 0, and returns the messages a second and the master's CPU time for each.
func (b *replicated) load(ctx context.Context, most float64) (perSecond float64, cpu time.Duration, err error) {
	cs, err := b.master.dial(ctx, b.workers)
	if err != nil {
		return 0, 0, err
	}
	defer cs.close()
	var total atomic.Int64
	before, err := b.master.proc.cpu()
	if err != nil {
		return 0, 0, err
	}
	perSecond, err = closedLoop(ctx, b.workers, b.e.warm(), b.e.window(), func(worker int, done *tally, stop *atomic.Bool) error {
		l := newLane(cs[worker], queueKeys, fmt.Sprintf("repl%d", worker), worker, b.msg)
		begin := time.Now()
		for n := int64(0); !stop.Load(); n++ {
			if most > 0 {
				time.Sleep(time.Until(begin.Add(time.Duration(float64(n) * float64(b.workers) / most * float64(time.Second)))))
			}
			if err := l.set(n); err != nil {
				return err
			}
			if err := l.take(n); err != nil {
				return err
			}
			done.n.Add(1)
			total.Add(1)
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	after, err := b.master.proc.cpu()
	return perSecond, (after - before) / time.Duration(max(1, total.Load())), err
}

// slave starts a slave on a folder and waits until it is in a state; "": until it answers.
func (b *replicated) slave(ctx context.Context, data, sid, state string) (*server, error) {
	path, err := b.e.qserver(ctx)
	if err != nil {
		return nil, err
	}
	s := &server{contestant: contestant{name: "slave", protocol: "queue"}, data: data}
	if s.addr, err = freePort(); err != nil {
		return nil, err
	}
	if s.admin, err = freePort(); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(b.master.admin)
	if err != nil {
		return nil, err
	}
	args := []string{"-listen", s.addr, "-admin", s.admin, "-data", data, "-sync", b.mode, "-sid", sid, "-mhost", host, "-mport", port}
	args = append(args, strings.Fields(b.e.serverFlags)...)
	if s.proc, err = startProcess(ctx, filepath.Join(b.e.dir, "slave.log"), path, args...); err != nil {
		return nil, err
	}
	return s, s.proc.await(ctx, func() bool {
		v, err := s.replication(ctx)
		return err == nil && (state == "" || v.Master.State == state && v.LSN > 0)
	})
}

// replicationView is what a server says of master and slaves.
type replicationView struct {
	LSN    uint64
	Master sideView
	Slaves []sideView
}

type sideView struct {
	State   string
	LSN     uint64
	Records uint64  `json:"lag_records"`
	Seconds float64 `json:"lag_seconds"`
}

func (s *server) replication(ctx context.Context) (v replicationView, err error) {
	b, err := httpGet(ctx, "http://"+s.admin+"/api/v1/replication")
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(b, &v)
}

// both asks the master and its slave.
func (b *replicated) both(ctx context.Context, s *server) (master, slave replicationView, err error) {
	if master, err = b.master.replication(ctx); err == nil {
		slave, err = s.replication(ctx)
	}
	return master, slave, err
}

// lags asks for the lag on both sides while the master works at a rate.
func (b *replicated) lags(ctx context.Context, s *server, most float64) error {
	var applied, durable []time.Duration
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			if v, err := s.replication(ctx); err == nil {
				applied = append(applied, time.Duration(v.Master.Seconds*float64(time.Second)))
			}
			if v, err := b.master.replication(ctx); err == nil && len(v.Slaves) > 0 {
				durable = append(durable, time.Duration(v.Slaves[0].Seconds*float64(time.Second)))
			}
		}
	}()
	got, _, err := b.load(ctx, most)
	close(stop)
	<-ended
	if err != nil {
		return err
	}
	b.t.row(fmt.Sprintf("lag at %.0f messages a second: applied on the slave", got), lagText(applied), "10ms")
	b.t.row("the same: durable on the slave and acked", lagText(durable), "10ms")
	return nil
}

func lagText(d []time.Duration) string {
	if len(d) == 0 {
		return "never asked for"
	}
	slices.Sort(d)
	at := func(share float64) time.Duration { return d[int(share*float64(len(d)-1))].Round(10 * time.Microsecond) }
	return fmt.Sprintf("p50 %s, p99 %s, most %s", at(0.5), at(0.99), at(1))
}

// catchUp ends the slave, stores n messages, and measures how fast it gets them when it comes back.
func (b *replicated) catchUp(ctx context.Context, s *server, data string) error {
	if err := s.proc.stop(); err != nil {
		return err
	}
	cs, err := b.master.dial(ctx, 1)
	if err != nil {
		return err
	}
	defer cs.close()
	if err := newLane(cs[0], queueKeys, replicatedQueue, 0, b.msg).fill(b.n); err != nil {
		return err
	}
	s, err = b.slave(ctx, data, "2", "")
	if err != nil {
		return err
	}
	defer s.proc.stop()
	var from uint64
	var began time.Time
	for {
		m, v, err := b.both(ctx, s)
		if err != nil {
			return err
		}
		if v.Master.State == "following" && began.IsZero() {
			from, began = v.LSN, time.Now()
		}
		if v.LSN == m.LSN {
			if got, err := s.count(ctx, replicatedQueue); err != nil || got != b.n {
				return errors.Join(err, fmt.Errorf("the slave counts %d messages of %d after it has caught up", got, b.n))
			}
			n := v.LSN - from
			if !began.IsZero() && n > uint64(b.n)/4 {
				b.t.row(fmt.Sprintf("records a second caught up by, %d of them", n), rate(float64(n)/time.Since(began).Seconds()), rate(500_000))
			} else {
				b.t.row("records a second caught up by", "too few to tell: raise -n", rate(500_000))
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond): // more questions would take the cores from those who answer
		}
	}
}

// firstCopy measures the master's rate without and with a slave that gets its first copy.
func (b *replicated) firstCopy(ctx context.Context) error {
	alone, _, err := b.load(ctx, 0)
	if err != nil {
		return err
	}
	data, err := os.MkdirTemp(b.e.dir, "slave-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(data)
	began := time.Now()
	s, err := b.slave(ctx, data, "3", "")
	if err != nil {
		return err
	}
	defer s.proc.stop()
	took := make(chan time.Duration, 1)
	go func() {
		for ctx.Err() == nil {
			if v, err := s.replication(ctx); err == nil && v.LSN > 0 && v.Master.State == "following" {
				took <- time.Since(began)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	with, _, err := b.load(ctx, 0)
	if err != nil {
		return err
	}
	b.t.row("messages a second while a slave gets its first copy", fmt.Sprintf("%.0f, %.0f %% of %.0f", with, 100*with/alone, alone), "80 %")
	select {
	case d := <-took:
		b.t.row(fmt.Sprintf("first copy of %d messages, until it follows", b.n), d.Round(time.Millisecond).String(), nil)
	case <-time.After(time.Minute):
		return errors.New("the first copy takes over a minute")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return b.promoted(ctx, s)
}

// promoted ends the master and takes all messages from the slave, which leads then.
func (b *replicated) promoted(ctx context.Context, s *server) error {
	limit := time.Now().Add(settleTime)
	for {
		m, v, err := b.both(ctx, s)
		if err != nil {
			return err
		}
		if v.LSN == m.LSN {
			break
		}
		if time.Now().After(limit) {
			return fmt.Errorf("the slave has record %d, its master %d, and neither has anything to do", v.LSN, m.LSN)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := b.master.proc.stop(); err != nil {
		return err
	}
	if _, err := httpDo(ctx, http.MethodPost, "http://"+s.admin+"/api/v1/promote?force=true"); err != nil {
		return err
	}
	cs, err := s.dial(ctx, 1)
	if err != nil {
		return err
	}
	defer cs.close()
	if err := newLane(cs[0], queueKeys, replicatedQueue, 0, b.msg).drain(0, b.n); err != nil {
		return fmt.Errorf("the slave that leads now: %w", err)
	}
	if left, err := cs[0].Count(); err != nil || left != 0 {
		return errors.Join(err, fmt.Errorf("the slave that leads now counts %d messages after all were deleted", left))
	}
	return nil
}
