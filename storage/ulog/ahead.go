package ulog

import (
	"errors"
	"fmt"
	"syscall"
)

// zeros is what is written ahead of the records, piece by piece.
var zeros [256 << 10]byte

// layAhead writes zeros behind end, the end of what was written last, if the records have come as far as blocks were
// written before. A sync of records in such blocks is cheaper than one in blocks that were only allocated, each of which
// the file system has to note down as written. The bytes were zero before, or of no meaning, so what a crash leaves of
// this write cannot be told from none of it.
func (l *Log) layAhead(end int64) error {
	s := l.current
	if l.zeroAhead == 0 || end <= s.laid {
		return nil
	}
	to := min(end+l.zeroAhead, s.size)
	for from := end; from < to; {
		n, err := s.file.WriteAt(zeros[:min(int64(len(zeros)), to-from)], from)
		if errors.Is(err, syscall.ENOSPC) {
			break // where allocated space can't be relied on; the records that come may still fit
		}
		if err != nil {
			return fmt.Errorf("write zeros into segment %s: %w", s.path, err)
		}
		from += int64(n)
	}
	s.laid = to
	return nil
}
