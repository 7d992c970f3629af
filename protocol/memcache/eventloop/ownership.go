package eventloop

import "sync/atomic"

// The states of a socket. Edge-triggered events come once: one that finds an owner is kept in the state.
const (
	owned        uint32 = iota
	ownedPending        // and an event has come since the owner last asked the socket
	parked
)

// ownership is the state of a socket and its changes.
type ownership struct{ state atomic.Uint32 }

// park gives the socket up. false: an event has come in the meantime, and the caller is still the owner.
func (o *ownership) park() bool {
	if o.state.CompareAndSwap(owned, parked) {
		return true
	}
	o.state.Store(owned)
	return false
}

// claim makes the caller the owner if the socket is parked.
func (o *ownership) claim() bool { return o.state.CompareAndSwap(parked, owned) }

// event makes the caller the owner if the socket is parked, or leaves word for the one it has.
func (o *ownership) event() (claimed bool) {
	for {
		switch o.state.Load() {
		case parked:
			if o.claim() {
				return true
			}
		case owned:
			if o.state.CompareAndSwap(owned, ownedPending) {
				return false
			}
		default:
			return false
		}
	}
}

// takePending says whether an event has come since the owner last asked.
func (o *ownership) takePending() bool {
	return o.state.Load() == ownedPending && o.state.CompareAndSwap(ownedPending, owned)
}
