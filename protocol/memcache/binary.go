package memcache

import (
	"encoding/binary"
	"errors"
	"os"
	"time"
)

// First bytes of a connection that tell what its client speaks.
const (
	binaryRequest = 0x80
	tlsHandshake  = 0x16
)

// A binary frame's header is 24 bytes: magic, opcode, key length (2), extras length, data type, status (2), body length (4),
// opaque (4), CAS (8), numbers in network order. Only what a refusal needs is here.
const (
	binaryHeader   = 24
	binaryResponse = 0x81
	statusUnknown  = 0x0081
)

// refuseBinary answers the first frame of a client of the binary protocol with one well-formed error frame and closes.
func (c *conn) refuseBinary() {
	c.srv.note(c.host(), "a client of the binary protocol was refused: set it to the text protocol", "peer", c.peer)
	c.counts[protocolErrors]++
	c.setDeadline(time.Now().Add(binaryWait))
	for len(c.in.buffered()) < binaryHeader {
		if err := c.in.fill(false); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && !c.timeUp() {
				continue
			}
			break
		}
	}
	var request [binaryHeader]byte
	copy(request[:], c.in.buffered())
	const text = "Unknown command"
	frame := make([]byte, binaryHeader, binaryHeader+len(text))
	frame[0], frame[1] = binaryResponse, request[1]
	binary.BigEndian.PutUint16(frame[6:], statusUnknown)
	binary.BigEndian.PutUint32(frame[8:], uint32(len(text)))
	copy(frame[12:16], request[12:16])
	c.out.text(string(append(frame, text...)))
	c.settle()
	c.end(closeLinger)
}
