// Package replication ships the update log of one server, the master, to others, its slaves. A slave writes the master's
// records byte for byte into its own log and applies them by the code that applies a client's; so it can be the master of
// others, and take the master's place.
//
// A Master serves slaves over connections that its caller accepts: Handler upgrades an HTTP request, ServeConn takes any
// net.Conn. A Slave connects, follows, and connects again until its context ends:
//
//	m := &replication.Master{SID: 1, Store: store, Log: log}
//	mux.Handle(replication.Path, m.Handler())
//
//	s := &replication.Slave{SID: 2, Address: "master:1978", Store: store, Dir: dir, Log: log}
//	err := s.Run(ctx)                       // ErrCopyReady: close the store, open it again, run on
//
// # Promises
//
//   - What a slave has is a prefix of its master's history, and was on the master's disk before it was sent (in every -sync
//     mode). It is asynchronous: a master that is lost for good takes with it what was not sent, which is the lag.
//   - Each run of records carries the position, LSN and chained sum, to which it leads. The slave computes its own and
//     takes all of the run or nothing, so no record is missing, doubled or altered, wherever a connection is cut.
//   - A slave that is new, or further back than the master's log, gets a copy of the tree first. Until that is whole and
//     verified nothing of it is used.
//   - A slave with records that the master has not is refused, and nothing of it is touched.
//   - What is reserved on the master is ready on the slave.
//
// # A slave's states
//
//	          ┌────────────────── cut, error, silence ◀──────────────┐
//	          ▼                                                       │
//	     connecting ──hello──▶ master decides ──stream──▶ following ──┤
//	          ▲  ▲                │        │                          │
//	5 s later │  └─── refused ◀───┘        └──copy──▶ copying ────────┤
//	          └─────────┘                                │            │
//	                                          whole and verified ─────┴─▶ Run returns ErrCopyReady
//
// # The conversation
//
//	slave                                   master
//	POST /replication/v1/stream HTTP/1.1    101 Switching Protocols         (Upgrade: qserver-replication/1)
//	hello ─▶
//	                                        ◀─ challenge
//	proof ─▶
//	                                        ◀─ ask                          (only if records may be the slave's own; some times)
//	sums ─▶
//	                                        ◀─ welcome (stream or copy), or refused and the end
//	                                        ◀─ records, heartbeats          (stream)
//	acks ─▶
//	                                        ◀─ heartbeats, copy begin, copy data …, copy end, the end    (copy)
//
// The challenge asks for a proof where the master has a secret; otherwise only slaves on loopback are served. Proof and
// welcome carry HMAC-SHA256 under the secret of: one byte ('S' for the slave's, 'M' for the master's), the challenge's nonce,
// and the payload of the hello, which has a nonce of the slave's. So each side knows that the other has the secret. What
// follows is not encrypted by it; use TLS (Slave.TLS), or a tunnel, where others can listen in or change it.
//
// A heartbeat comes every second when nothing else does, an ack after each that was taken in, and every second. Ten seconds of
// silence end the connection.
//
// # Frames
//
// Numbers are little endian. A frame is a header and a payload:
//
//	 0   kind u8, version u8 = 1, zero u16     length of payload u32
//	 8   CRC-32C of bytes 0 to 7 and the payload, u32
//	12   payload
//
// The kinds and their payloads:
//
//	1 hello      sid u16; node [16]; history [16]; LSN u64, chain u32; nonce [32]; n u8, n × (epoch u64, nonce u64, LSN u64);
//	             length u8, version of the server
//	2 challenge  nonce [32]; proof wanted u8
//	3 proof      mac [32], zeros if none is wanted
//	4 welcome    mode u8 (1 stream, 2 copy); mac [32]; sid u16; node [16]; history [16]; epoch u64
//	5 refused    code u16; own u64; common u64; text
//	6 records    LSN u64, chain u32 behind the last one; count u32; LSN up to which the master's disk has it u64; bytes of
//	             the master's log behind these u64; the records, as storage.Batch decodes them
//	7 heartbeat  LSN up to which the master's disk has it u64; bytes of its log behind what was sent u64; Unix ms u64
//	8 ack        LSN applied u64; LSN durable u64
//	9 copy begin history [16]; size u64
//	10 copy data bytes of the file, in order
//	11 copy end  size u64; CRC-32C of the file u32
//	12 ask       n u8 ≤ 64, n × LSN u64, ascending
//	13 sums      LSN behind which the slave's log has the records u64; n u8, n × (LSN u64, chain u32) of those asked that it knows
//
// node is the number of the folder's log; it tells two slaves of one sid apart. Before the master refuses a slave for records of its
// own it asks for sums, closer each time, until it knows the last LSN at which both logs have the same (parting.go): that tells
// two writers in one epoch apart, too. A refusal's code says why (see Code); own is how many records the slave has that the master
// has not, 0 if that isn't known; common is the LSN up to which both agree.
// A kind that is not known, a sum that doesn't hold, a payload with bytes too many or too few end the connection.
//
// # What is built on it
//
//   - promotion: Slave.Run ends, then storage's Store.Promote begins an epoch (storage/role.go). Master serves on as it is, and
//     refuses those that have more of the epoch before by the LSN at which the new one begins.
//   - a planned switch-over: Store.Yield stops writes, Acked says when the slave has everything, it is promoted, and followed.
//   - semi-synchronous answers: quorum.go tells the store how far the slaves are, and its commits wait (storage/quorum.go).
//     Master.Gather is below 0 then.
//   - setting records aside: Own says which are a slave's own; they are in its log, since a master keeps for its known slaves
//     what these don't have (storage/keep.go), and storage.SetAside copies them out.
package replication
