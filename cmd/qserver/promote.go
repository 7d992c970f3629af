package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"qserver/replication"
	"qserver/storage"
)

func promoteCommand() command {
	return command{
		name:  "promote",
		usage: "[-admin ADDRESS] [-force]",
		short: "let a slave lead: failover",
		help: `Lets the slave at ADDRESS lead: it stops following, takes writes from then on, and stays the
master over restarts with the command line it has. It does nothing where it leads already.
Be sure that the old master is gone: its clients would go on writing to it, and what they
write is not here. For a switch-over in which nothing is lost: qserver follow.

It refuses where more than -promote-lag records are known to be missing, and where that isn't known.

  -admin ADDRESS            the slave's (127.0.0.1:1978, or QSERVER_ADMIN)
  -force                    in spite of what is missing
  -repl-secret-file FILE    the server's, if it is on another machine
  -admin-ca FILE            its HTTP port speaks TLS, with a certificate signed by one of these
`,
		run: promote,
	}
}

func promote(ctx context.Context, args, environ []string, stdout, _ io.Writer) error {
	a, force := newRemote(environ), false
	if _, err := parseCommand("promote", args, append(a.options(), option{"force", true, toggle(&force)})); err != nil {
		return err
	}
	path := promotePath
	if force {
		path += "?force=true"
	}
	var got roleAnswer
	if err := a.post(ctx, path, &got); err != nil {
		return err
	}
	if !got.Changed {
		_, err := fmt.Fprintf(stdout, "%s leads already, in epoch %d, at record %d\n", a.admin, got.Epoch, got.LSN)
		return err
	}
	fmt.Fprintf(stdout, "%s leads from record %d on, in epoch %d; it was a slave of %s\n", a.admin, got.LSN, got.Epoch, got.Was)
	if got.Missing > 0 {
		fmt.Fprintf(stdout, "known to be missing: %d %s of the old master's\n", got.Missing, plural(int(got.Missing), "record"))
	}
	if got.Warning != "" {
		fmt.Fprintf(stdout, "WARNING: %s\n", got.Warning)
	}
	return nil
}

const (
	promotePath = "/api/v1/promote"
	followPath  = "/api/v1/follow"
)

// roleAnswer is the JSON of both. LSN is where the new role begins.
type roleAnswer struct {
	Role    string `json:"role"` // "master" or "slave"
	Master  string `json:"master,omitempty"`
	Changed bool   `json:"changed"`
	Epoch   uint64 `json:"epoch"`
	LSN     uint64 `json:"lsn"`
	Was     string `json:"was_slave_of,omitempty"`
	Missing uint64 `json:"missing_records"`
	Warning string `json:"warning,omitempty"`
}

func (s *server) servePromote(_ context.Context, r *http.Request) (roleAnswer, error) {
	force := false
	if err := toggle(&force)(cmp.Or(r.URL.Query().Get("force"), "false")); err != nil {
		return roleAnswer{}, refusal(http.StatusBadRequest, "force: %v", err)
	}
	return s.promote(force)
}

// attached is the store while the role may change.
func (r *replica) attached() (*storage.Store, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store == nil {
		return nil, refusal(http.StatusServiceUnavailable, "this server is not ready: it recovers, waits for its first copy, or ends")
	}
	return r.store, nil
}

// promote lets this server lead.
func (s *server) promote(force bool) (roleAnswer, error) {
	r := s.replica
	r.change.Lock()
	defer r.change.Unlock()
	st, err := r.attached()
	if err != nil {
		return roleAnswer{}, err
	}
	a := roleAnswer{Role: "master", Was: st.Master()}
	if a.Was == "" {
		id := replication.IdentityOf(st)
		a.Epoch, a.LSN = id.Epoch, id.Position.LSN
		return a, nil
	}
	if slave := r.following(); slave != nil {
		ms := slave.Status()
		if why := s.tooFarBehind(&ms); why != "" && !force {
			return a, refusal(http.StatusConflict, "not promoted: %s; to promote it all the same: -force", why)
		}
		if ms.State == replication.StateFollowing {
			a.Warning = fmt.Sprintf("the master %s was still there; unless it ends there are two, and what its clients write is not here", ms.Address)
		}
		s.stopFollowing()
		a.Missing = slave.Status().Lag.Records
	}
	// The file comes first: whoever crashes now leads after its start.
	if err := s.writeRole(""); err != nil {
		s.startFollowing(a.Was)
		return a, fmt.Errorf("note the role in the data folder: %w", err)
	}
	begin := st.Position().LSN
	if err := st.Promote(); err != nil {
		return a, fmt.Errorf("begin an epoch: %w", err)
	}
	r.mu.Lock()
	r.address = ""
	r.mu.Unlock()
	a.Changed, a.LSN, a.Epoch = true, begin+1, replication.IdentityOf(st).Epoch
	s.log.Warn("promoted: this server leads", "was_slave_of", a.Was, "lsn", a.LSN, "epoch", a.Epoch, "missing_records", a.Missing)
	return a, nil
}

// tooFarBehind says why a slave should not be promoted; "": it may be.
func (s *server) tooFarBehind(ms *replication.MasterStatus) string {
	limit := uint64(s.config.promoteLag)
	switch {
	case ms.Lag.Records > limit:
		return fmt.Sprintf("%d records of the master's are missing here (%.1f s; the limit, -promote-lag, is %d)", ms.Lag.Records,
			ms.Lag.Time.Seconds(), limit)
	case ms.State == replication.StateCopying:
		return "it is getting a copy since the master's log did not reach back to it: what it has is old"
	case ms.Refused != nil && ms.Refused.Code != replication.CodeNotReady:
		return "the master has refused it: " + ms.Refused.Text
	case ms.LSN == 0:
		return "how many records are missing here is not known: it has not reached its master since it started"
	}
	return ""
}

// refusedError is an answer with a status of its own.
type refusedError struct {
	status int
	text   string
}

func (e *refusedError) Error() string { return e.text }

func refusal(status int, format string, args ...any) error {
	return &refusedError{status, fmt.Sprintf(format, args...)}
}

func statusFor(err error) int {
	if r, ok := errors.AsType[*refusedError](err); ok {
		return r.status
	}
	return http.StatusInternalServerError
}

// lastLine is an error's text in one line.
func lastLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
