package main

import "testing"

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
