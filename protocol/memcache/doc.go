// Package memcache serves the queue to any memcached client, over memcached's protocols: classic text, the meta commands and
// the binary one. A connection's first byte tells them apart: 0x80 is binary; classic text and meta mix on one connection.
//
// A Server with a Store is all it takes: Serve(ln) accepts connections, Shutdown(ctx) drains them, Close cuts them.
//
// # Verbs
//
// A key names a queue: NAME[/option[=value]]…, where {NAME} and NAME|#| are the same name, for proxies that hash on them.
//
//	set, add, replace   enqueue: always, only into an empty queue, only into one that holds a message
//	                      /delay=s  /pri=k  /dedup=K        (set and add)
//	cas                 replace the body of the message held under the receipt and release it
//	get, gets           reserve the first ready message of each queue; gets shows the receipt as CAS
//	gat, gats           the same with a lease
//	                      /t=ms  /open  /close  /abort  /close/open  /peek  /lease=s  /n=tag  /batch=k
//	delete              ack the message that this connection reserved first
//	                      /id=receipt  /n=tag  /release=s  /backoff=s
//	touch               give it a lease from now on
//	                      /id=receipt  /n=tag
//	stats               memcached's numbers; stats items, settings, queues, reset; STATS has the queues, too
//	dump_stats          the queues' numbers, as Kestrel lists them
//	version, verbosity, quit, flush_all, flush
//	incr, decr          NOT_FOUND: a queue is no number
//	append, prepend     NOT_STORED
//
// The meta commands, with memcached's flags q, O, k and b; queue options ride in the key or, comma separated, in L:
//
//	ms q n    enqueue: T<ttl> F<flags> M<mode> c(message id) s; with C<receipt> replace the body and release
//	mg q v    reserve: T<lease> c(receipt) f h(redelivered) l(seconds in the queue) s t(lease left)
//	mg q      look at the first ready message, take nothing; mg q v u shows its body
//	mg q T60  touch what this connection reserved first; /id=receipt, /n=tag
//	md q      ack: C<receipt>; with I give it back, T<delay>
//	ma q      NF: a queue is no number
//	me q      ME q ready=… reserved=… delayed=… dead=… age_ms=…
//	mn        MN, the end of a pipeline
//
// The binary protocol has GET, SET, ADD, REPLACE, DELETE, INCREMENT, DECREMENT, APPEND, PREPEND, GAT, FLUSH and QUIT with their
// quiet and key forms, TOUCH, NOOP, VERSION and STAT; anything else is status 0x0081, and the stream stays in step. CAS carries
// the receipt: SET and REPLACE with one are cas, DELETE with one acks by it. What an enqueue answers there is no receipt, and
// refused as one.
//
// Quiet gets take what is there. Only if all of them up to mn or NOOP missed does the pipeline wait, once and for all of them; any
// other command in between ends it. One that is spelt alike again (meta: with k and without O) yields nothing more.
//
// Everything else is ERROR. An option that a verb doesn't take, or whose value is out of range, is CLIENT_ERROR, and nothing of
// the line happens. A key is echoed exactly as it was sent.
//
// close/open acks the message reserved first and takes the next one; unlike open alone it gives nothing back, so that a worker
// may keep several in hand.
//
// # A connection
//
// A new connection has a goroutine, which parses as long as input is buffered and collects the answers; then one commit and one
// write do for all of them, so nothing is answered before the store's promise holds. Once it has completed a command, a
// connection that owes its peer nothing is parked, if it is a socket of its own (not TLS): it has no goroutine and no buffer. An event
// loop runs what then arrives whole and waits for nothing (park.go): for all connections that have input, before the first is answered,
// so that one write to the log does for all. What must wait, for the disk, memory, a message or the rest of a body, is a goroutine's
// business again, and syncs are the syncer's. A waiting get is one goroutine: the wait's end is the read deadline, a message pulls that
// deadline into the past, and a peer that hangs up is noticed because the goroutine waits for input.
//
// # Bad input
//
// A refused body of readable length is swallowed up to 256 MiB and never run as commands. A body whose length or end can't be
// known closes the connection after the answer. A failed command with noreply prints nothing; it is counted.
//
// Before its first completed command a connection must send a line within 10 s and a body within 10 s and 1 s per 64 KiB. Later
// it may stall, unless connections or bytes in flight are over half of their limit: then those that have stalled longest close
// first. A reply that makes no progress for 30 s closes its connection.
//
// # Caveats
//
// get q/peek and get q/close never wait. A wait that outlasts its client's timeout makes most clients drop the connection; one
// that half-closes its connection while it waits is taken for gone.
package memcache
