package storage

import (
	"errors"
	"io"
	"path/filepath"
	"slices"

	"qserver/storage/ulog"
)

// Two logs of one history have the same chained sum at an LSN if they have the same records up to there, and, but for one case in
// 2^32, another one if not. So sums at some LSNs say where two logs part.

// Sums is what a log says of the LSNs that it was asked for.
type Sums struct {
	After uint64          // the log has the records behind this LSN
	At    []ulog.Position // of those that it knows, ascending
}

// readAhead is how many records are read, at most, to get from one LSN to the next rather than look for its segment.
const readAhead = 50_000

// SumsOf returns what the log of the folder dir, which leads to end, says of these LSNs. A server may have the folder open: then
// end is where it stood.
func SumsOf(dir string, end ulog.Position, lsns []uint64) (s Sums, err error) {
	path := filepath.Join(dir, "ulog")
	first, err := beginOf(path)
	if err != nil {
		return s, classify(err)
	}
	s.After = first.LSN
	var o *ulog.Outside
	var at ulog.Position
	defer func() {
		if o != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	for _, lsn := range slices.Sorted(slices.Values(lsns)) {
		switch {
		case lsn < first.LSN || lsn > end.LSN:
			continue
		case lsn == first.LSN:
			at = first
		case lsn == end.LSN:
			at = end
		default:
			if o == nil || lsn-at.LSN > readAhead {
				if o != nil {
					err = o.Close()
				}
				if err == nil {
					o, err = ulog.OpenOutside(path, nil, lsn)
				}
				if err != nil {
					return s, classify(err)
				}
			}
			if at, err = readUpTo(o, at, lsn); err != nil {
				return s, classify(err)
			}
		}
		if at.LSN == lsn {
			s.At = append(s.At, at)
		}
	}
	return s, nil
}

// beginOf is the position behind which the records of the log begin.
func beginOf(path string) (p ulog.Position, err error) {
	o, err := ulog.OpenOutside(path, nil, 0)
	if err != nil {
		return p, err
	}
	switch _, err = o.Next(); {
	case err == nil:
		p = o.Before()
	case errors.Is(err, io.EOF):
		p, err = o.Position(), nil
	}
	return p, errors.Join(err, o.Close())
}

// readUpTo reads on from at until the record with this LSN, or behind it where there is a gap, and returns its position; at the end of
// what is there, that of the last one.
func readUpTo(o *ulog.Outside, at ulog.Position, lsn uint64) (ulog.Position, error) {
	for at.LSN < lsn {
		rec, err := o.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return at, err
		}
		at = rec.Position
	}
	return at, nil
}

// Sums returns what the store's log says of these LSNs.
func (s *Store) Sums(lsns []uint64) (Sums, error) { return SumsOf(s.dir, s.Position(), lsns) }
