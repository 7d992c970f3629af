package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// What the blog published of Kyoto Tycoon at 3,000,000 messages, and of its defrag after all were deleted.
const (
	blogMemory = size(162 << 20)
	blogDisk   = size(774 << 20)
	blogAfter  = size(813 << 20)
	blogDefrag = span(2 * time.Second)
)

func runBlogBacklog(ctx context.Context, e *env, r *report, n int64) error {
	all, err := e.contestants(r)
	if err != nil {
		return err
	}
	t := r.table(fmt.Sprintf("a backlog of %s messages of %d bytes", count(n), len(blogBody)),
		"server", "set a second", "RSS", "anonymous", "on disk", "on disk when all was taken", "defrag", "on disk then")
	t.row("Kyoto Tycoon at 3,000,000, as published", blogSet, blogMemory, nil, blogDisk, blogAfter, blogDefrag, nil)
	e.step("backlog", int64(len(all)))
	for i, c := range all {
		if c.word != "" {
			r.note("%s: no backlog, since its memory and disk are not to be seen from here", c.name)
			continue
		}
		s, err := c.start(ctx, e)
		if err != nil {
			return err
		}
		row, err := blogBacklog(ctx, e, s, n)
		if err := errors.Join(err, s.stop()); err != nil {
			return fmt.Errorf("%s, backlog: %w", c.name, err)
		}
		t.row(row...)
		e.bar.set(int64(i + 1))
	}
	return nil
}

// blogBacklog fills one server, takes all, and defrags what has a tool for that. It returns its row.
func blogBacklog(ctx context.Context, e *env, s *server, n int64) ([]any, error) {
	cs, err := s.dial(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer cs.close()
	rule := s.keys
	if rule == singleKey {
		rule = keyForEach // else there is no backlog
	}
	l := newLane(cs[0], rule, "testkey", 0, blogMessage())
	if err := l.prepare(); err != nil {
		return nil, err
	}
	perSecond, err := timed(n, l.set)
	if err != nil {
		return nil, err
	}
	m, err := s.proc.memory()
	if err != nil {
		return nil, err
	}
	full, err := diskUsage(s.data)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.checkCount(ctx, l.c, "testkey", 0, n), l.drain(0, n), s.checkCount(ctx, l.c, "testkey", 0, 0)); err != nil {
		return nil, err
	}
	empty, err := diskUsage(s.data)
	if err != nil {
		return nil, err
	}
	row := []any{s.name, perSecond, m.RSS, m.Anon, full.total(), empty.total(), nil, nil}
	if s.restart == nil {
		return row, nil
	}
	if err := s.proc.stop(); err != nil {
		return nil, err
	}
	path, err := e.qserver(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if out, err := exec.CommandContext(ctx, path, "defrag", s.data).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("defrag: %w: %s", err, out)
	}
	took := time.Since(began)
	after, err := diskUsage(s.data)
	row[6], row[7] = span(took), after.total()
	return row, err
}
