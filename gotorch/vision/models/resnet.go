package models

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/vision/internal/lean"
)

// ResNet is a residual network: see [NewResNet].
type ResNet struct {
	nn.Module
	Conv1   nn.Layer
	BN1     nn.Layer
	ReLU    nn.Layer `nn:"relu"`
	MaxPool nn.Layer `nn:"maxpool"`
	Layer1  nn.Layer
	Layer2  nn.Layer
	Layer3  nn.Layer
	Layer4  nn.Layer
	AvgPool nn.Layer `nn:"avgpool"`
	FC      nn.Layer // the classifier, of 512 features, or 2048 where blocks are bottlenecks
}

// ResNetOptions are the arguments of [NewResNet] and of the functions for its architectures that have defaults.
type ResNetOptions struct {
	NumClasses       gotorch.Scalar // default: 1000
	ZeroInitResidual bool           // each block computes its input at first: its last norm's weight is 0
	Groups           gotorch.Scalar // of the 3×3 convolutions in bottlenecks; default: 1
	WidthPerGroup    gotorch.Scalar // of bottlenecks; default: 64
	// ReplaceStrideWithDilation says of the last three layers whether they keep the size and dilate their
	// convolutions instead; nil, or three of them.
	ReplaceStrideWithDilation []bool
	NormLayer                 NormLayer // default: nn.BatchNorm2d
}

// ResNetBlock is what the layers of a [ResNet] are made of.
type ResNetBlock int

// The blocks of residual networks, as arguments of [NewResNet].
const (
	BasicBlocks ResNetBlock = iota // two 3×3 convolutions: see [BasicBlock]
	Bottlenecks                    // 1×1, 3×3 and 1×1 convolutions: see [Bottleneck]
)

func (b ResNetBlock) expansion() int64 {
	if b == Bottlenecks {
		return 4
	}
	return 1
}

// BasicBlock is two 3×3 convolutions, whose result is added to what they got.
type BasicBlock struct {
	nn.Module
	Conv1      nn.Layer
	BN1        nn.Layer
	ReLU       nn.Layer `nn:"relu"`
	Conv2      nn.Layer
	BN2        nn.Layer
	Downsample nn.Layer // makes the input of the result's shape; nil where it is
}

// Bottleneck is convolutions of 1×1, 3×3 and 1×1, whose result is added to what they got.
type Bottleneck struct {
	nn.Module
	Conv1      nn.Layer
	BN1        nn.Layer
	Conv2      nn.Layer
	BN2        nn.Layer
	Conv3      nn.Layer
	BN3        nn.Layer
	ReLU       nn.Layer `nn:"relu"`
	Downsample nn.Layer // makes the input of the result's shape; nil where it is
}

// resNetMaker has what [NewResNet] knows while it makes layers.
type resNetMaker struct {
	block                      ResNetBlock
	norm                       NormLayer
	inPlanes, dilation         int64
	groups, width              int64
	replaceStrideWithDilations []bool
}

// NewResNet makes a residual network of four layers of so many blocks, torchvision's class ResNet. It panics with
// a ValueError if there are not four numbers, if ReplaceStrideWithDilation has not three, and for groups, width and
// dilation where blocks are basic, which have none.
//
// See https://docs.pytorch.org/vision/stable/models/resnet.html.
func NewResNet(block ResNetBlock, layers []int64, opts ...ResNetOptions) *ResNet {
	const op = "models.NewResNet"
	opt := args.Option(opts)
	if block != BasicBlocks && block != Bottlenecks {
		panic(args.ValueError(op, "block must be BasicBlocks or Bottlenecks, not %d", block))
	}
	if len(layers) != 4 {
		panic(args.ValueError(op, "layers must be the numbers of blocks in the four layers, got %v", layers))
	}
	for _, n := range layers {
		if n < 1 {
			panic(args.ValueError(op, "each layer must have a block at least, got %v", layers))
		}
	}
	k := &resNetMaker{block: block, norm: opt.NormLayer.or(batchNorm), inPlanes: 64, dilation: 1,
		groups: args.Int(op, "Groups", opt.Groups, 1), width: args.Int(op, "WidthPerGroup", opt.WidthPerGroup, 64),
		replaceStrideWithDilations: opt.ReplaceStrideWithDilation}
	switch replaced := opt.ReplaceStrideWithDilation; {
	case replaced == nil:
		k.replaceStrideWithDilations = make([]bool, 3)
	case len(replaced) != 3:
		panic(args.ValueError(op, "replace_stride_with_dilation should be nil or have 3 elements, got %v", replaced))
	case block == BasicBlocks && (replaced[0] || replaced[1] || replaced[2]):
		panic(args.Errorf(op, gotorch.NotImplementedError, "Dilation > 1 not supported in BasicBlock"))
	}
	if block == BasicBlocks && (k.groups != 1 || k.width != 64) {
		panic(args.ValueError(op, "BasicBlock only supports groups=1 and base_width=64, got %d and %d", k.groups, k.width))
	}
	if k.groups < 1 || k.width < 1 {
		panic(args.ValueError(op, "Groups and WidthPerGroup must be positive, got %d and %d", k.groups, k.width))
	}
	numClasses := classes(op, opt.NumClasses)
	m := &ResNet{}
	m.Conv1 = nn.Conv2d(3, 64, 7, nn.Conv2dOptions{Stride: []int64{2}, Padding: []int64{3}, NoBias: true})
	m.BN1 = k.norm(64)
	m.ReLU = relu()
	m.MaxPool = nn.MaxPool2d(3, nn.MaxPool2dOptions{Stride: []int64{2}, Padding: []int64{1}})
	m.Layer1 = k.layer(64, layers[0], 1, false)
	m.Layer2 = k.layer(128, layers[1], 2, k.replaceStrideWithDilations[0])
	m.Layer3 = k.layer(256, layers[2], 2, k.replaceStrideWithDilations[1])
	m.Layer4 = k.layer(512, layers[3], 2, k.replaceStrideWithDilations[2])
	m.AvgPool = nn.AdaptiveAvgPool2d([]int64{1, 1})
	m.FC = nn.Linear(512*block.expansion(), numClasses)
	nn.Init(m)
	initialise(m, nil)
	if opt.ZeroInitResidual {
		for _, block := range m.NamedModules() {
			switch b := block.(type) {
			case *Bottleneck:
				zeroWeight(b.BN3)
			case *BasicBlock:
				zeroWeight(b.BN2)
			}
		}
	}
	return m
}

func zeroWeight(norm nn.Layer) {
	for name, t := range norm.NamedParameters() {
		if name == "weight" {
			nninit.Zeros_(t)
		}
	}
}

func (k *resNetMaker) layer(planes, blocks, stride int64, dilate bool) nn.Layer {
	previous := k.dilation
	if dilate {
		k.dilation *= stride
		stride = 1
	}
	out := planes * k.block.expansion()
	var downsample nn.Layer
	if stride != 1 || k.inPlanes != out {
		downsample = nn.Sequential(conv1x1(k.inPlanes, out, stride), k.norm(out))
	}
	list := []nn.Layer{k.one(planes, stride, previous, downsample)}
	k.inPlanes = out
	for range blocks - 1 {
		list = append(list, k.one(planes, 1, k.dilation, nil))
	}
	return nn.Sequential(list...)
}

func (k *resNetMaker) one(planes, stride, dilation int64, downsample nn.Layer) nn.Layer {
	if k.block == BasicBlocks {
		m := &BasicBlock{Downsample: downsample, ReLU: relu()}
		m.Conv1 = conv3x3(k.inPlanes, planes, stride, 1, 1)
		m.BN1 = k.norm(planes)
		m.Conv2 = conv3x3(planes, planes, 1, 1, 1)
		m.BN2 = k.norm(planes)
		return nn.Init(m)
	}
	width := int64(float64(planes)*(float64(k.width)/64)) * k.groups
	m := &Bottleneck{Downsample: downsample, ReLU: relu()}
	m.Conv1 = conv1x1(k.inPlanes, width, 1)
	m.BN1 = k.norm(width)
	m.Conv2 = conv3x3(width, width, stride, k.groups, dilation)
	m.BN2 = k.norm(width)
	m.Conv3 = conv1x1(width, planes*4, 1)
	m.BN3 = k.norm(planes * 4)
	return nn.Init(m)
}

func conv3x3(in, out, stride, groups, dilation int64) nn.Layer {
	return nn.Conv2d(in, out, 3, nn.Conv2dOptions{Stride: []int64{stride}, Padding: []int64{dilation},
		Dilation: []int64{dilation}, Groups: groups, NoBias: true})
}

func conv1x1(in, out, stride int64) nn.Layer {
	return nn.Conv2d(in, out, 1, nn.Conv2dOptions{Stride: []int64{stride}, NoBias: true})
}

// Forward returns the logits of images: (N, 3, H, W) → (N, NumClasses).
func (m *ResNet) Forward(x gotorch.Tensor) gotorch.Tensor {
	return chain(x, m.FC, m.Conv1, m.BN1, m.ReLU, m.MaxPool, m.Layer1, m.Layer2, m.Layer3, m.Layer4, m.AvgPool)
}

// residual is a branch of layers, added to x or to what downsample makes of it, and relu of that.
func residual(x gotorch.Tensor, downsample, relu nn.Layer, branch ...nn.Layer) gotorch.Tensor {
	out, identity := x, x
	for _, layer := range branch {
		out = nn.Call(layer, out)
	}
	if downsample != nil {
		identity = nn.Call(downsample, x)
	}
	return nn.Call(relu, out.Add_(identity))
}

// Forward returns what the block makes of x.
func (m *BasicBlock) Forward(x gotorch.Tensor) gotorch.Tensor {
	return lean.Run(m.KeepsNothing(), func() gotorch.Tensor {
		return residual(x, m.Downsample, m.ReLU, m.Conv1, m.BN1, m.ReLU, m.Conv2, m.BN2)
	})
}

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *BasicBlock) KeepsNothing() bool {
	return lean.Forget(m.Conv1, m.BN1, m.ReLU, m.Conv2, m.BN2, m.Downsample)
}

// Forward returns what the block makes of x.
func (m *Bottleneck) Forward(x gotorch.Tensor) gotorch.Tensor {
	return lean.Run(m.KeepsNothing(), func() gotorch.Tensor {
		return residual(x, m.Downsample, m.ReLU, m.Conv1, m.BN1, m.ReLU, m.Conv2, m.BN2, m.ReLU, m.Conv3, m.BN3)
	})
}

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *Bottleneck) KeepsNothing() bool {
	return lean.Forget(m.Conv1, m.BN1, m.Conv2, m.BN2, m.Conv3, m.BN3, m.ReLU, m.Downsample)
}

// fixed returns options with groups and width of an architecture. It panics with a ValueError if others are given.
func fixed(op string, opts []ResNetOptions, groups, width int64) ResNetOptions {
	opt := args.Option(opts)
	if g, w := args.Int(op, "Groups", opt.Groups, groups), args.Int(op, "WidthPerGroup", opt.WidthPerGroup, width); g != groups || w != width {
		panic(args.ValueError(op, "%s", fmt.Sprintf("the architecture has groups=%d and width_per_group=%d, not %d and %d: use NewResNet", groups, width, g, w)))
	}
	opt.Groups, opt.WidthPerGroup = groups, width
	return opt
}

// ResNet18 is a [ResNet] of 2, 2, 2 and 2 basic blocks.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.resnet18.html.
func ResNet18(opts ...ResNetOptions) *ResNet {
	return NewResNet(BasicBlocks, []int64{2, 2, 2, 2}, opts...)
}

// ResNet34 is a [ResNet] of 3, 4, 6 and 3 basic blocks.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.resnet34.html.
func ResNet34(opts ...ResNetOptions) *ResNet {
	return NewResNet(BasicBlocks, []int64{3, 4, 6, 3}, opts...)
}

// ResNet50 is a [ResNet] of 3, 4, 6 and 3 bottlenecks.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.resnet50.html.
func ResNet50(opts ...ResNetOptions) *ResNet {
	return NewResNet(Bottlenecks, []int64{3, 4, 6, 3}, opts...)
}

// ResNet101 is a [ResNet] of 3, 4, 23 and 3 bottlenecks.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.resnet101.html.
func ResNet101(opts ...ResNetOptions) *ResNet {
	return NewResNet(Bottlenecks, []int64{3, 4, 23, 3}, opts...)
}

// ResNet152 is a [ResNet] of 3, 8, 36 and 3 bottlenecks.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.resnet152.html.
func ResNet152(opts ...ResNetOptions) *ResNet {
	return NewResNet(Bottlenecks, []int64{3, 8, 36, 3}, opts...)
}

// ResNeXt50_32x4d is [ResNet50] with 32 groups of width 4. It panics with a ValueError if other ones are given.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.resnext50_32x4d.html.
func ResNeXt50_32x4d(opts ...ResNetOptions) *ResNet {
	return ResNet50(fixed("models.ResNeXt50_32x4d", opts, 32, 4))
}

// ResNeXt101_32x8d is [ResNet101] with 32 groups of width 8. It panics with a ValueError if other ones are given.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.resnext101_32x8d.html.
func ResNeXt101_32x8d(opts ...ResNetOptions) *ResNet {
	return ResNet101(fixed("models.ResNeXt101_32x8d", opts, 32, 8))
}

// ResNeXt101_64x4d is [ResNet101] with 64 groups of width 4. It panics with a ValueError if other ones are given.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.resnext101_64x4d.html.
func ResNeXt101_64x4d(opts ...ResNetOptions) *ResNet {
	return ResNet101(fixed("models.ResNeXt101_64x4d", opts, 64, 4))
}

// WideResNet50_2 is [ResNet50] with bottlenecks of twice the width. It panics with a ValueError if another is given.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.wide_resnet50_2.html.
func WideResNet50_2(opts ...ResNetOptions) *ResNet {
	opt := args.Option(opts)
	groups := args.Int("models.WideResNet50_2", "Groups", opt.Groups, 1)
	return ResNet50(fixed("models.WideResNet50_2", opts, groups, 128))
}

// WideResNet101_2 is [ResNet101] with bottlenecks of twice the width. It panics with a ValueError if another is given.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.wide_resnet101_2.html.
func WideResNet101_2(opts ...ResNetOptions) *ResNet {
	opt := args.Option(opts)
	groups := args.Int("models.WideResNet101_2", "Groups", opt.Groups, 1)
	return ResNet101(fixed("models.WideResNet101_2", opts, groups, 128))
}
