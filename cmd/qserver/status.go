package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	statusTimeout = 10 * time.Second // of each question to the server
	statusLimit   = 64 * mib         // largest answer that is read
)

func statusCommand() command {
	return command{
		name:  "status",
		usage: "[flags]",
		short: "ask a running server for its state and counts",
		help: `Asks a running server over HTTP and prints its state and a row for each queue. messages is
every live one: ready, delayed and reserved.

  -admin ADDRESS   as the server was given it (127.0.0.1:1978, or QSERVER_ADMIN)
  -admin-ca FILE   the port speaks TLS (-tls-ports), with a certificate signed by one of these
  -json            for programs: {"status": {…}, "queues": [{…}, …]}, as on /api/v1
`,
		run: status,
	}
}

func status(ctx context.Context, args, environ []string, stdout, _ io.Writer) error {
	asJSON, r := false, newRemote(environ)
	if _, err := parseCommand("status", args, []option{r.adminOption(), r.caOption(), {"json", true, toggle(&asJSON)}}); err != nil {
		return err
	}
	port, err := r.port(r.admin)
	if err != nil {
		return err
	}
	answer, err := askStatus(ctx, port)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(stdout).Encode(answer)
	}
	return writeStatus(stdout, answer)
}

// statusAnswer is what a server says of itself, as it says it.
type statusAnswer struct {
	Status json.RawMessage   `json:"status"`
	Queues []json.RawMessage `json:"queues"`
}

// askStatus reads the state and all pages of queues. While a server recovers it has no queues to tell.
func askStatus(ctx context.Context, port adminPort) (statusAnswer, error) {
	answer := statusAnswer{Queues: []json.RawMessage{}}
	if err := port.get(ctx, "/api/v1/status", &answer.Status); err != nil {
		return answer, err
	}
	var state struct{ Messages *struct{} }
	if err := json.Unmarshal(answer.Status, &state); err != nil || state.Messages == nil {
		return answer, err
	}
	for next := "/api/v1/queues?limit=1000"; next != ""; {
		var page struct {
			Queues []json.RawMessage
			Next   string
		}
		if err := port.get(ctx, next, &page); err != nil {
			return answer, err
		}
		answer.Queues = append(answer.Queues, page.Queues...)
		next = page.Next
	}
	return answer, nil
}

// reachable returns the address that a server listening on all addresses has on its own machine.
func reachable(admin string) string {
	host, port, err := net.SplitHostPort(admin)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return admin
}

// get reads a JSON answer.
func (p adminPort) get(ctx context.Context, uri string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	request, err := p.request(ctx, http.MethodGet, uri)
	if err != nil {
		return err
	}
	status, body, err := p.send(request, statusLimit)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		err = fmt.Errorf("%d: %s", status, strings.TrimSpace(string(body[:min(len(body), 200)])))
	} else {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return p.noAdminPort(err)
	}
	return nil
}

// statusView is what the table shows of a server.
type statusView struct {
	Version     string
	PID         int
	UptimeMS    int64 `json:"uptime_ms"`
	Ready       bool
	Reason      string
	Path        string
	Connections struct{ Open, Busy int64 }
	Messages    struct{ Queues int64 }
	Log         struct {
		LSN    uint64
		Synced uint64 `json:"synced_lsn"`
		Bytes  int64
	}
	Tree struct {
		LSN   uint64
		Bytes int64
	}
	Memory struct {
		Bytes int64
		Limit int64 `json:"limit_bytes"`
	}
}

// queueView is what the table shows of a queue.
type queueView struct {
	Escaped                               string `json:"name_escaped"`
	Items, Ready, Reserved, Delayed, Dead int64
	Bytes, Waiters                        int64
	AgeMS                                 int64 `json:"age_ms"`
}

func writeStatus(w io.Writer, a statusAnswer) error {
	var s statusView
	if err := json.Unmarshal(a.Status, &s); err != nil {
		return err
	}
	state := "ready"
	if !s.Ready {
		state = "not ready: " + s.Reason
	}
	fmt.Fprintf(w, "qserver %s, process %d, up %v, %s\n", s.Version, s.PID, milliseconds(s.UptimeMS), state)
	if s.Path == "" {
		return nil // it is recovering
	}
	fmt.Fprintf(w, "data         %s (tree %s, log %s)\n", s.Path, humanSize(s.Tree.Bytes), humanSize(s.Log.Bytes))
	fmt.Fprintf(w, "records      %d, on disk up to %d, in the tree up to %d\n", s.Log.LSN, s.Log.Synced, s.Tree.LSN)
	fmt.Fprintf(w, "memory       %s of %s\n", humanSize(s.Memory.Bytes), humanSize(s.Memory.Limit))
	fmt.Fprintf(w, "connections  %d, %d busy\n\n", s.Connections.Open, s.Connections.Busy)

	queues := make([]queueView, len(a.Queues))
	for i, raw := range a.Queues {
		if err := json.Unmarshal(raw, &queues[i]); err != nil {
			return err
		}
	}
	slices.SortStableFunc(queues, func(a, b queueView) int { return strings.Compare(a.Escaped, b.Escaped) })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "messages\tready\treserved\tdelayed\tdead\tbytes\tage\twaiting\t  queue\n")
	for _, q := range queues {
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%d\t%v\t%d\t  %s\n", q.Items, q.Ready, q.Reserved, q.Delayed, q.Dead, q.Bytes,
			milliseconds(q.AgeMS), q.Waiters, queueName(q.Escaped))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d %s\n", s.Messages.Queues, plural(int(s.Messages.Queues), "queue"))
	return err
}

func queueName(escaped string) string {
	name, err := url.PathUnescape(escaped)
	if err != nil {
		return escaped
	}
	return quoted(name)
}

// milliseconds is a duration for people: whole seconds above one second.
func milliseconds(n int64) time.Duration {
	d := time.Duration(n) * time.Millisecond
	if d > time.Second {
		d = d.Truncate(time.Second)
	}
	return d
}
