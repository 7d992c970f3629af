package main

import (
	"slices"
	"strings"
)

// The command line is read here and not by package flag, because options and operands come in any order on Kyoto Tycoon's
// (flag stops at the first operand), and because an unknown flag is answered with the nearest known one.

// option is a flag that a command line may hold.
type option struct {
	name string
	bare bool // needs no value: -name is -name=true
	set  func(value string) error
}

// setting is one flag as it was given.
type setting struct {
	option
	value string
}

func (s setting) apply() error {
	err := s.set(s.value)
	switch {
	case err == nil:
		return nil
	case s.bare && s.value == "true":
		return usageError("-%s: %w", s.name, err)
	default:
		return usageError("-%s %s: %w", s.name, s.value, err)
	}
}

// parseArgs takes the command line apart: flags with one dash or two, the value behind a blank or "=", operands between
// them, "--" before operands that begin with a dash. It sets nothing.
func parseArgs(args []string, options []option) (given []setting, operands []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			return given, append(operands, args...), nil
		}
		name, isFlag := strings.CutPrefix(arg, "-")
		if !isFlag || name == "" {
			operands = append(operands, arg)
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		i := slices.IndexFunc(options, func(o option) bool { return o.name == name })
		if i < 0 {
			return nil, nil, unknownFlag(name, options)
		}
		o := options[i]
		switch {
		case hasValue:
		case o.bare:
			value = "true"
		case len(args) == 0:
			return nil, nil, usageError("-%s: its value is missing", name)
		default:
			value, args = args[0], args[1:]
		}
		given = append(given, setting{o, value})
	}
	return given, operands, nil
}

// parseCommand parses and sets the flags of a subcommand and wants exactly the operands that are named.
func parseCommand(command string, args []string, options []option, operandNames ...string) ([]string, error) {
	given, operands, err := parseArgs(args, options)
	if err != nil {
		return nil, err
	}
	for _, s := range given {
		if err := s.apply(); err != nil {
			return nil, err
		}
	}
	switch n := len(operandNames); {
	case len(operands) < n:
		return nil, usageError("%s: %s is missing (qserver %s -help)", command, operandNames[len(operands)], command)
	case len(operands) > n:
		return nil, usageError("%s: unexpected argument %q (qserver %s -help)", command, operands[n], command)
	}
	return operands, nil
}

func unknownFlag(name string, options []option) error {
	names := make([]string, len(options))
	for i, o := range options {
		names[i] = o.name
	}
	if near := nearest(name, names); near != "" {
		return usageError("unknown flag -%s; the nearest is -%s (-help lists all)", name, near)
	}
	return usageError("unknown flag -%s (-help lists all)", name)
}

// nearest returns the name that takes the fewest edits to become word, the first of equals, or "" if that is more than
// a third of the word and more than two.
func nearest(word string, names []string) string {
	best, limit := "", max(2, len(word)/3)+1
	for _, name := range names {
		if d := distance(word, name); d < limit && d < len(word) {
			best, limit = name, d
		}
	}
	return best
}

// distance is the number of inserted, deleted or changed bytes, and of swapped neighbours, between a and b.
func distance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	older, last, row := rows[0], rows[1], rows[2]
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], older[j-1]+1)
			}
		}
		older, last, row = last, row, older
	}
	return last[len(b)]
}
