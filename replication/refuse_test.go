package replication_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"qserver/replication"
	"qserver/storage"
	"qserver/storage/queue"
)

func TestCompareEpochs(t *testing.T) {
	e := func(number, nonce, lsn uint64) queue.Epoch {
		return queue.Epoch{Number: number, Nonce: nonce, LSN: lsn}
	}
	type epochs = []queue.Epoch
	for _, tt := range []struct {
		name         string
		mine, theirs epochs
		lsn          uint64
		own, common  uint64
	}{
		{"neither has any", nil, nil, 100, 0, 100},
		{"the same", epochs{e(2, 1, 50)}, epochs{e(2, 1, 50)}, 100, 0, 100},
		{"the slave missed the promotion", epochs{e(2, 1, 50)}, nil, 49, 0, 49},
		{"the old master wrote on", epochs{e(2, 1, 50)}, nil, 60, 11, 49},
		{"the slave led", nil, epochs{e(2, 1, 50)}, 60, 11, 49},
		{"both led", epochs{e(2, 1, 50)}, epochs{e(2, 9, 40)}, 60, 21, 39},
		{"both led from the same record on", epochs{e(2, 1, 50)}, epochs{e(2, 9, 50)}, 60, 11, 49},
		{"the second time", epochs{e(2, 1, 50), e(3, 2, 80)}, epochs{e(2, 1, 50)}, 90, 11, 79},
		{"the second time, behind", epochs{e(2, 1, 50), e(3, 2, 80)}, epochs{e(2, 1, 50)}, 70, 0, 70},
		{"the master forgot the first", epochs{e(3, 2, 80)}, epochs{e(2, 1, 50), e(3, 2, 80)}, 90, 0, 90},
		{"the slave forgot the first", epochs{e(2, 1, 50), e(3, 2, 80)}, epochs{e(3, 2, 80)}, 90, 0, 90},
	} {
		if own, common := replication.Compare(tt.mine, tt.theirs, tt.lsn); own != tt.own || common != tt.common {
			t.Errorf("%s: got %d own, %d common; want %d, %d", tt.name, own, common, tt.own, tt.common)
		}
	}
}

// refusal connects s to m once and returns the refusal.
func refusal(t *testing.T, m, s *node) *replication.Refused {
	t.Helper()
	before := s.store.Position()
	err := once(t, m, s, &badLine{readLeft: -1, toSend: -1, flip: -1})
	var refused *replication.Refused
	if !errors.As(err, &refused) {
		t.Fatalf("got %v, want a refusal", err)
	}
	if s.store.Position() != before {
		t.Error("it was changed all the same")
	}
	return refused
}

// reopen opens the node's folder again, to lead or to follow.
func (n *node) reopen(master string) {
	n.t.Helper()
	n.out.Detach()
	if err := n.store.Close(); err != nil {
		n.t.Fatal(err)
	}
	n.opts.Master = master
	n.open()
}

// TestDivergedIsRefused: slave S is promoted while master M writes on; M comes back as a slave of S and is told how many
// records of its own it has, also when the log where they begin is gone.
func TestDivergedIsRefused(t *testing.T) {
	m, s := pair(t, quick())
	common := m.store.Position().LSN
	put(t, m.store, "q", 100, 7) // S never sees these
	own := m.store.Position().LSN - common
	s.reopen("") // promoted by hand
	put(t, s.store, "q", 200, 3)
	s.out.SID = 2

	m.reopen("s:1978")
	m.in.SID = 1
	for _, when := range []string{"at once", "after a checkpoint of both"} {
		r := refusal(t, s, m)
		if r.Code != replication.CodeDiverged || r.Own != own || r.Common != common || !strings.Contains(r.Text, "7 records of its own") {
			t.Errorf("%s: got %+v, want %d own records behind LSN %d", when, r, own, common)
		}
		for _, st := range []*storage.Store{m.store, s.store} {
			if err := st.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}

	// A folder that was never a copy.
	other := newNode(t, 3, quick()).lead()
	put(t, other.store, "q", 0, 3)
	other.reopen("s:1978")
	if r := refusal(t, s, other); r.Code != replication.CodeHistory || r.Own != other.store.Position().LSN {
		t.Errorf("another history: got %+v", r)
	}
}

// TestRefusals are the other reasons.
func TestRefusals(t *testing.T) {
	m, s := pair(t, quick())
	s.in.SID = 1
	if r := refusal(t, m, s); r.Code != replication.CodeSID {
		t.Errorf("the master's sid: %+v", r)
	}
	s.in.SID = 2

	// Another slave of the same sid, while the first is connected.
	first := newNode(t, 2, quick()).follow(pipe(m))
	caughtUp(t, m, first)
	waitFor(t, "the first is there", func() bool { return m.out.Slaves()[0].State == replication.StateFollowing })
	if r := refusal(t, m, s); r.Code != replication.CodeSID {
		t.Errorf("a sid twice: %+v", r)
	}
	first.stop()

	// A master that has fallen back behind its slave.
	put(t, m.store, "q", 5, 1)
	_ = conversation(t, m, s)
	old := newNode(t, 9, quick()).follow(pipe(m))
	caughtUp(t, m, old)
	old.cancel()
	old.running.Wait()
	old.cancel = nil
	old.out.Attach(old.store)
	put(t, m.store, "q", 6, 4)
	_ = conversation(t, m, s)
	s.in.SID = 4
	if r := refusal(t, old, s); r.Code != replication.CodeAhead || r.Own != s.store.Position().LSN-old.store.Position().LSN {
		t.Errorf("ahead: %+v", r)
	}

	// A master that has nothing itself.
	empty := newNode(t, 8, quick())
	empty.opts.Master = "nobody:1"
	empty.out = &replication.Master{SID: 8, Log: empty.log}
	empty.open()
	if r := refusal(t, empty, s); r.Code != replication.CodeNotReady {
		t.Errorf("nothing: %+v", r)
	}
}

func TestSecret(t *testing.T) {
	m, s := pair(t, quick())
	dial := func(trusted bool) func(context.Context) (net.Conn, error) {
		out := m.out
		return func(context.Context) (net.Conn, error) {
			a, b := net.Pipe()
			go out.ServeConn(b, trusted)
			return a, nil
		}
	}
	for _, tt := range []struct {
		name, master, slave string
		trusted             bool
		want                string // beginning of the error; "": it follows
	}{
		{"loopback, none", "", "", true, ""},
		{"elsewhere, none", "", "", false, "refused by the master: this master has no -repl-secret-file"},
		{"elsewhere, the same", "0123456789abcdef", "0123456789abcdef", false, ""},
		{"another", "0123456789abcdef", "0123456789abcdeX", true, "refused by the master: the secret is another one"},
		{"the slave has none", "0123456789abcdef", "", true, "refused by the master: the secret is another one"},
		{"the master has none", "", "0123456789abcdef", true, "the master asks for no secret"},
	} {
		m.out.Detach()
		m.out = &replication.Master{SID: 1, Secret: []byte(tt.master), Log: m.log}
		m.out.Attach(m.store)
		s.in.Secret, s.in.Dial = []byte(tt.slave), dial(tt.trusted)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- replication.Once(s.in, ctx) }()
		if tt.want == "" {
			waitFor(t, tt.name, func() bool { return s.in.Status().State == replication.StateFollowing })
			cancel()
			<-ended
		} else if err := <-ended; err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
		cancel()
	}
}

// TestHTTP follows over an upgraded connection, and says what is wrong to those who come by mistake.
func TestHTTP(t *testing.T) {
	m := newNode(t, 1, quick()).lead()
	mux := http.NewServeMux()
	mux.Handle(replication.Path, m.out.Handler())
	web := httptest.NewServer(mux)
	defer web.Close()
	s := newNode(t, 2, quick()).follow(nil)
	s.cancel()
	s.running.Wait()
	s.in.Address, s.in.Dial = web.Listener.Addr().String(), nil
	put(t, m.store, "q", 0, 100)
	if err := replication.Once(s.in, t.Context()); !errors.Is(err, replication.ErrCopyReady) {
		t.Fatal(err)
	}
	s.reopen("master:1978")
	s.in.Address, s.in.Dial = web.Listener.Addr().String(), nil
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.in.Run(ctx) }()
	put(t, m.store, "q", 100, 100)
	caughtUp(t, m, s)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for method, want := range map[string]int{http.MethodGet: http.StatusMethodNotAllowed, http.MethodPost: http.StatusUpgradeRequired} {
		req, err := http.NewRequest(method, web.URL+replication.Path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: got %d, want %d", method, res.StatusCode, want)
		}
	}
	s.in.Address = web.Listener.Addr().String()
	mux2 := httptest.NewServer(http.NotFoundHandler())
	defer mux2.Close()
	s.in.Address = mux2.Listener.Addr().String()
	if err := replication.Once(s.in, t.Context()); err == nil || !strings.Contains(err.Error(), "takes no slaves: 404") {
		t.Errorf("another server: %v", err)
	}
}
