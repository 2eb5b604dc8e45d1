package jpeg

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"image"
	"image/color"
	stdjpeg "image/jpeg"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// picture is a JPEG and the sum of the pixels that Pillow decodes.
type picture struct {
	name            string
	file            []byte
	w, h, channels  int
	pixelsAsPillows string
}

// pictures reads those of testdata, or of the file that JPEGS names: python -m pytorch_bridge.testing.jpegs writes them.
func pictures(tb testing.TB) (list []picture) {
	tb.Helper()
	path := os.Getenv("JPEGS")
	if path == "" {
		path = "testdata/pillow.zip"
	}
	archive, err := zip.OpenReader(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer archive.Close()
	read := func(name string) []byte {
		f, err := archive.Open(name)
		if err != nil {
			tb.Fatal(err)
		}
		defer f.Close()
		b, err := io.ReadAll(f)
		if err != nil {
			tb.Fatal(err)
		}
		return b
	}
	for line := range strings.Lines(string(read("sums.txt"))) {
		var p picture
		if _, err := fmt.Sscan(line, &p.name, &p.w, &p.h, &p.channels, &p.pixelsAsPillows); err != nil {
			tb.Fatal(err)
		}
		p.file = read(p.name)
		list = append(list, p)
	}
	return list
}

// decoded returns the pixels as Pillow's tobytes does: channels last.
func decoded(file []byte) (w, h, channels int, pixels []byte, err error) {
	d, err := Open(file)
	if err != nil {
		return 0, 0, 0, nil, err
	}
	defer d.Close()
	w, h, channels = d.Width, d.Height, d.Channels
	n := w * h
	pixels = make([]byte, channels*n)
	if channels != 3 {
		return w, h, channels, pixels, d.Pixels(pixels)
	}
	planes := make([]byte, 3*n)
	err = d.Planes(planes[:n], planes[n:2*n], planes[2*n:])
	for i := range n {
		pixels[3*i], pixels[3*i+1], pixels[3*i+2] = planes[i], planes[n+i], planes[2*n+i]
	}
	return w, h, channels, pixels, err
}

// withoutVectors is decoded with the code in Go.
func withoutVectors(tb testing.TB, file []byte) (w, h, channels int, pixels []byte, err error) {
	defer switched(tb, false)()
	return decoded(file)
}

// switched sets whether vectors are used, where there are some, and returns what sets it back.
func switched(tb testing.TB, on bool) func() {
	tb.Helper()
	before := vectors
	vectors = on && before
	return func() { vectors = before }
}

func TestPixelsArePillowsToTheLastBit(t *testing.T) {
	list := pictures(t)
	if len(list) < 100 {
		t.Fatalf("there are %d pictures", len(list))
	}
	for _, p := range list {
		w, h, channels, pixels, err := decoded(p.file)
		if err != nil || w != p.w || h != p.h || channels != p.channels {
			t.Errorf("%s: %d×%d×%d, not %d×%d×%d: %v", p.name, w, h, channels, p.w, p.h, p.channels, err)
		} else if sum := fmt.Sprintf("%x", sha256.Sum256(pixels)); sum != p.pixelsAsPillows {
			t.Errorf("%s: the pixels differ", p.name)
		} else if _, _, _, other, err := withoutVectors(t, p.file); err != nil || !bytes.Equal(other, pixels) {
			t.Errorf("%s: the code in Go has other pixels: %v", p.name, err)
		}
	}
}

func TestPixelsAreThePlanesInterleaved(t *testing.T) {
	for _, p := range pictures(t) {
		if p.channels == 4 {
			continue
		}
		_, _, _, want, err := decoded(p.file)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Open(p.file)
		if err != nil {
			t.Fatal(err)
		}
		n := p.w * p.h
		got := make([]byte, 4*n)
		if p.channels == 1 { // the same in all planes
			err = d.Planes(got[:n], got[n:2*n], got[2*n:3*n])
			want = bytes.Repeat(want, 3)
			got = got[:3*n]
		} else if err = d.Pixels(got); err == nil {
			for i := range n {
				if got[4*i+3] != 255 {
					t.Fatalf("%s: alpha is %d", p.name, got[4*i+3])
				}
				copy(got[3*i:3*i+3], got[4*i:4*i+3])
			}
			got = got[:3*n]
		}
		d.Close()
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs: %v", p.name, err)
		}
	}
}

// try decodes without a panic, and within some memory.
func try(tb testing.TB, name string, file []byte) error {
	tb.Helper()
	defer func() {
		if r := recover(); r != nil {
			tb.Fatalf("%s: %v\n% x", name, r, file)
		}
	}()
	d, err := Open(file)
	if err != nil {
		return err
	}
	defer d.Close()
	n := d.Width * d.Height
	if n > 1<<20 {
		return FormatError("as large as imageio would ask about")
	}
	pixels := make([]byte, 4*n)
	if d.Channels == 3 {
		return d.Planes(pixels[:n], pixels[n:2*n], pixels[2*n:3*n])
	}
	return d.Pixels(pixels)
}

func TestWhatIsCutShortIsAnError(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, p := range pictures(t) {
		for range 5 {
			cut := p.file[:rng.IntN(len(p.file)-2)]
			if err := try(t, p.name, cut); err == nil {
				// A sequential picture of one scan is whole when the next marker has begun.
				if rest := p.file[len(cut):]; !bytes.Equal(rest, []byte{0xd9}) && !bytes.Contains(p.file[len(cut)-2:], []byte{0xff, 0xff}) {
					t.Errorf("%s: without %d of %d bytes there was no error", p.name, len(rest), len(p.file))
				}
			}
		}
	}
}

func TestDamagedPicturesAreErrorsOrPixels(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	errs, n := 0, 0
	for _, p := range pictures(t) {
		if len(p.file) > 20_000 {
			continue
		}
		for range 40 {
			file := bytes.Clone(p.file)
			for range 1 + rng.IntN(4) {
				at := rng.IntN(len(file))
				if rng.IntN(2) == 0 {
					at = rng.IntN(min(len(file), 900)) // the headers
				}
				if rng.IntN(3) == 0 {
					file[at] = byte(rng.Uint32())
				} else {
					file[at] ^= 1 << rng.IntN(8)
				}
			}
			n++
			if try(t, p.name, file) != nil {
				errs++
			}
		}
	}
	if errs < n/10 || errs == n {
		t.Errorf("%d of %d were errors", errs, n)
	}
}

// head is a progressive picture of grey up to its first scan, with tables of the codes 0, the end of a block or no difference,
// and 10, which begins a run of 16384 and more blocks without coefficients.
func head(w, h int) []byte {
	b := []byte{0xff, 0xd8, 0xff, 0xdb, 0, 67, 0}
	b = append(b, bytes.Repeat([]byte{1}, 64)...)
	for class := range byte(2) {
		b = append(b, 0xff, 0xc4, 0, 21, class<<4, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xe0*class)
	}
	return append(b, 0xff, 0xc2, 0, 11, 8, byte(h>>8), byte(h), byte(w>>8), byte(w), 1, 1, 0x11, 0)
}

func scanOf(from, to, approximation byte, data ...byte) []byte {
	return append([]byte{0xff, 0xda, 0, 8, 1, 1, 0, from, to, approximation}, data...)
}

func TestScansOfNothingHaveAnEnd(t *testing.T) {
	b := append(head(512, 512), scanOf(0, 0, 0, make([]byte, 512)...)...)
	nothing := scanOf(1, 63, 0, 0x80, 0)
	for n := 0; n < 100_000; {
		err := try(t, "scans", append(bytes.Clone(b), 0xff, 0xd9))
		if n < 64 && err != nil {
			t.Fatalf("%d scans: %v", n, err)
		}
		if err != nil {
			if !strings.Contains(err.Error(), "more scans than a picture needs") {
				t.Error(err)
			}
			return
		}
		more := 1 + n/8
		n += more
		b = append(b, bytes.Repeat(nothing, more)...)
	}
	t.Errorf("scans of nothing were read to the end, in %d bytes", len(b))
}

func TestDecodersShareNothing(t *testing.T) {
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for _, p := range pictures(t) {
				_, _, _, pixels, err := decoded(p.file)
				if sum := fmt.Sprintf("%x", sha256.Sum256(pixels)); err != nil || sum != p.pixelsAsPillows {
					t.Errorf("%s: %v", p.name, err)
				}
			}
		})
	}
	wait.Wait()
}

func TestWhatIsNotReadSaysSo(t *testing.T) {
	good := head(8, 8)
	frame := bytes.Index(good, []byte{0xff, 0xc2})
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[frame+at] = to
		return append(b, 0xff, 0xd9)
	}
	for text, b := range map[string][]byte{
		"lossless": change(1, 0xc3), "arithmetic": change(1, 0xc9), "hierarchical": change(1, 0xc5), "depth": change(4, 12),
		"arithmetic ": append(bytes.Clone(good), 0xff, 0xcc, 0, 4, 0, 0), "height": append(bytes.Clone(change(5, 0)[:frame+6]), append([]byte{0}, good[frame+7:]...)...),
	} {
		_, err := Open(b)
		var kind UnsupportedError
		if !errors.As(err, &kind) || !strings.Contains(err.Error(), strings.TrimSpace(text)) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, b := range map[string][]byte{
		"does not begin": []byte("GIF89a"), "no scan": append(bytes.Clone(good), 0xff, 0xd9), "no width": append(change(8, 0), 0),
		"second time": append(bytes.Clone(good), 0xff, 0xd8), "two frames": append(bytes.Clone(good), good[frame:]...),
		"before the frame": {0xff, 0xd8, 0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0}, "sampling": change(11, 0x51), "quantisation table": change(12, 7),
		"shorter than its length": {0xff, 0xd8, 0xff, 0xfe, 0, 1}, "more codes": {0xff, 0xd8, 0xff, 0xc4, 0, 22, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2},
		"coefficients that are none": append(bytes.Clone(good), scanOf(3, 64, 0, 0)...), "frame lacks": append(bytes.Clone(good), 0xff, 0xda, 0, 8, 1, 9, 0, 0, 0, 0),
		"not there": append(bytes.Clone(good), 0xff, 0xda, 0, 8, 1, 1, 0x20, 0, 0, 0),
	} {
		_, err := Open(b)
		var format FormatError
		if !errors.As(err, &format) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// noise is a picture of waves and noise.
func noise(w, h int) *image.RGBA {
	rng := rand.New(rand.NewPCG(3, 3))
	p := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			p.Set(x, y, color.RGBA{uint8(x*3 + rng.IntN(30)), uint8(y*2 + rng.IntN(30)), uint8((x+y)/2 + rng.IntN(30)), 255})
		}
	}
	return p
}

func TestMemoryIsOfThePictureNotOfItsBlocks(t *testing.T) {
	counts := map[int]float64{}
	for _, side := range []int{64, 640} {
		var file bytes.Buffer
		if err := stdjpeg.Encode(&file, noise(side, side), nil); err != nil {
			t.Fatal(err)
		}
		to := make([]byte, 3*side*side)
		n := side * side
		counts[side] = testing.AllocsPerRun(20, func() {
			d, err := Open(file.Bytes())
			if err == nil {
				err = d.Planes(to[:n], to[n:2*n], to[2*n:])
				d.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	// Of the larger one there are 9,600 blocks. What is pooled is dropped at times: by a collection, and by the race detector.
	if counts[640] > counts[64]+40 {
		t.Errorf("allocations by size: %v", counts)
	}
}

func TestHeadersTakeNoMemoryForPixels(t *testing.T) {
	b := append(head(65535, 65535), scanOf(0, 0, 0, 0)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d, err := Open(append(b, 0xff, 0xd9))
	runtime.ReadMemStats(&after)
	if err != nil || d.Width != 65535 {
		t.Fatal(err)
	}
	d.Close()
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}

// FuzzDecode looks for bytes that are neither pixels nor an error.
func FuzzDecode(f *testing.F) {
	for i, p := range pictures(f) {
		if len(p.file) < 3000 && i < 60 {
			f.Add(p.file)
		}
	}
	f.Add(append(append(head(16, 16), scanOf(0, 0, 0, 0)...), scanOf(1, 63, 0, 0, 0xff, 0xd9)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := try(t, "fuzz", b); err != nil {
			var format FormatError
			var kind UnsupportedError
			if !errors.As(err, &format) && !errors.As(err, &kind) && err != io.ErrUnexpectedEOF {
				t.Fatalf("got %T: %v", err, err)
			}
		}
	})
}

// FuzzGoDecodesNearlyTheSame holds pictures without colours, which no upsampling changes, to image/jpeg, whose inverse
// transform rounds otherwise.
func FuzzGoDecodesNearlyTheSame(f *testing.F) {
	f.Add([]byte{1, 200, 3, 77, 255, 0, 9}, uint8(9), uint8(75))
	f.Add([]byte{255, 0}, uint8(33), uint8(5))
	f.Add([]byte("grey"), uint8(16), uint8(100))
	f.Fuzz(func(t *testing.T, content []byte, w, quality uint8) {
		if len(content) == 0 || w == 0 {
			return
		}
		h := 1 + len(content)/int(w)%64
		p := image.NewGray(image.Rect(0, 0, int(w), h))
		for i := range p.Pix {
			p.Pix[i] = content[i%len(content)]
		}
		var file bytes.Buffer
		if err := stdjpeg.Encode(&file, p, &stdjpeg.Options{Quality: 1 + int(quality)%100}); err != nil {
			t.Fatal(err)
		}
		theirs, err := stdjpeg.Decode(&file)
		if err != nil {
			t.Fatal(err)
		}
		file.Reset()
		if err := stdjpeg.Encode(&file, p, &stdjpeg.Options{Quality: 1 + int(quality)%100}); err != nil {
			t.Fatal(err)
		}
		_, _, _, ours, err := decoded(file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		want := theirs.(*image.Gray)
		for i, v := range ours {
			g := want.Pix[i/int(w)*want.Stride+i%int(w)]
			if max(v, g)-min(v, g) > 2 {
				t.Fatalf("pixel %d is %d, and %d by image/jpeg", i, v, g)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	var file bytes.Buffer
	if err := stdjpeg.Encode(&file, noise(256, 256), &stdjpeg.Options{Quality: 85}); err != nil {
		b.Fatal(err)
	}
	to := make([]byte, 3<<16)
	b.Run("planes", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d, err := Open(file.Bytes())
			if err == nil {
				err = d.Planes(to[:1<<16], to[1<<16:2<<16], to[2<<16:])
				d.Close()
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("image/jpeg", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := stdjpeg.Decode(bytes.NewReader(file.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
	})
}
