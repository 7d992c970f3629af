package tree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
)

// The pages of bbolt, read without trust: bbolt itself believes every offset it finds. See doc.go for the layout.
const (
	headerLen  = 16 // id u64, flags u16, count u16, overflow u32
	elementLen = 16 // leaf: flags u32, pos u32, keyLen u32, valueLen u32; branch: pos u32, keyLen u32, child u64
	metaLen    = 64

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagFreelist = 0x10

	metaMagic   = 0xed0cdaed
	metaVersion = 2
	noFreelist  = ^uint64(0)
)

var order = binary.NativeEndian // bbolt maps its structs onto the file

// meta is one of the two roots of the file.
type meta struct {
	pageSize int
	root     uint64 // page of the tree's root
	freelist uint64 // page
	pages    uint64 // first page number that is not used yet
	txid     uint64
}

// parseMeta decodes the meta page b, of which it needs the first 80 bytes.
func parseMeta(b []byte) (meta, bool) {
	if len(b) < headerLen+metaLen {
		return meta{}, false
	}
	b = b[headerLen:]
	sum := fnv.New64a()
	sum.Write(b[:56])
	m := meta{
		pageSize: int(order.Uint32(b[8:])),
		root:     order.Uint64(b[16:]),
		freelist: order.Uint64(b[32:]),
		pages:    order.Uint64(b[40:]),
		txid:     order.Uint64(b[48:]),
	}
	ok := order.Uint32(b) == metaMagic && order.Uint32(b[4:]) == metaVersion && order.Uint64(b[56:]) == sum.Sum64() &&
		m.pageSize >= 1024 && m.pageSize <= 1<<24 && m.pageSize&(m.pageSize-1) == 0
	return m, ok
}

// page is a branch or leaf whose layout holds.
type page struct {
	id    uint64
	buf   []byte // with the overflow pages that the header names
	count int
	leaf  bool
}

func (p *page) element(i int) []byte { return p.buf[headerLen+elementLen*i:][:elementLen] }

// key returns the key of element i.
func (p *page) key(i int) []byte {
	e := p.element(i)
	if p.leaf {
		e = e[4:]
	}
	start := headerLen + elementLen*i + int(order.Uint32(e))
	return p.buf[start:][:order.Uint32(e[4:])]
}

// value returns the stored value of element i of a leaf.
func (p *page) value(i int) []byte {
	e := p.element(i)
	start := headerLen + elementLen*i + int(order.Uint32(e[4:])) + int(order.Uint32(e[8:]))
	return p.buf[start:][:order.Uint32(e[12:])]
}

// child returns the page that element i of a branch points to.
func (p *page) child(i int) uint64 { return order.Uint64(p.element(i)[8:]) }

// search returns the first element whose key is not below key, looking from element i on.
func (p *page) search(i int, key []byte) int {
	lo, hi := i, p.count
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		if bytes.Compare(p.key(m), key) < 0 {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// searchBranch returns the element of a branch under which key belongs.
func (p *page) searchBranch(key []byte) int {
	i := p.search(0, key)
	if i > 0 && (i == p.count || !bytes.Equal(p.key(i), key)) {
		i--
	}
	return i
}

// verify verifies all of a page that can be verified by itself. bbolt writes keys and values without gaps behind the
// elements, keys ascend, and the page takes just as many overflow pages as it needs: so there is one right value for
// nearly every byte but those of the keys and values.
func (p *page) verify(pageSize int, root bool) error {
	if got := order.Uint64(p.buf); got != p.id {
		return fmt.Errorf("page %d says that it is page %d", p.id, got)
	}
	if flags := order.Uint16(p.buf[8:]); flags != flagLeaf && flags != flagBranch {
		return fmt.Errorf("page %d is of kind %#x, not a branch or leaf", p.id, flags)
	}
	if p.count == 0 && (!root || !p.leaf) {
		return fmt.Errorf("page %d is empty", p.id)
	}
	end := headerLen + elementLen*p.count
	if end > len(p.buf) {
		return fmt.Errorf("page %d: %d elements don't fit", p.id, p.count)
	}
	var last []byte
	for i := range p.count {
		key, next, ok := p.verifyElement(i, end)
		if !ok {
			return fmt.Errorf("page %d: element %d is not where it belongs", p.id, i)
		}
		if i > 0 && bytes.Compare(last, key) >= 0 {
			return fmt.Errorf("page %d: key %d is not above the one before it", p.id, i)
		}
		last, end = key, next
	}
	if len(p.buf) != (end+pageSize-1)/pageSize*pageSize {
		return fmt.Errorf("page %d takes %d bytes but claims %d", p.id, end, len(p.buf))
	}
	return nil
}

// verifyElement reports whether element i is well-formed and its key begins at start, and returns the key and where its
// content ends.
func (p *page) verifyElement(i, start int) (key []byte, end int, ok bool) {
	e := p.element(i)
	values := 0
	if p.leaf {
		if order.Uint32(e) != 0 {
			return nil, 0, false
		}
		values = int(order.Uint32(e[12:]))
		e = e[4:]
	}
	pos, keyLen := int(order.Uint32(e)), int(order.Uint32(e[4:]))
	end = start + keyLen + values
	if headerLen+elementLen*i+pos != start || keyLen == 0 || keyLen > len(p.buf) || values > len(p.buf) || end > len(p.buf) {
		return nil, 0, false
	}
	return p.buf[start:][:keyLen], end, true
}
