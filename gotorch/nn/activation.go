package nn

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
	nninit "gotorch.dev/gotorch/nn/init"
)

func (m *HardtanhModule) check(op string) {
	if !(m.MaxVal > m.MinVal) {
		panic(args.ValueError(op, "max_val (%v) must be larger than min_val (%v)", m.MaxVal, m.MinVal))
	}
}

// PReLUModule is what [PReLU] makes.
type PReLUModule struct {
	Module
	NumParameters int64

	Weight gotorch.Tensor // (NumParameters)

	init float64
}

// PReLUOptions are the arguments of [PReLU] that have defaults.
type PReLUOptions struct {
	NumParameters gotorch.Scalar // one for all channels, or as many as there are; default: 1
	Init          gotorch.Scalar // what Weight begins as; default: 0.25
	Device        gotorch.Device
	DType         gotorch.DType
}

// PReLU multiplies negative elements by a Weight that is learned: one for all, or one for each channel, which
// is dimension 1; the shape stays.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.PReLU.html.
func PReLU(opts ...PReLUOptions) *PReLUModule {
	const op = "nn.PReLU"
	opt := args.Option(opts)
	m := &PReLUModule{NumParameters: args.Int(op, "NumParameters", opt.NumParameters, 1), init: args.Float(op, "Init", opt.Init, 0.25)}
	m.Weight = gotorch.Empty([]int64{m.NumParameters}, gotorch.TensorOptions{Device: opt.Device, DType: opt.DType})
	m.ResetParameters()
	return Init(m)
}

// ResetParameters makes Weight what it was at first.
func (m *PReLUModule) ResetParameters() { nninit.Constant_(m.Weight, m.init) }

// Forward returns F.PReLU of x.
func (m *PReLUModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	if m.hooked(m) {
		return m.around1(m.forward, x)
	}
	return m.forward(x)
}

func (m *PReLUModule) forward(x gotorch.Tensor) gotorch.Tensor {
	m.outer()
	return F.PReLU(x, m.Weight)
}

// KeepsNothing says that Forward keeps no tensor: see [KeepsNothing].
func (m *PReLUModule) KeepsNothing() bool { return m.plain(m) }

// ExtraRepr returns what String writes between the parentheses.
func (m *PReLUModule) ExtraRepr() string { return fmt.Sprintf("num_parameters=%d", m.NumParameters) }

// Softmax2dModule is what [Softmax2d] makes.
type Softmax2dModule struct{ Module }

// Softmax2d is [Softmax] along the channels of (N, C, H, W), also without N.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Softmax2d.html.
func Softmax2d() *Softmax2dModule { return Init(&Softmax2dModule{}) }

// Forward returns F.Softmax of x along its channels. It panics with a ValueError if x has neither 3 nor 4
// dimensions.
func (m *Softmax2dModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	if m.hooked(m) {
		return m.around1(m.forward, x)
	}
	return m.forward(x)
}

func (m *Softmax2dModule) forward(x gotorch.Tensor) gotorch.Tensor {
	if n := x.Dim(); n != 3 && n != 4 {
		panic(args.ValueError("nn.Softmax2d", "expected 3D or 4D input (got %dD input)", n))
	}
	return F.Softmax(x, -3)
}

// KeepsNothing says that Forward keeps no tensor: see [KeepsNothing].
func (m *Softmax2dModule) KeepsNothing() bool { return m.plain(m) }
