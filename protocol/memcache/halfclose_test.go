//go:build linux

package memcache_test

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// corkedClose sends s and the end of the stream in one packet.
func (c *client) corkedClose(s string) {
	c.t.Helper()
	tcp := c.nc.(*net.TCPConn)
	raw, err := tcp.SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, 1) })
	if err != nil {
		c.t.Fatal(err)
	}
	c.send(s)
	if err := tcp.CloseWrite(); err != nil {
		c.t.Fatal(err)
	}
}

// A stream that ends in the packet of its last command is noticed to have ended, whoever serves the connection.
func TestHalfCloseInTheLastPacket(t *testing.T) {
	s := start(t, tcp, nil)
	for range 50 {
		for _, first := range []bool{true, false} {
			for _, tt := range []struct{ send, want string }{
				{"version\r\n", version},
				{"get q/t=60000\r\n", "END\r\n"},
				{"version\r\nget q/t=60000\r\n", version + "END\r\n"},
				{"set w 0 0 1\r\nx\r\n", "STORED\r\n"},
			} {
				c := s.dial()
				if !first {
					c.wantOpen()
				}
				c.corkedClose(tt.send)
				c.want(tt.want)
				c.wantEnd()
			}
		}
	}
}
