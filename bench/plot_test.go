package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		name   string
		log    bool
		values []float64
		want   string
	}{
		{"from nothing up", false, []float64{3, 97}, "0 20 40 60 80"},
		{"thousands", false, []float64{2500}, "0 500 1 k 1.5 k 2 k 2.5 k"},
		{"powers of ten", true, []float64{1, 64, 512}, "1 10 100 1 k"},
		{"one value", true, []float64{10}, "10 100"},
		{"no value", true, nil, "1 10"},
	} {
		var got []string
		for _, v := range newAxis(tt.log, tt.values).ticks() {
			got = append(got, label(v))
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, s, tt.want)
		}
	}
}

// TestPlotExtent shows that the picture grows with the key beside it.
func TestPlotExtent(t *testing.T) {
	p := &plot{}
	p.point("short", 1, 1)
	if w, h := p.extent(); w != plotWidth || h != plotHeight {
		t.Errorf("a short key: got %d × %d", w, h)
	}
	for i := range 40 {
		p.point(strings.Repeat("n", 60)+strconv.Itoa(i), 1, 1)
	}
	w, h := p.extent()
	if w < plotLeft+int(chartWidth)+62*7 || h < 41*keyHeight {
		t.Errorf("41 long names: got %d × %d", w, h)
	}
	if s := string(p.svg()); !strings.Contains(s, fmt.Sprintf(`width="%d" height="%d"`, w, h)) {
		t.Errorf("the picture is not %d × %d", w, h)
	}
}

func TestPlots(t *testing.T) {
	r := &report{Section: "test"}
	p := r.plot("rates & <more>", "connections", "a second", true, false)
	for _, n := range []float64{1, 8, 64} {
		p.point("one", n, 100*n)
		p.point("other", n, 50*n)
	}
	l := newLatencies()
	for i := range 1000 {
		l.add(time.Duration(i+1) * time.Millisecond)
	}
	r.latencyPlot("latency").curve("set", l)
	r.plot("nothing", "x", "y", false, false)
	dir := filepath.Join(t.TempDir(), "plots")
	if err := r.writePlots(dir); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{filepath.Join(dir, "test-1.svg"), filepath.Join(dir, "test-2.svg")}; !slices.Equal(files, want) {
		t.Fatalf("got %v, want %v", files, want)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(strings.NewReader(string(b)))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", file, err)
		}
		if strings.Contains(string(b), "NaN") || strings.Contains(string(b), "Inf") {
			t.Errorf("%s has places that are no numbers", file)
		}
	}
}
