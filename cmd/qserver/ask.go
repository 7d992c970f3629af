package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Commands that change a server's role are taken from its own machine, and from others only with a proof that they know the
// -repl-secret-file: an HMAC-SHA256 under it of method, path with query, and time, which is good for five minutes.

const (
	proofHeader  = "Qserver-Proof"
	proofGood    = 5 * time.Minute
	roleTimeout  = 2 * time.Minute
	answerLimit  = 1 << 20
	shortAnswers = 5 * time.Second
)

func proofOf(secret []byte, method, uri string, at int64) string {
	h := hmac.New(sha256.New, secret)
	fmt.Fprintf(h, "%s %s %d", method, uri, at)
	return fmt.Sprintf("%d:%s", at, hex.EncodeToString(h.Sum(nil)))
}

func proofHolds(secret []byte, r *http.Request, now time.Time) bool {
	text := r.Header.Get(proofHeader)
	stamp, _, _ := strings.Cut(text, ":")
	at, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || len(secret) == 0 {
		return false
	}
	age := now.Sub(time.Unix(at, 0)).Abs()
	return age < proofGood && hmac.Equal([]byte(text), []byte(proofOf(secret, r.Method, r.URL.RequestURI(), at)))
}

// roleHandler answers a POST that changes the role.
func (s *server) roleHandler(serve func(context.Context, *http.Request) (roleAnswer, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := func(status int, v any) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(v)
		}
		refuse := func(status int, text string) { answer(status, map[string]string{"error": text}) }
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			refuse(http.StatusMethodNotAllowed, "method not allowed; allowed: POST")
			return
		}
		if !fromHere(r) && !proofHolds(s.secret, r, time.Now()) {
			refuse(http.StatusForbidden, "from another machine this needs the server's -repl-secret-file, the same on both, and clocks that agree within five minutes")
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(roleTimeout))
		got, err := serve(r.Context(), r)
		if err != nil {
			s.log.Warn("role not changed", "request", r.URL.RequestURI(), "error", err)
			refuse(statusFor(err), lastLine(err))
			return
		}
		answer(http.StatusOK, got)
	})
}

// fromHere says whether a request comes from this machine.
func fromHere(r *http.Request) bool {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// ask sends a request to the HTTP port. The answer's error is returned as a *refusedError.
func (p adminPort) ask(ctx context.Context, method, uri string, secret []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, roleTimeout)
	defer cancel()
	request, err := p.request(ctx, method, uri)
	if err != nil {
		return err
	}
	if len(secret) > 0 {
		request.Header.Set(proofHeader, proofOf(secret, method, uri, time.Now().Unix()))
	}
	status, body, err := p.send(request, answerLimit)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		var refused struct{ Error string }
		if json.Unmarshal(body, &refused) != nil || refused.Error == "" {
			refused.Error = strings.TrimSpace(string(body[:min(len(body), 200)]))
		}
		return withCode(exitNotDone, &refusedError{status, fmt.Sprintf("%s: %s", p.address, refused.Error)})
	}
	if err := json.Unmarshal(body, into); err != nil {
		return p.noAdminPort(err)
	}
	return nil
}
