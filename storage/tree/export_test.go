package tree

// SetStep has f called before each step of Shrink.
func (t *Tree) SetStep(f func(name string)) { t.step = f }

// SetVersion makes the file one of another format version.
func (t *Tree) SetVersion(version byte) error {
	return t.Update(func(x *Tx) error {
		row := appendFormat(nil, t.tables)
		row[0] = version
		return x.putRaw(formatKey, row)
	})
}
