package ulog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Sizes of windows in bytes: for recovery and checks, and for a reader that follows the log.
const (
	recoveryWindow = 1 << 20
	readerWindow   = 64 << 10
	// asideKept is how large a buffer for a large record may be to be kept for the next one.
	asideKept = 4 << 20
)

// window reads a file front to back through one buffer. Its memory is the buffer and, for a frame larger than that, a
// buffer aside as large as the frame.
type window struct {
	file  io.ReaderAt
	size  int64 // bytes at and behind it are not there
	buf   []byte
	at    int64 // offset of buf[0]
	n     int   // bytes in buf
	aside []byte
	read  int64 // bytes read so far
}

func newWindow(size int) *window { return &window{buf: make([]byte, size)} }

// windowFor returns a window for reading whole segments.
func windowFor(segs []*segment) *window {
	size := int64(segmentHeaderLen)
	for _, s := range segs {
		size = max(size, s.size)
	}
	return newWindow(int(min(size, recoveryWindow)))
}

// reset turns the window to another file.
func (w *window) reset(f io.ReaderAt, size int64) { w.file, w.size, w.n = f, size, 0 }

// bytes returns n bytes at off, valid until the next call. errShort says that the file ends before; every other error is
// one of reading.
func (w *window) bytes(off int64, n int) ([]byte, error) {
	if off+int64(n) > w.size {
		return nil, errShort
	}
	if off >= w.at && off+int64(n) <= w.at+int64(w.n) {
		i := int(off - w.at)
		return w.buf[i : i+n], nil
	}
	if n > len(w.buf) {
		if cap(w.aside) < n {
			w.aside = make([]byte, n)
		}
		b := w.aside[:n]
		if cap(w.aside) > asideKept {
			w.aside = nil
		}
		return b, w.fill(b, off)
	}
	want := int(min(int64(len(w.buf)), w.size-off))
	w.n = 0
	if err := w.fill(w.buf[:want], off); err != nil {
		return nil, err
	}
	w.at, w.n = off, want
	return w.buf[:n], nil
}

func (w *window) fill(b []byte, off int64) error {
	n, err := w.file.ReadAt(b, off)
	w.read += int64(n)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read at offset %d: %w", off, err)
}

// frame is a frame with its own sums verified. head and body are valid until the next call of the window.
type frame struct {
	frameHeader
	raw  []byte // header bytes
	head []byte
	body []byte
}

// frame reads the frame at off. badFrame tells errors of content from errors of reading.
func (w *window) frame(off int64, state uint32) (frame, error) {
	b, err := w.bytes(off, frameHeaderLen)
	if err != nil {
		return frame{}, err
	}
	h, err := decodeFrameHeader(b, state)
	if err != nil {
		return frame{frameHeader: h}, err
	}
	if off+h.len() > w.size {
		return frame{frameHeader: h}, errShort
	}
	b, err = w.bytes(off, int(h.len()))
	if err != nil {
		return frame{frameHeader: h}, err
	}
	f := frame{frameHeader: h, raw: b[:frameHeaderLen], head: b[frameHeaderLen : frameHeaderLen+h.headLen]}
	f.body = b[frameHeaderLen+h.headLen:]
	if h.kind > kindGap {
		return f, nil
	}
	if crc32.Checksum(f.head, castagnoli) != h.headSum {
		return f, errHeadSum
	}
	if crc32.Checksum(f.body, castagnoli) != h.bodySum {
		return f, errBodySum
	}
	return f, nil
}

// record is the frame as a Record; before is the LSN of the record before it.
func (f *frame) record(at Place, before uint64) Record {
	r := Record{Position: f.position(), Place: at, Next: Place{at.Segment, at.Offset + f.len()}}
	if f.kind == kindGap {
		r.Gap = f.lsn - before
	} else {
		r.Head, r.Body, r.BodySum = f.head, f.body, f.bodySum
	}
	return r
}

// badFrame reports whether err says that there is no whole frame, as opposed to an error of reading.
func badFrame(err error) bool {
	switch err {
	case errUnwritten, errFrameSum, errHeadSum, errBodySum, errShort:
		return true
	}
	return false
}

// find looks, byte by byte from off on, for the next frame whose own sums are right and whose LSN is at least lsn. It
// returns io.EOF if there is none.
func (w *window) find(off int64, state uint32, lsn uint64) (int64, frame, error) {
	for off+frameHeaderLen <= w.size {
		n := int(min(int64(len(w.buf)), w.size-off))
		b, err := w.bytes(off, n)
		if err != nil {
			return 0, frame{}, err
		}
		i := candidate(b, state, lsn)
		if i < 0 {
			off += int64(n - frameHeaderLen + 1)
			continue
		}
		off += int64(i)
		f, err := w.frame(off, state)
		if err == nil {
			return off, f, nil
		}
		if !badFrame(err) {
			return 0, frame{}, err
		}
		off++
	}
	return 0, frame{}, io.EOF
}

// plausible is how far ahead of what is expected the LSN of a frame can be.
const plausible = 1 << 40

// candidate returns the index of the first header in b whose own sum is right and whose LSN is at least lsn, or -1.
func candidate(b []byte, state uint32, lsn uint64) int {
	le := binary.LittleEndian
	for i := 0; i+frameHeaderLen <= len(b); i++ {
		if k := b[i]; k == 0 || k > kindSeal {
			// Unwritten space is passed over eight bytes at a time.
			for i+8+frameHeaderLen <= len(b) && le.Uint64(b[i:]) == 0 {
				i += 8
			}
			if b[i] == 0 || b[i] > kindSeal {
				continue
			}
		}
		if le.Uint64(b[i+8:])-lsn > plausible {
			continue
		}
		if _, err := decodeFrameHeader(b[i:], state); err == nil {
			return i
		}
	}
	return -1
}
