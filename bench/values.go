package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The values that stand in tables: each prints itself for people, and marshals as plain numbers in base units
// (a second, bytes, seconds) for programs.

// rate is a number of operations a second.
type rate float64

func (r rate) String() string { return grouped(int64(float64(r) + 0.5)) }

// count is a whole number.
type count int64

func (c count) String() string { return grouped(int64(c)) }

// size is a number of bytes.
type size int64

func (s size) String() string {
	switch f := float64(s); {
	case s < 0:
		return "-" + (-s).String()
	case s >= 1<<30:
		return fmt.Sprintf("%.2f GiB", f/(1<<30))
	case s >= 1<<20:
		return fmt.Sprintf("%.1f MiB", f/(1<<20))
	case s >= 1<<10:
		return fmt.Sprintf("%.0f KiB", f/(1<<10))
	}
	return fmt.Sprintf("%d B", int64(s))
}

// span is a length of time.
type span time.Duration

func (s span) String() string {
	switch d := time.Duration(s); {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/1e6)
	default:
		return fmt.Sprintf("%.0f µs", float64(d)/1e3)
	}
}

func (s span) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// ratio is one figure as a share of another.
type ratio float64

func (r ratio) String() string { return strconv.FormatFloat(float64(r), 'f', 2, 64) }

// decimal is a number with one digit behind the point.
type decimal float64

func (d decimal) String() string { return strconv.FormatFloat(float64(d), 'f', 1, 64) }

// share is a part of one, for people in percent.
type share float64

func (s share) String() string { return strconv.FormatFloat(100*float64(s), 'f', 1, 64) + " %" }

// change is a difference as a part of what it was, for people in percent with its sign.
type change float64

func (c change) String() string { return fmt.Sprintf("%+.1f %%", 100*float64(c)) }

// spread is the median of some turns, with the lowest and the highest.
type spread[T ~float64] struct {
	Median T   `json:"median"`
	Min    T   `json:"min"`
	Max    T   `json:"max"`
	Turns  []T `json:"turns"`
}

// spreadOf needs at least one turn; it keeps their order. The median of an even number is the mean of the middle two.
func spreadOf[T ~float64](turns []T) spread[T] {
	s := slices.Sorted(slices.Values(turns))
	middle := s[len(s)/2]
	if len(s)%2 == 0 {
		middle = (middle + s[len(s)/2-1]) / 2
	}
	return spread[T]{Median: middle, Min: s[0], Max: s[len(s)-1], Turns: turns}
}

func (s spread[T]) String() string {
	if len(s.Turns) == 1 {
		return fmt.Sprint(s.Median)
	}
	return fmt.Sprintf("%v (%v..%v)", s.Median, s.Min, s.Max)
}

// ratios divides turn by turn: a turn of one is measured right beside that of the other.
func ratios(of, by []rate) []ratio {
	r := make([]ratio, len(of))
	for i := range of {
		r[i] = ratio(of[i] / by[i])
	}
	return r
}

// latencies is a histogram of nanoseconds from 1 µs to 1 minute at three digits. It serves one goroutine.
type latencies struct{ h *hdrhistogram.Histogram }

const (
	minLatency = int64(time.Microsecond)
	maxLatency = int64(time.Minute)
)

func newLatencies() *latencies {
	return &latencies{hdrhistogram.New(minLatency, maxLatency, 3)}
}

// add counts d; what is out of range is counted as the nearest that is within.
func (l *latencies) add(d time.Duration) {
	l.h.RecordValue(min(max(int64(d), minLatency), maxLatency)) // cannot fail within its range
}

// A recorder counts lengths of time.
type recorder interface{ add(time.Duration) }

// sharedLatencies is a histogram for many goroutines at once. One takes 150 kB: a thousand workers with one each would
// keep the cores busy with making them.
type sharedLatencies struct {
	mu  sync.Mutex
	all *latencies // to be read when no one adds any more
}

func newSharedLatencies() *sharedLatencies { return &sharedLatencies{all: newLatencies()} }

func (s *sharedLatencies) add(d time.Duration) {
	s.mu.Lock()
	s.all.add(d)
	s.mu.Unlock()
}

func (l *latencies) merge(other *latencies) { l.h.Merge(other.h) }

// percentileColumns name what percentiles returns.
var percentileColumns = []string{"p50", "p90", "p95", "p99", "p99.9", "max"}

// percentiles returns the values for percentileColumns, empty ones if nothing was recorded.
func (l *latencies) percentiles() []any {
	if l.h.TotalCount() == 0 {
		return make([]any, len(percentileColumns))
	}
	var values []any
	for _, p := range []float64{50, 90, 95, 99, 99.9} {
		values = append(values, span(l.h.ValueAtPercentile(p)))
	}
	return append(values, span(l.h.Max()))
}

// grouped writes a number with a comma at each thousand.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	from := 0
	if n < 0 {
		from = 1
	}
	for i := len(s) - 3; i > from; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
