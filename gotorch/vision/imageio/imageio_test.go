package imageio_test

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/vision/imageio"
)

// painted is an image of a type, with a colour that depends on the place, within a larger one.
func painted(whole interface {
	image.Image
	Set(x, y int, c color.Color)
}, alpha bool) image.Image {
	b := whole.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			a := uint16(0xffff)
			if alpha && (x+y)%3 == 0 {
				a = 0x8000
			}
			whole.Set(x, y, color.NRGBA64{uint16(x * 9000), uint16(y * 7000), uint16(x*y*500 + 77), a})
		}
	}
	return whole.(interface {
		SubImage(r image.Rectangle) image.Image
	}).SubImage(image.Rect(b.Min.X+1, b.Min.Y+2, b.Max.X-1, b.Max.Y-1))
}

func TestEveryTypeOfImageGivesWhatItsPixelsSay(t *testing.T) {
	r := image.Rect(-2, 3, 6, 10)
	ycc := image.NewYCbCr(r, image.YCbCrSubsampleRatio420)
	for i := range ycc.Y {
		ycc.Y[i] = uint8(i * 7)
	}
	for i := range ycc.Cb {
		ycc.Cb[i], ycc.Cr[i] = uint8(i*29), uint8(i*41)
	}
	palette := color.Palette{color.Black, color.White, color.NRGBA{9, 200, 3, 255}}
	for name, c := range map[string]struct {
		img      image.Image
		channels int64
	}{
		"Gray":       {painted(image.NewGray(r), false), 1},
		"Gray16":     {painted(image.NewGray16(r), false), 1},
		"RGBA":       {painted(image.NewRGBA(r), false), 3},
		"RGBA clear": {painted(image.NewRGBA(r), true), 4},
		"NRGBA":      {painted(image.NewNRGBA(r), true), 4},
		"RGBA64":     {painted(image.NewRGBA64(r), false), 3},
		"NRGBA64":    {painted(image.NewNRGBA64(r), true), 4},
		"Paletted":   {painted(image.NewPaletted(r, palette), false), 3},
		"YCbCr":      {ycc.SubImage(image.Rect(-1, 4, 5, 9)), 3},
	} {
		got := imageio.FromImage(c.img)
		b := c.img.Bounds()
		if want := []int64{c.channels, int64(b.Dy()), int64(b.Dx())}; !slices.Equal(got.Shape(), want) {
			t.Errorf("%s: shape %v, not %v", name, got.Shape(), want)
			continue
		}
		deep := got.DType() == gotorch.Uint16
		for _, mode := range []imageio.Mode{imageio.Gray, imageio.RGB, imageio.RGBA} {
			values := gotorch.ToSlice[int64](imageio.FromImage(c.img, mode).To(gotorch.Int64))
			n := b.Dx() * b.Dy()
			for i := range n {
				at := c.img.At(b.Min.X+i%b.Dx(), b.Min.Y+i/b.Dx())
				p := color.NRGBA64Model.Convert(at).(color.NRGBA64)
				want := []int64{int64(p.R), int64(p.G), int64(p.B), int64(p.A)}
				if !deep {
					p := color.NRGBAModel.Convert(at).(color.NRGBA)
					want = []int64{int64(p.R), int64(p.G), int64(p.B), int64(p.A)}
				}
				switch mode {
				case imageio.Gray:
					want = []int64{(want[0]*19595 + want[1]*38470 + want[2]*7471 + 1<<15) >> 16}
				case imageio.RGB:
					want = want[:3]
				}
				for k, v := range want {
					if got := values[k*n+i]; got != v && !(mode == imageio.Gray && strings.HasPrefix(name, "Gray") && max(got-v, v-got) <= 1) {
						t.Fatalf("%s, mode %d: channel %d of pixel %d is %d, not %d", name, mode, k, i, got, v)
					}
				}
			}
		}
	}
}

func TestInkIsTakenForColoursAsPillowDoes(t *testing.T) {
	img := image.NewCMYK(image.Rect(0, 0, 4, 1))
	copy(img.Pix, []uint8{0, 0, 0, 0, 10, 200, 3, 77, 255, 128, 1, 254, 90, 91, 92, 100})
	want := []int{255, 171, 0, 100, 255, 38, 0, 100, 255, 176, 1, 99} // Pillow's convert("RGB")
	if got := gotorch.ToSlice[int](imageio.FromImage(img)); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestImagesGoThroughFiles(t *testing.T) {
	folder := t.TempDir()
	for _, c := range []int64{1, 3, 4} {
		for _, d := range []gotorch.DType{gotorch.Uint8, gotorch.Uint16} {
			want := gotorch.Randint(250, []int64{c, 5, 7}, gotorch.TensorOptions{DType: gotorch.Int32}).To(d)
			path := filepath.Join(folder, fmt.Sprint(c, d, ".png"))
			if err := imageio.Write(path, want); err != nil {
				t.Fatal(err)
			}
			got, err := imageio.Read(path)
			if err != nil || got.DType() != d || !got.To(gotorch.Int32).Equal(want.To(gotorch.Int32)) {
				t.Errorf("%d channels of %s: %v", c, d, err)
			}
		}
	}
	path := filepath.Join(folder, "a.jpg")
	flat := gotorch.Full([]int64{3, 16, 16}, 0.5)
	if err := imageio.Write(path, flat, imageio.WriteOptions{Quality: 90}); err != nil {
		t.Fatal(err)
	}
	got, err := imageio.Read(path)
	if err != nil || fmt.Sprint(got.Shape()) != "[3 16 16]" || gotorch.Item[int64](got.Index(gotorch.At(0), gotorch.At(3), gotorch.At(3))) != 127 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestFloatsAreBroughtIntoRange(t *testing.T) {
	nan := gotorch.FromSlice([]float64{0}).Log().Mul(gotorch.FromSlice([]float64{0}))
	row := gotorch.Cat([]gotorch.Tensor{gotorch.FromSlice([]float64{-1, 0, 0.5, 1, 7}), nan}).View([]int64{1, 6})
	if got := imageio.ToImage(row).(*image.Gray).Pix; !slices.Equal(got, []uint8{0, 0, 127, 255, 255, 0}) {
		t.Errorf("got %v", got)
	}
}

func TestBadPicturesAreErrors(t *testing.T) {
	var good bytes.Buffer
	_ = png.Encode(&good, image.NewGray(image.Rect(0, 0, 40, 30)))
	large := slices.Clone(good.Bytes())
	copy(large[16:], []byte{0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff}) // its width and height; the sum is wrong, too
	for name, file := range map[string][]byte{
		"empty": nil, "text": []byte("no picture"), "cut off": good.Bytes()[:40], "of a lie": large,
	} {
		if _, err := imageio.Decode(file); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := imageio.Decode(good.Bytes(), imageio.Options{MaxPixels: 1199})
	if !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "40 wide and 30 high") {
		t.Error(err)
	}
	if _, err := imageio.Read(filepath.Join(t.TempDir(), "none.png")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	folder := t.TempDir()
	for name, tensor := range map[string]gotorch.Tensor{
		"x.gif": gotorch.Zeros([]int64{3, 2, 2}), "x.png": gotorch.Zeros([]int64{2, 2, 2}), "y.png": gotorch.Zeros([]int64{2, 2}, gotorch.TensorOptions{DType: gotorch.Int64}), "z.png": {},
	} {
		if err := imageio.Write(filepath.Join(folder, name), tensor); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	if left, _ := os.ReadDir(folder); len(left) != 0 {
		t.Errorf("files are left: %v", left)
	}
}

func TestNoHandleIsLeft(t *testing.T) {
	var file bytes.Buffer
	_ = jpeg.Encode(&file, image.NewRGBA(image.Rect(0, 0, 9, 9)), nil)
	live := func() int64 {
		for range 3 {
			runtime.GC()
			gotorch.ReleaseCachedMemory()
		}
		return gotorch.MemoryStats().LiveHandles
	}
	run := func() {
		for range 10 {
			x, err := imageio.Decode(file.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			imageio.ToImage(x)
		}
	}
	run()
	before := live()
	run()
	if after := live(); after > before {
		t.Errorf("%d handles, and %d before", after, before)
	}
}

func Example() {
	folder, _ := os.MkdirTemp("", "imageio")
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "red.png")
	red := gotorch.Zeros([]int64{3, 4, 6})
	red.Select(0, 0).Fill_(1)
	if err := imageio.Write(path, red); err != nil {
		fmt.Println(err)
		return
	}
	photo, err := imageio.Read(path)
	fmt.Println(photo.Shape(), photo.DType(), err)
	fmt.Println(photo.Index(gotorch.All, gotorch.At(0), gotorch.At(0)))
	// Output:
	// [3 4 6] torch.uint8 <nil>
	// tensor([255,   0,   0], dtype=torch.uint8)
}

// A pointer that is nil is no image, also where it stands in an interface that is not.
func TestATypedNilIsNoImage(t *testing.T) {
	for _, img := range []image.Image{nil, (*image.Gray)(nil), (*image.YCbCr)(nil), (*image.Paletted)(nil)} {
		err := gotorch.Try0(func() { imageio.FromImage(img) })
		if !errors.Is(err, gotorch.TypeError) || !strings.Contains(err.Error(), "the image is nil") {
			t.Errorf("%T: %v", img, err)
		}
	}
}
