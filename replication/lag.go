package replication

import "time"

// lagClock says for how long somebody has been behind: it remembers when each LSN was seen to be there, and how far the
// other had come is compared with that. It needs no clocks that agree. It is not safe for concurrent use.
type lagClock struct {
	marks []lagMark
	have  uint64 // how far the other has come
}

type lagMark struct {
	lsn uint64
	at  time.Time
}

const (
	lagStep  = 10 * time.Millisecond // between two marks
	lagMarks = 1024                  // when there are more, every other one goes
)

// there notes that everything up to lsn is there to be had.
func (l *lagClock) there(lsn uint64, now time.Time) {
	n := len(l.marks)
	if lsn <= l.have || n > 0 && (l.marks[n-1].lsn >= lsn || now.Sub(l.marks[n-1].at) < lagStep) {
		return
	}
	if n == lagMarks {
		for i := range lagMarks / 2 {
			l.marks[i] = l.marks[2*i]
		}
		l.marks = l.marks[:lagMarks/2]
	}
	l.marks = append(l.marks, lagMark{lsn, now})
}

// came notes that the other has everything up to lsn.
func (l *lagClock) came(lsn uint64) {
	l.have = lsn
	n := 0
	for n < len(l.marks) && l.marks[n].lsn <= lsn {
		n++
	}
	l.marks = l.marks[:copy(l.marks, l.marks[n:])]
}

// lag is how long ago the oldest of what the other has not was there; 0: it has everything that was marked.
func (l *lagClock) lag(now time.Time) time.Duration {
	if len(l.marks) == 0 {
		return 0
	}
	return max(0, now.Sub(l.marks[0].at))
}
