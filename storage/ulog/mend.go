package ulog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// mender repairs one segment. Its patches go over a copy of the file, so that whole frames keep their places.
type mender struct {
	r       *repair
	seq     uint64
	src     *source // nil if it is missing
	from    int64
	next    *Position // where the log goes on in the next segment, nil if that is not known
	more    bool      // the log goes on behind this segment
	pos     Position
	offset  int64 // behind the last frame
	patches []patch
	cutHere bool
}

// patch is a gap or control frame that is written at offset: n bytes long, header included.
type patch struct {
	offset, n int64
	kind      byte
	pos       Position
}

// scan finds out what of the segment is whole and how to patch the rest.
func (m *mender) scan() error {
	if m.src == nil {
		m.fresh()
		return nil
	}
	m.start()
	win := m.r.win
	win.reset(m.src.file, m.src.size)
	for from := m.offset; ; {
		at, f, err := win.find(from, m.src.state, m.pos.LSN)
		if errors.Is(err, io.EOF) {
			m.finish(0)
			return nil
		}
		if err != nil {
			return fmt.Errorf("segment %s: %w", m.src.path, err)
		}
		if !m.accept(at, &f) {
			from = at + 1
			continue
		}
		if m.cutHere || f.kind == kindEnd || f.kind == kindSeal {
			m.finish(f.kind)
			return nil
		}
		from = at + f.len()
		m.offset = from
	}
}

// fresh makes a segment of which nothing is there.
func (m *mender) fresh() {
	m.patch(segmentHeaderLen, frameHeaderLen, kindStart, m.pos)
	m.offset = segmentHeaderLen + frameHeaderLen
	if n := m.from - m.offset; n >= frameHeaderLen {
		m.gap(n, m.pos) // up to where the tree has it
	}
	m.finish(0)
}

// start verifies the start frame, or puts one in its place.
func (m *mender) start() {
	m.offset = m.from
	if m.from > segmentHeaderLen {
		return
	}
	m.offset += frameHeaderLen
	if m.src.startBad || m.src.base == nil || *m.src.base != m.pos {
		m.patch(segmentHeaderLen, frameHeaderLen, kindStart, m.pos)
	}
}

func (m *mender) patch(offset, n int64, kind byte, p Position) {
	m.patches = append(m.patches, patch{offset, n, kind, p})
}

// accept takes the frame at offset at as the next whole one, with a gap frame before it if it does not follow directly.
// It reports false if the frame cannot belong here.
func (m *mender) accept(at int64, f *frame) bool {
	if f.kind == kindStart || at > m.offset && at < m.offset+frameHeaderLen {
		return false
	}
	w := walk{pos: m.pos, known: true}
	if w.follows(f, false) == nil && at == m.offset {
		m.pos = f.position()
		return true
	}
	before := f.position()
	if f.kind == kindRecord {
		if f.lsn <= m.pos.LSN {
			return false
		}
		before = Position{f.lsn - 1, chainBefore(f.raw, f.chain)}
	}
	if before.LSN == m.pos.LSN && before.Chain != m.pos.Chain || at == m.offset && f.kind != kindGap {
		return false
	}
	if m.r.cut {
		m.cutHere = true
		return true
	}
	m.gap(at-m.offset, before)
	m.pos = f.position()
	return true
}

// gap covers n bytes at the offset with a gap frame that leads to the position to.
func (m *mender) gap(n int64, to Position) {
	m.patch(m.offset, n, kindGap, to)
	if to.LSN > m.pos.LSN {
		m.r.report.Missing = append(m.r.report.Missing, Range{m.pos.LSN + 1, to.LSN})
	}
	m.offset += n
	m.pos = to
}

// finish makes the segment lead to where the log goes on. found is the kind of the frame that lies at the offset.
func (m *mender) finish(found byte) {
	want := m.next
	if !m.more && m.pos.LSN < m.r.after.LSN {
		want = &m.r.after
	}
	missing := want != nil && want.LSN > m.pos.LSN
	if missing && m.r.cut && m.more {
		m.cutHere = true
	}
	if missing && !m.cutHere {
		m.gap(frameHeaderLen, *want)
		found = 0
	}
	if found != kindEnd && (m.more || missing) || m.cutHere {
		m.patch(m.offset, frameHeaderLen, kindEnd, m.pos)
	}
}

// write makes the new file under its temporary name: a copy of the old one with the patches over it.
func (m *mender) write() error {
	r := m.r
	h := r.header(m.seq)
	size := int64(segmentHeaderLen)
	if m.src != nil {
		h, size = m.src.header, m.src.size
		h.sequence = m.seq
	}
	for _, p := range m.patches {
		size = max(size, p.offset+p.n)
	}
	h.bytes = size
	path := filepath.Join(r.dir, segmentName(m.seq))
	f, err := r.fs.OpenFile(path+tempSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return fmt.Errorf("repair segment: %w", err)
	}
	if err := m.fill(f, &h); err != nil {
		return discardTemp(r.fs, path, f, fmt.Errorf("repair segment %s: %w", path, err))
	}
	r.made = append(r.made, &segment{sequence: m.seq, path: path, file: f, header: h})
	return nil
}

func (m *mender) fill(f File, h *segmentHeader) error {
	if err := f.Truncate(h.bytes); err != nil {
		return err
	}
	if m.src != nil {
		c := copier{src: m.src.file, from: segmentHeaderLen, to: m.src.size, win: m.r.win}
		if err := c.write(f); err != nil {
			return err
		}
	}
	if _, err := f.WriteAt(appendSegmentHeader(nil, h), 0); err != nil {
		return err
	}
	state := seedState(h.seed)
	for _, p := range m.patches {
		if err := p.write(f, state, m.r.win); err != nil {
			return err
		}
	}
	return f.Sync()
}

// write writes the frame; a gap frame's body is zeros.
func (p *patch) write(f File, state uint32, win *window) error {
	h := frameHeader{kind: p.kind, bodyLen: p.n - frameHeaderLen, lsn: p.pos.LSN}
	if p.kind == kindStart {
		h.synced = p.pos.LSN
	}
	zeros := win.buf
	win.n = 0
	clear(zeros)
	for done := int64(0); done < h.bodyLen; {
		b := zeros[:min(h.bodyLen-done, int64(len(zeros)))]
		if _, err := f.WriteAt(b, p.offset+frameHeaderLen+done); err != nil {
			return err
		}
		h.bodySum = updateSum(h.bodySum, b)
		done += int64(len(b))
	}
	b := make([]byte, frameHeaderLen)
	sealFrame(b, state, &h, p.pos.Chain)
	_, err := f.WriteAt(b, p.offset)
	return err
}
