package images

import (
	"image"
	"image/color"

	"gotorch.dev/gotorch"
)

// RGB makes a tensor of a picture: uint8 of shape (3, height, width). What is transparent is left opaque, a gray picture
// gets three equal channels, and of 16 bits to a channel the upper 8 are kept.
func RGB(picture image.Image) gotorch.Tensor {
	b := picture.Bounds()
	w, h := b.Dx(), b.Dy()
	pixels := make([]uint8, 3*w*h)
	fill(pixels, w*h, picture)
	return gotorch.FromBlob(pixels, 3, int64(h), int64(w))
}

// Gray makes a tensor of how bright a picture is: uint8 of shape (1, height, width). Of colours it is Pillow's
// convert("L"), 299 thousandths of red, 587 of green and 114 of blue.
func Gray(picture image.Image) gotorch.Tensor {
	b := picture.Bounds()
	w, h := b.Dx(), b.Dy()
	n := w * h
	pixels := make([]uint8, 3*n)
	fill(pixels, n, picture)
	gray := make([]uint8, n)
	for i := range gray {
		gray[i] = uint8((int(pixels[i])*19595 + int(pixels[n+i])*38470 + int(pixels[2*n+i])*7471 + 0x8000) >> 16)
	}
	return gotorch.FromBlob(gray, 1, int64(h), int64(w))
}

// fill writes the red of all n pixels, then the green, then the blue.
func fill(to []uint8, n int, picture image.Image) {
	b := picture.Bounds()
	w, h := b.Dx(), b.Dy()
	red, green, blue := to[:n], to[n:2*n], to[2*n:]
	switch p := picture.(type) {
	case *image.YCbCr:
		for y := range h {
			for x := range w {
				i, c := p.YOffset(b.Min.X+x, b.Min.Y+y), p.COffset(b.Min.X+x, b.Min.Y+y)
				red[y*w+x], green[y*w+x], blue[y*w+x] = color.YCbCrToRGB(p.Y[i], p.Cb[c], p.Cr[c])
			}
		}
	case *image.NYCbCrA:
		fill(to, n, &p.YCbCr)
	case *image.Gray:
		for y := range h {
			copy(red[y*w:][:w], p.Pix[p.PixOffset(b.Min.X, b.Min.Y+y):])
		}
		copy(green, red)
		copy(blue, red)
	case *image.Gray16:
		for y := range h {
			row := p.Pix[p.PixOffset(b.Min.X, b.Min.Y+y):]
			for x := range w {
				red[y*w+x] = row[2*x]
			}
		}
		copy(green, red)
		copy(blue, red)
	case *image.NRGBA:
		for y := range h {
			row := p.Pix[p.PixOffset(b.Min.X, b.Min.Y+y):]
			for x := range w {
				red[y*w+x], green[y*w+x], blue[y*w+x] = row[4*x], row[4*x+1], row[4*x+2]
			}
		}
	case *image.NRGBA64:
		for y := range h {
			row := p.Pix[p.PixOffset(b.Min.X, b.Min.Y+y):]
			for x := range w {
				red[y*w+x], green[y*w+x], blue[y*w+x] = row[8*x], row[8*x+2], row[8*x+4]
			}
		}
	case *image.Paletted:
		colours := make([][3]uint8, 256) // a pixel may be none of the palette
		for i, c := range p.Palette {
			colours[i&255] = opaque(c)
		}
		for y := range h {
			row := p.Pix[p.PixOffset(b.Min.X, b.Min.Y+y):]
			for x := range w {
				c := colours[row[x]]
				red[y*w+x], green[y*w+x], blue[y*w+x] = c[0], c[1], c[2]
			}
		}
	case *image.RGBA:
		for y := range h {
			row := p.Pix[p.PixOffset(b.Min.X, b.Min.Y+y):]
			for x := range w {
				c := [3]uint8{row[4*x], row[4*x+1], row[4*x+2]}
				if alpha := row[4*x+3]; alpha != 255 {
					c = opaque(color.RGBA{c[0], c[1], c[2], alpha})
				}
				red[y*w+x], green[y*w+x], blue[y*w+x] = c[0], c[1], c[2]
			}
		}
	default:
		for y := range h {
			for x := range w {
				c := opaque(picture.At(b.Min.X+x, b.Min.Y+y))
				red[y*w+x], green[y*w+x], blue[y*w+x] = c[0], c[1], c[2]
			}
		}
	}
}

// opaque returns a colour without its transparency.
func opaque(c color.Color) [3]uint8 {
	n := color.NRGBAModel.Convert(c).(color.NRGBA)
	return [3]uint8{n.R, n.G, n.B}
}
