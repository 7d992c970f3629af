package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// watch follows a server that was started here through phases, and makes a row of each: what was done, how long it
// took, and what the server then occupies in memory and on the disk.
type watch struct {
	s      *server
	phases *table
	starts *table
	empty  memory // of the first phase
	most   memory // highest of each figure over all phases; most.Anon by samples, most.RSS by the kernel's peak
}

func newWatch(r *report, s *server) (*watch, error) {
	if s.proc == nil || s.restart == nil || s.data == "" {
		return nil, errors.New("only a qserver that is started here can be watched")
	}
	return &watch{
		s: s,
		phases: r.table(s.name+": memory and disk by phase", "phase", "messages", "took", "a second",
			"RSS", "anonymous", "file", "PSS", "peak RSS", "peak anonymous", "log on disk", "rest on disk"),
		starts: r.table(s.name+": starts (page cache warm)", "after", "log on disk", "LSNs behind the tree", "until ready"),
	}, nil
}

// phase runs do, which handles n messages (0: none), and adds a row.
func (w *watch) phase(name string, n int64, do func() error) error {
	w.s.proc.resetPeak()
	peak := w.s.proc.peakAnon()
	began := time.Now()
	err := do()
	took := time.Since(began)
	peakAnon := peak()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return w.row(name, n, took, peakAnon)
}

func (w *watch) row(name string, n int64, took time.Duration, peakAnon size) error {
	m, err := w.s.proc.memory()
	if err != nil {
		return err
	}
	disk, err := diskUsage(w.s.data)
	if err != nil {
		return err
	}
	if len(w.phases.Rows) == 0 {
		w.empty = m
	}
	peakAnon = max(peakAnon, m.Anon)
	w.most = memory{RSS: max(w.most.RSS, m.Peak), Anon: max(w.most.Anon, peakAnon), File: max(w.most.File, m.File)}
	var messages, perSecond any
	if n > 0 {
		messages, perSecond = count(n), rate(float64(n)/took.Seconds())
	}
	w.phases.row(name, messages, span(took), perSecond, m.RSS, m.Anon, m.File, m.PSS, m.Peak, peakAnon, disk.Log, disk.Rest)
	return nil
}

// restart ends the server, by SIGKILL or SIGTERM, starts it again on its data and adds a row to both tables.
func (w *watch) restart(ctx context.Context, kill bool) error {
	after := "SIGTERM"
	behind := w.s.behind(ctx)
	if kill {
		after = "kill -9"
		w.s.proc.kill()
	} else {
		if err := w.s.proc.stop(); err != nil {
			return err
		}
		behind = nil
	}
	disk, err := diskUsage(w.s.data)
	if err != nil {
		return err
	}
	s, err := w.s.restart(ctx)
	if err != nil {
		return fmt.Errorf("start after %s: %w", after, err)
	}
	*w.s = *s
	w.starts.row(after, disk.Log, behind, span(s.ready))
	return w.row("start after "+after, 0, s.ready, 0)
}

// settle waits until the data folder is not larger than want (0: as large as it likes) and has kept its size for two
// seconds, at most limit, and returns what it then is and when it was last seen to change.
func (w *watch) settle(ctx context.Context, want size, limit time.Duration) (u usage, changed time.Duration, err error) {
	const still = 2 * time.Second
	began := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := diskUsage(w.s.data)
		if err != nil {
			return u, changed, err
		}
		passed := time.Since(began)
		if now != u {
			u, changed = now, passed
		}
		if passed-changed >= still && (want == 0 || u.total() <= want) || passed >= limit {
			return u, changed, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return u, changed, context.Cause(ctx)
		}
	}
}

// checkpoint asks the server to write what it has to its files, and waits until the folder has settled.
func (w *watch) checkpoint(ctx context.Context, limit time.Duration) (usage, error) {
	if _, err := httpDo(ctx, http.MethodPost, "http://"+w.s.admin+"/rpc/synchronize?hard=1"); err != nil {
		return usage{}, err
	}
	u, _, err := w.settle(ctx, 0, limit)
	return u, err
}
