package ulog_test

import (
	"fmt"
	"hash/crc32"
	"testing"

	"qserver/storage/ulog"
)

func BenchmarkStageWrite(b *testing.B) {
	for _, batch := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			l, _, err := ulog.Open(b.TempDir(), ulog.Position{}, ulog.Place{}, ulog.Options{}, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			head, body := make([]byte, 40), make([]byte, 200)
			sum := crc32.Checksum(body, castagnoli)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				for range batch {
					l.Stage(head, body, sum)
				}
				if err := l.Write(l.Take(), false); err != nil {
					b.Fatal(err)
				}
				n += batch
				if n%(1<<18) < batch {
					if err := l.Release(l.End()); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkAppendSync is one record, one write, one fdatasync, into segments that are only allocated, into such with zeros
// ahead, and into recycled ones.
func BenchmarkAppendSync(b *testing.B) {
	for _, name := range []string{"allocated", "zeros ahead", "recycled"} {
		b.Run(name, func(b *testing.B) {
			o := ulog.Options{SegmentBytes: 8 << 20}
			if name == "zeros ahead" {
				o = ulog.Options{SegmentBytes: 64 << 20, ZeroAhead: 1 << 20}
			}
			recycled := name == "recycled"
			l, _, err := ulog.Open(b.TempDir(), ulog.Position{}, ulog.Place{}, o, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			head, body := make([]byte, 40), make([]byte, 200)
			for recycled && l.End().Segment < 4 {
				l.Stage(head, body, 0)
				if err := l.Write(l.Take(), false); err != nil {
					b.Fatal(err)
				}
				if err := l.Release(l.End()); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				l.Stage(head, body, 0)
				if err := l.Write(l.Take(), true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpen recovers a log of 256 MiB that was not sealed.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	l, _, err := ulog.Open(dir, ulog.Position{}, ulog.Place{}, ulog.Options{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	head, body := make([]byte, 40), make([]byte, 200)
	sum := crc32.Checksum(body, castagnoli)
	for l.End().Segment < 4 {
		for range 1000 {
			l.Stage(head, body, sum)
		}
		if err := l.Write(l.Take(), false); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	records := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		l, rec, err := ulog.Open(dir, ulog.Position{}, ulog.Place{}, ulog.Options{}, func(*ulog.Record) error { return nil })
		if err != nil {
			b.Fatal(err)
		}
		records += rec.Records
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
}
