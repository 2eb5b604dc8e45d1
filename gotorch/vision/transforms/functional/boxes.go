package functional

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// BoxFormat is what the four numbers of a box are.
type BoxFormat string

// The formats, with torchvision's names. Those of rotated boxes are not here.
const (
	XYXY   BoxFormat = "XYXY"   // left, top, right, bottom
	XYWH   BoxFormat = "XYWH"   // left, top, width, height
	CXCYWH BoxFormat = "CXCYWH" // the middle, width, height
)

func (f BoxFormat) check(op string) {
	if f != XYXY && f != XYWH && f != CXCYWH {
		panic(args.ValueError(op, "the format must be XYXY, XYWH or CXCYWH, not %q", string(f)))
	}
}

// ClampingMode is whether boxes are kept within their image.
type ClampingMode string

// The modes, with torchvision's names. For boxes that are not rotated soft and hard are the same.
const (
	ClampSoft ClampingMode = "soft"
	ClampHard ClampingMode = "hard"
	ClampNone ClampingMode = "none" // torchvision: None
)

// BoundingBoxes are rectangles in an image.
//
// torchvision: tv_tensors.BoundingBoxes.
type BoundingBoxes struct {
	Tensor       gotorch.Tensor // (N, 4)
	Format       BoxFormat
	CanvasSize   [2]int64     // the height and the width of the image
	ClampingMode ClampingMode // default: ClampSoft
}

// check panics if these are no boxes.
func (b BoundingBoxes) check(op string) {
	if !b.Tensor.Defined() {
		panic(args.TypeError(op, "the boxes have no tensor"))
	}
	if n := b.Tensor.Dim(); n == 0 || b.Tensor.Size(-1) != 4 {
		panic(args.ValueError(op, "boxes must be (N, 4), but the shape is %v", b.Tensor.Shape()))
	}
	b.Format.check(op)
	if b.CanvasSize[0] < 0 || b.CanvasSize[1] < 0 {
		panic(args.ValueError(op, "CanvasSize must be the height and the width of the image, not %v", b.CanvasSize))
	}
	switch b.ClampingMode {
	case "", ClampSoft, ClampHard, ClampNone:
	default:
		panic(args.ValueError(op, "ClampingMode must be soft, hard or none, not %q", string(b.ClampingMode)))
	}
}

// with is b with other numbers, on an image of another size.
func (b BoundingBoxes) with(t gotorch.Tensor, h, w int64) BoundingBoxes {
	b.Tensor, b.CanvasSize = t, [2]int64{h, w}
	return b
}

// onBoxes frees what is between.
func onBoxes(op string, b BoundingBoxes, fn func() BoundingBoxes) BoundingBoxes {
	b.check(op)
	return gotorch.Scope(func(*gotorch.ScopeHandle) BoundingBoxes { return fn() })
}

// first and last are the two halves of boxes.
func first(t gotorch.Tensor) gotorch.Tensor { return t.Narrow(-1, 0, 2) }
func last(t gotorch.Tensor) gotorch.Tensor  { return t.Narrow(-1, 2, 2) }

// halve_ divides by two, rounding down where the numbers are integers.
func halve_(t gotorch.Tensor) gotorch.Tensor {
	if t.IsFloatingPoint() {
		return t.DivScalar_(2)
	}
	return t.DivScalarMode_(2, new("floor"))
}

// convert changes the format of boxes in place.
func convert_(t gotorch.Tensor, from, to BoxFormat) gotorch.Tensor {
	if from == to {
		return t
	}
	switch {
	case from == XYWH && to == CXCYWH:
		first(t).Add_(halve_(last(t).Clone()))
		return t
	case from == XYWH:
		last(t).Add_(first(t))
	case from == CXCYWH:
		// Integers are computed as floats, and then cut off.
		f := t.To(floating(t))
		corner := f.Narrow(-1, 0, 2).Sub(f.Narrow(-1, 2, 2).DivScalar(2))
		far := corner.Add(f.Narrow(-1, 2, 2))
		first(t).Copy_(corner)
		if to == XYWH && t.IsFloatingPoint() {
			return t
		}
		last(t).Copy_(far)
	}
	switch to {
	case XYWH:
		last(t).Sub_(first(t))
	case CXCYWH:
		last(t).Sub_(first(t))
		halve_(first(t).MulScalar_(2).Add_(last(t)))
	}
	return t
}

// ConvertBoundingBoxFormat says the same boxes in another format. Halves of integers are rounded.
//
// torchvision: convert_bounding_box_format.
func ConvertBoundingBoxFormat(b BoundingBoxes, format BoxFormat) BoundingBoxes {
	const op = "functional.ConvertBoundingBoxFormat"
	format.check(op)
	return onBoxes(op, b, func() BoundingBoxes {
		if format != b.Format {
			b.Tensor = convert_(b.Tensor.Clone(), b.Format, format)
			b.Format = format
		}
		return b
	})
}

// clamped are boxes within their image.
func clamped(b BoundingBoxes) BoundingBoxes {
	if b.ClampingMode == ClampNone {
		b.Tensor = b.Tensor.Clone()
		return b
	}
	d := b.Tensor.DType()
	t := b.Tensor.To(gotorch.ToOptions{DType: floating(b.Tensor), Copy: true})
	t = convert_(t, b.Format, XYXY)
	for i := range int64(4) {
		clamp_(t.Select(-1, i), 0, b.CanvasSize[1-i%2])
	}
	b.Tensor = convert_(t, XYXY, b.Format).To(d)
	return b
}

// ClampBoundingBoxes cuts off what boxes have outside of their image, unless their mode is ClampNone.
//
// torchvision: clamp_bounding_boxes.
func ClampBoundingBoxes(b BoundingBoxes) BoundingBoxes {
	return onBoxes("functional.ClampBoundingBoxes", b, func() BoundingBoxes { return clamped(b) })
}

// SanitizeOptions are the arguments of [SanitizeBoundingBoxes] that have defaults.
type SanitizeOptions struct {
	MinSize gotorch.Scalar // the smallest width and height; default: 1
	MinArea gotorch.Scalar // the smallest area; default: 1
}

// SanitizeBoundingBoxes leaves out boxes that are too small, or have a corner outside of their image. valid has a bool for
// each box that was there, for what belongs to them.
//
// torchvision: sanitize_bounding_boxes.
func SanitizeBoundingBoxes(b BoundingBoxes, opts ...SanitizeOptions) (kept BoundingBoxes, valid gotorch.Tensor) {
	const op = "functional.SanitizeBoundingBoxes"
	opt := args.Option(opts)
	b.check(op)
	if b.Tensor.Dim() != 2 {
		panic(args.ValueError(op, "boxes must be (N, 4), but the shape is %v", b.Tensor.Shape()))
	}
	size, area := args.Float(op, "MinSize", opt.MinSize, 1), args.Float(op, "MinArea", opt.MinArea, 1)
	type both struct{ kept, valid gotorch.Tensor }
	r := gotorch.Scope(func(*gotorch.ScopeHandle) both {
		t := convert_(b.Tensor.Clone(), b.Format, XYXY)
		w, h := t.Select(1, 2).Sub(t.Select(1, 0)), t.Select(1, 3).Sub(t.Select(1, 1))
		ok := w.GeScalar(size).LogicalAnd_(h.GeScalar(size)).LogicalAnd_(t.GeScalar(0).AllDim(-1)).LogicalAnd_(w.Mul(h).GeScalar(area))
		for i := range int64(4) {
			ok.LogicalAnd_(t.Select(1, i).LeScalar(b.CanvasSize[1-i%2]))
		}
		return both{b.Tensor.IndexTensors([]gotorch.Tensor{ok}), ok}
	})
	b.Tensor = r.kept
	return b, r.valid
}

// HorizontalFlipBoundingBoxes is [HorizontalFlip] of the image that boxes are in.
//
// torchvision: horizontal_flip_bounding_boxes.
func HorizontalFlipBoundingBoxes(b BoundingBoxes) BoundingBoxes {
	return flipBoxes("functional.HorizontalFlipBoundingBoxes", b, 0)
}

// VerticalFlipBoundingBoxes is [VerticalFlip] of the image that boxes are in.
//
// torchvision: vertical_flip_bounding_boxes.
func VerticalFlipBoundingBoxes(b BoundingBoxes) BoundingBoxes {
	return flipBoxes("functional.VerticalFlipBoundingBoxes", b, 1)
}

// flipBoxes mirrors x, at 0, or y, at 1.
func flipBoxes(op string, b BoundingBoxes, at int64) BoundingBoxes {
	return onBoxes(op, b, func() BoundingBoxes {
		size := b.CanvasSize[1-at]
		t := b.Tensor.Clone()
		low := t.Select(-1, at)
		switch b.Format {
		case XYXY:
			high := t.Select(-1, at+2)
			old := low.Clone()
			low.Copy_(high.SubScalar(size).Neg_())
			high.Copy_(old.SubScalar_(size).Neg_())
		case XYWH:
			low.Add_(t.Select(-1, at+2)).SubScalar_(size).Neg_()
		default:
			low.SubScalar_(size).Neg_()
		}
		b.Tensor = t
		return b
	})
}

// scaled multiplies x and y with what an image grows by.
func scaled(t gotorch.Tensor, oldH, oldW, newH, newW int64) gotorch.Tensor {
	w, h := float64(newW)/float64(oldW), float64(newH)/float64(oldH)
	ratios := []float64{w, h}
	if t.Size(-1) == 4 {
		ratios = []float64{w, h, w, h}
	}
	return t.Mul(numbers(t, gotorch.Float32, ratios...)).To(t.DType())
}

// ResizeBoundingBoxes is [Resize] of the image that boxes are in.
//
// torchvision: resize_bounding_boxes.
func ResizeBoundingBoxes[S Sizes](b BoundingBoxes, size S, opts ...ResizeOptions) BoundingBoxes {
	const op = "functional.ResizeBoundingBoxes"
	opt := args.Option(opts)
	return onBoxes(op, b, func() BoundingBoxes { return resizeBoxes(op, b, args.Ints(size), opt) })
}

func resizeBoxes(op string, b BoundingBoxes, size []int64, opt ResizeOptions) BoundingBoxes {
	h, w := resized(op, b.CanvasSize[0], b.CanvasSize[1], size, opt.MaxSize)
	if b.CanvasSize == [2]int64{h, w} {
		return b
	}
	return b.with(scaled(b.Tensor, b.CanvasSize[0], b.CanvasSize[1], h, w), h, w)
}

// shift are numbers for each column of boxes: x and y, and where the format has no sizes, x and y again.
func shift(b BoundingBoxes, x, y int64) gotorch.Tensor {
	list := []int64{x, y, 0, 0}
	if b.Format == XYXY {
		list = []int64{x, y, x, y}
	}
	return gotorch.NewTensor(list, like(b.Tensor, b.Tensor.DType()))
}

// PadBoundingBoxes is [Pad] of the image that boxes are in. It panics with a ValueError for another PaddingMode than Constant.
//
// torchvision: pad_bounding_boxes.
func PadBoundingBoxes(b BoundingBoxes, padding []int64, opts ...PadOptions) BoundingBoxes {
	const op = "functional.PadBoundingBoxes"
	if mode := args.Option(opts).PaddingMode; mode != "" && mode != Constant {
		panic(args.ValueError(op, "PaddingMode %s is not for boxes", mode))
	}
	p := sides(op, padding)
	return onBoxes(op, b, func() BoundingBoxes {
		return clamped(b.with(b.Tensor.Add(shift(b, p[0], p[2])), b.CanvasSize[0]+p[2]+p[3], b.CanvasSize[1]+p[0]+p[1]))
	})
}

// CropBoundingBoxes is [Crop] of the image that boxes are in.
//
// torchvision: crop_bounding_boxes.
func CropBoundingBoxes(b BoundingBoxes, top, left, height, width int64) BoundingBoxes {
	return onBoxes("functional.CropBoundingBoxes", b, func() BoundingBoxes {
		return clamped(b.with(b.Tensor.Sub(shift(b, left, top)), height, width))
	})
}

// CenterCropBoundingBoxes is [CenterCrop] of the image that boxes are in.
//
// torchvision: center_crop_bounding_boxes.
func CenterCropBoundingBoxes[S Sizes](b BoundingBoxes, outputSize S) BoundingBoxes {
	const op = "functional.CenterCropBoundingBoxes"
	b.check(op)
	h, w := pair(op, "outputSize", outputSize)
	top, left := centered(h, w, b.CanvasSize[0], b.CanvasSize[1])
	return CropBoundingBoxes(b, top, left, h, w)
}

// ResizedCropBoundingBoxes is [ResizedCrop] of the image that boxes are in.
//
// torchvision: resized_crop_bounding_boxes.
func ResizedCropBoundingBoxes[S Sizes](b BoundingBoxes, top, left, height, width int64, size S) BoundingBoxes {
	return ResizeBoundingBoxes(CropBoundingBoxes(b, top, left, height, width), size)
}

// corners are the four corners of each box: (4·N, 2).
func corners(xyxy gotorch.Tensor) gotorch.Tensor {
	at := gotorch.NewTensor([]int64{0, 1, 2, 1, 2, 3, 0, 3}, like(xyxy, gotorch.Int64))
	return xyxy.Reshape([]int64{-1, 4}).IndexSelect(1, at).Reshape([]int64{-1, 2})
}

// around are the smallest boxes around four points each.
func around(points gotorch.Tensor) gotorch.Tensor {
	low, high := points.Reshape([]int64{-1, 4, 2}).AMinMax(gotorch.AMinMaxOptions{Dim: new(int64(1))})
	return gotorch.Cat([]gotorch.Tensor{low, high}, gotorch.CatOptions{Dim: 1})
}

// homogeneous are points with a one behind each.
func homogeneous(points gotorch.Tensor, d gotorch.DType) gotorch.Tensor {
	return gotorch.Cat([]gotorch.Tensor{points, gotorch.Ones([]int64{points.Size(0), 1}, like(points, d))}, gotorch.CatOptions{Dim: -1})
}

// movement is an affine transform of points.
type movement struct {
	angle     float64
	translate []float64
	scale     float64
	shear     []float64
	center    []float64
	expand    bool
}

// points moves points (N, 2) of floats, and returns where they are and how large the image is then. offset is what is taken
// from them where the image is expanded; it is the zero Tensor otherwise.
func (m movement) points(op string, points gotorch.Tensor, canvas [2]int64) (moved, offset gotorch.Tensor, size [2]int64) {
	h, w := float64(canvas[0]), float64(canvas[1])
	center := [2]float64{w * 0.5, h * 0.5}
	if m.center != nil {
		center = offset2(op, m.center)
	}
	matrix := affineMatrix(op, center, m.angle, m.translate, m.scale, m.shear, false)
	d := points.DType()
	theta := numbers(points, d, matrix[:]...).Reshape([]int64{2, 3}).Transpose2D()
	moved = homogeneous(points, d).MatMul(theta)
	if !m.expand {
		return moved, offset, canvas
	}
	frame := numbers(points, d, 0, 0, 1, 0, h, 1, w, h, 1, w, 0, 1).View([]int64{4, 3})
	offset = frame.MatMul(theta).AMin(gotorch.AMinOptions{Dim: []int64{0}, KeepDim: true})
	ow, oh := expanded(affineMatrix(op, center, m.angle, m.translate, m.scale, m.shear, true), canvas[1], canvas[0])
	return moved, offset, [2]int64{oh, ow}
}

func offset2(op string, center []float64) [2]float64 {
	if len(center) != 2 {
		panic(args.ValueError(op, "Center must be two numbers, x and y, not %v", center))
	}
	return [2]float64{center[0], center[1]}
}

func (m movement) boxes(op string, b BoundingBoxes) BoundingBoxes {
	return onBoxes(op, b, func() BoundingBoxes {
		if b.Tensor.Numel() == 0 {
			return b
		}
		d, format, shape := b.Tensor.DType(), b.Format, b.Tensor.Shape()
		t := convert_(b.Tensor.To(gotorch.ToOptions{DType: floating(b.Tensor), Copy: true}), b.Format, XYXY)
		moved, offset, size := m.points(op, corners(t), b.CanvasSize)
		t = around(moved)
		if offset.Defined() {
			t.Sub_(offset.Repeat([]int64{1, 2}))
		}
		b.Format = XYXY
		b = clamped(b.with(t, size[0], size[1]))
		b.Tensor, b.Format = convert_(b.Tensor, XYXY, format).Reshape(shape).To(d), format
		return b
	})
}

// AffineBoundingBoxes is [Affine] of the image that boxes are in: the smallest boxes around what they become.
//
// torchvision: affine_bounding_boxes.
func AffineBoundingBoxes(b BoundingBoxes, angle float64, translate []float64, scale float64, shear []float64, opts ...AffineOptions) BoundingBoxes {
	return movement{angle: angle, translate: translate, scale: scale, shear: shear, center: args.Option(opts).Center}.
		boxes("functional.AffineBoundingBoxes", b)
}

// RotateBoundingBoxes is [Rotate] of the image that boxes are in: the smallest boxes around what they become.
//
// torchvision: rotate_bounding_boxes.
func RotateBoundingBoxes(b BoundingBoxes, angle float64, opts ...RotateOptions) BoundingBoxes {
	return rotation(angle, args.Option(opts)).boxes("functional.RotateBoundingBoxes", b)
}

func rotation(angle float64, opt RotateOptions) movement {
	return movement{angle: -angle, translate: []float64{0, 0}, scale: 1, shear: []float64{0, 0}, center: opt.Center, expand: opt.Expand}
}

// inversePerspective takes points where [Perspective] with c takes an image.
func inversePerspective(op string, points gotorch.Tensor, d gotorch.DType, c [8]float64) gotorch.Tensor {
	denom := float64(c[0]*c[4]) - float64(c[1]*c[3])
	if denom == 0 {
		panic(args.Errorf(op, gotorch.RuntimeError, "the coefficients cannot be inverted"))
	}
	inv := [8]float64{
		(c[4] - float64(c[5]*c[7])) / denom, (-c[1] + float64(c[2]*c[7])) / denom,
		(float64(c[1]*c[5]) - float64(c[2]*c[4])) / denom, (-c[3] + float64(c[5]*c[6])) / denom,
		(c[0] - float64(c[2]*c[6])) / denom, (float64(-c[0]*c[5]) + float64(c[2]*c[3])) / denom,
		(float64(-c[4]*c[6]) + float64(c[3]*c[7])) / denom, (float64(-c[0]*c[7]) + float64(c[1]*c[6])) / denom,
	}
	theta1 := numbers(points, d, inv[:6]...).View([]int64{2, 3})
	theta2 := numbers(points, d, inv[6], inv[7], 1, inv[6], inv[7], 1).View([]int64{2, 3})
	p := homogeneous(points, gotorch.Float32)
	return p.MatMul(theta1.Transpose2D()).Div_(p.MatMul(theta2.Transpose2D()))
}

// PerspectiveBoundingBoxes is [Perspective] of the image that boxes are in: the smallest boxes around what they become.
//
// torchvision: perspective_bounding_boxes.
func PerspectiveBoundingBoxes(b BoundingBoxes, coefficients [8]float64) BoundingBoxes {
	const op = "functional.PerspectiveBoundingBoxes"
	return onBoxes(op, b, func() BoundingBoxes {
		if b.Tensor.Numel() == 0 {
			return b
		}
		d, format, shape := b.Tensor.DType(), b.Format, b.Tensor.Shape()
		t := convert_(b.Tensor.Clone(), b.Format, XYXY)
		b.Format = XYXY
		b.Tensor = around(inversePerspective(op, corners(t), floating(t), coefficients))
		b = clamped(b)
		b.Tensor, b.Format = convert_(b.Tensor, XYXY, format).Reshape(shape).To(d), format
		return b
	})
}

// displaced is where points go that an image is moved away from by a displacement: nearly, for a displacement says where
// pixels come from.
func displaced(index, displacement gotorch.Tensor, d gotorch.DType, canvas [2]int64) gotorch.Tensor {
	h, w := canvas[0], canvas[1]
	grid := identityGrid(index, d, h, w).Sub_(displacement.To(index.Device(), d)).Select(0, 0)
	index = index.To(gotorch.Int64)
	x := clamp_(index.Select(1, 0).Clone(), 0, w-1)
	y := clamp_(index.Select(1, 1).Clone(), 0, h-1)
	return grid.IndexTensors([]gotorch.Tensor{y, x}).AddScalar_(1).Mul_(numbers(index, d, float64(w), float64(h)).MulScalar(0.5)).SubScalar_(0.5)
}

// ElasticBoundingBoxes is [Elastic] of the image that boxes are in, nearly: the displacement is taken for its own inverse.
//
// torchvision: elastic_bounding_boxes.
func ElasticBoundingBoxes(b BoundingBoxes, displacement gotorch.Tensor) BoundingBoxes {
	const op = "functional.ElasticBoundingBoxes"
	checkDisplacement(op, displacement, b.CanvasSize[0], b.CanvasSize[1])
	return onBoxes(op, b, func() BoundingBoxes {
		if b.Tensor.Numel() == 0 {
			return b
		}
		d, format, shape := b.Tensor.DType(), b.Format, b.Tensor.Shape()
		t := convert_(b.Tensor.Clone(), b.Format, XYXY)
		points := corners(t)
		if points.IsFloatingPoint() {
			points = points.Ceil_()
		}
		b.Format = XYXY
		b.Tensor = around(displaced(points, displacement, floating(t), b.CanvasSize)).To(d)
		b = clamped(b)
		b.Tensor, b.Format = convert_(b.Tensor, XYXY, format).Reshape(shape), format
		return b
	})
}

// KeyPoints are points in an image.
//
// torchvision: tv_tensors.KeyPoints.
type KeyPoints struct {
	Tensor     gotorch.Tensor // (..., 2), x and y
	CanvasSize [2]int64       // the height and the width of the image
}

func (k KeyPoints) check(op string) {
	if !k.Tensor.Defined() {
		panic(args.TypeError(op, "the key points have no tensor"))
	}
	if k.Tensor.Dim() == 0 || k.Tensor.Size(-1) != 2 {
		panic(args.ValueError(op, "key points must be (..., 2), but the shape is %v", k.Tensor.Shape()))
	}
	if k.CanvasSize[0] < 0 || k.CanvasSize[1] < 0 {
		panic(args.ValueError(op, "CanvasSize must be the height and the width of the image, not %v", k.CanvasSize))
	}
}

func onPoints(op string, k KeyPoints, fn func() KeyPoints) KeyPoints {
	k.check(op)
	return gotorch.Scope(func(*gotorch.ScopeHandle) KeyPoints { return fn() })
}

// HorizontalFlipKeyPoints is [HorizontalFlip] of the image that points are in.
//
// torchvision: horizontal_flip_keypoints.
func HorizontalFlipKeyPoints(k KeyPoints) KeyPoints {
	return flipPoints("functional.HorizontalFlipKeyPoints", k, 0)
}

// VerticalFlipKeyPoints is [VerticalFlip] of the image that points are in.
//
// torchvision: vertical_flip_keypoints.
func VerticalFlipKeyPoints(k KeyPoints) KeyPoints {
	return flipPoints("functional.VerticalFlipKeyPoints", k, 1)
}

func flipPoints(op string, k KeyPoints, at int64) KeyPoints {
	return onPoints(op, k, func() KeyPoints {
		k.Tensor = k.Tensor.Clone()
		k.Tensor.Select(-1, at).SubScalar_(k.CanvasSize[1-at] - 1).Neg_()
		return k
	})
}

// ResizeKeyPoints is [Resize] of the image that points are in.
//
// torchvision: resize_keypoints.
func ResizeKeyPoints[S Sizes](k KeyPoints, size S, opts ...ResizeOptions) KeyPoints {
	const op = "functional.ResizeKeyPoints"
	opt := args.Option(opts)
	return onPoints(op, k, func() KeyPoints {
		h, w := resized(op, k.CanvasSize[0], k.CanvasSize[1], args.Ints(size), opt.MaxSize)
		if k.CanvasSize != [2]int64{h, w} {
			k.Tensor = scaled(k.Tensor, k.CanvasSize[0], k.CanvasSize[1], h, w)
			k.CanvasSize = [2]int64{h, w}
		}
		return k
	})
}

// PadKeyPoints is [Pad] of the image that points are in. It panics with a ValueError for another PaddingMode than Constant.
//
// torchvision: pad_keypoints.
func PadKeyPoints(k KeyPoints, padding []int64, opts ...PadOptions) KeyPoints {
	const op = "functional.PadKeyPoints"
	if mode := args.Option(opts).PaddingMode; mode != "" && mode != Constant {
		panic(args.ValueError(op, "PaddingMode %s is not for key points", mode))
	}
	p := sides(op, padding)
	return onPoints(op, k, func() KeyPoints {
		k.Tensor = k.Tensor.Add(gotorch.NewTensor([]int64{p[0], p[2]}, like(k.Tensor, k.Tensor.DType())))
		k.CanvasSize = [2]int64{k.CanvasSize[0] + p[2] + p[3], k.CanvasSize[1] + p[0] + p[1]}
		return k
	})
}

// CropKeyPoints is [Crop] of the image that points are in.
//
// torchvision: crop_keypoints.
func CropKeyPoints(k KeyPoints, top, left, height, width int64) KeyPoints {
	return onPoints("functional.CropKeyPoints", k, func() KeyPoints {
		k.Tensor = k.Tensor.Sub(gotorch.NewTensor([]int64{left, top}, like(k.Tensor, k.Tensor.DType())))
		k.CanvasSize = [2]int64{height, width}
		return k
	})
}

// CenterCropKeyPoints is [CenterCrop] of the image that points are in.
//
// torchvision: center_crop_keypoints.
func CenterCropKeyPoints[S Sizes](k KeyPoints, outputSize S) KeyPoints {
	const op = "functional.CenterCropKeyPoints"
	k.check(op)
	h, w := pair(op, "outputSize", outputSize)
	top, left := centered(h, w, k.CanvasSize[0], k.CanvasSize[1])
	return CropKeyPoints(k, top, left, h, w)
}

// ResizedCropKeyPoints is [ResizedCrop] of the image that points are in.
//
// torchvision: resized_crop_keypoints.
func ResizedCropKeyPoints[S Sizes](k KeyPoints, top, left, height, width int64, size S) KeyPoints {
	return ResizeKeyPoints(CropKeyPoints(k, top, left, height, width), size)
}

func (m movement) keyPoints(op string, k KeyPoints) KeyPoints {
	return onPoints(op, k, func() KeyPoints {
		if k.Tensor.Numel() == 0 {
			return k
		}
		points := k.Tensor.To(floating(k.Tensor)).Reshape([]int64{-1, 2})
		moved, offset, size := m.points(op, points, k.CanvasSize)
		if offset.Defined() {
			moved.Sub_(offset)
		}
		return KeyPoints{moved.Reshape(k.Tensor.Shape()).To(k.Tensor.DType()), size}
	})
}

// AffineKeyPoints is [Affine] of the image that points are in.
//
// torchvision: affine_keypoints.
func AffineKeyPoints(k KeyPoints, angle float64, translate []float64, scale float64, shear []float64, opts ...AffineOptions) KeyPoints {
	return movement{angle: angle, translate: translate, scale: scale, shear: shear, center: args.Option(opts).Center}.
		keyPoints("functional.AffineKeyPoints", k)
}

// RotateKeyPoints is [Rotate] of the image that points are in.
//
// torchvision: rotate_keypoints.
func RotateKeyPoints(k KeyPoints, angle float64, opts ...RotateOptions) KeyPoints {
	return rotation(angle, args.Option(opts)).keyPoints("functional.RotateKeyPoints", k)
}

// PerspectiveKeyPoints is [Perspective] of the image that points are in.
//
// torchvision: perspective_keypoints.
func PerspectiveKeyPoints(k KeyPoints, coefficients [8]float64) KeyPoints {
	const op = "functional.PerspectiveKeyPoints"
	return onPoints(op, k, func() KeyPoints {
		if k.Tensor.Numel() > 0 {
			points := inversePerspective(op, k.Tensor.Reshape([]int64{-1, 2}), floating(k.Tensor), coefficients)
			k.Tensor = points.To(k.Tensor.DType()).Reshape(k.Tensor.Shape())
		}
		return k
	})
}

// ElasticKeyPoints is [Elastic] of the image that points are in, nearly: the displacement is taken for its own inverse.
//
// torchvision: elastic_keypoints.
func ElasticKeyPoints(k KeyPoints, displacement gotorch.Tensor) KeyPoints {
	const op = "functional.ElasticKeyPoints"
	checkDisplacement(op, displacement, k.CanvasSize[0], k.CanvasSize[1])
	return onPoints(op, k, func() KeyPoints {
		if k.Tensor.Numel() > 0 {
			points := displaced(k.Tensor.Reshape([]int64{-1, 2}), displacement, floating(k.Tensor), k.CanvasSize)
			k.Tensor = points.To(k.Tensor.DType()).Reshape(k.Tensor.Shape())
		}
		return k
	})
}

// ClampKeyPoints moves points that are outside of their image to its border.
//
// torchvision: clamp_keypoints.
func ClampKeyPoints(k KeyPoints) KeyPoints {
	return onPoints("functional.ClampKeyPoints", k, func() KeyPoints {
		t := k.Tensor.To(gotorch.ToOptions{DType: floating(k.Tensor), Copy: true})
		clamp_(t.Select(-1, 0), 0, k.CanvasSize[1]-1)
		clamp_(t.Select(-1, 1), 0, k.CanvasSize[0]-1)
		k.Tensor = t.To(k.Tensor.DType())
		return k
	})
}

// SanitizeKeyPoints leaves out points that are outside of their image; of points in groups, (N, ..., 2), groups that
// have such a point. valid has a bool for each point or group that was there.
//
// torchvision: sanitize_keypoints.
func SanitizeKeyPoints(k KeyPoints) (kept KeyPoints, valid gotorch.Tensor) {
	const op = "functional.SanitizeKeyPoints"
	k.check(op)
	if k.Tensor.Dim() < 2 {
		panic(args.ValueError(op, "key points must be (N, ..., 2), but the shape is %v", k.Tensor.Shape()))
	}
	type both struct{ kept, valid gotorch.Tensor }
	r := gotorch.Scope(func(*gotorch.ScopeHandle) both {
		x, y := k.Tensor.Select(-1, 0), k.Tensor.Select(-1, 1)
		ok := x.GeScalar(0).LogicalAnd_(x.LtScalar(k.CanvasSize[1])).LogicalAnd_(y.GeScalar(0)).LogicalAnd_(y.LtScalar(k.CanvasSize[0]))
		if ok.Dim() > 1 {
			ok = ok.Flatten(gotorch.FlattenOptions{StartDim: 1}).AllDim(1)
		}
		return both{k.Tensor.IndexTensors([]gotorch.Tensor{ok}), ok}
	})
	k.Tensor = r.kept
	return k, r.valid
}

// ConvertBoundingBoxesToPoints are the four corners of each box: (N, 4, 2).
//
// torchvision: convert_bounding_boxes_to_points.
func ConvertBoundingBoxesToPoints(b BoundingBoxes) KeyPoints {
	b.check("functional.ConvertBoundingBoxesToPoints")
	return gotorch.Scope(func(*gotorch.ScopeHandle) KeyPoints {
		t := convert_(b.Tensor.Clone(), b.Format, XYXY)
		return KeyPoints{corners(t).Reshape([]int64{-1, 4, 2}), b.CanvasSize}
	})
}

// ResizeMask is [Resize] of a mask (..., H, W), whose numbers are those of the nearest pixels: all interpolations are Nearest but
// NearestExact.
//
// torchvision: resize_mask.
func ResizeMask[S Sizes](mask gotorch.Tensor, size S, opts ...ResizeOptions) gotorch.Tensor {
	const op = "functional.ResizeMask"
	opt := args.Option(opts)
	if opt.Interpolation.or(op, Nearest) != NearestExact {
		opt.Interpolation = Nearest
	}
	hw(op, mask)
	return lean(func() gotorch.Tensor {
		if mask.Dim() == 2 {
			return resize(op, mask.Unsqueeze(0), args.Ints(size), opt).SqueezeDim(0)
		}
		return resize(op, mask, args.Ints(size), opt)
	})
}
