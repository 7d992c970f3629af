package tree

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// tally counts rows as they are read in the order of their keys, to compare the groups with their records.
type tally struct {
	tables []TableSpec
	rows   [256]int64 // by first byte of the stored key
	groups map[string]*tallied
	last   *tallied
	prefix []byte
}

// tallied is a group: what its rows say and what its record says.
type tallied struct {
	rows, record group
}

// add counts a row whose seal holds. It is false if the row can't be one of the tree's.
func (t *tally) add(key, value []byte, sum uint32) bool {
	t.rows[key[0]]++
	switch {
	case key[0] == prefixFormat:
		return bytes.Equal(key, formatKey)
	case key[0] == prefixGroup:
		record, ok := parseGroup(value)
		if ok = ok && t.isGroup(key[1:]); ok {
			t.group(key[1:]).record = record
		}
		return ok
	case int(key[0]-prefixTable) >= len(t.tables):
		return false
	}
	n := t.tables[key[0]-prefixTable].GroupLen
	if len(key) < 1+n {
		return false
	}
	t.group(key[:1+n]).rows.add(rowHash(sum, len(value)))
	return true
}

// isGroup reports whether prefix is a table's byte and one of its groups.
func (t *tally) isGroup(prefix []byte) bool {
	if len(prefix) < 1 || prefix[0] < prefixTable || int(prefix[0]-prefixTable) >= len(t.tables) {
		return false
	}
	return len(prefix) == 1+t.tables[prefix[0]-prefixTable].GroupLen
}

func (t *tally) group(prefix []byte) *tallied {
	if t.last != nil && bytes.Equal(prefix, t.prefix) {
		return t.last
	}
	g := t.groups[string(prefix)]
	if g == nil {
		if t.groups == nil {
			t.groups = make(map[string]*tallied)
		}
		g = &tallied{}
		t.groups[string(prefix)] = g
	}
	t.last, t.prefix = g, append(t.prefix[:0], prefix...)
	return g
}

// compare describes the groups whose rows are not those that their record counts.
func (t *tally) compare() (wrong []string) {
	for _, prefix := range slices.Sorted(maps.Keys(t.groups)) {
		g := t.groups[prefix]
		if g.rows == g.record {
			continue
		}
		name := fmt.Sprintf("table %s, group %x", t.tables[prefix[0]-prefixTable].Name, prefix[1:])
		if g.rows.count == g.record.count {
			wrong = append(wrong, fmt.Sprintf("%s: its %d rows are not the ones that were written", name, g.rows.count))
		} else {
			wrong = append(wrong, fmt.Sprintf("%s: %d rows, its record counts %d", name, g.rows.count, g.record.count))
		}
	}
	return wrong
}
