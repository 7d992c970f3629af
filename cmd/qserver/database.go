package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// database reads ktserver's database argument, which names the data folder: 'path/queue.kct#ktopts=p'. Parameters but
// ktopts have no meaning here.
func (t *tycoon) database(given map[string]bool, operands []string) error {
	if len(operands) == 0 {
		return nil
	}
	if word := operands[0]; isTypo(word) {
		names := make([]string, 0, 8)
		for _, c := range commands() {
			names = append(names, c.name)
		}
		if near := nearest(word, names); near != "" {
			return usageError("unknown command %s; the nearest is %s (for a folder of that name: -data %s)", word, near, word)
		}
	}
	if len(operands) > 1 {
		return usageError("one data folder at most: %q and %q are given", operands[0], operands[1])
	}
	path, parameters, hasParameters := strings.Cut(operands[0], "#")
	t.used = t.used || hasParameters || strings.HasPrefix(filepath.Ext(path), ".kc")
	if hasParameters {
		for p := range strings.SplitSeq(parameters, "#") {
			name, value, _ := strings.Cut(p, "=")
			switch {
			case name == "ktopts" && strings.Contains(value, "p"):
				if !given["ttl"] {
					t.c.ttl = false
				}
			case p != "":
				t.ignore("#"+name, "")
			}
		}
	}
	switch {
	case given["data"]:
		return usageError("-data and the argument %q name the same thing: give one of them", operands[0])
	case path == "":
	case slices.Contains([]string{"-", "+", ":", "*", "%"}, path):
		t.used = true
		t.c.notes = append(t.c.notes, fmt.Sprintf("database %s is one in memory with Kyoto Tycoon; here messages are on disk", path))
	default:
		t.c.data = path
	}
	return nil
}

// isTypo says whether word could be a subcommand misspelt: a plain word that names no file.
func isTypo(word string) bool {
	if strings.ContainsAny(word, "/\\.#:") {
		return false
	}
	_, err := os.Lstat(word)
	return err != nil
}

// refuseFile refuses a data folder that is a file, and says how to move the messages of a Kyoto Cabinet file.
func refuseFile(path string) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil // not there yet, or a folder; what else it may be the store finds out
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	magic := make([]byte, 3)
	if _, err := io.ReadFull(f, magic); err == nil && string(magic) == "KC\n" {
		return usageError("%s is a Kyoto Cabinet file: start ktserver on it at other ports, move its messages as in"+
			" docs/kyoto-tycoon.md, and give qserver a folder of its own, such as -data %s.qserver", path, path)
	}
	return usageError("%s is a file: the data folder must be a folder", path)
}
