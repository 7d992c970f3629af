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

import "errors"

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
