package nn

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
)

// ReLUModule is what [ReLU] makes.
type ReLUModule struct {
	Module
	InPlace bool
}

// ReLUOptions are the arguments of [ReLU] that have defaults.
type ReLUOptions struct {
	InPlace bool // overwrite the input
}

// ReLU replaces negative elements by zero; the shape stays.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU.html.
func ReLU(opts ...ReLUOptions) *ReLUModule {
	return Init(&ReLUModule{InPlace: args.Option(opts).InPlace})
}

// Forward returns x with zeros in place of negative elements.
func (m *ReLUModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	return F.ReLU(x, F.ReLUOptions{InPlace: m.InPlace})
}

// ExtraRepr returns what String writes between the parentheses.
func (m *ReLUModule) ExtraRepr() string {
	if m.InPlace {
		return "inplace=True"
	}
	return ""
}

// FlattenModule is what [Flatten] makes.
type FlattenModule struct {
	Module
	StartDim, EndDim int64
}

// FlattenOptions are the arguments of [Flatten] that have defaults.
type FlattenOptions struct {
	StartDim gotorch.Scalar // default: 1
	EndDim   gotorch.Scalar // default: -1
}

// Flatten joins the dimensions from StartDim to EndDim to one: (N, C, H, W) → (N, C·H·W).
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Flatten.html.
func Flatten(opts ...FlattenOptions) *FlattenModule {
	const op = "nn.Flatten"
	opt := args.Option(opts)
	return Init(&FlattenModule{StartDim: args.Int(op, "StartDim", opt.StartDim, 1), EndDim: args.Int(op, "EndDim", opt.EndDim, -1)})
}

// Forward returns x with fewer dimensions, without copying where it can.
func (m *FlattenModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	return x.Flatten(gotorch.FlattenOptions{StartDim: m.StartDim, EndDim: &m.EndDim})
}

// ExtraRepr returns what String writes between the parentheses.
func (m *FlattenModule) ExtraRepr() string {
	return fmt.Sprintf("start_dim=%d, end_dim=%d", m.StartDim, m.EndDim)
}

// DropoutModule is what [Dropout] makes.
type DropoutModule struct {
	Module
	P       float64
	InPlace bool
}

// DropoutOptions are the arguments of [Dropout] that have defaults.
type DropoutOptions struct {
	InPlace bool // overwrite the input
}

// Dropout replaces elements by zero, each with probability p, while the module is training, and makes
// the others larger by 1/(1-p); otherwise it changes nothing. The shape stays. It panics with a
// ValueError if p is not between 0 and 1.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout.html.
func Dropout(p float64, opts ...DropoutOptions) *DropoutModule {
	if !(p >= 0 && p <= 1) {
		panic(args.ValueError("nn.Dropout", "dropout probability has to be between 0 and 1, but got %v", p))
	}
	return Init(&DropoutModule{P: p, InPlace: args.Option(opts).InPlace})
}

// Forward returns x with some elements zero, if the module is training.
func (m *DropoutModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	return F.Dropout(x, m.P, m.Training(), F.DropoutOptions{InPlace: m.InPlace})
}

// ExtraRepr returns what String writes between the parentheses.
func (m *DropoutModule) ExtraRepr() string {
	return fmt.Sprintf("p=%s, inplace=%s", pyFloat(m.P), pyBool(m.InPlace))
}

// MaxPool2dModule is what [MaxPool2d] makes.
type MaxPool2dModule struct {
	Module
	KernelSize, Stride, Padding, Dilation []int64 // one number for both directions, or height and width
	CeilMode                              bool
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
// also without N. PyTorch's return_indices is the method ForwardWithIndices.
//
//	nn.MaxPool2d(2)
//	nn.MaxPool2d([]int64{3, 2}, nn.MaxPool2dOptions{Stride: []int64{2, 1}})
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxPool2d.html.
func MaxPool2d[K Pair](kernel K, opts ...MaxPool2dOptions) *MaxPool2dModule {
	opt := args.Option(opts)
	size := ints(kernel)
	m := &MaxPool2dModule{KernelSize: size, Stride: opt.Stride, Padding: orInts(opt.Padding, 0),
		Dilation: orInts(opt.Dilation, 1), CeilMode: opt.CeilMode}
	if m.Stride == nil {
		m.Stride = size
	}
	return Init(m)
}

func (m *MaxPool2dModule) options() F.MaxPool2dOptions {
	return F.MaxPool2dOptions{Stride: m.Stride, Padding: m.Padding, Dilation: m.Dilation, CeilMode: m.CeilMode}
}

// Forward returns the largest elements.
func (m *MaxPool2dModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	return F.MaxPool2d(x, m.KernelSize, m.options())
}

// ForwardWithIndices returns the largest elements, and where each was: its place in its flattened
// picture, an int64.
func (m *MaxPool2dModule) ForwardWithIndices(x gotorch.Tensor) (largest, indices gotorch.Tensor) {
	return F.MaxPool2dWithIndices(x, m.KernelSize, m.options())
}

// ExtraRepr returns what String writes between the parentheses.
func (m *MaxPool2dModule) ExtraRepr() string {
	return fmt.Sprintf("kernel_size=%s, stride=%s, padding=%s, dilation=%s, ceil_mode=%s",
		pyInts(m.KernelSize), pyInts(m.Stride), pyInts(m.Padding), pyInts(m.Dilation), pyBool(m.CeilMode))
}
