package main

import (
	"strings"
	"testing"
)

// pythonStories are Python's three libraries with the options that people use.
func pythonStories() []storyCase {
	cases := []storyCase{
		{name: "pymemcache", flags: 1<<32 - 1},
		{name: "pymemcache pooled", flags: 1<<32 - 1, lease: true, noLarge: true},
		{name: "pymemcache hash", flags: 1<<32 - 1, noLarge: true},
		{name: "pymemcache hash pooled prefix", flags: 1<<32 - 1, lease: true, prefix: "app:", noLarge: true},
		{name: "pymemcache noreply", flags: 1<<32 - 1, silent: true, noLarge: true},
		{name: "pylibmc", noBulk: true},
		{name: "pylibmc binary compress", noBulk: true, compresses: true, drops: true},
		{name: "python-memcached", noBulk: true, noMissing: true},
		{name: "python-memcached compress", noBulk: true, noMissing: true, compresses: true, noLarge: true},
		{name: "python-memcached noreply", noBulk: true, silent: true, noLarge: true},
	}
	for i := range cases {
		c := &cases[i]
		c.noBatch = true
		c.drops = c.drops || strings.HasPrefix(c.name, "pymemcache")
		c.command = append([]string{"testdata/clients/story.py"}, strings.Fields(c.name)...)
		c.program = func(t *testing.T) []string { return []string{needPython(t, strings.Fields(c.name)[0])} }
	}
	return cases
}

// needPython returns a python3 that has the library.
func needPython(t *testing.T, library string) string {
	t.Helper()
	module, debian := library, "python3-"+library
	if library == "python-memcached" {
		module, debian = "memcache", "python3-memcache"
	}
	return need(t, library+" ("+debian+" on Debian)", "-c", "import "+module, "python3", "/usr/bin/python3")
}
