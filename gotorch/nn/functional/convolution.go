package functional

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// ConvOptions are the arguments of [Conv1d], [Conv2d] and [Conv3d] that have defaults. Lists have one
// element for all directions, or one for each.
type ConvOptions struct {
	Bias        gotorch.Tensor // (out); default: none
	Stride      []int64        // default: 1
	Padding     []int64        // default: 0
	SamePadding bool           // PyTorch's padding='same': as much padding as keeps the size
	Dilation    []int64        // the distance between elements of the kernel; default: 1
	Groups      gotorch.Scalar // default: 1
}

// Conv1dOptions are the arguments of [Conv1d] that have defaults.
type Conv1dOptions = ConvOptions

// Conv2dOptions are the arguments of [Conv2d] that have defaults.
type Conv2dOptions = ConvOptions

// Conv3dOptions are the arguments of [Conv3d] that have defaults.
type Conv3dOptions = ConvOptions

// groups returns the number of groups. It panics with a ValueError for contradicting options.
func (o ConvOptions) groups(op string) *int64 {
	if o.SamePadding && o.Padding != nil {
		panic(args.ValueError(op, "Padding and SamePadding exclude each other"))
	}
	groups := args.Int(op, "Groups", o.Groups, 1)
	return &groups
}

// Conv1d correlates sequences with a kernel: (N, in, L) → (N, out, L'), also without N, for a weight of
// (out, in/Groups, length) and a Bias of (out). It panics with a RuntimeError if they do not fit, or if
// Groups is not positive.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv1d.html.
func Conv1d(input, weight gotorch.Tensor, opts ...Conv1dOptions) gotorch.Tensor {
	o := args.Option(opts)
	groups := o.groups("functional.Conv1d")
	if o.SamePadding {
		return gotorch.Conv1dPadding(input, weight, gotorch.Conv1dPaddingOptions{
			Bias: o.Bias, Stride: o.Stride, Padding: "same", Dilation: o.Dilation, Groups: groups})
	}
	return gotorch.Conv1d(input, weight, gotorch.Conv1dOptions{Bias: o.Bias, Stride: o.Stride, Padding: o.Padding, Dilation: o.Dilation, Groups: groups})
}

// Conv2d correlates pictures with a kernel: (N, in, H, W) → (N, out, H', W'), also without N, for a
// weight of (out, in/Groups, height, width) and a Bias of (out). It panics with a RuntimeError if they do
// not fit, or if Groups is not positive.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv2d.html.
func Conv2d(input, weight gotorch.Tensor, opts ...Conv2dOptions) gotorch.Tensor {
	o := args.Option(opts)
	groups := o.groups("functional.Conv2d")
	if o.SamePadding {
		return gotorch.Conv2dPadding(input, weight, gotorch.Conv2dPaddingOptions{
			Bias: o.Bias, Stride: o.Stride, Padding: "same", Dilation: o.Dilation, Groups: groups})
	}
	return gotorch.Conv2d(input, weight, gotorch.Conv2dOptions{Bias: o.Bias, Stride: o.Stride, Padding: o.Padding, Dilation: o.Dilation, Groups: groups})
}

// Conv3d correlates volumes with a kernel: (N, in, D, H, W) → (N, out, D', H', W'), also without N, for a
// weight of (out, in/Groups, depth, height, width) and a Bias of (out). It panics with a RuntimeError if
// they do not fit, or if Groups is not positive.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv3d.html.
func Conv3d(input, weight gotorch.Tensor, opts ...Conv3dOptions) gotorch.Tensor {
	o := args.Option(opts)
	groups := o.groups("functional.Conv3d")
	if o.SamePadding {
		return gotorch.Conv3dPadding(input, weight, gotorch.Conv3dPaddingOptions{
			Bias: o.Bias, Stride: o.Stride, Padding: "same", Dilation: o.Dilation, Groups: groups})
	}
	return gotorch.Conv3d(input, weight, gotorch.Conv3dOptions{Bias: o.Bias, Stride: o.Stride, Padding: o.Padding, Dilation: o.Dilation, Groups: groups})
}

// ConvTransposeOptions are the arguments of [ConvTranspose1d], [ConvTranspose2d] and [ConvTranspose3d]
// that have defaults. Lists have one element for all directions, or one for each.
type ConvTransposeOptions struct {
	Bias          gotorch.Tensor // (out); default: none
	Stride        []int64        // default: 1
	Padding       []int64        // default: 0
	OutputPadding []int64        // what is added to one side of the result; default: 0
	Groups        gotorch.Scalar // default: 1
	Dilation      []int64        // the distance between elements of the kernel; default: 1
}

// ConvTranspose1dOptions are the arguments of [ConvTranspose1d] that have defaults.
type ConvTranspose1dOptions = ConvTransposeOptions

// ConvTranspose2dOptions are the arguments of [ConvTranspose2d] that have defaults.
type ConvTranspose2dOptions = ConvTransposeOptions

// ConvTranspose3dOptions are the arguments of [ConvTranspose3d] that have defaults.
type ConvTranspose3dOptions = ConvTransposeOptions

// ConvTranspose1d is the adjoint of [Conv1d]: (N, in, L) → (N, out, L'), also without N, for a weight of
// (in, out/Groups, length) and a Bias of (out).
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv_transpose1d.html.
func ConvTranspose1d(input, weight gotorch.Tensor, opts ...ConvTranspose1dOptions) gotorch.Tensor {
	o := args.Option(opts)
	groups := args.Int("functional.ConvTranspose1d", "Groups", o.Groups, 1)
	return gotorch.ConvTranspose1d(input, weight, gotorch.ConvTranspose1dOptions{
		Bias: o.Bias, Stride: o.Stride, Padding: o.Padding, OutputPadding: o.OutputPadding, Groups: &groups, Dilation: o.Dilation})
}

// ConvTranspose2d is the adjoint of [Conv2d]: (N, in, H, W) → (N, out, H', W'), also without N, for a
// weight of (in, out/Groups, height, width) and a Bias of (out).
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv_transpose2d.html.
func ConvTranspose2d(input, weight gotorch.Tensor, opts ...ConvTranspose2dOptions) gotorch.Tensor {
	o := args.Option(opts)
	groups := args.Int("functional.ConvTranspose2d", "Groups", o.Groups, 1)
	return gotorch.ConvTranspose2d(input, weight, gotorch.ConvTranspose2dOptions{
		Bias: o.Bias, Stride: o.Stride, Padding: o.Padding, OutputPadding: o.OutputPadding, Groups: &groups, Dilation: o.Dilation})
}

// ConvTranspose3d is the adjoint of [Conv3d]: (N, in, D, H, W) → (N, out, D', H', W'), also without N, for
// a weight of (in, out/Groups, depth, height, width) and a Bias of (out).
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv_transpose3d.html.
func ConvTranspose3d(input, weight gotorch.Tensor, opts ...ConvTranspose3dOptions) gotorch.Tensor {
	o := args.Option(opts)
	groups := args.Int("functional.ConvTranspose3d", "Groups", o.Groups, 1)
	return gotorch.ConvTranspose3d(input, weight, gotorch.ConvTranspose3dOptions{
		Bias: o.Bias, Stride: o.Stride, Padding: o.Padding, OutputPadding: o.OutputPadding, Groups: &groups, Dilation: o.Dilation})
}
