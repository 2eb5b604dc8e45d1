package models

import (
	"fmt"
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/vision/internal/lean"
)

// VisionTransformer is a transformer of patches of an image: see [NewVisionTransformer].
type VisionTransformer struct {
	nn.Module
	ClassToken gotorch.Tensor // (1, 1, hidden)
	ConvProj   nn.Layer
	Encoder    *Encoder
	Heads      *Named // "heads.head", and before it "heads.pre_logits" and "heads.act" where there is RepresentationSize

	ImageSize, PatchSize, HiddenDim int64
}

// VisionTransformerOptions are the arguments of [NewVisionTransformer] and of the functions for its architectures
// that have defaults.
type VisionTransformerOptions struct {
	ImageSize          gotorch.Scalar // height and width of images; default: 224. Only for architectures
	Dropout            float64
	AttentionDropout   float64
	NumClasses         gotorch.Scalar // default: 1000
	RepresentationSize gotorch.Scalar // features of a layer before the last one; default: there is none
	NormLayer          NormLayer      // of tokens (N, T, channels); default: nn.LayerNorm with Eps 1e-6
}

// Encoder is the transformer of a [VisionTransformer].
type Encoder struct {
	nn.Module
	PosEmbedding gotorch.Tensor // (1, T, hidden)
	Dropout      nn.Layer
	Layers       *Named // "encoder_layer_0", ...
	LN           nn.Layer
}

// EncoderBlock is a block of an [Encoder]: attention, and two linear layers, each added to what it got.
type EncoderBlock struct {
	nn.Module
	LN1           nn.Layer `nn:"ln_1"`
	SelfAttention *nn.MultiheadAttentionModule
	Dropout       nn.Layer
	LN2           nn.Layer `nn:"ln_2"`
	MLP           nn.Layer `nn:"mlp"`
}

// MLPBlock is linear layers with an activation and dropout.
type MLPBlock struct{ nn.SequentialModule }

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *MLPBlock) KeepsNothing() bool { return lean.Forget(m.Layers...) }

// Named is layers in a row that have names: what Python makes by nn.Sequential(OrderedDict(...)). Its layers
// are those of [nn.ModuleDict], whose methods get and set them.
type Named struct{ nn.ModuleDictModule }

func named(names []string, layers ...nn.Layer) *Named {
	m := nn.Init(&Named{})
	for i, layer := range layers {
		m.Set(names[i], layer)
	}
	return m
}

// Forward sends x through the layers in their order. It panics with a TypeError if a module that was set is no
// layer.
func (m *Named) Forward(x gotorch.Tensor) gotorch.Tensor {
	return lean.Run(m.KeepsNothing(), func() gotorch.Tensor {
		for name, part := range m.All() {
			layer, ok := part.(nn.Layer)
			if !ok {
				panic(args.TypeError("models.Named", "%q is a %T, which has no Forward of one tensor", name, part))
			}
			x = nn.Call(layer, x)
		}
		return x
	})
}

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *Named) KeepsNothing() bool {
	for _, part := range m.All() {
		if layer, ok := part.(nn.Layer); !ok || !nn.Forgets(layer) {
			return false
		}
	}
	return true
}

// NewVisionTransformer makes torchvision's class VisionTransformer. It panics with a ValueError if a size is not
// positive, imageSize is no multiple of patchSize, or hiddenDim none of numHeads. A stem of convolutions is put
// into the field ConvProj afterwards.
//
// See https://docs.pytorch.org/vision/stable/models/vision_transformer.html.
func NewVisionTransformer(imageSize, patchSize, numLayers, numHeads, hiddenDim, mlpDim int64, opts ...VisionTransformerOptions) *VisionTransformer {
	const op = "models.NewVisionTransformer"
	opt := args.Option(opts)
	if opt.ImageSize != nil {
		panic(args.ValueError(op, "ImageSize is for architectures: imageSize is an argument"))
	}
	return newVisionTransformer(op, imageSize, patchSize, numLayers, numHeads, hiddenDim, mlpDim, opt)
}

func newVisionTransformer(op string, imageSize, patchSize, numLayers, numHeads, hiddenDim, mlpDim int64, opt VisionTransformerOptions) *VisionTransformer {
	if min(imageSize, patchSize, numHeads, hiddenDim, mlpDim) < 1 || numLayers < 0 {
		panic(args.ValueError(op, "sizes must be positive, got imageSize=%d, patchSize=%d, numLayers=%d, numHeads=%d, hiddenDim=%d, mlpDim=%d",
			imageSize, patchSize, numLayers, numHeads, hiddenDim, mlpDim))
	}
	if imageSize%patchSize != 0 {
		panic(args.ValueError(op, "Input shape indivisible by patch size! The image size is %d, the patch size %d", imageSize, patchSize))
	}
	numClasses, representation := classes(op, opt.NumClasses), args.IntPointer(op, "RepresentationSize", opt.RepresentationSize)
	norm := opt.NormLayer.or(func(channels int64) nn.Layer { return nn.LayerNorm(channels, nn.LayerNormOptions{Eps: 1e-6}) })
	proj := nn.Conv2d(3, hiddenDim, patchSize, nn.Conv2dOptions{Stride: []int64{patchSize}})
	side := imageSize / patchSize
	m := &VisionTransformer{ImageSize: imageSize, PatchSize: patchSize, HiddenDim: hiddenDim, ConvProj: proj,
		ClassToken: gotorch.Zeros([]int64{1, 1, hiddenDim})}
	position := gotorch.Empty([]int64{1, side*side + 1, hiddenDim})
	nninit.Normal_(position, nninit.NormalOptions{Std: 0.02})
	layers := named(nil)
	for i := range numLayers {
		layers.Set(fmt.Sprintf("encoder_layer_%d", i), newEncoderBlock(numHeads, hiddenDim, mlpDim, opt.Dropout, opt.AttentionDropout, norm))
	}
	m.Encoder = nn.Init(&Encoder{PosEmbedding: position, Dropout: nn.Dropout(opt.Dropout), Layers: layers, LN: norm(hiddenDim)})
	var head *nn.LinearModule
	if representation == nil {
		head = nn.Linear(hiddenDim, numClasses)
		m.Heads = named([]string{"head"}, head)
	} else {
		before := nn.Linear(hiddenDim, *representation)
		head = nn.Linear(*representation, numClasses)
		m.Heads = named([]string{"pre_logits", "act", "head"}, before, nn.Tanh(), head)
	}
	nninit.TruncNormal_(proj.Weight, nninit.TruncNormalOptions{Std: math.Sqrt(1 / float64(3*patchSize*patchSize))})
	zero(proj.Bias)
	if representation != nil {
		before := m.Heads.Get("pre_logits").(*nn.LinearModule)
		nninit.TruncNormal_(before.Weight, nninit.TruncNormalOptions{Std: math.Sqrt(1 / float64(before.InFeatures))})
		zero(before.Bias)
	}
	zero(head.Weight)
	zero(head.Bias)
	return nn.Init(m)
}

func newEncoderBlock(heads, hidden, mlp int64, dropout, attentionDropout float64, norm NormLayer) *EncoderBlock {
	m := &EncoderBlock{}
	m.LN1 = norm(hidden)
	m.SelfAttention = nn.MultiheadAttention(hidden, heads, nn.MultiheadAttentionOptions{Dropout: attentionDropout, BatchFirst: true})
	m.Dropout = nn.Dropout(dropout)
	m.LN2 = norm(hidden)
	first, second := nn.Linear(hidden, mlp), nn.Linear(mlp, hidden)
	m.MLP = nn.Init(&MLPBlock{nn.SequentialModule{Layers: []nn.Layer{first, nn.GELU(), nn.Dropout(dropout), second, nn.Dropout(dropout)}}})
	for _, layer := range []*nn.LinearModule{first, second} {
		nninit.XavierUniform_(layer.Weight)
		nninit.Normal_(layer.Bias, nninit.NormalOptions{Std: 1e-6})
	}
	return nn.Init(m)
}

// Forward returns what the block makes of tokens, (N, T, hidden).
func (m *EncoderBlock) Forward(x gotorch.Tensor) gotorch.Tensor {
	return lean.Run(m.KeepsNothing(), func() gotorch.Tensor {
		y := nn.Call(m.LN1, x)
		y, _ = m.SelfAttention.Forward(y, y, y, nn.AttentionOptions{NoNeedWeights: true})
		y = nn.Call(m.Dropout, y).Add(x)
		return y.Add(nn.Call(m.MLP, nn.Call(m.LN2, y)))
	})
}

// KeepsNothing says that the block does not know: hooks of the attention may keep tensors.
func (m *EncoderBlock) KeepsNothing() bool { return false }

// Forward returns what the encoder makes of tokens, (N, T, hidden).
func (m *Encoder) Forward(x gotorch.Tensor) gotorch.Tensor {
	return nn.Call(m.LN, nn.Call(m.Layers, nn.Call(m.Dropout, x.Add(m.PosEmbedding))))
}

// Forward returns the logits of images: (N, 3, ImageSize, ImageSize) → (N, NumClasses). It panics with a ValueError
// for images of another size.
func (m *VisionTransformer) Forward(x gotorch.Tensor) gotorch.Tensor {
	const op = "models.VisionTransformer"
	if x.Dim() != 4 {
		panic(args.ValueError(op, "expected images (N, 3, %d, %d), got shape %v", m.ImageSize, m.ImageSize, x.Shape()))
	}
	n, h, w := x.Size(0), x.Size(2), x.Size(3)
	if h != m.ImageSize || w != m.ImageSize {
		panic(args.ValueError(op, "wrong size of images! Expected %d by %d but got %d by %d", m.ImageSize, m.ImageSize, h, w))
	}
	side := m.ImageSize / m.PatchSize
	x = nn.Call(m.ConvProj, x).Reshape([]int64{n, m.HiddenDim, side * side}).Permute([]int64{0, 2, 1})
	x = gotorch.Cat([]gotorch.Tensor{m.ClassToken.Expand([]int64{n, -1, -1}), x}, gotorch.CatOptions{Dim: 1})
	x = nn.Call(m.Encoder, x)
	return nn.Call(m.Heads, x.Index(gotorch.All, gotorch.At(0)))
}

func vit(op string, patch, layers, heads, hidden, mlp int64, opts []VisionTransformerOptions) *VisionTransformer {
	opt := args.Option(opts)
	return newVisionTransformer(op, args.Int(op, "ImageSize", opt.ImageSize, 224), patch, layers, heads, hidden, mlp, opt)
}

// ViTB16 is a [VisionTransformer] of 12 layers of 768 features, for patches of 16×16.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.vit_b_16.html.
func ViTB16(opts ...VisionTransformerOptions) *VisionTransformer {
	return vit("models.ViTB16", 16, 12, 12, 768, 3072, opts)
}

// ViTB32 is a [VisionTransformer] of 12 layers of 768 features, for patches of 32×32.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.vit_b_32.html.
func ViTB32(opts ...VisionTransformerOptions) *VisionTransformer {
	return vit("models.ViTB32", 32, 12, 12, 768, 3072, opts)
}

// ViTL16 is a [VisionTransformer] of 24 layers of 1024 features, for patches of 16×16.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.vit_l_16.html.
func ViTL16(opts ...VisionTransformerOptions) *VisionTransformer {
	return vit("models.ViTL16", 16, 24, 16, 1024, 4096, opts)
}

// ViTL32 is a [VisionTransformer] of 24 layers of 1024 features, for patches of 32×32.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.vit_l_32.html.
func ViTL32(opts ...VisionTransformerOptions) *VisionTransformer {
	return vit("models.ViTL32", 32, 24, 16, 1024, 4096, opts)
}

// ViTH14 is a [VisionTransformer] of 32 layers of 1280 features, for patches of 14×14.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.vit_h_14.html.
func ViTH14(opts ...VisionTransformerOptions) *VisionTransformer {
	return vit("models.ViTH14", 14, 32, 16, 1280, 5120, opts)
}
