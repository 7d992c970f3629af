package replication

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"qserver/storage"
	"qserver/storage/ulog"
)

// ErrCopyReady is returned by Run when a whole copy of the master's tree lies in the folder: close the store, open it again,
// which installs the copy, and run on with it.
var ErrCopyReady = errors.New("a copy of the master's tree is ready: open the folder again")

// Slave follows a master. Its fields are options, not to be changed once it runs; Store, Dir, SID and Address are needed.
type Slave struct {
	SID      int    // 1 to 65535, not the master's
	Address  string // host:port of the master's HTTP port
	Store    *storage.Store
	Dir      string        // the store's folder: a copy is received there
	Secret   []byte        // to be proven to the master, and by it; empty: none
	Interval time.Duration // pause for each record, as Kyoto Tycoon's -riv
	Version  string
	Log      *slog.Logger // discards if nil

	// TLS is asked before each connection for what the master's certificate is verified with; nil, or if it returns nil: the
	// master's HTTP port speaks no TLS.
	TLS func() *tls.Config
	// Dial connects to the master; nil: HTTP with an upgrade, to Address.
	Dial func(ctx context.Context) (net.Conn, error)

	mu     sync.Mutex
	status MasterStatus
	lag    lagClock
	at     uint64 // LSN that is applied
	behind int64  // bytes of the master's log behind what was received
}

// Waits between two attempts.
const (
	retryFirst   = 100 * time.Millisecond
	retryMost    = 5 * time.Second
	retryRefused = 5 * time.Second
)

// Run follows the master until ctx ends, and connects again whenever the connection ends. It returns nil when ctx ended,
// ErrCopyReady, or what is wrong with the store for good: its log has failed, it was closed, it leads.
func (s *Slave) Run(ctx context.Context) error {
	s.mu.Lock()
	s.at = s.Store.Position().LSN
	s.lag.came(s.at)
	s.mu.Unlock()
	s.set(StateConnecting, nil)
	wait := retryFirst
	for ctx.Err() == nil {
		begin := time.Now()
		err := s.once(ctx)
		if ctx.Err() != nil {
			break
		}
		if s.final(err) {
			return err
		}
		if time.Since(begin) > retryMost {
			wait = retryFirst
		}
		pause := wait/2 + rand.N(wait/2)
		var refused *Refused
		if errors.As(err, &refused) && refused.Code != CodeNotReady { // somebody has to do something
			pause = retryRefused + rand.N(retryRefused/5)
		}
		s.failed(err)
		wait = min(2*wait, retryMost)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// final says whether another attempt is of no use.
func (s *Slave) final(err error) bool {
	for _, e := range []error{ErrCopyReady, storage.ErrClosed, storage.ErrNotFollowing, storage.ErrFailed, storage.ErrUnknownOutcome} {
		if errors.Is(err, e) {
			return true
		}
	}
	return s.Store.Err() != nil
}

// failed notes why the connection ended, and tells it where it is news.
func (s *Slave) failed(err error) {
	state := StateConnecting
	var refused *Refused
	if errors.As(err, &refused) {
		state = StateRefused
	}
	s.mu.Lock()
	news := s.status.State != state || s.status.Error != err.Error()
	if s.status.State == StateFollowing || s.status.State == StateCopying {
		s.status.Reconnect++
	}
	s.mu.Unlock()
	s.set(state, err)
	if news {
		s.log().Warn("not following the master; trying again", "master", s.Address, "error", err)
	}
}

func (s *Slave) set(state State, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.State != state {
		s.status.Since = time.Now()
	}
	s.status.Address, s.status.State, s.status.Error, s.status.Refused = s.Address, state, "", nil
	if err != nil {
		s.status.Error = err.Error()
		errors.As(err, &s.status.Refused)
	}
}

// Status is the master as this slave sees it.
func (s *Slave) Status() MasterStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status
	st.Lag = Lag{behind(st.LSN, s.at), 0, s.lag.lag(time.Now())}
	if st.Lag.Records > 0 {
		st.Lag.Bytes = s.behind
	}
	if st.State != StateFollowing { // since nobody tells what there is
		st.Lag.Time = max(st.Lag.Time, time.Since(st.Since))
	}
	return st
}

// once is one connection.
func (s *Slave) once(ctx context.Context) error {
	dialing, cancel := context.WithTimeout(ctx, talkTimeout)
	defer cancel()
	dial := s.Dial
	if dial == nil {
		dial = s.dialHTTP
	}
	conn, err := dial(dialing)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	l := newLink(conn, nil)
	w, err := s.greet(l)
	if err != nil {
		if ended(err) {
			err = fmt.Errorf("the master closed the connection: %w", err)
		}
		return err
	}
	s.mu.Lock()
	s.status.SID = int(w.sid)
	s.mu.Unlock()
	if w.mode == modeCopy {
		return s.receiveCopy(ctx, l)
	}
	s.set(StateFollowing, nil)
	s.log().Info("following the master", "master", s.Address, "lsn", s.Store.Position().LSN, "epoch", w.epoch)
	err = s.follow(ctx, l)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the master closed the connection: %w", err)
	}
	return err
}

// greet shows who is here, and finds out whether it is the master.
func (s *Slave) greet(l *link) (*welcome, error) {
	h := hello{sid: uint16(s.SID), node: s.Store.Node(), history: s.Store.History(), position: s.Store.Position(), nonce: newNonce(),
		epochs: s.Store.Epochs(), version: s.Version}
	if s.Store.NeedsCopy() {
		h.position = ulog.Position{} // what it has is not whole
	}
	frame := h.append(nil)
	payload := frame[frameHeaderLen:]
	if err := l.send(frame); err != nil {
		return nil, err
	}
	var c challenge
	if _, err := l.expect(kindChallenge, &c); err != nil {
		return nil, err
	}
	if !c.proof && len(s.Secret) > 0 {
		return nil, errors.New("the master asks for no secret: give both the same -repl-secret-file, or neither any")
	}
	p := proof{prove(s.Secret, slaveSide, c.nonce, payload)}
	if err := l.send(p.append(nil)); err != nil {
		return nil, err
	}
	w := new(welcome)
	if err := s.awaitWelcome(l, w); err != nil {
		return nil, err
	}
	if len(s.Secret) > 0 && !proven(s.Secret, masterSide, c.nonce, payload, w.mac) {
		return nil, errors.New("the master does not know the secret: it is not the one that it seems to be")
	}
	return w, nil
}

// awaitWelcome answers what the master asks of this slave's log until it decides.
func (s *Slave) awaitWelcome(l *link, w *welcome) error {
	for range maxAsks {
		kind, payload, err := l.next(searchTimeout)
		switch {
		case err != nil:
			return err
		case kind == kindAsk:
			err = s.answerSums(l, payload)
		case kind == kindRefused:
			r := new(Refused)
			return cmp.Or[error](r.parse(payload), r)
		case kind == kindWelcome:
			return w.parse(payload)
		default:
			err = fmt.Errorf("%w: kind %d where %d belongs", ErrFrame, kind, kindWelcome)
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: the master asks for ever", ErrFrame)
}

// maxAsks is how many times a master may ask a slave: a log of 2^64 records needs fewer.
const maxAsks = 64

func (s *Slave) log() *slog.Logger {
	if s.Log != nil {
		return s.Log
	}
	return slog.New(slog.DiscardHandler)
}
