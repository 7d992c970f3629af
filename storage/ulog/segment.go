package ulog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// These constants are part of the format.
const (
	segmentMagic     = "qsulog"
	segmentVersion   = 1
	segmentHeaderLen = 4096 // where the first frame begins: a block of its own, never written again
	headerSumOffset  = 60
	headerUsed       = 64
)

const (
	segmentSuffix = ".ulog"
	tempSuffix    = ".tmp"
	// minSegmentBytes leaves room for some records behind the header.
	minSegmentBytes = 2 * segmentHeaderLen
)

var (
	errHeader  = errors.New("segment header is damaged")
	errNoBegin = errors.New("segment has no header yet")
	errInPlace = errors.New("the new file is in place already")
)

// segmentHeader is the decoded first block of a segment.
type segmentHeader struct {
	version  uint16
	id       [16]byte // the log it belongs to
	sequence uint64
	seed     uint64 // drawn anew each time the file is used
	created  int64  // milliseconds since 1970
	bytes    int64  // size of the file when it was made; a shorter one has been cut
}

func appendSegmentHeader(dst []byte, h *segmentHeader) []byte {
	n := len(dst)
	le := binary.LittleEndian
	dst = append(dst, segmentMagic...)
	dst = le.AppendUint16(dst, h.version)
	dst = append(dst, h.id[:]...)
	dst = le.AppendUint64(dst, h.sequence)
	dst = le.AppendUint64(dst, h.seed)
	dst = le.AppendUint64(dst, uint64(h.created))
	dst = le.AppendUint64(dst, uint64(h.bytes))
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint32(dst, crc32.Checksum(dst[n:], castagnoli))
	return append(dst, make([]byte, segmentHeaderLen-headerUsed)...)
}

// decodeSegmentHeader decodes the first headerUsed bytes of a segment. The layout of these bytes is the same in every
// version, so that a newer one is told from a damaged one.
func decodeSegmentHeader(b []byte) (segmentHeader, error) {
	le := binary.LittleEndian
	if len(b) < headerUsed || string(b[:len(segmentMagic)]) != segmentMagic {
		return segmentHeader{}, errHeader
	}
	if crc32.Checksum(b[:headerSumOffset], castagnoli) != le.Uint32(b[headerSumOffset:]) {
		return segmentHeader{}, errHeader
	}
	h := segmentHeader{
		version:  le.Uint16(b[6:]),
		id:       [16]byte(b[8:24]),
		sequence: le.Uint64(b[24:]),
		seed:     le.Uint64(b[32:]),
		created:  int64(le.Uint64(b[40:])),
		bytes:    int64(le.Uint64(b[48:])),
	}
	if h.version > segmentVersion {
		return h, fmt.Errorf("%w (format %d; this one reads up to %d)", ErrNewerFormat, h.version, segmentVersion)
	}
	return h, nil
}

// segmentName is the base name of the segment with the given sequence number.
func segmentName(sequence uint64) string { return fmt.Sprintf("%016x%s", sequence, segmentSuffix) }

// parseSegmentName is the reverse of segmentName.
func parseSegmentName(name string) (uint64, bool) {
	hex, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(hex) != 16 || strings.ToLower(hex) != hex {
		return 0, false
	}
	seq, err := strconv.ParseUint(hex, 16, 64)
	return seq, err == nil && seq > 0
}

// segment is an open segment file.
type segment struct {
	sequence uint64
	path     string
	file     File
	size     int64
	header   segmentHeader
	state    uint32 // initial value of its frames' sums
	bad      error  // why the header cannot be used; nil if it can
	base     Position
	begun    bool  // it has a start frame
	end      int64 // offset of its end frame, 0 while it has none
	laid     int64 // up to where its blocks were written before, records or zeros; kept only with Options.ZeroAhead
	refs     int   // readers and reads under way; it is not released while there are any
	modified time.Time
}

func (s *segment) info() SegmentInfo {
	i := SegmentInfo{Name: filepath.Base(s.path), Bytes: s.size, Modified: s.modified}
	if s.begun {
		i.FirstLSN = s.base.LSN + 1
	}
	return i
}

// openSegment opens a segment's file and reads its header. A header that cannot be used is told in the segment's bad
// field; only I/O errors and a newer version are returned.
func openSegment(fs FS, path string, sequence uint64, flag int) (*segment, error) {
	f, err := fs.OpenFile(path, flag)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	s := &segment{sequence: sequence, path: path, file: f}
	if err := s.readHeader(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

func (s *segment) readHeader() error {
	size, err := s.file.Size()
	if err != nil {
		return fmt.Errorf("size of segment %s: %w", s.path, err)
	}
	s.size = size
	if size < segmentHeaderLen {
		s.bad = errNoBegin
		return nil
	}
	b := make([]byte, headerUsed)
	if _, err := s.file.ReadAt(b, 0); err != nil {
		return fmt.Errorf("read header of segment %s: %w", s.path, err)
	}
	s.header, err = decodeSegmentHeader(b)
	switch {
	case errors.Is(err, ErrNewerFormat):
		return fmt.Errorf("segment %s: %w", s.path, err)
	case err != nil:
		s.bad = err
	case s.header.sequence != s.sequence:
		s.bad = fmt.Errorf("segment %s lies under the name of another", segmentName(s.header.sequence))
	case s.header.bytes > size:
		s.bad = fmt.Errorf("file is cut: it has %d bytes of %d", size, s.header.bytes)
	}
	s.modified = time.UnixMilli(s.header.created)
	if s.bad != nil {
		return nil
	}
	s.state = seedState(s.header.seed)
	return s.readBase()
}

// readBase reads the start frame, if there is one.
func (s *segment) readBase() error {
	if s.size < segmentHeaderLen+frameHeaderLen {
		return nil
	}
	b := make([]byte, frameHeaderLen)
	if _, err := s.file.ReadAt(b, segmentHeaderLen); err != nil {
		return fmt.Errorf("read segment %s: %w", s.path, err)
	}
	if h, err := decodeFrameHeader(b, s.state); err == nil && h.kind == kindStart {
		s.base, s.begun = h.position(), true
	}
	return nil
}

// newSegment makes a segment's file under a temporary name, gives it its header and, if first is not nil, its start
// frame, syncs it and moves it to its name. So a file under a segment's name always has a whole header.
func newSegment(fs FS, dir string, h segmentHeader, first *Position) (*segment, error) {
	path := filepath.Join(dir, segmentName(h.sequence))
	f, err := fs.OpenFile(path+tempSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return nil, fmt.Errorf("make segment: %w", err)
	}
	if err := f.Allocate(h.bytes); err != nil {
		return nil, discardTemp(fs, path, f, fmt.Errorf("allocate segment %s: %w", path, err))
	}
	s := &segment{path: path, file: f, header: h}
	return s, s.launch(fs, dir, s.beginning(first))
}

// beginning is the header and, if first is not nil, the start frame, and the mark that nothing follows.
func (s *segment) beginning(first *Position) []byte {
	b := appendSegmentHeader(nil, &s.header)
	if first != nil {
		s.base, s.begun = *first, true
		b = appendControl(b, seedState(s.header.seed), kindStart, *first, first.LSN)
	}
	return append(b, zeroFrame[:]...)
}

// launch brings a file that lies at the segment's path with tempSuffix into use: it writes b at its beginning, syncs it
// and moves it to its name, durably.
func (s *segment) launch(fs FS, dir string, b []byte) error {
	f, path := s.file, s.path
	s.sequence, s.size, s.state = s.header.sequence, s.header.bytes, seedState(s.header.seed)
	s.modified = time.UnixMilli(s.header.created)
	if _, err := f.WriteAt(b, 0); err != nil {
		return discardTemp(fs, path, f, fmt.Errorf("write header of segment %s: %w", path, err))
	}
	if err := f.Sync(); err != nil {
		return discardTemp(fs, path, f, fmt.Errorf("sync segment %s: %w", path, err))
	}
	if err := fs.Rename(path+tempSuffix, path); err != nil {
		return discardTemp(fs, path, f, fmt.Errorf("rename segment: %w", err))
	}
	if err := fs.SyncDir(dir); err != nil {
		return errors.Join(fmt.Errorf("sync folder: %w", err), errInPlace, f.Close())
	}
	return nil
}

// discardTemp gives up the temporary file of a segment after err and returns err.
func discardTemp(fs FS, path string, f File, err error) error {
	f.Close()
	fs.Remove(path + tempSuffix)
	return err
}

func (l *Log) path(sequence uint64) string { return filepath.Join(l.dir, segmentName(sequence)) }
