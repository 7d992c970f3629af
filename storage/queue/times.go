package queue

// The timed side of the index: delayed messages that come due, messages that expire, dedup keys that are forgotten.

// TimeKind says what happens at a time of the tree's time table. The values are part of the on-disk format.
type TimeKind uint8

// The kinds of TimeKey.
const (
	TimeDue    TimeKind = 0
	TimeExpire TimeKind = 1
)

// TimeKey is a row's key in the tree's time table: when (Unix ms), which message, what.
type TimeKey struct {
	At   int64
	ID   uint64
	Kind TimeKind
}

func (k TimeKey) less(o TimeKey) bool {
	if k.At != o.At {
		return k.At < o.At
	}
	if k.ID != o.ID {
		return k.ID < o.ID
	}
	return k.Kind < o.Kind
}

// TimesEnd is behind every TimeKey.
var TimesEnd = TimeKey{At: 1<<63 - 1}

// cutTimes notes that the row k of the time table is not represented in memory any more.
func (ix *Index) cutTimes(k TimeKey) {
	if k.less(ix.timesCut) {
		ix.timesCut = k
	}
}

// TimesFrom is where the next read of the time table begins: rows before it are in memory.
func (ix *Index) TimesFrom() TimeKey { return ix.timesCut }

// TimeRow is a row of the time table with what is needed of its message.
type TimeRow struct {
	TimeKey
	Queue uint32
	Pri   uint32
	Size  uint32
	Due   int64
	Row   *Row // of a TimeDue: the message, without its body; nil: the tree has none
}

// FillTimes takes rows of the time table, in order, from TimesFrom on; next is where the following read begins. The tree
// must stand where it stood when the rows were read.
func (ix *Index) FillTimes(rows []TimeRow, next TimeKey) {
	for i := range rows {
		t := &rows[i]
		q := ix.nums[t.Queue]
		if q == nil || t.ID <= q.purgedID || ix.memory.isGone(t.ID) {
			continue
		}
		if t.Kind == TimeExpire && ix.following {
			continue // its end is a record of the other's; Lead reads the table again
		}
		if t.Kind == TimeExpire {
			ix.timers.Set(timer{t.At, t.ID, t.Pri, t.Size, t.Due, q})
			continue
		}
		if t.Row == nil || ix.held[t.ID] != nil || q.find(t.Pri, t.ID) != nil {
			continue
		}
		m := q.message(t.Row, LaneDelayed)
		if _, have := ix.delayed.Get(m); have {
			continue
		}
		m.state = Delayed
		ix.memory.count(m)
		ix.delayed.Set(m)
		q.memDelayed++
		ix.addCold(q, -1)
	}
	ix.timesCut = next
}

// timer is the end of a live message's life, whether the message is in memory or not.
type timer struct {
	at    int64
	id    uint64
	pri   uint32
	size  uint32
	due   int64
	queue *Queue
}

func lessTimer(a, b timer) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.id < b.id
}

// NextTime is when something is due or expires next, Unix ms; ok is false if nothing in memory will.
func (ix *Index) NextTime() (at int64, ok bool) {
	if m, some := ix.delayed.Min(); some {
		at, ok = m.Due, true
	}
	if t, some := ix.timers.Min(); some && (!ok || t.at < at) && !ix.following {
		at, ok = t.at, true
	}
	return at, ok
}

// Timed is how many delayed messages and timers memory has.
func (ix *Index) Timed() int { return ix.delayed.Len() + ix.timers.Len() }

// Promote makes up to limit delayed messages that are due ready. It says whether more are due.
func (ix *Index) Promote(limit int) (more bool) {
	for ; limit > 0; limit-- {
		m, ok := ix.delayed.Min()
		if !ok || m.Due > ix.now {
			return false
		}
		if m.Expire != 0 && m.Expire <= ix.now && !ix.following {
			ix.expire(m)
			continue
		}
		q := m.queue
		ix.delayed.PopMin()
		q.memDelayed--
		q.put(m)
		ix.promoted = append(ix.promoted, m)
		ix.serve(q)
	}
	return true
}

// ColdTimer is a message past its time that is not in memory: whoever reads the tree finds its lane.
type ColdTimer struct{ t timer }

// Queue, Pri, Due and ID say where to look for it.
func (c ColdTimer) Queue() uint32 { return c.t.queue.Num }

// Pri is its priority.
func (c ColdTimer) Pri() uint32 { return c.t.pri }

// Due is its due time, Unix ms; 0: none.
func (c ColdTimer) Due() int64 { return c.t.due }

// ID is its id.
func (c ColdTimer) ID() uint64 { return c.t.id }

// Expire takes up to limit messages past their time out of their lanes. Held ones are left: they expire when they would
// return. It returns those that are not in memory, and whether more are past their time.
func (ix *Index) Expire(limit int) (cold []ColdTimer, more bool) {
	for ; limit > 0; limit-- {
		t, ok := ix.timers.Min()
		if !ok || t.at > ix.now || ix.following {
			return cold, false
		}
		ix.timers.PopMin()
		if t.id <= t.queue.doorPurged || ix.memory.isGone(t.id) {
			continue
		}
		m := t.queue.find(t.pri, t.id)
		if m == nil && t.due != 0 {
			m, _ = ix.delayed.Get(&Message{Due: t.due, ID: t.id})
		}
		switch {
		case m != nil:
			ix.expire(m)
		case ix.held[t.id] == nil:
			cold = append(cold, ColdTimer{t})
		}
	}
	return cold, true
}

// ExpireAgain puts the timer back that Expire took.
func (ix *Index) ExpireAgain(c ColdTimer) { ix.timers.Set(c.t) }

// ExpireCold takes a message that the tree has in this lane, and memory has not, out of the counts of its lane; its
// removal is to be staged. If memory has it by now, its timer runs again.
func (ix *Index) ExpireCold(c ColdTimer, lane TreeLane) {
	t, q := c.t, c.t.queue
	if t.id <= q.doorPurged || ix.memory.isGone(t.id) {
		return
	}
	_, delayed := ix.delayed.Get(&Message{Due: t.due, ID: t.id})
	if delayed || ix.held[t.id] != nil || q.find(t.pri, t.id) != nil {
		ix.timers.Set(t)
		return
	}
	m := &Message{ID: t.id, Pri: t.pri, Size: t.size, Due: t.due, Expire: t.at, queue: q, lane: lane, state: Leaving}
	ix.memory.count(m)
	ix.memory.leave(m.ID)
	q.leaving++
	if lane == LaneDelayed {
		ix.addCold(q, -1)
	}
	ix.expired = append(ix.expired, m)
}

// dedupTable remembers dedup keys until their time.
type dedupTable struct {
	until map[string]int64
	order fifo[dedupItem]
	bytes int64
}

type dedupItem struct {
	key   string
	until int64
}

func dedupKey(queue uint32, key []byte) string {
	b := make([]byte, 0, 64)
	b = append(b, byte(queue>>24), byte(queue>>16), byte(queue>>8), byte(queue))
	return string(append(b, key...))
}

func (d *dedupTable) add(queue uint32, key []byte, until int64) {
	k := dedupKey(queue, key)
	if _, have := d.until[k]; !have {
		d.bytes += int64(len(k)) + 96
	}
	d.until[k] = until
	d.order.push(dedupItem{k, until})
}

func (d *dedupTable) seen(queue uint32, key []byte, now int64) bool {
	return d.until[dedupKey(queue, key)] > now
}

// PruneDedup forgets dedup keys whose time is over.
func (ix *Index) PruneDedup() {
	d := &ix.dedup
	for d.order.len() > 0 && d.order.at(0).until <= ix.now {
		it := d.order.pop()
		if d.until[it.key] == it.until {
			delete(d.until, it.key)
			d.bytes -= int64(len(it.key)) + 96
		}
	}
}

// RestoreDedup puts back a dedup key that the tree remembered.
func (ix *Index) RestoreDedup(queue uint32, key []byte, until int64) { ix.dedup.add(queue, key, until) }
