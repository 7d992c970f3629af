// Package client holds the protocol clients of the load generator, one file a protocol.
//
// They are made for measuring: client and server share the machine, so what a client spends is taken from the
// server. A client is one TCP connection used by one goroutine, writes its requests by hand into a buffer that
// it keeps, reads replies in place, and (JetStream's apart, which goes by NATS's own Go client) allocates nothing per
// operation. It is no example of a client for programs: it knows only the replies that the benchmarks expect, and ends
// with an error on any other.
//
// [Dial] connects to a server by the name of its protocol; [Conn] is what all protocols have in common.
package client
