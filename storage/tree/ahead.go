package tree

import "os"

// maxAhead is how many leaves are read ahead: 1 MiB of pages of 16 KiB.
const maxAhead = 64

// ahead has the system read the leaves that a walk will come to. It begins with a few, so that a short one costs little.
type ahead struct {
	parent uint64 // branch above the leaves
	to     int    // leaves of it before this one are on their way
	n      int    // leaves asked for last
}

// next is called when the walk has moved on to another leaf below the branch l.
func (a *ahead) next(s *source, l *level) {
	if a.parent != l.page.id {
		a.parent, a.to = l.page.id, l.i
	}
	if l.i < a.to-a.n/2 {
		return
	}
	a.n = min(max(2*a.n, 4), maxAhead)
	from := max(a.to, l.i)
	a.to = min(from+a.n, l.page.count)
	for from < a.to {
		first, n := l.page.child(from), uint64(1)
		for from++; from < a.to && l.page.child(from) == first+n; from++ {
			n++
		}
		s.willNeed(first, n)
	}
}

// willNeed has n pages from id on read ahead.
func (s *source) willNeed(id, n uint64) {
	if id >= s.pages || n > s.pages-id {
		return // damage, which the walk will come to
	}
	start := id * uint64(s.pageSize) &^ uint64(os.Getpagesize()-1)
	willNeed(s.data[start : (id+n)*uint64(s.pageSize)])
}
