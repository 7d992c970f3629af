package queue_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"qserver/storage/queue"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// opCases are one op of each kind, with fields at their edges.
var opCases = []struct {
	name string
	op   queue.Op
}{
	{"create", queue.Op{Kind: queue.KindCreate, Queue: 7, Name: []byte("mail")}},
	{"enqueue plain", queue.Op{Kind: queue.KindEnqueue, Queue: 7, ID: 1, Pri: 1024, Flags: 4, Size: 3, Enqueued: 1700000000000}},
	{"enqueue all", queue.Op{Kind: queue.KindEnqueue, Queue: 1<<32 - 1, ID: 1<<53 - 1, Pri: 1<<32 - 1, Flags: 1<<32 - 1, Size: 3,
		Enqueued: 1700000000000, Due: 1700000005000, Expire: 1700000060000, Dedup: []byte("k"), DedupUntil: 1700000120000}},
	{"remove acked", queue.Op{Kind: queue.KindRemove, Queue: 7, ID: 2, Pri: 1024, Size: 200}},
	{"remove expired", queue.Op{Kind: queue.KindRemove, Reason: queue.Expired, Queue: 7, ID: 2, Pri: 0, Size: 0, Due: 5, Expire: 9}},
	{"release", queue.Op{Kind: queue.KindRelease, Queue: 7, ID: 3, Pri: 1, Count: 2, Due: 5, NewDue: 1700000000000}},
	{"replace", queue.Op{Kind: queue.KindReplace, Queue: 7, ID: 3, Pri: 1, Count: 1, Flags: 8, Size: 3, OldSize: 300, OldExpire: 1, Expire: 2}},
	{"purge", queue.Op{Kind: queue.KindPurge, Queue: 7, ID: 99}},
	{"forget", queue.Op{Kind: queue.KindForget, Queue: 7}},
	{"receipts", queue.Op{Kind: queue.KindReceipts, ID: 1 << 20}},
	{"epoch", queue.Op{Kind: queue.KindEpoch, ID: 2, Nonce: 1<<64 - 1}},
	{"count", queue.Op{Kind: queue.KindCount, Queue: 7, ID: 3, Pri: 1, Count: 4, Due: 6}},
}

func TestOpGolden(t *testing.T) {
	var b strings.Builder
	for _, tt := range opCases {
		fmt.Fprintf(&b, "%-15s %s\n", tt.name, hex.EncodeToString(queue.AppendHead(nil, &tt.op)))
	}
	const name = "testdata/ops.golden"
	if *update {
		if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf("the log's format has changed:\ngot\n%swant\n%s", got, want)
	}
}

func TestOpRoundTrip(t *testing.T) {
	for _, tt := range opCases {
		t.Run(tt.name, func(t *testing.T) {
			var got queue.Op
			if err := queue.DecodeHead(queue.AppendHead(nil, &tt.op), int(tt.op.Size), &got); err != nil {
				t.Fatal(err)
			}
			if len(got.Dedup) == 0 {
				got.Dedup = nil
			}
			if !reflect.DeepEqual(got, tt.op) {
				t.Errorf("got %+v, want %+v", got, tt.op)
			}
		})
	}
}

func TestDecodeHeadRefuses(t *testing.T) {
	for _, tt := range opCases {
		head := queue.AppendHead(nil, &tt.op)
		var op queue.Op
		for n := 1; n < len(head); n++ {
			if err := queue.DecodeHead(head[:n], 0, &op); err == nil {
				t.Errorf("%s cut to %d of %d bytes: no error", tt.name, n, len(head))
			}
		}
		if err := queue.DecodeHead(append(head, 0), 0, &op); err == nil {
			t.Errorf("%s with a byte too many: no error", tt.name)
		}
	}
	var op queue.Op
	if err := queue.DecodeHead([]byte{77}, 0, &op); err == nil {
		t.Error("unknown kind: no error")
	}
}

// FuzzDecodeHead: no panic, and what decodes encodes to what decodes to the same.
func FuzzDecodeHead(f *testing.F) {
	for _, tt := range opCases {
		f.Add(queue.AppendHead(nil, &tt.op), int(tt.op.Size))
	}
	f.Fuzz(func(t *testing.T, head []byte, n int) {
		n &= 1<<28 - 1
		var op, again queue.Op
		if queue.DecodeHead(head, n, &op) != nil {
			return
		}
		b := queue.AppendHead(nil, &op)
		if op.Kind == queue.KindSeal {
			return
		}
		if err := queue.DecodeHead(b, n, &again); err != nil {
			t.Fatalf("%x decodes, its encoding %x does not: %v", head, b, err)
		}
		if c := queue.AppendHead(nil, &again); !bytes.Equal(b, c) {
			t.Fatalf("%x, %x", b, c)
		}
	})
}
