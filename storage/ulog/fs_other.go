//go:build !linux

package ulog

// Allocate makes the file longer; there is no portable call that reserves blocks.
func (f osFile) Allocate(size int64) error { return f.extend(size) }

// Sync is fsync, and F_FULLFSYNC on darwin.
func (f osFile) Sync() error { return f.File.Sync() }
