package imageio

import "image"

// fromYCbCr writes the colours of a picture, as color.YCbCrToRGB has them, into three planes. The
// decoder of WebP makes such pictures; a call for each pixel would take as long as half of the decoding.
func fromYCbCr(planes [][]uint8, img *image.YCbCr) {
	b := img.Rect
	w, h := b.Dx(), b.Dy()
	cb, cr := make([]uint8, w), make([]uint8, w)
	for y := range h {
		luma := img.Y[img.YOffset(b.Min.X, b.Min.Y+y):][:w]
		// The chroma of a row, as wide as the picture. Rows that share it come one after the other.
		if y == 0 || img.COffset(b.Min.X, b.Min.Y+y) != img.COffset(b.Min.X, b.Min.Y+y-1) {
			for x := range w {
				at := img.COffset(b.Min.X+x, b.Min.Y+y)
				cb[x], cr[x] = img.Cb[at], img.Cr[at]
			}
		}
		cb, cr := cb[:len(luma)], cr[:len(luma)]
		red, green, blue := planes[0][y*w:][:len(luma)], planes[1][y*w:][:len(luma)], planes[2][y*w:][:len(luma)]
		for x, l := range luma {
			red[x], green[x], blue[x] = rgb(l, cb[x], cr[x])
		}
	}
}

// rgb is color.YCbCrToRGB in a form that is inlined: JFIF's matrix in fixed point, of 16 bits behind the point.
func rgb(y, cb, cr uint8) (r, g, b uint8) {
	luma, blue, red := int32(y)*0x10101, int32(cb)-128, int32(cr)-128
	return byteOf(luma + 91881*red), byteOf(luma - 22554*blue - 46802*red), byteOf(luma + 116130*blue)
}

func byteOf(v int32) uint8 { return uint8(min(max(v>>16, 0), 255)) }
