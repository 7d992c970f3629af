package storage_test

import (
	"fmt"
	"testing"

	"qserver/storage"
)

func openBench(b *testing.B, o storage.Options) *storage.Store {
	b.Helper()
	s, err := storage.Open(b.TempDir(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// BenchmarkEnqueue stores 200-byte bodies, some before each commit, as a pipeline does.
func BenchmarkEnqueue(b *testing.B) {
	for _, pipeline := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("pipeline=%d", pipeline), func(b *testing.B) {
			s := openBench(b, storage.Options{Sync: storage.SyncNever})
			c := s.NewSession("")
			defer c.Close()
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				_, err := c.Enqueue([]byte("q"), storage.PutRequest{Body: make([]byte, 200), Priority: storage.DefaultPriority})
				if err != nil {
					b.Fatal(err)
				}
				if n++; n%pipeline == 0 {
					if err := c.Commit(); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkCycle stores, reserves and acks one message after the other.
func BenchmarkCycle(b *testing.B) {
	s := openBench(b, storage.Options{Sync: storage.SyncNever})
	c := s.NewSession("")
	defer c.Close()
	q := []byte("q")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Enqueue(q, storage.PutRequest{Body: make([]byte, 200), Priority: storage.DefaultPriority}); err != nil {
			b.Fatal(err)
		}
		if _, ok, err := c.Reserve(q, storage.ReserveOptions{}); !ok || err != nil {
			b.Fatal(ok, err)
		}
		if err := c.Ack(q, storage.Pick{}); err != nil {
			b.Fatal(err)
		}
		if err := c.Commit(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEnqueueParallel has 64 sessions, each with one message at a time.
func BenchmarkEnqueueParallel(b *testing.B) {
	s := openBench(b, storage.Options{Sync: storage.SyncNever})
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c := s.NewSession("")
		defer c.Close()
		for pb.Next() {
			if _, err := c.Enqueue([]byte("q"), storage.PutRequest{Body: make([]byte, 200), Priority: storage.DefaultPriority}); err != nil {
				b.Error(err)
				return
			}
			if err := c.Commit(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
