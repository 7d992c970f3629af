package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Units of a size are powers of 1024, also where people write MB: memcached and Kyoto Tycoon read them so.
const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40
)

var errSize = errors.New("want a size: bytes, or a number with KiB, MiB, GiB or TiB (k, M, g as well)")

// parseSize reads 1048576, 64MiB, 256M or 1g: decimal digits and at most one unit in any case.
func parseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "kKmMgGtTiIbB")
	n, err := strconv.ParseUint(digits, 10, 63)
	if errors.Is(err, strconv.ErrRange) {
		return 0, errors.New("is too large")
	}
	if err != nil || digits[0] == '+' {
		return 0, errSize
	}
	unit := uint64(1)
	switch strings.ToLower(s[len(digits):]) {
	case "", "b":
	case "k", "kb", "kib":
		unit = kib
	case "m", "mb", "mib":
		unit = mib
	case "g", "gb", "gib":
		unit = gib
	case "t", "tb", "tib":
		unit = tib
	default:
		return 0, errSize
	}
	if n > math.MaxInt64/unit {
		return 0, errors.New("is too large")
	}
	return int64(n * unit), nil
}

// formatSize writes n as parseSize reads it, in the largest unit that leaves it whole.
func formatSize(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{tib, "TiB"}, {gib, "GiB"}, {mib, "MiB"}, {kib, "KiB"}} {
		if n != 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// humanSize writes n for people, rounded: 812 B, 3.4 MiB.
func humanSize(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{tib, "TiB"}, {gib, "GiB"}, {mib, "MiB"}, {kib, "KiB"}} {
		if n >= u.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.size), u.name)
		}
	}
	return strconv.FormatInt(n, 10) + " B"
}

// size sets *p to a size of low to high bytes.
func size(p *int64, low, high int64) func(string) error {
	return func(s string) error {
		n, err := parseSize(s)
		if err != nil {
			return err
		}
		if n < low || n > high {
			return fmt.Errorf("want %s to %s", formatSize(low), formatSize(high))
		}
		*p = n
		return nil
	}
}

// number sets *p to an integer of low to high.
func number(p *int, low, high int) func(string) error {
	return func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > high {
			return fmt.Errorf("want a number from %d to %d", low, high)
		}
		*p = n
		return nil
	}
}

// duration sets *p to a duration of low to high, written as 250ms, 5s or 1m30s; 0 needs no unit.
func duration(p *time.Duration, low, high time.Duration) func(string) error {
	return func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil {
			if _, err := strconv.ParseFloat(s, 64); err == nil {
				return fmt.Errorf("the unit is missing: %ss or %sms", s, s)
			}
			return errors.New("want a duration such as 250ms, 5s or 1m30s")
		}
		if d < low || d > high {
			return fmt.Errorf("want %v to %v", low, high)
		}
		*p = d
		return nil
	}
}
