package functional

import (
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Reduction is what a loss makes of the losses of all elements.
type Reduction int

// PyTorch's reductions.
const (
	Mean Reduction = iota // their mean; with class weights the weighted one
	Sum                   // their sum
	None                  // all of them
)

// code returns the number that libtorch has for r.
func (r Reduction) code(op string) *int64 {
	if r < 0 || int(r) >= len(reductionCodes) {
		panic(args.ValueError(op, "%d is no reduction: it may be Mean, Sum or None", r))
	}
	return &reductionCodes[r]
}

var reductionCodes = [...]int64{Mean: 1, Sum: 2, None: 0}

// CrossEntropyOptions are the arguments of [CrossEntropy] that have defaults.
type CrossEntropyOptions struct {
	Weight         gotorch.Tensor // of each class, (C); default: all the same
	Reduction      Reduction
	IgnoreIndex    gotorch.Scalar // a class that does not count; default: -100
	LabelSmoothing float64        // the part of the target that all classes share, from 0 to 1
}

// CrossEntropy measures how far a model's scores for each class are from the right class: input is
// (N, C) or (N, C, *) or (C), target the classes as int64, of the same shape without C, or the
// probability of each class, of the same shape.
func CrossEntropy(input, target gotorch.Tensor, opts ...CrossEntropyOptions) gotorch.Tensor {
	const op = "functional.CrossEntropy"
	opt := args.Option(opts)
	ignore := args.Int(op, "IgnoreIndex", opt.IgnoreIndex, -100)
	return gotorch.CrossEntropyLoss(input, target, gotorch.CrossEntropyLossOptions{
		Weight: opt.Weight, Reduction: opt.Reduction.code(op), IgnoreIndex: &ignore,
		LabelSmoothing: opt.LabelSmoothing})
}

// NLLLossOptions are the arguments of [NLLLoss] that have defaults.
type NLLLossOptions struct {
	Weight      gotorch.Tensor // of each class, (C); default: all the same
	Reduction   Reduction
	IgnoreIndex gotorch.Scalar // a class that does not count; default: -100
}

// NLLLoss is [CrossEntropy] for the logarithms of probabilities, as [LogSoftmax] makes them, and
// classes as targets.
func NLLLoss(input, target gotorch.Tensor, opts ...NLLLossOptions) gotorch.Tensor {
	const op = "functional.NLLLoss"
	opt := args.Option(opts)
	ignore := args.Int(op, "IgnoreIndex", opt.IgnoreIndex, -100)
	return gotorch.NLLLossND(input, target, gotorch.NLLLossNDOptions{
		Weight: opt.Weight, Reduction: opt.Reduction.code(op), IgnoreIndex: &ignore})
}

// MSELossOptions are the arguments of [MSELoss] that have defaults.
type MSELossOptions struct {
	Reduction Reduction
	Weight    gotorch.Tensor // of each element; default: all the same
}

// MSELoss returns the squares of the differences between input and target, each times its Weight; the
// mean is then by the sum of weights. It panics with a ValueError if the shapes differ, which PyTorch
// warns of: they would be broadcast, and that is rarely meant.
func MSELoss(input, target gotorch.Tensor, opts ...MSELossOptions) gotorch.Tensor {
	const op = "functional.MSELoss"
	opt := args.Option(opts)
	code := opt.Reduction.code(op)
	shape := input.Shape()
	if !slices.Equal(shape, target.Shape()) {
		panic(args.ValueError(op, "input and target must have the same shape, got %v and %v", shape, target.Shape()))
	}
	if opt.Weight.T == nil {
		return gotorch.MSELoss(input, target, gotorch.MSELossOptions{Reduction: code})
	}
	if !slices.Equal(shape, opt.Weight.Shape()) {
		panic(args.ValueError(op, "weight and input must have the same shape, got %v and %v", opt.Weight.Shape(), shape))
	}
	losses := input.Sub(target).Pow(2).Mul(opt.Weight)
	switch opt.Reduction {
	case Sum:
		return losses.Sum()
	case None:
		return losses
	}
	return losses.Sum().Div(opt.Weight.Sum())
}
