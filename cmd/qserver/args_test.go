package main

import (
	"slices"
	"testing"
)

func TestParseArgs(t *testing.T) {
	var ignored string
	options := []option{
		{"memory", false, keep(&ignored)}, {"max-held", false, keep(&ignored)}, {"log", false, keep(&ignored)},
		{"insecure", true, keep(&ignored)},
	}
	for _, tt := range []struct {
		name     string
		args     []string
		given    []string // name=value
		operands []string
		err      string
	}{
		{name: "none"},
		{"blank and equals", []string{"-memory", "1g", "--max-held=5"}, []string{"memory=1g", "max-held=5"}, nil, ""},
		{"switch", []string{"-insecure", "db"}, []string{"insecure=true"}, []string{"db"}, ""},
		{"switch off", []string{"-insecure=false"}, []string{"insecure=false"}, nil, ""},
		{"operand between", []string{"-insecure", "db", "-memory", "1g"}, []string{"insecure=true", "memory=1g"}, []string{"db"}, ""},
		{"dash is a value", []string{"-log", "-"}, []string{"log=-"}, nil, ""},
		{"dash is an operand", []string{"-"}, nil, []string{"-"}, ""},
		{"end of flags", []string{"-insecure", "--", "-memory"}, []string{"insecure=true"}, []string{"-memory"}, ""},
		{"end of flags is a value", []string{"-log", "--", "-insecure"}, []string{"log=--", "insecure=true"}, nil, ""},
		{"empty value", []string{"-log="}, []string{"log="}, nil, ""},
		{"again", []string{"-memory", "1", "-memory", "2"}, []string{"memory=1", "memory=2"}, nil, ""},
		{"missing value", []string{"-memory"}, nil, nil, "-memory: its value is missing"},
		{"slip", []string{"-memroy", "1g"}, nil, nil, "unknown flag -memroy; the nearest is -memory (-help lists all)"},
		{"slip with value", []string{"--max_held=1"}, nil, nil, "unknown flag -max_held; the nearest is -max-held (-help lists all)"},
		{"unknown", []string{"-frobnicate"}, nil, nil, "unknown flag -frobnicate (-help lists all)"},
		{"dashes", []string{"---"}, nil, nil, "unknown flag -- (-help lists all)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			settings, operands, err := parseArgs(tt.args, options)
			var given []string
			for _, s := range settings {
				given = append(given, s.name+"="+s.value)
			}
			if errText(err) != tt.err || err != nil && exitCode(err) != exitUsage {
				t.Fatalf("got error %q with exit code %d, want %q with %d", errText(err), exitCode(err), tt.err, exitUsage)
			}
			if err == nil && (!slices.Equal(given, tt.given) || !slices.Equal(operands, tt.operands)) {
				t.Errorf("got %q %q, want %q %q", given, operands, tt.given, tt.operands)
			}
		})
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"same", "same", 0},
		{"memroy", "memory", 1}, {"ab", "ba", 1}, {"kitten", "sitting", 3}, {"max_held", "max-held", 1},
	} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := distance(tt.b, tt.a); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}
