package main

import (
	"math"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int64
		err  string
	}{
		{"0", 0, ""},
		{"1", 1, ""},
		{"1048576", mib, ""},
		{"64MiB", 64 * mib, ""},
		{"64mib", 64 * mib, ""},
		{"64MB", 64 * mib, ""},
		{"256M", 256 * mib, ""},
		{"256m", 256 * mib, ""},
		{"1g", gib, ""},
		{"2k", 2 * kib, ""},
		{"3T", 3 * tib, ""},
		{"10B", 10, ""},
		{"9223372036854775807", math.MaxInt64, ""},
		{"8388607T", 8388607 * tib, ""},
		{"8388608T", 0, "is too large"},
		{"9223372036854775808", 0, "is too large"},
		{"99999999999999999999g", 0, "is too large"},
		{"", 0, errSize.Error()},
		{"M", 0, errSize.Error()},
		{"-1", 0, errSize.Error()},
		{"+1", 0, errSize.Error()},
		{"1.5g", 0, errSize.Error()},
		{"64 MiB", 0, errSize.Error()},
		{"64MiBB", 0, errSize.Error()},
		{"64iB", 0, errSize.Error()},
		{"0x10", 0, errSize.Error()},
		{"1_000", 0, errSize.Error()},
		{"64Mx", 0, errSize.Error()},
	} {
		got, err := parseSize(tt.text)
		if got != tt.want || errText(err) != tt.err {
			t.Errorf("parseSize(%q) = %d, %q; want %d, %q", tt.text, got, errText(err), tt.want, tt.err)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for _, tt := range []struct {
		n           int64
		want, human string
	}{
		{0, "0", "0 B"},
		{1, "1", "1 B"},
		{1023, "1023", "1023 B"},
		{kib, "1KiB", "1.0 KiB"},
		{64 * mib, "64MiB", "64.0 MiB"},
		{gib + mib, "1025MiB", "1.0 GiB"},
		{3 * tib, "3TiB", "3.0 TiB"},
		{mib + 1, "1048577", "1.0 MiB"},
	} {
		if got := formatSize(tt.n); got != tt.want {
			t.Errorf("formatSize(%d) = %q, want %q", tt.n, got, tt.want)
		}
		if got := humanSize(tt.n); got != tt.human {
			t.Errorf("humanSize(%d) = %q, want %q", tt.n, got, tt.human)
		}
	}
}

func TestDuration(t *testing.T) {
	for _, tt := range []struct {
		text string
		want time.Duration
		err  string
	}{
		{"0", 0, ""},
		{"0s", 0, ""},
		{"250ms", 250 * time.Millisecond, ""},
		{"1m30s", 90 * time.Second, ""},
		{"10", 0, "the unit is missing: 10s or 10ms"},
		{"1h1s", 0, "want 0s to 1h0m0s"},
		{"-1s", 0, "want 0s to 1h0m0s"},
		{"soon", 0, "want a duration such as 250ms, 5s or 1m30s"},
	} {
		var got time.Duration
		err := duration(&got, 0, time.Hour)(tt.text)
		if got != tt.want || errText(err) != tt.err {
			t.Errorf("duration %q = %v, %q; want %v, %q", tt.text, got, errText(err), tt.want, tt.err)
		}
	}
}

// FuzzParseSize checks that no text panics and that what is read is written and read back the same.
func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"64MiB", "1g", "-1", "9223372036854775807", "8388608T", "kB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseSize(s)
		if err != nil {
			return
		}
		if back, err := parseSize(formatSize(n)); back != n || err != nil {
			t.Fatalf("parseSize(%q) = %d, written %q, read back %d, %v", s, n, formatSize(n), back, err)
		}
	})
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
