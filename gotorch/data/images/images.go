// Package images decodes pictures of JPEG, PNG, GIF, WebP, BMP, TIFF and PNM (.ppm, .pgm, .pbm), and makes tensors of
// them.
//
//	picture, err := images.Open("cat.jpg")
//	t := images.RGB(picture) // uint8 of shape (3, height, width), as torchvision.io.decode_image makes it
//
// Pictures come from anywhere: what they say of their size is checked before any memory is taken for it, and what they
// are is told by their first bytes, not by their names. What is wrong with one is a *data.FileError.
//
// A photograph may lie on its side, with a note in it (EXIF) of how to turn it. As torchvision does, this package leaves
// it so, unless the option Orient says otherwise.
//
// PNG, GIF, BMP, TIFF and PNM decode to the same numbers as in Python. The arithmetic of JPEG and WebP is not fixed to the
// last bit: where a picture's colours are stored at half its resolution, libjpeg smooths them and Go does not.
package images

import (
	"bytes"
	"fmt"
	"image"
	_ "image/gif"  // decoders
	_ "image/jpeg" // decoders
	_ "image/png"  // decoders
	"io"

	_ "golang.org/x/image/bmp"  // decoders
	_ "golang.org/x/image/tiff" // decoders
	_ "golang.org/x/image/webp" // decoders

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/internal/files"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/regular"
)

// Options say what pictures are taken, and how.
type Options struct {
	MaxPixels gotorch.Scalar // width times height of the largest picture; default: 89478485, as Pillow's
	MaxBytes  gotorch.Scalar // length of the longest file; default: 1<<28
	Orient    bool           // turn a picture as its EXIF says, as PIL.ImageOps.exif_transpose does
}

// Limits are options that were checked.
type limits struct {
	pixels, bytes int64
	orient        bool
}

func (o Options) limits(op string) limits {
	l := limits{args.Int(op, "MaxPixels", o.MaxPixels, 89478485), args.Int(op, "MaxBytes", o.MaxBytes, 1<<28), o.Orient}
	if l.pixels < 1 || l.bytes < 1 {
		panic(args.ValueError(op, "MaxPixels and MaxBytes must be positive, but got %d and %d", l.pixels, l.bytes))
	}
	return l
}

// Open decodes the picture of a file. The error is an *fs.PathError where it cannot be read.
func Open(path string, opts ...Options) (image.Image, error) {
	l := args.Option(opts).limits("images.Open")
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > l.bytes {
		return nil, files.Errorf(path, "", "the file has %d bytes, more than the %d that MaxBytes allows", size, l.bytes)
	}
	encoded := make([]byte, size)
	if _, err := io.ReadFull(f, encoded); err != nil {
		return nil, files.Wrap(path, "", err)
	}
	picture, err := decode(encoded, l)
	return picture, in(path, err)
}

// Decode decodes a picture. What is wrong with it is a *data.FileError whose Path is "input".
func Decode(encoded []byte, opts ...Options) (image.Image, error) {
	l := args.Option(opts).limits("images.Decode")
	if int64(len(encoded)) > l.bytes {
		return nil, files.Errorf("input", "", "the picture has %d bytes, more than the %d that MaxBytes allows", len(encoded), l.bytes)
	}
	picture, err := decode(encoded, l)
	return picture, in("input", err)
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
	config, format, err := image.DecodeConfig(bytes.NewReader(encoded))
	if err != nil {
		if err == image.ErrFormat {
			return nil, invalid("it is no picture in a known format: it begins with % x", encoded[:min(8, len(encoded))])
		}
		return nil, fmt.Errorf("the picture is damaged: %w", early(err))
	}
	w, h := int64(config.Width), int64(config.Height)
	switch {
	case w <= 0 || h <= 0:
		return nil, invalid("the picture has no pixels: it is %d wide and %d high", w, h)
	case w > l.pixels/h:
		return nil, invalid("the picture is %d wide and %d high, which is more than the %d pixels that MaxPixels allows", w, h, l.pixels)
	case bounded[format] && w*h > 1<<16+mostPixelsPerByte*int64(len(encoded)):
		return nil, invalid("the picture should be %d wide and %d high, and is cut short: it has %d bytes", w, h, len(encoded))
	}
	picture, _, err = image.Decode(bytes.NewReader(encoded))
	if err != nil {
		return nil, fmt.Errorf("the picture is damaged: %w", early(err))
	}
	if l.orient {
		picture = turn(picture, orientation(encoded, format))
	}
	return picture, nil
}

func early(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
