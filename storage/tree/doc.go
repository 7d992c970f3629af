// Package tree keeps ordered tables of sealed rows in one file: the checkpoint of an update log.
//
// A [Tree] is opened with a list of tables. [Tree.Update] changes rows of any of them in one transaction, which is on the
// disk when it returns and has not happened when it fails. [Tree.View] reads one state, beside the writer. [Check] reads
// a whole file, [Tree.Shrink] and [Defrag] rewrite one without its free pages, [Tree.CopyFile] copies one.
//
// # What it adds to bbolt
//
// The file is one of bbolt's, whose B+tree believes whatever it finds in it. Here nothing is believed:
//
//   - Every row is sealed: a CRC-32C over table, key and value lies in front of the value.
//   - Every group of rows (by key prefix, per table) has a sealed record of its count and of a digest, the sum over a
//     64-bit hash of each row. It changes in the transaction that changes the rows. So rows that are missing, that are
//     old, or that are there twice are noticed by Check, Shrink and CopyFile.
//   - View reads the pages itself, from bbolt's mapping of the file, and verifies them: bbolt lays out a page without
//     gaps, in the order of keys, and repeats the first key of a page in its parent, so that the header and the index of
//     a page have one right value. A row that is not found is therefore not there, short of pages that are old.
//   - Before bbolt writes to a page, it and those beside it are verified in the same way. At Open every page is accounted
//     for: free, or in use once. So damage does not spread.
//   - A panic or a memory fault in bbolt becomes a [CorruptError].
//
// # Caveats
//
//   - Keys and values that a callback gets die with the transaction, and must not be changed.
//   - A long View keeps pages from being reused: the file grows.
//   - A callback of View must not call Update, nor one of Update View: bbolt may wait for the other to end.
//   - The mapped file counts as memory of the process as far as it was read; [Tree.DropPages] gives it back.
//   - The numbers of bbolt's pages are in the byte order of the machine, so the file does not move to one of another order.
//
// # Format, version 1
//
// Rows lie in bbolt's root bucket, which is never inlined into another page. Numbers are little endian. A stored key
// begins with a byte that says what it is:
//
//	00 "format"                          the format row
//	01+n  key                            row of table n, 0 <= n < 200
//	FF 01+n  group                       record of a group of table n; group has the table's GroupLen bytes
//
// A stored value begins with its seal:
//
//	+--------+-----------------------+
//	| seal 4 | value                 |   seal = CRC-32C(stored key, value)
//	+--------+-----------------------+
//
// The value of the format row; its place and its seal stay the same in all later versions:
//
//	+-----------+----------+---------------------------------------------------+
//	| version 2 | tables 1 | per table: GroupLen 1, length of name 1, name      |
//	+-----------+----------+---------------------------------------------------+
//
// The value of a group record, which exists while the group has rows:
//
//	+---------+----------+
//	| count 8 | digest 8 |   digest = sum of mix(seal | length of value << 32) over the rows, modulo 2^64;
//	+---------+----------+   mix is the finaliser of SplitMix64
//
// The pages below are bbolt's, format 2; numbers are in the machine's order. Page p begins at p times the page size:
//
//	0, 1   two meta pages; the valid one with the higher transaction number counts
//	other  branch, leaf, list of free pages, or free
//
//	page      | id 8 | kind 2 | count 2 | overflow pages 4 | elements, 16 bytes each | keys and values |
//	meta      header, then | magic ED0CDAED 4 | 2 4 | page size 4 | 0 4 | root 8 | sequence 8 | free list 8 | pages 8 |
//	          transaction 8 | FNV-1a of these 8 |
//	leaf      kind 2; element: | 0 4 | distance to the key 4 | length of key 4 | length of value 4 |, the value behind the key
//	branch    kind 1; element: | distance to the key 4 | length of key 4 | child page 8 |, the key being the child's first
//	free list kind 10 (hex); page numbers, 8 bytes each, ascending; count FFFF: the first one is the count
//
// # What a crash leaves
//
//   - Creation: the file is made as NAME.new and renamed when it is whole. A leftover is removed by Open.
//   - Update: pages that are free or new are written and synced, then one meta page. A crash before that leaves the state
//     before; a torn meta page does not hold, and the other one has the state before. That one also counts if the newest
//     meta page is damaged later: Open warns, and the caller, who keeps its log's position among the rows, sees an older one.
//   - A failed sync: the cache may show a meta page that the disk never got. It is written and synced again before the
//     next Update and by Open; if that fails the tree takes no Update any more.
//   - Shrink, Defrag: NAME.shrink is written, synced, and renamed over NAME. Open removes a leftover.
//   - CopyFile: NAME.new is written, synced, and renamed to NAME.
package tree
