package replication

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"testing"
	"time"

	"qserver/storage"
	"qserver/storage/ulog"
)

// The fuzz targets of whole sides get frames of the right form, so that what is behind the sum is reached: of each frame one byte
// for the kind, two for the payload's length, and the payload.

// script makes an input of a fuzz target of frames.
func script(frames ...[]byte) (b []byte) {
	for _, f := range frames {
		payload := f[frameHeaderLen:]
		b = append(le.AppendUint16(append(b, f[0]), uint16(len(payload))), payload...)
	}
	return b
}

// unscript is what a side is sent for an input: whole frames, then what is left of it as it is.
func unscript(b []byte) (frames []byte) {
	for len(b) >= 3 {
		n := int(le.Uint16(b[1:]))
		if len(b) < 3+n {
			break
		}
		frames = append(frames, endFrame(append(beginFrame(nil, b[0]), b[3:3+n]...))...)
		b = b[3+n:]
	}
	return append(frames, b...)
}

// scripted is a connection whose other side says what it says, whatever is answered, and ends.
type scripted struct {
	net.Conn
	in io.Reader
}

func (c *scripted) Read(p []byte) (int, error)       { return c.in.Read(p) }
func (c *scripted) Write(p []byte) (int, error)      { return len(p), nil }
func (c *scripted) Close() error                     { return nil }
func (c *scripted) SetReadDeadline(time.Time) error  { return nil }
func (c *scripted) SetWriteDeadline(time.Time) error { return nil }
func (c *scripted) RemoteAddr() net.Addr             { return new(net.TCPAddr) }

// dialogue runs a side with an input. It ends soon after that does.
func dialogue(t *testing.T, input []byte, side func(net.Conn)) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		side(&scripted{in: bytes.NewReader(unscript(input))})
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("it does not end with its connection")
	}
}

func fuzzStore(f *testing.F, dir, master string) *storage.Store {
	f.Helper()
	st, err := storage.Open(dir, storage.Options{Sync: storage.SyncNever, SegmentBytes: 64 << 10, Memory: 8 << 20, Master: master})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := st.Close(); err != nil {
			f.Error(err)
		}
	})
	return st
}

func fuzzMessages(f *testing.F, st *storage.Store) {
	f.Helper()
	c := st.NewSession("")
	defer c.Close()
	for range 20 {
		if _, err := c.Enqueue([]byte("q"), storage.PutRequest{Body: []byte("body")}); err != nil {
			f.Fatal(err)
		}
	}
	if err := errors.Join(c.Commit(), st.Sync()); err != nil {
		f.Fatal(err)
	}
}

// strangeRecords is a frame of a master's first records, with another sum than theirs.
func strangeRecords(f *testing.F) []byte {
	f.Helper()
	st := fuzzStore(f, f.TempDir(), "")
	fuzzMessages(f, st)
	feed, err := st.Feed("2", ulog.Position{})
	if err != nil {
		f.Fatal(err)
	}
	defer feed.Close()
	frame, n, end, err := feed.Append(beginRecords(nil), 1<<20)
	if err != nil || n == 0 {
		f.Fatalf("%d records, %v", n, err)
	}
	end.Chain++
	h := recordsHead{end: end, count: uint32(n)}
	return h.endRecords(frame)
}

// FuzzMaster is a master that is talked to by anyone: it does not panic or hang, its store stays as it is, and the log is kept for no
// slave beyond its end.
func FuzzMaster(f *testing.F) {
	st := fuzzStore(f, f.TempDir(), "")
	fuzzMessages(f, st)
	at := st.Position()
	m := &Master{SID: 1}
	m.Attach(st)
	f.Cleanup(m.Detach)

	hi := &hello{sid: 2, history: st.History(), position: at, version: "1"}
	for _, m := range messages() {
		frame := m.append(nil)
		for _, frame := range [][]byte{frame, frame[:len(frame)-1]} { // whole, and with a payload that is too short
			f.Add(script(frame))
			f.Add(script(hi.append(nil), frame))
			f.Add(script(hi.append(nil), new(proof).append(nil), frame))
		}
	}
	f.Add(script(hi.append(nil), new(proof).append(nil), (&ack{at.LSN, at.LSN}).append(nil), (&ack{1 << 63, 1 << 63}).append(nil)))
	f.Add(script(hi.append(nil), new(proof).append(nil), recordsFrame()))
	f.Add(script((&hello{sid: 3, version: "new"}).append(nil), new(proof).append(nil)))
	f.Fuzz(func(t *testing.T, input []byte) {
		dialogue(t, input, func(conn net.Conn) { m.ServeConn(conn, true) })
		if st.Position() != at || st.Err() != nil {
			t.Fatalf("the store stands at %+v, %v", st.Position(), st.Err())
		}
		for _, k := range st.Kept() {
			if k.LSN > at.LSN {
				t.Fatalf("slave %s is said to have everything up to %d of %d", k.Name, k.LSN, at.LSN)
			}
		}
	})
}

// FuzzSlave is a slave whose master says anything: it does not panic or hang, takes no records that don't follow on what it has, and
// no copy that is not one.
func FuzzSlave(f *testing.F) {
	dir := f.TempDir()
	st := fuzzStore(f, dir, "master:1978")
	at := st.Position()
	s := &Slave{SID: 2, Address: "master:1978", Store: st, Dir: dir}
	stream, tree := &welcome{mode: modeStream, sid: 1}, &welcome{mode: modeCopy, sid: 1}
	challenged := new(challenge).append(nil)
	for _, m := range messages() {
		frame := m.append(nil)
		for _, frame := range [][]byte{frame, frame[:len(frame)-1]} { // whole, and with a payload that is too short
			f.Add(script(frame))
			f.Add(script(challenged, frame))
			f.Add(script(challenged, stream.append(nil), frame))
			f.Add(script(challenged, tree.append(nil), frame))
		}
	}
	f.Add(script(challenged, stream.append(nil), recordsFrame()))
	f.Add(script(challenged, stream.append(nil), strangeRecords(f)))
	data := bytes.Repeat([]byte("page"), 2048)
	for _, sum := range []uint32{0, crc32.Checksum(data, castagnoli)} {
		f.Add(script(challenged, tree.append(nil), (&copyBegin{size: uint64(len(data))}).append(nil),
			endFrame(append(beginFrame(nil, kindCopyData), data...)), (&copyEnd{uint64(len(data)), sum}).append(nil)))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		var err error
		dialogue(t, input, func(conn net.Conn) {
			s.Dial = func(context.Context) (net.Conn, error) { return conn, nil }
			err = s.once(t.Context())
		})
		switch {
		case err == nil || errors.Is(err, ErrCopyReady) || storage.CopyReady(dir):
			t.Fatalf("what came was taken for a copy: %v", err)
		case st.Err() != nil:
			t.Fatal(st.Err())
		case st.Position() != at:
			t.Fatalf("records were taken: it stands at %+v", st.Position())
		}
	})
}
