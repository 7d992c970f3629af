package memcache

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// How logins are slowed: whoever guesses one user's password from one address has so many guesses at a time, and each wrong one
// keeps its place, and its answer, for a while; so many more may wait, for the 5 s that a login has, whether their peer is still
// there or not. A login that is remembered as right need not wait, so workers with an old password don't keep out the others; but
// where the room is full it is not looked at either, else a quick answer would tell a right guess. Other addresses, and other users
// from this one, don't notice.
const (
	maxAttempts = 4
	maxWaiting  = 64
	penalty     = time.Second
)

// guesser is whose attempts are counted together. All names without an account are one user, whose name is empty.
type guesser struct{ host, user string }

// attempts are the logins that are being checked or have just failed.
type attempts struct {
	mu   sync.Mutex // guards busy, and users of each turn
	busy map[guesser]*turn
}

// turn is where the attempts of one guesser wait for each other.
type turn struct {
	who   guesser
	taken chan struct{} // has an element for each attempt that has begun
	users int           // that have begun, or wait; guarded by attempts.mu
}

// enter takes a place among the guesser's attempts, which leave gives back. false: all are taken.
func (a *attempts) enter(who guesser) (*turn, bool) {
	who.host = network(who.host)
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.busy[who]
	if t == nil {
		if a.busy == nil {
			a.busy = make(map[guesser]*turn)
		}
		t = &turn{who: who, taken: make(chan struct{}, maxAttempts)}
		a.busy[who] = t
	}
	if t.users == maxAttempts+maxWaiting {
		return nil, false
	}
	t.users++
	return t, true
}

// begin waits for its turn, in order of arrival. false: ctx was over first. Otherwise end must follow.
func (t *turn) begin(ctx context.Context) bool {
	select {
	case t.taken <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t *turn) end() { <-t.taken }

func (a *attempts) leave(t *turn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(a.busy, t.who)
	}
}

// network is what one peer can choose addresses from: the address itself, of IPv6 the 64 bits that are given to one customer.
func network(host string) string {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if addr = addr.Unmap().WithZone(""); addr.Is4() {
		return addr.String()
	}
	prefix, err := addr.Prefix(64)
	if err != nil {
		return host
	}
	return prefix.String()
}
