package tree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// These constants are part of the file format; doc.go draws it.
const (
	formatVersion = 1

	prefixFormat = 0x00 // the format row
	prefixTable  = 0x01 // table 0; table n is prefixTable+n
	prefixGroup  = 0xff // group records

	maxTables = 200
	sealLen   = 4
	groupLen  = 16 // count and digest
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	formatKey  = []byte("\x00format")
)

// seal is the sum that is stored in front of value under the stored key.
func seal(key, value []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, key), castagnoli, value)
}

// sealed writes seal and value to dst, which has sealLen+len(value) bytes, and returns the seal.
func sealed(dst, key, value []byte) uint32 {
	s := seal(key, value)
	binary.LittleEndian.PutUint32(dst, s)
	copy(dst[sealLen:], value)
	return s
}

// unseal verifies a stored value and returns the part behind the seal.
func unseal(key, stored []byte) (value []byte, sum uint32, ok bool) {
	if len(stored) < sealLen {
		return nil, 0, false
	}
	value, sum = stored[sealLen:], binary.LittleEndian.Uint32(stored)
	return value, sum, seal(key, value) == sum
}

// rowHash is what a row adds to the digest of its group: its seal and its value's length, spread over 64 bits by the
// finaliser of SplitMix64, so that a sum over rows tells any two sets of rows apart.
func rowHash(sum uint32, valueLen int) uint64 {
	h := uint64(sum) | uint64(valueLen)<<32
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// group is the content of a group record, or a change to it.
type group struct {
	count  uint64
	digest uint64 // sum of rowHash over the rows, modulo 2^64
}

func (g *group) add(hash uint64)    { g.count++; g.digest += hash }
func (g *group) remove(hash uint64) { g.count--; g.digest -= hash }

func (g *group) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, g.count)
	return binary.LittleEndian.AppendUint64(dst, g.digest)
}

func parseGroup(value []byte) (group, bool) {
	if len(value) != groupLen {
		return group{}, false
	}
	g := group{binary.LittleEndian.Uint64(value), binary.LittleEndian.Uint64(value[8:])}
	return g, g.count != 0
}

var errFormatRow = errors.New("the format row does not hold")

// appendFormat encodes the content of the format row.
func appendFormat(dst []byte, tables []TableSpec) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, formatVersion)
	dst = append(dst, byte(len(tables)))
	for _, t := range tables {
		dst = append(dst, byte(t.GroupLen), byte(len(t.Name)))
		dst = append(dst, t.Name...)
	}
	return dst
}

// parseFormat decodes the content of the format row. The error wraps ErrNewerFormat or says what is wrong.
func parseFormat(value []byte) ([]TableSpec, error) {
	if len(value) < 3 {
		return nil, errFormatRow
	}
	if v := binary.LittleEndian.Uint16(value); v > formatVersion {
		return nil, fmt.Errorf("%w (tree format %d; this one reads up to %d)", ErrNewerFormat, v, formatVersion)
	}
	tables := make([]TableSpec, 0, value[2])
	rest := value[3:]
	for range value[2] {
		if len(rest) < 2 || len(rest) < 2+int(rest[1]) {
			return nil, errFormatRow
		}
		end := 2 + int(rest[1])
		tables = append(tables, TableSpec{Name: string(rest[2:end]), GroupLen: int(rest[0])})
		rest = rest[end:]
	}
	if len(rest) > 0 {
		return nil, errFormatRow
	}
	return tables, nil
}

// checkTables reports whether a file with the tables stored can be opened with the tables given.
func checkTables(stored, given []TableSpec) error {
	if len(stored) > len(given) {
		return fmt.Errorf("it has %d tables, %d were asked for", len(stored), len(given))
	}
	for i, s := range stored {
		if s != given[i] {
			return fmt.Errorf("table %d is %q with groups of %d bytes, %q with %d was asked for",
				i, s.Name, s.GroupLen, given[i].Name, given[i].GroupLen)
		}
	}
	return nil
}

// validTables reports a table list that the format can't hold.
func validTables(tables []TableSpec) error {
	if len(tables) > maxTables {
		return fmt.Errorf("%d tables; at most %d", len(tables), maxTables)
	}
	for _, t := range tables {
		if len(t.Name) > 255 || t.GroupLen < 0 || t.GroupLen > 255 {
			return fmt.Errorf("table %q with groups of %d bytes: at most 255 each", t.Name, t.GroupLen)
		}
	}
	return nil
}
