package ops

import (
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/vision/internal/lean"
)

// Conv2dNormActivation is a convolution, what normalises it, and an activation: see [NewConv2dNormActivation].
type Conv2dNormActivation struct{ nn.SequentialModule }

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *Conv2dNormActivation) KeepsNothing() bool { return lean.Forget(m.Layers...) }

// Conv3dNormActivation is [Conv2dNormActivation] of volumes: see [NewConv3dNormActivation].
type Conv3dNormActivation struct{ nn.SequentialModule }

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *Conv3dNormActivation) KeepsNothing() bool { return lean.Forget(m.Layers...) }

// ConvNormActivationOptions are the arguments of [NewConv2dNormActivation] and [NewConv3dNormActivation] that have
// defaults. Sizes are lists of one number for all directions, or one for each.
type ConvNormActivationOptions struct {
	KernelSize      []int64                       // nil: 3
	Stride          []int64                       // nil: 1
	Padding         []int64                       // nil: what keeps the size
	Groups          gotorch.Scalar                // default: 1
	NormLayer       func(channels int64) nn.Layer // nil: batch normalisation
	NoNormLayer     bool                          // none, Python's norm_layer=None
	ActivationLayer func(inPlace bool) nn.Layer   // nil: ReLU
	NoActivation    bool                          // none, Python's activation_layer=None
	Dilation        []int64                       // nil: 1
	NoInPlace       bool                          // the activation leaves what it gets as it is
	Bias            gotorch.Scalar                // a bool; left out: where there is no norm
}

// NewConv2dNormActivation makes a convolution of in to out channels, with a norm and an activation behind it. It
// panics with a ValueError for sizes that are not positive.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.Conv2dNormActivation.html.
func NewConv2dNormActivation(in, out int64, opts ...ConvNormActivationOptions) *Conv2dNormActivation {
	c := convNormActivation("ops.NewConv2dNormActivation", 2, args.Option(opts))
	layers := []nn.Layer{nn.Conv2d(in, out, c.kernel, nn.Conv2dOptions{Stride: c.stride, Padding: c.padding, Dilation: c.dilation, Groups: c.groups, NoBias: !c.bias})}
	return nn.Init(&Conv2dNormActivation{nn.SequentialModule{Layers: c.behind(layers, out, func(n int64) nn.Layer { return nn.BatchNorm2d(n) })}})
}

// NewConv3dNormActivation is [NewConv2dNormActivation] of volumes.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.Conv3dNormActivation.html.
func NewConv3dNormActivation(in, out int64, opts ...ConvNormActivationOptions) *Conv3dNormActivation {
	c := convNormActivation("ops.NewConv3dNormActivation", 3, args.Option(opts))
	layers := []nn.Layer{nn.Conv3d(in, out, c.kernel, nn.Conv3dOptions{Stride: c.stride, Padding: c.padding, Dilation: c.dilation, Groups: c.groups, NoBias: !c.bias})}
	return nn.Init(&Conv3dNormActivation{nn.SequentialModule{Layers: c.behind(layers, out, func(n int64) nn.Layer { return nn.BatchNorm3d(n) })}})
}

// convNorm is what a block's options come to.
type convNorm struct {
	ConvNormActivationOptions
	kernel, stride, padding, dilation []int64
	groups                            int64
	bias                              bool
}

func convNormActivation(op string, directions int, opt ConvNormActivationOptions) convNorm {
	c := convNorm{ConvNormActivationOptions: opt, groups: args.Int(op, "Groups", opt.Groups, 1)}
	sizes := func(name string, list []int64, value int64) []int64 {
		if list == nil {
			list = []int64{value}
		}
		if len(list) == 1 {
			list = slices.Repeat(list, directions)
		}
		if len(list) != directions || slices.Min(list) < 1 {
			panic(args.ValueError(op, "%s must be positive, one number or %d of them, and is %v", name, directions, list))
		}
		return list
	}
	c.kernel, c.stride, c.dilation = sizes("KernelSize", opt.KernelSize, 3), sizes("Stride", opt.Stride, 1), sizes("Dilation", opt.Dilation, 1)
	c.padding = opt.Padding
	if c.padding == nil {
		for i, k := range c.kernel {
			c.padding = append(c.padding, (k-1)/2*c.dilation[i])
		}
	}
	if opt.NoNormLayer && opt.NormLayer != nil || opt.NoActivation && opt.ActivationLayer != nil {
		panic(args.ValueError(op, "a layer is given, and its option to have none too"))
	}
	var given bool
	if c.bias, given = args.Bool(op, "Bias", opt.Bias); !given {
		c.bias = opt.NoNormLayer
	}
	return c
}

// behind returns layers with the norm and the activation.
func (c *convNorm) behind(layers []nn.Layer, out int64, norm func(channels int64) nn.Layer) []nn.Layer {
	if c.NormLayer != nil {
		norm = c.NormLayer
	}
	if !c.NoNormLayer {
		layers = append(layers, norm(out))
	}
	switch {
	case c.NoActivation:
	case c.ActivationLayer != nil:
		layers = append(layers, c.ActivationLayer(!c.NoInPlace))
	default:
		layers = append(layers, nn.ReLU(nn.ReLUOptions{InPlace: !c.NoInPlace}))
	}
	return layers
}

// SqueezeExcitation weighs channels by a function of their means: see [NewSqueezeExcitation].
type SqueezeExcitation struct {
	nn.Module
	AvgPool         nn.Layer `nn:"avgpool"`
	FC1, FC2        nn.Layer
	Activation      nn.Layer
	ScaleActivation nn.Layer
}

// SqueezeExcitationOptions are the arguments of [NewSqueezeExcitation] that have defaults.
type SqueezeExcitationOptions struct {
	Activation      nn.Layer // between the two layers; nil: ReLU
	ScaleActivation nn.Layer // of the weights; nil: Sigmoid
}

// NewSqueezeExcitation makes a block for so many channels, with fewer of them in between.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.SqueezeExcitation.html.
func NewSqueezeExcitation(inputChannels, squeezeChannels int64, opts ...SqueezeExcitationOptions) *SqueezeExcitation {
	opt := args.Option(opts)
	if opt.Activation == nil {
		opt.Activation = nn.ReLU()
	}
	if opt.ScaleActivation == nil {
		opt.ScaleActivation = nn.Sigmoid()
	}
	return nn.Init(&SqueezeExcitation{AvgPool: nn.AdaptiveAvgPool2d(1), FC1: nn.Conv2d(inputChannels, squeezeChannels, 1),
		FC2: nn.Conv2d(squeezeChannels, inputChannels, 1), Activation: opt.Activation, ScaleActivation: opt.ScaleActivation})
}

// Forward returns x, (N, C, H, W), with each channel times its weight.
func (m *SqueezeExcitation) Forward(x gotorch.Tensor) gotorch.Tensor {
	return lean.Run(m.KeepsNothing(), func() gotorch.Tensor {
		scale := x
		for _, layer := range []nn.Layer{m.AvgPool, m.FC1, m.Activation, m.FC2, m.ScaleActivation} {
			scale = nn.Call(layer, scale)
		}
		return scale.Mul(x)
	})
}

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *SqueezeExcitation) KeepsNothing() bool {
	return lean.Forget(m.AvgPool, m.FC1, m.FC2, m.Activation, m.ScaleActivation)
}

// MLP is linear layers in a row: see [NewMLP].
type MLP struct{ nn.SequentialModule }

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *MLP) KeepsNothing() bool { return lean.Forget(m.Layers...) }

// MLPOptions are the arguments of [NewMLP] that have defaults.
type MLPOptions struct {
	NormLayer       func(features int64) nn.Layer // behind each linear layer but the last one; nil: none
	ActivationLayer func(inPlace bool) nn.Layer   // behind each but the last one; nil: ReLU
	InPlace         bool                          // activations and dropouts change what they get
	NoBias          bool
	Dropout         float64
}

// NewMLP makes a linear layer for each number of hiddenChannels, with an activation and dropout between them, and
// dropout behind the last one. It panics with a ValueError if there is no number.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.MLP.html.
func NewMLP(inChannels int64, hiddenChannels []int64, opts ...MLPOptions) *MLP {
	opt := args.Option(opts)
	if len(hiddenChannels) == 0 {
		panic(args.ValueError("ops.NewMLP", "hiddenChannels must have a number at least"))
	}
	activation := opt.ActivationLayer
	if activation == nil {
		activation = func(inPlace bool) nn.Layer { return nn.ReLU(nn.ReLUOptions{InPlace: inPlace}) }
	}
	var layers []nn.Layer
	for i, n := range hiddenChannels {
		layers = append(layers, nn.Linear(inChannels, n, nn.LinearOptions{NoBias: opt.NoBias}))
		if i < len(hiddenChannels)-1 {
			if opt.NormLayer != nil {
				layers = append(layers, opt.NormLayer(n))
			}
			layers = append(layers, activation(opt.InPlace))
		}
		layers = append(layers, nn.Dropout(opt.Dropout, nn.DropoutOptions{InPlace: opt.InPlace}))
		inChannels = n
	}
	return nn.Init(&MLP{nn.SequentialModule{Layers: layers}})
}

// Permute changes the order of dimensions: see [NewPermute].
type Permute struct {
	nn.Module
	Dims []int64
}

// NewPermute makes a layer that returns a view with the dimensions in the order of dims.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.Permute.html.
func NewPermute(dims ...int64) *Permute { return nn.Init(&Permute{Dims: slices.Clone(dims)}) }

// Forward returns a view of x.
func (m *Permute) Forward(x gotorch.Tensor) gotorch.Tensor { return x.Permute(m.Dims) }

// KeepsNothing says that Forward keeps no tensor.
func (m *Permute) KeepsNothing() bool { return true }

// FrozenBatchNorm2d is batch normalisation with statistics, weights and biases that do not change: see
// [NewFrozenBatchNorm2d].
type FrozenBatchNorm2d struct {
	nn.Module
	Weight      gotorch.Tensor `nn:",buffer"` // (channels), like the others
	Bias        gotorch.Tensor `nn:",buffer"`
	RunningMean gotorch.Tensor `nn:",buffer"`
	RunningVar  gotorch.Tensor `nn:",buffer"`

	Eps float64
}

// FrozenBatchNorm2dOptions are the arguments of [NewFrozenBatchNorm2d] that have defaults.
type FrozenBatchNorm2dOptions struct {
	Eps gotorch.Scalar // added to the variance; default: 1e-5
}

// NewFrozenBatchNorm2d makes a layer for images of so many channels. All its tensors are buffers; it loads what
// [nn.BatchNorm2d] has saved, and forgets the number of batches in it.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.FrozenBatchNorm2d.html.
func NewFrozenBatchNorm2d(numFeatures int64, opts ...FrozenBatchNorm2dOptions) *FrozenBatchNorm2d {
	const op = "ops.NewFrozenBatchNorm2d"
	if numFeatures < 0 {
		panic(args.ValueError(op, "numFeatures must not be negative, and is %d", numFeatures))
	}
	size := []int64{numFeatures}
	m := nn.Init(&FrozenBatchNorm2d{Eps: args.Float(op, "Eps", args.Option(opts).Eps, 1e-5), Weight: gotorch.Ones(size), Bias: gotorch.Zeros(size),
		RunningMean: gotorch.Zeros(size), RunningVar: gotorch.Ones(size)})
	m.RegisterLoadStateDictPreHook(func(_ nn.Modular, dict nn.StateDict, prefix string) { delete(dict, prefix+"num_batches_tracked") })
	return m
}

// Forward normalises x, (N, C, H, W).
func (m *FrozenBatchNorm2d) Forward(x gotorch.Tensor) gotorch.Tensor {
	return lean.Run(true, func() gotorch.Tensor {
		along := func(t gotorch.Tensor) gotorch.Tensor { return t.Reshape([]int64{1, -1, 1, 1}) }
		scale := along(m.Weight).Mul(along(m.RunningVar).AddScalar(m.Eps).Rsqrt())
		return x.Mul(scale).Add(along(m.Bias).Sub(along(m.RunningMean).Mul(scale)))
	})
}

// KeepsNothing says that Forward keeps no tensor.
func (m *FrozenBatchNorm2d) KeepsNothing() bool { return true }

// ExtraRepr returns what String writes between the parentheses.
func (m *FrozenBatchNorm2d) ExtraRepr() string {
	return pySize(m.Weight.Shape()) + ", eps=" + pyFloat(m.Eps)
}
