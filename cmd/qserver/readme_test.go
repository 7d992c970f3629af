package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// readmeBlock is a fenced block of the README.
type readmeBlock struct {
	line           int // of its first line, from 1
	language, text string
}

func readmeBlocks(t *testing.T, path string) []readmeBlock {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []readmeBlock
	var block *readmeBlock
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		language, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && block == nil:
			block = &readmeBlock{line: number + 1, language: language}
		case fence:
			blocks = append(blocks, *block)
			block = nil
		case block != nil:
			block.text += line
		}
	}
	if block != nil {
		t.Fatalf("%s: the block of line %d has no end", path, block.line)
	}
	return blocks
}

// testReadme runs the examples of the README in their order, with one server, and compares what they print:
//
//	php, ruby, python, go    is a program; the text block that follows is its output
//	console                  is lines of $ COMMAND, each with its output below
//	sh, text                 is not run
//
// Where the README prints … anything may stand, but for a line's end; a line of … alone stands for any number of lines. The
// ports are the server's own.
func testReadme(t *testing.T, program string) {
	s := startProgram(t, program)
	path, err := filepath.Abs("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ports := []string{"11211", s.port(), "1978", s.httpPort()}
	run := func(t *testing.T, want string, command ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "QSERVER_ADMIN="+s.http)
		out, err := cmd.CombinedOutput()
		got := strings.ReplaceAll(string(out), "\r\n", "\n")
		want = strings.NewReplacer(ports...).Replace(want)
		if !readmePattern(want).MatchString(got) {
			t.Errorf("%s (%v): got\n%s\nwant\n%s", strings.Join(command, " "), err, got, want)
		}
	}

	blocks := readmeBlocks(t, path)
	for i, b := range blocks {
		if b.language == "sh" || b.language == "text" {
			continue
		}
		t.Run(fmt.Sprintf("%s of line %d", b.language, b.line), func(t *testing.T) {
			if b.language == "console" {
				runConsole(t, b.text, ports, run)
				return
			}
			command := readmeCommand(t, b.language)
			if i+1 == len(blocks) || blocks[i+1].language != "text" {
				t.Fatal("its output, a text block, does not follow")
			}
			file := filepath.Join(dir, fmt.Sprintf("example%d.%s", i, b.language))
			if err := os.WriteFile(file, []byte(strings.NewReplacer(ports...).Replace(b.text)), 0o600); err != nil {
				t.Fatal(err)
			}
			run(t, blocks[i+1].text, append(command, file)...)
		})
	}
}

// readmeCommand returns what runs a program of that language.
func readmeCommand(t *testing.T, language string) []string {
	t.Helper()
	switch language {
	case "php":
		return []string{needPHP(t)}
	case "ruby":
		return []string{need(t, "Dalli for Ruby", "-e", "require 'dalli'", "ruby")}
	case "python":
		return []string{need(t, "pymemcache", "-c", "import pymemcache", "python3", "/usr/bin/python3")}
	case "go":
		return []string{"go", "run"}
	}
	t.Fatalf("how to run %q is not known", language)
	return nil
}

// runConsole runs each command of a console block. A command goes on in the next line where one ends with a backslash.
func runConsole(t *testing.T, text string, ports []string, run func(t *testing.T, want string, command ...string)) {
	t.Helper()
	for _, tool := range []string{"nc", "curl", "bash"} {
		if _, err := exec.LookPath(tool); err != nil && strings.Contains(text, tool) {
			t.Skipf("%s is not installed: scripts/test clients installs it", tool)
		}
	}
	for part := range strings.SplitSeq("\n"+text, "\n$ ") {
		if part == "" {
			continue
		}
		command, want, _ := strings.Cut(strings.ReplaceAll(part, "\\\n", "\\\x00"), "\n")
		if want != "" && !strings.HasSuffix(want, "\n") {
			want += "\n"
		}
		command = strings.NewReplacer(append([]string{"\\\x00", "\\\n"}, ports...)...).Replace(command)
		run(t, want, "bash", "-c", command)
	}
}

// readmePattern matches what a printed example stands for.
func readmePattern(want string) *regexp.Regexp {
	var p strings.Builder
	for line := range strings.Lines(want) {
		if line == "…\n" {
			p.WriteString("(.*\n)*")
			continue
		}
		p.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*"))
	}
	return regexp.MustCompile("^" + p.String() + "$")
}

// TestLinks checks that what the documents point to within this project is there.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	documents := 0
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/decisions/*.md", "../../bench/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			documents++
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range link.FindAllStringSubmatch(string(text), -1) {
				if _, err := os.Stat(filepath.Join(filepath.Dir(file), match[1])); err != nil {
					t.Errorf("%s points to %s: %v", file, match[1], err)
				}
			}
		}
	}
	if documents < 3 {
		t.Errorf("got %d documents, want the README and those of docs", documents)
	}
}
