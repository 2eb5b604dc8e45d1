package imageio

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // decoders
	"image/png"
	"io"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	_ "golang.org/x/image/webp" // decoders

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/regular"
	"gotorch.dev/gotorch/vision/imageio/internal/jpeg"
)

// DecodeOptions say what pictures are taken, and how. They are the arguments of [ReadImage] and [DecodeImage] that have
// defaults.
type DecodeOptions struct {
	Orient    bool           // turn a picture as its EXIF says, as PIL.ImageOps.exif_transpose does
	MaxPixels gotorch.Scalar // width times height of the largest picture; default: 89478485, as Pillow's
	MaxBytes  gotorch.Scalar // length of the longest file; default: 1<<28
}

// limits are options that were checked.
type limits struct {
	pixels, bytes int64
	orient        bool
}

func (o DecodeOptions) limits(op string) limits {
	l := limits{args.Int(op, "MaxPixels", o.MaxPixels, 89478485), args.Int(op, "MaxBytes", o.MaxBytes, 1<<28), o.Orient}
	if l.pixels < 1 || l.bytes < 1 {
		panic(args.ValueError(op, "MaxPixels and MaxBytes must be positive, but got %d and %d", l.pixels, l.bytes))
	}
	return l
}

// ReadImage decodes the picture of a file. A JPEG becomes an *image.Gray, *image.RGBA or *image.CMYK. The error is an *fs.PathError where the file cannot be read, and a
// *[data.FileError] where it is no picture, a damaged one, one of a kind that is not read, or too large a one.
func ReadImage(path string, opts ...DecodeOptions) (image.Image, error) {
	return read("imageio.ReadImage", path, args.Option(opts))
}

func read(op, path string, opt DecodeOptions) (image.Image, error) {
	l := opt.limits(op)
	encoded, err := file(path, l)
	if err != nil {
		return nil, err
	}
	picture, err := decode(encoded, l)
	return picture, in(path, err)
}

// file reads a file. The error says where it was read.
func file(path string, l limits) ([]byte, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > l.bytes {
		return nil, in(path, invalid("the file has %d bytes, more than the %d that MaxBytes allows", size, l.bytes))
	}
	encoded := make([]byte, size)
	if _, err := io.ReadFull(f, encoded); err != nil {
		return nil, in(path, early(err))
	}
	return encoded, nil
}

// DecodeImage is [ReadImage] for the bytes of a file. The Path of its errors is "input".
func DecodeImage(encoded []byte, opts ...DecodeOptions) (image.Image, error) {
	return decodeBytes("imageio.DecodeImage", encoded, args.Option(opts))
}

func decodeBytes(op string, encoded []byte, opt DecodeOptions) (image.Image, error) {
	l := opt.limits(op)
	if err := l.length(encoded); err != nil {
		return nil, in("input", err)
	}
	picture, err := decode(encoded, l)
	return picture, in("input", err)
}

func (l limits) length(encoded []byte) error {
	if int64(len(encoded)) > l.bytes {
		return invalid("the picture has %d bytes, more than the %d that MaxBytes allows", len(encoded), l.bytes)
	}
	return nil
}

// in says of which file an error is.
func in(path string, err error) error {
	if err == nil {
		return nil
	}
	return &data.FileError{Path: path, Err: err}
}

func invalid(format string, values ...any) error {
	return &gotorch.Error{Kind: gotorch.ValueError, Msg: fmt.Sprintf(format, values...)}
}

// Of the formats that these are, no file has more pixels for each of its bytes: a byte of a PNG unpacks to 1032 at most,
// of 8 pixels each. One that claims more is cut short, and memory for it would be taken in vain.
const mostPixelsPerByte = 8 * 1032

var bounded = map[string]bool{"png": true, "jpeg": true, "gif": true, "bmp": true, "pnm": true}

func decode(encoded []byte, l limits) (picture image.Image, err error) {
	// Decoders of other people's are held to errors, too.
	defer func() {
		if r := recover(); r != nil {
			picture, err = nil, invalid("the picture is damaged: its decoder failed with %v", r)
		}
	}()
	if isJPEG(encoded) {
		return jpegImage(encoded, l)
	}
	if kind := unreadable(encoded); kind != "" {
		return nil, unsupported(errors.New(kind + " is not supported"))
	}
	config, format, err := image.DecodeConfig(bytes.NewReader(encoded))
	if err != nil {
		if err == image.ErrFormat {
			return nil, invalid("it is no picture in a known format: it begins with % x", encoded[:min(8, len(encoded))])
		}
		return nil, ofDecoder(err)
	}
	if err := l.size(config.Width, config.Height, format, len(encoded)); err != nil {
		return nil, err
	}
	picture, _, err = image.Decode(bytes.NewReader(encoded))
	if err != nil {
		return nil, ofDecoder(err)
	}
	if p, ok := picture.(*image.Paletted); ok && format == "gif" {
		picture = onScreen(p, image.Rect(0, 0, config.Width, config.Height))
	}
	if b := picture.Bounds(); b.Dx() != config.Width || b.Dy() != config.Height {
		return nil, invalid("the picture is damaged: it is %d wide and %d high, and should be %d and %d", b.Dx(), b.Dy(), config.Width, config.Height)
	}
	if l.orient {
		picture = turn(picture, orientation(encoded, format))
	}
	return picture, nil
}

// ofDecoder is the error for a picture that a decoder does not read: some are whole, and of a kind that it does not know.
func ofDecoder(err error) error {
	if _, is := errors.AsType[jpeg.UnsupportedError](err); is {
		return unsupported(err)
	}
	if _, is := errors.AsType[tiff.UnsupportedError](err); is || err == tiff.FormatError("wrong number of samples for RGB") { // as RGBX has
		return unsupported(fmt.Errorf("%w: of TIFFs, CMYK, YCbCr, Lab, floats, JPEG and others are not read", err))
	}
	if _, is := errors.AsType[png.UnsupportedError](err); is || errors.Is(err, bmp.ErrUnsupported) {
		return unsupported(err)
	}
	return damaged(err)
}

func unsupported(err error) error {
	return fmt.Errorf("the picture cannot be read: %w (convert it, to a PNG for example)", err)
}

// unreadable names the kind of a picture that no decoder here knows, and that is common; empty: it is another.
func unreadable(encoded []byte) string {
	begins := func(at int, text string) bool {
		return len(encoded) >= at && bytes.HasPrefix(encoded[at:], []byte(text))
	}
	switch {
	case begins(0, "RIFF") && begins(8, "WEBPVP8X") && len(encoded) > 20 && encoded[20]&2 != 0:
		return "webp: an animation"
	case begins(0, "II+\x00") || begins(0, "MM\x00+"):
		return "tiff: BigTIFF"
	case begins(4, "ftypavif") || begins(4, "ftypavis"):
		return "AVIF"
	case begins(4, "ftyphei") || begins(4, "ftypmif1") || begins(4, "ftyphev"):
		return "HEIF"
	case begins(4, "jP  \r\n") || begins(0, "\xffO\xffQ"):
		return "JPEG 2000"
	case begins(4, "JXL \r\n") || begins(0, "\xff\n"):
		return "JPEG XL"
	case begins(0, "\x00\x00\x01\x00"):
		return "an icon (ICO)"
	}
	return ""
}

func damaged(err error) error { return fmt.Errorf("the picture is damaged: %w", early(err)) }

// size checks the size that a picture says it has, of whose file there are so many bytes.
func (l limits) size(width, height int, format string, bytes int) error {
	w, h := int64(width), int64(height)
	switch {
	case w <= 0 || h <= 0:
		return invalid("the picture has no pixels: it is %d wide and %d high", w, h)
	case w > l.pixels/h:
		return invalid("the picture is %d wide and %d high, which is more than the %d pixels that MaxPixels allows", w, h, l.pixels)
	case bounded[format] && w*h > 1<<16+mostPixelsPerByte*int64(bytes):
		return invalid("the picture should be %d wide and %d high, and is cut short: it has %d bytes", w, h, bytes)
	}
	return nil
}

// onScreen lays the first frame of a GIF where it belongs on its screen. What it leaves free is transparent, or else of
// the first colour, as Pillow has it.
func onScreen(frame *image.Paletted, screen image.Rectangle) *image.Paletted {
	if frame.Rect == screen || !frame.Rect.In(screen) {
		return frame
	}
	whole := image.NewPaletted(screen, frame.Palette)
	for i, c := range frame.Palette {
		if _, _, _, alpha := c.RGBA(); alpha == 0 {
			for k := range whole.Pix {
				whole.Pix[k] = uint8(i)
			}
			break
		}
	}
	for y := frame.Rect.Min.Y; y < frame.Rect.Max.Y; y++ {
		at := frame.PixOffset(frame.Rect.Min.X, y)
		copy(whole.Pix[whole.PixOffset(frame.Rect.Min.X, y):], frame.Pix[at:at+frame.Rect.Dx()])
	}
	return whole
}

func early(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
