package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// hashed is a password's hash of the least cost, so that tests don't take long.
func hashed(t testing.TB, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(hash)
}

func TestParseAccounts(t *testing.T) {
	hash := hashed(t, "x")
	apache := "$2y$05$" + hash[7:] // as htpasswd -B writes it
	const wantHash = "behind the name there must be a colon and a bcrypt hash, as qserver passwd and htpasswd -B make them"
	const wantName = "want a user's name of 1 to 250 bytes without blanks, colons and control characters"
	for _, tt := range []struct{ text, users, err string }{
		{"a:" + hash, "a", ""},
		{"# users\n\n  \na:" + hash + "\r\nb:" + apache + "\n", "a b", ""},
		{"a:" + hash + "\nb:secret\n", "", "f:2: " + wantHash},
		{"secret\n", "", "f:1: " + wantHash},
		{"a:" + hash[:59], "", "f:1: " + wantHash},
		{"a:" + hash[:59] + "!", "", "f:1: " + wantHash},
		{"a:$1$" + hash[4:], "", "f:1: " + wantHash},
		{"a:" + hash + ":x", "", "f:1: " + wantHash},
		{"a:$2a$15$" + hash[7:], "", "f:1: a bcrypt hash of cost 15 takes too long: want at most 14"},
		{"\n:" + hash, "", "f:2: " + wantName},
		{"a b:" + hash, "", "f:1: " + wantName},
		{strings.Repeat("a", 250) + ":" + hash, strings.Repeat("a", 250), ""},
		{strings.Repeat("a", 251) + ":" + hash, "", "f:1: " + wantName},
		{"a:" + hash + "\nb:" + hash + "\na:" + apache, "", "f:3: user a is there twice"},
		{"# nobody\n", "", "f: no user is in it, so nobody could log in; add one: qserver passwd f USER"},
	} {
		got, err := parseAccounts("f", []byte(tt.text))
		var users []string
		for _, name := range []string{"a", "b", strings.Repeat("a", 250)} {
			if got[name] != nil {
				users = append(users, name)
			}
		}
		if errText(err) != tt.err || strings.Join(users, " ") != tt.users {
			t.Errorf("%.80q: got %q, error %q, want %q, %q", tt.text, users, errText(err), tt.users, tt.err)
		}
		if strings.Contains(errText(err), "secret") {
			t.Errorf("%q: the error shows what may be a password", tt.text)
		}
	}
}

func writeAccounts(t testing.TB, path string, users ...string) {
	t.Helper()
	var text strings.Builder
	for i := 0; i < len(users); i += 2 {
		fmt.Fprintf(&text, "%s:%s\n", users[i], hashed(t, users[i+1]))
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAccounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	long := strings.Repeat("l", maxPassword)
	writeAccounts(t, path, "ann", "secret", "bob", long)
	a, err := openAccounts(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string, rows map[[2]string]bool) {
		t.Helper()
		for login, want := range rows {
			if want && a.Remembers(login[0], login[1]) && when == "at first" {
				t.Errorf("%s: remembered before the first login", login[0])
			}
			for range 2 {
				got := a.Verify(t.Context(), login[0], login[1])
				if remembered := a.Remembers(login[0], login[1]); got != want || remembered != want {
					t.Errorf("%s: %s with %.80q: got %v, remembered %v, want %v", when, login[0], login[1], got, remembered, want)
				}
			}
		}
	}
	check("at first", map[[2]string]bool{
		{"ann", "secret"}: true, {"ann", "Secret"}: false, {"ann", "secret "}: false, {"ann", ""}: false,
		{"bob", long}: true, {"bob", long + "l"}: false, {"bob", "secret"}: false, {"nobody", "secret"}: false, {"", ""}: false,
	})
	if !a.Known("ann") || a.Known("nobody") {
		t.Error("Known does not know who is in the file")
	}

	// A changed password is not remembered, an account that is gone is gone, a file that does not hold changes nothing.
	writeAccounts(t, path, "ann", "new", "cid", "secret")
	if err := a.reload(); err != nil {
		t.Fatal(err)
	}
	after := map[[2]string]bool{{"ann", "secret"}: false, {"ann", "new"}: true, {"bob", long}: false, {"cid", "secret"}: true}
	check("after a change", after)
	if err := os.WriteFile(path, []byte("ann:secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.reload(); !strings.HasPrefix(errText(err), path+":1: ") {
		t.Errorf("got %v, want an error with the place", err)
	}
	check("after a bad file", after)
}

// The decoy costs what a real hash does, else the time would tell which users exist.
func TestDecoy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	writeAccounts(t, path, "ann", "secret")
	a, err := openAccounts(path)
	if err != nil {
		t.Fatal(err)
	}
	decoy := a.users.Load().decoy
	err = bcrypt.CompareHashAndPassword(decoy, []byte("x"))
	cost, _ := bcrypt.Cost(decoy)
	if !errors.Is(err, bcrypt.ErrMismatchedHashAndPassword) || cost != bcrypt.MinCost {
		t.Errorf("got %v, cost %d", err, cost)
	}
}

// While every core that may check passwords is at work, a login that is remembered goes through, another waits as long as it may.
func TestVerifyIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	writeAccounts(t, path, "ann", "secret")
	a, err := openAccounts(path)
	if err != nil {
		t.Fatal(err)
	}
	if !a.Verify(t.Context(), "ann", "secret") {
		t.Fatal("the right password is refused")
	}
	for range cap(a.working) {
		a.working <- struct{}{}
	}
	if !a.Remembers("ann", "secret") || a.Remembers("ann", "wrong") || a.Remembers("nobody", "") {
		t.Error("only the right password should be remembered")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if a.Verify(ctx, "ann", "wrong") || ctx.Err() == nil {
		t.Error("a login was checked though no core was free")
	}
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if a.Verify(t.Context(), "ann", "wrong") {
				t.Error("a wrong password is taken")
			}
		})
	}
	for range cap(a.working) {
		<-a.working
	}
	wg.Wait()
}

func BenchmarkRemembered(b *testing.B) {
	path := filepath.Join(b.TempDir(), "users")
	writeAccounts(b, path, "ann", "secret")
	a, err := openAccounts(path)
	if err != nil {
		b.Fatal(err)
	}
	if !a.Verify(b.Context(), "ann", "secret") {
		b.Fatal("refused")
	}
	for b.Loop() {
		if !a.Remembers("ann", "secret") {
			b.Fatal("refused")
		}
	}
}
