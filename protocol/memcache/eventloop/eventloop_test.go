//go:build linux

package eventloop_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"qserver/protocol/memcache/eventloop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo sends back what it receives: from the loop as far as the peer takes it, else from a goroutine. Now and then it leaves the
// loop for no reason.
type echo struct {
	group *eventloop.Group
	sock  *eventloop.Socket
	ended *sync.WaitGroup
	seed  *rand.Rand
	rest  []byte // to be sent by Settle
	away  atomic.Int64
}

func (e *echo) Ready(buf []byte) bool {
	n, err := e.sock.TryRead(buf)
	for err == eventloop.ErrAgain {
		if e.sock.Park() {
			return false
		}
		n, err = e.sock.TryRead(buf)
	}
	if err != nil {
		e.end()
		return false
	}
	e.rest = append(e.rest[:0], buf[:n]...)
	return true
}

func (e *echo) Settle() (again bool) {
	if e.seed.IntN(10) == 0 {
		go e.group.Requeue(e.sock)
		return false
	}
	n, err := e.sock.TryWriteAll([][]byte{e.rest[:len(e.rest)/2], e.rest[len(e.rest)/2:]})
	if err != nil {
		e.end()
		return false
	}
	e.rest = e.rest[n:]
	if len(e.rest) > 0 || e.seed.IntN(10) == 0 {
		go e.leave()
		return false
	}
	return !e.sock.Park()
}

// leave serves the socket as a blocking one for a while, then parks it.
func (e *echo) leave() {
	e.away.Add(1)
	if _, err := e.sock.Write(e.rest); err != nil {
		e.end()
		return
	}
	e.sock.SetReadDeadline(time.Now().Add(time.Millisecond))
	buf := make([]byte, 1000)
	for {
		n, err := e.sock.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if e.sock.SetReadDeadline(time.Time{}); e.sock.Park() {
				return
			}
			continue
		}
		if err == nil {
			_, err = e.sock.Write(buf[:n])
		}
		if err != nil {
			e.end()
			return
		}
	}
}

func (e *echo) end() {
	e.sock.Close()
	e.ended.Done()
}

// listen starts a group whose connections echo, and returns what dials one. The group ends with the test, when all have ended.
func listen(t *testing.T) (dial func() (*net.TCPConn, *echo)) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	g, err := eventloop.New(2)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	t.Cleanup(func() {
		ln.Close()
		ended.Wait()
		g.Close()
	})
	var made uint64
	return func() (*net.TCPConn, *echo) {
		t.Helper()
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		nc, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		made++
		e := &echo{group: g, ended: &ended, seed: rand.New(rand.NewPCG(seed, made))}
		e.sock, _ = g.Take(nc, e)
		if e.sock == nil {
			t.Fatal("not taken")
		}
		ended.Add(1)
		t.Cleanup(func() { client.Close() })
		if !e.sock.Park() {
			go e.leave()
		}
		return client.(*net.TCPConn), e
	}
}

// What is sent comes back, from many sockets at once, in pieces of all sizes, whoever serves them at the moment.
func TestEcho(t *testing.T) {
	dial := listen(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	var away int64
	var all []*echo
	for i := range 30 {
		nc, e := dial()
		all = append(all, e)
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			defer nc.Close()
			for range 40 {
				want := make([]byte, 1+r.IntN(1<<r.IntN(18)))
				for i := range want {
					want[i] = byte(r.Uint32())
				}
				go nc.Write(want)
				got := make([]byte, len(want))
				nc.SetReadDeadline(time.Now().Add(20 * time.Second))
				if _, err := io.ReadFull(nc, got); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes: got others, or %v", len(want), err)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, e := range all {
		away += e.away.Load()
	}
	if away == 0 {
		t.Error("no socket ever left its loop")
	}
}

// Abort ends a parked socket and one whose owner waits.
func TestAbort(t *testing.T) {
	dial := listen(t)
	parked, e := dial()
	parked.Write([]byte("x"))
	one := make([]byte, 1)
	io.ReadFull(parked, one)
	e.sock.Abort()
	if _, err := parked.Read(one); !errors.Is(err, io.EOF) {
		t.Errorf("parked: got %v, want EOF", err)
	}
}

// A deadline that somebody else sets wakes the owner; Claim takes a parked socket once.
func TestDeadlineAndClaim(t *testing.T) {
	dial := listen(t)
	nc, e := dial()
	for deadline := time.Now().Add(10 * time.Second); !e.sock.Claim(); {
		if time.Now().After(deadline) {
			t.Fatal("never parked")
		}
		time.Sleep(time.Millisecond)
	}
	if e.sock.Claim() {
		t.Error("claimed twice")
	}
	waited := make(chan error)
	go func() {
		_, err := e.sock.Read(make([]byte, 1))
		waited <- err
	}()
	e.sock.SetReadDeadline(time.Now().Add(-time.Second))
	if err := <-waited; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want a deadline exceeded", err)
	}
	e.sock.SetReadDeadline(time.Time{})
	nc.CloseWrite()
	if _, err := e.sock.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
	if !e.sock.HungUp() {
		t.Error("the peer has closed its side, and HungUp does not say so")
	}
	e.end()
}

// Input that comes between the owner's last read and Park is not lost.
func TestNothingLostAtPark(t *testing.T) {
	dial := listen(t)
	nc, _ := dial()
	one := make([]byte, 1)
	for i := range 2000 {
		nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		nc.Write([]byte{byte(i)})
		if _, err := io.ReadFull(nc, one); err != nil || one[0] != byte(i) {
			t.Fatalf("byte %d: got %d, %v", i, one[0], err)
		}
	}
}

// A socket that is not one is left alone.
func TestTakeNeedsADescriptor(t *testing.T) {
	g, err := eventloop.New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, ok := g.Take(a, nil); ok {
		t.Error("a pipe was taken")
	}
}

// A muted socket wakes nobody until its owner waits or parks it; then what came meanwhile is there.
func TestMute(t *testing.T) {
	dial := listen(t)
	nc, e := dial()
	claim := func() {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); !e.sock.Claim(); {
			if time.Now().After(deadline) {
				t.Fatal("never parked")
			}
			time.Sleep(time.Millisecond)
		}
	}
	one := make([]byte, 1)
	for _, wait := range []bool{true, false, true} {
		claim()
		e.sock.Mute()
		nc.Write([]byte("x"))
		if wait {
			if _, err := io.ReadFull(e.sock, one); err != nil || one[0] != 'x' {
				t.Fatalf("got %q, %v", one, err)
			}
			if n, err := e.sock.TryRead(one); err != eventloop.ErrAgain {
				t.Fatalf("got %d, %v; want nothing more", n, err)
			}
			e.sock.Write(one)
		}
		if !e.sock.Park() {
			go e.leave()
		}
		nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadFull(nc, one); err != nil || one[0] != 'x' {
			t.Fatalf("got %q, %v", one, err)
		}
	}
}
