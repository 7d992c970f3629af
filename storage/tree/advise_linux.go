package tree

import "syscall"

// drop takes the pages of a mapping out of this process's memory; they stay in the system's cache.
func drop(mapped []byte) { _ = syscall.Madvise(mapped, syscall.MADV_DONTNEED) }

// willNeed has the system read ahead, which bbolt has told it not to do by itself.
func willNeed(mapped []byte) { _ = syscall.Madvise(mapped, syscall.MADV_WILLNEED) }
