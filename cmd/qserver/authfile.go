package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/crypto/bcrypt"
)

// The auth file has a line for each user: name, colon, bcrypt hash. Empty lines and those that begin with # mean nothing.
const (
	maxUser     = 250 // bytes
	maxPassword = 72  // bytes: bcrypt looks at no more
	maxCost     = 14  // of bcrypt: about a second of CPU
)

// accounts are the users of an auth file. They are a memcache.Accounts.
type accounts struct {
	path    string
	users   atomic.Pointer[userList]
	working chan struct{} // has an element for each password that is being hashed: others wait
	key     []byte        // of the sums in known

	mu    sync.Mutex                   // guards known
	known map[string][sha256.Size]byte // the last right login of each user, so that it costs no bcrypt again
}

// userList is what an auth file says.
type userList struct {
	hashes map[string][]byte // by user
	decoy  []byte            // compared with where there is no such user, so that the time does not tell
}

// newDecoy is nobody's hash, of that cost.
func newDecoy(cost int) []byte {
	return fmt.Appendf(nil, "$2a$%02d$7EqJtq98hPqEX7fNZaFWoOhi5CXP4CKnFzWc6oyWJzr1nB9pE8xTe", cost)
}

// openAccounts reads the auth file; at most half of the cores will check passwords.
func openAccounts(path string) (*accounts, error) {
	a := &accounts{
		path:    path,
		working: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		key:     make([]byte, sha256.Size),
		known:   make(map[string][sha256.Size]byte),
	}
	rand.Read(a.key)
	return a, a.reload()
}

// reload reads the file anew. After an error the accounts are as before.
func (a *accounts) reload() error {
	text, err := os.ReadFile(a.path)
	if err != nil {
		return err
	}
	hashes, err := parseAccounts(a.path, text)
	if err != nil {
		return err
	}
	cost := 0
	for _, hash := range hashes {
		c, err := bcrypt.Cost(hash)
		if err != nil {
			return err
		}
		cost = max(cost, c)
	}
	a.users.Store(&userList{hashes, newDecoy(cost)})
	return nil
}

// parseAccounts reads the text of an auth file; errors begin with path:line.
func parseAccounts(path string, text []byte) (map[string][]byte, error) {
	hashes := make(map[string][]byte)
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		name, hash, _ := strings.Cut(string(line), ":")
		err := checkUser(name)
		if err == nil {
			err = checkHash([]byte(hash))
		}
		if err == nil && hashes[name] != nil {
			err = fmt.Errorf("user %s is there twice", name)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		hashes[name] = []byte(hash)
	}
	if len(hashes) == 0 {
		return nil, fmt.Errorf("%s: no user is in it, so nobody could log in; add one: qserver passwd %s USER", path, path)
	}
	return hashes, nil
}

func checkUser(name string) error {
	if name == "" || len(name) > maxUser || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || r == ':' }) {
		return fmt.Errorf("want a user's name of 1 to %d bytes without blanks, colons and control characters", maxUser)
	}
	return nil
}

// checkHash says what is wrong with a hash, never the hash itself: it may be a password by mistake.
func checkHash(hash []byte) error {
	const alphabet = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	cost, err := bcrypt.Cost(hash)
	if err != nil || len(hash) != 60 || hash[3] != '$' || len(bytes.Trim(hash[7:], alphabet)) > 0 {
		return errors.New("behind the name there must be a colon and a bcrypt hash, as qserver passwd and htpasswd -B make them")
	}
	if cost > maxCost {
		return fmt.Errorf("a bcrypt hash of cost %d takes too long: want at most %d", cost, maxCost)
	}
	return nil
}

func (a *accounts) hash(user string) []byte { return a.users.Load().hashes[user] }

// Known says whether there is a user of that name.
func (a *accounts) Known(user string) bool { return a.hash(user) != nil }

// Remembers says whether a login is the user's last right one.
func (a *accounts) Remembers(user, password string) bool {
	hash := a.hash(user)
	if hash == nil {
		return false
	}
	sum := a.sum(user, password, hash)
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.known[user]
	return ok && hmac.Equal(known[:], sum[:])
}

// Verify says whether the password is the user's. It is false if ctx is over before there is a core to find out.
func (a *accounts) Verify(ctx context.Context, user, password string) bool {
	hash := a.hash(user)
	exists := hash != nil && len(password) <= maxPassword
	if !exists {
		hash = a.users.Load().decoy
	}
	select {
	case a.working <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-a.working }()
	right := bcrypt.CompareHashAndPassword(hash, []byte(password[:min(len(password), maxPassword)])) == nil && exists
	if right {
		a.remember(user, a.sum(user, password, hash))
	}
	return right
}

// sum is a login's keyed hash. The stored hash is part of it, so a password that was changed is not remembered.
func (a *accounts) sum(user, password string, hash []byte) (sum [sha256.Size]byte) {
	h := hmac.New(sha256.New, a.key)
	for _, part := range []string{user, string(hash), password} { // neither of the first two can hold a NUL
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	h.Sum(sum[:0])
	return sum
}

func (a *accounts) remember(user string, sum [sha256.Size]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known[user] = sum
}
