//go:build unix

package storage

import "golang.org/x/sys/unix"

// diskSpace returns the bytes that dir's file system has free for this user, and in all.
func diskSpace(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize), nil
}
