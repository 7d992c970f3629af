package tree_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"qserver/storage/tree"
)

const (
	benchRows  = 400_000
	benchBatch = 50_000
)

var benchTables = []tree.TableSpec{{Name: "messages", GroupLen: 4}}

// benchKey is a key of 21 bytes: queue, priority, id and five more.
func benchKey(dst []byte, n int) []byte {
	dst = append(dst[:0], 0, 0, 0, 1, 0, 0, 4, 0)
	dst = binary.BigEndian.AppendUint64(dst, uint64(n))
	return append(dst, "extra"...)
}

func benchFill(b *testing.B, tr *tree.Tree, rows, valueLen int) {
	b.Helper()
	value := make([]byte, valueLen)
	var k []byte
	for from := 0; from < rows; from += benchBatch {
		err := tr.Update(func(x *tree.Tx) error {
			for i := from; i < from+benchBatch; i++ {
				k = benchKey(k, i)
				binary.LittleEndian.PutUint64(value, uint64(i))
				if err := x.Put(0, k, value); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// cpuTime is the processor time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// reportRows reports rows per second, and the processor time of one, which a busy machine disturbs less.
func reportRows(b *testing.B, rows int, cpu time.Duration) {
	b.Helper()
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(rows), "cpu-ns/row")
}

func benchTree(b *testing.B) (*tree.Tree, string) {
	b.Helper()
	path := filepath.Join(b.TempDir(), "tree")
	return open(b, path, tree.Options{Tables: benchTables}), path
}

func BenchmarkInsert(b *testing.B) {
	b.ReportAllocs()
	start := cpuTime(b)
	for b.Loop() {
		tr, _ := benchTree(b)
		benchFill(b, tr, benchRows, 275)
	}
	reportRows(b, b.N*benchRows, cpuTime(b)-start)
}

func BenchmarkSize(b *testing.B) {
	for b.Loop() {
		tr, path := benchTree(b)
		benchFill(b, tr, benchRows, 270)
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(info.Size())/(benchRows*(21+270)), "file/payload")
	}
}

func BenchmarkScan(b *testing.B) {
	tr, _ := benchTree(b)
	benchFill(b, tr, benchRows, 275)
	var k []byte
	at, rows := 0, 0
	b.ReportAllocs()
	start := cpuTime(b)
	for b.Loop() {
		k = benchKey(k, at)
		n := 0
		err := tr.View(func(v *tree.View) error {
			return v.Scan(0, k, nil, func(_, _ []byte) error {
				if n++; n == 1024 {
					return tree.ErrStop
				}
				return nil
			})
		})
		if err != nil {
			b.Fatal(err)
		}
		rows += n
		at = (at + 1024) % (benchRows - 1024)
	}
	reportRows(b, rows, cpuTime(b)-start)
}

func BenchmarkGet(b *testing.B) {
	tr, _ := benchTree(b)
	benchFill(b, tr, benchRows, 275)
	var k []byte
	at := 0
	b.ReportAllocs()
	for b.Loop() {
		k = benchKey(k, at)
		if err := tr.View(func(v *tree.View) error {
			_, found, err := v.Get(0, k)
			if !found {
				return fmt.Errorf("row %d: %w", at, os.ErrNotExist)
			}
			return err
		}); err != nil {
			b.Fatal(err)
		}
		at = (at + 7919) % benchRows
	}
}

func BenchmarkDelete(b *testing.B) {
	b.ReportAllocs()
	deleted := 0
	var cpu time.Duration
	for b.Loop() {
		b.StopTimer()
		tr, _ := benchTree(b)
		benchFill(b, tr, benchRows, 275)
		b.StartTimer()
		start := cpuTime(b)
		var k []byte
		for from := 0; from < benchRows; from += benchBatch {
			if err := tr.Update(func(x *tree.Tx) error {
				for i := from; i < from+benchBatch; i++ {
					k = benchKey(k, i)
					if _, found, err := x.Delete(0, k); err != nil || !found {
						return fmt.Errorf("row %d: %v, %w", i, found, err)
					}
				}
				return nil
			}); err != nil {
				b.Fatal(err)
			}
		}
		deleted += benchRows
		cpu += cpuTime(b) - start
	}
	reportRows(b, deleted, cpu)
}
