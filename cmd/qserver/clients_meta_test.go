package main

import "testing"

// TestBinaryClients runs real clients over the binary protocol against the real program.
func TestBinaryClients(t *testing.T) {
	program := buildProgram(t)
	for _, tt := range []struct{ name, what, flag, check, script string }{
		{"PHP Memcached", "PHP Memcached (php-cli and php-memcached on Debian)", "-r", `exit(class_exists("Memcached") ? 0 : 1);`, "binary.php"},
		{"pylibmc", "pylibmc (python3-pylibmc on Debian)", "-c", "import pylibmc", "binary.py"},
		{"Dalli", "Dalli (ruby-dalli on Debian)", "-e", `require "dalli"`, "binary.rb"},
	} {
		programs := map[string][]string{"binary.php": {"php"}, "binary.py": {"python3", "/usr/bin/python3"}, "binary.rb": {"ruby"}}[tt.script]
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			command := need(t, tt.what, tt.flag, tt.check, programs...)
			s := startProgram(t, program)
			if got := output(t, command, "testdata/clients/"+tt.script, s.port()); got != "ok\n" {
				t.Errorf("got %q, want ok", got)
			}
			s.wantCounts(t, "odd", counts{})
		})
	}
}
