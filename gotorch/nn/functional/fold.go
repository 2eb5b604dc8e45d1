package functional

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// FoldOptions are the arguments of [Fold] that have defaults. Lists have one element for both
// directions, or height and width.
type FoldOptions struct {
	Dilation []int64 // the distance between elements of the kernel; default: 1
	Padding  []int64 // default: 0
	Stride   []int64 // default: 1
}

// Fold adds up blocks to pictures: (N, C·k₀·k₁, L) → (N, C, outputSize...), also without N. It is the
// adjoint of [Unfold].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.fold.html.
func Fold(input gotorch.Tensor, outputSize, kernelSize []int64, opts ...FoldOptions) gotorch.Tensor {
	const op = "functional.Fold"
	opt := args.Option(opts)
	return gotorch.Col2Im(input, times(op, "outputSize", outputSize, 0, 2), times(op, "kernelSize", kernelSize, 0, 2),
		times(op, "Dilation", opt.Dilation, 1, 2), times(op, "Padding", opt.Padding, 0, 2), times(op, "Stride", opt.Stride, 1, 2))
}

// UnfoldOptions are the arguments of [Unfold] that have defaults. Lists have one element for both
// directions, or height and width.
type UnfoldOptions struct {
	Dilation []int64 // the distance between elements of the kernel; default: 1
	Padding  []int64 // default: 0
	Stride   []int64 // default: 1
}

// Unfold takes the blocks out of pictures that a window of kernelSize slides over:
// (N, C, H, W) → (N, C·k₀·k₁, L), also without N.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.unfold.html.
func Unfold(input gotorch.Tensor, kernelSize []int64, opts ...UnfoldOptions) gotorch.Tensor {
	const op = "functional.Unfold"
	opt := args.Option(opts)
	return gotorch.Im2Col(input, times(op, "kernelSize", kernelSize, 0, 2), times(op, "Dilation", opt.Dilation, 1, 2),
		times(op, "Padding", opt.Padding, 0, 2), times(op, "Stride", opt.Stride, 1, 2))
}
