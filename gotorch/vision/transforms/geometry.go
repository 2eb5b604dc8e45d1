package transforms

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/vision/transforms/functional"
)

// The interpolations and ways to pad that options take; see package functional.
const (
	Nearest      = F.Nearest
	NearestExact = F.NearestExact
	Bilinear     = F.Bilinear
	Bicubic      = F.Bicubic
	Lanczos      = F.Lanczos

	Constant  = F.Constant
	Edge      = F.Edge
	Reflect   = F.Reflect
	Symmetric = F.Symmetric
)

// pair is a height and a width of a Sizes.
func pair[S F.Sizes](op string, size S) [2]int64 {
	list := args.Ints(size)
	if len(list) == 1 {
		list = append(list, list[0])
	}
	if len(list) != 2 || list[0] <= 0 || list[1] <= 0 {
		panic(args.ValueError(op, "size must be one positive number or two, a height and a width, not %v", list))
	}
	return [2]int64{list[0], list[1]}
}

// filled is the colour outside of images: 0 where none is given.
func filled(fill []float64) []float64 {
	if fill == nil {
		return []float64{0}
	}
	return append([]float64(nil), fill...)
}

// maskFill is the colour outside of masks: their own, or that of images.
func maskFill(mask, image []float64) []float64 {
	if mask == nil {
		return filled(image)
	}
	return append([]float64(nil), mask...)
}

// FlipOptions are the arguments of [RandomHorizontalFlip] and [RandomVerticalFlip] that have defaults.
type FlipOptions struct {
	P gotorch.Scalar // the probability; default: 0.5
}

// RandomHorizontalFlip mirrors left and right with a probability.
//
// torchvision: v2.RandomHorizontalFlip.
func RandomHorizontalFlip(opts ...FlipOptions) Transform {
	p := args.Option(opts).P
	return sometimes("transforms.RandomHorizontalFlip", text("RandomHorizontalFlip", "p", or(p, 0.5)), p, 0.5,
		New("", func(s Sample, _ *gotorch.Generator) Sample {
			return moved{F.HorizontalFlip, F.HorizontalFlip, F.HorizontalFlipBoundingBoxes, F.HorizontalFlipKeyPoints}.apply(s)
		}))
}

// RandomVerticalFlip mirrors top and bottom with a probability.
//
// torchvision: v2.RandomVerticalFlip.
func RandomVerticalFlip(opts ...FlipOptions) Transform {
	p := args.Option(opts).P
	return sometimes("transforms.RandomVerticalFlip", text("RandomVerticalFlip", "p", or(p, 0.5)), p, 0.5,
		New("", func(s Sample, _ *gotorch.Generator) Sample {
			return moved{F.VerticalFlip, F.VerticalFlip, F.VerticalFlipBoundingBoxes, F.VerticalFlipKeyPoints}.apply(s)
		}))
}

func or(field gotorch.Scalar, value any) any {
	if args.Given(field) {
		return field
	}
	return value
}

// ResizeOptions are the arguments of [Resize] that have defaults.
type ResizeOptions = F.ResizeOptions

// Resize gives the image another height and width. If size is one number, the shorter edge gets it and the ratio stays; if
// it is two, they are the height and the width.
//
// torchvision: v2.Resize.
func Resize[S F.Sizes](size S, opts ...ResizeOptions) Transform {
	const op = "transforms.Resize"
	opt := args.Option(opts)
	list := args.Ints(size)
	for _, n := range list {
		if n <= 0 {
			panic(args.ValueError(op, "size must be positive, not %v", list))
		}
	}
	if len(list) > 2 || len(list) == 0 && args.IntPointer(op, "MaxSize", opt.MaxSize) == nil {
		panic(args.ValueError(op, "size must be one number or two, or none with MaxSize, not %v", list))
	}
	return New(text("Resize", "size", list), func(s Sample, _ *gotorch.Generator) Sample { return resize(s, list, opt) })
}

func resize(s Sample, size []int64, opt ResizeOptions) Sample {
	return moved{
		func(t gotorch.Tensor) gotorch.Tensor { return F.Resize(t, size, opt) },
		func(t gotorch.Tensor) gotorch.Tensor {
			return F.ResizeMask(t, size, opt)
		},
		func(b F.BoundingBoxes) F.BoundingBoxes { return F.ResizeBoundingBoxes(b, size, opt) },
		func(k F.KeyPoints) F.KeyPoints { return F.ResizeKeyPoints(k, size, opt) },
	}.apply(s)
}

// CenterCrop cuts the middle out of the image; where it is too small, black is put around it.
//
// torchvision: v2.CenterCrop.
func CenterCrop[S F.Sizes](size S) Transform {
	hw := pair("transforms.CenterCrop", size)
	return New(text("CenterCrop", "size", hw), func(s Sample, _ *gotorch.Generator) Sample {
		crop := func(t gotorch.Tensor) gotorch.Tensor { return F.CenterCrop(t, hw) }
		return moved{
			crop, crop,
			func(b F.BoundingBoxes) F.BoundingBoxes { return F.CenterCropBoundingBoxes(b, hw) },
			func(k F.KeyPoints) F.KeyPoints { return F.CenterCropKeyPoints(k, hw) },
		}.apply(s)
	})
}

// RandomResizedCropOptions are the arguments of [RandomResizedCrop] that have defaults.
type RandomResizedCropOptions struct {
	Scale         []float64 // the smallest and the largest part of the area; nil is 0.08 and 1
	Ratio         []float64 // the smallest and the largest ratio of width to height; nil is 3/4 and 4/3
	Interpolation F.Interpolation
	NoAntialias   bool
}

// RandomResizedCrop cuts a random part out of the image, and resizes it.
//
// torchvision: v2.RandomResizedCrop.
func RandomResizedCrop[S F.Sizes](size S, opts ...RandomResizedCropOptions) Transform {
	const op = "transforms.RandomResizedCrop"
	opt := args.Option(opts)
	hw := pair(op, size)
	scale, ratio := ordered(op, "Scale", opt.Scale, [2]float64{0.08, 1}), ordered(op, "Ratio", opt.Ratio, [2]float64{3.0 / 4, 4.0 / 3})
	if scale[0] < 0 || ratio[0] <= 0 {
		panic(args.ValueError(op, "Scale must not be negative and Ratio must be positive, not %v and %v", scale, ratio))
	}
	log := logs(ratio)
	resizing := ResizeOptions{Interpolation: opt.Interpolation, NoAntialias: opt.NoAntialias}
	return New(text("RandomResizedCrop", "size", hw, "scale", scale, "ratio", ratio), func(s Sample, g *gotorch.Generator) Sample {
		height, width := s.size(op)
		top, left, h, w := int64(0), int64(0), int64(0), int64(0)
		found := false
		for range 10 {
			w, h = ratioOf(g, float64(height*width), scale, log)
			if 0 < w && w <= width && 0 < h && h <= height {
				top, left = integer(g, 0, height-h+1), integer(g, 0, width-w+1)
				found = true
				break
			}
		}
		if !found { // the largest part in the middle
			w, h = width, height
			switch is := float64(width) / float64(height); {
			case is < ratio[0]:
				h = whole(float64(w) / ratio[0])
			case is > ratio[1]:
				w = whole(float64(h) * ratio[1])
			}
			top, left = (height-h)/2, (width-w)/2
		}
		return moved{
			func(t gotorch.Tensor) gotorch.Tensor { return F.ResizedCrop(t, top, left, h, w, hw, resizing) },
			func(t gotorch.Tensor) gotorch.Tensor { return F.ResizeMask(F.Crop(t, top, left, h, w), hw) },
			func(b F.BoundingBoxes) F.BoundingBoxes { return F.ResizedCropBoundingBoxes(b, top, left, h, w, hw) },
			func(k F.KeyPoints) F.KeyPoints { return F.ResizedCropKeyPoints(k, top, left, h, w, hw) },
		}.apply(s)
	})
}

// noBoxes panics with a TypeError where a transform is for images alone.
func noBoxes(op string, s Sample, masks bool) {
	if s.Boxes.Tensor.Defined() || masks && (s.Mask.Defined() || s.KeyPoints.Tensor.Defined()) {
		panic(args.TypeError(op, "boxes, masks and key points are not for this transform"))
	}
}

// FiveCrop cuts out the four corners and the middle, which are stacked: (..., C, H, W) → (5, ..., C, h, w). In torchvision they
// are a tuple. Boxes and masks are a TypeError.
//
// torchvision: v2.FiveCrop.
func FiveCrop[S F.Sizes](size S) Transform {
	const op = "transforms.FiveCrop"
	hw := pair(op, size)
	return New(text("FiveCrop", "size", hw), func(s Sample, _ *gotorch.Generator) Sample {
		noBoxes(op, s, true)
		s.Image = gotorch.Stack(F.FiveCrop(s.Image, hw))
		return s
	})
}

// TenCropOptions are the arguments of [TenCrop] that have defaults.
type TenCropOptions = F.TenCropOptions

// TenCrop is [FiveCrop] of the image, and then of it mirrored: (..., C, H, W) → (10, ..., C, h, w).
//
// torchvision: v2.TenCrop.
func TenCrop[S F.Sizes](size S, opts ...TenCropOptions) Transform {
	const op = "transforms.TenCrop"
	hw, opt := pair(op, size), args.Option(opts)
	return New(text("TenCrop", "size", hw), func(s Sample, _ *gotorch.Generator) Sample {
		noBoxes(op, s, true)
		s.Image = gotorch.Stack(F.TenCrop(s.Image, hw, opt))
		return s
	})
}

// PadOptions are the arguments of [Pad] that have defaults.
type PadOptions struct {
	Fill        []float64     // the colour, one number or one a channel; nil is 0
	MaskFill    []float64     // that of masks, one number; nil is Fill
	PaddingMode F.PaddingMode // default: Constant
}

func padSample(s Sample, padding []int64, fill, mask []float64, mode F.PaddingMode) Sample {
	return moved{
		func(t gotorch.Tensor) gotorch.Tensor {
			return F.Pad(t, padding, F.PadOptions{Fill: fill, PaddingMode: mode})
		},
		func(t gotorch.Tensor) gotorch.Tensor {
			if len(mask) != 1 {
				panic(args.ValueError("transforms.Pad", "the fill of a mask must be one number, not %v", mask))
			}
			return F.Pad(t, padding, F.PadOptions{Fill: mask, PaddingMode: mode})
		},
		func(b F.BoundingBoxes) F.BoundingBoxes {
			return F.PadBoundingBoxes(b, padding, F.PadOptions{PaddingMode: mode})
		},
		func(k F.KeyPoints) F.KeyPoints { return F.PadKeyPoints(k, padding, F.PadOptions{PaddingMode: mode}) },
	}.apply(s)
}

func checkPadding(op string, padding []int64, mode F.PaddingMode) {
	if n := len(padding); n != 1 && n != 2 && n != 4 {
		panic(args.ValueError(op, "padding must be 1, 2 or 4 numbers, not %v", padding))
	}
	switch mode {
	case "", Constant, Edge, Reflect, Symmetric:
	default:
		panic(args.ValueError(op, "PaddingMode must be constant, edge, reflect or symmetric, not %q", string(mode)))
	}
}

// Pad puts pixels around the image: padding is one number for all sides, two for left and right and for top and bottom, or
// four for left, top, right and bottom.
//
// torchvision: v2.Pad.
func Pad(padding []int64, opts ...PadOptions) Transform {
	opt := args.Option(opts)
	checkPadding("transforms.Pad", padding, opt.PaddingMode)
	padding = append([]int64(nil), padding...)
	fill, mask := filled(opt.Fill), maskFill(opt.MaskFill, opt.Fill)
	return New(text("Pad", "padding", padding, "fill", fill), func(s Sample, _ *gotorch.Generator) Sample {
		return padSample(s, padding, fill, mask, opt.PaddingMode)
	})
}

// RandomZoomOutOptions are the arguments of [RandomZoomOut] that have defaults.
type RandomZoomOutOptions struct {
	Fill      []float64      // the colour around the image, one number or one a channel; nil is 0
	MaskFill  []float64      // that of masks, one number; nil is Fill
	SideRange []float64      // how much larger the edges become, at least and at most; nil is 1 and 4
	P         gotorch.Scalar // the probability; default: 0.5
}

// RandomZoomOut puts the image somewhere in a larger one, with a probability.
//
// torchvision: v2.RandomZoomOut.
func RandomZoomOut(opts ...RandomZoomOutOptions) Transform {
	const op = "transforms.RandomZoomOut"
	opt := args.Option(opts)
	side := ordered(op, "SideRange", opt.SideRange, [2]float64{1, 4})
	if side[0] < 1 {
		panic(args.ValueError(op, "SideRange must not be less than 1, but is %v", side))
	}
	fill, mask := filled(opt.Fill), maskFill(opt.MaskFill, opt.Fill)
	return sometimes(op, text("RandomZoomOut", "side_range", side), opt.P, 0.5, New("", func(s Sample, g *gotorch.Generator) Sample {
		h, w := s.size(op)
		r := stretch(g, side, 1)[0]
		cw, ch := int64(float32(w)*r), int64(float32(h)*r)
		at := gotorch.ToSlice[float32](uniforms(g, 2))
		left, top := int64(float32(cw-w)*at[0]), int64(float32(ch-h)*at[1])
		return padSample(s, []int64{left, top, cw - (left + w), ch - (top + h)}, fill, mask, Constant)
	}))
}

// stretch draws numbers of a range, computed as float32 as tensors are.
func stretch(g *gotorch.Generator, r [2]float64, n int64) []float32 {
	return gotorch.ToSlice[float32](uniforms(g, n).MulScalar(r[1] - r[0]).AddScalar(r[0]))
}

// RandomRotationOptions are the arguments of [RandomRotation] that have defaults.
type RandomRotationOptions struct {
	Interpolation F.Interpolation // Nearest or Bilinear; default: Nearest
	Expand        bool            // make the image as large as what is turned needs
	Center        []float64       // x and y in pixels; nil is the image's
	Fill          []float64       // the colour outside of the image, one number or one a channel; nil is 0
	MaskFill      []float64       // that of masks; nil is Fill
}

// RandomRotation turns the image by an angle of a range, in degrees counterclockwise: d is from -d to d.
//
// torchvision: v2.RandomRotation.
func RandomRotation[R Range](degrees R, opts ...RandomRotationOptions) Transform {
	const op = "transforms.RandomRotation"
	opt := args.Option(opts)
	angles := around(op, "degrees", floats(degrees))
	checkCenter(op, opt.Center)
	o := F.RotateOptions{Interpolation: opt.Interpolation, Expand: opt.Expand, Center: opt.Center, Fill: filled(opt.Fill)}
	m := F.RotateOptions{Expand: opt.Expand, Center: opt.Center, Fill: maskFill(opt.MaskFill, opt.Fill)}
	return New(text("RandomRotation", "degrees", angles), func(s Sample, g *gotorch.Generator) Sample {
		angle := uniform(g, angles[0], angles[1])
		return moved{
			func(t gotorch.Tensor) gotorch.Tensor { return F.Rotate(t, angle, o) },
			func(t gotorch.Tensor) gotorch.Tensor { return F.Rotate(t, angle, m) },
			func(b F.BoundingBoxes) F.BoundingBoxes { return F.RotateBoundingBoxes(b, angle, o) },
			func(k F.KeyPoints) F.KeyPoints { return F.RotateKeyPoints(k, angle, o) },
		}.apply(s)
	})
}

func checkCenter(op string, center []float64) {
	if center != nil && len(center) != 2 {
		panic(args.ValueError(op, "Center must be two numbers, x and y, not %v", center))
	}
}

// RandomAffineOptions are the arguments of [RandomAffine] that have defaults.
type RandomAffineOptions struct {
	Translate     []float64       // how far at most, as parts of the width and the height; nil is not at all
	Scale         []float64       // the smallest and the largest factor; nil is 1
	Shear         []float64       // degrees: d is x from -d to d; two numbers are a range for x, four for x and y; nil is none
	Interpolation F.Interpolation // Nearest or Bilinear; default: Nearest
	Fill          []float64       // the colour outside of the image, one number or one a channel; nil is 0
	MaskFill      []float64       // that of masks; nil is Fill
	Center        []float64       // x and y in pixels; nil is the image's
}

// RandomAffine turns, moves, scales and shears the image, which keeps its size. degrees are a range of angles, clockwise.
//
// torchvision: v2.RandomAffine.
func RandomAffine[R Range](degrees R, opts ...RandomAffineOptions) Transform {
	const op = "transforms.RandomAffine"
	opt := args.Option(opts)
	angles := around(op, "degrees", floats(degrees))
	if opt.Translate != nil && (len(opt.Translate) != 2 || !within(opt.Translate, 0, 1)) {
		panic(args.ValueError(op, "Translate must be two numbers from 0 to 1, not %v", opt.Translate))
	}
	if opt.Scale != nil && (len(opt.Scale) != 2 || !within(opt.Scale, math.SmallestNonzeroFloat64, math.MaxFloat64) || opt.Scale[0] > opt.Scale[1]) {
		panic(args.ValueError(op, "Scale must be two positive numbers, the smaller one first, not %v", opt.Scale))
	}
	var shear []float64
	switch len(opt.Shear) {
	case 0:
	case 4:
		x, y := ordered(op, "Shear", opt.Shear[:2], [2]float64{}), ordered(op, "Shear", opt.Shear[2:], [2]float64{})
		shear = []float64{x[0], x[1], y[0], y[1]}
	default:
		x := around(op, "Shear", opt.Shear)
		shear = x[:]
	}
	checkCenter(op, opt.Center)
	o := F.AffineOptions{Interpolation: opt.Interpolation, Center: opt.Center, Fill: filled(opt.Fill)}
	m := F.AffineOptions{Center: opt.Center, Fill: maskFill(opt.MaskFill, opt.Fill)}
	return New(text("RandomAffine", "degrees", angles), func(s Sample, g *gotorch.Generator) Sample {
		h, w := s.size(op)
		angle := uniform(g, angles[0], angles[1])
		by, scale, sheared := []float64{0, 0}, 1.0, []float64{0, 0}
		if opt.Translate != nil {
			for i, n := range []int64{w, h} {
				far := opt.Translate[i] * float64(n)
				by[i] = math.RoundToEven(uniform(g, -far, far))
			}
		}
		if opt.Scale != nil {
			scale = uniform(g, opt.Scale[0], opt.Scale[1])
		}
		for i := range len(shear) / 2 {
			sheared[i] = uniform(g, shear[2*i], shear[2*i+1])
		}
		return moved{
			func(t gotorch.Tensor) gotorch.Tensor { return F.Affine(t, angle, by, scale, sheared, o) },
			func(t gotorch.Tensor) gotorch.Tensor { return F.Affine(t, angle, by, scale, sheared, m) },
			func(b F.BoundingBoxes) F.BoundingBoxes {
				return F.AffineBoundingBoxes(b, angle, by, scale, sheared, o)
			},
			func(k F.KeyPoints) F.KeyPoints { return F.AffineKeyPoints(k, angle, by, scale, sheared, o) },
		}.apply(s)
	})
}

func within(list []float64, low, high float64) bool {
	for _, f := range list {
		if !(low <= f && f <= high) {
			return false
		}
	}
	return true
}

// RandomCropOptions are the arguments of [RandomCrop] that have defaults.
type RandomCropOptions struct {
	Padding     []int64       // what is put around the image first, as in [Pad]; nil is nothing
	PadIfNeeded bool          // put around what is missing to the size, too
	Fill        []float64     // the colour that is put around, one number or one a channel; nil is 0
	MaskFill    []float64     // that of masks, one number; nil is Fill
	PaddingMode F.PaddingMode // default: Constant
}

// RandomCrop cuts a rectangle out of the image. It panics with a ValueError where the image is smaller.
//
// torchvision: v2.RandomCrop.
func RandomCrop[S F.Sizes](size S, opts ...RandomCropOptions) Transform {
	const op = "transforms.RandomCrop"
	opt := args.Option(opts)
	hw := pair(op, size)
	if opt.Padding != nil {
		checkPadding(op, opt.Padding, opt.PaddingMode)
	}
	fill, mask := filled(opt.Fill), maskFill(opt.MaskFill, opt.Fill)
	return New(text("RandomCrop", "size", hw), func(s Sample, g *gotorch.Generator) Sample {
		h, w := s.size(op)
		p := [4]int64{} // left, top, right, bottom
		switch list := opt.Padding; len(list) {
		case 1:
			p = [4]int64{list[0], list[0], list[0], list[0]}
		case 2:
			p = [4]int64{list[0], list[1], list[0], list[1]}
		case 4:
			p = [4]int64(list)
		}
		h, w = h+p[1]+p[3], w+p[0]+p[2]
		if opt.PadIfNeeded {
			if d := hw[0] - h; d > 0 {
				p[1], p[3], h = p[1]+d, p[3]+d, h+2*d
			}
			if d := hw[1] - w; d > 0 {
				p[0], p[2], w = p[0]+d, p[2]+d, w+2*d
			}
		}
		if h < hw[0] || w < hw[1] {
			panic(args.ValueError(op, "the size %d×%d is more than the image's %d×%d", hw[0], hw[1], h, w))
		}
		var top, left int64
		if h > hw[0] {
			top = integer(g, 0, h-hw[0]+1)
		}
		if w > hw[1] {
			left = integer(g, 0, w-hw[1]+1)
		}
		if p != [4]int64{} {
			s = padSample(s, p[:], fill, mask, opt.PaddingMode)
		}
		if h > hw[0] || w > hw[1] {
			s = crop(s, top, left, hw[0], hw[1])
		}
		return s
	})
}

func crop(s Sample, top, left, h, w int64) Sample {
	cut := func(t gotorch.Tensor) gotorch.Tensor { return F.Crop(t, top, left, h, w) }
	return moved{
		cut, cut,
		func(b F.BoundingBoxes) F.BoundingBoxes { return F.CropBoundingBoxes(b, top, left, h, w) },
		func(k F.KeyPoints) F.KeyPoints { return F.CropKeyPoints(k, top, left, h, w) },
	}.apply(s)
}

// RandomPerspectiveOptions are the arguments of [RandomPerspective] that have defaults.
type RandomPerspectiveOptions struct {
	DistortionScale gotorch.Scalar  // how far corners move at most, as a part of half the edges; default: 0.5
	P               gotorch.Scalar  // the probability; default: 0.5
	Interpolation   F.Interpolation // Nearest or Bilinear; default: Bilinear
	Fill            []float64       // the colour outside of the image, one number or one a channel; nil is 0
	MaskFill        []float64       // that of masks; nil is Fill
}

// RandomPerspective moves the corners of the image towards its middle, with a probability.
//
// torchvision: v2.RandomPerspective.
func RandomPerspective(opts ...RandomPerspectiveOptions) Transform {
	const op = "transforms.RandomPerspective"
	opt := args.Option(opts)
	far := args.Float(op, "DistortionScale", opt.DistortionScale, 0.5)
	if !(far >= 0 && far <= 1) {
		panic(args.ValueError(op, "DistortionScale must be from 0 to 1, but is %v", far))
	}
	o := F.GridOptions{Interpolation: opt.Interpolation, Fill: filled(opt.Fill)}
	m := F.GridOptions{Interpolation: Nearest, Fill: maskFill(opt.MaskFill, opt.Fill)}
	return sometimes(op, text("RandomPerspective", "distortion_scale", far), opt.P, 0.5, New("", func(s Sample, g *gotorch.Generator) Sample {
		h, w := s.size(op)
		dh, dw := int64(far*float64(h/2))+1, int64(far*float64(w/2))+1
		west := func() int64 { return integer(g, 0, dw) }
		north := func() int64 { return integer(g, 0, dh) }
		east := func() int64 { return integer(g, w-dw, w) }
		south := func() int64 { return integer(g, h-dh, h) }
		end := [4][2]int64{{west(), north()}, {east(), north()}, {east(), south()}, {west(), south()}}
		c := F.PerspectiveCoefficients([4][2]int64{{0, 0}, {w - 1, 0}, {w - 1, h - 1}, {0, h - 1}}, end)
		return moved{
			func(t gotorch.Tensor) gotorch.Tensor { return F.Perspective(t, c, o) },
			func(t gotorch.Tensor) gotorch.Tensor { return F.Perspective(t, c, m) },
			func(b F.BoundingBoxes) F.BoundingBoxes { return F.PerspectiveBoundingBoxes(b, c) },
			func(k F.KeyPoints) F.KeyPoints { return F.PerspectiveKeyPoints(k, c) },
		}.apply(s)
	}))
}

// ElasticTransformOptions are the arguments of [ElasticTransform] that have defaults.
type ElasticTransformOptions struct {
	Alpha         []float64       // how far pixels move, one number or x and y; nil is 50
	Sigma         []float64       // how smoothly, one number or x and y; nil is 5
	Interpolation F.Interpolation // Nearest or Bilinear; default: Bilinear
	Fill          []float64       // the colour outside of the image, one number or one a channel; nil is 0
	MaskFill      []float64       // that of masks; nil is Fill
}

// ElasticTransform moves each pixel by a smooth random displacement, as if seen through water.
//
// torchvision: v2.ElasticTransform.
func ElasticTransform(opts ...ElasticTransformOptions) Transform {
	const op = "transforms.ElasticTransform"
	opt := args.Option(opts)
	alpha, sigma := two(op, "Alpha", opt.Alpha, 50), two(op, "Sigma", opt.Sigma, 5)
	o := F.GridOptions{Interpolation: opt.Interpolation, Fill: filled(opt.Fill)}
	m := F.GridOptions{Interpolation: Nearest, Fill: maskFill(opt.MaskFill, opt.Fill)}
	return New(text("ElasticTransform", "alpha", alpha, "sigma", sigma), func(s Sample, g *gotorch.Generator) Sample {
		h, w := s.size(op)
		var parts []gotorch.Tensor
		for i, n := range []int64{w, h} {
			d := uniforms(g, 1, 1, h, w).MulScalar_(2).SubScalar_(1)
			if sigma[i] > 0 {
				k := int64(8*sigma[i]+1) | 1
				d = F.GaussianBlur(d, k, F.GaussianBlurOptions{Sigma: sigma[:]})
			}
			parts = append(parts, d.MulScalar(alpha[i]).DivScalar_(n))
		}
		by := gotorch.Cat(parts, gotorch.CatOptions{Dim: 1}).Permute([]int64{0, 2, 3, 1})
		return moved{
			func(t gotorch.Tensor) gotorch.Tensor { return F.Elastic(t, by, o) },
			func(t gotorch.Tensor) gotorch.Tensor { return F.Elastic(t, by, m) },
			func(b F.BoundingBoxes) F.BoundingBoxes { return F.ElasticBoundingBoxes(b, by) },
			func(k F.KeyPoints) F.KeyPoints { return F.ElasticKeyPoints(k, by) },
		}.apply(s)
	})
}

// two is one number for both directions, or two.
func two(op, name string, list []float64, value float64) [2]float64 {
	switch len(list) {
	case 0:
		return [2]float64{value, value}
	case 1:
		return [2]float64{list[0], list[0]}
	case 2:
		return [2]float64(list)
	}
	panic(args.ValueError(op, "%s must be one number or two, not %v", name, list))
}

// RandomIoUCropOptions are the arguments of [RandomIoUCrop] that have defaults.
type RandomIoUCropOptions struct {
	MinScale       gotorch.Scalar // the smallest part of the edges; default: 0.3
	MaxScale       gotorch.Scalar // the largest part of the edges; default: 1
	MinAspectRatio gotorch.Scalar // of width to height; default: 0.5
	MaxAspectRatio gotorch.Scalar // of width to height; default: 2
	SamplerOptions []float64      // how much of a box must at least be in the crop; 1 is no crop; nil is 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1
	Trials         gotorch.Scalar // how often a crop is drawn before another of SamplerOptions; default: 40
}

// RandomIoUCrop cuts a part out of the image that has enough of a box in it, as SSD is trained. Boxes whose middle is not
// within become zeros, which [SanitizeBoundingBoxes] takes away. It panics with a TypeError without an image and boxes.
//
// torchvision: v2.RandomIoUCrop.
func RandomIoUCrop(opts ...RandomIoUCropOptions) Transform {
	const op = "transforms.RandomIoUCrop"
	opt := args.Option(opts)
	scale := [2]float64{args.Float(op, "MinScale", opt.MinScale, 0.3), args.Float(op, "MaxScale", opt.MaxScale, 1)}
	low, high := args.Float(op, "MinAspectRatio", opt.MinAspectRatio, 0.5), args.Float(op, "MaxAspectRatio", opt.MaxAspectRatio, 2)
	options, trials := opt.SamplerOptions, args.Int(op, "Trials", opt.Trials, 40)
	if options == nil {
		options = []float64{0, 0.1, 0.3, 0.5, 0.7, 0.9, 1}
	}
	if len(options) == 0 || trials <= 0 || !(scale[0] >= 0 && scale[0] <= scale[1] && scale[1] <= 1) {
		panic(args.ValueError(op, "SamplerOptions must not be empty, Trials must be positive, and scales from 0 to 1"))
	}
	return New("RandomIoUCrop()", func(s Sample, g *gotorch.Generator) Sample {
		if !s.Image.Defined() || !s.Boxes.Tensor.Defined() {
			panic(args.TypeError(op, "the sample must have an image and boxes"))
		}
		h, w := s.size(op)
		// Without an option of 1, images that no crop fits would be tried for ever.
		for range 10000 {
			least := options[integer(g, 0, int64(len(options)))]
			if least >= 1 {
				return s
			}
			for range trials {
				r := stretch(g, scale, 2)
				nw, nh := int64(float32(w)*r[0]), int64(float32(h)*r[1])
				if nh == 0 {
					panic(args.ValueError(op, "an image of %d×%d has no part of %v of its edges", h, w, scale[0]))
				}
				if aspect := float64(nw) / float64(nh); !(low <= aspect && aspect <= high) {
					continue
				}
				at := gotorch.ToSlice[float32](uniforms(g, 2))
				left, top := int64(float32(w-nw)*at[0]), int64(float32(h-nh)*at[1])
				if nw == 0 {
					continue
				}
				inside, fits := inCrop(s.Boxes, top, left, nh, nw, least)
				if !fits {
					continue
				}
				s = crop(s, top, left, nh, nw)
				s.Boxes.Tensor.MaskedFill_(inside.LogicalNot_().Unsqueeze(-1), 0)
				return s
			}
		}
		panic(args.ValueError(op, "no crop was found in 10000 rounds: SamplerOptions should have 1, which is no crop"))
	})
}

// inCrop says which boxes have their middle within a crop, and whether enough of one of these is.
func inCrop(b F.BoundingBoxes, top, left, h, w int64, least float64) (inside gotorch.Tensor, fits bool) {
	t := F.ConvertBoundingBoxFormat(b, F.XYXY).Tensor
	side := t.Unbind(gotorch.UnbindOptions{Dim: -1})
	cx, cy := side[0].Add(side[2]).MulScalar(0.5), side[1].Add(side[3]).MulScalar(0.5)
	right, bottom := left+w, top+h
	inside = cx.GtScalar(left).LogicalAnd_(cx.LtScalar(right)).LogicalAnd_(cy.GtScalar(top)).LogicalAnd_(cy.LtScalar(bottom))
	if !gotorch.Item[bool](inside.Any()) {
		return inside, false
	}
	t = t.IndexTensors([]gotorch.Tensor{inside})
	area := gotorch.NewTensor([]int64{left, top, right, bottom}, gotorch.TensorOptions{DType: t.DType(), Device: t.Device()})
	return inside, float32(gotorch.Item[float64](boxIoU(t, area).Max())) >= float32(least)
}

// boxIoU is what boxes (N, 4) have in common with one, as a part of both.
func boxIoU(t, one gotorch.Tensor) gotorch.Tensor {
	up := func(t gotorch.Tensor) gotorch.Tensor { // so that products of sides do not overflow
		switch {
		case t.IsFloatingPoint() && t.DType().Size() < 4:
			return t.To(gotorch.Float32)
		case !t.IsFloatingPoint() && t.DType() != gotorch.Int64 && t.DType() != gotorch.Int32:
			return t.To(gotorch.Int32)
		}
		return t
	}
	half := func(t gotorch.Tensor, from int64) gotorch.Tensor { return t.Narrow(-1, from, 2) }
	size := func(t gotorch.Tensor) gotorch.Tensor {
		d := half(t, 2).Sub(half(t, 0))
		return d.Select(-1, 0).Mul(d.Select(-1, 1))
	}
	common := up(half(t, 2).Minimum(half(one, 2)).Sub(half(t, 0).Maximum(half(one, 0)))).ClampMin(0)
	inter := common.Select(-1, 0).Mul(common.Select(-1, 1))
	return inter.Div(size(up(t)).Add(size(up(one))).Sub(inter))
}

// ScaleJitterOptions are the arguments of [ScaleJitter] that have defaults.
type ScaleJitterOptions struct {
	ScaleRange    []float64 // the smallest and the largest factor; nil is 0.1 and 2
	Interpolation F.Interpolation
	NoAntialias   bool
}

// ScaleJitter resizes the image to a random part of what fits into targetSize.
//
// torchvision: v2.ScaleJitter.
func ScaleJitter(targetSize [2]int64, opts ...ScaleJitterOptions) Transform {
	const op = "transforms.ScaleJitter"
	opt := args.Option(opts)
	factors := ordered(op, "ScaleRange", opt.ScaleRange, [2]float64{0.1, 2})
	o := ResizeOptions{Interpolation: opt.Interpolation, NoAntialias: opt.NoAntialias}
	return New(text("ScaleJitter", "target_size", targetSize, "scale_range", factors), func(s Sample, g *gotorch.Generator) Sample {
		h, w := s.size(op)
		fit := min(float64(targetSize[1])/float64(h), float64(targetSize[0])/float64(w))
		r := float32(stretch(g, factors, 1)[0] * float32(fit))
		return resize(s, []int64{int64(float32(h) * r), int64(float32(w) * r)}, o)
	})
}

// RandomShortestSizeOptions are the arguments of [RandomShortestSize] that have defaults.
type RandomShortestSizeOptions struct {
	MaxSize       gotorch.Scalar // what the longer edge has at most; nil is any
	Interpolation F.Interpolation
	NoAntialias   bool
}

// RandomShortestSize gives the shorter edge one of some sizes.
//
// torchvision: v2.RandomShortestSize.
func RandomShortestSize(minSize []int64, opts ...RandomShortestSizeOptions) Transform {
	const op = "transforms.RandomShortestSize"
	opt := args.Option(opts)
	most := args.IntPointer(op, "MaxSize", opt.MaxSize)
	minSize = append([]int64(nil), minSize...)
	if len(minSize) == 0 {
		panic(args.ValueError(op, "minSize must not be empty"))
	}
	o := ResizeOptions{Interpolation: opt.Interpolation, NoAntialias: opt.NoAntialias}
	return New(text("RandomShortestSize", "min_size", minSize), func(s Sample, g *gotorch.Generator) Sample {
		h, w := s.size(op)
		r := float64(minSize[integer(g, 0, int64(len(minSize)))]) / float64(min(h, w))
		if most != nil {
			r = min(r, float64(*most)/float64(max(h, w)))
		}
		return resize(s, []int64{int64(float64(h) * r), int64(float64(w) * r)}, o)
	})
}

// RandomResizeOptions are the arguments of [RandomResize] that have defaults.
type RandomResizeOptions struct {
	Interpolation F.Interpolation
	NoAntialias   bool
}

// RandomResize gives the shorter edge a size from minSize on, below maxSize.
//
// torchvision: v2.RandomResize.
func RandomResize(minSize, maxSize int64, opts ...RandomResizeOptions) Transform {
	const op = "transforms.RandomResize"
	opt := args.Option(opts)
	if minSize <= 0 || maxSize <= minSize {
		panic(args.ValueError(op, "minSize must be positive and less than maxSize, not %d and %d", minSize, maxSize))
	}
	o := ResizeOptions{Interpolation: opt.Interpolation, NoAntialias: opt.NoAntialias}
	return New(text("RandomResize", "min_size", minSize, "max_size", maxSize), func(s Sample, g *gotorch.Generator) Sample {
		return resize(s, []int64{integer(g, minSize, maxSize)}, o)
	})
}

// ConvertBoundingBoxFormat says boxes in another format.
//
// torchvision: v2.ConvertBoundingBoxFormat.
func ConvertBoundingBoxFormat(format F.BoxFormat) Transform {
	if format != F.XYXY && format != F.XYWH && format != F.CXCYWH {
		panic(args.ValueError("transforms.ConvertBoundingBoxFormat", "the format must be XYXY, XYWH or CXCYWH, not %q", string(format)))
	}
	return onlyBoxes(text("ConvertBoundingBoxFormat", "format", format), func(b F.BoundingBoxes) F.BoundingBoxes {
		return F.ConvertBoundingBoxFormat(b, format)
	})
}

func onlyBoxes(name string, fn func(F.BoundingBoxes) F.BoundingBoxes) Transform {
	return New(name, func(s Sample, _ *gotorch.Generator) Sample {
		if s.Boxes.Tensor.Defined() {
			s.Boxes = fn(s.Boxes)
		}
		return s
	})
}

// ClampBoundingBoxes cuts off what boxes have outside of the image.
//
// torchvision: v2.ClampBoundingBoxes.
func ClampBoundingBoxes() Transform { return onlyBoxes("ClampBoundingBoxes()", F.ClampBoundingBoxes) }

// SetClampingMode changes what later transforms do with boxes beyond the image.
//
// torchvision: v2.SetClampingMode.
func SetClampingMode(mode F.ClampingMode) Transform {
	if mode != F.ClampSoft && mode != F.ClampHard && mode != F.ClampNone {
		panic(args.ValueError("transforms.SetClampingMode", "the mode must be soft, hard or none, not %q", string(mode)))
	}
	return onlyBoxes(text("SetClampingMode", "clamping_mode", mode), func(b F.BoundingBoxes) F.BoundingBoxes {
		b.ClampingMode = mode
		return b
	})
}

// ClampKeyPoints moves points that are outside of the image to its border.
//
// torchvision: v2.ClampKeyPoints.
func ClampKeyPoints() Transform {
	return New("ClampKeyPoints()", func(s Sample, _ *gotorch.Generator) Sample {
		if s.KeyPoints.Tensor.Defined() {
			s.KeyPoints = F.ClampKeyPoints(s.KeyPoints)
		}
		return s
	})
}

// SanitizeOptions are the arguments of [SanitizeBoundingBoxes] that have defaults.
type SanitizeOptions = F.SanitizeOptions

// SanitizeBoundingBoxes leaves out boxes that are too small or not within the image, with their labels, and with their masks if
// there is one for each. It panics with a ValueError if there are no boxes, or not as many labels.
//
// torchvision: v2.SanitizeBoundingBoxes.
func SanitizeBoundingBoxes(opts ...SanitizeOptions) Transform {
	const op = "transforms.SanitizeBoundingBoxes"
	opt := args.Option(opts)
	if args.Float(op, "MinSize", opt.MinSize, 1) < 1 || args.Float(op, "MinArea", opt.MinArea, 1) < 1 {
		panic(args.ValueError(op, "MinSize and MinArea must not be less than 1, but are %v and %v", opt.MinSize, opt.MinArea))
	}
	return New("SanitizeBoundingBoxes()", func(s Sample, _ *gotorch.Generator) Sample {
		if !s.Boxes.Tensor.Defined() {
			panic(args.ValueError(op, "the sample has no boxes"))
		}
		boxes, valid := F.SanitizeBoundingBoxes(s.Boxes, opt)
		n := s.Boxes.Tensor.Size(0)
		s.Boxes = boxes
		s.Labels = labelsOf(op, s.Labels, n, valid)
		if s.Mask.Defined() && s.Mask.Dim() > 0 && s.Mask.Size(0) == n {
			s.Mask = s.Mask.IndexTensors([]gotorch.Tensor{valid})
		}
		return s
	})
}

func labelsOf(op string, labels gotorch.Tensor, n int64, valid gotorch.Tensor) gotorch.Tensor {
	if !labels.Defined() {
		return labels
	}
	if labels.Dim() == 0 || labels.Size(0) != n {
		panic(args.ValueError(op, "there must be a label for each of %d, but the shape is %v", n, labels.Shape()))
	}
	return labels.IndexTensors([]gotorch.Tensor{valid})
}

// SanitizeKeyPointsOptions are the arguments of [SanitizeKeyPoints] that have defaults.
type SanitizeKeyPointsOptions struct {
	Labels bool // leave out the labels of points that are left out, too
}

// SanitizeKeyPoints leaves out points, or groups of points, that are not within the image.
//
// torchvision: v2.SanitizeKeyPoints.
func SanitizeKeyPoints(opts ...SanitizeKeyPointsOptions) Transform {
	const op = "transforms.SanitizeKeyPoints"
	labels := args.Option(opts).Labels
	return New("SanitizeKeyPoints()", func(s Sample, _ *gotorch.Generator) Sample {
		if !s.KeyPoints.Tensor.Defined() {
			panic(args.ValueError(op, "the sample has no key points"))
		}
		points, valid := F.SanitizeKeyPoints(s.KeyPoints)
		if labels {
			s.Labels = labelsOf(op, s.Labels, s.KeyPoints.Tensor.Size(0), valid)
		}
		s.KeyPoints = points
		return s
	})
}

// UniformTemporalSubsample picks frames of a video (..., T, C, H, W), the same times apart.
//
// torchvision: v2.UniformTemporalSubsample.
func UniformTemporalSubsample(numSamples int64) Transform {
	return onImage(text("UniformTemporalSubsample", "num_samples", numSamples), func(video gotorch.Tensor) gotorch.Tensor {
		return F.UniformTemporalSubsample(video, numSamples)
	})
}
