package imageio_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/image/tiff"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/vision/imageio"
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
		picture, err := imageio.ReadImage(strings.TrimSuffix(path, ".rgb"))
		testhelp.Must(t, err)
		got := imageio.FromImage(picture, imageio.RGB)
		if got.DType() != gotorch.Uint8 || !slices.Equal(got.Shape(), []int64{3, 5, 9}) {
			t.Fatalf("%s: got %v of shape %v", path, got.DType(), got.Shape())
		}
		if !bytes.Equal(gotorch.ToSlice[uint8](got), want) {
			t.Errorf("%s: the pixels differ", path)
		}
		tensor, err := imageio.Read(strings.TrimSuffix(path, ".rgb"), imageio.Options{Mode: imageio.RGB})
		testhelp.Must(t, err)
		if !tensor.Equal(got) {
			t.Errorf("%s: Read and ReadImage differ", path)
		}
	}
}

func TestATensorOfAJPEGHasTheChannelsOfItsMode(t *testing.T) {
	var grey, colours bytes.Buffer
	picture := image.NewRGBA(image.Rect(0, 0, 21, 13))
	for i := range picture.Pix {
		picture.Pix[i] = uint8(i * 5)
	}
	testhelp.Must(t, jpeg.Encode(&colours, picture, nil))
	testhelp.Must(t, jpeg.Encode(&grey, image.NewGray(picture.Rect), nil))
	for _, file := range [][]byte{grey.Bytes(), colours.Bytes()} {
		decoded, err := imageio.DecodeImage(file)
		testhelp.Must(t, err)
		for mode, channels := range map[imageio.Mode]int64{imageio.Unchanged: 1, imageio.Gray: 1, imageio.RGB: 3, imageio.RGBA: 4} {
			if _, is := decoded.(*image.RGBA); is && mode == imageio.Unchanged {
				channels = 3
			}
			got, err := imageio.Decode(file, imageio.Options{Mode: mode})
			testhelp.Must(t, err)
			if want := imageio.FromImage(decoded, mode); !got.Equal(want) || got.Size(0) != channels {
				t.Errorf("mode %d of %T: shape %v, want %v", mode, decoded, got.Shape(), want.Shape())
			}
		}
	}
}

func TestABrokenJPEGLeavesNoTensor(t *testing.T) {
	var file bytes.Buffer
	testhelp.Must(t, jpeg.Encode(&file, image.NewRGBA(image.Rect(0, 0, 64, 64)), nil))
	cut := file.Bytes()[:file.Len()-10]
	lossless := bytes.Replace(file.Bytes(), []byte{0xff, 0xc0}, []byte{0xff, 0xc3}, 1)
	run := func() {
		for text, b := range map[string][]byte{"the picture is damaged: unexpected EOF": cut, "cannot be read: jpeg: lossless coding is not supported": lossless} {
			_, err := imageio.Decode(b)
			filestest.WantBroken(t, err, "input", text)
			if !errors.Is(err, gotorch.ValueError) {
				t.Errorf("%v is no ValueError", err)
			}
		}
	}
	run()
	before := gotorch.MemoryStats().LiveHandles
	for range 20 {
		run()
	}
	if after := gotorch.MemoryStats().LiveHandles; after > before {
		t.Errorf("%d handles, and %d before", after, before)
	}
}

func TestGrayIsHowBrightColoursAre(t *testing.T) {
	picture := image.NewNRGBA(image.Rect(3, 4, 6, 5))
	for x, c := range []color.NRGBA{{255, 0, 0, 255}, {0, 255, 0, 255}, {10, 20, 200, 255}} {
		picture.Set(3+x, 4, c)
	}
	// Pillow's convert("L").
	if got := imageio.FromImage(picture, imageio.Gray); !got.Equal(gotorch.NewTensor([][][]uint8{{{76, 150, 38}}})) {
		t.Errorf("got %v", got)
	}
}

func TestWhatIsTransparentIsLeftOpaque(t *testing.T) {
	for _, picture := range []image.Image{
		&image.NRGBA{Pix: []byte{10, 20, 30, 0}, Stride: 4, Rect: image.Rect(0, 0, 1, 1)},
		&image.Paletted{Pix: []byte{0}, Stride: 1, Rect: image.Rect(0, 0, 1, 1), Palette: color.Palette{color.NRGBA{10, 20, 30, 255}}},
		&image.RGBA{Pix: []byte{5, 10, 15, 127}, Stride: 4, Rect: image.Rect(0, 0, 1, 1)},
	} {
		if got := gotorch.ToSlice[int](imageio.FromImage(picture, imageio.RGB)); !slices.Equal(got, []int{10, 20, 30}) {
			t.Errorf("%T: got %v", picture, got)
		}
	}
	// A pixel that is none of the palette.
	if got := gotorch.ToSlice[int](imageio.FromImage(&image.Paletted{Pix: []byte{9}, Stride: 1, Rect: image.Rect(0, 0, 1, 1)}, imageio.RGB)); !slices.Equal(got, []int{0, 0, 0}) {
		t.Errorf("got %v", got)
	}
}

func TestTurningKeepsWhatPixelsAre(t *testing.T) {
	frame := image.Rect(0, 0, 3, 2)
	for mode, picture := range map[string]image.Image{
		"[1 3 2] torch.uint8": image.NewGray(frame), "[1 3 2] torch.uint16": image.NewGray16(frame), "[4 3 2] torch.uint8": image.NewNRGBA(frame),
	} {
		var b bytes.Buffer
		testhelp.Must(t, png.Encode(&b, picture))
		exif := []byte("eXIfII*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00")
		chunk := append(binary.BigEndian.AppendUint32(nil, uint32(len(exif)-4)), exif...)
		chunk = binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(exif))
		got, err := imageio.Decode(slices.Insert(b.Bytes(), 33, chunk...), imageio.Options{Orient: true})
		testhelp.Must(t, err)
		if text := fmt.Sprint(got.Shape(), got.DType()); text != mode {
			t.Errorf("got %s, want %s", text, mode)
		}
	}
}

// The frame of the GIF is one pixel of the second colour in the corner of a screen of 2 by 2.
func TestTheFrameOfAGIFLiesOnItsScreen(t *testing.T) {
	b := []byte("GIF89a\x02\x00\x02\x00\x80\x00\x00\x07\x08\x09\xff\xfe\xfd,\x01\x00\x01\x00\x01\x00\x01\x00\x00\x02\x02L\x01\x00;")
	got, err := imageio.Decode(b)
	testhelp.Must(t, err)
	want := gotorch.NewTensor([][][]uint8{{{7, 7}, {7, 255}}, {{8, 8}, {8, 254}}, {{9, 9}, {9, 253}}}) // Pillow's
	if !got.Equal(want) {
		t.Errorf("got %v", got)
	}
}

func TestAPhotographIsTurnedOnDemand(t *testing.T) {
	plain, err := imageio.ReadImage("testdata/turned.jpg")
	testhelp.Must(t, err)
	turned, err := imageio.ReadImage("testdata/turned.jpg", imageio.DecodeOptions{Orient: true})
	testhelp.Must(t, err)
	if plain.Bounds().Dx() != 9 || turned.Bounds().Dx() != 5 {
		t.Fatalf("got %v and %v", plain.Bounds(), turned.Bounds())
	}
	// Number 6: what was the left column is the upper row, from its end.
	if tensor, err := imageio.Read("testdata/turned.jpg", imageio.Options{Orient: true}); err != nil || !tensor.Equal(imageio.FromImage(turned)) {
		t.Errorf("Read has %v of it, %v", tensor, err)
	}
	if want := imageio.FromImage(plain, imageio.RGB).Rot90(gotorch.Rot90Options{K: new(int64(-1)), Dims: []int64{1, 2}}); !imageio.FromImage(turned, imageio.RGB).Equal(want) {
		t.Errorf("got %v, want %v", imageio.FromImage(turned, imageio.RGB), want)
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
		n := filestest.Allocated(func() { _, err = imageio.DecodeImage(b) })
		filestest.WantBroken(t, err, "input", strings.TrimSpace(text))
		if !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%v is no ValueError", err)
		}
		if n > 1<<20 {
			t.Errorf("%s: %d bytes were allocated", text, n)
		}
		path := filestest.Write(t, "a.png", b)
		_, err = imageio.ReadImage(path)
		filestest.WantBroken(t, err, path, strings.TrimSpace(text))
	}
	_, err = imageio.DecodeImage(good, imageio.DecodeOptions{MaxBytes: 10})
	filestest.WantBroken(t, err, "input", "more than the 10 that MaxBytes allows")
	_, err = imageio.ReadImage("testdata/rgb.png", imageio.DecodeOptions{MaxBytes: 10})
	filestest.WantBroken(t, err, "testdata/rgb.png", "more than the 10 that MaxBytes allows")
	_, err = imageio.DecodeImage(good, imageio.DecodeOptions{MaxPixels: 44})
	filestest.WantBroken(t, err, "input", "more than the 44 pixels")
	if _, err := imageio.DecodeImage(good, imageio.DecodeOptions{MaxPixels: 45}); err != nil {
		t.Error(err)
	}
	filestest.WantKind(t, gotorch.ValueError, func() { _, _ = imageio.DecodeImage(good, imageio.DecodeOptions{MaxPixels: 0}) })
	filestest.NoFiles(t, func(path string) error { _, err := imageio.ReadImage(path); return err })
}

func TestAPictureOfOneColourIsNotTakenForACutOne(t *testing.T) {
	var b bytes.Buffer
	testhelp.Must(t, png.Encode(&b, image.NewPaletted(image.Rect(0, 0, 6000, 6000), color.Palette{color.Black})))
	if _, err := imageio.DecodeImage(b.Bytes()); err != nil {
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
	f.Add([]byte("GIF89a\x02\x00\x02\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff,\x00\x00\x00\x00\x02\x00\x02\x00\x00\x02\x03L\x84Q\x00;"))
	f.Add([]byte("II*\x00\x08\x00\x00\x00"))
	f.Add([]byte("RIFF\x10\x00\x00\x00WEBPVP8L"))
	f.Fuzz(func(t *testing.T, b []byte) {
		picture, err := imageio.DecodeImage(b, imageio.DecodeOptions{MaxPixels: 1 << 16, Orient: true})
		if err != nil {
			var broken *data.FileError
			if !errors.As(err, &broken) {
				t.Fatalf("got %T: %v", err, err)
			}
			return
		}
		size := picture.Bounds()
		for mode := imageio.Unchanged; mode <= imageio.RGBA; mode++ {
			x := imageio.FromImage(picture, mode)
			if x.Dim() != 3 || x.Size(1) != int64(size.Dy()) || x.Size(2) != int64(size.Dx()) {
				t.Fatalf("%v has shape %v", size, x.Shape())
			}
			x.Close()
		}
	})
}

func BenchmarkRGB(b *testing.B) {
	picture := image.NewYCbCr(image.Rect(0, 0, 640, 480), image.YCbCrSubsampleRatio420)
	for b.Loop() {
		t := imageio.FromImage(picture, imageio.RGB)
		t.Close()
	}
}

func ExampleDecodeImage() {
	picture, err := imageio.DecodeImage([]byte("P3 2 1 255  255 0 0  0 0 255"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(imageio.FromImage(picture, imageio.RGB))
	// Output:
	// tensor([[[255,   0]],
	//
	//         [[  0,   0]],
	//
	//         [[  0, 255]]], dtype=torch.uint8)
}

func TestAPictureOfAKindThatIsNotReadIsNotDamaged(t *testing.T) {
	var whole bytes.Buffer
	testhelp.Must(t, tiff.Encode(&whole, image.NewRGBA(image.Rect(0, 0, 3, 2)), nil))
	// with is the TIFF with another value of a tag.
	with := func(tag, value uint16) []byte {
		b := slices.Clone(whole.Bytes())
		for at := int(binary.LittleEndian.Uint32(b[4:])) + 2; at+12 <= len(b); at += 12 {
			if binary.LittleEndian.Uint16(b[at:]) == tag {
				binary.LittleEndian.PutUint16(b[at+8:], value)
				return b
			}
		}
		t.Fatalf("there is no tag %d", tag)
		return nil
	}
	const compression, photometric, extra = 259, 262, 338
	for text, b := range map[string][]byte{
		"tiff: unsupported feature: color model":              with(photometric, 5), // CMYK
		"tiff: unsupported feature: compression value 7":      with(compression, 7), // JPEG
		"tiff: unsupported feature: compression value 50000":  with(compression, 50000),
		"tiff: invalid format: wrong number of samples":       with(extra, 0), // RGBX
		"webp: an animation is not supported":                 append([]byte("RIFF\x00\x01\x00\x00WEBPVP8X\x0a\x00\x00\x00\x02"), make([]byte, 40)...),
		"bmp: unsupported BMP image":                          slices.Concat([]byte("BM"), make([]byte, 8), []byte{54, 0, 0, 0, 40, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 1, 0, 16, 0}, make([]byte, 60)),
		"tiff: BigTIFF is not supported":                      []byte("II+\x00\x08\x00\x00\x00"),
		"AVIF is not supported":                               []byte("\x00\x00\x00\x1cftypavif"),
		"HEIF is not supported":                               []byte("\x00\x00\x00\x1cftypheic"),
		"JPEG 2000 is not supported":                          []byte("\x00\x00\x00\x0cjP  \r\n\x87\n"),
		"JPEG XL is not supported":                            []byte("\xff\n\x00"),
		"an icon (ICO) is not supported":                      []byte("\x00\x00\x01\x00"),
		"png: unsupported feature: bit depth 3, color type 2": pngOfDepth(3),
	} {
		_, err := imageio.DecodeImage(b)
		filestest.WantBroken(t, err, "input", "the picture cannot be read: "+text)
		if strings.Contains(err.Error(), "damaged") || !strings.HasSuffix(err.Error(), "(convert it, to a PNG for example)") {
			t.Errorf("got %v", err)
		}
		_, err = imageio.Decode(b)
		filestest.WantBroken(t, err, "input", text)
	}
	for _, b := range [][]byte{whole.Bytes()[:20], with(compression, 8), with(256, 0)} {
		if _, err := imageio.DecodeImage(b); err == nil || strings.Contains(err.Error(), "convert it") {
			t.Errorf("got %v", err)
		}
	}
}

// pngOfDepth is the beginning of a PNG with so many bits for a colour.
func pngOfDepth(bits byte) []byte {
	head := []byte{'I', 'H', 'D', 'R', 0, 0, 0, 4, 0, 0, 0, 4, bits, 2, 0, 0, 0}
	return binary.BigEndian.AppendUint32(slices.Concat([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"), head), crc32.ChecksumIEEE(head))
}
