package main

import (
	"slices"
	"testing"
)

// TestRubyClients runs the story with Dalli, over the binary protocol in Debian's version 3.
func TestRubyClients(t *testing.T) {
	program := buildProgram(t)
	ruby := need(t, "Dalli (ruby-dalli on Debian)", "-e", `require "dalli"`, "ruby")
	for _, c := range []storyCase{
		{name: "defaults", compresses: true, command: []string{"compress"}},
		{name: "uncompressed, namespace", command: []string{"namespace"}, prefix: "app:"},
		{name: "raw", command: []string{"raw"}},
	} {
		t.Run("Dalli "+c.name, func(t *testing.T) {
			t.Parallel()
			c.command = slices.Concat([]string{ruby, "testdata/clients/story.rb"}, c.command)
			c.noBatch = true
			testStory(t, startProgram(t, program), &c)
		})
	}
}
