package replication

import (
	"bufio"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Times of the protocol.
const (
	heartbeatEvery = time.Second
	silence        = 10 * time.Second // after it the other side is taken to be gone
	talkTimeout    = 10 * time.Second // for each step of the handshake
	searchTimeout  = 30 * time.Second // for sums, which are read from the log
	sendTimeout    = time.Minute      // for a frame, to a slave that is busy
)

// link is a connection that speaks frames.
type link struct {
	conn net.Conn
	in   frameReader
	mu   sync.Mutex // one frame at a time goes out
}

// newLink returns a link on conn; r, if not nil, reads what came before.
func newLink(conn net.Conn, r io.Reader) *link {
	if u, ok := conn.(*upgraded); ok && r == nil {
		r = u.r
	}
	if r == nil {
		r = bufio.NewReaderSize(conn, 64<<10)
	}
	return &link{conn: conn, in: frameReader{r: r}}
}

// send writes a whole frame.
func (l *link) send(frame []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	_, err := l.conn.Write(frame)
	return err
}

// next reads the next frame, which must come within the given time.
func (l *link) next(within time.Duration) (kind byte, payload []byte, err error) {
	if err := l.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return 0, nil, err
	}
	return l.in.next()
}

type parser interface{ parse([]byte) error }

// expect reads a frame of this kind into m. A refusal is returned as *Refused.
func (l *link) expect(kind byte, m parser) (payload []byte, err error) {
	return l.expectWithin(talkTimeout, kind, m)
}

func (l *link) expectWithin(within time.Duration, kind byte, m parser) (payload []byte, err error) {
	got, payload, err := l.next(within)
	if err != nil {
		return nil, err
	}
	if got == kindRefused {
		r := new(Refused)
		if err := r.parse(payload); err != nil {
			return nil, err
		}
		return nil, r
	}
	if got != kind {
		return nil, fmt.Errorf("%w: kind %d where %d belongs", ErrFrame, got, kind)
	}
	return payload, m.parse(payload)
}

// Parts of a proof: who gives it.
const (
	slaveSide  = 'S'
	masterSide = 'M'
)

// prove returns the proof that side knows the secret.
func prove(secret []byte, side byte, nonce [32]byte, hello []byte) (mac [32]byte) {
	if len(secret) == 0 {
		return mac
	}
	h := hmac.New(sha256.New, secret)
	h.Write([]byte{side})
	h.Write(nonce[:])
	h.Write(hello)
	h.Sum(mac[:0])
	return mac
}

func proven(secret []byte, side byte, nonce [32]byte, hello []byte, mac [32]byte) bool {
	want := prove(secret, side, nonce, hello)
	return len(secret) > 0 && hmac.Equal(mac[:], want[:])
}

func newNonce() (n [32]byte) {
	rand.Read(n[:]) // never fails
	return n
}

// loopback says whether the other side of conn is on this machine.
func loopback(conn net.Conn) bool {
	addr, ok := conn.RemoteAddr().(*net.TCPAddr)
	return ok && addr.IP.IsLoopback()
}

// ended says whether err is an ordinary end of a connection.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe)
}
