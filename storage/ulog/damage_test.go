package ulog_test

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"qserver/internal/faultfs"
	"qserver/storage/ulog"
)

var damageAll = flag.Bool("damage.all", false, "flip every bit and cut at every byte, not a sample")

// imageFS is a folder with one segment whose bytes a test may change.
type imageFS struct {
	ulog.FS
	image []byte
}

func (f *imageFS) ReadDir(string) ([]string, error) { return []string{filepath.Base(name(1))}, nil }

func (f *imageFS) OpenFile(string, int) (ulog.File, error) { return &imageFile{fs: f}, nil }

type imageFile struct {
	ulog.File
	fs *imageFS
}

func (f *imageFile) Size() (int64, error) { return int64(len(f.fs.image)), nil }
func (f *imageFile) Close() error         { return nil }

func (f *imageFile) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, f.fs.image[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// image64K is a log in one segment of 64 KiB, nearly full, with records of many sizes, and where its last frame ends. Every record was synced by itself if
// synced is set, and sealed at the end; otherwise nothing ever was.
func image64K(t testing.TB, synced bool) (image []byte, end int, wrote []record) {
	t.Helper()
	fs := faultfs.New()
	l, _, err := ulog.Open(crashDir, ulog.Position{}, ulog.Place{}, ulog.Options{FS: fs, SegmentBytes: 64 << 10}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &appender{t: t, log: l}
	rng := rand.New(rand.NewPCG(64, 1024))
	for l.End().Offset < 63<<10 {
		a.add(1, rng.IntN(600), synced)
	}
	end = int(l.End().Offset)
	if synced {
		if err := l.Seal(); err != nil {
			t.Fatal(err)
		}
		end += frameHeaderLen
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	image, err = fs.ReadFile(name(1))
	if err != nil {
		t.Fatal(err)
	}
	return image, end, a.wrote
}

// verdict is what Check says of a damaged image.
type verdict struct {
	corrupt *ulog.CorruptError
	cut     bool // told as a torn tail
	all     bool // every record is there
}

// judge checks the image and verifies that what it gives is a part of what was written, from the beginning on, and that
// nothing is missing in silence.
func judge(t *testing.T, what string, at int, image []byte, wrote []record) verdict {
	t.Helper()
	n := 0
	r, err := ulog.Check(crashDir, &imageFS{image: image}, ulog.Position{}, ulog.Place{}, func(r *ulog.Record) error {
		if n >= len(wrote) || r.Position != wrote[n].Position || string(r.Head) != wrote[n].head || string(r.Body) != wrote[n].body {
			t.Fatalf("%s %d: record %d was never written", what, at, n+1)
		}
		n++
		return nil
	})
	v := verdict{cut: r.CutFile != "", all: n == len(wrote)}
	if err != nil {
		var ok bool
		if v.corrupt, ok = errors.AsType[*ulog.CorruptError](err); !ok && !errors.Is(err, ulog.ErrNewerFormat) {
			t.Fatalf("%s %d: %v", what, at, err)
		}
		if ok && (!strings.HasPrefix(v.corrupt.File, crashDir) || v.corrupt.Offset < 0 || v.corrupt.LSN == 0) {
			t.Fatalf("%s %d: no file, offset and LSN in %v", what, at, err)
		}
	}
	if !v.all && v.corrupt == nil && !v.cut {
		t.Fatalf("%s %d: %d of %d records are gone in silence", what, at, len(wrote)-n, len(wrote))
	}
	return v
}

// every returns the distance of the cases to try.
func every() int {
	switch {
	case *damageAll:
		return 1
	case testing.Short():
		return 509
	}
	return 127
}

func TestEveryBitFlipped(t *testing.T) {
	for _, synced := range []bool{true, false} {
		t.Run(map[bool]string{true: "synced", false: "never synced"}[synced], func(t *testing.T) {
			t.Parallel()
			image, end, wrote := image64K(t, synced)
			cases, step := 0, every()
			for bit := 0; bit < len(image)*8; bit += step {
				image[bit/8] ^= 1 << (bit % 8)
				v := judge(t, "bit", bit, image, wrote)
				image[bit/8] ^= 1 << (bit % 8)
				cases++
				at := bit / 8
				switch {
				case at < 64:
					if v.all {
						t.Fatalf("bit %d of the header: not noticed", bit)
					}
				case at < 4096, at >= end+frameHeaderLen:
					if !v.all {
						t.Fatalf("bit %d lies behind the end, and records are missing", bit)
					}
				case synced && at < end-frameHeaderLen:
					if v.corrupt == nil {
						t.Fatalf("bit %d: what was synced was taken for a torn tail", bit)
					}
				case synced && !v.all:
					t.Fatalf("bit %d of the seal: records are missing", bit)
				case !synced && at < end && v.corrupt != nil && at >= 4136:
					t.Fatalf("bit %d: what was never synced was refused: %v", bit, v.corrupt)
				}
			}
			t.Logf("%d bits", cases)
		})
	}
}

func TestEveryLengthCut(t *testing.T) {
	for _, synced := range []bool{true, false} {
		t.Run(map[bool]string{true: "synced", false: "never synced"}[synced], func(t *testing.T) {
			t.Parallel()
			image, end, wrote := image64K(t, synced)
			step := max(1, every()/6)
			for n := 0; n < len(image); n += step {
				if v := judge(t, "length", n, image[:n], wrote); v.corrupt == nil && !v.cut {
					t.Fatalf("file cut to %d bytes: not noticed", n)
				}
			}
			// The same with a file that keeps its length and ends in zeros, as after a lost write.
			whole := bytes.Clone(image)
			boundary := map[int]bool{}
			offset := 4136
			for _, r := range wrote {
				boundary[offset] = true
				offset += frameHeaderLen + len(r.head) + len(r.body)
			}
			for n := 4136; n < end; n += step {
				copy(image, whole)
				clear(image[n:])
				if boundary[n] {
					continue // nothing is left to tell that there was more
				}
				judge(t, "zeros from", n, image, wrote)
			}
		})
	}
}
