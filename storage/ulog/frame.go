package ulog

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// Kinds of frames. These numbers are part of the format. Zero is no kind, so that unwritten space is recognised.
const (
	kindRecord byte = 1 // one record
	kindGap    byte = 2 // the records up to lsn are lost; written by Repair
	kindStart  byte = 3 // first frame of a segment: the position before its first record
	kindEnd    byte = 4 // last frame of a finished segment
	kindSeal   byte = 5 // everything before it is synced; the next write goes over it
)

// frameHeaderLen is the length of a frame's header in bytes; part of the format.
const frameHeaderLen = 40

// chainedLen is how many of the header's first bytes go into the chain; summedLen how many go into its own sum.
const (
	chainedLen = 24
	summedLen  = 36
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errUnwritten = errors.New("no frame here")
	errFrameSum  = errors.New("frame sum is wrong")
	errHeadSum   = errors.New("sum of the record's head is wrong")
	errBodySum   = errors.New("sum of the record's body is wrong")
	errShort     = errors.New("frame reaches behind the end of the file")
)

// frameHeader is a decoded frame header.
type frameHeader struct {
	kind    byte
	headLen int
	bodyLen int64
	lsn     uint64
	headSum uint32
	bodySum uint32
	chain   uint32
	synced  uint64
}

func (h *frameHeader) len() int64 { return frameHeaderLen + int64(h.headLen) + h.bodyLen }

func (h *frameHeader) position() Position { return Position{h.lsn, h.chain} }

// seedState turns a segment's seed into the initial value of its frames' sums.
func seedState(seed uint64) uint32 {
	return crc32.Checksum(binary.LittleEndian.AppendUint64(nil, seed), castagnoli)
}

// chainOf continues the chain from prev over a record's header.
func chainOf(prev uint32, header []byte) uint32 {
	return crc32.Update(prev, castagnoli, header[:chainedLen])
}

// sealFrame fills in the header of a frame in place. For a record the chain is continued from prev; for the other
// kinds chain is prev itself. It returns the chain.
func sealFrame(b []byte, state uint32, h *frameHeader, prev uint32) uint32 {
	_ = b[frameHeaderLen-1]
	le := binary.LittleEndian
	le.PutUint32(b[0:], uint32(h.kind)|uint32(h.headLen)<<8)
	le.PutUint32(b[4:], uint32(h.bodyLen))
	le.PutUint64(b[8:], h.lsn)
	le.PutUint32(b[16:], h.headSum)
	le.PutUint32(b[20:], h.bodySum)
	if h.kind == kindRecord {
		prev = chainOf(prev, b)
	}
	le.PutUint32(b[24:], prev)
	le.PutUint64(b[28:], h.synced)
	le.PutUint32(b[36:], crc32.Update(state, castagnoli, b[:summedLen]))
	return prev
}

// appendControl appends a frame without head and body that stands at p.
func appendControl(dst []byte, state uint32, kind byte, p Position, synced uint64) []byte {
	n := len(dst)
	dst = append(dst, zeroFrame[:]...)
	h := frameHeader{kind: kind, lsn: p.LSN, synced: synced}
	sealFrame(dst[n:], state, &h, p.Chain)
	return dst
}

// zeroFrame is the mark behind the last frame: no frame here.
var zeroFrame [frameHeaderLen]byte

// decodeFrameHeader decodes b, which must hold a whole header, and verifies its own sum. It says nothing of head and body.
func decodeFrameHeader(b []byte, state uint32) (frameHeader, error) {
	_ = b[frameHeaderLen-1]
	le := binary.LittleEndian
	first := le.Uint32(b[0:])
	h := frameHeader{
		kind:    byte(first),
		headLen: int(first >> 8),
		bodyLen: int64(le.Uint32(b[4:])),
		lsn:     le.Uint64(b[8:]),
		headSum: le.Uint32(b[16:]),
		bodySum: le.Uint32(b[20:]),
		chain:   le.Uint32(b[24:]),
		synced:  le.Uint64(b[28:]),
	}
	if h.kind == 0 || h.kind > kindSeal {
		return h, errUnwritten
	}
	if crc32.Update(state, castagnoli, b[:summedLen]) != le.Uint32(b[36:]) {
		return h, errFrameSum
	}
	if h.kind != kindRecord && h.headLen > 0 || h.kind > kindGap && h.bodyLen > 0 {
		return h, errFrameSum
	}
	return h, nil
}

func updateSum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// solve returns the x with f(x) = want, for a function that is one-to-one and linear but for a constant, as a CRC is in
// its initial value and in any four bytes of its data. So 32 trials give the equations. Repair needs it.
func solve(f func(x uint32) uint32, want uint32) uint32 {
	base := f(0)
	var rows [32]uint64 // what bit i makes in the lower half, bit i itself in the upper half
	for i := range rows {
		rows[i] = uint64(f(1<<i)^base) | 1<<(32+i)
	}
	target := uint64(want ^ base)
	for bit := range 32 {
		for j := bit; j < 32; j++ {
			if rows[j]>>bit&1 != 0 {
				rows[bit], rows[j] = rows[j], rows[bit]
				break
			}
		}
		for j := bit + 1; j < 32; j++ {
			if rows[j]>>bit&1 != 0 {
				rows[j] ^= rows[bit]
			}
		}
		if target>>bit&1 != 0 {
			target ^= rows[bit]
		}
	}
	return uint32(target >> 32)
}

// chainBefore returns the chain that a record's frame continues.
func chainBefore(header []byte, chain uint32) uint32 {
	return solve(func(x uint32) uint32 { return chainOf(x, header) }, chain)
}

// stateOf returns the initial value of sums with which a frame's header is right.
func stateOf(header []byte) uint32 {
	sum := binary.LittleEndian.Uint32(header[summedLen:])
	return solve(func(x uint32) uint32 { return crc32.Update(x, castagnoli, header[:summedLen]) }, sum)
}

// seedFor returns a seed that gives the initial value.
func seedFor(state uint32) uint64 {
	return uint64(solve(func(x uint32) uint32 { return seedState(uint64(x)) }, state))
}
