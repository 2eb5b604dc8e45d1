package nn

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/nn/internal/fields"
)

// ConvNd is what the convolutions have in common. Lists have one element for each direction.
type ConvNd struct {
	Module
	InChannels, OutChannels               int64
	KernelSize, Stride, Padding, Dilation []int64
	SamePadding                           bool
	Groups                                int64
	PaddingMode                           F.PadMode

	Weight gotorch.Tensor // (OutChannels, InChannels/Groups, KernelSize...)
	Bias   gotorch.Tensor // (OutChannels), or none

	op   string
	lazy laziness
}

// ConvOptions are the arguments of the convolutions that have defaults. Lists have one element for all
// directions, or one for each.
type ConvOptions struct {
	Stride      []int64        // default: 1
	Padding     []int64        // default: 0
	SamePadding bool           // PyTorch's padding='same': as much padding as keeps the size
	Dilation    []int64        // the distance between elements of the kernel; default: 1
	Groups      gotorch.Scalar // default: 1
	NoBias      bool
	PaddingMode F.PadMode // default: F.PadZeros; also F.PadReflect, F.PadReplicate and F.PadCircular
	Device      gotorch.Device
	DType       gotorch.DType
}

func (o ConvOptions) full() ConvOptions { return o }

// checkGroups panics with a ValueError unless the channels can be divided into groups.
func checkGroups(op string, in, out, groups int64) {
	switch {
	case groups <= 0:
		panic(args.ValueError(op, "groups must be a positive integer"))
	case in%groups != 0:
		panic(args.ValueError(op, "in_channels must be divisible by groups"))
	case out%groups != 0:
		panic(args.ValueError(op, "out_channels must be divisible by groups"))
	}
}

func (m *ConvNd) setUp(op string, directions int, in, out int64, kernel []int64, opt ConvOptions) {
	m.op = op
	if in == lazily {
		m.lazy.waits.Store(true)
		in = 0
	}
	m.InChannels, m.OutChannels = in, out
	m.KernelSize = times(op, "kernelSize", kernel, directions)
	m.Stride = times(op, "Stride", orInts(opt.Stride, 1), directions)
	m.Padding = times(op, "Padding", orInts(opt.Padding, 0), directions)
	m.Dilation = times(op, "Dilation", orInts(opt.Dilation, 1), directions)
	m.SamePadding, m.PaddingMode = opt.SamePadding, opt.PaddingMode
	m.Groups = args.Int(op, "Groups", opt.Groups, 1)
	checkGroups(op, in, out, m.Groups)
	switch {
	case m.SamePadding && opt.Padding != nil:
		panic(args.ValueError(op, "Padding and SamePadding exclude each other"))
	case m.SamePadding && !allEqual(m.Stride, 1):
		panic(args.ValueError(op, "padding='same' is not supported for strided convolutions"))
	case !m.PaddingMode.Valid() || m.PaddingMode == F.PadConstant:
		panic(args.ValueError(op, "padding_mode must be one of zeros, reflect, replicate and circular, but got %q", m.PaddingMode))
	}
	create := gotorch.TensorOptions{Device: opt.Device, DType: opt.DType}
	if !opt.NoBias {
		m.Bias = gotorch.Empty([]int64{out}, create)
	}
	if m.isLazy() {
		m.Weight = uninitialized(create)
		checkShape(op, m.shape()) // now, and not when the size that is open is found
		return
	}
	m.Weight = gotorch.Empty(m.shape(), create)
	m.ResetParameters()
}

// checkShape panics with a RuntimeError if a tensor cannot have a shape.
func checkShape(op string, shape []int64) {
	for _, n := range shape {
		if n < 0 {
			panic(runtimeError(op, "the shape of the weight, %v, has a negative size", shape))
		}
	}
}

// shape is Weight's.
func (m *ConvNd) shape() []int64 {
	return append([]int64{m.OutChannels, m.InChannels / m.Groups}, m.KernelSize...)
}

func (m *ConvNd) convolution() fields.Convolution {
	return fields.Convolution{Weight: &m.Weight, Bias: &m.Bias, Directions: len(m.KernelSize)}
}

func (m *ConvNd) isLazy() bool { return m.lazy.waits.Load() }

func (m *ConvNd) materialize(in int64) {
	checkGroups(m.op, in, m.OutChannels, m.Groups)
	m.lazy.end(func() {
		m.InChannels = in
		initialize(m.Weight, m.shape())
		m.ResetParameters()
	})
}

func (m *ConvNd) unshape() {
	m.InChannels = 0
	uninitialize(m.Weight)
	m.lazy.waits.Store(true)
}

func (m *ConvNd) openSize(shape func(name string) []int64) (int64, bool) {
	s := shape("weight")
	if len(s) < 2 {
		return 0, false
	}
	return s[1] * m.Groups, true
}

// ResetParameters draws weight and bias anew.
func (m *ConvNd) ResetParameters() { resetWeightAndBias(m.Weight, m.Bias) }

func (m *ConvNd) forward(x gotorch.Tensor) gotorch.Tensor {
	m.outer()
	if m.isLazy() {
		m.materialize(found(m.op, x, channelDim(x, len(m.KernelSize))))
	}
	opt := F.ConvOptions{Bias: m.Bias, Stride: m.Stride, Dilation: m.Dilation, Groups: m.Groups}
	switch {
	case m.PaddingMode != "" && m.PaddingMode != F.PadZeros:
		x = F.Pad(x, m.margins(), F.PadOptions{Mode: m.PaddingMode})
	case m.SamePadding:
		opt.SamePadding = true
	default:
		opt.Padding = m.Padding
	}
	switch len(m.KernelSize) {
	case 1:
		return F.Conv1d(x, m.Weight, opt)
	case 2:
		return F.Conv2d(x, m.Weight, opt)
	}
	return F.Conv3d(x, m.Weight, opt)
}

// channelDim returns which dimension of x is the channels.
func channelDim(x gotorch.Tensor, directions int) int {
	if int(x.Dim()) == directions+1 {
		return 0
	}
	return 1
}

// margins returns how much padding goes before and after, in each direction, the last one first.
func (m *ConvNd) margins() []int64 {
	var margins []int64
	for i := len(m.Padding) - 1; i >= 0; i-- {
		before, after := m.Padding[i], m.Padding[i]
		if m.SamePadding {
			// Where the padding is odd, the larger part goes behind.
			all := m.Dilation[i] * (m.KernelSize[i] - 1)
			before, after = all/2, all-all/2
		}
		margins = append(margins, before, after)
	}
	return margins
}

// ExtraRepr returns what String writes between the parentheses.
func (m *ConvNd) ExtraRepr() string {
	padding := pyTuple(m.Padding)
	if m.SamePadding {
		padding = "same"
	} else if allEqual(m.Padding, 0) {
		padding = ""
	}
	return convRepr(m.InChannels, m.OutChannels, m.KernelSize, m.Stride, padding, m.Dilation, nil, m.Groups, m.Bias, m.PaddingMode)
}

func convRepr(in, out int64, kernel, stride []int64, padding string, dilation, outputPadding []int64, groups int64, bias gotorch.Tensor, mode F.PadMode) string {
	s := fmt.Sprintf("%d, %d, kernel_size=%s, stride=%s", in, out, pyTuple(kernel), pyTuple(stride))
	s += when(padding != "", ", padding="+padding)
	s += when(!allEqual(dilation, 1), ", dilation="+pyTuple(dilation))
	s += when(!allEqual(outputPadding, 0), ", output_padding="+pyTuple(outputPadding))
	s += when(groups != 1, fmt.Sprintf(", groups=%d", groups))
	s += when(bias.T == nil, ", bias=False")
	return s + when(mode != "" && mode != F.PadZeros, ", padding_mode="+string(mode))
}

func (m *ConvNd) className() string { return lazyName(m.isLazy(), m.self) }

// lazyName is the name of a lazy module's class, or "" where it is not lazy any more.
func lazyName(lazy bool, self Modular) string {
	if !lazy {
		return ""
	}
	return "Lazy" + typeName(self)
}

// ConvTransposeNd is what the transposed convolutions have in common. Lists have one element for each
// direction.
type ConvTransposeNd struct {
	Module
	InChannels, OutChannels                              int64
	KernelSize, Stride, Padding, OutputPadding, Dilation []int64
	Groups                                               int64

	Weight gotorch.Tensor // (InChannels, OutChannels/Groups, KernelSize...)
	Bias   gotorch.Tensor // (OutChannels), or none

	op   string
	lazy laziness
}

// ConvTransposeOptions are the arguments of the transposed convolutions that have defaults. Lists have one
// element for all directions, or one for each.
type ConvTransposeOptions struct {
	Stride        []int64        // default: 1
	Padding       []int64        // of the convolution that this is the adjoint of; default: 0
	OutputPadding []int64        // what is added to one side of the result; default: 0
	Groups        gotorch.Scalar // default: 1
	NoBias        bool
	Dilation      []int64   // the distance between elements of the kernel; default: 1
	PaddingMode   F.PadMode // only F.PadZeros, which is the default
	Device        gotorch.Device
	DType         gotorch.DType
}

func (o ConvTransposeOptions) full() ConvTransposeOptions { return o }

func (m *ConvTransposeNd) setUp(op string, directions int, in, out int64, kernel []int64, opt ConvTransposeOptions) {
	m.op = op
	if in == lazily {
		m.lazy.waits.Store(true)
		in = 0
	}
	if opt.PaddingMode != "" && opt.PaddingMode != F.PadZeros {
		panic(args.ValueError(op, "only zeros padding mode is supported, not %q", opt.PaddingMode))
	}
	m.InChannels, m.OutChannels = in, out
	m.KernelSize = times(op, "kernelSize", kernel, directions)
	m.Stride = times(op, "Stride", orInts(opt.Stride, 1), directions)
	m.Padding = times(op, "Padding", orInts(opt.Padding, 0), directions)
	m.OutputPadding = times(op, "OutputPadding", orInts(opt.OutputPadding, 0), directions)
	m.Dilation = times(op, "Dilation", orInts(opt.Dilation, 1), directions)
	m.Groups = args.Int(op, "Groups", opt.Groups, 1)
	checkGroups(op, in, out, m.Groups)
	create := gotorch.TensorOptions{Device: opt.Device, DType: opt.DType}
	if !opt.NoBias {
		m.Bias = gotorch.Empty([]int64{out}, create)
	}
	if m.isLazy() {
		m.Weight = uninitialized(create)
		checkShape(op, m.shape()) // now, and not when the size that is open is found
		return
	}
	m.Weight = gotorch.Empty(m.shape(), create)
	m.ResetParameters()
}

func (m *ConvTransposeNd) shape() []int64 {
	return append([]int64{m.InChannels, m.OutChannels / m.Groups}, m.KernelSize...)
}

func (m *ConvTransposeNd) convolution() fields.Convolution {
	return fields.Convolution{Weight: &m.Weight, Bias: &m.Bias, Directions: len(m.KernelSize), Transposed: true}
}

func (m *ConvTransposeNd) isLazy() bool { return m.lazy.waits.Load() }

func (m *ConvTransposeNd) materialize(in int64) {
	checkGroups(m.op, in, m.OutChannels, m.Groups)
	m.lazy.end(func() {
		m.InChannels = in
		initialize(m.Weight, m.shape())
		m.ResetParameters()
	})
}

func (m *ConvTransposeNd) unshape() {
	m.InChannels = 0
	uninitialize(m.Weight)
	m.lazy.waits.Store(true)
}

func (m *ConvTransposeNd) openSize(shape func(name string) []int64) (int64, bool) {
	s := shape("weight")
	if len(s) < 2 {
		return 0, false
	}
	return s[0], true
}

// ResetParameters draws weight and bias anew.
func (m *ConvTransposeNd) ResetParameters() { resetWeightAndBias(m.Weight, m.Bias) }

func (m *ConvTransposeNd) forward(x gotorch.Tensor) gotorch.Tensor {
	return m.padded(x, m.OutputPadding)
}

// ForwardSize is Forward with a result of the given size, with or without N and C: which of the sizes it
// is that the convolution makes x's size of. It panics with a ValueError if it is none of them.
func (m *ConvTransposeNd) ForwardSize(x gotorch.Tensor, outputSize []int64) gotorch.Tensor {
	forward := func(x gotorch.Tensor) gotorch.Tensor { return m.padded(x, m.paddingFor(x, outputSize)) }
	if m.hooks != nil && ofThisPackage(m.outer()) || m.hooked(nil) {
		return m.around1(forward, x)
	}
	return forward(x)
}

// paddingFor returns the output padding for a result of the given size.
func (m *ConvTransposeNd) paddingFor(x gotorch.Tensor, outputSize []int64) []int64 {
	const op = "nn.ConvTranspose"
	shape, n := x.Shape(), len(m.KernelSize)
	others := 1
	if len(shape) == n+2 {
		others = 2
	}
	if len(shape) < others+n {
		panic(args.ValueError(op, "expected %dD or %dD input, got input size %v", n+1, n+2, shape))
	}
	size := outputSize
	if len(size) == others+n {
		size = size[others:]
	}
	if len(size) != n {
		panic(args.ValueError(op, "for %dD input, outputSize must have %d or %d elements, not %d", len(shape), n, n+others, len(outputSize)))
	}
	padding := make([]int64, n)
	for i := range n {
		least := (shape[others+i]-1)*m.Stride[i] - 2*m.Padding[i] + m.Dilation[i]*(m.KernelSize[i]-1) + 1
		if size[i] < least || size[i] >= least+m.Stride[i] {
			panic(args.ValueError(op, "requested an output size of %v, but in direction %d valid sizes range from %d to %d", size, i, least, least+m.Stride[i]-1))
		}
		padding[i] = size[i] - least
	}
	return padding
}

func (m *ConvTransposeNd) padded(x gotorch.Tensor, outputPadding []int64) gotorch.Tensor {
	m.outer()
	if m.isLazy() {
		m.materialize(found(m.op, x, channelDim(x, len(m.KernelSize))))
	}
	opt := F.ConvTransposeOptions{Bias: m.Bias, Stride: m.Stride, Padding: m.Padding, OutputPadding: outputPadding, Groups: m.Groups, Dilation: m.Dilation}
	switch len(m.KernelSize) {
	case 1:
		return F.ConvTranspose1d(x, m.Weight, opt)
	case 2:
		return F.ConvTranspose2d(x, m.Weight, opt)
	}
	return F.ConvTranspose3d(x, m.Weight, opt)
}

// ExtraRepr returns what String writes between the parentheses.
func (m *ConvTransposeNd) ExtraRepr() string {
	padding := when(!allEqual(m.Padding, 0), pyTuple(m.Padding))
	return convRepr(m.InChannels, m.OutChannels, m.KernelSize, m.Stride, padding, m.Dilation, m.OutputPadding, m.Groups, m.Bias, "")
}

func (m *ConvTransposeNd) className() string { return lazyName(m.isLazy(), m.self) }
