// Package imageio makes tensors of images, and images of tensors: between Go's package image and what a network takes.
//
//	photo, err := imageio.Read("cat.jpg")                     // uint8, (3, H, W); a grey one is (1, H, W)
//	rgb, err := imageio.Read("cat.png", imageio.Options{Mode: imageio.RGB})
//	err = imageio.Write("small.png", functional.Resize(photo, 64))
//
// A tensor has its channels first, as in torchvision: grey, red green blue, or these with alpha, which is not
// premultiplied. Colours of 8 bits are uint8, those of 16 bits uint16; [functional.ToDtype] with Scale makes floats of
// both. [FromImage] and [ToImage] are for images that are in memory.
//
// JPEG, PNG, GIF (the first picture), WebP, BMP, TIFF and PNM (.ppm, .pgm, .pbm) are read, whatever their files are called;
// PNG and JPEG are written. The numbers are those that Pillow gives, to the last bit, but for WebP with loss, where
// libwebp smooths colours that are stored at half the resolution and Go does not. JPEGs with arithmetic or lossless coding, or
// more than 8 bits, are an error that says so, and so are TIFFs in CMYK, YCbCr or Lab, of floats or of JPEGs, BMPs that are packed or of
// 16 bits, and animated WebPs. A picture that is damaged or cut short is an error, of which Pillow may show what there is.
//
// A photograph may lie on its side, with a note in it (EXIF) of how to turn it. As torchvision does, this package leaves
// it so, unless the option Orient says otherwise.
//
// [ReadImage] and [DecodeImage] stop at an image.Image, as the samples of data/imagefolder and data/webdataset have it.
//
// A file is not believed: what it says of its size is checked before any memory is taken for it. What is wrong with one is
// a *[data.FileError].
//
// [functional.ToDtype]: https://pkg.go.dev/gotorch.dev/gotorch/vision/transforms/functional#ToDtype
package imageio

import (
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"math"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/replace"
)

// Mode is which channels a tensor has.
type Mode int

// The modes, with torchvision's names.
const (
	// Unchanged is one channel for a grey image, four for one of the types NRGBA and NRGBA64 or with pixels that are
	// transparent, and three for all others.
	Unchanged Mode = iota
	Gray           // one channel
	RGB            // three
	RGBA           // four
)

// Options are the arguments of [Read] and [Decode] that have defaults.
type Options struct {
	Mode      Mode           // default: Unchanged
	Orient    bool           // turn a picture as its EXIF says, as torchvision's apply_exif_orientation does
	MaxPixels gotorch.Scalar // width times height of the largest picture; default: 89478485, as Pillow's
	MaxBytes  gotorch.Scalar // length of the longest file; default: 1<<28
}

func (o Options) decode() DecodeOptions { return DecodeOptions{o.Orient, o.MaxPixels, o.MaxBytes} }

func (m Mode) check(op string) {
	if m < Unchanged || m > RGBA {
		panic(args.ValueError(op, "there is no Mode %d", int(m)))
	}
}

// Read reads a picture from a file: uint8 or uint16, (C, H, W). Its errors are those of [ReadImage].
//
// torchvision: io.read_image, io.decode_image.
func Read(path string, opts ...Options) (gotorch.Tensor, error) {
	const op = "imageio.Read"
	opt := args.Option(opts)
	opt.Mode.check(op)
	l := opt.decode().limits(op)
	encoded, err := file(path, l)
	if err != nil {
		return gotorch.Tensor{}, err
	}
	t, err := decodeTensor(encoded, l, opt.Mode)
	return t, in(path, err)
}

// Decode is [Read] for the bytes of a file. The Path of its errors is "input".
func Decode(encoded []byte, opts ...Options) (gotorch.Tensor, error) {
	const op = "imageio.Decode"
	opt := args.Option(opts)
	opt.Mode.check(op)
	l := opt.decode().limits(op)
	if err := l.length(encoded); err != nil {
		return gotorch.Tensor{}, in("input", err)
	}
	t, err := decodeTensor(encoded, l, opt.Mode)
	return t, in("input", err)
}

func decodeTensor(encoded []byte, l limits, mode Mode) (gotorch.Tensor, error) {
	if isJPEG(encoded) && (!l.orient || ofJPEG(encoded) == 1) {
		return jpegTensor(encoded, l, mode)
	}
	img, err := decode(encoded, l)
	if err != nil {
		return gotorch.Tensor{}, err
	}
	return gotorch.Try(func() gotorch.Tensor { return FromImage(img, mode) })
}

// FromImage makes a tensor of an image: (C, H, W), of uint8, or of uint16 where its colours have 16 bits. The mode says
// which channels, default: [Unchanged]. To leave out alpha is to leave the colours that are below it as they are; grey is
// 299 thousandths of red, 587 of green and 114 of blue, as Pillow's convert("L"). It panics with a TypeError if the image
// is nil.
//
// torchvision: ToImage, PILToTensor and functional.pil_to_tensor. ToTensor is [functional.ToDtype] with Scale behind it.
//
// [functional.ToDtype]: https://pkg.go.dev/gotorch.dev/gotorch/vision/transforms/functional#ToDtype
func FromImage(img image.Image, modes ...Mode) gotorch.Tensor {
	const op = "imageio.FromImage"
	mode, deep := args.Option(modes), false
	mode.check(op)
	if v := reflect.ValueOf(img); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the image is nil"})
	}
	b := img.Bounds()
	w, h := b.Dx(), b.Dy()
	if h > 0 && int64(w) > math.MaxInt64/16/int64(h) { // an image.Uniform has no end
		panic(args.ValueError(op, "the image has %d×%d pixels, which no memory has room for", w, h))
	}
	switch img := img.(type) {
	case *image.Gray:
		mode = mode.or(Gray)
	case *image.Gray16:
		mode, deep = mode.or(Gray), true
	case *image.NRGBA:
		mode = mode.or(RGBA)
	case *image.NRGBA64:
		mode, deep = mode.or(RGBA), true
	case *image.RGBA64:
		mode, deep = mode.or(transparent(img)), true
	case interface{ Opaque() bool }:
		mode = mode.or(transparent(img))
	default:
		mode = mode.or(RGB)
	}
	shape := []int64{channels(mode), int64(h), int64(w)}
	if deep {
		t := gotorch.Empty(shape, gotorch.TensorOptions{DType: gotorch.Uint16})
		fill16(gotorch.Data[uint16](t), img, mode)
		return t
	}
	t := gotorch.Empty(shape, gotorch.TensorOptions{DType: gotorch.Uint8})
	fill8(gotorch.Data[uint8](t), img, mode)
	return t
}

func (m Mode) or(other Mode) Mode {
	if m == Unchanged {
		return other
	}
	return m
}

func channels(m Mode) int64 { return map[Mode]int64{Gray: 1, RGB: 3, RGBA: 4}[m] }

func transparent(img interface{ Opaque() bool }) Mode {
	if img.Opaque() {
		return RGB
	}
	return RGBA
}

// luma is the grey of a colour, with the weights that Pillow has.
func luma[T uint8 | uint16](r, g, b T) T {
	return T((uint64(r)*19595 + uint64(g)*38470 + uint64(b)*7471 + 1<<15) >> 16)
}

// pixels writes a pixel into planes.
type pixels[T uint8 | uint16] struct {
	planes [][]T
	mode   Mode
}

func planesOf[T uint8 | uint16](to []T, mode Mode, n int) pixels[T] {
	p := pixels[T]{mode: mode}
	for len(to) > 0 {
		p.planes = append(p.planes, to[:n:n])
		to = to[n:]
	}
	return p
}

func (p *pixels[T]) put(i int, r, g, b, a T) {
	switch p.mode {
	case Gray:
		p.planes[0][i] = luma(r, g, b)
	case RGBA:
		p.planes[3][i] = a
		fallthrough
	default:
		p.planes[0][i], p.planes[1][i], p.planes[2][i] = r, g, b
	}
}

// withInk is a colour under ink of its own and black, as Pillow's convert("RGB") has it.
func withInk(ink, black uint8) uint8 {
	light := 255 - int(black)
	covered := int(ink)*light + 128
	return uint8(light - (covered+covered>>8)>>8)
}

// opaque takes a row of colours apart. It returns false if one of them is transparent.
func opaque(r, g, b, row []uint8) bool {
	g, b = g[:len(r)], b[:len(r)]
	all := uint8(255)
	for x := range r {
		c := (*[4]uint8)(row)
		r[x], g[x], b[x] = c[0], c[1], c[2]
		all &= c[3]
		row = row[4:]
	}
	return all == 255
}

// fill8 has a path for each type of image that decoders make: asking an image.Image for its pixels takes an interface and
// memory for each.
func fill8(to []uint8, img image.Image, mode Mode) {
	b := img.Bounds()
	w, h := b.Dx(), b.Dy()
	if w == 0 || h == 0 {
		return
	}
	p := planesOf(to, mode, w*h)
	switch img := img.(type) {
	case *image.Gray:
		for y := range h {
			at := img.PixOffset(b.Min.X, b.Min.Y+y)
			row := img.Pix[at : at+w]
			switch mode {
			case RGBA:
				for x := range w {
					p.planes[3][y*w+x] = 255
				}
				fallthrough
			case RGB:
				copy(p.planes[1][y*w:], row)
				copy(p.planes[2][y*w:], row)
				fallthrough
			default:
				copy(p.planes[0][y*w:], row)
			}
		}
	case *image.NRGBA:
		for y := range h {
			at := img.PixOffset(b.Min.X, b.Min.Y+y)
			row := img.Pix[at : at+4*w]
			for x := range w {
				c := row[4*x : 4*x+4 : 4*x+4]
				p.put(y*w+x, c[0], c[1], c[2], c[3])
			}
		}
	case *image.CMYK:
		for y := range h {
			at := img.PixOffset(b.Min.X, b.Min.Y+y)
			row := img.Pix[at : at+4*w]
			for x := range w {
				c := row[4*x : 4*x+4 : 4*x+4]
				p.put(y*w+x, withInk(c[0], c[3]), withInk(c[1], c[3]), withInk(c[2], c[3]), 255)
			}
		}
	case *image.RGBA:
		for y := range h {
			at := img.PixOffset(b.Min.X, b.Min.Y+y)
			row := img.Pix[at : at+4*w]
			if mode == RGB && opaque(p.planes[0][y*w:][:w], p.planes[1][y*w:][:w], p.planes[2][y*w:][:w], row) {
				continue
			}
			for x := range w {
				c := row[4*x : 4*x+4 : 4*x+4]
				if c[3] == 255 {
					p.put(y*w+x, c[0], c[1], c[2], 255)
					continue
				}
				n := color.NRGBAModel.Convert(color.RGBA{c[0], c[1], c[2], c[3]}).(color.NRGBA)
				p.put(y*w+x, n.R, n.G, n.B, n.A)
			}
		}
	case *image.YCbCr:
		if mode == RGB {
			fromYCbCr(p.planes, img)
			return
		}
		for y := range h {
			for x := range w {
				yi, ci := img.YOffset(b.Min.X+x, b.Min.Y+y), img.COffset(b.Min.X+x, b.Min.Y+y)
				red, green, blue := color.YCbCrToRGB(img.Y[yi], img.Cb[ci], img.Cr[ci])
				p.put(y*w+x, red, green, blue, 255)
			}
		}
	case *image.NYCbCrA:
		for y := range h {
			for x := range w {
				yi, ci, ai := img.YOffset(b.Min.X+x, b.Min.Y+y), img.COffset(b.Min.X+x, b.Min.Y+y), img.AOffset(b.Min.X+x, b.Min.Y+y)
				red, green, blue := color.YCbCrToRGB(img.Y[yi], img.Cb[ci], img.Cr[ci])
				p.put(y*w+x, red, green, blue, img.A[ai])
			}
		}
	case *image.Paletted:
		palette := make([]color.NRGBA, 256) // an index beyond the palette is black
		for i := range palette {
			palette[i].A = 255
		}
		for i, c := range img.Palette[:min(256, len(img.Palette))] {
			palette[i] = color.NRGBAModel.Convert(c).(color.NRGBA)
		}
		for y := range h {
			at := img.PixOffset(b.Min.X, b.Min.Y+y)
			for x, i := range img.Pix[at : at+w] {
				n := palette[i]
				p.put(y*w+x, n.R, n.G, n.B, n.A)
			}
		}
	default:
		for y := range h {
			for x := range w {
				n := color.NRGBAModel.Convert(img.At(b.Min.X+x, b.Min.Y+y)).(color.NRGBA)
				p.put(y*w+x, n.R, n.G, n.B, n.A)
			}
		}
	}
}

func fill16(to []uint16, img image.Image, mode Mode) {
	b := img.Bounds()
	w, h := b.Dx(), b.Dy()
	if w == 0 || h == 0 {
		return
	}
	p := planesOf(to, mode, w*h)
	word := func(pix []uint8) uint16 { return uint16(pix[0])<<8 | uint16(pix[1]) }
	for y := range h {
		switch img := img.(type) {
		case *image.Gray16:
			at := img.PixOffset(b.Min.X, b.Min.Y+y)
			for x := range w {
				g := word(img.Pix[at+2*x : at+2*x+2])
				if mode == Gray {
					p.planes[0][y*w+x] = g
				} else {
					p.put(y*w+x, g, g, g, 0xffff)
				}
			}
		case *image.NRGBA64:
			at := img.PixOffset(b.Min.X, b.Min.Y+y)
			for x := range w {
				c := img.Pix[at+8*x : at+8*x+8]
				p.put(y*w+x, word(c), word(c[2:]), word(c[4:]), word(c[6:]))
			}
		default:
			for x := range w {
				n := color.NRGBA64Model.Convert(img.At(b.Min.X+x, b.Min.Y+y)).(color.NRGBA64)
				p.put(y*w+x, n.R, n.G, n.B, n.A)
			}
		}
	}
}

// ToImage makes an image of a tensor (H, W) or (C, H, W) with 1, 3 or 4 channels. uint8 becomes an *image.Gray, *image.RGBA or
// *image.NRGBA; uint16 a Gray16, RGBA64 or NRGBA64. Floats are colours from 0 to 1: they are multiplied with 255 and cut
// off, as torchvision does, after what is outside is brought to 0 and 1, and NaN to 0. It panics with a ValueError
// for other shapes, and with a TypeError for other dtypes.
//
// torchvision: ToPILImage, functional.to_pil_image.
func ToImage(t gotorch.Tensor) image.Image {
	const op = "imageio.ToImage"
	if !t.Defined() {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the tensor is the zero Tensor"})
	}
	shape := t.Shape()
	if len(shape) == 2 {
		shape = append([]int64{1}, shape...)
	}
	if len(shape) != 3 || shape[0] != 1 && shape[0] != 3 && shape[0] != 4 {
		panic(args.ValueError(op, "the tensor must be (H, W) or (C, H, W) with 1, 3 or 4 channels, but the shape is %v", t.Shape()))
	}
	c, h, w := int(shape[0]), int(shape[1]), int(shape[2])
	d := t.DType()
	if d != gotorch.Uint8 && d != gotorch.Uint16 && !d.IsFloatingPoint() {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the tensor must be of uint8, uint16 or floats, not of " + d.String()})
	}
	own := gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		t := t.Detach()
		if d.IsFloatingPoint() {
			t = t.To(gotorch.CPU, gotorch.Float32).NaNToNum().Clamp(gotorch.ClampOptions{Min: 0, Max: 1}).MulScalar_(255).To(gotorch.Uint8)
		}
		return t.To(gotorch.CPU).Contiguous().View([]int64{int64(c), int64(h) * int64(w)})
	})
	defer runtime.KeepAlive(own) // whose memory is read
	rect := image.Rect(0, 0, w, h)
	n := w * h
	if d == gotorch.Uint16 {
		return deepImage(gotorch.Data[uint16](own), rect, c, n)
	}
	from := gotorch.Data[uint8](own)
	switch c {
	case 1:
		img := image.NewGray(rect)
		copy(img.Pix, from)
		return img
	case 3:
		img := image.NewRGBA(rect)
		r, g, b := from[:n], from[n:2*n], from[2*n:]
		for i := range n {
			c := img.Pix[4*i : 4*i+4 : 4*i+4]
			c[0], c[1], c[2], c[3] = r[i], g[i], b[i], 255
		}
		return img
	}
	img := image.NewNRGBA(rect)
	for i := range n {
		for k := range 4 {
			img.Pix[4*i+k] = from[k*n+i]
		}
	}
	return img
}

func deepImage(from []uint16, rect image.Rectangle, c, n int) image.Image {
	put := func(pix []uint8, v uint16) { pix[0], pix[1] = uint8(v>>8), uint8(v) }
	if c == 1 {
		img := image.NewGray16(rect)
		for i := range n {
			put(img.Pix[2*i:], from[i])
		}
		return img
	}
	var pix []uint8
	var img image.Image
	if c == 3 {
		opaque := image.NewRGBA64(rect)
		pix, img = opaque.Pix, opaque
	} else {
		alpha := image.NewNRGBA64(rect)
		pix, img = alpha.Pix, alpha
	}
	for i := range n {
		for k := range 4 {
			v := uint16(0xffff)
			if k < c {
				v = from[k*n+i]
			}
			put(pix[8*i+2*k:], v)
		}
	}
	return img
}

// WriteOptions are the arguments of [Write] that have defaults.
type WriteOptions struct {
	Quality gotorch.Scalar // of a JPEG, from 1 to 100; default: 75
}

// Write writes a tensor, as [ToImage] takes it, to a file: a PNG where the name ends in .png, a JPEG where it ends in .jpg or
// .jpeg. The file is there when all of it is written. Other names are a ValueError.
//
// torchvision: io.write_png, io.write_jpeg.
func Write(path string, t gotorch.Tensor, opts ...WriteOptions) error {
	const op = "imageio.Write"
	quality := args.Int(op, "Quality", args.Option(opts).Quality, 75)
	if quality < 1 || quality > 100 {
		return args.ValueError(op, "Quality must be from 1 to 100, but is %d", quality)
	}
	var encode func(w io.Writer, img image.Image) error
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".png":
		encode = png.Encode
	case ".jpg", ".jpeg":
		encode = func(w io.Writer, img image.Image) error {
			return jpeg.Encode(w, img, &jpeg.Options{Quality: int(quality)})
		}
	default:
		return args.ValueError(op, "the name must end in .png, .jpg or .jpeg, not in %q", ext)
	}
	img, err := gotorch.Try(func() image.Image { return ToImage(t) })
	if err != nil {
		return err
	}
	return replace.File(path, func(w io.Writer) error { return encode(w, img) })
}
