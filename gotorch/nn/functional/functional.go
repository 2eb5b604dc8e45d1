// Package functional has the layers and losses of torch.nn.functional as plain functions: without
// weights of their own, for use inside a module's Forward and as the loss of a training loop.
//
//	import F "gotorch.dev/gotorch/nn/functional"
//
//	func (n *Net) Forward(x gotorch.Tensor) gotorch.Tensor {
//		x = F.ReLU(n.Conv1.Forward(x))
//		x = F.MaxPool2d(x, []int64{2})
//		x = F.Dropout(x, 0.25, n.Training())
//		return F.LogSoftmax(n.FC.Forward(x.Flatten(gotorch.FlattenOptions{StartDim: 1})), 1)
//	}
//
//	loss := F.CrossEntropy(scores, classes)
//	loss = F.CrossEntropy(scores, classes, F.CrossEntropyOptions{LabelSmoothing: 0.1})
//
// Where package gotorch has a function of the same name, this one differs as it does in PyTorch: by
// options that are easier to read, and by checks.
package functional

import (
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// LinearOptions are the arguments of [Linear] that have defaults.
type LinearOptions struct {
	Bias gotorch.Tensor // default: none
}

// Linear returns input·weightᵀ + Bias: (*, in) → (*, out) for a weight of (out, in) and a Bias of
// (out).
func Linear(input, weight gotorch.Tensor, opts ...LinearOptions) gotorch.Tensor {
	return gotorch.Linear(input, weight, gotorch.LinearOptions{Bias: args.Option(opts).Bias})
}

// Conv2dOptions are the arguments of [Conv2d] that have defaults. Lists have one element for both
// directions, or height and width.
type Conv2dOptions struct {
	Bias        gotorch.Tensor // default: none
	Stride      []int64        // default: 1
	Padding     []int64        // default: 0
	SamePadding bool           // PyTorch's padding='same': as much padding as keeps height and width
	Dilation    []int64        // default: 1
	Groups      gotorch.Scalar // default: 1
}

// Conv2d correlates pictures with a kernel: (N, in, H, W) → (N, out, H', W'), also without N, for a
// weight of (out, in/Groups, height, width) and a Bias of (out). It panics with a RuntimeError if they do
// not fit, or if Groups is not positive.
func Conv2d(input, weight gotorch.Tensor, opts ...Conv2dOptions) gotorch.Tensor {
	opt := args.Option(opts)
	groups := args.Int("functional.Conv2d", "Groups", opt.Groups, 1)
	if opt.SamePadding {
		if opt.Padding != nil {
			panic(args.ValueError("functional.Conv2d", "Padding and SamePadding exclude each other"))
		}
		return gotorch.Conv2dPadding(input, weight, gotorch.Conv2dPaddingOptions{
			Bias: opt.Bias, Stride: opt.Stride, Padding: "same", Dilation: opt.Dilation, Groups: &groups})
	}
	return gotorch.Conv2d(input, weight, gotorch.Conv2dOptions{
		Bias: opt.Bias, Stride: opt.Stride, Padding: opt.Padding, Dilation: opt.Dilation, Groups: &groups})
}

// PadMode is what [Pad] puts around a tensor.
type PadMode string

// PyTorch's modes. PadConstant and PadZeros are the same where no value is given.
const (
	PadConstant  PadMode = "constant"
	PadZeros     PadMode = "zeros"
	PadReflect   PadMode = "reflect"
	PadReplicate PadMode = "replicate"
	PadCircular  PadMode = "circular"
)

// Valid reports whether m is one of PyTorch's modes, or "" for the default.
func (m PadMode) Valid() bool {
	return slices.Contains([]PadMode{"", PadConstant, PadZeros, PadReflect, PadReplicate, PadCircular}, m)
}

// PadOptions are the arguments of [Pad] that have defaults.
type PadOptions struct {
	Mode  PadMode // default: PadConstant
	Value float64 // of PadConstant
}

// Pad makes a tensor larger at the ends of its last dimensions: pad has how many elements go before
// and after the last one, then before and after the one before it, and so on. It panics with a
// RuntimeError if a Value is given that the mode has no use for.
func Pad(input gotorch.Tensor, pad []int64, opts ...PadOptions) gotorch.Tensor {
	opt := args.Option(opts)
	if opt.Mode == "" || opt.Mode == PadZeros {
		opt.Mode = PadConstant
	}
	to := gotorch.PadOptions{Mode: string(opt.Mode)}
	if opt.Mode == PadConstant || opt.Value != 0 { // which the other modes refuse
		to.Value = &opt.Value
	}
	return gotorch.Pad(input, pad, to)
}

// MaxPool2dOptions are the arguments of [MaxPool2d] that have defaults. Lists have one element for
// both directions, or height and width.
type MaxPool2dOptions struct {
	Stride   []int64 // default: the kernel's size
	Padding  []int64 // default: 0
	Dilation []int64 // default: 1
	CeilMode bool    // round the size of the result up
}

// MaxPool2d returns the largest element under each place of a window: (N, C, H, W) → (N, C, H', W'),
// also without N. kernel has one element for both directions, or height and width.
func MaxPool2d(input gotorch.Tensor, kernel []int64, opts ...MaxPool2dOptions) gotorch.Tensor {
	return gotorch.MaxPool2d(input, kernel, gotorch.MaxPool2dOptions(args.Option(opts)))
}

// MaxPool2dWithIndices is [MaxPool2d] that also returns where each element was: its place in its
// flattened picture, an int64.
func MaxPool2dWithIndices(input gotorch.Tensor, kernel []int64, opts ...MaxPool2dOptions) (largest, indices gotorch.Tensor) {
	return gotorch.MaxPool2dWithIndices(input, kernel, gotorch.MaxPool2dWithIndicesOptions(args.Option(opts)))
}

// ReLUOptions are the arguments of [ReLU] that have defaults.
type ReLUOptions struct {
	InPlace bool // overwrite the input
}

// ReLU replaces negative elements by zero; the shape stays.
func ReLU(input gotorch.Tensor, opts ...ReLUOptions) gotorch.Tensor {
	if args.Option(opts).InPlace {
		return input.ReLU_()
	}
	return input.ReLU()
}

// DropoutOptions are the arguments of [Dropout] that have defaults.
type DropoutOptions struct {
	InPlace bool // overwrite the input
}

// Dropout replaces elements by zero, each with probability p, and makes the others larger by 1/(1-p);
// unless training, it changes nothing. The shape stays. It panics with a ValueError if p is not
// between 0 and 1.
func Dropout(input gotorch.Tensor, p float64, training bool, opts ...DropoutOptions) gotorch.Tensor {
	if !(p >= 0 && p <= 1) {
		panic(args.ValueError("functional.Dropout", "dropout probability has to be between 0 and 1, but got %v", p))
	}
	if args.Option(opts).InPlace {
		return gotorch.Dropout_(input, p, training)
	}
	return gotorch.Dropout(input, p, training)
}

// BatchNormOptions are the arguments of [BatchNorm] that have defaults.
type BatchNormOptions struct {
	Weight      gotorch.Tensor // (C); default: none
	Bias        gotorch.Tensor // (C); default: none
	RunningMean gotorch.Tensor // (C); default: none
	RunningVar  gotorch.Tensor // (C); default: none
	Training    bool           // go by the batch's mean and variance, and update the running ones
	Momentum    gotorch.Scalar // the part of the running statistics that a batch replaces; default: 0.1
	Eps         gotorch.Scalar // added to the variance; default: 1e-5
}

// BatchNorm gives each channel of (N, C, *) the mean Bias and the deviation Weight. Unless Training
// it needs RunningMean and RunningVar. It panics with a ValueError if there is only one value per
// channel to train by, or if Eps is negative (in training: not positive).
func BatchNorm(input gotorch.Tensor, opts ...BatchNormOptions) gotorch.Tensor {
	const op = "functional.BatchNorm"
	opt := args.Option(opts)
	eps := args.Float(op, "Eps", opt.Eps, 1e-5)
	if opt.Training {
		shape := input.Shape()
		if len(shape) > 0 {
			values := shape[0]
			for _, n := range shape[min(2, len(shape)):] {
				values *= n
			}
			if values == 1 {
				panic(args.ValueError(op, "expected more than 1 value per channel when training, got input size %v", shape))
			}
		}
		if eps <= 0 {
			panic(args.ValueError(op, "eps must be positive during training, but got %v", eps))
		}
	} else if eps < 0 {
		panic(args.ValueError(op, "eps must be non-negative, but got %v", eps))
	}
	return gotorch.BatchNorm(input, opt.Weight, opt.Bias, opt.RunningMean, opt.RunningVar, opt.Training,
		args.Float(op, "Momentum", opt.Momentum, 0.1), eps, gotorch.CuDNN.Enabled())
}

// SoftmaxOptions are the arguments of [Softmax] and [LogSoftmax] that have defaults.
type SoftmaxOptions struct {
	DType gotorch.DType // convert to this dtype first; default: the input's
}

// Softmax returns positive numbers in proportion to the exponential of input's that sum to 1 along
// dim; the shape stays.
func Softmax(input gotorch.Tensor, dim int64, opts ...SoftmaxOptions) gotorch.Tensor {
	return gotorch.Softmax(input, dim, gotorch.SoftmaxOptions(args.Option(opts)))
}

// LogSoftmax returns the logarithm of [Softmax], without the loss of precision of both together.
func LogSoftmax(input gotorch.Tensor, dim int64, opts ...SoftmaxOptions) gotorch.Tensor {
	return gotorch.LogSoftmax(input, dim, gotorch.LogSoftmaxOptions(args.Option(opts)))
}
