package functional

import (
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// LPPoolOptions are the arguments of [LPPool1d], [LPPool2d] and [LPPool3d] that have defaults.
type LPPoolOptions struct {
	Stride   []int64 // default: the kernel's size
	CeilMode bool    // round the size of the result up
}

// LPPool1dOptions are the arguments of [LPPool1d] that have defaults.
type LPPool1dOptions = LPPoolOptions

// LPPool2dOptions are the arguments of [LPPool2d] that have defaults.
type LPPool2dOptions = LPPoolOptions

// LPPool3dOptions are the arguments of [LPPool3d] that have defaults.
type LPPool3dOptions = LPPoolOptions

// LPPool1d returns the normType-norm of the elements under each place of a window of kernelSize:
// (N, C, L) → (N, C, L'), also without N. It panics with a ValueError if normType is 0.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.lp_pool1d.html.
func LPPool1d(input gotorch.Tensor, normType float64, kernelSize []int64, opts ...LPPool1dOptions) gotorch.Tensor {
	return lpPool("functional.LPPool1d", input, normType, kernelSize, 1, args.Option(opts), AvgPool1d, MaxPool1d,
		func(o LPPoolOptions) AvgPool1dOptions {
			return AvgPool1dOptions{Stride: o.Stride, CeilMode: o.CeilMode}
		},
		func(o LPPoolOptions) MaxPool1dOptions {
			return MaxPool1dOptions{Stride: o.Stride, CeilMode: o.CeilMode}
		})
}

// LPPool2d is [LPPool1d] for (N, C, H, W).
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.lp_pool2d.html.
func LPPool2d(input gotorch.Tensor, normType float64, kernelSize []int64, opts ...LPPool2dOptions) gotorch.Tensor {
	return lpPool("functional.LPPool2d", input, normType, kernelSize, 2, args.Option(opts), AvgPool2d, MaxPool2d,
		func(o LPPoolOptions) AvgPool2dOptions {
			return AvgPool2dOptions{Stride: o.Stride, CeilMode: o.CeilMode}
		},
		func(o LPPoolOptions) MaxPool2dOptions {
			return MaxPool2dOptions{Stride: o.Stride, CeilMode: o.CeilMode}
		})
}

// LPPool3d is [LPPool1d] for (N, C, D, H, W).
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.lp_pool3d.html.
func LPPool3d(input gotorch.Tensor, normType float64, kernelSize []int64, opts ...LPPool3dOptions) gotorch.Tensor {
	return lpPool("functional.LPPool3d", input, normType, kernelSize, 3, args.Option(opts), AvgPool3d, MaxPool3d,
		func(o LPPoolOptions) AvgPool3dOptions {
			return AvgPool3dOptions{Stride: o.Stride, CeilMode: o.CeilMode}
		},
		func(o LPPoolOptions) MaxPool3dOptions {
			return MaxPool3dOptions{Stride: o.Stride, CeilMode: o.CeilMode}
		})
}

// pool is AvgPool2d and the like.
type pool[O any] func(input gotorch.Tensor, kernelSize []int64, opts ...O) gotorch.Tensor

func lpPool[A, M any](op string, input gotorch.Tensor, p float64, kernel []int64, directions int, opt LPPoolOptions,
	average pool[A], largest pool[M], forAverage func(LPPoolOptions) A, forLargest func(LPPoolOptions) M) gotorch.Tensor {
	kernel = times(op, "kernelSize", kernel, 0, directions)
	switch {
	case p == 0:
		panic(args.ValueError(op, "norm_type must be a non-zero value, but got %v", p))
	case math.IsInf(p, 1):
		return largest(input.Abs(), kernel, forLargest(opt))
	case math.IsInf(p, -1):
		return largest(input.Abs().Neg(), kernel, forLargest(opt)).Neg()
	}
	n := int64(1)
	for _, k := range kernel {
		n *= k
	}
	sum := average(input.Pow(p), kernel, forAverage(opt))
	return sum.Sign().Mul(ReLU(sum.Abs())).MulScalar(n).Pow(1 / p)
}

// MaxUnpoolOptions are the arguments of [MaxUnpool1d], [MaxUnpool2d] and [MaxUnpool3d] that have
// defaults. Lists have one element for all directions, or one for each.
type MaxUnpoolOptions struct {
	Stride     []int64 // default: the kernel's size
	Padding    []int64 // default: 0
	OutputSize []int64 // with or without N and C; default: the least that the pooling may have had
}

// MaxUnpool1dOptions are the arguments of [MaxUnpool1d] that have defaults.
type MaxUnpool1dOptions = MaxUnpoolOptions

// MaxUnpool2dOptions are the arguments of [MaxUnpool2d] that have defaults.
type MaxUnpool2dOptions = MaxUnpoolOptions

// MaxUnpool3dOptions are the arguments of [MaxUnpool3d] that have defaults.
type MaxUnpool3dOptions = MaxUnpoolOptions

// MaxUnpool1d puts elements back where [MaxPool1dWithIndices] found them, and zeros elsewhere:
// (N, C, L) → (N, C, L'), also without N. It panics with a ValueError if OutputSize cannot have been the
// size.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_unpool1d.html.
func MaxUnpool1d(input, indices gotorch.Tensor, kernelSize []int64, opts ...MaxUnpool1dOptions) gotorch.Tensor {
	size, _, _ := args.Option(opts).sizes("functional.MaxUnpool1d", input, kernelSize, 1)
	return gotorch.MaxUnpool2d(input.Unsqueeze(-1), indices.Unsqueeze(-1), append(slices.Clone(size), 1)).SqueezeDim(-1)
}

// MaxUnpool2d is [MaxUnpool1d] for (N, C, H, W) and [MaxPool2dWithIndices].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_unpool2d.html.
func MaxUnpool2d(input, indices gotorch.Tensor, kernelSize []int64, opts ...MaxUnpool2dOptions) gotorch.Tensor {
	size, _, _ := args.Option(opts).sizes("functional.MaxUnpool2d", input, kernelSize, 2)
	return gotorch.MaxUnpool2d(input, indices, size)
}

// MaxUnpool3d is [MaxUnpool1d] for (N, C, D, H, W) and [MaxPool3dWithIndices].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.max_unpool3d.html.
func MaxUnpool3d(input, indices gotorch.Tensor, kernelSize []int64, opts ...MaxUnpool3dOptions) gotorch.Tensor {
	size, stride, padding := args.Option(opts).sizes("functional.MaxUnpool3d", input, kernelSize, 3)
	return gotorch.MaxUnpool3d(input, indices, size, stride, padding)
}

// sizes returns the size of the result, the stride and the padding.
func (o MaxUnpoolOptions) sizes(op string, input gotorch.Tensor, kernel []int64, directions int) (size, stride, padding []int64) {
	kernel = times(op, "kernelSize", kernel, 0, directions)
	stride, padding = kernel, times(op, "Padding", o.Padding, 0, directions)
	if o.Stride != nil {
		stride = times(op, "Stride", o.Stride, 0, directions)
	}
	shape := input.Shape()
	if len(shape) < directions {
		panic(args.ValueError(op, "expected at least %d dimensions, got input size %v", directions, shape))
	}
	size = make([]int64, directions)
	for i, n := range shape[len(shape)-directions:] {
		size[i] = (n-1)*stride[i] + kernel[i] - 2*padding[i]
	}
	if len(o.OutputSize) > 0 {
		wanted := o.OutputSize
		if len(wanted) == directions+2 {
			wanted = wanted[2:]
		}
		if len(wanted) != directions {
			panic(args.ValueError(op, "OutputSize should have %d or %d elements, but has %d", directions, directions+2, len(wanted)))
		}
		for i, n := range wanted {
			if low, high := size[i]-stride[i], size[i]+stride[i]; n <= low || n >= high {
				panic(args.ValueError(op, "invalid OutputSize %v (dim %d must be between %d and %d)", wanted, i, low, high))
			}
		}
		size = wanted
	}
	for i, n := range size {
		if n < 0 {
			panic(args.ValueError(op, "the result's size must not be negative, but is %d in dim %d", n, i))
		}
	}
	return size, stride, padding
}

// FractionalMaxPoolOptions are the arguments of [FractionalMaxPool2d] and [FractionalMaxPool3d] that have
// defaults: one of the two must be given. Lists have one element for all directions, or one for each.
type FractionalMaxPoolOptions struct {
	OutputSize  []int64   // of the result
	OutputRatio []float64 // of the result's size to the input's
}

// FractionalMaxPool2dOptions are the arguments of [FractionalMaxPool2d] that have defaults.
type FractionalMaxPool2dOptions = FractionalMaxPoolOptions

// FractionalMaxPool3dOptions are the arguments of [FractionalMaxPool3d] that have defaults.
type FractionalMaxPool3dOptions = FractionalMaxPoolOptions

// FractionalMaxPool2d returns the largest element of windows of kernelSize at random places:
// (N, C, H, W) → (N, C, H', W'), also without N. It panics with a ValueError if neither OutputSize nor
// OutputRatio is given.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.FractionalMaxPool2d.html.
func FractionalMaxPool2d(input gotorch.Tensor, kernelSize []int64, opts ...FractionalMaxPool2dOptions) gotorch.Tensor {
	largest, indices := FractionalMaxPool2dWithIndices(input, kernelSize, opts...)
	indices.Close()
	return largest
}

// FractionalMaxPool2dWithIndices is [FractionalMaxPool2d] that also returns where each element was: its
// place in its flattened picture, an int64.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.fractional_max_pool2d.html.
func FractionalMaxPool2dWithIndices(input gotorch.Tensor, kernelSize []int64, opts ...FractionalMaxPool2dOptions) (largest, indices gotorch.Tensor) {
	const op = "functional.FractionalMaxPool2d"
	size, random := args.Option(opts).places(op, input, 2)
	return gotorch.FractionalMaxPool2d(input, times(op, "kernelSize", kernelSize, 0, 2), size, random)
}

// FractionalMaxPool3d is [FractionalMaxPool2d] for (N, C, D, H, W).
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.FractionalMaxPool3d.html.
func FractionalMaxPool3d(input gotorch.Tensor, kernelSize []int64, opts ...FractionalMaxPool3dOptions) gotorch.Tensor {
	largest, indices := FractionalMaxPool3dWithIndices(input, kernelSize, opts...)
	indices.Close()
	return largest
}

// FractionalMaxPool3dWithIndices is [FractionalMaxPool3d] that also returns where each element was: its
// place in its flattened volume, an int64.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.fractional_max_pool3d.html.
func FractionalMaxPool3dWithIndices(input gotorch.Tensor, kernelSize []int64, opts ...FractionalMaxPool3dOptions) (largest, indices gotorch.Tensor) {
	const op = "functional.FractionalMaxPool3d"
	size, random := args.Option(opts).places(op, input, 3)
	return gotorch.FractionalMaxPool3d(input, times(op, "kernelSize", kernelSize, 0, 3), size, random)
}

// places returns the size of the result, and the random numbers that say where the windows are.
func (o FractionalMaxPoolOptions) places(op string, input gotorch.Tensor, directions int) (size []int64, random gotorch.Tensor) {
	shape := input.Shape()
	if len(shape) <= directions {
		panic(args.ValueError(op, "expected %dD or %dD input, got input size %v", directions+1, directions+2, shape))
	}
	ends := shape[len(shape)-directions:]
	switch {
	case o.OutputSize != nil:
		size = times(op, "OutputSize", o.OutputSize, 0, directions)
	case len(o.OutputRatio) == 1 || len(o.OutputRatio) == directions:
		for i, n := range ends {
			size = append(size, int64(float64(n)*o.OutputRatio[min(i, len(o.OutputRatio)-1)]))
		}
	case o.OutputRatio != nil:
		panic(args.ValueError(op, "OutputRatio must be one number or %d, not %v", directions, o.OutputRatio))
	default:
		panic(args.ValueError(op, "requires either an OutputSize or an OutputRatio"))
	}
	batch := int64(1)
	if len(shape) != directions+1 {
		batch = shape[0]
	}
	random = gotorch.Rand([]int64{batch, shape[len(shape)-directions-1], int64(directions)},
		gotorch.TensorOptions{DType: input.DType(), Device: input.Device()})
	return size, random
}
