package memcache

import "sync"

// Sizes of the pooled buffers. The smallest holds what a stalled line has so far, the middle one is what a busy connection
// reads into, the largest takes the longest line of a get, and the stream of a client that sends without waiting.
const (
	smallBuffer  = 2 << 10
	mediumBuffer = 16 << 10
	largeBuffer  = maxGetLine + 4<<10
)

var smallPool, mediumPool, largePool sync.Pool

// takeBuffer returns a buffer of at least n bytes (at most largeBuffer), from a pool.
func takeBuffer(n int) []byte {
	switch {
	case n <= smallBuffer:
		if p, ok := smallPool.Get().(*[smallBuffer]byte); ok {
			return p[:]
		}
		return make([]byte, smallBuffer)
	case n <= mediumBuffer:
		if p, ok := mediumPool.Get().(*[mediumBuffer]byte); ok {
			return p[:]
		}
		return make([]byte, mediumBuffer)
	}
	if p, ok := largePool.Get().(*[largeBuffer]byte); ok {
		return p[:]
	}
	return make([]byte, largeBuffer)
}

// giveBuffer puts a buffer back; nothing may use it afterwards. Buffers of other sizes are left to the garbage collector.
func giveBuffer(b []byte) {
	b = b[:cap(b)]
	switch len(b) {
	case smallBuffer:
		smallPool.Put((*[smallBuffer]byte)(b))
	case mediumBuffer:
		mediumPool.Put((*[mediumBuffer]byte)(b))
	case largeBuffer:
		largePool.Put((*[largeBuffer]byte)(b))
	}
}
