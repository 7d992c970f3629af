package replication

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// These constants are part of the protocol; doc.go draws it.
const (
	frameVersion   = 1
	frameHeaderLen = 12

	kindHello     byte = 1
	kindChallenge byte = 2
	kindProof     byte = 3
	kindWelcome   byte = 4
	kindRefused   byte = 5
	kindRecords   byte = 6
	kindHeartbeat byte = 7
	kindAck       byte = 8
	kindCopyBegin byte = 9
	kindCopyData  byte = 10
	kindCopyEnd   byte = 11
	kindAsk       byte = 12
	kindSums      byte = 13
)

// Limits of payloads in bytes.
const (
	maxTalk    = 64 << 10 // of every kind but records
	maxCopy    = 1 << 20  // of copy data
	maxRecords = 1<<32 - 1
	readPiece  = 1 << 20 // memory grows by so much at a time: an announced length costs nothing
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	// ErrFrame is wrapped where what comes over a connection is no frame of this protocol.
	ErrFrame = errors.New("not a frame of the replication protocol")
	errSum   = fmt.Errorf("%w: its sum does not hold", ErrFrame)
	errSize  = fmt.Errorf("%w: its payload has another size", ErrFrame)
)

// beginFrame appends a header to be filled in by endFrame.
func beginFrame(dst []byte, kind byte) []byte {
	return append(dst, kind, frameVersion, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
}

// endFrame fills in the header of the frame that dst consists of.
func endFrame(dst []byte) []byte {
	binary.LittleEndian.PutUint32(dst[4:], uint32(len(dst)-frameHeaderLen))
	binary.LittleEndian.PutUint32(dst[8:], sumOf(dst, dst[frameHeaderLen:]))
	return dst
}

func sumOf(header, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(header[:8], castagnoli), castagnoli, payload)
}

// frameReader reads frames. Payloads are valid until the next call, unless take gave the buffer away.
type frameReader struct {
	r      io.Reader
	header [frameHeaderLen]byte
	buf    []byte
}

// next reads a frame. io.EOF is the end between two frames; within one it is io.ErrUnexpectedEOF. Other errors wrap ErrFrame
// or are the connection's.
func (f *frameReader) next() (kind byte, payload []byte, err error) {
	if _, err := io.ReadFull(f.r, f.header[:]); err != nil {
		return 0, nil, err
	}
	h := f.header[:]
	kind = h[0]
	n := int64(binary.LittleEndian.Uint32(h[4:]))
	switch {
	case h[1] != frameVersion:
		return kind, nil, fmt.Errorf("%w: version %d; this server speaks %d", ErrFrame, h[1], frameVersion)
	case h[2] != 0 || h[3] != 0 || kind == 0 || kind > kindSums:
		return kind, nil, fmt.Errorf("%w: kind %d", ErrFrame, kind)
	case n > limitOf(kind):
		return kind, nil, fmt.Errorf("%w: %d bytes for kind %d", ErrFrame, n, kind)
	}
	if payload, err = f.read(n); err != nil {
		return kind, nil, err
	}
	if sumOf(h, payload) != binary.LittleEndian.Uint32(h[8:]) {
		return kind, nil, errSum
	}
	return kind, payload, nil
}

func limitOf(kind byte) int64 {
	switch kind {
	case kindRecords:
		return maxRecords
	case kindCopyData:
		return maxCopy
	}
	return maxTalk
}

// read returns the next n bytes in the buffer.
func (f *frameReader) read(n int64) ([]byte, error) {
	b := f.buf[:0]
	for int64(len(b)) < n {
		from := len(b)
		piece := int(min(n-int64(from), readPiece))
		if cap(b)-from < piece {
			b = append(b, make([]byte, piece)...)
		} else {
			b = b[:from+piece]
		}
		if _, err := io.ReadFull(f.r, b[from:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	f.buf = b
	return b, nil
}

// take gives the buffer of the last payload away and takes another in its place.
func (f *frameReader) take(other []byte) { f.buf = other }
