package models

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
)

// VGG is a plain convolutional network: see [NewVGG].
type VGG struct {
	nn.Module
	Features   nn.Layer
	AvgPool    nn.Layer `nn:"avgpool"`
	Classifier nn.Layer // the last layer is "classifier.6"
}

// VGGOptions are the arguments of [NewVGG] and of the functions for its architectures that have defaults.
type VGGOptions struct {
	NumClasses    gotorch.Scalar // default: 1000
	NoInitWeights bool           // leave the weights as the layers' constructors draw them, which is faster
	Dropout       gotorch.Scalar // in the classifier; default: 0.5
}

// NewVGG makes torchvision's class VGG. features makes 512 channels of 3.
//
// See https://docs.pytorch.org/vision/stable/models/vgg.html.
func NewVGG(features nn.Layer, opts ...VGGOptions) *VGG {
	const op = "models.NewVGG"
	opt := args.Option(opts)
	dropout, numClasses := args.Float(op, "Dropout", opt.Dropout, 0.5), classes(op, opt.NumClasses)
	if features == nil {
		panic(args.TypeError(op, "features is nil, where a layer is required"))
	}
	m := nn.Init(&VGG{
		Features: features,
		AvgPool:  nn.AdaptiveAvgPool2d([]int64{7, 7}),
		Classifier: nn.Sequential(
			nn.Linear(512*7*7, 4096), relu(), nn.Dropout(dropout),
			nn.Linear(4096, 4096), relu(), nn.Dropout(dropout),
			nn.Linear(4096, numClasses),
		),
	})
	if !opt.NoInitWeights {
		initialise(m, smallNormal)
	}
	return m
}

// Forward returns the logits of images: (N, 3, H, W) → (N, NumClasses), H and W at least 32.
func (m *VGG) Forward(x gotorch.Tensor) gotorch.Tensor {
	return chain(x, m.Classifier, m.Features, m.AvgPool)
}

// vgg makes an architecture of so many convolutions in its five stages.
func vgg(convolutions [5]int, norm bool, opts []VGGOptions) *VGG {
	var layers []nn.Layer
	in, out := int64(3), int64(64)
	for _, n := range convolutions {
		for range n {
			layers = append(layers, nn.Conv2d(in, out, 3, nn.Conv2dOptions{Padding: []int64{1}}))
			if norm {
				layers = append(layers, nn.BatchNorm2d(out))
			}
			layers = append(layers, relu())
			in = out
		}
		layers = append(layers, nn.MaxPool2d(2, nn.MaxPool2dOptions{Stride: []int64{2}}))
		out = min(2*out, 512)
	}
	return NewVGG(nn.Sequential(layers...), opts...)
}

// VGG11 is a [VGG] of 11 layers.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.vgg11.html.
func VGG11(opts ...VGGOptions) *VGG { return vgg([5]int{1, 1, 2, 2, 2}, false, opts) }

// VGG11BN is [VGG11] with batch normalisation.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.vgg11_bn.html.
func VGG11BN(opts ...VGGOptions) *VGG { return vgg([5]int{1, 1, 2, 2, 2}, true, opts) }

// VGG13 is a [VGG] of 13 layers.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.vgg13.html.
func VGG13(opts ...VGGOptions) *VGG { return vgg([5]int{2, 2, 2, 2, 2}, false, opts) }

// VGG13BN is [VGG13] with batch normalisation.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.vgg13_bn.html.
func VGG13BN(opts ...VGGOptions) *VGG { return vgg([5]int{2, 2, 2, 2, 2}, true, opts) }

// VGG16 is a [VGG] of 16 layers.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.vgg16.html.
func VGG16(opts ...VGGOptions) *VGG { return vgg([5]int{2, 2, 3, 3, 3}, false, opts) }

// VGG16BN is [VGG16] with batch normalisation.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.vgg16_bn.html.
func VGG16BN(opts ...VGGOptions) *VGG { return vgg([5]int{2, 2, 3, 3, 3}, true, opts) }

// VGG19 is a [VGG] of 19 layers.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.vgg19.html.
func VGG19(opts ...VGGOptions) *VGG { return vgg([5]int{2, 2, 4, 4, 4}, false, opts) }

// VGG19BN is [VGG19] with batch normalisation.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.vgg19_bn.html.
func VGG19BN(opts ...VGGOptions) *VGG { return vgg([5]int{2, 2, 4, 4, 4}, true, opts) }
