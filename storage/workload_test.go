package storage_test

import (
	"fmt"
	"time"

	"qserver/internal/faultfs"
	"qserver/storage"
)

// live does n random things.
func (w *crashWorld) live(n int) {
	w.t.Helper()
	for range n {
		w.step()
		w.note(w.fs.Len())
		w.wantHistory()
	}
}

// wantHistory compares the store's counts with the history.
func (w *crashWorld) wantHistory() {
	w.t.Helper()
	st := w.s.Stats()
	if err := countsError(w.s); err != nil {
		w.fatal("%v", err)
	}
	got, want := totalsOf(st.QueueStats), w.h.events[w.h.upTo(st.LSN)-1].totals
	if got != want {
		w.fatal("at LSN %d: got %+v, want %+v", st.LSN, got, want)
	}
}

func (w *crashWorld) step() {
	w.t.Helper()
	c := w.conns[w.rng.IntN(len(w.conns))]
	switch k := w.rng.IntN(40); {
	case k < 12:
		w.enqueue()
	case k < 17:
		w.reserve()
	case k < 27:
		w.settle()
	case k < 30:
		w.stride()
	case k == 30:
		w.must(w.s.Sync())
	case k == 31:
		storage.Seal(w.s)
	case k == 32:
		w.must(storage.Chores(w.s))
	case k < 35:
		w.must(storage.KeepTime(w.s))
	case k == 35:
		q := w.queue()
		_, ok := w.s.Queue([]byte(q))
		before := storage.Staged(w.s)
		_, err := w.s.Purge([]byte(q))
		if ok && storage.Staged(w.s) > before {
			w.h.purge(before+1, q)
			w.forgetHeld(q)
		}
		w.must(err)
		w.promise(before + 1)
	default:
		w.commit(c)
	}
}

// staged notes that c has staged the record that was staged last. synced says whether the mode "enqueue" must keep it.
func (w *crashWorld) staged(c *storage.Session, synced bool) {
	if w.mode.sync == storage.SyncAlways || synced {
		w.told[c] = storage.Staged(w.s)
	}
}

// commit commits what c has staged: it is answered from then on.
func (w *crashWorld) commit(c *storage.Session) {
	w.t.Helper()
	w.must(c.Commit())
	w.promise(w.told[c])
}

// promise notes that everything up to the record lsn was answered, in a mode that must not lose it.
func (w *crashWorld) promise(lsn uint64) {
	if w.mode.sync == storage.SyncAlways || w.mode.sync == storage.SyncEnqueue {
		w.promised = max(w.promised, lsn)
	}
}

func (w *crashWorld) queue() string { return string(rune('a' + w.rng.IntN(3))) }

func (w *crashWorld) size() int {
	if w.rng.IntN(25) == 0 {
		return 15<<10 + w.rng.IntN(8<<10) // larger than what is copied, or than a segment
	}
	return w.rng.IntN(600)
}

// enqueue stages some messages and, mostly, commits them.
func (w *crashWorld) enqueue() {
	w.t.Helper()
	for range 1 + w.rng.IntN(6) {
		w.relieve()
		c, q := w.conns[w.rng.IntN(len(w.conns))], w.queue()
		w.number++
		p := storage.PutRequest{Priority: 100 + uint32(w.rng.IntN(3))}
		m := message{queue: q, pri: p.Priority, body: bodyOf(q, p.Priority, w.number, w.size())}
		p.Body = []byte(m.body)
		if w.rng.IntN(8) == 0 {
			p.Delay = time.Millisecond
		}
		if w.rng.IntN(8) == 0 {
			m.dedup = fmt.Sprint("key", w.number/3)
			p.Dedup = []byte(m.dedup)
		}
		var err error
		m.id, err = c.Enqueue([]byte(q), p)
		w.must(err)
		if m.id != 0 {
			w.h.enqueue(storage.Staged(w.s), m)
			w.staged(c, true)
		}
		if w.rng.IntN(3) == 0 {
			w.commit(c)
		}
	}
}

// relieve does what the store would do by itself when memory gets short.
func (w *crashWorld) relieve() {
	w.t.Helper()
	for tries := 0; w.s.Stats().MemoryBytes > w.options().Memory/2; tries++ {
		if tries == 20 {
			w.fatal("memory is not given back: %+v", w.s.Stats())
		}
		w.commit(w.conns[0])
		w.stride()
		storage.Evict(w.s)
	}
}

func (w *crashWorld) reserve() {
	w.t.Helper()
	for range 1 + w.rng.IntN(5) {
		q := w.queue()
		d, ok, err := w.conns[0].Reserve([]byte(q), storage.ReserveOptions{})
		w.must(err)
		if ok {
			if m, live := w.h.live[d.ID]; !live || m.body != string(d.Body) || m.queue != q {
				w.fatal("reserved message %d of %s, which is %+v", d.ID, q, m)
			}
			w.held, w.heldQ = append(w.held, d), append(w.heldQ, q)
		}
	}
}

// settle acks, releases or replaces some of what is held.
func (w *crashWorld) settle() {
	w.t.Helper()
	for range 1 + w.rng.IntN(5) {
		if len(w.held) == 0 {
			return
		}
		i := w.rng.IntN(len(w.held))
		d, q, c := w.held[i], w.heldQ[i], w.conns[w.rng.IntN(len(w.conns))]
		w.held, w.heldQ = append(w.held[:i:i], w.held[i+1:]...), append(w.heldQ[:i:i], w.heldQ[i+1:]...)
		pick := storage.Pick{Receipt: d.Receipt}
		switch k := w.rng.IntN(10); {
		case k < 6:
			w.must(c.Ack([]byte(q), pick))
			w.h.ack(storage.Staged(w.s), d.ID)
			w.staged(c, false)
		case k == 6:
			w.must(c.Release([]byte(q), pick, 0))
		case k == 7:
			w.must(c.Release([]byte(q), pick, time.Millisecond))
		default:
			w.number++
			w.relieve()
			body := bodyOf(q, w.h.live[d.ID].pri, w.number, w.size())
			w.must(c.ReplaceBody([]byte(q), d.Receipt, []byte(body), 7, time.Time{}))
			w.h.replace(storage.Staged(w.s), d.ID, body)
			w.staged(c, true)
		}
		if w.rng.IntN(4) == 0 {
			w.commit(c)
		}
	}
}

func (w *crashWorld) forgetHeld(q string) {
	for i := len(w.held) - 1; i >= 0; i-- {
		if w.heldQ[i] == q {
			w.held, w.heldQ = append(w.held[:i:i], w.held[i+1:]...), append(w.heldQ[:i:i], w.heldQ[i+1:]...)
		}
	}
}

// stride takes a step of the checkpoint. What it does to the log once the tree has advanced comes with the new tree.
func (w *crashWorld) stride() {
	w.t.Helper()
	before, advanced := storage.Advances(w.s), -1
	w.watch = func(o faultfs.Op) {
		if advanced < 0 && storage.Advances(w.s) > before {
			advanced = o.N
		}
	}
	err := storage.Stride(w.s)
	w.watch = nil
	if storage.Advances(w.s) > before {
		if advanced < 0 {
			advanced = w.fs.Len()
		}
		w.snapshot()
		w.note(advanced)
	}
	w.must(err)
}
