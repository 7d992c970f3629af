package faultfs

import (
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
)

// step is an operation that changed something, as Replay does it again.
type step struct {
	op     int // number of the operation
	kind   Kind
	inode  int
	name   string
	to     string
	offset int64 // or size
	data   []byte
	failed bool // a Sync that failed
}

// inode is a file apart from its name.
type inode struct {
	id      int
	data    []byte // what reads see
	durable []byte
	pending []change // since the last Sync, or since the first change that was lost
}

// change is a write or, without data, a change of length.
type change struct {
	offset int64 // or size
	data   []byte
	resize bool
	fate   fate
}

// fate is what is known of a change.
type fate int

const (
	open    fate = iota // not synced
	lost                // a Sync failed after it: no later one makes it durable
	durable             // synced, but behind one that was lost, so it is applied after that one
)

func (c *change) apply(b []byte) []byte {
	if c.resize {
		return resize(b, c.offset)
	}
	if end := c.offset + int64(len(c.data)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[c.offset:], c.data)
	return b
}

func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size:size] // what is behind must read as zero when the file grows again
	}
	return append(b, make([]byte, size-int64(len(b)))...)
}

// disk is the state of a file system: what reads see, what is durable, and what lies between.
type disk struct {
	inodes  []*inode
	names   map[string]*inode // what ReadDir sees
	durable map[string]*inode
	pending []step // changes of names since the last SyncDir of their folder
}

func newDisk() *disk {
	return &disk{names: make(map[string]*inode), durable: make(map[string]*inode)}
}

// put makes a file that is durable.
func (d *disk) put(name string, data []byte) {
	n := &inode{id: len(d.inodes), data: append([]byte(nil), data...), durable: append([]byte(nil), data...)}
	d.inodes = append(d.inodes, n)
	d.names[name], d.durable[name] = n, n
}

// clone copies a disk on which everything is durable.
func (d *disk) clone() *disk {
	c := newDisk()
	for _, n := range d.inodes {
		m := &inode{id: n.id, data: append([]byte(nil), n.data...), durable: append([]byte(nil), n.data...)}
		c.inodes = append(c.inodes, m)
	}
	for name, n := range d.names {
		c.names[name], c.durable[name] = c.inodes[n.id], c.inodes[n.id]
	}
	return c
}

func (d *disk) apply(s step) {
	switch s.kind {
	case Create:
		n := &inode{id: len(d.inodes)}
		d.inodes = append(d.inodes, n)
		s.inode = n.id
		d.rename(d.names, s)
		d.pending = append(d.pending, s)
	case Rename, Remove:
		d.rename(d.names, s)
		d.pending = append(d.pending, s)
	case SyncDir:
		var rest []step
		for _, p := range d.pending {
			if filepath.Dir(p.name) == s.name {
				d.rename(d.durable, p)
			} else {
				rest = append(rest, p)
			}
		}
		d.pending = rest
	case Write:
		d.inodes[s.inode].change(change{offset: s.offset, data: s.data})
	case Truncate:
		d.inodes[s.inode].change(change{offset: s.offset, resize: true})
	case Sync:
		d.inodes[s.inode].sync(s.failed)
	}
}

// rename does a change of names in one of the two tables.
func (d *disk) rename(names map[string]*inode, s step) {
	switch s.kind {
	case Create:
		names[s.name] = d.inodes[s.inode]
	case Rename:
		delete(names, s.name)
		names[s.to] = d.inodes[s.inode]
	case Remove:
		delete(names, s.name)
	}
}

func (n *inode) change(c change) {
	n.data = c.apply(n.data)
	n.pending = append(n.pending, c)
}

func (n *inode) sync(failed bool) {
	anyLost := false
	for i := range n.pending {
		c := &n.pending[i]
		if c.fate == open {
			c.fate = durable
			if failed {
				c.fate = lost
			}
		}
		anyLost = anyLost || c.fate == lost
	}
	if anyLost {
		return
	}
	for i := range n.pending {
		n.durable = n.pending[i].apply(n.durable)
	}
	n.pending = nil
}

// Policy says what becomes of what was not synced.
type Policy int

// The policies. Names that were not synced are dropped with Dropped, kept with Kept, and otherwise dropped or kept one by
// one, or all, or none.
const (
	Dropped     Policy = iota // nothing of it is there
	Kept                      // all of it is there
	TornSectors               // everything up to some write, and of that some sectors of 512 bytes
	TornBytes                 // everything up to some write, and of that some bytes at its beginning
	Reordered                 // of each page of 4,096 bytes any version
	Scattered                 // of each sector any version
	Mixed                     // another policy for each file
	policies
)

// Policies returns all policies.
func Policies() []Policy {
	var all []Policy
	for p := range policies {
		all = append(all, p)
	}
	return all
}

// Replay walks through the operations of an FS that changed something.
type Replay struct {
	disk  *disk
	steps []step
	next  int
}

// Replay returns a walk through the operations up to now. It stands before the first one.
func (f *FS) Replay() *Replay {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &Replay{disk: f.start.clone(), steps: f.steps[:len(f.steps):len(f.steps)], next: -1}
}

// Next goes behind the next operation that changed something; the first call stays before the first. It returns false
// when there is none.
func (r *Replay) Next() bool {
	if r.next >= len(r.steps) {
		return false
	}
	if r.next >= 0 {
		r.disk.apply(r.steps[r.next])
	}
	r.next++
	return true
}

// N returns the number of the operation before which the replay stands: of those with a smaller number everything has
// happened.
func (r *Replay) N() int {
	if r.next >= len(r.steps) {
		return 1<<63 - 1
	}
	return r.steps[r.next].op
}

// Crash returns a file system as it could be after a power cut here. The same seed gives the same one.
func (r *Replay) Crash(p Policy, seed uint64) *FS {
	rng := rand.New(rand.NewPCG(seed, uint64(r.next)<<8|uint64(p)))
	names := r.disk.crashNames(p, rng)
	after := newDisk()
	done := make(map[*inode][]byte)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n := names[name]
		if _, ok := done[n]; !ok {
			done[n] = n.crash(p, rng)
		}
		after.put(name, done[n])
	}
	return from(after)
}

// Crash is Replay's Crash after the last operation.
func (f *FS) Crash(p Policy, seed uint64) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	return (&Replay{disk: f.disk, next: len(f.steps)}).Crash(p, seed)
}

// crashNames returns the names that are there after a crash.
func (d *disk) crashNames(p Policy, rng *rand.Rand) map[string]*inode {
	names := maps.Clone(d.durable)
	few := rng.IntN(3) // none, all, some
	for _, s := range d.pending {
		keep := few == 1 || few == 2 && rng.IntN(2) == 0
		if p == Kept || p != Dropped && keep {
			d.rename(names, s)
		}
	}
	return names
}

// crash returns a file's bytes after a crash.
func (n *inode) crash(p Policy, rng *rand.Rand) []byte {
	if p == Mixed {
		p = Policy(rng.IntN(int(Mixed)))
	}
	b := append([]byte(nil), n.durable...)
	var pending []change
	for _, c := range n.pending {
		switch {
		case c.fate == open:
			pending = append(pending, c)
		case c.fate == durable || rng.IntN(2) == 0:
			b = c.apply(b)
		}
	}
	if len(pending) == 0 {
		return b
	}
	switch p {
	case Kept:
		for i := range pending {
			b = pending[i].apply(b)
		}
	case TornSectors, TornBytes:
		k := rng.IntN(len(pending))
		for i := range pending[:k] {
			b = pending[i].apply(b)
		}
		b = torn(&pending[k], b, p, rng)
	case Reordered:
		b = scattered(pending, b, 4096, rng)
	case Scattered:
		b = scattered(pending, b, 512, rng)
	}
	return b
}

// torn applies a part of a change.
func torn(c *change, b []byte, p Policy, rng *rand.Rand) []byte {
	if c.resize || len(c.data) == 0 {
		return b
	}
	if p == TornBytes {
		part := change{offset: c.offset, data: c.data[:rng.IntN(len(c.data)+1)]}
		return part.apply(b)
	}
	end := c.offset + int64(len(c.data))
	for from := c.offset; from < end; {
		to := min(end, from/512*512+512)
		if rng.IntN(2) == 0 {
			part := change{offset: from, data: c.data[from-c.offset : to-c.offset]}
			b = part.apply(b)
		}
		from = to
	}
	return b
}

// scattered gives each block of the file one of the versions it went through, and the file one of its lengths.
func scattered(pending []change, durable []byte, block int64, rng *rand.Rand) []byte {
	versions := make(map[int64]int) // block number to how many of the changes it has seen
	size := len(durable)
	lengths := rng.IntN(len(pending) + 1)
	var whole []byte
	whole = append(whole, durable...)
	for i := range pending {
		whole = pending[i].apply(whole)
		if i < lengths {
			size = len(whole)
		}
	}
	longest := int64(max(len(whole), len(durable)))
	b := append([]byte(nil), durable...)
	b = resize(b, longest)
	for n := int64(0); n*block < longest; n++ {
		versions[n] = rng.IntN(len(pending) + 1)
	}
	for i := range pending {
		c := &pending[i]
		if c.resize {
			continue
		}
		end := c.offset + int64(len(c.data))
		for from := c.offset; from < end; {
			to := min(end, from/block*block+block)
			if i < versions[from/block] && to <= int64(len(b)) {
				copy(b[from:to], c.data[from-c.offset:to-c.offset])
			}
			from = to
		}
	}
	return resize(b, int64(size))
}
