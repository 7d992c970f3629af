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

// FrameHeaderLen is the length of a frame's header.
const FrameHeaderLen = frameHeaderLen
