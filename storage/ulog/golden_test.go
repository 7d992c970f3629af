package ulog_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"qserver/internal/faultfs"
	"qserver/storage/ulog"
)

var update = flag.Bool("update", false, "write the golden files anew")

// goldenDir holds a log of format 1 as it lies on the disk, and what is in it, in text.
const goldenDir = "testdata/format1"

// writeGolden makes a log of two segments with a gap in the first.
func writeGolden(t *testing.T) {
	fs := faultfs.New()
	l, _, err := ulog.Open(crashDir, ulog.Position{}, ulog.Place{}, ulog.Options{FS: fs, SegmentBytes: 8 << 10}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &appender{t: t, log: l}
	a.add(14, 321, true)
	if err := errors.Join(l.Seal(), l.Close()); err != nil {
		t.Fatal(err)
	}
	fs = fs.Clone()
	edit(t, fs, name(1), flip(5000, 3))
	if _, err := ulog.Repair(crashDir, fs, ulog.Position{}, ulog.Place{}, false); err != nil {
		t.Fatal(err)
	}
	for seq := 1; seq <= 2; seq++ {
		b, err := fs.ReadFile(name(seq))
		if err == nil {
			err = os.WriteFile(filepath.Join(goldenDir, filepath.Base(name(seq))), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// golden returns a file system with the golden log.
func golden(t *testing.T) *faultfs.FS {
	t.Helper()
	fs := faultfs.New()
	for seq := 1; seq <= 2; seq++ {
		b, err := os.ReadFile(filepath.Join(goldenDir, filepath.Base(name(seq))))
		if err != nil {
			t.Fatal(err)
		}
		fs.WriteFile(name(seq), b)
	}
	return fs
}

func TestGolden(t *testing.T) {
	if *update {
		writeGolden(t)
	}
	var got strings.Builder
	_, err := ulog.Check(crashDir, golden(t), ulog.Position{}, ulog.Place{}, func(r *ulog.Record) error {
		body := string(r.Body)
		if len(body) > 8 {
			body = body[:8] + "..."
		}
		fmt.Fprintf(&got, "lsn %d chain %08x segment %d offset %d gap %d head %q body %q, %d bytes\n",
			r.LSN, r.Chain, r.Place.Segment, r.Place.Offset, r.Gap, r.Head, body, len(r.Body))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(goldenDir, "records.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
	if _, _, _, err := recoverLog(golden(t), ulog.Position{}, ulog.Place{}); err != nil {
		t.Errorf("Open: %v", err)
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	fs := golden(t)
	edit(t, fs, name(2), func(b []byte) []byte {
		b[6] = 2
		binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
		return b
	})
	_, _, _, err := recoverLog(fs, ulog.Position{}, ulog.Place{})
	want := "written by a newer qserver (format 2; this one reads up to 1)"
	if !errors.Is(err, ulog.ErrNewerFormat) || !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
