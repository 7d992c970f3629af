package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestNodeClients runs the story with the clients for Node.
func TestNodeClients(t *testing.T) {
	program := buildProgram(t)
	for _, c := range []storyCase{
		{name: "memcached", command: []string{"memcached"}, noBulk: true, noLarge: true},
		{name: "memcached namespace", command: []string{"memcached", "namespace"}, prefix: "app:", noBulk: true, noLarge: true},
		{name: "memjs", command: []string{"memjs"}, noReceipts: true, noBulk: true, noBatch: true, noProgress: true},
	} {
		t.Run("node "+c.name, func(t *testing.T) {
			t.Parallel()
			c.command = slices.Concat(needNode(t, c.command[0]), []string{"testdata/clients/story.js"}, c.command)
			c.lease = true
			testStory(t, startProgram(t, program), &c)
		})
	}
}

// needNode returns the command that runs node with the modules that scripts/test has installed, and skips the test if they don't
// have this one.
func needNode(t *testing.T, module string) []string {
	t.Helper()
	command := []string{"env", "node"}
	if cache, err := os.UserCacheDir(); err == nil {
		modules := filepath.Join(cache, "qserver-tests", "node_modules") + string(os.PathListSeparator) + os.Getenv("NODE_PATH")
		command = []string{"env", "NODE_PATH=" + modules, "node"}
	}
	if exec.Command(command[0], append(command[1:], "-e", "require('"+module+"')")...).Run() != nil {
		t.Skipf("node with %s is not installed: scripts/test clients installs it", module)
	}
	return command
}
