// Package functional has the functions behind package transforms, which are those of
// torchvision.transforms.v2.functional on tensors. Where a transform draws what it does, a function is told:
//
//	image := functional.Resize(image, 256)                   // the shorter edge
//	image = functional.CenterCrop(image, 224)
//	image = functional.Rotate(image, 30, functional.RotateOptions{Interpolation: functional.Bilinear, Fill: []float64{0}})
//	image = functional.AdjustHue(image, 0.1)
//	image = functional.ToDtype(image, gotorch.Float32, functional.ToDtypeOptions{Scale: true})
//
// An image is a tensor of (..., C, H, W): one image, a batch of them or a video. Colours are uint8 from 0 to 255,
// or floats from 0 to 1; other integers run from 0 to their largest value. Results are torchvision's to the last
// bit, for they are of the same kernels of libtorch, called with the same numbers in the same order.
//
// A function makes a new tensor and leaves its argument as it is, except where its name ends in _ as those of
// package gotorch do. Where nothing is to be done, it may return its argument, or a view of it: [Crop] copies
// nothing. What is between is freed at once.
//
// Masks, boxes and points have functions of their own, such as [ResizeMask], [ResizeBoundingBoxes] and
// [ResizeKeyPoints]. Arguments that do not fit are panics with *[gotorch.Error] of the kind that Python raises.
package functional

import (
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Interpolation is how pixels between pixels are found.
type Interpolation string

// The interpolations that tensors have. Bicubic and Lanczos are for [Resize] alone.
const (
	Nearest      Interpolation = "nearest"
	NearestExact Interpolation = "nearest-exact" // as Pillow rounds
	Bilinear     Interpolation = "bilinear"
	Bicubic      Interpolation = "bicubic"
	Lanczos      Interpolation = "lanczos" // which needs antialiasing
)

// or returns i, or value where none is given.
func (i Interpolation) or(op string, value Interpolation) Interpolation {
	switch i {
	case "":
		return value
	case Nearest, NearestExact, Bilinear, Bicubic, Lanczos:
		return i
	}
	panic(args.ValueError(op, "Interpolation must be nearest, nearest-exact, bilinear, bicubic or lanczos, not %q", string(i)))
}

// Sizes is a number, or a height and a width.
type Sizes interface {
	int | int64 | []int | []int64 | [2]int | [2]int64
}

// pair is a height and a width of one or two numbers, neither of which is negative.
func pair[S Sizes](op, what string, sizes S) (height, width int64) {
	list := args.Ints(sizes)
	if len(list) == 1 {
		list = append(list, list[0])
	}
	if len(list) != 2 || list[0] < 0 || list[1] < 0 {
		panic(args.ValueError(op, "%s must be one number or two, a height and a width, that are not negative, not %v", what, list))
	}
	return list[0], list[1]
}

// chw returns the sizes of an image, and panics with a ValueError if it has not the dimensions of one.
func chw(op string, image gotorch.Tensor) (channels, height, width int64) {
	if !image.Defined() {
		panic(args.TypeError(op, "the image is no tensor: it is the zero Tensor"))
	}
	shape := image.Shape()
	n := len(shape)
	if n < 3 {
		panic(args.ValueError(op, "an image must be (..., C, H, W), but the shape is %v", shape))
	}
	return shape[n-3], shape[n-2], shape[n-1]
}

// hw is chw for what may have no channels.
func hw(op string, image gotorch.Tensor) (height, width int64) {
	if !image.Defined() {
		panic(args.TypeError(op, "the image is no tensor: it is the zero Tensor"))
	}
	shape := image.Shape()
	n := len(shape)
	if n < 2 {
		panic(args.ValueError(op, "an image must be (..., H, W), but the shape is %v", shape))
	}
	return shape[n-2], shape[n-1]
}

// colours panics with a TypeError if the image has neither one nor three channels, and returns how many.
func colours(op string, image gotorch.Tensor) int64 {
	c, _, _ := chw(op, image)
	if c != 1 && c != 3 {
		panic(args.TypeError(op, "the image must have 1 or 3 channels, not %d", c))
	}
	return c
}

// lean frees what fn makes and does not return.
func lean(fn func() gotorch.Tensor) gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { return fn() })
}

// like are the options of a tensor with the device of t.
func like(t gotorch.Tensor, dtype gotorch.DType) gotorch.TensorOptions {
	return gotorch.TensorOptions{DType: dtype, Device: t.Device()}
}

// numbers is a tensor of some numbers as t has them.
func numbers(t gotorch.Tensor, dtype gotorch.DType, list ...float64) gotorch.Tensor {
	return gotorch.NewTensor(list, like(t, dtype))
}

// floating is the dtype in which an image is computed with.
func floating(image gotorch.Tensor) gotorch.DType {
	if image.IsFloatingPoint() {
		return image.DType()
	}
	return gotorch.Float32
}

// MaxValue is white: 1 of floats, the largest value of integers, of bytes 255.
//
// torchvision has it as _max_value.
func MaxValue(d gotorch.DType) float64 { return maxValue(d) }

func maxValue(d gotorch.DType) float64 {
	switch d {
	case gotorch.Uint8:
		return 255
	case gotorch.Int8:
		return 127
	case gotorch.Int16:
		return 32767
	case gotorch.Uint16:
		return 65535
	case gotorch.Int32:
		return 1<<31 - 1
	case gotorch.Int64:
		return 1<<63 - 1
	}
	return 1
}

// valueBits is how many bits the colours of an integer dtype have.
func valueBits(op string, d gotorch.DType) int64 {
	switch d {
	case gotorch.Uint8:
		return 8
	case gotorch.Int8:
		return 7
	case gotorch.Int16:
		return 15
	case gotorch.Uint16:
		return 16
	case gotorch.Int32:
		return 31
	case gotorch.Int64:
		return 63
	}
	panic(args.TypeError(op, "the dtype must be an integer's, not %s", d))
}

// bound is white as a clamp takes it: an integer where the dtype is one.
func bound(d gotorch.DType) gotorch.Scalar {
	switch {
	case d == gotorch.Int64:
		return int64(1<<63 - 1)
	case d.IsFloatingPoint():
		return 1.0
	}
	return int64(maxValue(d))
}

func clamp_(t gotorch.Tensor, low, high gotorch.Scalar) gotorch.Tensor {
	return t.Clamp_(gotorch.ClampOptions{Min: low, Max: high})
}

// batched is an image with one dimension before its three.
func batched(image gotorch.Tensor, c, h, w int64) gotorch.Tensor {
	return image.Reshape([]int64{count(image.Shape()), c, h, w})
}

// count is how many images there are.
func count(shape []int64) int64 {
	n := int64(1)
	for _, s := range shape[:len(shape)-3] {
		n *= s
	}
	return n
}

// sized is the shape of images of other heights and widths.
func sized(shape []int64, h, w int64) []int64 {
	shape = slices.Clone(shape)
	shape[len(shape)-2], shape[len(shape)-1] = h, w
	return shape
}

// times multiplies as Python does.
func times(t gotorch.Tensor, f float64) gotorch.Tensor {
	return t.MulScalar(f)
}

// times_ is times in place. MulScalar_ rounds a number to the 16 bits of a half first, which Python's mul_ does not: there
// it is a tensor without dimensions.
func times_(t gotorch.Tensor, f float64) gotorch.Tensor {
	if t.IsFloatingPoint() && t.DType().Size() == 2 {
		return t.Mul_(gotorch.Full([]int64{}, f, like(t, gotorch.Float64)))
	}
	return t.MulScalar_(f)
}
