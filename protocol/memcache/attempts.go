package memcache

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// How logins are slowed: whoever guesses one user's password from one address has so many guesses at a time, and each wrong one
// keeps its place, and its answer, for a while. Others, and other users from that address, don't notice.
const (
	maxAttempts = 4
	penalty     = time.Second
)

// guesser is whose attempts are counted together. All names without an account are one user, whose name is empty.
type guesser struct{ host, user string }

// attempts are the logins that are being checked or have just failed.
type attempts struct {
	mu   sync.Mutex // guards busy and each turn's users
	busy map[guesser]*turn
}

// turn is where the attempts of one guesser wait for each other.
type turn struct {
	who   guesser
	taken chan struct{} // has an element for each attempt that has begun
	users int           // that have begun, or wait
}

// begin waits for its turn, in order of arrival. false: ctx was over first. Otherwise end must follow.
func (a *attempts) begin(ctx context.Context, who guesser) (*turn, bool) {
	who.host = network(who.host)
	a.mu.Lock()
	t := a.busy[who]
	if t == nil {
		if a.busy == nil {
			a.busy = make(map[guesser]*turn)
		}
		t = &turn{who: who, taken: make(chan struct{}, maxAttempts)}
		a.busy[who] = t
	}
	t.users++
	a.mu.Unlock()
	select {
	case t.taken <- struct{}{}:
		return t, true
	case <-ctx.Done():
		a.leave(t)
		return nil, false
	}
}

func (a *attempts) end(t *turn) {
	<-t.taken
	a.leave(t)
}

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
