package storage_test

import (
	"strings"

	"qserver/storage/ulog"
)

// rooted shows the folder dir as the root of a file system, so that it may lie elsewhere the next time.
type rooted struct {
	fs  ulog.FS
	dir string
}

func (r rooted) name(name string) string { return strings.TrimPrefix(name, r.dir) }

func (r rooted) MkdirAll(dir string) error                   { return r.fs.MkdirAll(r.name(dir)) }
func (r rooted) ReadDir(dir string) ([]string, error)        { return r.fs.ReadDir(r.name(dir)) }
func (r rooted) Rename(from, to string) error                { return r.fs.Rename(r.name(from), r.name(to)) }
func (r rooted) Remove(name string) error                    { return r.fs.Remove(r.name(name)) }
func (r rooted) SyncDir(dir string) error                    { return r.fs.SyncDir(r.name(dir)) }
func (r rooted) OpenFile(n string, f int) (ulog.File, error) { return r.fs.OpenFile(r.name(n), f) }
