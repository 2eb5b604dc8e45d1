package models

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/vision/internal/lean"
	"gotorch.dev/gotorch/vision/ops"
)

// ConvNeXt is a convolutional network after the example of transformers: see [NewConvNeXt].
type ConvNeXt struct {
	nn.Module
	Features   nn.Layer
	AvgPool    nn.Layer `nn:"avgpool"`
	Classifier nn.Layer // the last layer is "classifier.2"
}

// CNBlockConfig is one stage of a [ConvNeXt]. OutChannels of 0 is Python's None: nothing is behind the blocks that
// would halve the size.
type CNBlockConfig struct{ InputChannels, OutChannels, NumLayers int64 }

// ConvNeXtOptions are the arguments of [NewConvNeXt] and of the functions for its architectures that have defaults.
type ConvNeXtOptions struct {
	// StochasticDepthProb is with which probability the last block is left out, while training; those before
	// are more seldom. Default: 0, and the paper's for architectures.
	StochasticDepthProb gotorch.Scalar
	LayerScale          gotorch.Scalar // what each block's result is multiplied by at first; default: 1e-6
	NumClasses          gotorch.Scalar // default: 1000
	NormLayer           NormLayer      // of the stem, between stages and of the classifier; default: layer norm of channels
}

// CNBlock is a block of a [ConvNeXt]: a 7×7 convolution of each channel, and two linear layers at each place.
type CNBlock struct {
	nn.Module
	LayerScale      gotorch.Tensor // (channels, 1, 1)
	Block           nn.Layer
	StochasticDepth nn.Layer
}

// NewConvNeXt makes torchvision's class ConvNeXt. It panics with a ValueError if there is no stage, a number in one
// is not positive, or a probability is none.
//
// See https://docs.pytorch.org/vision/stable/models/convnext.html.
func NewConvNeXt(blockSetting []CNBlockConfig, opts ...ConvNeXtOptions) *ConvNeXt {
	return newConvNeXt("models.NewConvNeXt", blockSetting, args.Option(opts), 0)
}

func newConvNeXt(op string, setting []CNBlockConfig, opt ConvNeXtOptions, depthProb float64) *ConvNeXt {
	if len(setting) == 0 {
		panic(args.ValueError(op, "the block_setting should not be empty"))
	}
	total := int64(0)
	for i, c := range setting {
		if c.InputChannels < 1 || c.NumLayers < 1 || c.OutChannels < 0 {
			panic(args.ValueError(op, "blockSetting[%d] must have positive numbers, got %+v", i, c))
		}
		total += c.NumLayers
	}
	prob := args.Float(op, "StochasticDepthProb", opt.StochasticDepthProb, depthProb)
	scale, numClasses := args.Float(op, "LayerScale", opt.LayerScale, 1e-6), classes(op, opt.NumClasses)
	norm := opt.NormLayer.or(func(channels int64) nn.Layer { return NewLayerNorm2d(channels, 1e-6) })
	features := []nn.Layer{convNorm(3, setting[0].InputChannels, norm, convOptions{KernelSize: 4, Stride: 4, Padding: new(int64), Bias: true})}
	at := int64(0)
	for _, c := range setting {
		var stage []nn.Layer
		for range c.NumLayers {
			p := 0.0
			if at > 0 { // and so there is more than one
				p = prob * float64(at) / (float64(total) - 1)
			}
			stage = append(stage, newCNBlock(c.InputChannels, scale, p))
			at++
		}
		features = append(features, nn.Sequential(stage...))
		if c.OutChannels > 0 {
			features = append(features, nn.Sequential(norm(c.InputChannels),
				nn.Conv2d(c.InputChannels, c.OutChannels, 2, nn.Conv2dOptions{Stride: []int64{2}})))
		}
	}
	last := setting[len(setting)-1]
	channels := last.InputChannels
	if last.OutChannels > 0 {
		channels = last.OutChannels
	}
	m := nn.Init(&ConvNeXt{
		Features:   nn.Sequential(features...),
		AvgPool:    nn.AdaptiveAvgPool2d(1),
		Classifier: nn.Sequential(norm(channels), nn.Flatten(), nn.Linear(channels, numClasses)),
	})
	for _, part := range m.NamedModules() {
		switch layer := part.(type) {
		case *nn.Conv2dModule:
			nninit.TruncNormal_(layer.Weight, nninit.TruncNormalOptions{Std: 0.02})
			zero(layer.Bias)
		case *nn.LinearModule:
			nninit.TruncNormal_(layer.Weight, nninit.TruncNormalOptions{Std: 0.02})
			zero(layer.Bias)
		}
	}
	return m
}

func newCNBlock(dim int64, scale, prob float64) *CNBlock {
	block := nn.Sequential(
		nn.Conv2d(dim, dim, 7, nn.Conv2dOptions{Padding: []int64{3}, Groups: dim}),
		ops.NewPermute(0, 2, 3, 1),
		nn.LayerNorm(dim, nn.LayerNormOptions{Eps: 1e-6}),
		nn.Linear(dim, 4*dim), nn.GELU(), nn.Linear(4*dim, dim),
		ops.NewPermute(0, 3, 1, 2),
	)
	return nn.Init(&CNBlock{Block: block, LayerScale: gotorch.Ones([]int64{dim, 1, 1}).MulScalar(scale),
		StochasticDepth: ops.NewStochasticDepth(prob, "row")})
}

// Forward returns what the block makes of x.
func (m *CNBlock) Forward(x gotorch.Tensor) gotorch.Tensor {
	return lean.Run(m.KeepsNothing(), func() gotorch.Tensor {
		result := nn.Call(m.StochasticDepth, m.LayerScale.Mul(nn.Call(m.Block, x)))
		return result.Add_(x)
	})
}

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *CNBlock) KeepsNothing() bool { return lean.Forget(m.Block, m.StochasticDepth) }

// Forward returns the logits of images: (N, 3, H, W) → (N, NumClasses).
func (m *ConvNeXt) Forward(x gotorch.Tensor) gotorch.Tensor {
	return lean.Run(lean.Forget(m.Features, m.AvgPool, m.Classifier), func() gotorch.Tensor {
		return nn.Call(m.Classifier, nn.Call(m.AvgPool, nn.Call(m.Features, x)))
	})
}

func convNeXt(op string, channels, deep int64, prob float64, opts []ConvNeXtOptions) *ConvNeXt {
	return newConvNeXt(op, []CNBlockConfig{{channels, 2 * channels, 3}, {2 * channels, 4 * channels, 3},
		{4 * channels, 8 * channels, deep}, {8 * channels, 0, 3}}, args.Option(opts), prob)
}

// ConvNeXtTiny is a [ConvNeXt] of 18 blocks, of 96 to 768 channels.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.convnext_tiny.html.
func ConvNeXtTiny(opts ...ConvNeXtOptions) *ConvNeXt {
	return convNeXt("models.ConvNeXtTiny", 96, 9, 0.1, opts)
}

// ConvNeXtSmall is a [ConvNeXt] of 36 blocks, of 96 to 768 channels.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.convnext_small.html.
func ConvNeXtSmall(opts ...ConvNeXtOptions) *ConvNeXt {
	return convNeXt("models.ConvNeXtSmall", 96, 27, 0.4, opts)
}

// ConvNeXtBase is a [ConvNeXt] of 36 blocks, of 128 to 1024 channels.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.convnext_base.html.
func ConvNeXtBase(opts ...ConvNeXtOptions) *ConvNeXt {
	return convNeXt("models.ConvNeXtBase", 128, 27, 0.5, opts)
}

// ConvNeXtLarge is a [ConvNeXt] of 36 blocks, of 192 to 1536 channels.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.convnext_large.html.
func ConvNeXtLarge(opts ...ConvNeXtOptions) *ConvNeXt {
	return convNeXt("models.ConvNeXtLarge", 192, 27, 0.5, opts)
}
