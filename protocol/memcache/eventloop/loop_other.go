//go:build !linux

package eventloop

import (
	"errors"
	"net"
	"time"
)

// Group is not there on this system.
type Group struct{}

// Socket is not there on this system.
type Socket struct{ net.Conn }

// New returns errors.ErrUnsupported.
func New(int) (*Group, error) { return nil, errors.ErrUnsupported }

func (g *Group) Close() {}

func (g *Group) Requeue(...*Socket) {}

func (g *Group) Awake() int { return 0 }

func (g *Group) Take(net.Conn, Handler) (*Socket, bool) { return nil, false }

func (s *Socket) Park() bool                        { return false }
func (s *Socket) Mute()                             {}
func (s *Socket) Doze(time.Duration) bool           { return false }
func (s *Socket) Yield()                            {}
func (s *Socket) Alone() bool                       { return false }
func (s *Socket) Requeue()                          {}
func (s *Socket) Claim() bool                       { return false }
func (s *Socket) TryRead([]byte) (int, error)       { return 0, ErrAgain }
func (s *Socket) TryWrite([]byte) (int, error)      { return 0, nil }
func (s *Socket) TryWriteAll([][]byte) (int, error) { return 0, nil }
func (s *Socket) AckNow()                           {}
func (s *Socket) WaitRead() error                   { return errors.ErrUnsupported }
func (s *Socket) HungUp() bool                      { return false }
func (s *Socket) Abort()                            {}
func (s *Socket) CloseWrite() error                 { return errors.ErrUnsupported }
