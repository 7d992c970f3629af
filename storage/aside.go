package storage

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"qserver/storage/queue"
	"qserver/storage/ulog"
)

// Records of a node's own, which its new master has not, are set aside in a file before the folder is given up:
//
//	"qserver records set aside 1\n"
//	length of the header u32, CRC-32C of the header u32             (little endian)
//	the header, an AsideHeader as JSON
//	the records, as Batch decodes them
//
// The positions in the header cover the records: the sum chained over them must lead from one to the other.

const asideMagic = "qserver records set aside 1\n"

// AsideHeader is what a file of records set aside says of itself.
type AsideHeader struct {
	History string            `json:"history"` // hexadecimal
	After   AsidePosition     `json:"after"`   // the last record that both nodes have
	End     AsidePosition     `json:"end"`
	Records uint64            `json:"records"`
	Queues  map[uint32]string `json:"-"`
	Names   map[uint32][]byte `json:"queues"` // by number
}

// AsidePosition is a ulog.Position.
type AsidePosition struct {
	LSN   uint64 `json:"lsn"`
	Chain uint32 `json:"chain"`
}

// ErrNotAll is wrapped when records can't be set aside since the log doesn't reach back to all of them.
var ErrNotAll = errors.New("the update log does not reach back to all of these records")

// SetAside writes the records behind LSN common of the folder dir, which leads to end, to a new file at path: whole, or not at
// all. names are those of the queues by number, history the folder's. No server may have the folder open.
func SetAside(dir, path string, history [16]byte, common uint64, end ulog.Position, names map[uint32]string) (err error) {
	lock, err := lockExisting(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	o, err := ulog.OpenOutside(filepath.Join(dir, "ulog"), nil, common)
	if err != nil {
		return err
	}
	defer o.Close()
	// The record at common gives the position; a log that begins right behind it has it in its beginning.
	after, pending, err := positionAt(o, common)
	if err != nil {
		return classify(err)
	}
	h := AsideHeader{History: fmt.Sprintf("%x", history), After: AsidePosition(after), End: AsidePosition(end), Records: end.LSN - common,
		Names: make(map[uint32][]byte)}
	for num, name := range names {
		h.Names[num] = []byte(name)
	}
	temp := path + ".new"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(temp))
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := h.write(w); err != nil {
		return err
	}
	var b []byte
	last := after
	for rec := pending; last.LSN < end.LSN; rec = nil {
		if rec == nil {
			if rec, err = o.Next(); err != nil {
				return fmt.Errorf("read the records behind LSN %d: %w", last.LSN, classify(err))
			}
		}
		if rec.Gap > 0 {
			return fmt.Errorf("%w: LSN %d to %d were lost to damage", ErrNotAll, rec.LSN-rec.Gap+1, rec.LSN)
		}
		b = appendRecord(b[:0], rec.Head, rec.Body)
		if _, err := w.Write(b); err != nil {
			return err
		}
		last = rec.Position
	}
	if last != end {
		return fmt.Errorf("%w: the log of %s does not lead to where its server stood", ErrDamaged, dir)
	}
	if err := errors.Join(w.Flush(), f.Sync()); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return ulog.OS{}.SyncDir(filepath.Dir(path))
}

// positionAt reads up to the record with this LSN. A log that begins right behind it gives its first record, which is returned.
func positionAt(o *ulog.Outside, lsn uint64) (p ulog.Position, first *ulog.Record, err error) {
	for {
		rec, err := o.Next()
		switch {
		case errors.Is(err, io.EOF):
			return p, nil, fmt.Errorf("%w: there is none", ErrNotAll)
		case err != nil:
			return p, nil, err
		case rec.LSN == lsn:
			return rec.Position, nil, nil
		case rec.LSN > lsn+1 || rec.Gap > 0:
			return p, nil, fmt.Errorf("%w: it begins with LSN %d", ErrNotAll, rec.LSN)
		case rec.LSN == lsn+1:
			return o.Before(), rec, nil
		}
	}
}

func (h *AsideHeader) write(w io.Writer) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	out := append([]byte(asideMagic), make([]byte, 8)...)
	binary.LittleEndian.PutUint32(out[len(asideMagic):], uint32(len(b)))
	binary.LittleEndian.PutUint32(out[len(asideMagic)+4:], crc32.Checksum(b, castagnoli))
	_, err = w.Write(append(out, b...))
	return err
}

func (h *AsideHeader) read(r io.Reader, size int64) error {
	b := make([]byte, len(asideMagic)+8)
	if _, err := io.ReadFull(r, b); err != nil || string(b[:len(asideMagic)]) != asideMagic {
		return errors.New("it is neither a data folder nor a file of records set aside")
	}
	n, sum := binary.LittleEndian.Uint32(b[len(asideMagic):]), binary.LittleEndian.Uint32(b[len(asideMagic)+4:])
	if int64(n) > size {
		return fmt.Errorf("%w: its header is longer than the file", ErrDamaged)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil || crc32.Checksum(text, castagnoli) != sum {
		return fmt.Errorf("%w: its header does not hold", ErrDamaged)
	}
	if err := json.Unmarshal(text, h); err != nil {
		return fmt.Errorf("%w: its header can't be read: %w", ErrDamaged, err)
	}
	h.Queues = make(map[uint32]string)
	for num, name := range h.Names {
		h.Queues[num] = string(name)
	}
	return nil
}

// openAside opens a file of records set aside. That all of it is whole is known at its end.
func openAside(path string, from uint64) (*LogReader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	in := bufio.NewReaderSize(f, 1<<20)
	h := new(AsideHeader)
	if err := h.read(in, fi.Size()); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	pos := ulog.Position(h.After)
	r := &LogReader{names: h.Queues, aside: h, close: f.Close}
	r.next = func() (ulog.Position, uint64, []byte, []byte, error) {
		for {
			head, body, err := readRecord(in, fi.Size())
			if err != nil {
				if !errors.Is(err, io.EOF) || pos != ulog.Position(h.End) {
					err = fmt.Errorf("%w: %s is cut or changed behind LSN %d", ErrDamaged, path, pos.LSN)
				}
				return pos, 0, nil, nil, err
			}
			pos = pos.After(head, body, crc32.Checksum(body, castagnoli))
			var op queue.Op
			if queue.DecodeHead(head, len(body), &op) == nil && op.Kind == queue.KindCreate {
				r.names[op.Queue] = string(bytes.Clone(op.Name)) // also where it is passed over
			}
			if pos.LSN >= from {
				return pos, 0, head, body, nil
			}
		}
	}
	return r, nil
}

// readRecord reads a record as appendRecord writes it; io.EOF: there is no more.
func readRecord(r *bufio.Reader, most int64) (head, body []byte, err error) {
	headLen, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, nil, err
	}
	bodyLen, err := binary.ReadUvarint(r)
	if err != nil || headLen > ulog.MaxHeadLen || bodyLen > ulog.MaxBodyLen || int64(headLen+bodyLen) > most {
		return nil, nil, io.ErrUnexpectedEOF
	}
	b := make([]byte, headLen+bodyLen)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, nil, io.ErrUnexpectedEOF
	}
	return b[:headLen:headLen], b[headLen:], nil
}
