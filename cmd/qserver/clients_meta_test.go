package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestBinaryClients runs real clients over the binary protocol against the real program.
func TestBinaryClients(t *testing.T) {
	program := buildProgram(t)
	for _, tt := range []struct{ name, what, flag, check, script string }{
		{"Dalli", "Dalli (ruby-dalli on Debian)", "-e", `require "dalli"`, "binary.rb"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			command := need(t, tt.what, tt.flag, tt.check, "ruby")
			s := startProgram(t, program)
			if got := output(t, command, "testdata/clients/"+tt.script, s.port()); got != "ok\n" {
				t.Errorf("got %q, want ok", got)
			}
			s.wantCounts(t, "odd", counts{})
		})
	}
}

// TestMemccapable runs libmemcached's check of a server's binary protocol. What a queue can't pass: set, replace and delete of a
// key that is stored and not reserved (set, setq, replace, replaceq, delete, deleteq), numbers (incr, decr) and values that grow
// (append, prepend).
func TestMemccapable(t *testing.T) {
	command, err := exec.LookPath("memccapable")
	if err != nil {
		t.Skip("memccapable (libmemcached-tools on Debian) is not installed")
	}
	s := startProgram(t, buildProgram(t), "-allow-flush-all")
	out, _ := exec.CommandContext(t.Context(), command, "-b", "-h", "127.0.0.1", "-p", s.port()).Output()
	for name := range strings.FieldsSeq("noop quit quitq flush flushq add addq get getq getk getkq version stat") {
		if form := regexp.MustCompile(`binary ` + name + ` +\[pass\]`); !form.Match(out) {
			t.Errorf("%s does not pass:\n%s", name, out)
		}
	}
}
