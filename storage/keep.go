package storage

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"qserver/storage/ulog"
)

// The log is kept for slaves that are known and behind, up to Options.LogKeep bytes in all. Which these are, and up to
// where each has it, is in the file "slaves", one line each, so that a restart keeps it too:
//
//	name TAB LSN TAB Unix ms when it was last heard of
//
// A line that is a little old keeps a little more of the log, which harms nobody.

// KeptFor is a slave that the log is kept for.
type KeptFor struct {
	Name string
	LSN  uint64    // up to which it has the log, durably
	Seen time.Time // when it said so
	Lost bool      // it is so far behind that the log is not kept for it any more: it needs a copy
}

type kept struct {
	mu      sync.Mutex
	path    string
	slaves  map[string]*KeptFor
	changed bool
	saved   time.Time
}

// savePause is how often the file is written at most.
const savePause = 5 * time.Second

// Keep keeps the log behind lsn for the slave of this name, which has it up to there on its disk. Names are single words.
func (s *Store) Keep(name string, lsn uint64) {
	if s.keep(name, lsn) {
		s.saveKept() // who ends in the next moment must know it afterwards: what it has not may be asked for
	}
}

func (s *Store) keep(name string, lsn uint64) (fresh bool) {
	k := &s.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.slaves[name]
	if f == nil {
		f = &KeptFor{Name: name}
		if k.slaves == nil {
			k.slaves = make(map[string]*KeptFor)
		}
		k.slaves[name] = f
		k.saved = time.Time{}
		fresh = true
	}
	if f.LSN != lsn || f.Lost || fresh {
		k.changed = true
	}
	f.LSN, f.Seen, f.Lost = lsn, time.Now(), false
	return fresh
}

// Unkeep forgets a slave: the log is not kept for it any more. It says whether it was known.
func (s *Store) Unkeep(name string) bool {
	k := &s.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	_, known := k.slaves[name]
	delete(k.slaves, name)
	k.changed, k.saved = true, time.Time{}
	return known
}

// Kept lists the slaves that are known, by name.
func (s *Store) Kept() []KeptFor {
	k := &s.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []KeptFor
	for _, f := range k.slaves {
		list = append(list, *f)
	}
	slices.SortFunc(list, func(a, b KeptFor) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// BehindBytes is how many bytes of the log, about, lie behind lsn: for people.
func (s *Store) BehindBytes(lsn uint64) int64 {
	if lsn >= s.ulog.Written().LSN {
		return 0
	}
	at, _ := s.ulog.PlaceOf(lsn)
	return s.ulog.Distance(at, s.ulog.End())
}

// keptPlace is the place from which on the log is kept, if the tree needs it from place on. Slaves that are too far behind
// are lost on the way.
func (s *Store) keptPlace(place ulog.Place) ulog.Place {
	k := &s.kept
	limit := s.opts.LogKeep
	if s.full.Load() { // who enqueues comes first
		limit = min(limit, 2*s.opts.SegmentBytes)
	}
	end := s.ulog.End()
	if n := uint64(s.opts.LogSegments); !s.full.Load() {
		if least := (ulog.Place{Segment: end.Segment - min(n, end.Segment)}); least.Before(place) {
			place = least
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range k.slaves {
		if f.Lost {
			continue
		}
		at, ok := s.ulog.PlaceOf(f.LSN)
		if behind := s.ulog.Distance(at, end); !ok || behind > limit && at.Before(place) {
			f.Lost, k.changed, k.saved = true, true, time.Time{}
			s.loseFeeds(f.Name)
			s.log.Warn("slave is too far behind: the update log is not kept for it any more, it will need a copy", "slave", f.Name,
				"lsn", f.LSN, "bytes", behind, "limit", limit)
			continue
		}
		if at.Before(place) {
			place = at
		}
	}
	return place
}

// releaseLog releases what the tree, which stands at place, and the slaves don't need.
func (s *Store) releaseLog(place ulog.Place) error {
	if s.opts.keepLog {
		return nil
	}
	return s.ulog.Release(s.keptPlace(place))
}

func (k *kept) any() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.slaves) > 0
}

// load reads the file of the folder dir. A line that can't be read is as none: at worst its slave needs a copy.
func (k *kept) load(dir string) error {
	k.path = filepath.Join(dir, "slaves")
	b, err := os.ReadFile(k.path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	k.slaves = make(map[string]*KeptFor)
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		var f KeptFor
		var seen int64
		if n, err := fmt.Sscanf(lines.Text(), "%s\t%d\t%d", &f.Name, &f.LSN, &seen); n == 3 && err == nil {
			f.Seen = time.UnixMilli(seen)
			k.slaves[f.Name] = &f
		}
	}
	return nil
}

// saveKept writes the file if it is time.
func (s *Store) saveKept() {
	k := &s.kept
	k.mu.Lock()
	due := k.changed && time.Since(k.saved) > savePause
	k.mu.Unlock()
	if !due {
		return
	}
	if err := k.save(); err != nil {
		s.log.Warn("file of the known slaves not written; it is tried again", "err", err)
	}
}

// save writes the file if anything has changed.
func (k *kept) save() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.changed {
		return nil
	}
	var b []byte
	for _, f := range k.slaves {
		if !f.Lost {
			b = fmt.Appendf(b, "%s\t%d\t%d\n", f.Name, f.LSN, f.Seen.UnixMilli())
		}
	}
	k.saved = time.Now()
	if err := writeWhole(k.path, b); err != nil {
		return err
	}
	k.changed = false
	return nil
}

// writeWhole puts a file with these bytes at path: the old one or the new one is there, whole.
func writeWhole(path string, b []byte) error {
	temp := path + ".new"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return ulog.OS{}.SyncDir(filepath.Dir(path))
}
