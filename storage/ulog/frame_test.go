package ulog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"
)

// appendRecord appends a record's frame as Stage lays it out.
func appendRecord(dst []byte, state uint32, prev Position, synced uint64, head, body []byte) ([]byte, Position) {
	h := frameHeader{
		kind: kindRecord, headLen: len(head), bodyLen: int64(len(body)), lsn: prev.LSN + 1, synced: synced,
		headSum: crc32.Checksum(head, castagnoli), bodySum: crc32.Checksum(body, castagnoli),
	}
	n := len(dst)
	dst = append(dst, zeroFrame[:]...)
	chain := sealFrame(dst[n:], state, &h, prev.Chain)
	return append(append(dst, head...), body...), Position{h.lsn, chain}
}

// FuzzFrame reads a frame from any bytes: no panic, no memory beyond the window, and a frame that is read makes the same
// bytes again.
func FuzzFrame(f *testing.F) {
	state := seedState(1)
	b, p := appendRecord(nil, state, Position{41, 7}, 40, []byte("head"), []byte("body"))
	f.Add(b, uint64(1))
	b, _ = appendRecord(b, state, p, 41, nil, nil)
	f.Add(b[3:], uint64(1))
	f.Add(appendControl(nil, state, kindSeal, p, 42), uint64(1))
	f.Add(bytes.Repeat([]byte{1}, 100), uint64(2))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		w := newWindow(64)
		w.reset(bytes.NewReader(b), int64(len(b)))
		state := seedState(seed)
		if len(b) >= frameHeaderLen {
			// Make the header's own sum right, as no one can who does not know the seed.
			binary.LittleEndian.PutUint32(b[summedLen:], crc32.Update(state, castagnoli, b[:summedLen]))
		}
		fr, err := w.frame(0, state)
		if err == nil {
			checkFrame(t, &fr, b, state)
		} else if !badFrame(err) {
			t.Fatalf("frame: %v", err)
		}
		if cap(w.aside) > len(b) {
			t.Fatalf("%d bytes allocated for a file of %d", cap(w.aside), len(b))
		}
		for off := int64(0); ; {
			at, fr, err := w.find(off, state, 0)
			if err != nil {
				break
			}
			if at < off || at+fr.len() > int64(len(b)) {
				t.Fatalf("find: frame of %d bytes at %d", fr.len(), at)
			}
			off = at + fr.len()
		}
	})
}

func checkFrame(t *testing.T, fr *frame, b []byte, state uint32) {
	h := fr.frameHeader
	prev := h.chain
	if h.kind == kindRecord {
		prev = chainBefore(fr.raw, h.chain)
	}
	again := make([]byte, frameHeaderLen)
	chain := sealFrame(again, state, &h, prev)
	// For a record the chain is computed, so it comes out as it was only if chainBefore is right.
	if !bytes.Equal(again, b[:frameHeaderLen]) && chain == h.chain {
		t.Fatalf("read %x, wrote %x", b[:frameHeaderLen], again)
	}
	if chain != h.chain {
		t.Fatalf("chainBefore: chain comes out as %08x, want %08x", chain, h.chain)
	}
}

func TestInverses(t *testing.T) {
	b, p := appendRecord(nil, seedState(0x1234567890), Position{9, 0xdeadbeef}, 3, []byte("head"), []byte("body"))
	if got, want := chainBefore(b, p.Chain), uint32(0xdeadbeef); got != want {
		t.Errorf("chainBefore: got %08x, want %08x", got, want)
	}
	if got, want := stateOf(b), seedState(0x1234567890); got != want {
		t.Errorf("stateOf: got %08x, want %08x", got, want)
	}
	for _, state := range []uint32{0, 1, 0xffffffff, 0x87654321} {
		if got := seedState(seedFor(state)); got != state {
			t.Errorf("seedFor: got %08x, want %08x", got, state)
		}
	}
}

// TestStageDoesNotAllocate holds Stage and Take to plain memory work.
func TestStageDoesNotAllocate(t *testing.T) {
	l, _, err := Open(t.TempDir(), Position{}, Place{}, Options{SegmentBytes: 4 << 20}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	head, body := make([]byte, 40), make([]byte, 200)
	got := testing.AllocsPerRun(100, func() {
		for range 8 {
			l.Stage(head, body, 0)
		}
		if err := l.Write(l.Take(), false); err != nil {
			t.Fatal(err)
		}
	})
	if got > 0 {
		t.Errorf("%.1f allocations for a batch, want 0", got)
	}
}

// TestChainIsVerified reads a log in which one record was replaced by another whose own sums are right.
func TestChainIsVerified(t *testing.T) {
	state := seedState(5)
	var base Position
	b := appendControl(nil, state, kindStart, base, 0)
	b, p := appendRecord(b, state, base, 0, []byte("one"), nil)
	at := len(b)
	b, _ = appendRecord(b, state, p, 1, []byte("two"), nil)
	end := len(b)
	_, p = appendRecord(nil, state, p, 1, []byte("another two"), nil)
	b, p = appendRecord(b, state, p, 2, []byte("three"), nil)
	b, _ = appendRecord(b, state, p, 3, []byte("four"), nil)
	h := segmentHeader{version: segmentVersion, sequence: 1, seed: 5, bytes: minSegmentBytes}
	image := append(appendSegmentHeader(nil, &h), b...)
	image = append(image, make([]byte, minSegmentBytes-len(image))...)
	s := &segment{sequence: 1, path: "1", header: h, state: state, file: readFile{Reader: bytes.NewReader(image)}, size: minSegmentBytes}
	w := walk{segments: []*segment{s}, win: newWindow(4096)}
	_, err := w.run(Place{})
	corrupt, ok := errors.AsType[*CorruptError](err)
	if !ok || corrupt.LSN != 3 || corrupt.Offset != int64(segmentHeaderLen+end) || w.records != 2 {
		t.Errorf("got %v after %d records, want damage at offset %d (record 2 at %d)", err, w.records, segmentHeaderLen+end, at)
	}
}

// readFile is a File to read from.
type readFile struct {
	File
	*bytes.Reader
}

func (f readFile) ReadAt(p []byte, off int64) (int, error) { return f.Reader.ReadAt(p, off) }
func (f readFile) Size() (int64, error)                    { return f.Reader.Size(), nil }
