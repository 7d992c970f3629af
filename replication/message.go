package replication

import (
	"encoding/binary"
	"fmt"

	"qserver/storage"
	"qserver/storage/queue"
	"qserver/storage/ulog"
)

// The payloads, as doc.go lists them. Each has append, which appends a whole frame to dst, which must be empty, and parse.

// Code says why a slave was refused. The values are part of the protocol.
type Code uint16

// The codes of a Refused.
const (
	CodeAuth     Code = 1 // no secret, or another one
	CodeDiverged Code = 2 // the slave has records that are not in the master's history
	CodeAhead    Code = 3 // the slave has all of the master's records, and more
	CodeHistory  Code = 4 // it has a history of its own
	CodeSID      Code = 5 // another slave has this sid, or the master has
	CodeNotReady Code = 6 // the master has nothing to give yet
	CodeCopy     Code = 7 // the master can't make a copy now
	CodeProtocol Code = 8 // what the slave sent was not understood
)

// String names the code in one word.
func (c Code) String() string {
	names := map[Code]string{CodeAuth: "auth", CodeDiverged: "diverged", CodeAhead: "ahead", CodeHistory: "history", CodeSID: "sid",
		CodeNotReady: "not-ready", CodeCopy: "copy", CodeProtocol: "protocol"}
	if name, ok := names[c]; ok {
		return name
	}
	return fmt.Sprintf("code-%d", uint16(c))
}

// Refused is the master's answer to a slave that it doesn't serve.
type Refused struct {
	Code   Code
	Own    uint64 // records of the slave that the master has not; 0: not known
	Common uint64 // LSN up to which both agree; 0: not known
	Text   string // what to do, for people
}

// Error is the text.
func (r *Refused) Error() string { return "refused by the master: " + r.Text }

type hello struct {
	sid           uint16
	node, history [16]byte
	position      ulog.Position
	nonce         [32]byte
	epochs        []queue.Epoch
	version       string
}

type challenge struct {
	nonce [32]byte
	proof bool // wanted
}

type proof struct{ mac [32]byte }

type welcome struct {
	mode          byte
	mac           [32]byte
	sid           uint16
	node, history [16]byte
	epoch         uint64
}

const (
	modeStream byte = 1
	modeCopy   byte = 2
)

type recordsHead struct {
	end    ulog.Position
	count  uint32
	synced uint64 // of the master
	behind uint64 // bytes of the master's log behind these
}

type heartbeat struct{ synced, behind, time uint64 }

type ack struct{ applied, durable uint64 }

type copyBegin struct {
	history [16]byte
	size    uint64
}

type copyEnd struct {
	size uint64
	sum  uint32
}

// ask is for a log's sums at some LSNs, and sums the answer.
type ask struct{ lsns []uint64 }

type sums storage.Sums

var le = binary.LittleEndian

func (m *hello) append(dst []byte) []byte {
	b := beginFrame(dst, kindHello)
	b = le.AppendUint16(b, m.sid)
	b = append(append(b, m.node[:]...), m.history[:]...)
	b = le.AppendUint32(le.AppendUint64(b, m.position.LSN), m.position.Chain)
	b = append(b, m.nonce[:]...)
	epochs := m.epochs[max(0, len(m.epochs)-255):]
	b = append(b, byte(len(epochs)))
	for _, e := range epochs {
		b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, e.Number), e.Nonce), e.LSN)
	}
	version := m.version[:min(255, len(m.version))]
	b = append(append(b, byte(len(version))), version...)
	return endFrame(b)
}

func (m *hello) parse(b []byte) error {
	d := decoder{b: b}
	m.sid = d.u16()
	d.fixed(m.node[:])
	d.fixed(m.history[:])
	m.position = ulog.Position{LSN: d.u64(), Chain: d.u32()}
	d.fixed(m.nonce[:])
	m.epochs = nil
	for n := d.u8(); n > 0 && !d.bad; n-- {
		m.epochs = append(m.epochs, queue.Epoch{Number: d.u64(), Nonce: d.u64(), LSN: d.u64()})
	}
	m.version = string(d.take(int(d.u8())))
	return d.end()
}

func (m *challenge) append(dst []byte) []byte {
	b := append(beginFrame(dst, kindChallenge), m.nonce[:]...)
	if m.proof {
		return endFrame(append(b, 1))
	}
	return endFrame(append(b, 0))
}

func (m *challenge) parse(b []byte) error {
	d := decoder{b: b}
	d.fixed(m.nonce[:])
	m.proof = d.u8() != 0
	return d.end()
}

func (m *proof) append(dst []byte) []byte {
	return endFrame(append(beginFrame(dst, kindProof), m.mac[:]...))
}

func (m *proof) parse(b []byte) error {
	d := decoder{b: b}
	d.fixed(m.mac[:])
	return d.end()
}

func (m *welcome) append(dst []byte) []byte {
	b := append(beginFrame(dst, kindWelcome), m.mode)
	b = le.AppendUint16(append(b, m.mac[:]...), m.sid)
	b = append(append(b, m.node[:]...), m.history[:]...)
	return endFrame(le.AppendUint64(b, m.epoch))
}

func (m *welcome) parse(b []byte) error {
	d := decoder{b: b}
	m.mode = d.u8()
	d.fixed(m.mac[:])
	m.sid = d.u16()
	d.fixed(m.node[:])
	d.fixed(m.history[:])
	m.epoch = d.u64()
	if m.mode != modeStream && m.mode != modeCopy {
		d.bad = true
	}
	return d.end()
}

func (r *Refused) append(dst []byte) []byte {
	b := le.AppendUint16(beginFrame(dst, kindRefused), uint16(r.Code))
	b = le.AppendUint64(le.AppendUint64(b, r.Own), r.Common)
	return endFrame(append(b, r.Text[:min(len(r.Text), 4096)]...))
}

func (r *Refused) parse(b []byte) error {
	d := decoder{b: b}
	r.Code, r.Own, r.Common = Code(d.u16()), d.u64(), d.u64()
	r.Text = string(d.take(len(d.b)))
	return d.end()
}

// recordsHeadLen is how many bytes of a records frame lie before its records.
const recordsHeadLen = 32

// beginRecords appends the beginning of a records frame, behind which the records go; end fills it in.
func beginRecords(dst []byte) []byte {
	return append(beginFrame(dst, kindRecords), make([]byte, recordsHeadLen)...)
}

func (m *recordsHead) endRecords(b []byte) []byte {
	h := b[frameHeaderLen:]
	le.PutUint64(h[0:], m.end.LSN)
	le.PutUint32(h[8:], m.end.Chain)
	le.PutUint32(h[12:], m.count)
	le.PutUint64(h[16:], m.synced)
	le.PutUint64(h[24:], m.behind)
	return endFrame(b)
}

func (m *recordsHead) parse(b []byte) (records []byte, err error) {
	if len(b) < recordsHeadLen {
		return nil, errSize
	}
	d := decoder{b: b}
	m.end = ulog.Position{LSN: d.u64(), Chain: d.u32()}
	m.count, m.synced, m.behind = d.u32(), d.u64(), d.u64()
	return d.b, nil
}

func (m *heartbeat) append(dst []byte) []byte {
	return endFrame(le.AppendUint64(le.AppendUint64(le.AppendUint64(beginFrame(dst, kindHeartbeat), m.synced), m.behind), m.time))
}

func (m *heartbeat) parse(b []byte) error {
	d := decoder{b: b}
	m.synced, m.behind, m.time = d.u64(), d.u64(), d.u64()
	return d.end()
}

func (m *ack) append(dst []byte) []byte {
	return endFrame(le.AppendUint64(le.AppendUint64(beginFrame(dst, kindAck), m.applied), m.durable))
}

func (m *ack) parse(b []byte) error {
	d := decoder{b: b}
	m.applied, m.durable = d.u64(), d.u64()
	return d.end()
}

func (m *copyBegin) append(dst []byte) []byte {
	return endFrame(le.AppendUint64(append(beginFrame(dst, kindCopyBegin), m.history[:]...), m.size))
}

func (m *copyBegin) parse(b []byte) error {
	d := decoder{b: b}
	d.fixed(m.history[:])
	m.size = d.u64()
	return d.end()
}

func (m *copyEnd) append(dst []byte) []byte {
	return endFrame(le.AppendUint32(le.AppendUint64(beginFrame(dst, kindCopyEnd), m.size), m.sum))
}

func (m *copyEnd) parse(b []byte) error {
	d := decoder{b: b}
	m.size, m.sum = d.u64(), d.u32()
	return d.end()
}

func (m *ask) append(dst []byte) []byte {
	lsns := m.lsns[:min(maxAsked, len(m.lsns))]
	b := append(beginFrame(dst, kindAsk), byte(len(lsns)))
	for _, lsn := range lsns {
		b = le.AppendUint64(b, lsn)
	}
	return endFrame(b)
}

func (m *ask) parse(b []byte) error {
	d := decoder{b: b}
	n := d.u8()
	d.bad = d.bad || n > maxAsked
	m.lsns = nil
	for ; n > 0 && !d.bad; n-- {
		m.lsns = append(m.lsns, d.u64())
	}
	return d.end()
}

func (m *sums) append(dst []byte) []byte {
	at := m.At[:min(maxAsked, len(m.At))]
	b := append(le.AppendUint64(beginFrame(dst, kindSums), m.After), byte(len(at)))
	for _, p := range at {
		b = le.AppendUint32(le.AppendUint64(b, p.LSN), p.Chain)
	}
	return endFrame(b)
}

func (m *sums) parse(b []byte) error {
	d := decoder{b: b}
	m.After = d.u64()
	n := d.u8()
	d.bad = d.bad || n > maxAsked
	m.At = nil
	for ; n > 0 && !d.bad; n-- {
		m.At = append(m.At, ulog.Position{LSN: d.u64(), Chain: d.u32()})
	}
	return d.end()
}

// decoder reads a payload's fields; after its first error it returns zeros.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n int) []byte {
	if n > len(d.b) {
		d.bad, d.b = true, nil
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) fixed(into []byte) { copy(into, d.take(len(into))) }

func (d *decoder) u8() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if b := d.take(2); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

func (d *decoder) end() error {
	if d.bad || len(d.b) > 0 {
		return errSize
	}
	return nil
}
