package replication

import (
	"errors"
	"fmt"

	"qserver/storage"
	"qserver/storage/queue"
)

// decide says what a slave gets: a feed of the records behind its position, a copy, or a *Refused. ask asks it for sums of its log,
// where that is needed to tell which records are its own.
func (m *Master) decide(st *storage.Store, h *hello, name string, ask AskSums) (mode byte, feed *storage.Feed, err error) {
	mine := st.Position()
	switch {
	case m.SID != 0 && int(h.sid) == m.SID:
		return 0, nil, &Refused{Code: CodeSID, Text: fmt.Sprintf("master and slave both have -sid %d: give each its own", m.SID)}
	case mine.LSN == 0:
		return 0, nil, &Refused{Code: CodeNotReady, Text: "this server has nothing yet: it waits for a copy itself"}
	case h.position.LSN == 0:
		return modeCopy, nil, nil
	case h.history != st.History():
		return 0, nil, &Refused{Code: CodeHistory, Own: h.position.LSN,
			Text: fmt.Sprintf("the slave's folder has %d records of a history of its own: it was never a copy of this master's", h.position.LSN)}
	}
	own, common := compare(st.Epochs(), h.epochs, h.position.LSN)
	if own > 0 || h.position.LSN > mine.LSN {
		return 0, nil, m.refuse(st, h, min(common, mine.LSN), own > 0, ask)
	}
	m.mu.Lock()
	gap := m.gap
	m.mu.Unlock()
	if h.position.LSN < gap {
		return modeCopy, nil, nil
	}
	feed, err = st.Feed(name, h.position)
	switch {
	case errors.Is(err, storage.ErrPositionGone):
		return modeCopy, nil, nil
	case errors.Is(err, storage.ErrDiverged):
		return 0, nil, m.refuse(st, h, h.position.LSN, true, ask)
	}
	return modeStream, feed, err
}

// refuse finds out how many records the slave has that the master has not. Both have the same up to common at most, by their
// epochs. diverged: the slave is known to have records of its own; otherwise it may only be ahead.
func (m *Master) refuse(st *storage.Store, h *hello, common uint64, diverged bool, ask AskSums) error {
	p, err := FindParting(st.Sums, ask, common)
	if err != nil {
		return fmt.Errorf("find out which records are the slave's own: %w", err)
	}
	if p.Apart && !p.Known || diverged && p.Common == h.position.LSN {
		return &Refused{Code: CodeDiverged, Text: "the slave has records of its own that this master has not; how many is not known: the" +
			" update logs of both don't reach back to where they part"}
	}
	r := &Refused{Code: CodeDiverged, Own: h.position.LSN - p.Common, Common: p.Common}
	if !p.Apart && !diverged {
		r.Code = CodeAhead
		r.Text = fmt.Sprintf("the slave has %d records more than this master, which stands at LSN %d", r.Own, r.Common)
		return r
	}
	r.Text = fmt.Sprintf("the slave has %d records of its own that this master has not, behind LSN %d", r.Own, r.Common)
	return r
}

// Own says how many of the records up to lsn of a node with the epochs theirs a master with the epochs mine has not, and the LSN
// up to which both have the same.
func Own(mine, theirs []queue.Epoch, lsn uint64) (own, common uint64) {
	return compare(mine, theirs, lsn)
}

// compare finds out by epochs how many of the slave's records, which lead up to lsn, are its own, and the LSN up to which both
// have the same. Where the epochs agree own is 0 and common is lsn.
func compare(mine, theirs []queue.Epoch, lsn uint64) (own, common uint64) {
	// Both remember their last epochs only.
	if len(mine) > 0 && len(theirs) > 0 {
		first := max(mine[0].Number, theirs[0].Number)
		mine, theirs = from(mine, first), from(theirs, first)
	}
	for len(mine) > 0 && len(theirs) > 0 && mine[0] == theirs[0] {
		mine, theirs = mine[1:], theirs[1:]
	}
	common = lsn
	for _, rest := range [][]queue.Epoch{mine, theirs} {
		if len(rest) > 0 {
			common = min(common, rest[0].LSN-1)
		}
	}
	return lsn - common, common
}

// from drops the epochs before number.
func from(epochs []queue.Epoch, number uint64) []queue.Epoch {
	for len(epochs) > 0 && epochs[0].Number < number {
		epochs = epochs[1:]
	}
	return epochs
}
