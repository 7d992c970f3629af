package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is a bar on a terminal; a nil one does nothing. It serves one goroutine at a time.
type progress struct {
	bar  *progressbar.ProgressBar
	last time.Time
}

// newProgress shows a bar for total steps if w is a terminal; else it returns nil.
func newProgress(w io.Writer, what string, total int64) *progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return &progress{bar: progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(),
		progressbar.OptionClearOnFinish())}
}

// step replaces the bar of env by one for a new stretch of work.
func (e *env) step(what string, total int64) {
	e.bar.done()
	e.bar = newProgress(e.stderr, what, total)
}

// name says what is being done now.
func (p *progress) name(what string) {
	if p != nil {
		p.bar.Describe(what)
	}
}

// set moves the bar, at most five times a second: drawing costs what is being measured.
func (p *progress) set(done int64) {
	if p == nil || time.Since(p.last) < 200*time.Millisecond {
		return
	}
	p.last = time.Now()
	p.bar.Set64(done)
}

func (p *progress) done() {
	if p != nil {
		p.bar.Finish()
	}
}
