package replication_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"qserver/replication"
)

// tampered is a connection whose records frames are changed, and get a sum that holds for what they have become.
type tampered struct {
	net.Conn
	change func(payload []byte) []byte
	left   bytes.Buffer
}

const kindRecords = 6 // as doc.go says

func (c *tampered) Read(p []byte) (int, error) {
	if c.left.Len() == 0 {
		header := make([]byte, replication.FrameHeaderLen)
		if _, err := io.ReadFull(c.Conn, header); err != nil {
			return 0, err
		}
		payload := make([]byte, binary.LittleEndian.Uint32(header[4:]))
		if _, err := io.ReadFull(c.Conn, payload); err != nil {
			return 0, err
		}
		if header[0] == kindRecords {
			payload = c.change(payload)
		}
		c.left.Write(replication.Frame(header[0], payload))
	}
	return c.left.Read(p)
}

// TestChangedRecords changes every byte of a run of records, and makes the frame's own sum good again: the chained sum, or what the
// frame says of itself, does not hold, and nothing of the run is taken. It is the same with a run cut short, doubled, or left out.
func TestChangedRecords(t *testing.T) {
	m, s := pair(t, quick())
	put(t, m.store, "q", 5, 2)
	if err := m.store.Sync(); err != nil {
		t.Fatal(err)
	}
	before := s.store.Position()
	n := frameLen(t, m, before) - replication.FrameHeaderLen
	const head = replication.RecordsAt - replication.FrameHeaderLen
	refuse := func(what string, at int, change func([]byte) []byte) {
		t.Helper()
		s.in.Dial = func(context.Context) (net.Conn, error) {
			a, b := net.Pipe()
			go m.out.ServeConn(b, true)
			return &tampered{Conn: a, change: change}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := replication.Once(s.in, ctx)
		if err == nil || ctx.Err() != nil || s.store.Position() != before {
			t.Fatalf("%s %d: %v; it stands at %+v, want %+v", what, at, err, s.store.Position(), before)
		}
	}
	for at := range n {
		if at >= 16 && at < head { // how far the master is: a number for people
			continue
		}
		refuse("a changed byte", at, func(p []byte) []byte { p[at] ^= 1 << (at % 8); return p })
	}
	for at := head; at < n; at++ {
		refuse("cut to", at, func(p []byte) []byte { return p[:at] })
	}
	refuse("doubled", 0, func(p []byte) []byte { return append(p, p[head:]...) })
	refuse("none", 0, func(p []byte) []byte { return p[:head] })
	_ = conversation(t, m, s)
	agree(t, m.store, s.store)
}
