package memcache_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"qserver/protocol/memcache"
	"qserver/storage"
)

// accounts is a list of users and their passwords; each check takes so long.
type accounts struct {
	cost time.Duration

	mu         sync.Mutex // guards the fields below
	users      map[string]string
	asked      int
	remembered string // a user and his password
}

func newAccounts() *accounts {
	return &accounts{users: map[string]string{"user": "pass", "other": "two  words\x00\"\xff "}}
}

func (a *accounts) Known(user string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.users[user]
	return ok
}

func (a *accounts) Verify(ctx context.Context, user, password string) bool {
	select {
	case <-time.After(a.cost):
	case <-ctx.Done():
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	want, ok := a.users[user]
	return ok && want == password
}

func (a *accounts) Remembers(user, password string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.remembered != "" && a.remembered == user+" "+password
}

// checked is how often Verify was asked.
func (a *accounts) checked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

func (a *accounts) set(user, password string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users[user] = password; password == "" {
		delete(a.users, user)
	}
}

func loginLine(user, password string) string {
	return fmt.Sprintf("set x 0 0 %d\r\n%s %s\r\n", len(user)+1+len(password), user, password)
}

// Whoever guesses has four guesses a second; somebody else's login, and another user's from the same address, are not held up.
func TestGuessingIsSlow(t *testing.T) {
	a := newAccounts()
	bubble(t, func(s *memcache.Server, _ *storage.Options) { s.Accounts = a }, func(t *testing.T, s *server) {
		const guesses = 20
		for i := range guesses {
			s.dial().send(loginLine("user", fmt.Sprint(i)))
		}
		s.dial().send(loginLine("nobody", "x"))
		synctest.Wait()
		if n := a.checked(); n != 4+1 {
			t.Errorf("at once: %d logins were checked, want 4 and that of an unknown user", n)
		}
		s.dial().do(loginLine("other", a.users["other"]), "STORED\r\n")
		sleep(1)
		synctest.Wait()
		if n := a.checked(); n != 8+2 {
			t.Errorf("after 1 s: %d logins were checked, want 8 and two of others", n)
		}
		last := s.dial()
		last.send(loginLine("user", "pass"))
		sleep(3)
		last.wantNothing()
		sleep(1)
		last.want("STORED\r\n") // behind the others, in their order
		sleep(6)
		if st := s.Stats(); st.AuthCmds != guesses+3 || st.AuthErrors != guesses+1 {
			t.Errorf("got %d logins, %d of them wrong, want %d, %d", st.AuthCmds, st.AuthErrors, guesses+3, guesses+1)
		}
	})
}

// Workers with an old password don't keep out one whose login is remembered, until so many of them wait that a quick answer would
// tell a guess.
func TestRememberedLoginDoesNotWait(t *testing.T) {
	a := newAccounts()
	a.remembered = "user pass"
	bubble(t, func(s *memcache.Server, _ *storage.Options) { s.Accounts = a }, func(t *testing.T, s *server) {
		for range 4 + 63 {
			s.dial().send(loginLine("user", "old"))
		}
		s.dial().do(loginLine("user", "pass"), "STORED\r\n")
		s.dial().send(loginLine("user", "old"))
		synctest.Wait()
		refused := s.dial()
		refused.send(loginLine("user", "pass"))
		refused.wantEnd()
		if n := a.checked(); n != 4 {
			t.Errorf("%d logins were checked, want 4", n)
		}
		sleep(6)
		s.dial().do(loginLine("user", "pass"), "STORED\r\n")
	})
}

// A thousand wrong passwords, one after another over new connections: each takes its second, and at the end nothing is left.
func TestThousandWrongPasswords(t *testing.T) {
	bubble(t, func(s *memcache.Server, _ *storage.Options) { s.Accounts = newAccounts() }, func(t *testing.T, s *server) {
		start := time.Now()
		for i := 0; i < 1000; i += 3 {
			c := s.dial()
			for range 3 {
				c.send(loginLine("user", "wrong"))
				sleep(1)
				c.want("CLIENT_ERROR unauthenticated\r\n")
			}
			c.wantEnd()
		}
		if took := time.Since(start); took < 1000*time.Second {
			t.Errorf("it took %v", took)
		}
		if st := s.Stats(); st.AuthErrors != 1002 || st.CurrConnections != 0 {
			t.Errorf("got %d wrong logins, %d connections", st.AuthErrors, st.CurrConnections)
		}
	})
}

// A login that does not get its turn, or its answer, within 5 s is no wrong one, and its connection ends.
func TestLoginIsLate(t *testing.T) {
	a := newAccounts()
	a.cost = time.Minute
	bubble(t, func(s *memcache.Server, _ *storage.Options) { s.Accounts = a }, func(t *testing.T, s *server) {
		var all []*client
		for range 6 {
			c := s.dial()
			c.send(loginLine("user", "pass"))
			all = append(all, c)
		}
		sleep(4.9)
		for _, c := range all {
			c.wantNothing()
		}
		sleep(0.1)
		for _, c := range all {
			c.wantEnd()
		}
		if st := s.Stats(); st.AuthErrors != 0 || st.CurrConnections != 0 {
			t.Errorf("got %d wrong logins, %d connections", st.AuthErrors, st.CurrConnections)
		}
	})
}

// Commands before the login are refused; too many of them end the connection.
func TestRefusedCommandsEnd(t *testing.T) {
	s := start(t, tcp, func(s *memcache.Server, _ *storage.Options) { s.Accounts = newAccounts() })
	c := s.dial()
	c.do(repeat("get q\r\n", 15), repeat("CLIENT_ERROR unauthenticated\r\n", 15))
	c.do("version\r\n", "CLIENT_ERROR unauthenticated\r\n")
	c.wantEnd()
}

// An account that is taken away ends the connections of its user, at once; a changed password ends none.
func TestAccountsChange(t *testing.T) {
	a := newAccounts()
	bubble(t, func(s *memcache.Server, _ *storage.Options) { s.Accounts = a }, func(t *testing.T, s *server) {
		one, two, outside := s.dial(), s.dial(), s.dial()
		one.do(loginLine("user", "pass")+"set q 0 0 1\r\na\r\nget q\r\n", "STORED\r\nSTORED\r\nVALUE q 0 1\r\na\r\nEND\r\n")
		two.do(loginLine("other", a.users["other"]), "STORED\r\n")
		gone := func(user string) bool { return !a.Known(user) }

		a.set("user", "new")
		if n := s.CloseUsers(gone); n != 0 {
			t.Errorf("a changed password closed %d connections", n)
		}
		one.do("delete q\r\nset q 0 0 1\r\nb\r\nget q\r\n", "DELETED\r\nSTORED\r\nVALUE q 0 1\r\nb\r\nEND\r\n")
		three := s.dial()
		three.send(loginLine("user", "pass"))
		sleep(1)
		three.want("CLIENT_ERROR unauthenticated\r\n")
		three.do(loginLine("user", "new"), "STORED\r\n")

		a.set("user", "")
		if n := s.CloseUsers(gone); n != 2 {
			t.Errorf("an account that is gone closed %d connections, want 2", n)
		}
		one.wantEnd()
		three.wantEnd()
		two.do("get q\r\n", "VALUE q 0 1\r\nb\r\nEND\r\n")
		outside.do("quit\r\n", "")
		outside.wantEnd()
	})
}

// What is sent as a password is in no log line, nor is a name that nobody has: it may be one by mistake.
func TestLogHasNoPassword(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		s := start(t, pipes, func(s *memcache.Server, _ *storage.Options) {
			s.Accounts = newAccounts()
			s.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		c := s.dial()
		c.send(loginLine("user", "hunter2"))
		sleep(61)
		c = s.dial()
		c.send(loginLine("hunter2", "user"))
		sleep(61)
		s.dial().send(binaryRequest(0x21, nil, "PLAIN", "\x00hunter2\x00hunter2", 0, 0))
		sleep(61)
	})
	text := log.String()
	if strings.Contains(text, "hunter2") || strings.Count(text, "login refused") != 3 || !strings.Contains(text, "user=user") {
		t.Errorf("got %s", text)
	}
}

// A shutdown does not wait for those who are at the door.
func TestShutdownAtTheDoor(t *testing.T) {
	a := newAccounts()
	a.cost = time.Minute
	bubble(t, func(s *memcache.Server, _ *storage.Options) { s.Accounts = a }, func(t *testing.T, s *server) {
		silent, checked, penalised := s.dial(), s.dial(), s.dial()
		checked.send(loginLine("user", "pass"))
		penalised.send("set x")
		synctest.Wait()
		before := time.Now()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(before); took > time.Second {
			t.Errorf("it took %v", took)
		}
		silent.wantEnd()
		checked.wantEnd()
		penalised.wantEnd()
	})
}

// Without accounts nothing is different: a login is an enqueue, as it was.
func TestNoAccounts(t *testing.T) {
	s := start(t, tcp, nil)
	c := s.dial()
	c.do(loginLine("user", "pass")+"get x\r\n", "STORED\r\nVALUE x 0 9\r\nuser pass\r\nEND\r\n")
}
