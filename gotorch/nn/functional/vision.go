package functional

import (
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// InterpolateMode says how [Interpolate] and [GridSample] find what is between elements.
type InterpolateMode string

// PyTorch's modes. [GridSample] has nearest, bilinear and bicubic.
const (
	InterpolateNearest      InterpolateMode = "nearest"
	InterpolateNearestExact InterpolateMode = "nearest-exact" // as scikit-image and Pillow round
	InterpolateLinear       InterpolateMode = "linear"        // (N, C, L)
	InterpolateBilinear     InterpolateMode = "bilinear"      // (N, C, H, W)
	InterpolateBicubic      InterpolateMode = "bicubic"       // (N, C, H, W)
	InterpolateLanczos      InterpolateMode = "lanczos"       // (N, C, H, W), with Antialias
	InterpolateTrilinear    InterpolateMode = "trilinear"     // (N, C, D, H, W)
	InterpolateArea         InterpolateMode = "area"          // the mean of what falls together
)

// InterpolateOptions are the arguments of [Interpolate] that have defaults: either Size or ScaleFactor
// must be given. Lists have one element for all directions, or one for each.
type InterpolateOptions struct {
	Size                 []int64         // of the result, without N and C
	ScaleFactor          []float64       // of the result's size to the input's
	Mode                 InterpolateMode // default: InterpolateNearest
	AlignCorners         gotorch.Scalar  // a bool: the corners of input and result are the centres of their elements; not for nearest and area
	RecomputeScaleFactor bool            // go by the sizes, rounded down, rather than by ScaleFactor
	Antialias            bool            // blur what would be lost, for bilinear, bicubic and lanczos of (N, C, H, W)
}

// Interpolate resizes sequences, pictures or volumes: (N, C, ...) → (N, C, ...), with 1, 2 or 3 dimensions
// after the channels. It panics with a ValueError for options that contradict each other, and with a
// NotImplementedError for a mode that is not for so many dimensions.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html.
func Interpolate(input gotorch.Tensor, opts ...InterpolateOptions) gotorch.Tensor {
	const op = "functional.Interpolate"
	opt := args.Option(opts)
	mode := opt.Mode
	if mode == "" {
		mode = InterpolateNearest
	}
	align, aligned := args.Bool(op, "AlignCorners", opt.AlignCorners)
	if aligned && slices.Contains([]InterpolateMode{InterpolateNearest, InterpolateNearestExact, InterpolateArea}, mode) {
		panic(args.ValueError(op, "AlignCorners is for linear, bilinear, bicubic and trilinear only, not for %s", mode))
	}
	shape := input.Shape()
	directions := len(shape) - 2
	if directions < 1 || directions > 3 {
		panic(notImplemented(op, "only 3D, 4D and 5D input Tensors supported (got %dD) for the mode %s", len(shape), mode))
	}
	size, scale := opt.Size, opt.ScaleFactor
	switch {
	case size != nil && scale != nil:
		panic(args.ValueError(op, "only one of Size or ScaleFactor should be defined"))
	case size != nil:
		size = times(op, "Size", size, 0, directions)
		if opt.RecomputeScaleFactor {
			panic(args.ValueError(op, "RecomputeScaleFactor is not meaningful with an explicit Size"))
		}
	case len(scale) == 1:
		scale = slices.Repeat(scale, directions)
	case len(scale) == directions:
	case scale != nil:
		panic(args.ValueError(op, "ScaleFactor must be one number or %d, not %v", directions, scale))
	default:
		panic(args.ValueError(op, "either Size or ScaleFactor should be defined"))
	}
	if scale != nil && (opt.RecomputeScaleFactor || mode == InterpolateArea) {
		for i, n := range shape[2:] {
			size = append(size, int64(float64(n)*scale[i]))
		}
		scale = nil
	}
	antiAliased := mode == InterpolateBilinear || mode == InterpolateBicubic || mode == InterpolateLanczos
	if opt.Antialias && (!antiAliased || directions != 2) {
		panic(args.ValueError(op, "Antialias is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input"))
	}
	type way struct {
		mode       InterpolateMode
		directions int
	}
	switch (way{mode, directions}) {
	case way{InterpolateNearest, 1}:
		return gotorch.UpsampleNearest1dVec(input, size, scale)
	case way{InterpolateNearest, 2}:
		return gotorch.UpsampleNearest2dVec(input, size, scale)
	case way{InterpolateNearest, 3}:
		return gotorch.UpsampleNearest3dVec(input, size, scale)
	case way{InterpolateNearestExact, 1}:
		return gotorch.UpsampleNearestExact1dVec(input, size, scale)
	case way{InterpolateNearestExact, 2}:
		return gotorch.UpsampleNearestExact2dVec(input, size, scale)
	case way{InterpolateNearestExact, 3}:
		return gotorch.UpsampleNearestExact3dVec(input, size, scale)
	case way{InterpolateArea, 1}:
		return gotorch.AdaptiveAvgPool1d(input, size)
	case way{InterpolateArea, 2}:
		return gotorch.AdaptiveAvgPool2d(input, size)
	case way{InterpolateArea, 3}:
		return gotorch.AdaptiveAvgPool3d(input, size)
	case way{InterpolateLinear, 1}:
		return gotorch.UpsampleLinear1dVec(input, size, align, scale)
	case way{InterpolateBilinear, 2}:
		if opt.Antialias {
			return gotorch.UpsampleBilinear2dAAVec(input, size, align, scale)
		}
		return gotorch.UpsampleBilinear2dVec(input, size, align, scale)
	case way{InterpolateBicubic, 2}:
		if opt.Antialias {
			return gotorch.UpsampleBicubic2dAAVec(input, size, align, scale)
		}
		return gotorch.UpsampleBicubic2dVec(input, size, align, scale)
	case way{InterpolateLanczos, 2}:
		switch {
		case align:
			panic(args.ValueError(op, "lanczos mode does not support AlignCorners"))
		case !opt.Antialias:
			panic(args.ValueError(op, "lanczos mode requires Antialias"))
		}
		return gotorch.UpsampleLanczos2dAAVec(input, size, align, scale)
	case way{InterpolateTrilinear, 3}:
		return gotorch.UpsampleTrilinear3dVec(input, size, align, scale)
	}
	panic(notImplemented(op, "got %dD input, which %s mode is not for", len(shape), mode))
}

func notImplemented(op, format string, values ...any) *gotorch.Error {
	return &gotorch.Error{Op: op, Kind: gotorch.NotImplementedError, Msg: sprintf(format, values...)}
}

// GridPadding is what [GridSample] finds outside of the picture.
type GridPadding string

// PyTorch's paddings. The default is zeros.
const (
	GridZeros      GridPadding = "zeros"
	GridBorder     GridPadding = "border"
	GridReflection GridPadding = "reflection"
)

// GridSampleOptions are the arguments of [GridSample] that have defaults.
type GridSampleOptions struct {
	Mode         InterpolateMode // nearest, bilinear or bicubic; default: InterpolateBilinear
	PaddingMode  GridPadding     // default: GridZeros
	AlignCorners bool            // −1 and 1 are the centres of the outermost elements, not their edges
}

// GridSample takes what input has at the places that grid says, from −1 to 1 in each direction:
// (N, C, H, W) and (N, H', W', 2) → (N, C, H', W'), or with one direction more. It panics with a ValueError
// for another mode.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grid_sample.html.
func GridSample(input, grid gotorch.Tensor, opts ...GridSampleOptions) gotorch.Tensor {
	const op = "functional.GridSample"
	opt := args.Option(opts)
	mode := slices.Index([]InterpolateMode{InterpolateBilinear, InterpolateNearest, InterpolateBicubic}, opt.Mode)
	if opt.Mode == "" {
		mode = 0
	}
	padding := slices.Index([]GridPadding{GridZeros, GridBorder, GridReflection}, opt.PaddingMode)
	if opt.PaddingMode == "" {
		padding = 0
	}
	switch {
	case mode < 0:
		panic(args.ValueError(op, "expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '%s'", opt.Mode))
	case padding < 0:
		panic(args.ValueError(op, "expected padding_mode to be 'zeros', 'border', or 'reflection', but got: '%s'", opt.PaddingMode))
	}
	return gotorch.GridSampler(input, grid, int64(mode), int64(padding), opt.AlignCorners)
}

// AffineGridOptions are the arguments of [AffineGrid] that have defaults.
type AffineGridOptions struct {
	AlignCorners bool // −1 and 1 are the centres of the outermost elements, not their edges
}

// AffineGrid returns the grid for [GridSample] that moves pictures by affine maps: theta is (N, 2, 3), size
// that of the result, (N, C, H, W), and the grid (N, H, W, 2); or (N, 3, 4), (N, C, D, H, W) and
// (N, D, H, W, 3). It panics with a ValueError if they do not fit.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.affine_grid.html.
func AffineGrid(theta gotorch.Tensor, size []int64, opts ...AffineGridOptions) gotorch.Tensor {
	const op = "functional.AffineGrid"
	align := args.Option(opts).AlignCorners
	if !theta.DType().IsFloatingPoint() {
		panic(args.ValueError(op, "expected theta to have floating point type, but got %v", theta.DType()))
	}
	if len(size) != 4 && len(size) != 5 {
		panic(notImplemented(op, "only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size %v", size))
	}
	rows, shape := int64(len(size)-2), theta.Shape()
	if len(shape) != 3 || shape[1] != rows || shape[2] != rows+1 {
		panic(args.ValueError(op, "expected a batch of %dD affine matrices of shape Nx%dx%d for size %v. Got %v", rows, rows, rows+1, size, shape))
	}
	least, ends := int64(math.MaxInt64), int64(math.MaxInt64)
	for i, n := range size {
		least = min(least, n)
		if i >= 2 {
			ends = min(ends, n)
		}
	}
	if least <= 0 && !(align && ends == 1) {
		panic(args.ValueError(op, "expected non-zero, positive output size. Got %v", size))
	}
	return gotorch.AffineGridGenerator(theta, size, align)
}
