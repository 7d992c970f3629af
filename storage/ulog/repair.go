package ulog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// damagedSuffix is appended to the name of a file that Repair has replaced.
const damagedSuffix = ".damaged"

// Range is a run of LSNs, both ends included.
type Range struct{ First, Last uint64 }

// RepairReport tells what Repair did.
type RepairReport struct {
	SetAside []string // files that were damaged, under the names they have now
	Missing  []Range  // LSNs for which no record was found
	Dropped  []string // with cut: files behind the damage that were set aside whole
	Last     Position // position of the last record now
}

// Repair makes a damaged log whole again, so that Open takes it. Every damaged segment's file is kept under its name with
// ".damaged" appended, and a new one is put in its place that holds every record whose own sums are right, at the offset
// at which it lay, and gap frames in the place of what is missing. With cut the log ends at the first damage instead, and
// the segments behind it are set aside. A log that is not damaged is left alone.
//
// after and at are as for Open. The log must not be open. If Repair is interrupted it can be run again.
func Repair(dir string, fs FS, after Position, at Place, cut bool) (RepairReport, error) {
	_, err := Check(dir, fs, after, at, nil)
	if _, ok := errors.AsType[*CorruptError](err); !ok {
		return RepairReport{}, err
	}
	sequences, _, err := listSegments(fs, dir)
	if err != nil {
		return RepairReport{}, err
	}
	all, err := openSegments(fs, dir, sequences, os.O_RDONLY)
	if err != nil {
		return RepairReport{}, err
	}
	_, segs := splitSegments(all, at)
	r := repair{dir: dir, fs: fs, after: after, at: at, cut: cut, files: segs, win: windowFor(segs)}
	err = r.run()
	return r.report, errors.Join(err, closeSegments(append(all, r.made...)))
}

// repair is the work of one Repair.
type repair struct {
	dir    string
	fs     FS
	id     [16]byte
	after  Position
	at     Place
	cut    bool
	files  []*segment // as they lie in the folder
	win    *window
	pos    Position
	ended  uint64     // with cut: the segment the log now ends with, 0 if it goes on
	made   []*segment // new files, still under temporary names
	report RepairReport
}

func (r *repair) run() error {
	r.vote()
	sources, first, err := r.sources()
	if err != nil {
		return err
	}
	r.pos = r.after
	for i := range sources {
		seq, s := first+uint64(i), sources[i]
		if i == 0 && (s == nil || seq != r.at.Segment || r.at.Offset <= segmentHeaderLen) {
			if s != nil && s.base != nil && s.base.LSN <= r.after.LSN {
				r.pos = *s.base
			}
		}
		if err := r.segment(seq, s, sources[i+1:]); err != nil {
			return err
		}
	}
	r.report.Last = r.pos
	return r.install()
}

// source is a file that holds a segment whose frames can be verified.
type source struct {
	*segment
	base     *Position // what it begins with, if that is known
	startBad bool      // its start frame is damaged
}

// sources returns the source of each segment that the log has or had, nil for those without one, and the first one's
// sequence number.
func (r *repair) sources() ([]*source, uint64, error) {
	first, last := r.at.Segment, r.at.Segment
	for _, s := range r.files {
		if first == 0 {
			first = s.sequence
		}
		last = max(last, s.sequence)
	}
	var all []*source
	for seq := first; seq <= last; seq++ {
		s, err := r.source(seq)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, s)
	}
	// A log that begins too late gets a segment in front, for the gap.
	if r.at.Segment == 0 && first > 1 && all[0] != nil && all[0].base != nil && all[0].base.LSN > r.after.LSN {
		return append([]*source{nil}, all...), first - 1, nil
	}
	return all, first, nil
}

// source finds the file that holds the segment seq: the one under its name or, after a mix-up, another one whose header
// says so.
func (r *repair) source(seq uint64) (*source, error) {
	var found *segment
	for _, s := range r.files {
		switch {
		case s.sequence == seq && s.bad == nil:
			return r.begin(s)
		case s.sequence == seq && s.bad == errHeader:
			if r.guess(s) {
				found = s
			}
		case s.bad != nil && s.header.sequence == seq && s.header.id == r.id:
			// It was cut short, or lies under the wrong name.
			s.state = seedState(s.header.seed)
			if err := s.readBase(); err != nil {
				return nil, err
			}
			found = s
		}
	}
	if found == nil {
		return nil, nil
	}
	return r.begin(found)
}

// begin finds out what a segment begins with. It returns nil if there is not one frame in it: then it is a spare.
func (r *repair) begin(s *segment) (*source, error) {
	if s.begun {
		return &source{segment: s, base: &s.base}, nil
	}
	r.win.reset(s.file, s.size)
	at, f, err := r.win.find(segmentHeaderLen, s.state, 0)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("segment %s: %w", s.path, err)
	}
	src := &source{segment: s, startBad: true}
	if at == segmentHeaderLen+frameHeaderLen {
		src.base = &Position{f.lsn, f.chain}
		if f.kind == kindRecord {
			src.base = &Position{f.lsn - 1, chainBefore(f.raw, f.chain)}
		}
	}
	return src, nil
}

// vote finds the log's id as most headers have it.
func (r *repair) vote() {
	votes := make(map[[16]byte]int)
	for _, s := range r.files {
		if s.header.id == ([16]byte{}) {
			continue
		}
		votes[s.header.id]++
		if votes[s.header.id] > votes[r.id] {
			r.id = s.header.id
		}
	}
	if r.id == ([16]byte{}) {
		r.id = newLogID()
	}
}

// guess makes up the header of a segment whose header is damaged. The sum of its start frame gives the initial value of
// its sums, and one more frame that fits shows that it was one.
func (r *repair) guess(s *segment) bool {
	b := make([]byte, frameHeaderLen)
	if _, err := s.file.ReadAt(b, segmentHeaderLen); err != nil {
		return false
	}
	state := stateOf(b)
	h, err := decodeFrameHeader(b, state)
	if err != nil || h.kind != kindStart {
		return false
	}
	r.win.reset(s.file, s.size)
	if _, _, err := r.win.find(segmentHeaderLen+frameHeaderLen, state, h.lsn); err != nil {
		return false
	}
	s.header = r.header(s.sequence)
	s.header.seed = seedFor(state)
	s.state, s.base, s.begun = state, h.position(), true
	return true
}

func (r *repair) header(seq uint64) segmentHeader {
	return segmentHeader{
		version: segmentVersion, id: r.id, sequence: seq, seed: newSeed(), created: time.Now().UnixMilli(),
	}
}

// segment repairs one segment, if it has to be: it must lead from the position reached to what comes behind it.
func (r *repair) segment(seq uint64, s *source, behind []*source) error {
	m := mender{r: r, seq: seq, src: s, from: segmentHeaderLen, pos: r.pos}
	if seq == r.at.Segment {
		m.from = max(m.from, r.at.Offset)
	}
	for _, next := range behind {
		m.more = m.more || next != nil
	}
	if m.more && behind[0] != nil {
		m.next = behind[0].base
	}
	switch {
	case r.ended > 0, s == nil && !m.more && seq != r.at.Segment:
		return nil // the log ends before it
	case s == nil && r.cut && seq != r.at.Segment:
		r.ended = seq - 1
		return nil
	}
	if err := m.scan(); err != nil {
		return err
	}
	r.pos = m.pos
	if m.cutHere {
		r.ended = seq
	}
	if len(m.patches) == 0 && s != nil && s.sequence == seq && s.bad == nil {
		return nil
	}
	return m.write()
}

// install sets the damaged files aside and moves the new ones to their places.
func (r *repair) install() error {
	made := make(map[uint64]bool)
	for _, n := range r.made {
		made[n.header.sequence] = true
	}
	for _, s := range r.files {
		switch {
		case made[s.sequence]:
			if err := r.copyAside(s); err != nil {
				return err
			}
		case r.dropped(s):
			aside := s.path + damagedSuffix
			if err := r.fs.Rename(s.path, aside); err != nil {
				return fmt.Errorf("set segment aside: %w", err)
			}
			r.report.Dropped = append(r.report.Dropped, aside)
		}
	}
	if err := r.fs.SyncDir(r.dir); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	for _, n := range r.made {
		if err := r.fs.Rename(n.path+tempSuffix, n.path); err != nil {
			return fmt.Errorf("rename segment: %w", err)
		}
	}
	if err := r.fs.SyncDir(r.dir); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}

// dropped reports whether a file that was not replaced has to go: it lies behind the end of the log, or its header is
// not what it has to be.
func (r *repair) dropped(s *segment) bool {
	return s.bad != nil || r.ended > 0 && s.sequence > r.ended
}

// copyAside copies a damaged file to its name with damagedSuffix. An earlier copy is not overwritten.
func (r *repair) copyAside(s *segment) error {
	path := s.path + damagedSuffix
	names, err := r.fs.ReadDir(r.dir)
	if err != nil {
		return fmt.Errorf("list update log: %w", err)
	}
	for n := 2; slices.Contains(names, filepath.Base(path)); n++ {
		path = fmt.Sprintf("%s%s%d", s.path, damagedSuffix, n)
	}
	f, err := r.fs.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return fmt.Errorf("set segment aside: %w", err)
	}
	c := copier{src: s.file, to: s.size, win: r.win}
	err = c.write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("set segment aside as %s: %w", path, err)
	}
	r.report.SetAside = append(r.report.SetAside, path)
	return nil
}
