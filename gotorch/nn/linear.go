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
}

// LinearOptions are the arguments of [Linear] that have defaults.
type LinearOptions struct {
	NoBias bool
	Device gotorch.Device
	DType  gotorch.DType
}

// Linear multiplies by a weight and adds a bias: (*, in) → (*, out). Weight and bias begin as random
// numbers, uniform between -1/√in and 1/√in.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Linear.html.
func Linear(in, out int64, opts ...LinearOptions) *LinearModule {
	opt := args.Option(opts)
	m := &LinearModule{InFeatures: in, OutFeatures: out}
	create := gotorch.TensorOptions{Device: opt.Device, DType: opt.DType}
	m.Weight = gotorch.Empty([]int64{out, in}, create)
	if !opt.NoBias {
		m.Bias = gotorch.Empty([]int64{out}, create)
	}
	m.ResetParameters()
	return Init(m)
}

// ResetParameters draws weight and bias anew.
func (m *LinearModule) ResetParameters() { resetWeightAndBias(m.Weight, m.Bias) }

// Forward returns x·Weightᵀ + Bias.
func (m *LinearModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	m.outer()
	return F.Linear(x, m.Weight, F.LinearOptions{Bias: m.Bias})
}

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
		nninit.Uniform_(bias, nninit.UniformOptions{From: -bound, To: bound})
	case weight.Dim() == 2: // PyTorch draws here, and not for convolutions
		nninit.Uniform_(bias, nninit.UniformOptions{To: 0})
	default: // where PyTorch leaves what was in memory
		nninit.Zeros_(bias)
	}
}
