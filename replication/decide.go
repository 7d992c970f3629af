package replication

import (
	"errors"
	"fmt"

	"qserver/storage"
	"qserver/storage/queue"
)

// decide says what a slave gets: a feed of the records behind its position, a copy, or a *Refused.
func (m *Master) decide(st *storage.Store, h *hello, name string) (mode byte, feed *storage.Feed, err error) {
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
	if own > 0 {
		return 0, nil, diverged(own, common)
	}
	if h.position.LSN > mine.LSN {
		return 0, nil, &Refused{Code: CodeAhead, Own: h.position.LSN - mine.LSN, Common: mine.LSN,
			Text: fmt.Sprintf("the slave has %d records more than this master, which stands at LSN %d", h.position.LSN-mine.LSN, mine.LSN)}
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
		return 0, nil, diverged(0, 0)
	}
	return modeStream, feed, err
}

func diverged(own, common uint64) *Refused {
	r := &Refused{Code: CodeDiverged, Own: own, Common: common}
	if own == 0 {
		r.Text = "the slave has records of its own that this master has not"
		return r
	}
	r.Text = fmt.Sprintf("the slave has %d records of its own that this master has not, behind LSN %d", own, common)
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
