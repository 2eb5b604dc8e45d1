package nn

import (
	"fmt"
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
	nninit "gotorch.dev/gotorch/nn/init"
)

// LinearModule is what [Linear] makes.
type LinearModule struct {
	Module
	InFeatures, OutFeatures int64

	Weight gotorch.Tensor // (OutFeatures, InFeatures)
	Bias   gotorch.Tensor // (OutFeatures), or none

	lazy  laziness
	class string // where PyTorch has another name for it
}

// LinearOptions are the arguments of [Linear] that have defaults.
type LinearOptions struct {
	NoBias bool
	Device gotorch.Device
	DType  gotorch.DType
}

// LazyLinearOptions are the arguments of [LazyLinear] that have defaults.
type LazyLinearOptions = LinearOptions

// Linear multiplies by a weight and adds a bias: (*, in) → (*, out). Weight and bias begin as random
// numbers, uniform between −1/√in and 1/√in.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Linear.html.
func Linear(inFeatures, outFeatures int64, opts ...LinearOptions) *LinearModule {
	opt := args.Option(opts)
	m := &LinearModule{InFeatures: inFeatures, OutFeatures: outFeatures}
	create := gotorch.TensorOptions{Device: opt.Device, DType: opt.DType}
	m.Weight = gotorch.Empty([]int64{outFeatures, inFeatures}, create)
	if !opt.NoBias {
		m.Bias = gotorch.Empty([]int64{outFeatures}, create)
	}
	m.ResetParameters()
	return Init(m)
}

// LazyLinear is [Linear] that finds its number of inputs when Forward is first called.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyLinear.html.
func LazyLinear(outFeatures int64, opts ...LazyLinearOptions) *LinearModule {
	opt := args.Option(opts)
	m := &LinearModule{OutFeatures: outFeatures}
	m.lazy.waits.Store(true)
	create := gotorch.TensorOptions{Device: opt.Device, DType: opt.DType}
	m.Weight = uninitialized(create)
	if !opt.NoBias {
		m.Bias = gotorch.Empty([]int64{outFeatures}, create)
	}
	return Init(m)
}

func (m *LinearModule) isLazy() bool { return m.lazy.waits.Load() }

func (m *LinearModule) materialize(in int64) {
	m.lazy.end(func() {
		m.InFeatures = in
		initialize(m.Weight, []int64{m.OutFeatures, in})
		m.ResetParameters()
	})
}

func (m *LinearModule) unshape() {
	m.InFeatures = 0
	uninitialize(m.Weight)
	m.lazy.waits.Store(true)
}

func (m *LinearModule) openSize(shape func(name string) []int64) (int64, bool) {
	s := shape("weight")
	if len(s) != 2 {
		return 0, false
	}
	return s[1], true
}

func (m *LinearModule) className() string {
	if m.class != "" {
		return m.class
	}
	return lazyName(m.isLazy(), m.self)
}

// ResetParameters draws weight and bias anew.
func (m *LinearModule) ResetParameters() { resetWeightAndBias(m.Weight, m.Bias) }

// Forward returns x·Weightᵀ + Bias.
func (m *LinearModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	if m.hooked(m) {
		return m.around1(m.forward, x)
	}
	return m.forward(x)
}

func (m *LinearModule) forward(x gotorch.Tensor) gotorch.Tensor {
	m.outer()
	if m.isLazy() {
		m.materialize(found("nn.LazyLinear", x, int(x.Dim())-1))
	}
	return gotorch.Linear(x, m.Weight, gotorch.LinearOptions{Bias: m.Bias})
}

// KeepsNothing says that Forward keeps no tensor: see [KeepsNothing].
func (m *LinearModule) KeepsNothing() bool { return m.plain(m) }

// ExtraRepr returns what String writes between the parentheses.
func (m *LinearModule) ExtraRepr() string {
	return fmt.Sprintf("in_features=%d, out_features=%d, bias=%s", m.InFeatures, m.OutFeatures, pyBool(m.Bias.T != nil))
}

// resetWeightAndBias draws both as PyTorch's linear and convolution layers do.
func resetWeightAndBias(weight, bias gotorch.Tensor) {
	// Which comes to the bounds ±1/√fan_in. The detour is PyTorch's, and so is the last bit.
	nninit.KaimingUniform_(weight, nninit.KaimingOptions{A: math.Sqrt(5)})
	if bias.T == nil {
		return
	}
	switch fanIn, _ := nninit.Fans(weight); {
	case fanIn > 0:
		bound := 1 / math.Sqrt(float64(fanIn))
		nninit.Uniform_(bias, nninit.UniformOptions{A: -bound, B: bound})
	case weight.Dim() == 2: // PyTorch draws here, and not for convolutions
		nninit.Uniform_(bias, nninit.UniformOptions{B: 0})
	default: // where PyTorch leaves what was in memory
		nninit.Zeros_(bias)
	}
}

// BilinearModule is what [Bilinear] makes.
type BilinearModule struct {
	Module
	In1Features, In2Features, OutFeatures int64

	Weight gotorch.Tensor // (OutFeatures, In1Features, In2Features)
	Bias   gotorch.Tensor // (OutFeatures), or none
}

// BilinearOptions are the arguments of [Bilinear] that have defaults.
type BilinearOptions struct {
	NoBias bool
	Device gotorch.Device
	DType  gotorch.DType
}

// Bilinear returns x1ᵀ·Weight·x2 + Bias for each output: (*, in1) and (*, in2) → (*, out). Weight and bias
// begin as random numbers, uniform between −1/√in1 and 1/√in1. It panics with a ValueError if in1Features is
// not positive.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Bilinear.html.
func Bilinear(in1Features, in2Features, outFeatures int64, opts ...BilinearOptions) *BilinearModule {
	if in1Features <= 0 {
		panic(args.ValueError("nn.Bilinear", "in1_features must be > 0, but got %d", in1Features))
	}
	opt := args.Option(opts)
	m := &BilinearModule{In1Features: in1Features, In2Features: in2Features, OutFeatures: outFeatures}
	create := gotorch.TensorOptions{Device: opt.Device, DType: opt.DType}
	m.Weight = gotorch.Empty([]int64{outFeatures, in1Features, in2Features}, create)
	if !opt.NoBias {
		m.Bias = gotorch.Empty([]int64{outFeatures}, create)
	}
	m.ResetParameters()
	return Init(m)
}

// ResetParameters draws weight and bias anew.
func (m *BilinearModule) ResetParameters() {
	bound := 1 / math.Sqrt(float64(m.In1Features))
	uniform := nninit.UniformOptions{A: -bound, B: bound}
	nninit.Uniform_(m.Weight, uniform)
	if m.Bias.T != nil {
		nninit.Uniform_(m.Bias, uniform)
	}
}

// Forward returns F.Bilinear of x1 and x2.
func (m *BilinearModule) Forward(x1, x2 gotorch.Tensor) gotorch.Tensor {
	if m.hooked(m) {
		return m.around(func(in []gotorch.Tensor) []gotorch.Tensor { return []gotorch.Tensor{m.forward(in[0], in[1])} }, x1, x2)[0]
	}
	return m.forward(x1, x2)
}

func (m *BilinearModule) forward(x1, x2 gotorch.Tensor) gotorch.Tensor {
	m.outer()
	return F.Bilinear(x1, x2, m.Weight, F.BilinearOptions{Bias: m.Bias})
}

// ExtraRepr returns what String writes between the parentheses.
func (m *BilinearModule) ExtraRepr() string {
	return fmt.Sprintf("in1_features=%d, in2_features=%d, out_features=%d, bias=%s", m.In1Features, m.In2Features, m.OutFeatures, pyBool(m.Bias.T != nil))
}
