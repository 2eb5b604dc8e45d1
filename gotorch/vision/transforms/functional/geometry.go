package functional

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/cpu"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/libm"
	F "gotorch.dev/gotorch/nn/functional"
)

// HorizontalFlip mirrors left and right.
//
// torchvision: horizontal_flip and hflip.
func HorizontalFlip(image gotorch.Tensor) gotorch.Tensor {
	hw("functional.HorizontalFlip", image)
	return image.Flip([]int64{-1})
}

// VerticalFlip mirrors top and bottom.
//
// torchvision: vertical_flip and vflip.
func VerticalFlip(image gotorch.Tensor) gotorch.Tensor {
	hw("functional.VerticalFlip", image)
	return image.Flip([]int64{-2})
}

// ResizeOptions are the arguments of [Resize] that have defaults.
type ResizeOptions struct {
	Interpolation Interpolation // default: Bilinear
	// MaxSize is what the longer edge has at most, where size is one number: then the shorter one may get less.
	MaxSize gotorch.Scalar
	// NoAntialias has bilinear and bicubic interpolation look at the nearest pixels only, also where an image becomes
	// smaller. The default is what Pillow does.
	NoAntialias bool
}

// Resize gives an image another height and width. If size is one number, the shorter edge gets it and
// the ratio of the edges stays; if it is two, they are the height and the width. A nil slice with MaxSize gives
// the longer edge that. It panics with a ValueError for sizes that are not positive.
//
// torchvision: resize.
func Resize[S Sizes](image gotorch.Tensor, size S, opts ...ResizeOptions) gotorch.Tensor {
	return resize("functional.Resize", image, args.Ints(size), args.Option(opts))
}

func resize(op string, image gotorch.Tensor, size []int64, opt ResizeOptions) gotorch.Tensor {
	mode := opt.Interpolation.or(op, Bilinear)
	if mode == Lanczos && opt.NoAntialias {
		panic(args.ValueError(op, "lanczos interpolation is antialiased"))
	}
	c, h, w := chw(op, image)
	newH, newW := resized(op, h, w, size, opt.MaxSize)
	if newH == h && newW == w {
		return image
	}
	shape := sized(image.Shape(), newH, newW)
	if image.Numel() == 0 {
		return image.Reshape(shape)
	}
	return lean(func() gotorch.Tensor {
		d := image.DType()
		linear := mode == Bilinear || mode == Bicubic || mode == Lanczos
		native := d == gotorch.Float32 || d == gotorch.Float64
		if d == gotorch.Uint8 {
			native = !linear || image.Device().Type() == gotorch.DeviceTypeCPU && (mode != Bilinear || fastBytes())
		}
		x := batched(image, c, h, w)
		// One image whose channels lie next to each other is taken for such by libtorch only if its first stride says so.
		if strides := x.Strides(); x.Size(0) == 1 && x.Numel() != strides[0] && x.IsContiguousMemoryFormat(gotorch.ChannelsLast) {
			x = x.AsStrided(x.Shape(), append([]int64{x.Numel()}, strides[1:]...))
		}
		if !native {
			x = x.To(gotorch.Float32)
		}
		o := F.InterpolateOptions{Size: []int64{newH, newW}, Mode: F.InterpolateMode(mode), Antialias: linear && !opt.NoAntialias}
		x = F.Interpolate(x, o)
		if !native {
			if mode != Bilinear && linear && d == gotorch.Uint8 {
				x = clamp_(x, 0, 255)
			}
			switch d {
			case gotorch.Uint8, gotorch.Int8, gotorch.Int16, gotorch.Int32, gotorch.Int64: // torchvision truncates others
				x = x.Round_()
			}
			x = x.To(d)
		}
		return x.Reshape(shape)
	})
}

// fastBytes reports whether the bilinear interpolation of bytes has kernels of its own on this processor.
var fastBytes = sync.OnceValue(func() bool {
	switch os.Getenv("ATEN_CPU_CAPABILITY") {
	case "default":
		return runtime.GOARCH == "arm64"
	case "avx2", "avx512":
		return true
	}
	return runtime.GOARCH == "arm64" || cpu.X86.HasAVX2 && cpu.X86.HasFMA
})

// resized is the height and the width that a size means.
func resized(op string, h, w int64, size []int64, maxSize gotorch.Scalar) (newH, newW int64) {
	longest := args.IntPointer(op, "MaxSize", maxSize)
	if len(size) > 2 || len(size) == 0 && longest == nil {
		panic(args.ValueError(op, "size must be one number or two, or none with MaxSize, not %v", size))
	}
	if slices.Min(append(slices.Clone(size), args.Or(longest, 1))) <= 0 {
		panic(args.ValueError(op, "size and MaxSize must be positive, not %v and %v", size, maxSize))
	}
	if len(size) == 2 {
		if longest != nil {
			panic(args.ValueError(op, "MaxSize is for a size of one number, not of two"))
		}
		return size[0], size[1]
	}
	short, long := min(h, w), max(h, w)
	if long == 0 || short == 0 && len(size) == 1 {
		panic(args.ValueError(op, "an image of %d×%d has no ratio of edges: give a height and a width", h, w))
	}
	var newShort, newLong int64
	switch {
	case len(size) == 0:
		newLong = *longest
		newShort = int64(float64(*longest*short) / float64(long))
	default:
		newShort = size[0]
		newLong = int64(float64(size[0]*long) / float64(short))
		if longest != nil {
			if *longest <= size[0] {
				panic(args.ValueError(op, "MaxSize must be more than the size of the shorter edge, but they are %d and %d", *longest, size[0]))
			}
			if newLong > *longest {
				newShort, newLong = int64(float64(*longest*newShort)/float64(newLong)), *longest
			}
		}
	}
	if newShort == 0 && short > 0 {
		panic(args.ValueError(op, "the shorter edge of %d×%d would have no pixel left", h, w))
	}
	if w <= h {
		return newLong, newShort
	}
	return newShort, newLong
}

// GridOptions are the arguments of [Perspective] and [Elastic] that have defaults.
type GridOptions struct {
	Interpolation Interpolation // Nearest or Bilinear; default: Bilinear
	Fill          []float64     // the colour outside of the image, one number or one a channel; nil is black
}

// AffineOptions are the arguments of [Affine] that have defaults.
type AffineOptions struct {
	Interpolation Interpolation // Nearest or Bilinear; default: Nearest
	Fill          []float64     // the colour outside of the image, one number or one a channel; nil is black
	Center        []float64     // x and y in pixels; nil is the image's
}

// Affine moves, turns, scales and shears an image, which keeps its size. angle is in degrees, clockwise; translate in
// pixels, to the right and down; shear in degrees, one number for both directions or x and y. It panics with a ValueError
// for a scale that is not positive, and where numbers are missing.
//
// torchvision: affine.
func Affine(image gotorch.Tensor, angle float64, translate []float64, scale float64, shear []float64, opts ...AffineOptions) gotorch.Tensor {
	const op = "functional.Affine"
	opt := args.Option(opts)
	mode := opt.Interpolation.or(op, Nearest)
	_, h, w := chw(op, image)
	m := affineMatrix(op, offset(op, opt.Center, h, w), angle, translate, scale, shear, true)
	checkGrid(op, image, mode, opt.Fill)
	return lean(func() gotorch.Tensor {
		return onGrid(image, affineGrid(image, m, w, h, w, h), mode, opt.Fill)
	})
}

// offset is where a center is, seen from the middle of the image.
func offset(op string, center []float64, h, w int64) [2]float64 {
	switch len(center) {
	case 0:
		return [2]float64{}
	case 2:
		return [2]float64{center[0] - float64(w)*0.5, center[1] - float64(h)*0.5}
	}
	panic(args.ValueError(op, "Center must be two numbers, x and y, not %v", center))
}

// degree is one in radians, rounded as C rounds the quotient.
const degree = float64(math.Pi) / 180

// affineMatrix is the first two rows of an affine matrix about a center, or of its inverse. Products are rounded before
// they are added, as Python's are.
func affineMatrix(op string, center [2]float64, angle float64, translate []float64, scale float64, shear []float64, inverse bool) [6]float64 {
	if len(translate) != 2 {
		panic(args.ValueError(op, "translate must be two numbers, not %v", translate))
	}
	if scale <= 0 {
		panic(args.ValueError(op, "scale must be positive, but is %v", scale))
	}
	if len(shear) == 1 {
		shear = []float64{shear[0], shear[0]}
	}
	if len(shear) != 2 {
		panic(args.ValueError(op, "shear must be one number or two, not %v", shear))
	}
	rot, sx, sy := float64(angle*degree), float64(shear[0]*degree), float64(shear[1]*degree)
	cx, cy := center[0], center[1]
	cosSY, tanSX := libm.Cos(sy), libm.Tan(sx)
	farX, farY := cx+translate[0], cy+translate[1]
	a := libm.Cos(rot-sy) / cosSY
	b := -(float64(a*tanSX) + libm.Sin(rot))
	c := libm.Sin(rot-sy) / cosSY
	d := libm.Cos(rot) - float64(c*tanSX)
	if inverse {
		m := [6]float64{d / scale, -b / scale, 0, -c / scale, a / scale, 0}
		m[2] += cx - float64(m[0]*farX) - float64(m[1]*farY)
		m[5] += cy - float64(m[3]*farX) - float64(m[4]*farY)
		return m
	}
	m := [6]float64{a * scale, b * scale, 0, c * scale, d * scale, 0}
	m[2] += farX - float64(m[0]*cx) - float64(m[1]*cy)
	m[5] += farY - float64(m[3]*cx) - float64(m[4]*cy)
	return m
}

// affineGrid is where the pixels of a result of ow×oh come from in an image of w×h: (1, oh, ow, 2), from -1 to 1.
func affineGrid(image gotorch.Tensor, m [6]float64, w, h, ow, oh int64) gotorch.Tensor {
	d := floating(image)
	theta := numbers(image, d, m[:]...).Reshape([]int64{1, 2, 3})
	base := gotorch.Empty([]int64{1, oh, ow, 3}, like(image, d))
	line := func(n int64) gotorch.Tensor {
		return gotorch.Linspace((1.0-float64(n))*0.5, (float64(n)-1.0)*0.5, n, like(image, gotorch.Float32))
	}
	base.Select(-1, 0).Copy_(line(ow))
	base.Select(-1, 1).Copy_(line(oh).Unsqueeze(-1))
	base.Select(-1, 2).Fill_(1)
	theta = theta.Transpose(1, 2).Div_(numbers(image, d, 0.5*float64(w), 0.5*float64(h)))
	return base.View([]int64{1, oh * ow, 3}).BMM(theta).View([]int64{1, oh, ow, 2})
}

// checkGrid panics with a ValueError where an image cannot be looked at through a grid.
func checkGrid(op string, image gotorch.Tensor, mode Interpolation, fill []float64) {
	if mode != Nearest && mode != Bilinear {
		panic(args.ValueError(op, "Interpolation must be nearest or bilinear, not %s", mode))
	}
	if c := image.Size(-3); len(fill) > 1 && int64(len(fill)) != c || fill != nil && len(fill) == 0 {
		panic(args.ValueError(op, "Fill must have one number, or one for each of the %d channels, not %d", c, len(fill)))
	}
}

// onGrid takes the pixels of an image from where a grid says.
func onGrid(image, grid gotorch.Tensor, mode Interpolation, fill []float64) gotorch.Tensor {
	oh, ow := grid.Size(1), grid.Size(2)
	c, h, w := image.Size(-3), image.Size(-2), image.Size(-1)
	shape := sized(image.Shape(), oh, ow)
	if image.Numel() == 0 {
		return image.Reshape(shape)
	}
	d := image.DType()
	x := batched(image, c, h, w)
	n := x.Size(0)
	float := d == grid.DType()
	x = x.To(grid.DType())
	if n > 1 {
		grid = grid.Expand([]int64{n, -1, -1, -1})
	}
	if fill != nil { // one channel more says where there is an image
		x = gotorch.Cat([]gotorch.Tensor{x, x.NewOnes([]int64{n, 1, h, w})}, gotorch.CatOptions{Dim: 1})
	}
	x = F.GridSample(x, grid, F.GridSampleOptions{Mode: F.InterpolateMode(mode)})
	if fill != nil {
		mask := x.Narrow(1, c, 1)
		x = x.Narrow(1, 0, c)
		mask = mask.ExpandAs(x)
		colour := numbers(x, x.DType(), fill...).View([]int64{1, -1, 1, 1})
		if mode == Nearest {
			x = gotorch.Where(mask.LtScalar(0.5), colour.ExpandAs(x), x)
		} else {
			x = x.Sub_(colour).Mul_(mask).Add_(colour)
		}
	}
	if !float {
		x = x.Round_().To(d)
	}
	return x.Reshape(shape)
}

// RotateOptions are the arguments of [Rotate] that have defaults.
type RotateOptions struct {
	Interpolation Interpolation // Nearest or Bilinear; default: Nearest
	Expand        bool          // make the image as large as what is turned needs
	Fill          []float64     // the colour outside of the image, one number or one a channel; nil is black
	Center        []float64     // x and y in pixels; nil is the image's, which Expand supposes
}

// Rotate turns an image by degrees, counterclockwise.
//
// torchvision: rotate.
func Rotate(image gotorch.Tensor, angle float64, opts ...RotateOptions) gotorch.Tensor {
	const op = "functional.Rotate"
	opt := args.Option(opts)
	_, h, w := chw(op, image)
	if math.IsNaN(angle) || math.IsInf(angle, 0) {
		panic(args.ValueError(op, "the angle must be a number of degrees, not %v", angle))
	}
	if angle = math.Mod(angle, 360); angle < 0 { // as Python's %
		angle += 360
	}
	if opt.Center == nil {
		turn := func(k int64) gotorch.Tensor {
			return image.Rot90(gotorch.Rot90Options{K: &k, Dims: []int64{-2, -1}})
		}
		switch {
		case angle == 0:
			return image.Clone()
		case angle == 180:
			return turn(2)
		case angle == 90 && (opt.Expand || h == w):
			return turn(1)
		case angle == 270 && (opt.Expand || h == w):
			return turn(3)
		}
	}
	mode := opt.Interpolation.or(op, Nearest)
	// Rotations go the other way round than those of affine.
	m := affineMatrix(op, offset(op, opt.Center, h, w), -angle, []float64{0, 0}, 1, []float64{0, 0}, true)
	checkGrid(op, image, mode, opt.Fill)
	return lean(func() gotorch.Tensor {
		ow, oh := w, h
		if opt.Expand {
			ow, oh = expanded(m, w, h)
		}
		return onGrid(image, affineGrid(image, m, w, h, ow, oh), mode, opt.Fill)
	})
}

// expanded is the size that an image needs when it is transformed with the inverse of m.
func expanded(m [6]float64, w, h int64) (ow, oh int64) {
	x, y := float32(0.5*float64(w)), float32(0.5*float64(h))
	corners := gotorch.NewTensor([][]float32{{-x, -y, 1}, {-x, y, 1}, {x, y, 1}, {x, -y, 1}})
	theta := gotorch.NewTensor(m[:], gotorch.TensorOptions{DType: gotorch.Float32}).View([]int64{2, 3})
	low, high := corners.MatMul(theta.Transpose2D()).AMinMax(gotorch.AMinMaxOptions{Dim: new(int64(0))})
	half := gotorch.FromSlice([]float32{x, y})
	// Cut off at 1e-4, for what should be a whole number may be a little more.
	const tolerance = 1e-4
	cut := func(t gotorch.Tensor) gotorch.Tensor {
		return t.Add_(half).MulScalar_(1.0 / tolerance).Trunc_().MulScalar_(tolerance)
	}
	size := gotorch.ToSlice[float64](cut(high).Ceil_().Sub_(cut(low).Floor_()))
	return int64(size[0]), int64(size[1])
}

// PaddingMode is what [Pad] puts around an image.
type PaddingMode string

// The ways to pad: with a colour, with the pixels at the border, or with the image mirrored, without and with the
// pixels at the border themselves.
const (
	Constant  PaddingMode = "constant"
	Edge      PaddingMode = "edge"
	Reflect   PaddingMode = "reflect"
	Symmetric PaddingMode = "symmetric"
)

// PadOptions are the arguments of [Pad] that have defaults.
type PadOptions struct {
	Fill        []float64   // the colour, one number or one a channel; nil is 0
	PaddingMode PaddingMode // default: Constant
}

// Pad puts pixels around an image: padding is one number for all sides, two for left and right and for top and bottom, or
// four for left, top, right and bottom. Negative ones take pixels away, with Constant and Symmetric. It panics with a
// ValueError for other lists, and for several numbers of Fill in another mode than Constant.
//
// torchvision: pad.
func Pad(image gotorch.Tensor, padding []int64, opts ...PadOptions) gotorch.Tensor {
	const op = "functional.Pad"
	return pad(op, image, sides(op, padding), args.Option(opts))
}

// sides are the paddings at left, right, top and bottom.
func sides(op string, padding []int64) [4]int64 {
	switch p := padding; len(p) {
	case 1:
		return [4]int64{p[0], p[0], p[0], p[0]}
	case 2:
		return [4]int64{p[0], p[0], p[1], p[1]}
	case 4:
		return [4]int64{p[0], p[2], p[1], p[3]}
	}
	panic(args.ValueError(op, "padding must be 1, 2 or 4 numbers, not %v", padding))
}

func pad(op string, image gotorch.Tensor, p [4]int64, opt PadOptions) gotorch.Tensor {
	c, h, w := chw(op, image)
	fill := 0.0
	switch opt.PaddingMode {
	case "", Constant, Edge, Reflect, Symmetric:
	default:
		panic(args.ValueError(op, "PaddingMode must be constant, edge, reflect or symmetric, not %q", string(opt.PaddingMode)))
	}
	if len(opt.Fill) == 1 {
		fill = opt.Fill[0]
	} else if opt.Fill != nil {
		if opt.PaddingMode != "" && opt.PaddingMode != Constant {
			panic(args.ValueError(op, "Fill must be one number with the PaddingMode %s", opt.PaddingMode))
		}
		if int64(len(opt.Fill)) != c {
			panic(args.ValueError(op, "Fill must have one number, or one for each of the %d channels, not %d", c, len(opt.Fill)))
		}
	}
	for _, n := range p {
		if n < -1<<31 || n > 1<<31 {
			panic(args.ValueError(op, "padding must be numbers of pixels, not %v", p))
		}
	}
	return lean(func() gotorch.Tensor {
		shape, d := image.Shape(), image.DType()
		x := batched(image, c, h, w)
		switch opt.PaddingMode {
		case "", Constant:
			x = F.Pad(x, p[:], F.PadOptions{Value: fill})
		case Symmetric:
			x = padSymmetric(op, x, p)
		default:
			mode := F.PadReflect
			if opt.PaddingMode == Edge {
				mode = F.PadReplicate
			}
			// libtorch has these for floats only.
			x = F.Pad(x.To(floating(x)), p[:], F.PadOptions{Mode: mode}).To(d)
		}
		out := x.Reshape(sized(shape, x.Size(-2), x.Size(-1)))
		if len(opt.Fill) > 1 {
			colour := gotorch.NewTensor(opt.Fill, gotorch.TensorOptions{DType: gotorch.Float32}).To(like(image, d).Device, d).Reshape([]int64{-1, 1, 1})
			left, right, top, bottom := p[0], p[1], p[2], p[3]
			oh, ow := out.Size(-2), out.Size(-1)
			for _, part := range []struct{ dim, start, n, all int64 }{{-2, 0, top, oh}, {-1, 0, left, ow}, {-2, oh - bottom, bottom, oh}, {-1, ow - right, right, ow}} {
				if n := min(part.n, part.all); n > 0 {
					out.Narrow(part.dim, max(part.start, 0), n).Copy_(colour)
				}
			}
		}
		return out
	})
}

// padSymmetric mirrors an image at its borders, once, and takes away where padding is negative.
func padSymmetric(op string, x gotorch.Tensor, p [4]int64) gotorch.Tensor {
	at := func(n, before, after int64) gotorch.Tensor {
		start, end := max(-before, 0), n-max(-after, 0)
		if start > end {
			panic(args.ValueError(op, "padding takes more pixels away than the image of %v has", x.Shape()[2:]))
		}
		left := end - start
		if max(before, after) > left {
			panic(args.ValueError(op, "padding must not be more than the image of %v with the PaddingMode symmetric", x.Shape()[2:]))
		}
		var list []int64
		for i := max(before, 0) - 1; i >= 0; i-- {
			list = append(list, start+i)
		}
		for i := range left {
			list = append(list, start+i)
		}
		for i := range max(after, 0) {
			list = append(list, end-1-i)
		}
		return gotorch.NewTensor(list, like(x, gotorch.Int64)).Reshape([]int64{-1})
	}
	if x.Numel() == 0 && x.Size(2) > 0 && x.Size(3) > 0 { // there is nothing to mirror, and no border to go beyond
		return x.NewEmpty([]int64{x.Size(0), x.Size(1), max(x.Size(2)+p[2]+p[3], 0), max(x.Size(3)+p[0]+p[1], 0)})
	}
	rows, columns := at(x.Size(2), p[2], p[3]), at(x.Size(3), p[0], p[1])
	return x.IndexTensors([]gotorch.Tensor{{}, {}, rows.Unsqueeze(-1), columns.Unsqueeze(0)})
}

// Crop cuts a rectangle out of an image. What it has beyond the image is black. It panics with a ValueError for a
// negative height or width.
//
// torchvision: crop.
func Crop(image gotorch.Tensor, top, left, height, width int64) gotorch.Tensor {
	return crop("functional.Crop", image, top, left, height, width)
}

func crop(op string, image gotorch.Tensor, top, left, height, width int64) gotorch.Tensor {
	h, w := hw(op, image)
	if height < 0 || width < 0 || max(height, width, top, left, -top, -left) > 1<<31 {
		panic(args.ValueError(op, "the height and the width must be numbers of pixels, not %d and %d from (%d, %d)", height, width, top, left))
	}
	bottom, right := top+height, left+width
	t0, t1 := min(max(top, 0), h), min(max(bottom, 0), h)
	l0, l1 := min(max(left, 0), w), min(max(right, 0), w)
	return lean(func() gotorch.Tensor {
		out := image.Narrow(-2, t0, max(t1-t0, 0)).Narrow(-1, l0, max(l1-l0, 0))
		if left < 0 || top < 0 || right > w || bottom > h {
			above, before := min(max(-top, 0), height), min(max(-left, 0), width)
			if out.Size(-2) == 0 {
				above = height
			}
			if out.Size(-1) == 0 {
				before = width
			}
			out = F.Pad(out, []int64{before, width - before - out.Size(-1), above, height - above - out.Size(-2)})
		}
		return out
	})
}

// CenterCrop cuts the middle out of an image; where it is too small, black is put around it.
//
// torchvision: center_crop.
func CenterCrop[S Sizes](image gotorch.Tensor, outputSize S) gotorch.Tensor {
	const op = "functional.CenterCrop"
	h, w := pair(op, "outputSize", outputSize)
	return centerCrop(op, image, h, w)
}

func centerCrop(op string, image gotorch.Tensor, ch, cw int64) gotorch.Tensor {
	h, w := hw(op, image)
	if image.Numel() == 0 {
		shape := sized(image.Shape(), ch, cw)
		if slices.Contains(shape, 0) {
			return image.Reshape(shape)
		}
		panic(args.ValueError(op, "an image of %v has no pixels to crop", image.Shape()))
	}
	return lean(func() gotorch.Tensor {
		if ch > h || cw > w {
			dh, dw := max(ch-h, 0), max(cw-w, 0)
			image = F.Pad(image, []int64{dw / 2, (dw + 1) / 2, dh / 2, (dh + 1) / 2}, F.PadOptions{Value: 0.0})
			h, w = image.Size(-2), image.Size(-1)
			if ch == h && cw == w {
				return image
			}
		}
		top, left := centered(ch, cw, h, w)
		return image.Narrow(-2, top, ch).Narrow(-1, left, cw)
	})
}

// centered is where a crop of the middle begins.
func centered(ch, cw, h, w int64) (top, left int64) {
	return int64(math.RoundToEven(float64(h-ch) / 2)), int64(math.RoundToEven(float64(w-cw) / 2))
}

// ResizedCrop is [Crop] and then [Resize].
//
// torchvision: resized_crop.
func ResizedCrop[S Sizes](image gotorch.Tensor, top, left, height, width int64, size S, opts ...ResizeOptions) gotorch.Tensor {
	const op = "functional.ResizedCrop"
	opt := args.Option(opts)
	return lean(func() gotorch.Tensor {
		return resize(op, crop(op, image, top, left, height, width), args.Ints(size), opt)
	})
}

// PerspectiveCoefficients are the eight numbers of the transform that takes endpoints to startpoints, each of which are
// four points x and y, in the order top left, top right, bottom right and bottom left.
//
// torchvision: what perspective makes of startpoints and endpoints.
func PerspectiveCoefficients(startPoints, endPoints [4][2]int64) [8]float64 {
	var a [8][8]float64
	var b [8]float64
	for i, end := range endPoints {
		start := startPoints[i]
		x, y, u, v := float64(end[0]), float64(end[1]), float64(start[0]), float64(start[1])
		a[2*i] = [8]float64{x, y, 1, 0, 0, 0, -u * x, -u * y}
		a[2*i+1] = [8]float64{0, 0, 0, x, y, 1, -v * x, -v * y}
		b[2*i], b[2*i+1] = u, v
	}
	return gotorch.Scope(func(*gotorch.ScopeHandle) (c [8]float64) {
		matrix := gotorch.NewTensor(slices.Concat(a[0][:], a[1][:], a[2][:], a[3][:], a[4][:], a[5][:], a[6][:], a[7][:])).View([]int64{8, 8})
		solution, _, _, _ := gotorch.LinalgLstsq(matrix, gotorch.NewTensor(b[:]), gotorch.LinalgLstsqOptions{Driver: new("gels")})
		copy(c[:], gotorch.ToSlice[float64](solution.To(gotorch.Float32)))
		return c
	})
}

// Perspective looks at an image from aside: pixel (x, y) of the result comes from
// ((c0·x + c1·y + c2) / (c6·x + c7·y + 1), (c3·x + c4·y + c5) / (c6·x + c7·y + 1)). [PerspectiveCoefficients] makes the
// coefficients of four points.
//
// torchvision: perspective.
func Perspective(image gotorch.Tensor, coefficients [8]float64, opts ...GridOptions) gotorch.Tensor {
	const op = "functional.Perspective"
	opt := args.Option(opts)
	mode := opt.Interpolation.or(op, Bilinear)
	_, h, w := chw(op, image)
	checkGrid(op, image, mode, opt.Fill)
	return lean(func() gotorch.Tensor {
		d := floating(image)
		c := coefficients
		theta1 := numbers(image, d, c[0], c[1], c[2], c[3], c[4], c[5]).View([]int64{1, 2, 3})
		theta2 := numbers(image, d, c[6], c[7], 1, c[6], c[7], 1).View([]int64{1, 2, 3})
		base := gotorch.Empty([]int64{1, h, w, 3}, like(image, d))
		line := func(n int64) gotorch.Tensor { return gotorch.Linspace(0.5, float64(n)+0.5-1, n, like(image, d)) }
		base.Select(-1, 0).Copy_(line(w))
		base.Select(-1, 1).Copy_(line(h).Unsqueeze(-1))
		base.Select(-1, 2).Fill_(1)
		theta1 = theta1.Transpose(1, 2).Div_(numbers(image, d, 0.5*float64(w), 0.5*float64(h)))
		flat := base.View([]int64{1, h * w, 3})
		grid := flat.BMM(theta1).Div_(flat.BMM(theta2.Transpose(1, 2))).SubScalar_(1.0)
		return onGrid(image, grid.View([]int64{1, h, w, 2}), mode, opt.Fill)
	})
}

// Elastic moves each pixel by a displacement of (1, H, W, 2), in x and y, where the image is 2 wide and 2 high. It panics
// with a ValueError for another shape.
//
// torchvision: elastic and elastic_transform.
func Elastic(image, displacement gotorch.Tensor, opts ...GridOptions) gotorch.Tensor {
	const op = "functional.Elastic"
	opt := args.Option(opts)
	mode := opt.Interpolation.or(op, Bilinear)
	_, h, w := chw(op, image)
	checkDisplacement(op, displacement, h, w)
	checkGrid(op, image, mode, opt.Fill)
	return lean(func() gotorch.Tensor {
		x := image
		if image.DType() == gotorch.Float16 && image.Device().Type() == gotorch.DeviceTypeCPU {
			x = image.To(gotorch.Float32)
		}
		d := floating(x)
		grid := identityGrid(x, d, h, w).Add_(displacement.To(x.Device(), d))
		return onGrid(x, grid, mode, opt.Fill).To(image.DType())
	})
}

func checkDisplacement(op string, displacement gotorch.Tensor, h, w int64) {
	if !displacement.Defined() {
		panic(args.TypeError(op, "the displacement is no tensor: it is the zero Tensor"))
	}
	if want := []int64{1, h, w, 2}; !slices.Equal(displacement.Shape(), want) {
		panic(args.ValueError(op, "the displacement must be of shape %v, not %v", want, displacement.Shape()))
	}
}

// identityGrid is the grid that changes nothing.
func identityGrid(t gotorch.Tensor, d gotorch.DType, h, w int64) gotorch.Tensor {
	grid := gotorch.Empty([]int64{1, h, w, 2}, like(t, d))
	line := func(n int64) gotorch.Tensor {
		return gotorch.Linspace((-float64(n)+1)/float64(n), (float64(n)-1)/float64(n), n, like(t, d))
	}
	grid.Select(-1, 0).Copy_(line(w))
	grid.Select(-1, 1).Copy_(line(h).Unsqueeze(-1))
	return grid
}

// FiveCrop cuts out the corners, top left, top right, bottom left and bottom right, and the middle. It panics with a
// ValueError if the image is smaller.
//
// torchvision: five_crop.
func FiveCrop[S Sizes](image gotorch.Tensor, size S) []gotorch.Tensor {
	const op = "functional.FiveCrop"
	ch, cw := pair(op, "size", size)
	return fiveCrop(op, image, ch, cw)
}

func fiveCrop(op string, image gotorch.Tensor, ch, cw int64) []gotorch.Tensor {
	h, w := hw(op, image)
	if ch > h || cw > w {
		panic(args.ValueError(op, "the size %d×%d is more than the image's %d×%d", ch, cw, h, w))
	}
	return []gotorch.Tensor{
		crop(op, image, 0, 0, ch, cw), crop(op, image, 0, w-cw, ch, cw), crop(op, image, h-ch, 0, ch, cw),
		crop(op, image, h-ch, w-cw, ch, cw), centerCrop(op, image, ch, cw),
	}
}

// TenCropOptions are the arguments of [TenCrop] that have defaults.
type TenCropOptions struct {
	VerticalFlip bool // mirror top and bottom rather than left and right
}

// TenCrop is [FiveCrop] of an image, and then of it mirrored.
//
// torchvision: ten_crop.
func TenCrop[S Sizes](image gotorch.Tensor, size S, opts ...TenCropOptions) []gotorch.Tensor {
	const op = "functional.TenCrop"
	ch, cw := pair(op, "size", size)
	dim := int64(-1)
	if args.Option(opts).VerticalFlip {
		dim = -2
	}
	crops := fiveCrop(op, image, ch, cw)
	flipped := image.Flip([]int64{dim})
	defer flipped.Close()
	return append(crops, fiveCrop(op, flipped, ch, cw)...)
}

// Size returns the height and the width of an image.
//
// torchvision: get_size and get_image_size.
func Size(image gotorch.Tensor) (height, width int64) { return hw("functional.Size", image) }

// Dimensions returns the channels, the height and the width of an image; one of two dimensions has one channel.
//
// torchvision: get_dimensions, get_num_channels and get_image_num_channels.
func Dimensions(image gotorch.Tensor) (channels, height, width int64) {
	height, width = hw("functional.Dimensions", image)
	channels = 1
	if image.Dim() > 2 {
		channels = image.Size(-3)
	}
	return channels, height, width
}

// NumFrames returns the number of frames of a video (..., T, C, H, W). It panics with a ValueError if there are fewer
// dimensions.
//
// torchvision: get_num_frames.
func NumFrames(video gotorch.Tensor) int64 {
	if n := len(video.Shape()); n < 4 {
		panic(args.ValueError("functional.NumFrames", "a video must be (..., T, C, H, W), but the shape is %s", fmt.Sprint(video.Shape())))
	}
	return video.Size(-4)
}
