package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata")

// TestHelp holds all help texts in one golden file each, and their lines to a terminal's width.
func TestHelp(t *testing.T) {
	for _, tt := range []struct {
		file string
		args []string
	}{
		{"help.txt", []string{"-help"}},
		{"help.txt", []string{"help"}},
		{"help.txt", []string{"--help", "-memory", "1g"}},
		{"help-status.txt", []string{"status", "-help"}},
		{"help-check.txt", []string{"help", "check"}},
		{"help-repair.txt", []string{"repair", "-cut", "-h"}},
		{"help-defrag.txt", []string{"defrag", "--help"}},
		{"help-ulog.txt", []string{"ulog", "-help"}},
		{"help-promote.txt", []string{"promote", "-help"}},
		{"help-follow.txt", []string{"follow", "-help"}},
		{"help-rejoin.txt", []string{"rejoin", "-help"}},
		{"help-passwd.txt", []string{"passwd", "-help"}},
		{"help-version.txt", []string{"version", "-help"}},
	} {
		var stdout, stderr bytes.Buffer
		if err := run(t.Context(), tt.args, nil, &stdout, &stderr); err != nil {
			t.Errorf("%q: %v", tt.args, err)
		}
		path := filepath.Join("testdata", tt.file)
		if *update {
			if err := os.WriteFile(path, stdout.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := stdout.String(); got != string(want) {
			t.Errorf("%q prints\n%s\nwant\n%s", tt.args, got, want)
		}
		if stderr.Len() > 0 {
			t.Errorf("%q writes %q to standard error", tt.args, stderr.String())
		}
		for line := range strings.Lines(stdout.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
				t.Errorf("%s: a line of %d characters: %s", tt.file, n, line)
			}
		}
	}
}

func TestHelpErrors(t *testing.T) {
	for _, tt := range []struct{ args, err string }{
		{"help nothing", `no command "nothing" (qserver -help lists them)`},
		{"check", "check: DIR is missing (qserver check -help)"},
		{"check a b", `check: unexpected argument "b" (qserver check -help)`},
		{"check -jsn a", "unknown flag -jsn; the nearest is -json (-help lists all)"},
		{"repair -json a", "unknown flag -json (-help lists all)"},
		{"version x", `version: unexpected argument "x" (qserver version -help)`},
		{"status x", `status: unexpected argument "x" (qserver status -help)`},
		{"status -admin 5", "-admin 5: want host:port, such as 127.0.0.1:11211"},
	} {
		var stdout, stderr bytes.Buffer
		err := run(t.Context(), strings.Fields(tt.args), nil, &stdout, &stderr)
		if errText(err) != tt.err || exitCode(err) != exitUsage {
			t.Errorf("%s: got %q with code %d, want %q", tt.args, errText(err), exitCode(err), tt.err)
		}
	}
}
