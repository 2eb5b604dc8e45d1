// Package models has the networks of torchvision.models, with torchvision's names, options, initial values and
// state dicts, so that weights go both ways:
//
//	model := models.ResNet18()
//	err := nn.Load(model, "resnet18.pth") // as Python saved it with torch.save(model.state_dict(), ...)
//	model.Eval()
//	logits := model.Forward(images) // (N, 3, H, W) to (N, 1000)
//
// To learn other classes, freeze what is there and put another layer in the place of the last one:
//
//	model.RequiresGrad_(false)
//	model.FC = nn.Linear(512, 10)
//	nn.Init(model)
//
// A function named for an architecture, such as [ResNet18], [ViTB16] or [ConvNeXtTiny], makes it with its numbers of
// layers; one named for a class, such as [NewResNet], takes these as arguments. With the same seed the initial
// weights are torchvision's to the last bit. Weights are not downloaded: save them from Python, or read a folder
// of theirs. [Features] returns what layers within compute. [NewUNet], [NewDCGANGenerator] and
// [NewDCGANDiscriminator] are not torchvision's, and say whose names they have.
package models

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/vision/internal/lean"
	"gotorch.dev/gotorch/vision/ops"
)

// NormLayer makes a layer that normalises images of so many channels, such as
//
//	func(channels int64) nn.Layer { return nn.GroupNorm(32, channels) }
type NormLayer func(channels int64) nn.Layer

func batchNorm(channels int64) nn.Layer { return nn.BatchNorm2d(channels) }

// or returns the layer, or other where it is nil.
func (n NormLayer) or(other NormLayer) NormLayer {
	if n == nil {
		return other
	}
	return n
}

// batchNormOf is batch normalisation with other constants.
func batchNormOf(eps, momentum float64) NormLayer {
	return func(channels int64) nn.Layer {
		return nn.BatchNorm2d(channels, nn.BatchNorm2dOptions{Eps: eps, Momentum: momentum})
	}
}

// convOptions are those of a [ops.Conv2dNormActivation] that the networks use.
type convOptions struct {
	KernelSize int64    // 0: 3
	Stride     int64    // 0: 1
	Padding    *int64   // nil: what keeps the size
	Groups     int64    // 0: 1
	Dilation   int64    // 0: 1
	Activation nn.Layer // nil: none
	Bias       bool     // also where there is a norm
}

// convNorm makes a block of in to out channels. norm may be nil.
func convNorm(in, out int64, norm NormLayer, opt convOptions) *ops.Conv2dNormActivation {
	full := ops.ConvNormActivationOptions{NormLayer: norm, NoNormLayer: norm == nil, Bias: opt.Bias || norm == nil,
		Groups: max(opt.Groups, 1), NoActivation: opt.Activation == nil}
	for to, n := range map[*[]int64]int64{&full.KernelSize: opt.KernelSize, &full.Stride: opt.Stride, &full.Dilation: opt.Dilation} {
		if n != 0 {
			*to = []int64{n}
		}
	}
	if opt.Padding != nil {
		full.Padding = []int64{*opt.Padding}
	}
	if opt.Activation != nil {
		full.ActivationLayer = func(bool) nn.Layer { return opt.Activation }
	}
	return ops.NewConv2dNormActivation(in, out, full)
}

func relu() nn.Layer      { return nn.ReLU(nn.ReLUOptions{InPlace: true}) }
func relu6() nn.Layer     { return nn.ReLU6(nn.ReLU6Options{InPlace: true}) }
func hardswish() nn.Layer { return nn.Hardswish(nn.HardswishOptions{InPlace: true}) }
func silu() nn.Layer      { return nn.SiLU(nn.SiLUOptions{InPlace: true}) }

// divisible returns the multiple of by that is nearest to v, and not less than nine tenths of it.
func divisible(v float64, by int64) int64 {
	n := max(by, int64(v+float64(by)/2)/by*by)
	if float64(n) < 0.9*v {
		n += by
	}
	return n
}

// initialise draws the weights of a classifier anew, in the order of its modules: convolutions by Kaiming's rule,
// and linear layers by linear.
func initialise(m nn.Modular, linear func(layer *nn.LinearModule)) {
	for _, m := range m.NamedModules() {
		switch m := m.(type) {
		case *nn.Conv2dModule:
			nninit.KaimingNormal_(m.Weight, nninit.KaimingOptions{FanOut: true})
			zero(m.Bias)
		case *nn.LinearModule:
			if linear != nil {
				linear(m)
				zero(m.Bias)
			}
		}
	}
}

// smallNormal is how most classifiers draw the weights of linear layers.
func smallNormal(layer *nn.LinearModule) {
	nninit.Normal_(layer.Weight, nninit.NormalOptions{Std: 0.01})
}

func zero(t gotorch.Tensor) {
	if t.T != nil {
		nninit.Zeros_(t)
	}
}

// classes returns the number of classes.
func classes(op string, n gotorch.Scalar) int64 {
	classes := args.Int(op, "NumClasses", n, 1000)
	if classes < 0 {
		panic(args.ValueError(op, "NumClasses must not be negative, but is %d", classes))
	}
	return classes
}

// chain sends x through layers and joins the dimensions behind the batch before the last of them.
func chain(x gotorch.Tensor, classifier nn.Layer, layers ...nn.Layer) gotorch.Tensor {
	return lean.Run(lean.Forget(append(layers, classifier)...), func() gotorch.Tensor {
		for _, layer := range layers {
			x = nn.Call(layer, x)
		}
		return nn.Call(classifier, x.Flatten(gotorch.FlattenOptions{StartDim: 1}))
	})
}
