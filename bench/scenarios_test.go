package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// short makes every scenario end in a fraction of a second.
var short = map[string][]string{
	"blog":    {"-n", "300", "-turns", "2"},
	"scale":   {"-connections", "2", "-turns", "1", "-seconds", "0.06", "-warmup", "0.01"},
	"noreply": {"-n", "2000", "-turns", "2"},
	"flow":    {"-producers", "3", "-consumers", "2", "-turns", "1", "-seconds", "0.15", "-warmup", "0.02", "-wait", "30ms", "-rates", "800,10%", "-many", "8", "-many-rate", "300"},
	"claim":   {"-job", "3ms", "-poll", "2ms", "-wait", "15ms", "-rates", "600", "-headroom", "1.5", "-crowd", "2", "-seconds", "0.15", "-warmup", "0.02"},
	"grow":    {"-backlog", "10,150", "-queues", "1,20", "-connections", "1,10", "-held", "60", "-workers", "2", "-turns", "1", "-seconds", "0.04", "-warmup", "0.01"},
}

// kestrel among the arguments has bench speak to the fake server as to Kestrel.
const kestrel = "KESTREL"

func bench(t *testing.T, scenario string, deliver func(int64, []byte) ([]byte, int), args ...string) (string, error) {
	t.Helper()
	addr := startFake(t, deliver)
	protocol := "queue"
	if i := slices.Index(args, kestrel); i >= 0 {
		protocol, args = "kestrel", slices.Delete(slices.Clone(args), i, i+1)
	}
	args = append([]string{scenario, "-servers", "", "-target", "fake=" + protocol + "@" + addr, "-dir", t.TempDir(), "-idle-check", "0"}, args...)
	var out, errs bytes.Buffer
	err := run(t.Context(), args, &out, &errs)
	return out.String(), err
}

func TestScenarios(t *testing.T) {
	for _, tt := range []struct {
		name, scenario string
		more           []string
		want           []string // in the report
	}{
		{"blog", "blog", nil, []string{"300 messages of 243 bytes", "13,806", "fake"}},
		{"scale", "scale", []string{"-ops", "all"}, []string{"a queue each", "get+delete 200 2 fake", "close/open", "noreply set", "not supported by this server"}},
		{"scale, one queue", "scale", []string{"-shared"}, []string{"one queue", "get+delete 200 2 fake", "close/open"}},
		{"scale, reliable reads of Kestrel", "scale", []string{kestrel}, []string{"get+delete 200 2 fake", "close/open 200 2 fake"}},
		{"noreply", "noreply", nil, []string{"2,000 messages on one connection", "get+delete, pipelined"}},
		{"flow", "flow", nil, []string{"messages a second through", "end to end", "set answered", "p99.9"}},
		{"claim", "claim", nil, []string{"2,000", "workers needed", "600 1.8 3 wait", "600 1.8 4 poll", "600 1.8 4 batch"}},
		{"grow", "grow", nil, []string{"fake 150", "queues with a message each", "fake 20", "connections, used in turn", "one that is held", "aim"}},
		{"payload", "payload", []string{"-rows", "200", "-turns", "2", "-rest", "1ms"}, []string{"fake JSON", "fake YAML", "JSON in a YAML string", "33.00 s"}},
		{"flow by close/open", "flow", []string{"-take", "close/open"}, []string{"(close/open)", "end to end", "8 consumers (close/open) on as many queues"}},
		{"flow, get that does not wait", "flow", []string{"-take", "plain"}, []string{"(plain)", "end to end"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := bench(t, tt.scenario, nil, append(short[tt.scenario], tt.more...)...)
			if err != nil {
				t.Fatal(err)
			}
			flat := strings.Join(strings.Fields(got), " ") // the columns are as wide as they need to be
			for _, want := range tt.want {
				if !strings.Contains(flat, want) {
					t.Errorf("no %q in the report:\n%s", want, got)
				}
			}
		})
	}
}

// TestScenariosCheck shows each scenario a server that does wrong with message 100.
func TestScenariosCheck(t *testing.T) {
	for scenario, args := range short {
		for name, wrong := range wrongs {
			t.Run(scenario+" "+name, func(t *testing.T) {
				t.Parallel()
				out, err := bench(t, scenario, wrong.with(100), args...)
				if err == nil {
					t.Errorf("no error; report:\n%s", out)
				}
			})
		}
	}
}

func TestJSON(t *testing.T) {
	out, err := bench(t, "noreply", nil, append(short["noreply"], "-json")...)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Scenario string
		Tables   []struct {
			Rows []map[string]any
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	if got.Scenario != "noreply" || len(got.Tables) != 1 || len(got.Tables[0].Rows) != 2 {
		t.Fatalf("got %+v", got)
	}
	series, _ := got.Tables[0].Rows[0]["a second"].(map[string]any)
	if turns, _ := series["turns"].([]any); len(turns) != 2 {
		t.Errorf("got %v, want two turns", series)
	}
}

func TestRunRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"nonsense"},
		{"blog", "extra"},
		{"blog", "-servers", ""},
		{"blog", "-servers", "mysql"},
		{"blog", "-target", "x"},
		{"blog", "-n", "0"},
		{"blog", "-turns", "0"},
		{"scale", "-sizes", "3"},
		{"scale", "-ops", "push"},
		{"scale", "-connections", "1,x"},
		{"flow", "-servers", "memcached"},
		{"flow", "-take", "all"},
		{"flow", "-rates", "fast"},
		{"backlog", "-memory", "lots"},
		{"queues", "-n", "-1"},
		{"idle", "-queues", "0"},
		{"grow", "-axes", "height"},
		{"claim", "-modes", "guess"},
		{"claim", "-rates", "-1"},
		{"jobs", "-kinds", "none"},
		{"jobs", "-frame", "2m"},
		{"payload", "-rows", "0"},
		{"ab", "-rate", "0"},
		{"report", "-only", "blog,nonsense"},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), append(args, "-idle-check", "0"), &out, &out); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

func TestList(t *testing.T) {
	for _, args := range [][]string{{}, {"-list"}, {"list"}} {
		var out bytes.Buffer
		if err := run(t.Context(), args, &out, &out); err != nil {
			t.Errorf("%q: %v", args, err)
		}
		for _, s := range scenarios() {
			if !strings.Contains(out.String(), s.name) || !strings.Contains(out.String(), s.title) {
				t.Errorf("%q does not tell of %s", args, s.name)
			}
		}
	}
}
