package models

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/vision/internal/lean"
	"gotorch.dev/gotorch/vision/ops"
)

// MobileNet V2 ---------------------------------------------------------------------------------------

// MobileNetV2 is a network for small machines: see [NewMobileNetV2].
type MobileNetV2 struct {
	nn.Module
	Features   nn.Layer
	Classifier nn.Layer // dropout and a linear layer, "classifier.1"
}

// MobileNetV2Options are the arguments of [NewMobileNetV2] that have defaults.
type MobileNetV2Options struct {
	NumClasses              gotorch.Scalar // default: 1000
	WidthMult               gotorch.Scalar // times how many channels each layer has; default: 1
	InvertedResidualSetting [][4]int64     // expansion, channels, blocks and stride of each stage; default: the paper's
	RoundNearest            gotorch.Scalar // numbers of channels are multiples of this; default: 8
	NormLayer               NormLayer      // default: nn.BatchNorm2d
	Dropout                 gotorch.Scalar // before the classifier; default: 0.2
}

// InvertedResidualV2 is torchvision's InvertedResidual of mobilenetv2: channels are made more, convolved each by
// itself, and made few again.
type InvertedResidualV2 struct {
	nn.Module
	Conv nn.Layer

	UseResConnect bool // the result is added to what the block got
}

// NewMobileNetV2 makes torchvision's class MobileNetV2. It panics with a ValueError if InvertedResidualSetting is
// empty or its numbers are not positive, if a stride is neither 1 nor 2, or WidthMult or RoundNearest is not positive.
//
// See https://docs.pytorch.org/vision/stable/models/mobilenetv2.html.
func NewMobileNetV2(opts ...MobileNetV2Options) *MobileNetV2 {
	const op = "models.NewMobileNetV2"
	opt := args.Option(opts)
	setting := opt.InvertedResidualSetting
	if setting == nil {
		setting = [][4]int64{{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}}
	}
	if len(setting) == 0 {
		panic(args.ValueError(op, "InvertedResidualSetting should not be empty"))
	}
	for i, s := range setting {
		if s[0] < 1 || s[1] < 1 || s[2] < 0 || s[3] != 1 && s[3] != 2 {
			panic(args.ValueError(op, "InvertedResidualSetting[%d] should be expansion, channels, blocks and a stride of 1 or 2, got %v", i, s))
		}
	}
	width, nearest := positive(op, "WidthMult", opt.WidthMult, 1), args.Int(op, "RoundNearest", opt.RoundNearest, 8)
	if nearest < 1 {
		panic(args.ValueError(op, "RoundNearest must be positive, got %d", nearest))
	}
	dropout, numClasses := args.Float(op, "Dropout", opt.Dropout, 0.2), classes(op, opt.NumClasses)
	norm := opt.NormLayer.or(batchNorm)
	in, last := divisible(32*width, nearest), divisible(1280*max(1, width), nearest)
	features := []nn.Layer{convNorm(3, in, norm, convOptions{Stride: 2, Activation: relu6()})}
	for _, s := range setting {
		out := divisible(float64(s[1])*width, nearest)
		for i := range s[2] {
			stride := s[3]
			if i > 0 {
				stride = 1
			}
			features = append(features, newInvertedResidualV2(in, out, stride, s[0], norm))
			in = out
		}
	}
	features = append(features, convNorm(in, last, norm, convOptions{KernelSize: 1, Activation: relu6()}))
	m := nn.Init(&MobileNetV2{
		Features:   nn.Sequential(features...),
		Classifier: nn.Sequential(nn.Dropout(dropout), nn.Linear(last, numClasses)),
	})
	initialise(m, smallNormal)
	return m
}

// positive returns a finite number that is greater than 0.
func positive(op, name string, field gotorch.Scalar, value float64) float64 {
	f := args.Float(op, name, field, value)
	if !(f > 0) || math.IsInf(f, 1) {
		panic(args.ValueError(op, "%s must be a positive number, got %v", name, f))
	}
	return f
}

func newInvertedResidualV2(in, out, stride, expand int64, norm NormLayer) *InvertedResidualV2 {
	hidden := in * expand
	var layers []nn.Layer
	if expand != 1 {
		layers = append(layers, convNorm(in, hidden, norm, convOptions{KernelSize: 1, Activation: relu6()}))
	}
	layers = append(layers, convNorm(hidden, hidden, norm, convOptions{Stride: stride, Groups: hidden, Activation: relu6()}),
		conv1x1(hidden, out, 1), norm(out))
	return nn.Init(&InvertedResidualV2{Conv: nn.Sequential(layers...), UseResConnect: stride == 1 && in == out})
}

// Forward returns what the block makes of x.
func (m *InvertedResidualV2) Forward(x gotorch.Tensor) gotorch.Tensor {
	if !m.UseResConnect {
		return nn.Call(m.Conv, x)
	}
	return lean.Run(m.KeepsNothing(), func() gotorch.Tensor { return x.Add(nn.Call(m.Conv, x)) })
}

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *InvertedResidualV2) KeepsNothing() bool { return lean.Forget(m.Conv) }

// Forward returns the logits of images: (N, 3, H, W) → (N, NumClasses).
func (m *MobileNetV2) Forward(x gotorch.Tensor) gotorch.Tensor {
	return lean.Run(lean.Forget(m.Features, m.Classifier), func() gotorch.Tensor {
		x := F.AdaptiveAvgPool2d(nn.Call(m.Features, x), []int64{1, 1})
		return nn.Call(m.Classifier, x.Flatten(gotorch.FlattenOptions{StartDim: 1}))
	})
}

// MobileNet V3 ---------------------------------------------------------------------------------------

// MobileNetV3 is a network for small machines: see [NewMobileNetV3].
type MobileNetV3 struct {
	nn.Module
	Features   nn.Layer
	AvgPool    nn.Layer `nn:"avgpool"`
	Classifier nn.Layer // its linear layers are "classifier.0" and "classifier.3"
}

// InvertedResidualConfig is one block of a [MobileNetV3].
type InvertedResidualConfig struct {
	InputChannels, Kernel, ExpandedChannels, OutChannels int64
	UseSE                                                bool // channels are weighed by their means
	UseHS                                                bool // the activation is Hardswish rather than ReLU
	Stride, Dilation                                     int64
}

// MobileNetV3Options are the arguments of [NewMobileNetV3] and of the functions for its architectures that have
// defaults.
type MobileNetV3Options struct {
	NumClasses gotorch.Scalar // default: 1000
	NormLayer  NormLayer      // default: nn.BatchNorm2d with Eps 0.001 and Momentum 0.01
	Dropout    gotorch.Scalar // before the last layer; default: 0.2

	WidthMult   gotorch.Scalar // times how many channels each layer has, only for architectures; default: 1
	ReducedTail bool           // half the channels in the last blocks. Only for architectures
	Dilated     bool           // the last blocks keep the size and dilate their convolutions. Only for architectures
}

// InvertedResidual is torchvision's InvertedResidual of mobilenetv3: channels are made more, convolved each by
// itself, weighed, and made few again.
type InvertedResidual struct {
	nn.Module
	Block nn.Layer

	UseResConnect bool  // the result is added to what the block got
	Downsamples   bool  // the result is of half the size, unless the block dilates its convolution instead
	OutChannels   int64 // of the result
}

// NewMobileNetV3 makes torchvision's class MobileNetV3, of blocks and with lastChannel features before the last
// layer. It panics with a ValueError if there are no blocks, a stride is neither 1 nor 2, or another number is not
// positive.
//
// See https://docs.pytorch.org/vision/stable/models/mobilenetv3.html.
func NewMobileNetV3(invertedResidualSetting []InvertedResidualConfig, lastChannel int64, opts ...MobileNetV3Options) *MobileNetV3 {
	const op = "models.NewMobileNetV3"
	opt := args.Option(opts)
	if opt.WidthMult != nil || opt.ReducedTail || opt.Dilated {
		panic(args.ValueError(op, "WidthMult, ReducedTail and Dilated are for MobileNetV3Small and MobileNetV3Large: invertedResidualSetting says it all"))
	}
	return newMobileNetV3(op, invertedResidualSetting, lastChannel, opt)
}

func newMobileNetV3(op string, setting []InvertedResidualConfig, lastChannel int64, opt MobileNetV3Options) *MobileNetV3 {
	if len(setting) == 0 {
		panic(args.ValueError(op, "the inverted_residual_setting should not be empty"))
	}
	for i, c := range setting {
		if c.Stride != 1 && c.Stride != 2 || min(c.InputChannels, c.Kernel, c.ExpandedChannels, c.OutChannels, c.Dilation) < 1 {
			panic(args.ValueError(op, "invertedResidualSetting[%d] should have positive numbers and a stride of 1 or 2, got %+v", i, c))
		}
	}
	norm := opt.NormLayer.or(batchNormOf(0.001, 0.01))
	dropout, numClasses := args.Float(op, "Dropout", opt.Dropout, 0.2), classes(op, opt.NumClasses)
	layers := []nn.Layer{convNorm(3, setting[0].InputChannels, norm, convOptions{Stride: 2, Activation: hardswish()})}
	for _, c := range setting {
		layers = append(layers, newInvertedResidual(c, norm))
	}
	in := setting[len(setting)-1].OutChannels
	layers = append(layers, convNorm(in, 6*in, norm, convOptions{KernelSize: 1, Activation: hardswish()}))
	m := nn.Init(&MobileNetV3{
		Features: nn.Sequential(layers...),
		AvgPool:  nn.AdaptiveAvgPool2d(1),
		Classifier: nn.Sequential(nn.Linear(6*in, lastChannel), hardswish(),
			nn.Dropout(dropout, nn.DropoutOptions{InPlace: true}), nn.Linear(lastChannel, numClasses)),
	})
	initialise(m, smallNormal)
	return m
}

func newInvertedResidual(c InvertedResidualConfig, norm NormLayer) *InvertedResidual {
	activation := relu
	if c.UseHS {
		activation = hardswish
	}
	var layers []nn.Layer
	if c.ExpandedChannels != c.InputChannels {
		layers = append(layers, convNorm(c.InputChannels, c.ExpandedChannels, norm, convOptions{KernelSize: 1, Activation: activation()}))
	}
	stride := c.Stride
	if c.Dilation > 1 {
		stride = 1
	}
	layers = append(layers, convNorm(c.ExpandedChannels, c.ExpandedChannels, norm, convOptions{KernelSize: c.Kernel, Stride: stride,
		Dilation: c.Dilation, Groups: c.ExpandedChannels, Activation: activation()}))
	if c.UseSE {
		squeeze := divisible(float64(c.ExpandedChannels/4), 8)
		layers = append(layers, ops.NewSqueezeExcitation(c.ExpandedChannels, squeeze, ops.SqueezeExcitationOptions{ScaleActivation: nn.Hardsigmoid()}))
	}
	layers = append(layers, convNorm(c.ExpandedChannels, c.OutChannels, norm, convOptions{KernelSize: 1}))
	return nn.Init(&InvertedResidual{Block: nn.Sequential(layers...), UseResConnect: c.Stride == 1 && c.InputChannels == c.OutChannels,
		Downsamples: c.Stride > 1, OutChannels: c.OutChannels})
}

// Forward returns what the block makes of x.
func (m *InvertedResidual) Forward(x gotorch.Tensor) gotorch.Tensor {
	result := nn.Call(m.Block, x)
	if m.UseResConnect {
		result.Add_(x)
	}
	return result
}

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *InvertedResidual) KeepsNothing() bool { return lean.Forget(m.Block) }

// Forward returns the logits of images: (N, 3, H, W) → (N, NumClasses).
func (m *MobileNetV3) Forward(x gotorch.Tensor) gotorch.Tensor {
	return chain(x, m.Classifier, m.Features, m.AvgPool)
}

// mobileNetV3 makes an architecture: of blocks the input, kernel, expanded and output channels, SE, HS, stride,
// with the last three blocks as the tail.
func mobileNetV3(op string, blocks [][7]int64, last int64, opts []MobileNetV3Options) *MobileNetV3 {
	opt := args.Option(opts)
	width := positive(op, "WidthMult", opt.WidthMult, 1)
	divider, dilation := int64(1), int64(1)
	if opt.ReducedTail {
		divider = 2
	}
	if opt.Dilated {
		dilation = 2
	}
	adjusted := func(n int64) int64 { return divisible(float64(n)*width, 8) }
	var setting []InvertedResidualConfig
	for i, b := range blocks {
		c := InvertedResidualConfig{InputChannels: b[0], Kernel: b[1], ExpandedChannels: b[2], OutChannels: b[3],
			UseSE: b[4] == 1, UseHS: b[5] == 1, Stride: b[6], Dilation: 1}
		if tail := i - (len(blocks) - 3); tail >= 0 {
			c.OutChannels /= divider
			c.Dilation = dilation
			if tail > 0 {
				c.InputChannels /= divider
				c.ExpandedChannels /= divider
			}
		}
		c.InputChannels, c.ExpandedChannels, c.OutChannels = adjusted(c.InputChannels), adjusted(c.ExpandedChannels), adjusted(c.OutChannels)
		setting = append(setting, c)
	}
	return newMobileNetV3(op, setting, adjusted(last/divider), opt)
}

// MobileNetV3Large is the larger of the paper's two architectures.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.mobilenet_v3_large.html.
func MobileNetV3Large(opts ...MobileNetV3Options) *MobileNetV3 {
	return mobileNetV3("models.MobileNetV3Large", [][7]int64{
		{16, 3, 16, 16, 0, 0, 1},
		{16, 3, 64, 24, 0, 0, 2},
		{24, 3, 72, 24, 0, 0, 1},
		{24, 5, 72, 40, 1, 0, 2},
		{40, 5, 120, 40, 1, 0, 1},
		{40, 5, 120, 40, 1, 0, 1},
		{40, 3, 240, 80, 0, 1, 2},
		{80, 3, 200, 80, 0, 1, 1},
		{80, 3, 184, 80, 0, 1, 1},
		{80, 3, 184, 80, 0, 1, 1},
		{80, 3, 480, 112, 1, 1, 1},
		{112, 3, 672, 112, 1, 1, 1},
		{112, 5, 672, 160, 1, 1, 2},
		{160, 5, 960, 160, 1, 1, 1},
		{160, 5, 960, 160, 1, 1, 1},
	}, 1280, opts)
}

// MobileNetV3Small is the smaller of the paper's two architectures.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.mobilenet_v3_small.html.
func MobileNetV3Small(opts ...MobileNetV3Options) *MobileNetV3 {
	return mobileNetV3("models.MobileNetV3Small", [][7]int64{
		{16, 3, 16, 16, 1, 0, 2},
		{16, 3, 72, 24, 0, 0, 2},
		{24, 3, 88, 24, 0, 0, 1},
		{24, 5, 96, 40, 1, 1, 2},
		{40, 5, 240, 40, 1, 1, 1},
		{40, 5, 240, 40, 1, 1, 1},
		{40, 5, 120, 48, 1, 1, 1},
		{48, 5, 144, 48, 1, 1, 1},
		{48, 5, 288, 96, 1, 1, 2},
		{96, 5, 576, 96, 1, 1, 1},
		{96, 5, 576, 96, 1, 1, 1},
	}, 1024, opts)
}
