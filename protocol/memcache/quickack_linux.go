package memcache

import "syscall"

// ackNow acknowledges what has arrived without the system's usual delay of 40 ms. A client that writes a command and its body
// apart, and whose system collects small packets, sends the body only behind that.
func (in *input) ackNow() {
	if in.raw != nil {
		in.raw.Control(quickAck)
	}
}

// quickAck fails on sockets that are not TCP, which have no such delay.
func quickAck(fd uintptr) {
	syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1)
}
