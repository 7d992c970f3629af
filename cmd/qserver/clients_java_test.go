package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// spymemcached is the library's place on Debian.
const spymemcached = "/usr/share/java/spymemcached.jar"

// TestJavaClients runs the story with spymemcached. It keeps its connection after a wait that timed out, and drops what comes
// late: it takes messages with a lease.
func TestJavaClients(t *testing.T) {
	program := buildProgram(t)
	if _, err := os.Stat(spymemcached); err != nil {
		t.Skip("spymemcached (libspymemcached-java on Debian) is not installed: scripts/test clients installs it")
	}
	if _, err := exec.LookPath("javac"); err != nil {
		t.Skip("javac (default-jdk-headless on Debian) is not installed: scripts/test clients installs it")
	}
	classes := t.TempDir()
	if out, err := exec.Command("javac", "-cp", spymemcached, "-d", classes, "testdata/clients/Story.java").CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	for _, c := range []storyCase{
		{name: "text"},
		{name: "binary", command: []string{"binary"}},
	} {
		t.Run("spymemcached "+c.name, func(t *testing.T) {
			t.Parallel()
			c.dial = func(t *testing.T, s *programServer, timeout time.Duration) storyClient {
				path := spymemcached + string(filepath.ListSeparator) + classes
				args := []string{"java", "-XX:TieredStopAtLevel=1", "-cp", path, "Story", s.port(), fmt.Sprintf("timeout=%d", timeout.Milliseconds())}
				return startStory(t, append(args, c.command...)...)
			}
			c.lease, c.keeps, c.noBulk, c.noBatch, c.noOrder, c.flags = true, true, true, true, true, 1<<31-1
			testStory(t, startProgram(t, program), &c)
		})
	}
}
