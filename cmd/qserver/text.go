package main

import (
	"strconv"
	"strings"
	"unicode"
)

// plural returns word for n = 1 and else word with an s.
func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// quoted returns a queue's name as it is, or as a Go string literal where a terminal would not show it plainly.
func quoted(name string) string {
	odd := func(r rune) bool { return r == unicode.ReplacementChar || r == '"' || !unicode.IsPrint(r) }
	if name == "" || strings.ContainsFunc(name, odd) {
		return strconv.Quote(name)
	}
	return name
}
