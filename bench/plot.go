package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A plot is a line chart of the report: a time series, a latency curve, a rate by what grows.
type plot struct {
	Name string  `json:"name"`
	X    string  `json:"x"` // what the axes are
	Y    string  `json:"y"`
	LogX bool    `json:"log_x,omitempty"`
	LogY bool    `json:"log_y,omitempty"`
	Line []*line `json:"lines"`
}

type line struct {
	Name   string       `json:"name"`
	Points [][2]float64 `json:"points"`
}

func (r *report) plot(name, x, y string, logX, logY bool) *plot {
	p := &plot{Name: name, X: x, Y: y, LogX: logX, LogY: logY}
	r.Plots = append(r.Plots, p)
	return p
}

// point adds a point to the line of that name, which is made by its first.
func (p *plot) point(name string, x, y float64) {
	for _, l := range p.Line {
		if l.Name == name {
			l.Points = append(l.Points, [2]float64{x, y})
			return
		}
	}
	p.Line = append(p.Line, &line{Name: name, Points: [][2]float64{{x, y}}})
}

// curve adds a latency curve: milliseconds by the share of operations that were slower. On the logarithmic axis each
// step to the right is another nine: 1 for all, 10 for p90, 100 for p99.
func (p *plot) curve(name string, l *latencies) {
	if l.h.TotalCount() == 0 {
		return
	}
	for _, b := range l.h.CumulativeDistribution() {
		if b.Quantile < 100 {
			p.point(name, 1/(1-b.Quantile/100), float64(b.ValueAt)/1e6)
		}
	}
}

// latencyPlot makes a plot for curves.
func (r *report) latencyPlot(name string) *plot {
	return r.plot(name, "1 in so many was slower (10: p90, 100: p99)", "milliseconds", true, true)
}

// writePlots writes each plot that has points as SCENARIO-N.svg into a folder.
func (r *report) writePlots(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	n := 0
	for _, p := range r.Plots {
		if len(p.Line) == 0 {
			continue
		}
		n++
		path := filepath.Join(dir, fmt.Sprintf("%s-%d.svg", r.Section, n))
		if err := os.WriteFile(path, p.svg(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// The picture: its least size, and the margins around the chart itself, in pixels.
const (
	plotWidth, plotHeight           = 900, 480
	plotLeft, plotRight             = 80, 230
	plotTop, plotBottom             = 40, 60
	chartWidth, chartHeight float64 = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
)

var plotColours = []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22"}

// axis maps values onto a length.
type axis struct {
	log      bool
	from, to float64 // of the axis, in logarithms if log
}

func newAxis(log bool, values []float64) axis {
	a := axis{log: log, from: math.Inf(1), to: math.Inf(-1)}
	if !log {
		a.from = 0
	}
	for _, v := range values {
		if log {
			if v <= 0 {
				continue
			}
			v = math.Log10(v)
		}
		a.from, a.to = min(a.from, v), max(a.to, v)
	}
	if log && a.from <= a.to {
		a.from, a.to = math.Floor(a.from+1e-9), math.Ceil(a.to-1e-9)
	}
	if !(a.from < a.to) {
		a.to = a.from + 1
	}
	if math.IsInf(a.from, 0) || math.IsInf(a.to, 0) {
		a.from, a.to = 0, 1
	}
	return a
}

// at is the place of a value, from 0 to 1.
func (a axis) at(v float64) float64 {
	if a.log {
		v = math.Log10(max(v, math.Pow(10, a.from)))
	}
	return (v - a.from) / (a.to - a.from)
}

// ticks are the values that the axis names: powers of ten, or multiples of 1, 2 or 5 times one.
func (a axis) ticks() (ticks []float64) {
	if a.log {
		for e := a.from; e <= a.to; e++ {
			ticks = append(ticks, math.Pow(10, e))
		}
		return ticks
	}
	step := math.Pow(10, math.Floor(math.Log10((a.to-a.from)/4)))
	for _, m := range []float64{5, 2} {
		if (a.to-a.from)/(step*m) >= 4 {
			step *= m
			break
		}
	}
	for v := math.Ceil(a.from/step) * step; v <= a.to+step/1e6; v += step {
		ticks = append(ticks, v)
	}
	return ticks
}

// svg draws the plot.
func (p *plot) svg() []byte {
	var xs, ys []float64
	for _, l := range p.Line {
		for _, point := range l.Points {
			xs, ys = append(xs, point[0]), append(ys, point[1])
		}
	}
	x, y := newAxis(p.LogX, xs), newAxis(p.LogY, ys)
	left := func(v float64) float64 { return plotLeft + chartWidth*x.at(v) }
	top := func(v float64) float64 { return plotTop + chartHeight*(1-y.at(v)) }

	var b bytes.Buffer
	text := func(x, y float64, anchor, s string) {
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, html.EscapeString(s))
	}
	rule := func(x1, y1, x2, y2 float64) {
		fmt.Fprintf(&b, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", x1, y1, x2, y2)
	}
	width, height := p.extent()
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n", width, height)
	b.WriteString("<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n")
	text(plotLeft, plotTop-16, "start", p.Name)
	for _, v := range x.ticks() {
		rule(left(v), plotTop, left(v), plotTop+chartHeight)
		text(left(v), plotTop+chartHeight+18, "middle", label(v))
	}
	for _, v := range y.ticks() {
		rule(plotLeft, top(v), plotLeft+chartWidth, top(v))
		text(plotLeft-8, top(v)+4, "end", label(v))
	}
	text(plotLeft+chartWidth/2, plotHeight-12, "middle", p.X)
	fmt.Fprintf(&b, "<text transform=\"translate(16 %.1f) rotate(-90)\" text-anchor=\"middle\">%s</text>\n", plotTop+chartHeight/2, html.EscapeString(p.Y))
	for i, l := range p.Line {
		colour, dashes := plotColours[i%len(plotColours)], ""
		if i >= len(plotColours) {
			dashes = " stroke-dasharray=\"6 3\""
		}
		var path strings.Builder
		for _, point := range l.Points {
			fmt.Fprintf(&path, "%.1f,%.1f ", left(point[0]), top(point[1]))
			if len(l.Points) < 30 {
				fmt.Fprintf(&b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", left(point[0]), top(point[1]), colour)
			}
		}
		fmt.Fprintf(&b, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"%s/>\n", strings.TrimSpace(path.String()), colour, dashes)
		key := float64(plotTop + 10 + keyHeight*i)
		fmt.Fprintf(&b, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"3\"%s/>\n",
			plotLeft+chartWidth+8, key-4, plotLeft+chartWidth+26, key-4, colour, dashes)
		text(plotLeft+chartWidth+keyIndent, key, "start", l.Name)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// The key beside the chart: where its names begin, the height of a line, the width of a character at most.
const keyIndent, keyHeight, keyChar = 32, 18, 8

// extent is the size of the picture, in which the key has room.
func (p *plot) extent() (width, height int) {
	width, height = plotWidth, max(plotHeight, plotTop+10+keyHeight*len(p.Line))
	for _, l := range p.Line {
		width = max(width, plotLeft+int(chartWidth)+keyIndent+keyChar*utf8.RuneCountInString(l.Name))
	}
	return width, height
}

// label writes a number of an axis with as few characters as it takes.
func label(v float64) string {
	for _, unit := range []struct {
		of   float64
		name string
	}{{1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if math.Abs(v) >= unit.of {
			return strconv.FormatFloat(v/unit.of, 'g', 4, 64) + unit.name
		}
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
