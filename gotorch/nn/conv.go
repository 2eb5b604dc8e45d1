package nn

import (
	"fmt"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
)

// Pair is a height and a width: one number for both, or a list of two.
type Pair interface {
	int | int64 | []int | []int64 | [2]int | [2]int64
}

// Conv2dModule is what [Conv2d] makes.
type Conv2dModule struct {
	Module
	InChannels, OutChannels               int64
	KernelSize, Stride, Padding, Dilation []int64 // height and width
	SamePadding                           bool
	Groups                                int64
	PaddingMode                           F.PadMode

	Weight gotorch.Tensor // (OutChannels, InChannels/Groups, KernelSize...)
	Bias   gotorch.Tensor // (OutChannels), or none
}

// Conv2dOptions are the arguments of [Conv2d] that have defaults. Lists have one element for both
// directions, or height and width.
type Conv2dOptions struct {
	Stride      []int64        // default: 1
	Padding     []int64        // default: 0
	SamePadding bool           // PyTorch's padding='same': as much padding as keeps height and width
	Dilation    []int64        // default: 1
	Groups      gotorch.Scalar // default: 1
	NoBias      bool
	PaddingMode F.PadMode // default: F.PadZeros; also F.PadReflect, F.PadReplicate and F.PadCircular
	Device      gotorch.Device
	DType       gotorch.DType
}

// Conv2d correlates pictures with a kernel: (N, in, H, W) → (N, out, H', W'), also without N. Weight
// and bias begin as random numbers, uniform between -1/√n and 1/√n, where n is the number of inputs
// to each output. It panics with a ValueError if Groups is not positive, or the channels are no multiples of it.
//
//	nn.Conv2d(3, 16, 5)
//	nn.Conv2d(3, 16, []int64{3, 5}, nn.Conv2dOptions{Padding: []int64{1, 2}})
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv2d.html.
func Conv2d[K Pair](in, out int64, kernel K, opts ...Conv2dOptions) *Conv2dModule {
	const op = "nn.Conv2d"
	opt := args.Option(opts)
	m := &Conv2dModule{
		InChannels: in, OutChannels: out,
		KernelSize:  twice(op, "kernel", ints(kernel)),
		Stride:      twice(op, "Stride", orInts(opt.Stride, 1)),
		Padding:     twice(op, "Padding", orInts(opt.Padding, 0)),
		SamePadding: opt.SamePadding,
		Dilation:    twice(op, "Dilation", orInts(opt.Dilation, 1)),
		Groups:      args.Int(op, "Groups", opt.Groups, 1),
		PaddingMode: opt.PaddingMode,
	}
	switch {
	case m.Groups <= 0:
		panic(args.ValueError(op, "groups must be a positive integer"))
	case in%m.Groups != 0:
		panic(args.ValueError(op, "in_channels must be divisible by groups"))
	case out%m.Groups != 0:
		panic(args.ValueError(op, "out_channels must be divisible by groups"))
	case m.SamePadding && opt.Padding != nil:
		panic(args.ValueError(op, "Padding and SamePadding exclude each other"))
	case m.SamePadding && (m.Stride[0] != 1 || m.Stride[1] != 1):
		panic(args.ValueError(op, "padding='same' is not supported for strided convolutions"))
	case !m.PaddingMode.Valid() || m.PaddingMode == F.PadConstant:
		panic(args.ValueError(op, "padding_mode must be one of zeros, reflect, replicate and circular, but got %q", m.PaddingMode))
	}
	create := gotorch.TensorOptions{Device: opt.Device, DType: opt.DType}
	m.Weight = gotorch.Empty([]int64{out, in / m.Groups, m.KernelSize[0], m.KernelSize[1]}, create)
	if !opt.NoBias {
		m.Bias = gotorch.Empty([]int64{out}, create)
	}
	m.ResetParameters()
	return Init(m)
}

// ResetParameters draws weight and bias anew.
func (m *Conv2dModule) ResetParameters() { resetWeightAndBias(m.Weight, m.Bias) }

// Forward returns the correlation of x with Weight, plus Bias.
func (m *Conv2dModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	m.outer()
	opt := F.Conv2dOptions{Bias: m.Bias, Stride: m.Stride, Dilation: m.Dilation, Groups: m.Groups}
	switch {
	case m.PaddingMode != "" && m.PaddingMode != F.PadZeros:
		x = F.Pad(x, m.margins(), F.PadOptions{Mode: m.PaddingMode})
	case m.SamePadding:
		opt.SamePadding = true
	default:
		opt.Padding = m.Padding
	}
	return F.Conv2d(x, m.Weight, opt)
}

// margins returns how much padding goes left, right, above and below.
func (m *Conv2dModule) margins() []int64 {
	if !m.SamePadding {
		return []int64{m.Padding[1], m.Padding[1], m.Padding[0], m.Padding[0]}
	}
	// Where the padding is odd, the larger part goes right and below.
	high, wide := m.Dilation[0]*(m.KernelSize[0]-1), m.Dilation[1]*(m.KernelSize[1]-1)
	return []int64{wide / 2, wide - wide/2, high / 2, high - high/2}
}

// ExtraRepr returns what String writes between the parentheses.
func (m *Conv2dModule) ExtraRepr() string {
	s := fmt.Sprintf("%d, %d, kernel_size=%s, stride=%s", m.InChannels, m.OutChannels, pyTuple(m.KernelSize), pyTuple(m.Stride))
	if m.SamePadding {
		s += ", padding=same"
	} else if !allEqual(m.Padding, 0) {
		s += ", padding=" + pyTuple(m.Padding)
	}
	if !allEqual(m.Dilation, 1) {
		s += ", dilation=" + pyTuple(m.Dilation)
	}
	if m.Groups != 1 {
		s += fmt.Sprintf(", groups=%d", m.Groups)
	}
	if m.Bias.T == nil {
		s += ", bias=False"
	}
	if m.PaddingMode != "" && m.PaddingMode != F.PadZeros {
		s += ", padding_mode=" + string(m.PaddingMode)
	}
	return s
}

// ints returns a Pair's one or two numbers.
func ints[K Pair](k K) []int64 {
	switch k := any(k).(type) {
	case int:
		return []int64{int64(k)}
	case int64:
		return []int64{k}
	case []int:
		list := make([]int64, len(k))
		for i, n := range k {
			list[i] = int64(n)
		}
		return list
	case []int64:
		return slices.Clone(k)
	case [2]int:
		return []int64{int64(k[0]), int64(k[1])}
	case [2]int64:
		return k[:]
	}
	panic("unreachable")
}

// orInts returns list, or a list of the default if it is nil.
func orInts(list []int64, value int64) []int64 {
	if list == nil {
		return []int64{value}
	}
	return slices.Clone(list)
}

// twice makes two numbers of one. It panics with a ValueError if there are others.
func twice(op, arg string, list []int64) []int64 {
	switch len(list) {
	case 1:
		return []int64{list[0], list[0]}
	case 2:
		return list
	}
	panic(args.ValueError(op, "%s must be one number or two, not %v", arg, list))
}

func allEqual(list []int64, value int64) bool {
	return !slices.ContainsFunc(list, func(n int64) bool { return n != value })
}
