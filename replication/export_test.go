package replication

import (
	"context"
	"io"

	"qserver/storage/queue"
)

// Once is one connection of a slave.
func Once(s *Slave, ctx context.Context) error { return s.once(ctx) }

// Compare is compare.
func Compare(mine, theirs []queue.Epoch, lsn uint64) (own, common uint64) {
	return compare(mine, theirs, lsn)
}

// ReadFrames reads frames until an error and returns their kinds.
func ReadFrames(r io.Reader) (kinds []byte, err error) {
	f := frameReader{r: r}
	for {
		kind, _, err := f.next()
		if err != nil {
			return kinds, err
		}
		kinds = append(kinds, kind)
	}
}

// RecordsAt is how many bytes of a records frame lie before its records.
const RecordsAt = frameHeaderLen + recordsHeadLen

// GreetingLen is how many bytes a master sends before it streams.
func GreetingLen() int { return len(new(challenge).append(nil)) + len(new(welcome).append(nil)) }

// Frame is a frame of this kind with this payload, and a sum that holds.
func Frame(kind byte, payload []byte) []byte {
	return endFrame(append(beginFrame(nil, kind), payload...))
}

// AppendRefused is the frame of a refusal.
func AppendRefused(r *Refused) []byte { return r.append(nil) }

// FrameHeaderLen is the length of a frame's header.
const FrameHeaderLen = frameHeaderLen
