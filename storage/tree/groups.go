package tree

import (
	"bytes"
	"maps"
	"slices"
)

// group returns the change to the group that the stored key of the table belongs to.
func (x *Tx) group(table int, stored []byte) *group {
	prefix := stored[:1+x.t.tables[table].GroupLen]
	if x.last != nil && bytes.Equal(prefix, x.prefix) {
		return x.last
	}
	g := x.groups[string(prefix)]
	if g == nil {
		g = &group{}
		x.groups[string(prefix)] = g
	}
	x.last, x.prefix = g, append(x.prefix[:0], prefix...)
	return g
}

// writeGroups brings the group records up to date.
func (x *Tx) writeGroups() error {
	for _, prefix := range slices.Sorted(maps.Keys(x.groups)) {
		change := x.groups[prefix]
		key := append([]byte{prefixGroup}, prefix...)
		g, err := x.readGroup(key)
		if err != nil {
			return err
		}
		before := g.count
		g.count += change.count
		g.digest += change.digest
		if int64(change.count) < 0 && before < -change.count || g.count == 0 && g.digest != 0 {
			return x.fail(x.src.corrupt(x.src.root, "the record of a group of %d rows does not match them", before))
		}
		switch {
		case g.count > 0:
			err = x.putRaw(key, g.append(nil))
		case before > 0:
			_, _, err = x.remove(key, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (x *Tx) readGroup(key []byte) (group, error) {
	r, err := x.touch(key)
	if err != nil {
		return group{}, err
	}
	stored, found, err := x.find(r, key)
	if err != nil || !found {
		return group{}, err
	}
	value, _, ok := unseal(key, stored)
	g, whole := parseGroup(value)
	if !ok || !whole {
		return group{}, x.fail(r.cur.badSeal(r.cur.leaf().i))
	}
	return g, nil
}
