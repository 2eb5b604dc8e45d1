package imageio

import (
	"image"
	"image/color"
	"testing"
)

func TestColoursOfYCbCrAreGos(t *testing.T) {
	for y := range 256 {
		for cb := range 256 {
			for cr := range 256 {
				r, g, b := rgb(uint8(y), uint8(cb), uint8(cr))
				if wr, wg, wb := color.YCbCrToRGB(uint8(y), uint8(cb), uint8(cr)); r != wr || g != wg || b != wb {
					t.Fatalf("(%d, %d, %d) is (%d, %d, %d), not (%d, %d, %d)", y, cb, cr, r, g, b, wr, wg, wb)
				}
			}
		}
	}
}

func TestEachPixelOfYCbCrHasItsChroma(t *testing.T) {
	for ratio := image.YCbCrSubsampleRatio444; ratio <= image.YCbCrSubsampleRatio410; ratio++ {
		whole := image.NewYCbCr(image.Rect(0, 0, 23, 19), ratio)
		for i := range whole.Y {
			whole.Y[i] = uint8(i * 7)
		}
		for i := range whole.Cb {
			whole.Cb[i], whole.Cr[i] = uint8(i*31), uint8(i*57+5)
		}
		for _, part := range []image.Rectangle{whole.Rect, image.Rect(1, 1, 22, 18), image.Rect(3, 5, 4, 6), image.Rect(2, 3, 23, 4)} {
			img := whole.SubImage(part).(*image.YCbCr)
			w, h := part.Dx(), part.Dy()
			got := make([]uint8, 3*w*h)
			fill8(got, img, RGB)
			for y := range h {
				for x := range w {
					c := color.NRGBAModel.Convert(img.At(part.Min.X+x, part.Min.Y+y)).(color.NRGBA)
					for plane, want := range []uint8{c.R, c.G, c.B} {
						if v := got[plane*w*h+y*w+x]; v != want {
							t.Fatalf("%v, %v: plane %d at (%d, %d) is %d, not %d", ratio, part, plane, x, y, v, want)
						}
					}
				}
			}
		}
	}
}
