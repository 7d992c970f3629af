package ulog

type Log struct{}
type Batch struct{}
type Reader struct{}
type CheckReport struct{}
type RepairReport struct{}

func Open(dir string, after Position, at Place, o Options, replay func(*Record) error) (*Log, Recovery, error) {
	return nil, Recovery{}, ErrClosed
}
func (l *Log) Stage(head, body []byte, bodySum uint32) (Position, Place) { return Position{}, Place{} }
func (l *Log) Staged() Position                                          { return Position{} }
func (l *Log) Take() *Batch                                              { return nil }
func (l *Log) Write(b *Batch, sync bool) error                           { return ErrClosed }
func (l *Log) Sync() error                                               { return ErrClosed }
func (l *Log) Seal() error                                               { return ErrClosed }
func (l *Log) Synced() uint64                                            { return 0 }
func (l *Log) Written() Position                                         { return Position{} }
func (l *Log) End() Place                                                { return Place{} }
func (l *Log) ReadBody(p Place, dst []byte) error                        { return ErrClosed }
func (l *Log) NewReader(after Position, at Place) (*Reader, error)       { return nil, ErrClosed }
func (r *Reader) Next() (*Record, error)                                 { return nil, ErrClosed }
func (r *Reader) Place() Place                                           { return Place{} }
func (r *Reader) Close() error                                           { return nil }
func (l *Log) Release(before Place) error                                { return nil }
func (l *Log) Prepare() error                                            { return nil }
func (l *Log) Room() int64                                               { return 0 }
func (l *Log) Segments() []SegmentInfo                                   { return nil }
func (l *Log) Err() error                                                { return nil }
func (l *Log) Close() error                                              { return nil }
func Check(dir string, fs FS, after Position, at Place, fn func(*Record) error) (CheckReport, error) {
	return CheckReport{}, nil
}
func Repair(dir string, fs FS, after Position, at Place, cut bool) (RepairReport, error) {
	return RepairReport{}, nil
}
