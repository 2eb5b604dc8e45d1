// Package ops has the blocks that the models are made of, under the names that they have in torchvision.ops.
package ops

import (
	"fmt"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
)

// Lean returns what compute returns. Where all layers that it calls forget what they are given, the rest of what
// it makes is freed at once.
func Lean(forgets bool, compute func() gotorch.Tensor) gotorch.Tensor {
	if !forgets {
		return compute()
	}
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { return compute() })
}

// Forget reports whether all layers forget what they are given; those that are nil do.
func Forget(layers ...nn.Layer) bool {
	for _, layer := range layers {
		if layer != nil && !nn.Forgets(layer) {
			return false
		}
	}
	return true
}

// Conv2dNormActivation is a convolution, what normalises it, and an activation.
type Conv2dNormActivation struct{ nn.SequentialModule }

// ConvOptions are the arguments of [NewConv2dNormActivation] that have defaults.
type ConvOptions struct {
	KernelSize int64    // default: 3
	Stride     int64    // default: 1
	Padding    *int64   // default: what keeps the size
	Groups     int64    // default: 1
	Dilation   int64    // default: 1
	Activation nn.Layer // default: none
	Bias       bool     // also where there is a norm
}

// NewConv2dNormActivation makes a block of in to out channels. norm may be nil.
func NewConv2dNormActivation(in, out int64, norm func(channels int64) nn.Layer, opt ConvOptions) *Conv2dNormActivation {
	or := func(n, value int64) int64 {
		if n == 0 {
			return value
		}
		return n
	}
	kernel, dilation := or(opt.KernelSize, 3), or(opt.Dilation, 1)
	padding := (kernel - 1) / 2 * dilation
	if opt.Padding != nil {
		padding = *opt.Padding
	}
	layers := []nn.Layer{nn.Conv2d(in, out, kernel, nn.Conv2dOptions{Stride: []int64{or(opt.Stride, 1)}, Padding: []int64{padding},
		Dilation: []int64{dilation}, Groups: or(opt.Groups, 1), NoBias: norm != nil && !opt.Bias})}
	if norm != nil {
		layers = append(layers, norm(out))
	}
	if opt.Activation != nil {
		layers = append(layers, opt.Activation)
	}
	return nn.Init(&Conv2dNormActivation{nn.SequentialModule{Layers: layers}})
}

// KeepsNothing says whether none of the layers keeps a tensor.
func (m *Conv2dNormActivation) KeepsNothing() bool { return Forget(m.Layers...) }

// SqueezeExcitation weighs channels by a function of their means.
type SqueezeExcitation struct {
	nn.Module
	AvgPool         nn.Layer `nn:"avgpool"`
	FC1, FC2        nn.Layer
	Activation      nn.Layer
	ScaleActivation nn.Layer
}

// NewSqueezeExcitation makes a block for input channels, with squeeze channels in between.
func NewSqueezeExcitation(input, squeeze int64, activation, scaleActivation nn.Layer) *SqueezeExcitation {
	return nn.Init(&SqueezeExcitation{AvgPool: nn.AdaptiveAvgPool2d(1), FC1: nn.Conv2d(input, squeeze, 1),
		FC2: nn.Conv2d(squeeze, input, 1), Activation: activation, ScaleActivation: scaleActivation})
}

// Forward returns x, (N, C, H, W), with each channel times its weight.
func (m *SqueezeExcitation) Forward(x gotorch.Tensor) gotorch.Tensor {
	return Lean(m.KeepsNothing(), func() gotorch.Tensor {
		scale := x
		for _, layer := range []nn.Layer{m.AvgPool, m.FC1, m.Activation, m.FC2, m.ScaleActivation} {
			scale = nn.Call(layer, scale)
		}
		return scale.Mul(x)
	})
}

// KeepsNothing says whether none of the layers keeps a tensor.
func (m *SqueezeExcitation) KeepsNothing() bool {
	return Forget(m.AvgPool, m.FC1, m.FC2, m.Activation, m.ScaleActivation)
}

// StochasticDepth drops rows of a batch while the module is training, and makes the others larger.
type StochasticDepth struct {
	nn.Module
	P    float64
	Mode string
}

// NewStochasticDepth drops with probability p, in mode "row" each row by itself, in mode "batch" all or none. It
// panics with a ValueError if p is no probability, or there is no such mode.
func NewStochasticDepth(p float64, mode string) *StochasticDepth {
	const op = "ops.StochasticDepth"
	if !(p >= 0 && p <= 1) {
		panic(args.ValueError(op, "drop probability has to be between 0 and 1, but got %v", p))
	}
	if mode != "batch" && mode != "row" {
		panic(args.ValueError(op, "mode has to be either 'batch' or 'row', but got %s", mode))
	}
	return nn.Init(&StochasticDepth{P: p, Mode: mode})
}

// Forward returns x, (N, ...), some of whose rows are zeros. Outside of training it is x itself.
func (m *StochasticDepth) Forward(x gotorch.Tensor) gotorch.Tensor {
	if !m.Training() || m.P == 0 {
		return x
	}
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		size := make([]int64, x.Dim())
		for i := range size {
			size[i] = 1
		}
		if m.Mode == "row" {
			size[0] = x.Size(0)
		}
		survival := 1 - m.P
		noise := gotorch.Empty(size, gotorch.TensorOptions{DType: x.DType(), Device: x.Device()})
		noise.Bernoulli_(gotorch.Bernoulli_Options{P: &survival})
		if survival > 0 {
			noise.DivScalar_(survival)
		}
		return x.Mul(noise)
	})
}

// KeepsNothing says that Forward keeps no tensor.
func (m *StochasticDepth) KeepsNothing() bool { return true }

// ExtraRepr returns what String writes between the parentheses.
func (m *StochasticDepth) ExtraRepr() string {
	p := strconv.FormatFloat(m.P, 'f', -1, 64)
	if !strings.Contains(p, ".") {
		p += ".0"
	}
	return fmt.Sprintf("p=%s, mode=%s", p, m.Mode)
}

// Permute changes the order of dimensions.
type Permute struct {
	nn.Module
	Dims []int64
}

// NewPermute makes a layer that returns a view with the dimensions in the order of dims.
func NewPermute(dims ...int64) *Permute { return nn.Init(&Permute{Dims: dims}) }

// Forward returns a view of x.
func (m *Permute) Forward(x gotorch.Tensor) gotorch.Tensor { return x.Permute(m.Dims) }

// KeepsNothing says that Forward keeps no tensor.
func (m *Permute) KeepsNothing() bool { return true }

// LayerNorm2d is layer normalisation over the channels of images.
type LayerNorm2d struct{ nn.LayerNormModule }

// NewLayerNorm2d makes a layer for images of so many channels, with eps added to the variance.
func NewLayerNorm2d(channels int64, eps float64) *LayerNorm2d {
	m := &LayerNorm2d{}
	m.NormalizedShape, m.Eps = []int64{channels}, eps
	m.Weight, m.Bias = gotorch.Ones([]int64{channels}), gotorch.Zeros([]int64{channels})
	return nn.Init(m)
}

// Forward normalises each place of x, (N, C, H, W).
func (m *LayerNorm2d) Forward(x gotorch.Tensor) gotorch.Tensor {
	return Lean(true, func() gotorch.Tensor {
		x := F.LayerNorm(x.Permute([]int64{0, 2, 3, 1}), m.NormalizedShape, F.LayerNormOptions{Weight: m.Weight, Bias: m.Bias, Eps: m.Eps})
		return x.Permute([]int64{0, 3, 1, 2})
	})
}

// KeepsNothing says that Forward keeps no tensor.
func (m *LayerNorm2d) KeepsNothing() bool { return true }
