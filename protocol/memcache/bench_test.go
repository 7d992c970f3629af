package memcache_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"qserver/protocol/memcache"
	"qserver/storage"
)

// benchServer serves over TCP with a store that doesn't sync, so that the protocol is what is measured.
func benchServer(b *testing.B) string {
	b.Helper()
	store, err := storage.Open(b.TempDir(), storage.Options{Sync: storage.SyncNever})
	if err != nil {
		b.Fatal(err)
	}
	srv := &memcache.Server{Store: store}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	b.Cleanup(func() {
		srv.Close()
		<-served
		store.Close()
	})
	return ln.Addr().String()
}

func benchDial(b *testing.B, addr string) net.Conn {
	b.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { nc.Close() })
	return nc
}

// roundTrip sends a request and reads an answer of a known length.
func roundTrip(b *testing.B, nc net.Conn, request, answer []byte) {
	if _, err := nc.Write(request); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(nc, answer); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkNoreplySets is one connection's stream of sets of 200 bytes; each of them is there afterwards.
func BenchmarkNoreplySets(b *testing.B) {
	nc := benchDial(b, benchServer(b))
	one := fmt.Appendf(nil, "set q 0 0 200 noreply\r\n%s\r\n", bytes.Repeat([]byte("x"), 200))
	const lot = 500
	many := bytes.Repeat(one, lot)
	b.ReportAllocs()
	sent := 0
	for b.Loop() {
		if sent%lot == 0 {
			if _, err := nc.Write(many); err != nil {
				b.Fatal(err)
			}
		}
		sent++
	}
	roundTrip(b, nc, []byte("version\r\n"), make([]byte, len("VERSION 1.0.0\r\n")))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sets/s")
}

// BenchmarkRoundTrips is set, get and delete, one after another, on so many connections.
func BenchmarkRoundTrips(b *testing.B) {
	for _, conns := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(conns), func(b *testing.B) {
			addr := benchServer(b)
			body := bytes.Repeat([]byte("x"), 200)
			var wg sync.WaitGroup
			b.ReportAllocs()
			for i := range conns {
				nc := benchDial(b, addr)
				set := fmt.Appendf(nil, "set q%d 0 0 200\r\n%s\r\n", i, body)
				get, del := fmt.Appendf(nil, "get q%d\r\n", i), fmt.Appendf(nil, "delete q%d\r\n", i)
				stored, value, deleted := make([]byte, 8), make([]byte, len(fmt.Sprintf("VALUE q%d 0 200\r\n%s\r\nEND\r\n", i, body))), make([]byte, 9)
				wg.Go(func() {
					for range b.N / conns {
						roundTrip(b, nc, set, stored)
						roundTrip(b, nc, get, value)
						roundTrip(b, nc, del, deleted)
					}
				})
			}
			wg.Wait()
			b.ReportMetric(3*float64(b.N)/b.Elapsed().Seconds(), "commands/s")
		})
	}
}

// BenchmarkParse is the parser alone.
func BenchmarkParse(b *testing.B) {
	var cmd memcache.Command
	line := []byte("set queue 5 60 200 noreply")
	b.ReportAllocs()
	for b.Loop() {
		cmd.Parse(line)
		if cmd.ParseStore() {
			b.Fatal("refused")
		}
	}
}
