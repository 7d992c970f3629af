package memcache

import (
	"strconv"
	"time"

	"qserver/storage"
)

// eachQueue calls fn for every queue, a part at a time. false: the connection ends.
func (c *conn) eachQueue(fn func(q *storage.QueueStats)) bool {
	const part = 100
	for after := ""; ; {
		queues := c.srv.Store.Queues(after, part)
		for i := range queues {
			fn(&queues[i])
		}
		if len(queues) < part {
			return true
		}
		after = queues[len(queues)-1].Name
		if c.out.size >= flushAt && !c.settle() {
			return false
		}
	}
}

// queueStats lists the numbers of every queue; kestrel is for its clients. false: the connection ends.
func (c *conn) queueStats(kestrel bool) bool {
	return c.eachQueue(func(q *storage.QueueStats) {
		prefix := "queue_" + q.Name + "_"
		queueNumbers(q, kestrel, func(name string, n int64) { c.statInt(prefix+name, n) })
	})
}

// dumpStats answers Kestrel's DUMP_STATS: a block for each queue.
func (c *conn) dumpStats() {
	if !c.commit() {
		return
	}
	whole := c.eachQueue(func(q *storage.QueueStats) {
		b := append(c.out.begin(), "queue '"...)
		b = append(append(b, q.Name...), "' {\r\n"...)
		queueNumbers(q, true, func(name string, n int64) {
			b = append(append(append(b, "  "...), name...), '=')
			b = append(strconv.AppendInt(b, n, 10), '\r', '\n')
		})
		c.out.finish(append(b, "}\r\n"...))
	})
	if whole {
		c.out.text(replyEnd)
	}
}

// queueNumbers emits a queue's numbers, under Kestrel's names where it has one. Kestrel's clients and monitors take age for
// milliseconds; it is seconds elsewhere, as in memcached's statistics.
func queueNumbers(q *storage.QueueStats, kestrel bool, emit func(name string, n int64)) {
	emit("items", q.Items)
	emit("ready", q.Ready)
	emit("reserved", q.Reserved)
	emit("delayed", q.Delayed)
	emit("dead", q.Dead)
	emit("bytes", q.Bytes)
	if kestrel {
		emit("age", int64(q.Age/time.Millisecond))
		emit("discarded", 0) // a full queue refuses, and throws nothing out
	} else {
		emit("age", int64(q.Age/time.Second))
	}
	emit("age_msec", int64(q.Age/time.Millisecond))
	emit("waiters", q.Waiters)
	emit("total_items", q.TotalItems)
	emit("total_acked", q.TotalAcked)
	emit("total_purged", q.TotalPurged)
	emit("expired_items", q.TotalExpired)
	emit("canceled_transactions", q.Returned)
	emit("open_transactions", q.Reserved)
	emit("get_misses", q.GetMisses)
}
