package models

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/vision/internal/lean"
	"gotorch.dev/gotorch/vision/ops"
)

// EfficientNet is a network whose width, depth and image size grow together: see [EfficientNetB0].
type EfficientNet struct {
	nn.Module
	Features   nn.Layer
	AvgPool    nn.Layer `nn:"avgpool"`
	Classifier nn.Layer // dropout and a linear layer, "classifier.1"
}

// EfficientNetOptions are the arguments of the functions for the architectures of [EfficientNet] that have defaults.
type EfficientNetOptions struct {
	// StochasticDepthProb is with which probability the last block is left out, while training; those before
	// are more seldom.
	StochasticDepthProb gotorch.Scalar // default: 0.2
	NumClasses          gotorch.Scalar // default: 1000
	NormLayer           NormLayer      // default: nn.BatchNorm2d, from B5 on with Eps 0.001 and Momentum 0.01
	Dropout             gotorch.Scalar // before the classifier; default: the architecture's
}

// MBConv is a block of an [EfficientNet]: channels are made more, convolved each by itself, weighed, and made few
// again.
type MBConv struct {
	nn.Module
	Block           nn.Layer
	StochasticDepth nn.Layer

	UseResConnect bool // the result is added to what the block got
}

func newMBConv(in, out, expand, kernel, stride int64, prob float64, norm NormLayer) *MBConv {
	expanded := divisible(float64(in*expand), 8)
	var layers []nn.Layer
	if expanded != in {
		layers = append(layers, convNorm(in, expanded, norm, convOptions{KernelSize: 1, Activation: silu()}))
	}
	layers = append(layers,
		convNorm(expanded, expanded, norm, convOptions{KernelSize: kernel, Stride: stride, Groups: expanded, Activation: silu()}),
		ops.NewSqueezeExcitation(expanded, max(1, in/4), ops.SqueezeExcitationOptions{Activation: silu()}),
		convNorm(expanded, out, norm, convOptions{KernelSize: 1}))
	return nn.Init(&MBConv{Block: nn.Sequential(layers...), StochasticDepth: ops.NewStochasticDepth(prob, "row"),
		UseResConnect: stride == 1 && in == out})
}

// Forward returns what the block makes of x.
func (m *MBConv) Forward(x gotorch.Tensor) gotorch.Tensor {
	if !m.UseResConnect {
		return nn.Call(m.Block, x)
	}
	return lean.Run(m.KeepsNothing(), func() gotorch.Tensor {
		return nn.Call(m.StochasticDepth, nn.Call(m.Block, x)).Add_(x)
	})
}

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *MBConv) KeepsNothing() bool { return lean.Forget(m.Block, m.StochasticDepth) }

// Forward returns the logits of images: (N, 3, H, W) → (N, NumClasses).
func (m *EfficientNet) Forward(x gotorch.Tensor) gotorch.Tensor {
	return chain(x, m.Classifier, m.Features, m.AvgPool)
}

func efficientNet(op string, width, depth, dropout float64, norm NormLayer, opts []EfficientNetOptions) *EfficientNet {
	opt := args.Option(opts)
	norm = opt.NormLayer.or(norm)
	dropout, numClasses := args.Float(op, "Dropout", opt.Dropout, dropout), classes(op, opt.NumClasses)
	prob := args.Float(op, "StochasticDepthProb", opt.StochasticDepthProb, 0.2)
	stages := [][6]int64{ // expansion, kernel, stride, channels of input and output, blocks
		{1, 3, 1, 32, 16, 1},
		{6, 3, 2, 16, 24, 2},
		{6, 5, 2, 24, 40, 2},
		{6, 3, 2, 40, 80, 3},
		{6, 5, 1, 80, 112, 3},
		{6, 5, 2, 112, 192, 4},
		{6, 3, 1, 192, 320, 1},
	}
	channels := func(n int64) int64 { return divisible(float64(n)*width, 8) }
	blocks := func(n int64) int64 { return int64(math.Ceil(float64(n) * depth)) }
	total := int64(0)
	for _, s := range stages {
		total += blocks(s[5])
	}
	features := []nn.Layer{convNorm(3, channels(32), norm, convOptions{Stride: 2, Activation: silu()})}
	at := 0.0
	for _, s := range stages {
		in, out, stride := channels(s[3]), channels(s[4]), s[2]
		var stage []nn.Layer
		for range blocks(s[5]) {
			stage = append(stage, newMBConv(in, out, s[0], s[1], stride, prob*at/float64(total), norm))
			in, stride = out, 1
			at++
		}
		features = append(features, nn.Sequential(stage...))
	}
	last := channels(320)
	features = append(features, convNorm(last, 4*last, norm, convOptions{KernelSize: 1, Activation: silu()}))
	m := nn.Init(&EfficientNet{
		Features:   nn.Sequential(features...),
		AvgPool:    nn.AdaptiveAvgPool2d(1),
		Classifier: nn.Sequential(nn.Dropout(dropout, nn.DropoutOptions{InPlace: true}), nn.Linear(4*last, numClasses)),
	})
	initialise(m, func(layer *nn.LinearModule) {
		bound := 1 / math.Sqrt(float64(layer.OutFeatures))
		nninit.Uniform_(layer.Weight, nninit.UniformOptions{A: -bound, B: bound})
	})
	return m
}

// EfficientNetB0 is the smallest [EfficientNet], for images of about 224×224. It panics with a ValueError if a
// probability is none.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.efficientnet_b0.html.
func EfficientNetB0(opts ...EfficientNetOptions) *EfficientNet {
	return efficientNet("models.EfficientNetB0", 1, 1, 0.2, batchNorm, opts)
}

// EfficientNetB1 is [EfficientNetB0] with 1.0 times the channels and 1.1 times the blocks, for images of about 240×240.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.efficientnet_b1.html.
func EfficientNetB1(opts ...EfficientNetOptions) *EfficientNet {
	return efficientNet("models.EfficientNetB1", 1.0, 1.1, 0.2, batchNorm, opts)
}

// EfficientNetB2 is [EfficientNetB0] with 1.1 times the channels and 1.2 times the blocks, for images of about 288×288.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.efficientnet_b2.html.
func EfficientNetB2(opts ...EfficientNetOptions) *EfficientNet {
	return efficientNet("models.EfficientNetB2", 1.1, 1.2, 0.3, batchNorm, opts)
}

// EfficientNetB3 is [EfficientNetB0] with 1.2 times the channels and 1.4 times the blocks, for images of about 300×300.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.efficientnet_b3.html.
func EfficientNetB3(opts ...EfficientNetOptions) *EfficientNet {
	return efficientNet("models.EfficientNetB3", 1.2, 1.4, 0.3, batchNorm, opts)
}

// EfficientNetB4 is [EfficientNetB0] with 1.4 times the channels and 1.8 times the blocks, for images of about 380×380.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.efficientnet_b4.html.
func EfficientNetB4(opts ...EfficientNetOptions) *EfficientNet {
	return efficientNet("models.EfficientNetB4", 1.4, 1.8, 0.4, batchNorm, opts)
}

// EfficientNetB5 is [EfficientNetB0] with 1.6 times the channels and 2.2 times the blocks, for images of about 456×456.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.efficientnet_b5.html.
func EfficientNetB5(opts ...EfficientNetOptions) *EfficientNet {
	return efficientNet("models.EfficientNetB5", 1.6, 2.2, 0.4, batchNormOf(0.001, 0.01), opts)
}

// EfficientNetB6 is [EfficientNetB0] with 1.8 times the channels and 2.6 times the blocks, for images of about 528×528.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.efficientnet_b6.html.
func EfficientNetB6(opts ...EfficientNetOptions) *EfficientNet {
	return efficientNet("models.EfficientNetB6", 1.8, 2.6, 0.5, batchNormOf(0.001, 0.01), opts)
}

// EfficientNetB7 is [EfficientNetB0] with 2.0 times the channels and 3.1 times the blocks, for images of about 600×600.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.efficientnet_b7.html.
func EfficientNetB7(opts ...EfficientNetOptions) *EfficientNet {
	return efficientNet("models.EfficientNetB7", 2.0, 3.1, 0.5, batchNormOf(0.001, 0.01), opts)
}
