package ulog_test

import (
	"errors"
	"testing"

	"qserver/internal/faultfs"
	"qserver/storage/ulog"
)

// FuzzRecover opens a log whose only segment has been changed at will, except that its header and the sums of its frames
// cannot be guessed. It must end in an error or with some of the records that were written, and so must Repair.
func FuzzRecover(f *testing.F) {
	fs, wrote, _ := sealedLog(f, 11, 300)
	image, err := fs.ReadFile(name(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{}, uint16(4136), uint16(0))
	f.Add([]byte{1, 2, 3, 4}, uint16(5000), uint16(8192))
	f.Add(image[4136:4600], uint16(6000), uint16(8000))
	f.Add(image[:64], uint16(0), uint16(4100))
	f.Fuzz(func(t *testing.T, patch []byte, at, size uint16) {
		b := append([]byte(nil), image...)
		copy(b[int(at)%len(b):], patch)
		if size > 0 {
			b = b[:min(int(size), len(b))]
		}
		fs := faultfs.New()
		fs.WriteFile(name(1), b)
		got, _, gaps, err := recoverLog(fs.Clone(), ulog.Position{}, ulog.Place{})
		if err == nil {
			if gaps > 0 {
				t.Errorf("%d gaps out of nothing", gaps)
			}
			same(t, got, wrote[:min(len(got), len(wrote))])
			return
		}
		if errors.Is(err, ulog.ErrNewerFormat) {
			return
		}
		if _, ok := errors.AsType[*ulog.CorruptError](err); !ok {
			t.Fatalf("got %v, want a CorruptError", err)
		}
		if _, err := ulog.Repair(crashDir, fs, ulog.Position{}, ulog.Place{}, false); err != nil {
			t.Fatalf("Repair: %v", err)
		}
		got, _, _, err = recoverLog(fs, ulog.Position{}, ulog.Place{})
		if err != nil {
			t.Fatalf("Open after Repair: %v", err)
		}
		for _, r := range got {
			if int(r.LSN) > len(wrote) || r != wrote[r.LSN-1] {
				t.Fatalf("record %d was never written", r.LSN)
			}
		}
	})
}
