package storage_test

import (
	"testing"

	"qserver/storage"
)

// BenchmarkCatchUp is a slave that decodes and applies records of 200 bytes, with its checkpoints; an op is a record.
func BenchmarkCatchUp(b *testing.B) {
	const records = 200_000
	master, err := storage.Open(b.TempDir(), storage.Options{Sync: storage.SyncNever})
	if err != nil {
		b.Fatal(err)
	}
	defer master.Close()
	path, err := master.WriteCopy("2", func(int64, int64) error { return nil })
	if err != nil {
		b.Fatal(path, err)
	}
	at := master.Position()
	c := master.NewSession("c")
	for range records {
		if _, err := c.Enqueue([]byte("q"), storage.PutRequest{Body: make([]byte, 200)}); err != nil {
			b.Fatal(err)
		}
	}
	if err := c.Commit(); err != nil {
		b.Fatal(err)
	}
	if err := master.Sync(); err != nil {
		b.Fatal(err)
	}
	f, err := master.Feed("2", at)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	var payloads [][]byte
	ends := []storage.Batch{{End: at}}
	for {
		payload, n, end, err := f.Append(nil, 256<<10)
		if err != nil {
			b.Fatal(err)
		}
		if n == 0 {
			break
		}
		payloads = append(payloads, payload)
		ends = append(ends, storage.Batch{End: end})
	}
	b.ReportAllocs()
	done := 0
	for b.Loop() {
		if done%(records+1) != 0 {
			done++
			continue
		}
		done++
		b.StopTimer()
		slave, err := storage.Open(b.TempDir(), storage.Options{Sync: storage.SyncNever, Master: testMaster})
		if err != nil {
			b.Fatal(err)
		}
		first, err := master.Feed("2", slave.Position())
		if err != nil {
			b.Fatal(err)
		}
		var batch storage.Batch
		if payload, n, end, err := first.Append(nil, 1); err != nil || n != 1 || batch.Decode(payload, slave.Position(), end) != nil || slave.ApplyMaster(&batch) != nil {
			b.Fatal(n, err)
		}
		first.Close()
		b.StartTimer()
		for i, payload := range payloads {
			if err := batch.Decode(payload, ends[i].End, ends[i+1].End); err != nil {
				b.Fatal(err)
			}
			if err := slave.ApplyMaster(&batch); err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		slave.Close()
		b.StartTimer()
	}
}
