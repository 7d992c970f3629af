// Package ulog is the update log: records with consecutive numbers (LSNs) in segment files, written in order, read back
// after a crash, followed by readers, and released from the front. It knows bytes and LSNs, and nothing of what they mean.
//
// A Log is opened with Open, which recovers it. Stage puts a record into a batch in memory, Take hands the batch out and Write
// writes it, with one pwrite in the usual case, and syncs it if asked to. A Position says where in the history a log stands,
// a Place where bytes lie in its files. A Reader follows the log. Release gives up segments from the front; one of them becomes
// the spare, so that a log at rest consists of two files. Check and Repair are for a log that is not open.
//
// # Caveats
//
// Stage, Staged and Take belong under one lock of the caller's, Write and Seal to one goroutine at a time. A body of 16 KiB or
// more is not copied by Stage. Slices in a Record die with the next call. After a failed write or sync the Log is dead for good
// (I7): every call returns ErrFailed, and a restart finds out what is on the disk. ReadBody does not verify what it reads.
// Two processes must not open the same log.
//
// # Segment
//
// All numbers are little endian, all sums are CRC-32C. A segment is a file with the name "%016x.ulog" of its sequence number; the
// numbers of a log's segments are consecutive. It begins with one block of 4,096 bytes, of which 64 are used:
//
//	 0   magic "qsulog"                    version u16
//	 8   log id [16], the same in all segments of a log
//	24   sequence number u64
//	32   seed u64, drawn anew each time the file is used
//	40   time when it was made, u64, milliseconds since 1970
//	48   size of the file when it was made, u64, bytes
//	56   zero u32                          sum of bytes 0 to 59
//	64   zeros up to 4,096, where the frames begin
//
// These 64 bytes are laid out so in every version. A newer version is refused with a sentence that says so. Whoever changes the
// format raises the version and keeps what reads the older one; testdata holds a log of each.
//
// # Frame
//
//	 0   kind u8, length of head u24       length of body u32
//	 8   LSN u64
//	16   sum of head                       sum of body
//	24   chain u32                         synced u64 (28 to 35)
//	36   sum of bytes 0 to 35
//	40   head, body
//
// Kind 0 is none, so that zeros are no frame. The kinds are:
//
//	1 record   one record
//	2 gap      the records from the one behind the last frame up to LSN are lost; Repair writes it in their place
//	3 start    the first frame of each segment: LSN and chain before its first record
//	4 end      the last frame of a finished segment
//	5 seal     everything before it is synced; the next write goes over it
//
// Kinds 3 to 5 have neither head nor body and carry the LSN and chain of the last record before them; a gap frame has no head, and
// a body of zeros as long as the damage that it covers. Behind the last frame of each write lie 40 zeros, which the next write
// goes over.
//
// The chain of a record is the CRC of bytes 0 to 23 of its header, with the chain before as the CRC's initial value. So it is the
// same in every log that holds the same records, wherever they lie. The sum at 36 has the CRC of the seed as its initial value: no
// body can hold what looks like a frame, since nobody outside knows the seed, and what is left of a file's former use fails its
// sums. synced is the LSN up to which the log was known to be on disk when the frame was staged.
//
// # Torn tail or damage
//
// Where no frame continues the log with LSN n, everything behind is searched, byte by byte, for frames whose own sums are right. If
// any of these, or anything before, says that n was synced, or if a later segment was begun, it is damage: a *CorruptError, and
// nothing is touched. Otherwise nobody was ever promised that n is there: the rest is a torn tail, of which a kernel may have
// written the later pages and lost the earlier ones. It is cut, and what can be made out of it is told. The one case in which the
// two cannot be told apart is the last sync before the end; a seal after a moment of idleness closes it.
//
// # What a crash can leave
//
// Write, and the sync behind it. Any sector of what was written since the last sync can be there or not, in any order. What is
// there in order is kept, the rest is cut as a torn tail. Nothing before is touched: the first sector written to holds the zeros
// behind the last frame, or a seal, and old bytes, which are written again as they were.
//
// Zeros ahead (Options.ZeroAhead). They are written behind the last frame, where the bytes are zeros already, or what is left of
// a file's former use, which fails its sums. So it makes no difference which of them a crash leaves.
//
// A new segment (Prepare, or Write without a spare). It is made under its name with ".tmp" appended, allocated, given its header,
// synced, renamed, and the folder is synced. Before the rename is durable there is a temporary file, which Open removes; after it
// there is a segment with a whole header and no frame.
//
// The change to the next segment. The end frame is written, the finished segment is synced, and only then the start frame is
// written into the next. So a segment that has a start frame is preceded by whole ones, and a bad frame in these is damage.
//
// Release. Segments are removed, lowest first, and the folder is synced. Removals may be lost in any combination, but all of these
// segments lie before the tree's position, and Open does not look at them but to remove them. A recycled segment is first renamed
// to the temporary name of its new use, durably, and then is as a new one.
//
// Seal. Everything is synced before it is written. If it is there, everything before is on the disk, and since the next write goes
// over it, nothing is behind.
//
// Open. Segments behind the end are removed, then the last one with records is made durable: if it ends with a seal, an end frame is
// written over it and synced. Otherwise a sync may have failed in the run before, and what reads show need not be on the disk: the
// good part is copied to a temporary file with an end frame, synced, renamed over it, and the folder is synced. If it has no records
// it is made anew instead. Then a new segment follows, with its start frame, in which no stale frame can be: so nothing that was cut
// comes back to life. After a crash between two of these steps Open finds one more unclean end.
//
// Repair. Copies of the damaged files are made first, then the new ones under temporary names, all synced; then they are renamed.
//
// # What it relies on
//
//  1. Nothing is known of the order in which writes reach the disk, except by syncs.
//  2. Writes are not atomic, not even those of a sector; but a write does not change bytes outside of its sectors.
//  3. A sync that succeeded is true if no earlier one on the same file has failed. After a failed one nothing is.
//  4. A rename is atomic, and durable once the folder is synced; so are the making and the removal of files.
//  5. Bytes that have rotted are noticed by a CRC-32C.
package ulog
