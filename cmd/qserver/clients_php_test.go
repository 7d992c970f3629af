package main

import (
	"slices"
	"testing"
)

// phpStories are PHP's Memcached with the options that people use.
func phpStories(t *testing.T) []storyCase {
	t.Helper()
	var cases []storyCase
	for _, c := range []storyCase{
		{name: "text"},
		{name: "binary", command: []string{"binary"}, noBatch: true},
		{name: "igbinary", command: []string{"igbinary", "compress"}, compresses: true},
		{name: "JSON", command: []string{"json", "binary"}, noBatch: true},
		{name: "compressed", command: []string{"compress"}, compresses: true},
		{name: "prefix", command: []string{"prefix"}, prefix: "app:"},
		{name: "persistent", command: []string{"persistent"}},
		{name: "buffered", command: []string{"buffer"}, silent: true},
		{name: "noreply", command: []string{"noreply"}, silent: true},
	} {
		c.name = "PHP Memcached " + c.name
		c.command = slices.Concat([]string{"php", "testdata/clients/story.php"}, c.command)
		c.flags = 1<<16 - 1
		cases = append(cases, c)
	}
	return cases
}
