package replication

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"qserver/storage"
	"qserver/storage/ulog"
)

// Where two logs part is found by asking both for their sums at some LSNs, again and again, closer each time: their records are the
// same up to the last LSN at which the sums are.

// AskSums asks a log for its sums at some LSNs, at most maxAsked.
type AskSums func(lsns []uint64) (storage.Sums, error)

// Parting says where two logs part.
type Parting struct {
	Apart  bool   // they are known to differ
	Known  bool   // where is known; otherwise it lies before Common, to which one of them does not reach back
	Common uint64 // LSN up to which both have the same
}

const (
	askedAtOnce = 8
	maxAsked    = 64
)

// FindParting compares two logs up to the LSN upTo. Where one of them doesn't know its sum there they are taken to be the same.
func FindParting(mine, theirs AskSums, upTo uint64) (p Parting, err error) {
	p = Parting{Common: upTo}
	same, differ, after, err := compareSums(mine, theirs, []uint64{upTo})
	if err != nil || same == upTo || differ == 0 {
		return p, err
	}
	p.Apart, p.Common = true, after
	if after >= upTo {
		p.Common = upTo
		return p, nil
	}
	if after > 0 { // before the first record all are the same
		if same, _, _, err = compareSums(mine, theirs, []uint64{after}); err != nil || same != after {
			return p, err
		}
	}
	p.Known = true
	for end := upTo; end-p.Common > 1; {
		same, differ, _, err := compareSums(mine, theirs, between(p.Common, end))
		if err != nil {
			return p, err
		}
		if same == 0 && differ == 0 {
			break // there is a gap
		}
		if same > 0 {
			p.Common = same
		}
		if differ > 0 {
			end = differ
		}
	}
	return p, nil
}

// between returns some LSNs behind low and before high, at least one.
func between(low, high uint64) (lsns []uint64) {
	n := min(askedAtOnce, high-low-1)
	for i := range n {
		lsns = append(lsns, low+1+(high-low-1)*i/n)
	}
	return lsns
}

// compareSums asks both. same is the last LSN at which they agree, differ the first at which they don't, each 0 if there is none;
// after is where the one that begins later begins.
func compareSums(mine, theirs AskSums, lsns []uint64) (same, differ, after uint64, err error) {
	a, err := mine(lsns)
	if err != nil {
		return 0, 0, 0, err
	}
	b, err := theirs(lsns)
	if err != nil {
		return 0, 0, 0, err
	}
	chains := make(map[uint64]uint32, len(a.At))
	for _, p := range a.At {
		chains[p.LSN] = p.Chain
	}
	for _, p := range b.At {
		chain, known := chains[p.LSN]
		switch {
		case !known:
		case chain == p.Chain:
			same = p.LSN
		case differ == 0:
			differ = p.LSN
		}
	}
	return same, differ, max(a.After, b.After), nil
}

// askSlave asks the slave behind l.
func askSlave(l *link) AskSums {
	return func(lsns []uint64) (storage.Sums, error) {
		a := ask{lsns}
		if err := l.send(a.append(nil)); err != nil {
			return storage.Sums{}, err
		}
		var s sums
		_, err := l.expectWithin(searchTimeout, kindSums, &s)
		return storage.Sums(s), err
	}
}

// answerSums is the slave's side.
func (s *Slave) answerSums(l *link, payload []byte) error {
	var a ask
	if err := a.parse(payload); err != nil {
		return err
	}
	got, err := s.Store.Sums(a.lsns)
	if err != nil {
		return err
	}
	answer := sums(got)
	return l.send(answer.append(nil))
}

// SumsPath is where SumsHandler belongs.
const SumsPath = "/api/v1/replication/sums"

// sumsJSON is its answer.
type sumsJSON struct {
	After uint64    `json:"after_lsn"` // the log has the records behind it
	Sums  []sumJSON `json:"sums"`
}

type sumJSON struct {
	LSN   uint64 `json:"lsn"`
	Chain uint32 `json:"chain"`
}

// SumsURI is the request for the sums at some LSNs, and ParseSums reads its answer.
func SumsURI(lsns []uint64) string {
	text := make([]string, len(lsns))
	for i, lsn := range lsns {
		text[i] = strconv.FormatUint(lsn, 10)
	}
	return SumsPath + "?lsn=" + strings.Join(text, ",")
}

// ParseSums reads what SumsHandler answers.
func ParseSums(b []byte) (s storage.Sums, err error) {
	var j sumsJSON
	err = json.Unmarshal(b, &j)
	s.After = j.After
	for _, p := range j.Sums {
		s.At = append(s.At, ulog.Position{LSN: p.LSN, Chain: p.Chain})
	}
	return s, err
}

// SumsHandler answers GET SumsPath?lsn=N,N,… with the sums of the store's log there, as far as it has them. It reads parts of the log,
// one request at a time.
func SumsHandler(m *Master) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse := func(status int, text string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": text})
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			refuse(http.StatusMethodNotAllowed, "method not allowed; allowed: GET, HEAD")
			return
		}
		var lsns []uint64
		for text := range strings.SplitSeq(r.URL.Query().Get("lsn"), ",") {
			lsn, err := strconv.ParseUint(text, 10, 64)
			if err != nil || len(lsns) == maxAsked {
				refuse(http.StatusBadRequest, "lsn: want up to 64 numbers, parted by commas")
				return
			}
			lsns = append(lsns, lsn)
		}
		st := m.enter(nil)
		if st == nil {
			refuse(http.StatusServiceUnavailable, "this server is not ready")
			return
		}
		defer m.leave(nil)
		m.sums.Lock()
		defer m.sums.Unlock()
		got, err := st.Sums(lsns)
		if err != nil {
			refuse(http.StatusInternalServerError, "read the update log: "+err.Error())
			return
		}
		j := sumsJSON{After: got.After, Sums: []sumJSON{}}
		for _, p := range got.At {
			j.Sums = append(j.Sums, sumJSON{p.LSN, p.Chain})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(j)
	})
}
