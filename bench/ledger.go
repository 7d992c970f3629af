package main

import (
	"fmt"
	"math/bits"
	"sync/atomic"
)

// A ledger says which messages have been received: a bitmap that grows with their numbers, for many goroutines at
// once. Numbers are sequence×senders+sender, so it stays dense.
type ledger struct {
	senders int64
	chunks  [maxChunks]atomic.Pointer[chunk]
}

const (
	chunkBits = 1 << 16
	maxChunks = 1 << 14 // a thousand million messages
)

type chunk [chunkBits / 64]atomic.Uint64

func newLedger(senders int) *ledger { return &ledger{senders: int64(senders)} }

// id is the number of a sender's message.
func (l *ledger) id(sender int, sequence int64) int64 { return sequence*l.senders + int64(sender) }

// mark records that a message was received. It is an error if it was already, or if its number is out of range.
func (l *ledger) mark(id int64) error {
	if id < 0 || id >= chunkBits*maxChunks {
		return fmt.Errorf("message %d was never stored", id)
	}
	place := &l.chunks[id/chunkBits]
	c := place.Load()
	if c == nil {
		place.CompareAndSwap(nil, new(chunk))
		c = place.Load()
	}
	bit := uint64(1) << (id % 64)
	if c[id%chunkBits/64].Or(bit)&bit != 0 {
		return fmt.Errorf("message %d came twice", id)
	}
	return nil
}

// received returns how many messages were.
func (l *ledger) received() (n int64) {
	for i := range l.chunks {
		if c := l.chunks[i].Load(); c != nil {
			for j := range c {
				n += int64(bits.OnesCount64(c[j].Load()))
			}
		}
	}
	return n
}

// complete returns nil if exactly the messages 0 to sent[s]-1 of every sender s were received.
func (l *ledger) complete(sent []int64) error {
	var total, missing int64
	first := int64(-1)
	for s, n := range sent {
		total += n
		for sequence := range n {
			if id := l.id(s, sequence); !l.has(id) {
				if missing++; first < 0 {
					first = id
				}
			}
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d of %d messages were not received, the first of them number %d", missing, total, first)
	}
	if got := l.received(); got != total {
		return fmt.Errorf("%d messages were received and %d stored", got, total)
	}
	return nil
}

func (l *ledger) has(id int64) bool {
	c := l.chunks[id/chunkBits].Load()
	return c != nil && c[id%chunkBits/64].Load()&(1<<(id%64)) != 0
}
