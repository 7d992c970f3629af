// Package faultfs is an in-memory file system for tests of code that must survive failing disks and power cuts. It
// implements ulog.FS, numbers and records every operation, and can do two things that a real disk does only when nobody
// is looking:
//
// It can fail. A function given to Inject is asked before each operation and may make it fail; a write wrapped in Short
// writes half of its bytes first. After a failed Sync, reads go on showing what was written, but no later Sync makes
// these bytes durable: this is what Linux does, and why a failed sync must never be tried again.
//
//	fs := faultfs.New()
//	fs.Inject(faultfs.Nth(17, syscall.EIO))
//
// It can lose power. Replay walks through the recorded operations, and at each of them Crash gives a file system as it
// could be found after a power cut at that moment: of what was not synced some is kept and some is not.
//
//	for c := fs.Replay(); c.Next(); {
//		after := c.Crash(faultfs.Mixed, seed)
//		...
//	}
//
// What it promises is what POSIX and the usual file systems promise, and no more: bytes and lengths of a file are durable
// after its Sync, names in a folder after SyncDir; a rename is atomic. Before that, each sector or byte of a file is any of
// the versions that it went through since the last Sync, and each change of a name has happened or not, in any
// combination. Folders themselves are durable at once.
package faultfs
