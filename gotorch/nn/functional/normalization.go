package functional

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// BatchNormOptions are the arguments of [BatchNorm] that have defaults.
type BatchNormOptions struct {
	RunningMean gotorch.Tensor // (C); default: none
	RunningVar  gotorch.Tensor // (C); default: none
	Weight      gotorch.Tensor // (C); default: none
	Bias        gotorch.Tensor // (C); default: none
	Training    bool           // go by the batch's mean and variance, and update the running ones
	Momentum    gotorch.Scalar // the part of the running statistics that a batch replaces; default: 0.1
	Eps         gotorch.Scalar // added to the variance; default: 1e-5
}

// severalValues panics with a ValueError if there is only one value for each channel.
func severalValues(op string, shape []int64) {
	if len(shape) == 0 {
		return
	}
	values := shape[0]
	for _, n := range shape[min(2, len(shape)):] {
		values *= n
	}
	if values == 1 {
		panic(args.ValueError(op, "expected more than 1 value per channel when training, got input size %v", shape))
	}
}

// BatchNorm gives each channel of (N, C, *) the mean Bias and the deviation Weight. Unless Training
// it needs RunningMean and RunningVar. It panics with a ValueError if there is only one value per
// channel to train by, or if Eps is negative (in training: not positive).
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.batch_norm.html.
func BatchNorm(input gotorch.Tensor, opts ...BatchNormOptions) gotorch.Tensor {
	const op = "functional.BatchNorm"
	opt := args.Option(opts)
	eps := args.Float(op, "Eps", opt.Eps, 1e-5)
	if opt.Training {
		severalValues(op, input.Shape())
		if eps <= 0 {
			panic(args.ValueError(op, "eps must be positive during training, but got %v", eps))
		}
	} else if eps < 0 {
		panic(args.ValueError(op, "eps must be non-negative, but got %v", eps))
	}
	return gotorch.BatchNorm(input, opt.Weight, opt.Bias, opt.RunningMean, opt.RunningVar, opt.Training,
		args.Float(op, "Momentum", opt.Momentum, 0.1), eps, gotorch.CuDNN.Enabled())
}

// GroupNormOptions are the arguments of [GroupNorm] that have defaults.
type GroupNormOptions struct {
	Weight gotorch.Tensor // (C); default: none
	Bias   gotorch.Tensor // (C); default: none
	Eps    gotorch.Scalar // added to the variance; default: 1e-5
}

// GroupNorm gives each of numGroups groups of channels of (N, C, *) mean 0 and deviation 1, then each
// channel its Weight and Bias. It panics with a RuntimeError if there are fewer than 2 dimensions, and
// with a ValueError if there is only one value per group.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.group_norm.html.
func GroupNorm(input gotorch.Tensor, numGroups int64, opts ...GroupNormOptions) gotorch.Tensor {
	const op = "functional.GroupNorm"
	opt := args.Option(opts)
	shape := input.Shape()
	if len(shape) < 2 {
		panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: sprintf("expected at least 2 dimensions for input tensor but received %d", len(shape))})
	}
	if numGroups <= 0 {
		panic(args.ValueError(op, "numGroups must be positive, and is %d", numGroups))
	}
	severalValues(op, append([]int64{shape[0] * shape[1] / numGroups, numGroups}, shape[2:]...))
	eps, cuDNN := args.Float(op, "Eps", opt.Eps, 1e-5), gotorch.CuDNN.Enabled()
	return gotorch.GroupNorm(input, numGroups, gotorch.GroupNormOptions{Weight: opt.Weight, Bias: opt.Bias, Eps: &eps, CuDNNEnabled: &cuDNN})
}

// InstanceNormOptions are the arguments of [InstanceNorm] that have defaults.
type InstanceNormOptions struct {
	RunningMean     gotorch.Tensor // (C); default: none
	RunningVar      gotorch.Tensor // (C); default: none
	Weight          gotorch.Tensor // (C); default: none
	Bias            gotorch.Tensor // (C); default: none
	NoUseInputStats bool           // go by RunningMean and RunningVar
	Momentum        gotorch.Scalar // the part of the running statistics that a batch replaces; default: 0.1
	Eps             gotorch.Scalar // added to the variance; default: 1e-5
}

// InstanceNorm gives each channel of each sample of (N, C, *) mean 0 and deviation 1, then its Weight and
// Bias. It panics with a ValueError if a channel has only one value to go by.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.instance_norm.html.
func InstanceNorm(input gotorch.Tensor, opts ...InstanceNormOptions) gotorch.Tensor {
	const op = "functional.InstanceNorm"
	opt := args.Option(opts)
	if !opt.NoUseInputStats {
		shape, values := input.Shape(), int64(1)
		for _, n := range shape[min(2, len(shape)):] {
			values *= n
		}
		if values == 1 {
			panic(args.ValueError(op, "expected more than 1 spatial element when training, got input size %v", shape))
		}
	}
	return gotorch.InstanceNorm(input, opt.Weight, opt.Bias, opt.RunningMean, opt.RunningVar, !opt.NoUseInputStats,
		args.Float(op, "Momentum", opt.Momentum, 0.1), args.Float(op, "Eps", opt.Eps, 1e-5), gotorch.CuDNN.Enabled())
}

// LayerNormOptions are the arguments of [LayerNorm] that have defaults.
type LayerNormOptions struct {
	Weight gotorch.Tensor // (normalizedShape...); default: none
	Bias   gotorch.Tensor // (normalizedShape...); default: none
	Eps    gotorch.Scalar // added to the variance; default: 1e-5
}

// LayerNorm gives the last dimensions, of the sizes normalizedShape, mean 0 and deviation 1, then each
// element its Weight and Bias; the shape stays.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.layer_norm.html.
func LayerNorm(input gotorch.Tensor, normalizedShape []int64, opts ...LayerNormOptions) gotorch.Tensor {
	opt := args.Option(opts)
	eps, cuDNN := args.Float("functional.LayerNorm", "Eps", opt.Eps, 1e-5), gotorch.CuDNN.Enabled()
	return gotorch.LayerNorm(input, normalizedShape, gotorch.LayerNormOptions{Weight: opt.Weight, Bias: opt.Bias, Eps: &eps, CuDNNEnable: &cuDNN})
}

// RMSNormOptions are the arguments of [RMSNorm] that have defaults.
type RMSNormOptions struct {
	Weight gotorch.Tensor // (normalizedShape...); default: none
	Eps    gotorch.Scalar // added to the mean of squares; default: what the dtype can tell from zero
}

// RMSNorm divides the last dimensions, of the sizes normalizedShape, by the root of the mean of their
// squares, and multiplies each element by its Weight; the shape stays.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.rms_norm.html.
func RMSNorm(input gotorch.Tensor, normalizedShape []int64, opts ...RMSNormOptions) gotorch.Tensor {
	opt := args.Option(opts)
	return gotorch.RMSNorm(input, normalizedShape, gotorch.RMSNormOptions{Weight: opt.Weight, Eps: args.FloatPointer("functional.RMSNorm", "Eps", opt.Eps)})
}

// LocalResponseNormOptions are the arguments of [LocalResponseNorm] that have defaults.
type LocalResponseNormOptions struct {
	Alpha gotorch.Scalar // default: 1e-4
	Beta  gotorch.Scalar // default: 0.75
	K     gotorch.Scalar // default: 1
}

// LocalResponseNorm divides each element by (K + Alpha·mean of squares over size neighbouring
// channels)^Beta: (N, C, *) → (N, C, *). It panics with a ValueError if there are fewer than 3 dimensions.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.local_response_norm.html.
func LocalResponseNorm(input gotorch.Tensor, size int64, opts ...LocalResponseNormOptions) gotorch.Tensor {
	const op = "functional.LocalResponseNorm"
	opt := args.Option(opts)
	alpha, beta, k := args.Float(op, "Alpha", opt.Alpha, 1e-4), args.Float(op, "Beta", opt.Beta, 0.75), args.Float(op, "K", opt.K, 1)
	shape := input.Shape()
	if len(shape) < 3 {
		panic(args.ValueError(op, "expected 3D or higher dimensionality input (got %d dimensions)", len(shape)))
	}
	if input.Numel() == 0 {
		return input
	}
	squares := input.Mul(input)
	// The window slides over the channels alone, as over a picture's height or a volume's depth.
	if len(shape) == 3 {
		squares = Pad(squares.Unsqueeze(1), []int64{0, 0, size / 2, (size - 1) / 2})
		squares = AvgPool2d(squares, []int64{size, 1}, AvgPool2dOptions{Stride: []int64{1}}).SqueezeDim(1)
	} else {
		squares = Pad(squares.View([]int64{shape[0], 1, shape[1], shape[2], -1}), []int64{0, 0, 0, 0, size / 2, (size - 1) / 2})
		squares = AvgPool3d(squares, []int64{size, 1, 1}, AvgPool3dOptions{Stride: []int64{1}}).SqueezeDim(1).View(shape)
	}
	return input.Div(squares.MulScalar(alpha).AddScalar(k).Pow(beta))
}

// NormalizeOptions are the arguments of [Normalize] that have defaults.
type NormalizeOptions struct {
	P   gotorch.Scalar // of the norm; default: 2
	Dim gotorch.Scalar // default: 1
	Eps gotorch.Scalar // the least norm; default: 1e-12
}

// Normalize divides by the P-norm along Dim, or by Eps where it is less; the shape stays.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.normalize.html.
func Normalize(input gotorch.Tensor, opts ...NormalizeOptions) gotorch.Tensor {
	const op = "functional.Normalize"
	opt := args.Option(opts)
	dim := []int64{args.Int(op, "Dim", opt.Dim, 1)}
	norm := gotorch.LinalgVectorNorm(input, gotorch.LinalgVectorNormOptions{Ord: args.Float(op, "P", opt.P, 2), Dim: dim, KeepDim: true})
	return input.Div(norm.ClampMin(args.Float(op, "Eps", opt.Eps, 1e-12)).ExpandAs(input))
}
