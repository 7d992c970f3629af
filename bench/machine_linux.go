package main

import "golang.org/x/sys/unix"

// fileSystem names the kind of file system that a folder is on; "" if it is none of those that are known here.
func fileSystem(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return ""
	}
	return map[int64]string{
		unix.EXT4_SUPER_MAGIC:      "ext4",
		unix.XFS_SUPER_MAGIC:       "xfs",
		unix.BTRFS_SUPER_MAGIC:     "btrfs",
		unix.TMPFS_MAGIC:           "tmpfs",
		unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
	}[int64(st.Type)]
}
