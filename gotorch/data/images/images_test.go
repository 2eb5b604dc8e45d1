package images_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/images"
	"gotorch.dev/gotorch/data/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
)

// The pictures of testdata, and the pixels beside them, are Pillow's: tests/make_datasets_golden.py.

func TestPixelsArePillows(t *testing.T) {
	list, err := filepath.Glob("testdata/*.rgb")
	testhelp.Must(t, err)
	if len(list) < 14 {
		t.Fatalf("there are %d pictures", len(list))
	}
	for _, path := range list {
		want, err := os.ReadFile(path)
		testhelp.Must(t, err)
		picture, err := images.Open(strings.TrimSuffix(path, ".rgb"))
		testhelp.Must(t, err)
		got := images.RGB(picture)
		if got.DType() != gotorch.Uint8 || !slices.Equal(got.Shape(), []int64{3, 5, 9}) {
			t.Fatalf("%s: got %v of shape %v", path, got.DType(), got.Shape())
		}
		apart := 0
		for i, b := range gotorch.ToSlice[uint8](got) {
			apart = max(apart, int(b)-int(want[i]), int(want[i])-int(b))
		}
		// What JPEG's arithmetic rounds to is not fixed.
		if most := map[bool]int{true: 3}[strings.Contains(path, ".jpg")]; apart > most {
			t.Errorf("%s: pixels are apart by %d", path, apart)
		}
	}
}

func TestGrayIsHowBrightColoursAre(t *testing.T) {
	picture := image.NewNRGBA(image.Rect(3, 4, 6, 5))
	for x, c := range []color.NRGBA{{255, 0, 0, 255}, {0, 255, 0, 255}, {10, 20, 200, 255}} {
		picture.Set(3+x, 4, c)
	}
	// Pillow's convert("L").
	if got := images.Gray(picture); !got.Equal(gotorch.NewTensor([][][]uint8{{{76, 150, 38}}})) {
		t.Errorf("got %v", got)
	}
}

// What a picture's type is makes no difference, nor where its corner lies.
func TestEveryTypeOfPictureHasTheSamePixels(t *testing.T) {
	frame := image.Rect(-2, 5, 3, 8)
	colour := func(x, y int) color.NRGBA { return color.NRGBA{uint8(40*x + 80), uint8(30 * y), uint8(x * y), 255} }
	palette := color.Palette{color.Black}
	for y := frame.Min.Y; y < frame.Max.Y; y++ {
		for x := frame.Min.X; x < frame.Max.X; x++ {
			palette = append(palette, colour(x, y))
		}
	}
	type settable interface {
		image.Image
		Set(x, y int, c color.Color)
	}
	var want gotorch.Tensor
	for i, picture := range []settable{image.NewNRGBA(frame), image.NewRGBA(frame), image.NewNRGBA64(frame), image.NewRGBA64(frame), image.NewPaletted(frame, palette)} {
		for y := frame.Min.Y; y < frame.Max.Y; y++ {
			for x := frame.Min.X; x < frame.Max.X; x++ {
				picture.Set(x, y, colour(x, y))
			}
		}
		if got := images.RGB(picture); i == 0 {
			want = got
		} else if !got.Equal(want) {
			t.Errorf("%T: got %v, want %v", picture, got, want)
		}
		part := picture.(interface {
			SubImage(image.Rectangle) image.Image
		}).SubImage(image.Rect(-1, 6, 2, 8))
		if got := images.RGB(part); !got.Equal(want.Index(gotorch.All, gotorch.Slice(1, 3), gotorch.Slice(1, 4))) {
			t.Errorf("%T: a part of it is %v", picture, got)
		}
	}
	for _, picture := range []settable{image.NewGray(frame), image.NewGray16(frame)} {
		picture.Set(0, 6, color.Gray{77})
		if got := images.RGB(picture); !got.Index(gotorch.All, gotorch.At(1), gotorch.At(2)).Equal(gotorch.FromSlice([]uint8{77, 77, 77})) {
			t.Errorf("%T: got %v", picture, got)
		}
	}
}

func TestWhatIsTransparentIsLeftOpaque(t *testing.T) {
	for _, picture := range []image.Image{
		&image.NRGBA{Pix: []byte{10, 20, 30, 0}, Stride: 4, Rect: image.Rect(0, 0, 1, 1)},
		&image.Paletted{Pix: []byte{0}, Stride: 1, Rect: image.Rect(0, 0, 1, 1), Palette: color.Palette{color.NRGBA{10, 20, 30, 255}}},
		&image.RGBA{Pix: []byte{5, 10, 15, 127}, Stride: 4, Rect: image.Rect(0, 0, 1, 1)},
	} {
		if got := gotorch.ToSlice[int](images.RGB(picture)); !slices.Equal(got, []int{10, 20, 30}) {
			t.Errorf("%T: got %v", picture, got)
		}
	}
	// A pixel that is none of the palette.
	if got := gotorch.ToSlice[int](images.RGB(&image.Paletted{Pix: []byte{9}, Stride: 1, Rect: image.Rect(0, 0, 1, 1)})); !slices.Equal(got, []int{0, 0, 0}) {
		t.Errorf("got %v", got)
	}
}

func TestAPhotographIsTurnedOnDemand(t *testing.T) {
	plain, err := images.Open("testdata/turned.jpg")
	testhelp.Must(t, err)
	turned, err := images.Open("testdata/turned.jpg", images.Options{Orient: true})
	testhelp.Must(t, err)
	if plain.Bounds().Dx() != 9 || turned.Bounds().Dx() != 5 {
		t.Fatalf("got %v and %v", plain.Bounds(), turned.Bounds())
	}
	// Number 6: what was the left column is the upper row, from its end.
	if want := images.RGB(plain).Rot90(gotorch.Rot90Options{K: new(int64(-1)), Dims: []int64{1, 2}}); !images.RGB(turned).Equal(want) {
		t.Errorf("got %v, want %v", images.RGB(turned), want)
	}
}

// pngOf makes a PNG that says it is of some size, and has no pixels.
func pngOf(w, h uint32) []byte {
	b := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR")
	b = binary.BigEndian.AppendUint32(b, w)
	b = binary.BigEndian.AppendUint32(b, h)
	b = append(b, 8, 2, 0, 0, 0)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[12:]))
}

func TestBrokenPicturesAreErrorsAndCostNoMemory(t *testing.T) {
	good, err := os.ReadFile("testdata/rgb.png")
	testhelp.Must(t, err)
	for text, b := range map[string][]byte{
		"no picture in a known format": []byte("<html>"), "no picture": {}, "is damaged": good[:len(good)-20], "is damaged: ": good[:20],
		"more than the 89478485 pixels": pngOf(10000, 9000), "dimension overflow": pngOf(1<<31-1, 1<<31-1),
		"cut short": pngOf(9000, 9000), "cut short ": []byte("P6 9000 9000 255\n"), "damaged: pnm": []byte("P6 2 -2 255\n"),
		"damaged: pnm: 300 is more": []byte("P3 1 1 255\n300 1 1"), "white is 0": []byte("P5 1 1 0\n1"), "damaged: unexpected": []byte("P5 3 1 255\n1"),
		"number is too large": []byte("P5 99999999999 1 255\n1"), "no pixels": []byte("P5 0 3 255\n"),
	} {
		var err error
		n := filestest.Allocated(func() { _, err = images.Decode(b) })
		filestest.WantBroken(t, err, "input", strings.TrimSpace(text))
		if !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%v is no ValueError", err)
		}
		if n > 1<<20 {
			t.Errorf("%s: %d bytes were allocated", text, n)
		}
		path := filestest.Write(t, "a.png", b)
		_, err = images.Open(path)
		filestest.WantBroken(t, err, path, strings.TrimSpace(text))
	}
	_, err = images.Decode(good, images.Options{MaxBytes: 10})
	filestest.WantBroken(t, err, "input", "more than the 10 that MaxBytes allows")
	_, err = images.Open("testdata/rgb.png", images.Options{MaxBytes: 10})
	filestest.WantBroken(t, err, "testdata/rgb.png", "more than the 10 that MaxBytes allows")
	_, err = images.Decode(good, images.Options{MaxPixels: 44})
	filestest.WantBroken(t, err, "input", "more than the 44 pixels")
	if _, err := images.Decode(good, images.Options{MaxPixels: 45}); err != nil {
		t.Error(err)
	}
	filestest.WantKind(t, gotorch.ValueError, func() { _, _ = images.Decode(good, images.Options{MaxPixels: 0}) })
	filestest.NoFiles(t, func(path string) error { _, err := images.Open(path); return err })
}

func TestAPictureOfOneColourIsNotTakenForACutOne(t *testing.T) {
	var b bytes.Buffer
	testhelp.Must(t, png.Encode(&b, image.NewPaletted(image.Rect(0, 0, 6000, 6000), color.Palette{color.Black})))
	if _, err := images.Decode(b.Bytes()); err != nil {
		t.Errorf("%d bytes: %v", b.Len(), err)
	}
}

// FuzzDecode looks for bytes that are neither a picture nor an error.
func FuzzDecode(f *testing.F) {
	list, err := filepath.Glob("testdata/*.[a-z][a-z][a-z]*")
	testhelp.Must(f, err)
	for _, path := range list {
		if !strings.HasSuffix(path, ".rgb") {
			b, err := os.ReadFile(path)
			testhelp.Must(f, err)
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		picture, err := images.Decode(b, images.Options{MaxPixels: 1 << 16, Orient: true})
		if err != nil {
			var broken *data.FileError
			if !errors.As(err, &broken) {
				t.Fatalf("got %T: %v", err, err)
			}
			return
		}
		rgb := images.RGB(picture)
		defer rgb.Close()
		if size := picture.Bounds(); rgb.Numel() != int64(3*size.Dx()*size.Dy()) {
			t.Fatalf("%v has %d numbers", size, rgb.Numel())
		}
	})
}

func BenchmarkRGB(b *testing.B) {
	picture := image.NewYCbCr(image.Rect(0, 0, 640, 480), image.YCbCrSubsampleRatio420)
	for b.Loop() {
		t := images.RGB(picture)
		t.Close()
	}
}

func ExampleDecode() {
	picture, err := images.Decode([]byte("P3 2 1 255  255 0 0  0 0 255"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(images.RGB(picture))
	// Output:
	// tensor([[[255,   0]],
	//
	//         [[  0,   0]],
	//
	//         [[  0, 255]]], dtype=torch.uint8)
}
