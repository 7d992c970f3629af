package tree

import "io"

func (t *Tree) Shrink() error              { panic("stub") }
func (t *Tree) Copy(w io.Writer) error     { panic("stub") }
func (t *Tree) CopyFile(path string) error { panic("stub") }
func Defrag(path string, o Options, progress func(done, total int64)) (before, after int64, err error) {
	panic("stub")
}

// Report is what Check found.
type Report struct {
	Rows      []int64 // per table
	Groups    int64
	FileBytes int64
	UsedBytes int64
	Problems  []*CorruptError
}

func Check(path string, o Options, progress func(done, total int64), fn func(table int, key, value []byte) error) (Report, error) {
	panic("stub")
}
