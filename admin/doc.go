// Package admin is the HTTP side of the server: a JSON API for people's tools, health answers for whatever watches the
// process, and the remote procedures of Kyoto Tycoon for the clients that its users already have.
//
// The types you need are Server, Store (what it asks of the storage), Traffic and Master (what it is told of the other
// sides). A Server listens before recovery has finished: until Attach it answers /healthz with 200, /readyz with 503 and
// everything that needs the store with 503.
//
//	s := &admin.Server{Version: "1.2.3", Log: log, Traffic: mc.Traffic}
//	go s.Serve(ln)       // answers at once
//	s.Attach(store)      // recovery is over
//	s.Drain()            // /readyz says "shutdown" from here on
//	s.Shutdown(ctx)      // no new requests; Serve returns http.ErrServerClosed
//	s.Close()            // cuts what is left, ends a running command; before the store is closed
//
// # Addresses
//
//	GET  /healthz                  200 once the port listens
//	GET  /readyz                   200, or 503 with the reason: recovery, shutdown, disk full, a failed log
//	GET  /api/v1/status            the server and its store
//	GET  /api/v1/queues            queues in byte order of their names; ?prefix= ?after= ?limit=
//	GET  /api/v1/queues/{name}     one queue; the whole rest of the path, percent-decoded once, is its name
//	GET  /api/v1/queue?name=       the same, for the names that URLs cannot carry in a path ("." and "..")
//	GET  /debug/pprof/…            Go's profiles, if Server.Pprof is set
//	*    /rpc/{procedure}          void, echo, report, status, clear, synchronize, ulog_list, ulog_remove
//
// HEAD is answered wherever GET is. Field names of the JSON answers end in their unit (age_ms, uptime_ms, bytes) or in
// _total for counters that only grow; fields are added, never renamed. Errors are {"error": "…"}; those of a procedure
// are one record ERROR with the text. docs/http.md is the reference for people.
//
// # Procedures
//
// A procedure's input is one map: the query string first, then the body of a POST, whose records win. A body is read as
// application/x-www-form-urlencoded or as text/tab-separated-values, whose columns may be encoded (colenc=B, Q or U);
// anything else is ignored. The answer is a TSV map, sorted by the bytes of the key column, plain where it can be and
// otherwise in base64 or percent-encoding, whichever is estimated to be shorter. tsv.go holds the codec.
//
// # Who may ask
//
// There is no login: the caller is expected to listen on loopback. Against web pages that the operator's browser has
// open there are three bars: the Host header must name loopback or one of Server.Hosts (DNS rebinding), writes that a
// browser marks as coming from elsewhere are refused (cross-site forms), and nothing changes by GET but "clear", which
// Kyoto Tycoon's Python client sends so: it needs AllowFlushAll and no sign of a browser.
//
// # What is not promised
//
// The reason phrase of a status that net/http does not know (450) is "status code 450", not Kyoto Tycoon's "Logical
// Inconsistency"; clients read the number. WAIT and SIGNAL, which make procedures wait for one another in Kyoto Tycoon,
// are answered with 501.
package admin
