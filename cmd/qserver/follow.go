package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"qserver/replication"
	"qserver/storage"
)

func followCommand() command {
	return command{
		name:  "follow",
		usage: "[flags] HOST:PORT",
		short: "hand over to a slave and follow it: planned switch-over",
		help: `Makes the server at ADDRESS follow the one whose HTTP port is HOST:PORT. A master hands over to
its slave there, and nothing is lost: it waits until the slave is near, refuses writes from then
on (SERVER_ERROR read-only), waits until the slave has every record on its disk, lets it lead,
and follows it. That takes milliseconds. Clients have to be sent to the new master. What they
hold of the old one is delivered again. Where anything fails before the slave leads, the master
goes on as it was.
A slave is made to follow another server, which must have the same history.

  -admin ADDRESS            the server that is to follow (127.0.0.1:1978, or QSERVER_ADMIN)
  -timeout DURATION         how long each of the two waits may take (10s)
  -repl-secret-file FILE    the server's, if it is on another machine
  -admin-ca FILE            its HTTP port speaks TLS, with a certificate signed by one of these
`,
		run: follow,
	}
}

func follow(ctx context.Context, args, environ []string, stdout, _ io.Writer) error {
	r, timeout := newRemote(environ), defaultHandOver
	operands, err := parseCommand("follow", args, append(r.options(), option{"timeout", false, duration(&timeout, time.Millisecond, time.Minute)}),
		"HOST:PORT")
	if err != nil {
		return err
	}
	var to string
	if err := address(&to)(operands[0]); err != nil {
		return usageError("follow %s: %w", operands[0], err)
	}
	var got roleAnswer
	uri := followPath + "?" + url.Values{"master": {to}, "timeout": {timeout.String()}}.Encode()
	if err := r.post(ctx, uri, &got); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s follows %s from record %d on\n", r.admin, got.Master, got.LSN)
	return err
}

const (
	defaultHandOver = 10 * time.Second
	nearRecords     = 1000 // a slave no further behind is waited for with writes refused
)

func (s *server) serveFollow(ctx context.Context, r *http.Request) (roleAnswer, error) {
	q := r.URL.Query()
	var to string
	timeout := defaultHandOver
	if err := address(&to)(q.Get("master")); err != nil {
		return roleAnswer{}, refusal(http.StatusBadRequest, "master=%s: %v", q.Get("master"), err)
	}
	if text := q.Get("timeout"); text != "" {
		if err := duration(&timeout, time.Millisecond, time.Minute)(text); err != nil {
			return roleAnswer{}, refusal(http.StatusBadRequest, "timeout=%s: %v", text, err)
		}
	}
	return s.follow(ctx, to, timeout)
}

// peerStatus is what is needed of another server's /api/v1/replication.
type peerStatus struct {
	Role    string
	SID     int
	Node    string
	History string
	Epoch   uint64
	LSN     uint64
}

func (s *server) askPeer(ctx context.Context, address string) (p peerStatus, err error) {
	ctx, cancel := context.WithTimeout(ctx, shortAnswers)
	defer cancel()
	return p, s.port(address).ask(ctx, http.MethodGet, "/api/v1/replication", nil, &p)
}

// follow makes this server follow the one at address.
func (s *server) follow(ctx context.Context, address string, timeout time.Duration) (roleAnswer, error) {
	r := s.replica
	r.change.Lock()
	defer r.change.Unlock()
	a := roleAnswer{Role: "slave", Master: address}
	st, err := r.attached()
	if err != nil {
		return a, err
	}
	id := replication.IdentityOf(st)
	a.Was, a.LSN, a.Epoch = st.Master(), id.Position.LSN, id.Epoch
	if a.Was == address && r.following() != nil {
		return a, nil
	}
	if s.config.sid == 0 {
		return a, refusal(http.StatusConflict, "this server has no number among slaves: it needs -sid")
	}
	peer, err := s.askPeer(ctx, address)
	switch {
	case err != nil:
		return a, refusal(http.StatusBadGateway, "%v", err)
	case peer.Node == id.Node:
		return a, refusal(http.StatusConflict, "%s is this server itself", address)
	case peer.History != id.History:
		return a, refusal(http.StatusConflict, "%s has another history: neither is a copy of the other", address)
	}
	if a.Was != "" {
		return a, s.turnTo(address, &a)
	}
	if peer.Role != "slave" {
		return a, refusal(http.StatusConflict, "%s leads itself: stop this server, and start it as a slave; if it has records of its own: qserver rejoin", address)
	}
	if err := s.handOver(ctx, st, address, &peer, timeout, &a); err != nil {
		return a, err
	}
	s.startFollowing(address)
	a.Changed = true
	s.log.Warn("handed over: this server follows", "master", address, "lsn", a.LSN)
	return a, nil
}

// turnTo makes a slave follow another server.
func (s *server) turnTo(address string, a *roleAnswer) error {
	if err := s.writeRole(address); err != nil {
		return fmt.Errorf("note the role in the data folder: %w", err)
	}
	s.stopFollowing()
	if err := s.replica.store.Turn(address); err != nil {
		return err
	}
	s.startFollowing(address)
	a.Changed = true
	s.log.Warn("this slave follows another server", "master", address, "was_slave_of", a.Was)
	return nil
}

// handOver lets the slave at address lead. Before that is so this server leads again where anything fails; where it can't be known
// this server leads no more.
func (s *server) handOver(ctx context.Context, st *storage.Store, address string, peer *peerStatus, timeout time.Duration, a *roleAnswer) error {
	name := fmt.Sprint(peer.SID)
	lsn := st.SyncedLSN()
	if err := s.waitFor(ctx, name, lsn-min(lsn, nearRecords), timeout); err != nil {
		return err
	}
	begin := time.Now()
	if err := st.Yield(address); err != nil {
		return fmt.Errorf("stop writes: %w", err)
	}
	a.LSN = st.Position().LSN
	err := s.waitFor(ctx, name, a.LSN, timeout)
	if err == nil {
		err = s.writeRole(address) // whoever crashes now doesn't lead after its start
	}
	if err != nil {
		return s.leadAgain(st, err)
	}
	var got roleAnswer
	err = s.port(address).ask(ctx, http.MethodPost, promotePath+"?force=true", s.secret, &got)
	if err != nil {
		// It may have happened all the same.
		now, again := s.askPeer(context.WithoutCancel(ctx), address)
		switch {
		case again != nil:
			return refusal(http.StatusBadGateway, "%s has everything; whether it leads is not known: %v. This server takes no writes now."+
				" When %s can be asked again: if it leads, repeat this; if not, qserver promote -force for the one that is to lead", address, err, address)
		case now.Role != "master":
			return s.leadAgain(st, refusal(http.StatusBadGateway, "%s has everything and does not lead: %v", address, err))
		}
		got.Epoch = now.Epoch
	}
	a.Epoch = got.Epoch
	s.log.Info("the slave leads", "master", address, "lsn", a.LSN, "seconds_without_writes", time.Since(begin).Seconds())
	return nil
}

// leadAgain undoes Yield after err.
func (s *server) leadAgain(st *storage.Store, err error) error {
	return errors.Join(err, s.writeRole(""), st.Promote())
}

// waitFor waits until the slave of this name has everything up to lsn on its disk.
func (s *server) waitFor(ctx context.Context, name string, lsn uint64, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		durable, changed := s.replica.master.Acked()
		have, connected := durable[name]
		switch {
		case !connected:
			return refusal(http.StatusConflict, "the slave with -sid %s does not follow this server now", name)
		case have >= lsn:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return refusal(http.StatusGatewayTimeout, "the slave with -sid %s is %d records behind after %v; this server leads on", name, lsn-have, timeout)
		}
	}
}
