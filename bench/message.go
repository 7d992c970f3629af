package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// A message is a body and flags with a number in the body, by which each message of a run is told from the others.
// The number has a fixed width, so that the next body is made in place. It serves one goroutine; clone it for others.
type message struct {
	body      []byte
	flags     uint32
	at, width int // where the decimal digits of the number are
}

// minBody is the smallest body: it holds nothing but the number.
const minBody = 16

// newMessage returns a message of n printable bytes, which are the same for the same n; n is at least minBody.
func newMessage(n int) (*message, error) {
	if n < minBody {
		return nil, fmt.Errorf("a body needs at least %d bytes", minBody)
	}
	body := make([]byte, n)
	random := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range body {
		body[i] = byte('a' + random.IntN(26))
	}
	m := &message{body: body, width: minBody}
	m.number(0)
	return m, nil
}

// blogBody is what PHP's Memcached sends for the array of the blog that this project starts from: 243 bytes.
const blogBody = `a:2:{s:4:"name";s:8:"testname";s:8:"testdata";a:13:{` +
	`i:0;i:1;i:1;i:2;i:2;i:3;i:3;i:4;i:4;i:5;i:5;i:6;i:6;i:7;i:7;i:8;i:8;i:9;i:9;i:0;` +
	`i:10;s:26:"abcdefghijklmnopqrstuvwxyz";s:6:"userid";s:10:"testuserid";s:5:"entry";s:19:"2011-10-20 12:00:00";}}`

// blogFlags are the client flags of a serialized value in PHP's Memcached.
const blogFlags = 4

// blogMessage returns the blog's payload, its number in the place of the ten characters of the userid.
func blogMessage() *message {
	m := &message{body: []byte(blogBody), flags: blogFlags, at: bytes.Index([]byte(blogBody), []byte("testuserid")), width: 10}
	m.number(0)
	return m
}

func (m *message) clone() *message {
	c := *m
	c.body = bytes.Clone(m.body)
	return &c
}

// number makes the message number n and returns its body, valid until the next call.
func (m *message) number(n int64) []byte {
	putDigits(m.body[m.at:m.at+m.width], n)
	return m.body
}

// putDigits writes n in decimal with leading zeros over all of b.
func putDigits(b []byte, n int64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
}

var errBody = errors.New("a message came back with other bytes or flags than were stored")

// read returns the number of a body that was received. It is an error if any other byte, the length or the flags
// are not as they were stored.
func (m *message) read(body []byte, flags uint32) (int64, error) {
	end := m.at + m.width
	if len(body) != len(m.body) || flags != m.flags ||
		!bytes.Equal(body[:m.at], m.body[:m.at]) || !bytes.Equal(body[end:], m.body[end:]) {
		return 0, errBody
	}
	var n int64
	for _, c := range body[m.at:end] {
		if c < '0' || c > '9' {
			return 0, errBody
		}
		n = n*10 + int64(c-'0')
	}
	return n, nil
}

// expect is read for a message whose number is known.
func (m *message) expect(body []byte, flags uint32, want int64) error {
	n, err := m.read(body, flags)
	if err != nil {
		return err
	}
	if n != want {
		return fmt.Errorf("message %d came where %d was expected", n, want)
	}
	return nil
}

// keys gives the key for each message of one worker: always the same for a queue, one a message for a cache.
// It serves one goroutine.
type keys struct {
	buf   []byte
	fixed bool
}

// newKeys returns the keys of a worker: name is the queue, or what the keys begin with.
func newKeys(name string, worker int, rule keyRule) *keys {
	if rule == queueKeys {
		return &keys{buf: []byte(name), fixed: true}
	}
	k := &keys{buf: append([]byte(name), '-')}
	k.buf = strconv.AppendInt(k.buf, int64(worker), 10)
	k.buf = append(k.buf, "-0000000000"...)
	return k
}

// at returns the key of the worker's message n, valid until the next call.
func (k *keys) at(n int64) []byte {
	if !k.fixed {
		putDigits(k.buf[len(k.buf)-10:], n)
	}
	return k.buf
}
