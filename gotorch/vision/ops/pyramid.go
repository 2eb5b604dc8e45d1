package ops

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	nninit "gotorch.dev/gotorch/nn/init"
)

// FeatureMap is a map that a network has made of images, (N, C, H, W), and its name.
type FeatureMap struct {
	Name string
	gotorch.Tensor
}

// FeatureMaps is maps in their order, as Python has them in an OrderedDict: from the largest to the smallest.
type FeatureMaps []FeatureMap

// Tensors returns the maps without their names.
func (f FeatureMaps) Tensors() []gotorch.Tensor {
	list := make([]gotorch.Tensor, len(f))
	for i, m := range f {
		list[i] = m.Tensor
	}
	return list
}

// ExtraBlock makes further maps of those of a [FeaturePyramidNetwork]: see [NewLastLevelMaxPool] and
// [NewLastLevelP6P7].
type ExtraBlock interface {
	nn.Modular
	// Extend returns results, the maps of the pyramid, with others behind them; x are those that it was made of.
	Extend(results FeatureMaps, x []gotorch.Tensor) FeatureMaps
}

// FeaturePyramidNetwork makes maps of one number of channels of those of several layers: see
// [NewFeaturePyramidNetwork].
type FeaturePyramidNetwork struct {
	nn.Module
	InnerBlocks *nn.ModuleListModule
	LayerBlocks *nn.ModuleListModule
	ExtraBlocks ExtraBlock // or nil
}

// FeaturePyramidNetworkOptions are the arguments of [NewFeaturePyramidNetwork] that have defaults.
type FeaturePyramidNetworkOptions struct {
	ExtraBlocks ExtraBlock                    // nil: none
	NormLayer   func(channels int64) nn.Layer // behind each convolution; nil: none
}

// NewFeaturePyramidNetwork makes a network for maps of so many channels, from the largest to the smallest map. It
// panics with a ValueError if there is none, or one has no channels. It loads state dicts of older versions too.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.FeaturePyramidNetwork.html.
func NewFeaturePyramidNetwork(inChannelsList []int64, outChannels int64, opts ...FeaturePyramidNetworkOptions) *FeaturePyramidNetwork {
	const op = "ops.NewFeaturePyramidNetwork"
	opt := args.Option(opts)
	if len(inChannelsList) == 0 || slices.Min(inChannelsList) < 1 || outChannels < 1 {
		panic(args.ValueError(op, "numbers of channels must be positive, got %v and %d", inChannelsList, outChannels))
	}
	m := &FeaturePyramidNetwork{InnerBlocks: nn.ModuleList(), LayerBlocks: nn.ModuleList()}
	for _, in := range inChannelsList {
		conv := ConvNormActivationOptions{KernelSize: []int64{1}, Padding: []int64{0}, NormLayer: opt.NormLayer, NoNormLayer: opt.NormLayer == nil, NoActivation: true}
		m.InnerBlocks.Append(NewConv2dNormActivation(in, outChannels, conv))
		conv.KernelSize, conv.Padding = nil, nil
		m.LayerBlocks.Append(NewConv2dNormActivation(outChannels, outChannels, conv))
	}
	nn.Init(m)
	for _, part := range m.NamedModules() {
		if conv, ok := part.(*nn.Conv2dModule); ok {
			drawn(conv)
		}
	}
	m.ExtraBlocks = opt.ExtraBlocks
	m.RegisterLoadStateDictPreHook(func(_ nn.Modular, dict nn.StateDict, prefix string) {
		for _, blocks := range []string{"inner_blocks", "layer_blocks"} {
			for i := range inChannelsList {
				for _, name := range []string{"weight", "bias"} {
					old := fmt.Sprintf("%s%s.%d.%s", prefix, blocks, i, name)
					if t, ok := dict[old]; ok {
						dict[fmt.Sprintf("%s%s.%d.0.%s", prefix, blocks, i, name)] = t
						delete(dict, old)
					}
				}
			}
		}
	})
	return nn.Init(m)
}

// drawn draws the weight of a convolution of a pyramid.
func drawn(conv *nn.Conv2dModule) {
	nninit.KaimingUniform_(conv.Weight, nninit.KaimingOptions{A: 1})
	if conv.Bias.T != nil {
		nninit.Zeros_(conv.Bias)
	}
}

// Forward returns the maps of the pyramid under the names of those that it gets, and those of ExtraBlocks. It
// panics with a ValueError if there are not as many maps as it was made for.
func (m *FeaturePyramidNetwork) Forward(x FeatureMaps) FeatureMaps {
	if len(x) != m.InnerBlocks.Len() {
		panic(args.ValueError("ops.FeaturePyramidNetwork", "there should be %d maps, and are %d", m.InnerBlocks.Len(), len(x)))
	}
	results := make(FeatureMaps, len(x))
	var top gotorch.Tensor
	for i, in := range slices.Backward(x) {
		inner := nn.Call(m.InnerBlocks.Modules[i].(nn.Layer), in.Tensor)
		if top.T != nil {
			inner = inner.Add(F.Interpolate(top, F.InterpolateOptions{Size: inner.Shape()[2:]}))
		}
		top = inner
		results[i] = FeatureMap{in.Name, nn.Call(m.LayerBlocks.Modules[i].(nn.Layer), top)}
	}
	if m.ExtraBlocks != nil {
		results = m.ExtraBlocks.Extend(results, x.Tensors())
	}
	return results
}

// LastLevelMaxPool is every second element of the smallest map, under the name "pool": see [NewLastLevelMaxPool].
type LastLevelMaxPool struct{ nn.Module }

// NewLastLevelMaxPool makes an [ExtraBlock].
func NewLastLevelMaxPool() *LastLevelMaxPool { return nn.Init(&LastLevelMaxPool{}) }

// Extend implements [ExtraBlock].
func (m *LastLevelMaxPool) Extend(results FeatureMaps, _ []gotorch.Tensor) FeatureMaps {
	last := results[len(results)-1].Tensor
	return append(results, FeatureMap{"pool", F.MaxPool2d(last, []int64{1}, F.MaxPool2dOptions{Stride: []int64{2}})})
}

// LastLevelP6P7 is two further maps, "p6" and "p7", each of half the size: see [NewLastLevelP6P7].
type LastLevelP6P7 struct {
	nn.Module
	P6, P7 *nn.Conv2dModule

	UseP5 bool // rather than the last of the maps that the pyramid was made of
}

// NewLastLevelP6P7 makes an [ExtraBlock], which RetinaNet has.
func NewLastLevelP6P7(inChannels, outChannels int64) *LastLevelP6P7 {
	half := nn.Conv2dOptions{Stride: []int64{2}, Padding: []int64{1}}
	m := nn.Init(&LastLevelP6P7{P6: nn.Conv2d(inChannels, outChannels, 3, half), P7: nn.Conv2d(outChannels, outChannels, 3, half), UseP5: inChannels == outChannels})
	drawn(m.P6)
	drawn(m.P7)
	return m
}

// Extend implements [ExtraBlock].
func (m *LastLevelP6P7) Extend(results FeatureMaps, x []gotorch.Tensor) FeatureMaps {
	in := x[len(x)-1]
	if m.UseP5 {
		in = results[len(results)-1].Tensor
	}
	p6 := m.P6.Forward(in)
	return append(results, FeatureMap{"p6", p6}, FeatureMap{"p7", m.P7.Forward(p6.ReLU())})
}

// MultiScaleRoIAlign pools each box from the map that is of its size: see [NewMultiScaleRoIAlign].
type MultiScaleRoIAlign struct {
	nn.Module
	FeatmapNames   []string
	OutputSize     [2]int64
	SamplingRatio  int64
	CanonicalScale int64
	CanonicalLevel int64

	mutex  sync.Mutex
	scales []float64 // of each map, as the first call has found them
}

// MultiScaleRoIAlignOptions are the arguments of [NewMultiScaleRoIAlign] that have defaults.
type MultiScaleRoIAlignOptions struct {
	CanonicalScale gotorch.Scalar // the size of a box that is pooled from the map of CanonicalLevel; default: 224
	CanonicalLevel gotorch.Scalar // how often that map was halved; default: 4
}

// NewMultiScaleRoIAlign makes a module that pools boxes from the maps of some names: see [RoIAlign] for the size and
// the ratio. It panics with a ValueError if there is no name.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.MultiScaleRoIAlign.html.
func NewMultiScaleRoIAlign(featmapNames []string, size []int64, ratio int64, opts ...MultiScaleRoIAlignOptions) *MultiScaleRoIAlign {
	const op = "ops.NewMultiScaleRoIAlign"
	opt := args.Option(opts)
	if len(featmapNames) == 0 {
		panic(args.ValueError(op, "there must be the name of one map at least"))
	}
	samplingRatio(op, ratio)
	high, wide := outputSize(op, size)
	m := &MultiScaleRoIAlign{FeatmapNames: slices.Clone(featmapNames), OutputSize: [2]int64{high, wide}, SamplingRatio: ratio,
		CanonicalScale: args.Int(op, "CanonicalScale", opt.CanonicalScale, 224), CanonicalLevel: args.Int(op, "CanonicalLevel", opt.CanonicalLevel, 4)}
	if m.CanonicalScale < 1 {
		panic(args.ValueError(op, "CanonicalScale must be positive, and is %d", m.CanonicalScale))
	}
	return nn.Init(m)
}

// setUp finds the scales of maps, which are halved from one to the next.
func (m *MultiScaleRoIAlign) setUp(maps []gotorch.Tensor, imageShapes [][2]int64) (scales []float64, lowest, highest int64) {
	const op = "ops.MultiScaleRoIAlign"
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.scales == nil {
		var most int64
		for _, shape := range imageShapes {
			most = max(most, shape[0])
		}
		if most < 1 {
			panic(args.ValueError(op, "images list should not be empty"))
		}
		var found []float64
		for _, t := range maps {
			approximate := float32(float64(t.Size(2)) / float64(most))
			if !(approximate > 0) {
				panic(args.ValueError(op, "a map of shape %v has no elements", t.Shape()))
			}
			found = append(found, math.Exp2(math.RoundToEven(float64(float32(math.Log2(float64(approximate)))))))
		}
		m.scales = found
	}
	if len(m.scales) != len(maps) {
		panic(args.ValueError(op, "there are %d maps, and were %d in the first call", len(maps), len(m.scales)))
	}
	return m.scales, int64(-math.Log2(m.scales[0])), int64(-math.Log2(m.scales[len(maps)-1]))
}

// Forward pools the boxes of each image, (L, 4), from maps: (L₀+L₁+..., C, height, width). imageShapes are the
// heights and widths of the images that the maps were made of; from those of the first call it finds how much
// smaller each map is, as torchvision does. It panics with a ValueError if there is no map of its names, or not as
// many images as lists of boxes.
func (m *MultiScaleRoIAlign) Forward(x FeatureMaps, boxes []gotorch.Tensor, imageShapes [][2]int64) gotorch.Tensor {
	const op = "ops.MultiScaleRoIAlign"
	var maps []gotorch.Tensor
	for _, of := range x {
		if slices.Contains(m.FeatmapNames, of.Name) {
			shaped(op, of.Name, of.Tensor, 4, 0, "(N, C, H, W)")
			maps = append(maps, of.Tensor)
		}
	}
	if len(maps) == 0 {
		panic(args.ValueError(op, "there is no map of the names %q", m.FeatmapNames))
	}
	scales, lowest, highest := m.setUp(maps, imageShapes)
	return scoped(func() gotorch.Tensor {
		rois := RoIs(boxes)
		pool := func(level int, rois gotorch.Tensor) gotorch.Tensor {
			return RoIAlign(maps[level], rois, m.OutputSize[:], RoIAlignOptions{SpatialScale: scales[level], SamplingRatio: m.SamplingRatio})
		}
		if len(maps) == 1 {
			return pool(0, rois)
		}
		size := area(rois.Index(gotorch.All, gotorch.SliceFrom(1)), XYXY).Sqrt()
		levels := size.DivScalar(m.CanonicalScale).Log2().AddScalar(m.CanonicalLevel).AddScalar(1e-6).Floor().
			Clamp(gotorch.ClampOptions{Min: lowest, Max: highest}).To(gotorch.Int64).SubScalar(lowest)
		first := maps[0]
		result := gotorch.Zeros([]int64{rois.Size(0), first.Size(1), m.OutputSize[0], m.OutputSize[1]},
			gotorch.TensorOptions{DType: first.DType(), Device: first.Device()})
		for level := range maps {
			of := gotorch.WhereNonZero(levels.EqScalar(level))[0]
			result.IndexPut(pool(level, rois.Index(of)).To(result.DType()), of)
		}
		return result
	})
}

// ExtraRepr returns what String writes between the parentheses.
func (m *MultiScaleRoIAlign) ExtraRepr() string {
	names := make([]string, len(m.FeatmapNames))
	for i, name := range m.FeatmapNames {
		names[i] = "'" + name + "'"
	}
	return fmt.Sprintf("featmap_names=[%s], output_size=%s, sampling_ratio=%d", strings.Join(names, ", "), pySize(m.OutputSize[:]), m.SamplingRatio)
}
