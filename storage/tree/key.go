package tree

import (
	"errors"
	"fmt"
)

// maxKeyLen is bbolt's limit less the table number.
const maxKeyLen = 32768 - 1

// appendKey appends the stored form of a key: the table's byte and the key.
func appendKey(dst []byte, tables []TableSpec, table int, key []byte) ([]byte, error) {
	if table < 0 || table >= len(tables) {
		return dst, fmt.Errorf("table %d of %d", table, len(tables))
	}
	if len(key) < tables[table].GroupLen || len(key) > maxKeyLen {
		return dst, fmt.Errorf("table %s: a key of %d bytes; %d to %d are possible",
			tables[table].Name, len(key), tables[table].GroupLen, maxKeyLen)
	}
	return append(append(dst, byte(prefixTable+table)), key...), nil
}

// appendGroupKey appends the stored form of a group record's key.
func appendGroupKey(dst []byte, tables []TableSpec, table int, group []byte) ([]byte, error) {
	if table < 0 || table >= len(tables) {
		return dst, fmt.Errorf("table %d of %d", table, len(tables))
	}
	if n := tables[table].GroupLen; len(group) != n {
		return dst, fmt.Errorf("table %s: a group of %d bytes; its groups have %d", tables[table].Name, len(group), n)
	}
	return append(append(dst, prefixGroup, byte(prefixTable+table)), group...), nil
}

// scanRange returns the stored keys between which the rows of a scan lie: first inclusive, end exclusive.
func scanRange(tables []TableSpec, table int, from, to []byte) (first, end []byte, err error) {
	if table < 0 || table >= len(tables) {
		return nil, nil, fmt.Errorf("table %d of %d", table, len(tables))
	}
	first = append([]byte{byte(prefixTable + table)}, from...)
	if to == nil {
		return first, []byte{byte(prefixTable + table + 1)}, nil
	}
	return first, append([]byte{byte(prefixTable + table)}, to...), nil
}

// stopped is what a scan returns when its callback returned err.
func stopped(err error) error {
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}
