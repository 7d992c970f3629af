package replication_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"qserver/replication"
	"qserver/storage"
	"qserver/storage/ulog"
)

// fakeLog has a sum for each LSN behind after up to last; it is its own from the LSN own on.
type fakeLog struct {
	after, last, own uint64
	salt             uint32
	gap              map[uint64]bool
}

func (f *fakeLog) sums(lsns []uint64) (s storage.Sums, err error) {
	s.After = f.after
	for _, lsn := range lsns {
		if lsn < f.after || lsn > f.last || f.gap[lsn] {
			continue
		}
		chain := uint32(lsn) * 2654435761
		if lsn >= f.own {
			chain ^= f.salt
		}
		s.At = append(s.At, ulog.Position{LSN: lsn, Chain: chain})
	}
	return s, nil
}

func TestFindParting(t *testing.T) {
	const never = 1 << 62
	for _, tt := range []struct {
		name         string
		mine, theirs fakeLog
		upTo         uint64
		want         replication.Parting
	}{
		{"the same", fakeLog{0, 100, never, 1, nil}, fakeLog{0, 90, never, 2, nil}, 90, replication.Parting{Common: 90}},
		{"the last one", fakeLog{0, 100, never, 1, nil}, fakeLog{0, 90, 90, 2, nil}, 90, replication.Parting{Apart: true, Known: true, Common: 89}},
		{"from the first on", fakeLog{0, 100, never, 1, nil}, fakeLog{0, 90, 1, 2, nil}, 90, replication.Parting{Apart: true, Known: true}},
		{"a single one", fakeLog{0, 1, never, 1, nil}, fakeLog{0, 1, 1, 2, nil}, 1, replication.Parting{Apart: true, Known: true}},
		{"right behind the beginning", fakeLog{20, 100, never, 1, nil}, fakeLog{10, 90, 21, 2, nil}, 90, replication.Parting{Apart: true, Known: true, Common: 20}},
		{"before the beginning", fakeLog{20, 100, never, 1, nil}, fakeLog{10, 90, 20, 2, nil}, 90, replication.Parting{Apart: true, Common: 20}},
		{"one has nothing there", fakeLog{95, 100, never, 1, nil}, fakeLog{10, 90, 20, 2, nil}, 90, replication.Parting{Common: 90}},
		{"one begins there", fakeLog{90, 100, never, 1, nil}, fakeLog{10, 90, 20, 2, nil}, 90, replication.Parting{Apart: true, Common: 90}},
		{"a gap", fakeLog{0, 100, never, 1, map[uint64]bool{49: true, 50: true, 51: true}}, fakeLog{0, 90, 50, 2, nil}, 90,
			replication.Parting{Apart: true, Known: true, Common: 48}},
	} {
		got, err := replication.FindParting(tt.mine.sums, tt.theirs.sums, tt.upTo)
		if err != nil || got != tt.want {
			t.Errorf("%s: got %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}

	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		last := 1 + rng.Uint64N(1<<(1+rng.Uint64N(40)))
		own := 1 + rng.Uint64N(last)
		mine, theirs := fakeLog{0, last, never, 1, nil}, fakeLog{0, last, own, 2, nil}
		asked := 0
		count := func(lsns []uint64) (storage.Sums, error) {
			if asked++; len(lsns) == 0 || len(lsns) > 64 {
				t.Fatalf("%d LSNs are asked for", len(lsns))
			}
			return theirs.sums(lsns)
		}
		got, err := replication.FindParting(mine.sums, count, last)
		if want := (replication.Parting{Apart: true, Known: true, Common: own - 1}); err != nil || got != want || asked > 20 {
			t.Fatalf("own from %d of %d on: got %+v, %v, after %d questions", own, last, got, err, asked)
		}
	}
	broken := errors.New("broken")
	mine := fakeLog{0, 10, never, 1, nil}
	if _, err := replication.FindParting(mine.sums, func([]uint64) (storage.Sums, error) { return storage.Sums{}, broken }, 5); !errors.Is(err, broken) {
		t.Errorf("got %v, want the error of the other side", err)
	}
}

// TestSameEpoch: a folder was copied by hand, and both write on in the same epoch. The copy is refused, with the number of its own
// records, whichever of them has more.
func TestSameEpoch(t *testing.T) {
	for _, tt := range []struct{ common, master, slave int }{{50, 30, 7}, {50, 7, 30}, {50, 9, 9}, {1, 1, 1}, {3000, 500, 2000}} {
		t.Run(fmt.Sprintf("%d common, %d and %d", tt.common, tt.master, tt.slave), func(t *testing.T) {
			o := quick()
			o.LogSegments, o.SegmentBytes = 2, 1<<20
			m := newNode(t, 1, o).lead()
			put(t, m.store, "q", 0, tt.common)
			m.out.Detach()
			if err := m.store.Close(); err != nil {
				t.Fatal(err)
			}
			c := newNode(t, 2, o)
			if err := os.CopyFS(c.dir, os.DirFS(m.dir)); err != nil {
				t.Fatal(err)
			}
			m.open()
			c.lead()
			common := m.store.Position()
			if c.store.Position() != common {
				t.Fatalf("the copy stands at %v, not at %v", c.store.Position(), common)
			}
			put(t, m.store, "q", 10_000, tt.master)
			put(t, c.store, "q", 20_000, tt.slave)
			own := c.store.Position().LSN - common.LSN
			c.reopen("m:1978")
			r := refusal(t, m, c)
			if r.Code != replication.CodeDiverged || r.Own != own || r.Common != common.LSN {
				t.Errorf("got %+v, want %d own records behind LSN %d", r, own, common.LSN)
			}

			// The same over HTTP, as rejoin asks.
			web := httptest.NewServer(replication.SumsHandler(m.out))
			defer web.Close()
			theirs := func(lsns []uint64) (s storage.Sums, err error) {
				code, body := getBody(t, web.URL+replication.SumsURI(lsns))
				if code != http.StatusOK {
					return s, errors.New(body)
				}
				return replication.ParseSums([]byte(body))
			}
			p, err := replication.FindParting(c.store.Sums, theirs, min(m.store.Position().LSN, c.store.Position().LSN))
			if want := (replication.Parting{Apart: true, Known: true, Common: common.LSN}); err != nil || p != want {
				t.Errorf("over HTTP: got %+v, %v, want %+v", p, err, want)
			}
		})
	}
}

// TestSameEpochLogGone: how many are a slave's own is not known where its log begins behind the first of them.
func TestSameEpochLogGone(t *testing.T) {
	o := quick()
	o.LogSegments = 2
	m := newNode(t, 1, o).lead()
	put(t, m.store, "q", 0, 10)
	m.out.Detach()
	if err := m.store.Close(); err != nil {
		t.Fatal(err)
	}
	c := newNode(t, 2, quick()) // keeps nothing
	if err := os.CopyFS(c.dir, os.DirFS(m.dir)); err != nil {
		t.Fatal(err)
	}
	m.open()
	c.lead()
	put(t, m.store, "q", 10_000, 20)
	put(t, c.store, "q", 20_000, 10)
	c.reopen("m:1978")
	if s, err := c.store.Sums(nil); err != nil || s.After != c.store.Position().LSN {
		t.Fatalf("the log begins behind %d, %v: the test needs one that was let go of", s.After, err)
	}
	if r := refusal(t, m, c); r.Code != replication.CodeDiverged || r.Own != 0 || !strings.Contains(r.Text, "how many is not known") {
		t.Errorf("got %+v, want that it is not known", r)
	}
}

func TestSumsHandler(t *testing.T) {
	m := newNode(t, 1, quick()).lead()
	put(t, m.store, "q", 0, 5)
	web := httptest.NewServer(replication.SumsHandler(m.out))
	defer web.Close()
	at := m.store.Position()
	for query, want := range map[string]string{
		"": "want up to 64 numbers", "?lsn=x": "want up to 64 numbers", "?lsn=1" + strings.Repeat(",1", 64): "want up to 64 numbers",
		fmt.Sprintf("?lsn=%d,999999", at.LSN): fmt.Sprintf(`{"after_lsn":0,"sums":[{"lsn":%d,"chain":%d}]}`, at.LSN, at.Chain),
	} {
		if _, body := getBody(t, web.URL+replication.SumsPath+query); !strings.Contains(body, want) {
			t.Errorf("%s: got %s, want %s", query, body, want)
		}
	}
	m.out.Detach()
	if code, _ := getBody(t, web.URL+replication.SumsPath+"?lsn=1"); code != http.StatusServiceUnavailable {
		t.Errorf("without a store: got %d", code)
	}
}

func getBody(t *testing.T, url string) (status int, body string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}
