// Package eventloop serves many sockets with one goroutine for each core in place of one for each socket: a socket that waits for
// its peer is parked, which costs no goroutine and no buffer, and its loop calls its Handler when input arrives. All sockets with
// input have their turn before the first answer is sent, so what they want of a disk can be done for all of them at once.
//
// A socket has one owner at a time: whoever took it with Group.Take, or a loop that calls its Handler. The owner may read and
// write, hand the socket to a goroutine that does so, wait for the peer (Wait, or Read and Write, which wait like those of any
// net.Conn), close it, or park it. Everybody may set deadlines, which wake the owner, and Abort.
//
// It is for Linux (epoll, edge-triggered; see epoll(7)). Elsewhere New returns errors.ErrUnsupported.
package eventloop

import (
	"errors"
	"sync/atomic"
)

// ErrAgain is returned by TryRead and TryWrite when the socket has no input or no room now.
var ErrAgain = errors.New("not ready")

// Handler is what a parked socket wakes.
type Handler interface {
	// Ready is called by the loop, as the socket's owner, when there is input or the peer has ended. It must not block. buf is
	// the loop's, to read into; what it holds is lost when Ready returns. With true, Settle is called when all sockets that are
	// ready have had their turn. Otherwise the handler has parked the socket, closed it, or given it to somebody else.
	Ready(buf []byte) (settle bool)
	// Settle is called after Ready, and after Group.Requeue, as the owner. It must not block for long. It ends with the socket parked,
	// closed or given to somebody else, or with true: then Ready is called again.
	Settle() (again bool)
}

// BufferSize is the length of the buffer that Ready gets, in bytes.
const BufferSize = 64 << 10

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
