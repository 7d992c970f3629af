package replication_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"qserver/replication"
)

// muteLine is a line that loses what is sent while it is mute, without a word to either side.
type muteLine struct{ toSlave, toMaster atomic.Bool }

// dial connects over the line to m.
func (l *muteLine) dial(m *node) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		slave, a := net.Pipe()
		b, master := net.Pipe()
		carry := func(dst, src net.Conn, mute *atomic.Bool) {
			defer src.Close()
			buf := make([]byte, 64<<10)
			for {
				n, err := src.Read(buf)
				switch {
				case mute.Load() && err != nil: // the end is lost, too
					return
				case mute.Load():
					continue
				case err == nil:
					_, err = dst.Write(buf[:n])
				}
				if err != nil {
					dst.Close()
					return
				}
			}
		}
		go carry(a, b, &l.toSlave)
		go carry(b, a, &l.toMaster)
		go m.out.ServeConn(master, true)
		return slave, nil
	}
}

// TestSilence: a side that hears nothing any more, while its connection stands, gives it up after ten seconds, says so, and the slave
// connects again by itself; before that, nothing is noticed but the lag.
func TestSilence(t *testing.T) {
	for name, mute := range map[string]func(l *muteLine, on bool){
		"both ways":       func(l *muteLine, on bool) { l.toSlave.Store(on); l.toMaster.Store(on) },
		"what it is sent": func(l *muteLine, on bool) { l.toSlave.Store(on) },
		"what it sends":   func(l *muteLine, on bool) { l.toMaster.Store(on) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newNode(t, 1, quick()).lead()
				line := new(muteLine)
				s := newNode(t, 2, quick()).follow(line.dial(m))
				put(t, m.store, "q", 0, 10)
				caughtUp(t, m, s)
				time.Sleep(30 * time.Second) // nothing happens, and they know of each other
				if st := s.slave().Status(); st.State != replication.StateFollowing || st.Reconnect != 0 {
					t.Fatalf("after a quiet time: %+v", st)
				}

				mute(line, true)
				put(t, m.store, "q", 10, 10)
				time.Sleep(8 * time.Second)
				if st := s.slave().Status(); st.State != replication.StateFollowing || st.Reconnect != 0 {
					t.Errorf("too early: %+v", st)
				}
				time.Sleep(4 * time.Second)
				if st := s.slave().Status(); st.Reconnect != 1 || st.Error == "" || st.State != replication.StateConnecting {
					t.Errorf("the slave says nothing: %+v", st)
				}
				if list := m.out.Slaves(); len(list) != 1 || list[0].State != replication.StateGone || list[0].Lag.Records == 0 {
					t.Errorf("the master says nothing: %+v", list)
				}
				mute(line, false)
				caughtUp(t, m, s)
				waitFor(t, "the master knows", func() bool {
					list := m.out.Slaves()
					return len(list) == 1 && list[0].State == replication.StateFollowing && list[0].Lag.Records == 0
				})
			})
		})
	}
}

// TestBackoff: the waits between attempts grow from 0.1 to 5 seconds, with jitter; behind a refusal they are 5 to 6 seconds.
func TestBackoff(t *testing.T) {
	attempts := func(t *testing.T, dial func(context.Context) (net.Conn, error)) (waits []time.Duration) {
		m := newNode(t, 1, quick()).lead()
		s := newNode(t, 2, quick()).follow(pipe(m))
		put(t, m.store, "q", 0, 1)
		caughtUp(t, m, s)
		last := time.Now()
		s.turn(func(ctx context.Context) (net.Conn, error) {
			waits = append(waits, time.Since(last))
			last = time.Now()
			return dial(ctx)
		})
		time.Sleep(2 * time.Minute)
		s.halt()
		return waits[1:]
	}
	synctest.Test(t, func(t *testing.T) {
		waits := attempts(t, func(context.Context) (net.Conn, error) { return nil, errors.New("no way") })
		most, different := 100*time.Millisecond, 0
		for i, wait := range waits {
			if wait < most/2 || wait > most {
				t.Errorf("wait %d: %v, want %v to %v", i, wait, most/2, most)
			}
			if wait != most && wait != most/2 {
				different++
			}
			most = min(2*most, 5*time.Second)
		}
		if len(waits) < 20 || different < len(waits)/2 {
			t.Errorf("waits %v", waits)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		waits := attempts(t, func(context.Context) (net.Conn, error) {
			a, b := net.Pipe()
			go func() {
				defer b.Close()
				refused := &replication.Refused{Code: replication.CodeHistory, Text: "for a test"}
				go io.Copy(io.Discard, b)
				b.Write(replication.AppendRefused(refused))
			}()
			return a, nil
		})
		for i, wait := range waits {
			if wait < 5*time.Second || wait > 6*time.Second {
				t.Errorf("behind refusal %d: %v", i, wait)
			}
		}
		if len(waits) < 15 {
			t.Errorf("waits %v", waits)
		}
	})
}
