package main

import (
	"strings"
	"testing"
)

// perlStories are Perl's Cache::Memcached::Fast with the options that people use.
func perlStories() []storyCase {
	cases := []storyCase{
		{},
		{command: []string{"compress", "namespace"}, compresses: true, prefix: "app:", noLarge: true},
		{command: []string{"nowait"}, silent: true, noLarge: true},
		{command: []string{"noreply"}, silent: true, noLarge: true},
	}
	for i := range cases {
		c := &cases[i]
		c.name = strings.Join(append([]string{"Perl Cache::Memcached::Fast"}, c.command...), " ")
		c.command = append([]string{"testdata/clients/story.pl"}, c.command...)
		c.noBatch, c.drops = true, true
		c.program = func(t *testing.T) []string {
			return []string{need(t, "Cache::Memcached::Fast (libcache-memcached-fast-perl on Debian)", "-e", "use Cache::Memcached::Fast", "perl")}
		}
	}
	return cases
}
