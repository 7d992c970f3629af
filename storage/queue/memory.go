package queue

// memory knows which messages the tree does not have yet, which rows of the tree are out of date, and what all that
// costs.
//
// The tree stands at treeLSN. A row may exist for every id below treeIDs; a removal of such a message is remembered in
// gone until the tree has it, so that a refill of a window does not bring the message back. A message that was
// removed before the tree ever saw it has its bit in dead: the checkpoint leaves it out.
type memory struct {
	fresh     fifo[freshItem]   // in the order of the LSNs
	dropped   int               // items of fresh, from its front, whose bodies were dropped
	gone      map[uint64]uint64 // id -> LSN from which on the tree is right about it
	goneMost  int               // entries it has had
	goneOrder fifo[goneItem]
	dead      []uint64 // bit i: id deadBase+i is removed
	deadBase  uint64   // a multiple of 64
	treeLSN   uint64
	treeIDs   uint64

	messages   int64 // in memory
	bodyBytes  int64
	freshBytes int64 // of the log, about, that live messages take which the tree does not have
}

type freshItem struct {
	m   *Message
	lsn uint64 // m.LSN when it was queued; another one now: the item is out of date
	due int64  // m.Due then
}

type goneItem struct{ id, lsn uint64 }

func (y *memory) add(m *Message) {
	y.count(m)
	y.freshen(m)
	y.fresh.push(freshItem{m, m.LSN, m.Due})
}

// freshen notes that m's body is in the log and not in the tree, and age that it isn't so any more.
func (y *memory) freshen(m *Message) {
	m.fresh = true
	y.freshBytes += logCost + int64(m.Size)
}

func (y *memory) age(m *Message) {
	if m.fresh {
		m.fresh = false
		y.freshBytes -= logCost + int64(m.Size)
	}
}

// logCost is what a message takes in the log beside its body, bytes, about.
const logCost = 80

// count adds m, which is in memory from now on.
func (y *memory) count(m *Message) {
	y.messages++
	y.bodyBytes += int64(len(m.Body))
}

// requeue queues m again as newer than the tree's row.
func (y *memory) requeue(m *Message) {
	y.fresh.push(freshItem{m, m.LSN, m.Due})
}

// drop forgets m, which no structure of the index holds any more.
func (y *memory) drop(m *Message) {
	y.age(m)
	m.state = Gone
	y.messages--
	y.setBody(m, nil)
}

func (y *memory) setBody(m *Message, body []byte) {
	y.bodyBytes += int64(len(body)) - int64(len(m.Body))
	m.Body = body
}

// removed notes that message id was removed by record lsn.
func (y *memory) removed(id, lsn uint64) {
	delete(y.gone, id) // the mark of leave
	y.outdated(id, lsn)
	y.die(id)
}

// die notes that the tree need not see message id, if it has not.
func (y *memory) die(id uint64) {
	if id < y.deadBase {
		return
	}
	i := id - y.deadBase
	for uint64(len(y.dead)) <= i/64 {
		y.dead = append(y.dead, 0)
	}
	y.dead[i/64] |= 1 << (i % 64)
}

// leave notes that the removal of message id is staged: the tree may have it, and nobody may find it there any more.
func (y *memory) leave(id uint64) { y.gone[id] = 1<<64 - 1 }

// outdated notes that what the tree has of message id is not so since record lsn.
func (y *memory) outdated(id, lsn uint64) {
	if id < y.treeIDs {
		y.gone[id] = lsn
		y.goneOrder.push(goneItem{id, lsn})
	}
}

func (y *memory) isGone(id uint64) bool {
	_, gone := y.gone[id]
	return gone
}

// dropBodies lets bodies of fresh messages leave memory, oldest first, until at most limit bytes are left.
func (y *memory) dropBodies(limit int64) {
	for y.bodyBytes > limit && y.dropped < y.fresh.len() {
		it := y.fresh.at(y.dropped)
		y.dropped++
		if it.m.LSN == it.lsn && it.m.state != Gone {
			y.setBody(it.m, nil)
		}
	}
}

// advance notes that the tree stands at lsn.
func (y *memory) advance(lsn, ids uint64) {
	y.treeLSN, y.treeIDs = lsn, ids
	for y.goneOrder.len() > 0 && y.goneOrder.at(0).lsn <= lsn {
		if it := y.goneOrder.pop(); y.gone[it.id] <= lsn {
			delete(y.gone, it.id)
		}
	}
	if y.goneMost = max(y.goneMost, len(y.gone)); len(y.gone) == 0 && y.goneMost > 4096 {
		y.gone, y.goneMost = make(map[uint64]uint64), 0 // maps don't shrink
	}
	if base := ids &^ 63; base > y.deadBase {
		n := min((base-y.deadBase)/64, uint64(len(y.dead)))
		y.dead = y.dead[:copy(y.dead, y.dead[n:])]
		y.deadBase = base
	}
}

// bytes is what all this costs, about.
func (y *memory) bytes() int64 {
	return y.messages*messageCost + y.bodyBytes + int64(len(y.gone))*64 + int64(len(y.dead))*8 + int64(y.fresh.len())*24
}

// fifo is a first-in first-out list, in chunks: it grows and shrinks without moving what is in it.
type fifo[T any] struct {
	chunks [][]T // all full but the last
	head   int   // items of the first chunk that were popped
	n      int
}

const fifoChunk = 1024

func (f *fifo[T]) len() int { return f.n }

func (f *fifo[T]) at(i int) T {
	i += f.head
	return f.chunks[i/fifoChunk][i%fifoChunk]
}

func (f *fifo[T]) push(v T) {
	last := len(f.chunks) - 1
	if last < 0 || len(f.chunks[last]) == fifoChunk {
		f.chunks = append(f.chunks, make([]T, 0, fifoChunk))
		last++
	}
	f.chunks[last] = append(f.chunks[last], v)
	f.n++
}

func (f *fifo[T]) pop() T {
	var zero T
	v := f.chunks[0][f.head]
	f.chunks[0][f.head] = zero
	f.head++
	f.n--
	switch {
	case f.n == 0 && len(f.chunks) == 1:
		f.chunks[0], f.head = f.chunks[0][:0], 0
	case f.head == fifoChunk:
		f.chunks[0] = nil
		f.chunks, f.head = f.chunks[1:], 0
	}
	return v
}
