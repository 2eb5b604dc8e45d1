package models

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/vision/internal/lean"
)

// AlexNet is five convolutions and three linear layers: see [NewAlexNet].
type AlexNet struct {
	nn.Module
	Features   nn.Layer
	AvgPool    nn.Layer `nn:"avgpool"`
	Classifier nn.Layer // the last layer is "classifier.6"
}

// AlexNetOptions are the arguments of [NewAlexNet] that have defaults.
type AlexNetOptions struct {
	NumClasses gotorch.Scalar // default: 1000
	Dropout    gotorch.Scalar // in the classifier; default: 0.5
}

// NewAlexNet makes torchvision's class AlexNet.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.alexnet.html.
func NewAlexNet(opts ...AlexNetOptions) *AlexNet {
	const op = "models.NewAlexNet"
	opt := args.Option(opts)
	dropout, numClasses := args.Float(op, "Dropout", opt.Dropout, 0.5), classes(op, opt.NumClasses)
	conv := func(in, out, kernel, stride, padding int64) nn.Layer {
		return nn.Conv2d(in, out, kernel, nn.Conv2dOptions{Stride: []int64{stride}, Padding: []int64{padding}})
	}
	pool := func() nn.Layer { return nn.MaxPool2d(3, nn.MaxPool2dOptions{Stride: []int64{2}}) }
	return nn.Init(&AlexNet{
		Features: nn.Sequential(conv(3, 64, 11, 4, 2), relu(), pool(), conv(64, 192, 5, 1, 2), relu(), pool(),
			conv(192, 384, 3, 1, 1), relu(), conv(384, 256, 3, 1, 1), relu(), conv(256, 256, 3, 1, 1), relu(), pool()),
		AvgPool: nn.AdaptiveAvgPool2d([]int64{6, 6}),
		Classifier: nn.Sequential(nn.Dropout(dropout), nn.Linear(256*6*6, 4096), relu(),
			nn.Dropout(dropout), nn.Linear(4096, 4096), relu(), nn.Linear(4096, numClasses)),
	})
}

// Forward returns the logits of images: (N, 3, H, W) → (N, NumClasses), H and W at least 63.
func (m *AlexNet) Forward(x gotorch.Tensor) gotorch.Tensor {
	return chain(x, m.Classifier, m.Features, m.AvgPool)
}

// SqueezeNet is a network of few weights: see [SqueezeNet1_0].
type SqueezeNet struct {
	nn.Module
	Features   nn.Layer
	Classifier nn.Layer // its convolution is "classifier.1"
}

// SqueezeNetOptions are the arguments of [SqueezeNet1_0] and [SqueezeNet1_1] that have defaults.
type SqueezeNetOptions struct {
	NumClasses gotorch.Scalar // default: 1000
	Dropout    gotorch.Scalar // in the classifier; default: 0.5
}

// Fire is a block of a [SqueezeNet]: few channels are made, and of those many by convolutions of 1×1 and of 3×3.
type Fire struct {
	nn.Module
	Squeeze             nn.Layer
	SqueezeActivation   nn.Layer
	Expand1x1           nn.Layer `nn:"expand1x1"`
	Expand1x1Activation nn.Layer `nn:"expand1x1_activation"`
	Expand3x3           nn.Layer `nn:"expand3x3"`
	Expand3x3Activation nn.Layer `nn:"expand3x3_activation"`
}

func newFire(in, squeeze, expand int64) *Fire {
	m := &Fire{Squeeze: nn.Conv2d(in, squeeze, 1), SqueezeActivation: relu(), Expand1x1Activation: relu(), Expand3x3Activation: relu()}
	m.Expand1x1 = nn.Conv2d(squeeze, expand, 1)
	m.Expand3x3 = nn.Conv2d(squeeze, expand, 3, nn.Conv2dOptions{Padding: []int64{1}})
	return nn.Init(m)
}

// Forward returns what the block makes of x.
func (m *Fire) Forward(x gotorch.Tensor) gotorch.Tensor {
	return lean.Run(m.KeepsNothing(), func() gotorch.Tensor {
		x := nn.Call(m.SqueezeActivation, nn.Call(m.Squeeze, x))
		return gotorch.Cat([]gotorch.Tensor{nn.Call(m.Expand1x1Activation, nn.Call(m.Expand1x1, x)),
			nn.Call(m.Expand3x3Activation, nn.Call(m.Expand3x3, x))}, gotorch.CatOptions{Dim: 1})
	})
}

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *Fire) KeepsNothing() bool {
	return lean.Forget(m.Squeeze, m.SqueezeActivation, m.Expand1x1, m.Expand1x1Activation, m.Expand3x3, m.Expand3x3Activation)
}

// squeezeNet makes an architecture: a convolution of so many channels and kernel, and blocks, where 0 is pooling.
func squeezeNet(op string, channels, kernel int64, blocks []int64, opts []SqueezeNetOptions) *SqueezeNet {
	opt := args.Option(opts)
	dropout, numClasses := args.Float(op, "Dropout", opt.Dropout, 0.5), classes(op, opt.NumClasses)
	pool := func() nn.Layer { return nn.MaxPool2d(3, nn.MaxPool2dOptions{Stride: []int64{2}, CeilMode: true}) }
	layers := []nn.Layer{nn.Conv2d(3, channels, kernel, nn.Conv2dOptions{Stride: []int64{2}}), relu(), pool()}
	for _, squeeze := range blocks {
		if squeeze == 0 {
			layers = append(layers, pool())
			continue
		}
		layers = append(layers, newFire(channels, squeeze, 4*squeeze))
		channels = 8 * squeeze
	}
	last := nn.Conv2d(512, numClasses, 1)
	m := nn.Init(&SqueezeNet{Features: nn.Sequential(layers...),
		Classifier: nn.Sequential(nn.Dropout(dropout), last, relu(), nn.AdaptiveAvgPool2d([]int64{1, 1}))})
	for _, part := range m.NamedModules() {
		if conv, ok := part.(*nn.Conv2dModule); ok {
			if conv == last {
				nninit.Normal_(conv.Weight, nninit.NormalOptions{Std: 0.01})
			} else {
				nninit.KaimingUniform_(conv.Weight)
			}
			zero(conv.Bias)
		}
	}
	return m
}

// Forward returns the logits of images: (N, 3, H, W) → (N, NumClasses).
func (m *SqueezeNet) Forward(x gotorch.Tensor) gotorch.Tensor {
	return lean.Run(lean.Forget(m.Features, m.Classifier), func() gotorch.Tensor {
		return nn.Call(m.Classifier, nn.Call(m.Features, x)).Flatten(gotorch.FlattenOptions{StartDim: 1})
	})
}

// SqueezeNet1_0 is the paper's [SqueezeNet].
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.squeezenet1_0.html.
func SqueezeNet1_0(opts ...SqueezeNetOptions) *SqueezeNet {
	return squeezeNet("models.SqueezeNet1_0", 96, 7, []int64{16, 16, 32, 0, 32, 48, 48, 64, 0, 64}, opts)
}

// SqueezeNet1_1 is [SqueezeNet1_0] with less than half of the computation.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.squeezenet1_1.html.
func SqueezeNet1_1(opts ...SqueezeNetOptions) *SqueezeNet {
	return squeezeNet("models.SqueezeNet1_1", 64, 3, []int64{16, 16, 0, 32, 32, 0, 48, 48, 64, 64}, opts)
}
