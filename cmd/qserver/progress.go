package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress writes how far a long piece of work is, one line a second at most, starting after the first second: work that
// is quickly done stays silent. Its report method is safe for concurrent use.
type progress struct {
	w     io.Writer
	now   func() time.Time
	every time.Duration

	mu   sync.Mutex // guards last
	last time.Time
}

func newProgress(w io.Writer) *progress {
	return &progress{w: w, now: time.Now, every: time.Second, last: time.Now()}
}

// report tells that done of total of step are worked off, in whatever unit; total 0: unknown.
func (p *progress) report(step string, done, total int64) {
	p.mu.Lock()
	now := p.now()
	due := now.Sub(p.last) >= p.every
	if due {
		p.last = now
	}
	p.mu.Unlock()
	if due {
		fmt.Fprintf(p.w, "qserver: %s\n", progressText(step, done, total))
	}
}

func progressText(step string, done, total int64) string {
	if total <= 0 {
		return fmt.Sprintf("%s: %d", step, done)
	}
	return fmt.Sprintf("%s: %d %%", step, min(int64(float64(done)/float64(total)*100), 100))
}
