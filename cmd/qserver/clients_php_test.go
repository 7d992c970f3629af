package main

import "testing"

// phpStories are PHP's Memcached with the options that people use.
func phpStories() []storyCase {
	cases := []storyCase{
		{name: "text"},
		{name: "binary", command: []string{"binary"}, drops: true, noBatch: true},
		{name: "igbinary", command: []string{"igbinary", "compress"}, compresses: true, noLarge: true},
		{name: "binary JSON", command: []string{"json", "binary"}, drops: true, noBatch: true, noLarge: true},
		{name: "compressed", command: []string{"compress"}, compresses: true, noLarge: true},
		{name: "prefix", command: []string{"prefix"}, prefix: "app:", noLarge: true},
		{name: "persistent", command: []string{"persistent"}, noLarge: true},
		// A sync may take longer than the 50 ms for which libmemcached waits while it sends what it has buffered.
		{name: "buffered", command: []string{"buffer"}, server: []string{"-sync", "never"}, silent: true, noLarge: true},
		{name: "noreply", command: []string{"noreply"}, silent: true, noLarge: true},
	}
	for i := range cases {
		c := &cases[i]
		c.name, c.flags = "PHP Memcached "+c.name, 1<<16-1
		c.command = append([]string{"testdata/clients/story.php"}, c.command...)
		c.program = func(t *testing.T) []string { return []string{needPHP(t)} }
	}
	return cases
}
