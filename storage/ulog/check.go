package ulog

type CheckReport struct{}
type RepairReport struct{}

func Check(dir string, fs FS, after Position, at Place, fn func(*Record) error) (CheckReport, error) {
	return CheckReport{}, nil
}
func Repair(dir string, fs FS, after Position, at Place, cut bool) (RepairReport, error) {
	return RepairReport{}, nil
}
