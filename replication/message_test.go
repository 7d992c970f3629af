package replication

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"qserver/storage/queue"
	"qserver/storage/ulog"
)

var update = flag.Bool("update", false, "rewrite the golden files")

type message interface {
	append(dst []byte) []byte
	parse(b []byte) error
}

// messages are one of each kind but records, with fields at their edges.
func messages() map[string]message {
	fill := func(n byte, b []byte) {
		for i := range b {
			b[i] = n + byte(i)
		}
	}
	h := &hello{sid: 2, position: ulog.Position{LSN: 1<<64 - 1, Chain: 0xdeadbeef}, version: "1.2.3",
		epochs: []queue.Epoch{{Number: 2, Nonce: 3, LSN: 4}, {Number: 5, Nonce: 1<<64 - 1, LSN: 7}}}
	fill(1, h.node[:])
	fill(2, h.history[:])
	fill(3, h.nonce[:])
	c := &challenge{proof: true}
	fill(4, c.nonce[:])
	p := new(proof)
	fill(5, p.mac[:])
	w := &welcome{mode: modeCopy, sid: 65535, epoch: 9}
	fill(6, w.mac[:])
	fill(7, w.node[:])
	fill(8, w.history[:])
	b := &copyBegin{size: 1 << 40}
	fill(9, b.history[:])
	return map[string]message{
		"1 hello": h, "1 hello empty": new(hello), "2 challenge": c, "3 proof": p, "4 welcome": w,
		"5 refused":   &Refused{Code: CodeDiverged, Own: 3, Common: 1 << 33, Text: "why"},
		"7 heartbeat": &heartbeat{1, 2, 3}, "8 ack": &ack{1 << 63, 5}, "9 copy begin": b, "11 copy end": &copyEnd{7, 0x01020304},
		"12 ask": &ask{[]uint64{1, 1 << 40}}, "13 sums": &sums{After: 5, At: []ulog.Position{{LSN: 6, Chain: 0xdeadbeef}}},
	}
}

func recordsFrame() []byte {
	h := recordsHead{end: ulog.Position{LSN: 9, Chain: 8}, count: 1, synced: 10, behind: 11}
	return h.endRecords(append(beginRecords(nil), 1, 2, 'h', 'b', 'b'))
}

func TestFramesGolden(t *testing.T) {
	lines := []string{fmt.Sprintf("%-15s %x", "6 records", recordsFrame()),
		fmt.Sprintf("%-15s %x", "10 copy data", endFrame(append(beginFrame(nil, kindCopyData), "pages"...)))}
	for name, m := range messages() {
		lines = append(lines, fmt.Sprintf("%-15s %x", name, m.append(nil)))
	}
	got := strings.Join(sorted(lines), "\n") + "\n"
	const name = "testdata/frames.golden"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the protocol has changed:\ngot\n%swant\n%s", got, want)
	}
}

func sorted(lines []string) []string {
	for i := range lines {
		for j := i; j > 0 && lines[j] < lines[j-1]; j-- {
			lines[j], lines[j-1] = lines[j-1], lines[j]
		}
	}
	return lines
}

func TestMessagesRoundTrip(t *testing.T) {
	for name, m := range messages() {
		got := reflect.New(reflect.TypeOf(m).Elem()).Interface().(message)
		payload := m.append(nil)[frameHeaderLen:]
		if err := got.parse(payload); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, m)
		}
		for n := range payload {
			if err := got.parse(payload[:n]); err == nil && !strings.HasPrefix(name, "5") {
				t.Errorf("%s cut to %d of %d bytes: no error", name, n, len(payload))
			}
		}
		if err := got.parse(append(payload[:len(payload):len(payload)], 0)); err == nil && !strings.HasPrefix(name, "5") {
			t.Errorf("%s with a byte too many: no error", name)
		}
	}
}

// TestFrameReader flips every bit of a stream, and cuts it at every byte.
func TestFrameReader(t *testing.T) {
	stream := append(recordsFrame(), (&ack{1, 2}).append(nil)...)
	if kinds, err := ReadFrames(bytes.NewReader(stream)); !bytes.Equal(kinds, []byte{kindRecords, kindAck}) || err != io.EOF {
		t.Fatalf("got %v %v", kinds, err)
	}
	first := len(recordsFrame())
	for i := range stream {
		for bit := range 8 {
			bad := bytes.Clone(stream)
			bad[i] ^= 1 << bit
			kinds, err := ReadFrames(bytes.NewReader(bad))
			if want := i / first; len(kinds) != want || err == io.EOF {
				t.Fatalf("byte %d, bit %d: %d frames, %v", i, bit, len(kinds), err)
			}
		}
		want := io.ErrUnexpectedEOF
		if i == 0 || i == first {
			want = io.EOF
		}
		if _, err := ReadFrames(bytes.NewReader(stream[:i])); err != want {
			t.Fatalf("cut at %d: %v, want %v", i, err, want)
		}
	}
}

// An announced length costs no memory before the bytes come.
func TestLengthCostsNothing(t *testing.T) {
	frame := beginFrame(nil, kindRecords)
	le.PutUint32(frame[4:], 1<<32-1)
	allocated := testing.AllocsPerRun(1, func() {
		f := frameReader{r: bytes.NewReader(frame)}
		if _, _, err := f.next(); err != io.ErrUnexpectedEOF {
			t.Errorf("got %v", err)
		}
		if cap(f.buf) > readPiece {
			t.Errorf("%d bytes for nothing", cap(f.buf))
		}
	})
	if allocated > 10 {
		t.Errorf("%v allocations", allocated)
	}
	for kind := kindHello; kind <= kindSums; kind++ {
		frame[0] = kind
		f := frameReader{r: bytes.NewReader(frame)}
		if _, _, err := f.next(); kind != kindRecords && !errors.Is(err, ErrFrame) {
			t.Errorf("kind %d of 4 GiB: %v", kind, err)
		}
	}
}

// FuzzFrame: no panic, no frame with a wrong sum.
func FuzzFrame(f *testing.F) {
	f.Add(recordsFrame())
	for _, m := range messages() {
		f.Add(m.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := frameReader{r: bytes.NewReader(b)}
		for {
			kind, payload, err := r.next()
			if err != nil {
				return
			}
			again := endFrame(append(beginFrame(nil, kind), payload...))
			if !bytes.Contains(b, again) {
				t.Fatalf("frame %x was not in the stream", again)
			}
		}
	})
}

// FuzzPayload parses a payload as each kind of message: no panic, and what is understood is what is written again.
func FuzzPayload(f *testing.F) {
	for _, m := range messages() {
		f.Add(m.append(nil)[frameHeaderLen:])
	}
	f.Add(recordsFrame()[frameHeaderLen:])
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, m := range messages() {
			m := reflect.New(reflect.TypeOf(m).Elem()).Interface().(message)
			if m.parse(b) != nil {
				continue
			}
			again := m.append(nil)[frameHeaderLen:]
			switch m := m.(type) {
			case *challenge: // every byte but 0 asks
				continue
			case *Refused:
				if len(m.Text) > 4096 {
					continue
				}
			}
			if !bytes.Equal(again, b) {
				t.Fatalf("%s: %s becomes %s", name, hex.EncodeToString(b), hex.EncodeToString(again))
			}
		}
		var h recordsHead
		if _, err := h.parse(b); err == nil && len(b) < recordsHeadLen {
			t.Fatal("records without a head")
		}
	})
}
