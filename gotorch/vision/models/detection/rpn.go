package detection

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/vision/ops"
)

// RPNHead says of each place of maps how likely there is something, and where: see [NewRPNHead].
type RPNHead struct {
	nn.Module
	Conv      nn.Layer
	ClsLogits nn.Layer
	BBoxPred  nn.Layer `nn:"bbox_pred"`
}

// RPNHeadOptions are the arguments of [NewRPNHead] that have defaults.
type RPNHeadOptions struct {
	ConvDepth gotorch.Scalar // convolutions before the two others; default: 1
}

// NewRPNHead makes a head for maps of so many channels, and so many anchors at each place. It loads state dicts of
// older versions too.
func NewRPNHead(inChannels, numAnchors int64, opts ...RPNHeadOptions) *RPNHead {
	const op = "detection.NewRPNHead"
	depth := args.Int(op, "ConvDepth", args.Option(opts).ConvDepth, 1)
	if inChannels < 1 || numAnchors < 1 || depth < 0 {
		panic(args.ValueError(op, "channels and anchors must be positive, got %d and %d, with ConvDepth %d", inChannels, numAnchors, depth))
	}
	var convs []nn.Layer
	for range depth {
		convs = append(convs, ops.NewConv2dNormActivation(inChannels, inChannels, ops.ConvNormActivationOptions{NoNormLayer: true}))
	}
	m := &RPNHead{Conv: nn.Sequential(convs...)}
	m.ClsLogits = nn.Conv2d(inChannels, numAnchors, 1)
	m.BBoxPred = nn.Conv2d(inChannels, 4*numAnchors, 1)
	nn.Init(m)
	for _, part := range m.NamedModules() {
		if conv, ok := part.(*nn.Conv2dModule); ok {
			nninit.Normal_(conv.Weight, nninit.NormalOptions{Std: 0.01})
			nninit.Zeros_(conv.Bias)
		}
	}
	m.RegisterLoadStateDictPreHook(func(_ nn.Modular, dict nn.StateDict, prefix string) {
		for _, name := range []string{"weight", "bias"} {
			if t, ok := dict[prefix+"conv."+name]; ok {
				dict[prefix+"conv.0.0."+name] = t
				delete(dict, prefix+"conv."+name)
			}
		}
	})
	return m
}

// Forward returns of each map (N, C, H, W) how likely there is something, (N, A, H, W), and how that differs from the
// anchors, (N, 4·A, H, W).
func (m *RPNHead) Forward(maps []gotorch.Tensor) (logits, boxes []gotorch.Tensor) {
	for _, x := range maps {
		t := nn.Call(m.Conv, x)
		logits, boxes = append(logits, nn.Call(m.ClsLogits, t)), append(boxes, nn.Call(m.BBoxPred, t))
	}
	return logits, boxes
}

// RegionProposalNetwork finds where in images something may be: see [NewRegionProposalNetwork].
type RegionProposalNetwork struct {
	nn.Module
	AnchorGenerator *AnchorGenerator
	Head            *RPNHead

	BoxCoder        *BoxCoder
	ProposalMatcher *Matcher
	FGBGSampler     *BalancedPositiveNegativeSampler
	PreNMSTopN      TopN    // of each map, the most likely ones
	PostNMSTopN     TopN    // of each image, when what overlaps is left out
	NMSThresh       float64 // how much two proposals may overlap
	ScoreThresh     float64 // the least score of a proposal
	MinSize         float64 // the least side of a proposal
}

// TopN is how many are kept while training and else.
type TopN struct{ Training, Testing int64 }

// RegionProposalNetworkOptions are the arguments of [NewRegionProposalNetwork] that have defaults.
type RegionProposalNetworkOptions struct {
	ScoreThresh float64 // the least score of a proposal
}

// NewRegionProposalNetwork makes a network of a generator and a head. Anchors that overlap something by fgIoUThresh
// are positive, those below bgIoUThresh negative; of both batchSizePerImage are drawn while training, with positives
// up to positiveFraction.
func NewRegionProposalNetwork(generator *AnchorGenerator, head *RPNHead, fgIoUThresh, bgIoUThresh float64, batchSizePerImage int64, positiveFraction float64,
	preNMSTopN, postNMSTopN TopN, nmsThresh float64, opts ...RegionProposalNetworkOptions) *RegionProposalNetwork {
	const op = "detection.NewRegionProposalNetwork"
	if generator == nil || head == nil {
		panic(args.TypeError(op, "the generator or the head is nil"))
	}
	return nn.Init(&RegionProposalNetwork{AnchorGenerator: generator, Head: head, BoxCoder: NewBoxCoder([4]float64{1, 1, 1, 1}),
		ProposalMatcher: newMatcher(op, fgIoUThresh, bgIoUThresh, true), FGBGSampler: newSampler(op, batchSizePerImage, positiveFraction),
		PreNMSTopN: preNMSTopN, PostNMSTopN: postNMSTopN, NMSThresh: nmsThresh, ScoreThresh: args.Option(opts).ScoreThresh, MinSize: 1e-3})
}

func newSampler(op string, size int64, fraction float64) *BalancedPositiveNegativeSampler {
	if size < 0 || !(fraction >= 0 && fraction <= 1) {
		panic(args.ValueError(op, "the batch of an image should not be negative, and its positive part from 0 to 1; they are %d and %v", size, fraction))
	}
	return &BalancedPositiveNegativeSampler{size, fraction}
}

func (n TopN) of(training bool) int64 {
	if training {
		return n.Training
	}
	return n.Testing
}

// flat makes of maps (N, A·C, H, W) lists of what each anchor has: (N, H·W·A, C).
func flat(layer gotorch.Tensor, c int64) gotorch.Tensor {
	s := layer.Shape()
	return layer.View([]int64{s[0], -1, c, s[2], s[3]}).Permute([]int64{0, 3, 4, 1, 2}).Reshape([]int64{s[0], -1, c})
}

// joined joins what a head says of several maps: (N·ΣA, C) and (N·ΣA, 4).
func joined(logits, boxes []gotorch.Tensor) (cls, regression gotorch.Tensor) {
	var first, second []gotorch.Tensor
	for i := range logits {
		anchors := boxes[i].Size(1) / 4
		first, second = append(first, flat(logits[i], logits[i].Size(1)/anchors)), append(second, flat(boxes[i], 4))
	}
	return gotorch.Cat(first, gotorch.CatOptions{Dim: 1}).Flatten(gotorch.FlattenOptions{EndDim: new(int64(-2))}),
		gotorch.Cat(second, gotorch.CatOptions{Dim: 1}).Reshape([]int64{-1, 4})
}

// filtered returns the proposals of each image, the most likely first.
func (m *RegionProposalNetwork) filtered(proposals, objectness gotorch.Tensor, sizes [][2]int64, perLevel []int64) []gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) []gotorch.Tensor {
		n := proposals.Size(0)
		objectness = objectness.Detach().Reshape([]int64{n, -1})
		int64s := gotorch.TensorOptions{DType: gotorch.Int64, Device: proposals.Device()}
		var levels, top []gotorch.Tensor
		offset := int64(0)
		for i, part := range objectness.SplitWithSizes(perLevel, gotorch.SplitWithSizesOptions{Dim: 1}) {
			levels = append(levels, gotorch.Full([]int64{perLevel[i]}, i, int64s))
			_, at := part.TopK(min(m.PreNMSTopN.of(m.Training()), perLevel[i]), gotorch.TopKOptions{Dim: new(int64(1))})
			top = append(top, at.AddScalar(offset))
			offset += perLevel[i]
		}
		level := gotorch.Cat(levels).Reshape([]int64{1, -1}).ExpandAs(objectness)
		best := gotorch.Cat(top, gotorch.CatOptions{Dim: 1})
		image := gotorch.Arange(n, int64s).Unsqueeze(1)
		scores := objectness.Index(image, best).Sigmoid()
		level, proposals = level.Index(image, best), proposals.Index(image, best)
		result := make([]gotorch.Tensor, n)
		for i := range result {
			s, l := scores.Select(0, int64(i)), level.Select(0, int64(i))
			b := ops.ClipBoxesToImage(proposals.Select(0, int64(i)), sizes[i][0], sizes[i][1])
			keep := ops.RemoveSmallBoxes(b, m.MinSize)
			b, s, l = b.Index(keep), s.Index(keep), l.Index(keep)
			keep = where(s.GeScalar(m.ScoreThresh))
			b, s, l = b.Index(keep), s.Index(keep), l.Index(keep)
			keep = ops.BatchedNMS(b, s, l, m.NMSThresh)
			result[i] = b.Index(keep.Index(gotorch.SliceTo(m.PostNMSTopN.of(m.Training()))))
		}
		return result
	})
}

// assigned returns of each anchor whether it is positive (1), negative (0) or neither (-1), and the box that it is
// nearest to.
func (m *RegionProposalNetwork) assigned(anchors []gotorch.Tensor, targets []Target) (labels, boxes []gotorch.Tensor) {
	for i, a := range anchors {
		pair := gotorch.Scope(func(*gotorch.ScopeHandle) [2]gotorch.Tensor {
			there := targets[i].Boxes
			if there.Numel() == 0 {
				opt := gotorch.TensorOptions{Device: a.Device()}
				return [2]gotorch.Tensor{gotorch.Zeros(a.Shape()[:1], opt), gotorch.Zeros(a.Shape(), opt)}
			}
			matched := m.ProposalMatcher.Match(similarity(there, a))
			label := matched.GeScalar(0).To(gotorch.Float32)
			label.IndexPut(0.0, matched.EqScalar(BelowLowThreshold))
			label.IndexPut(-1.0, matched.EqScalar(BetweenThresholds))
			return [2]gotorch.Tensor{label, there.Index(matched.ClampMin(0))}
		})
		labels, boxes = append(labels, pair[0]), append(boxes, pair[1])
	}
	return labels, boxes
}

func (m *RegionProposalNetwork) losses(objectness, deltas gotorch.Tensor, labels, regression []gotorch.Tensor) Losses {
	return gotorch.Scope(func(*gotorch.ScopeHandle) Losses {
		positive, negative := m.FGBGSampler.Sample(labels)
		pos, neg := where(gotorch.Cat(positive)), where(gotorch.Cat(negative))
		sampled := gotorch.Cat([]gotorch.Tensor{pos, neg})
		boxes := F.SmoothL1Loss(deltas.Index(pos), gotorch.Cat(regression).Index(pos), F.SmoothL1LossOptions{Beta: 1.0 / 9, Reduction: F.Sum})
		return Losses{
			"loss_objectness":  F.BinaryCrossEntropyWithLogits(objectness.Flatten().Index(sampled), gotorch.Cat(labels).Index(sampled)),
			"loss_rpn_box_reg": boxes.DivScalar(sampled.Numel()),
		}
	})
}

// Forward returns the proposals of each image, (L, 4), of maps that were made of images; while training also its
// losses, "loss_objectness" and "loss_rpn_box_reg", for which it needs targets.
func (m *RegionProposalNetwork) Forward(images ImageList, features ops.FeatureMaps, targets []Target) ([]gotorch.Tensor, Losses) {
	maps := features.Tensors()
	logits, regression := m.Head.Forward(maps)
	anchors := m.AnchorGenerator.Forward(images, maps)
	perLevel := make([]int64, len(logits))
	for i, l := range logits {
		s := l.Shape()
		perLevel[i] = s[1] * s[2] * s[3]
	}
	objectness, deltas := joined(logits, regression)
	n := int64(len(anchors))
	proposals := m.BoxCoder.Decode(deltas.Detach(), anchors).View([]int64{n, -1, 4})
	boxes := m.filtered(proposals, objectness, images.ImageSizes, perLevel)
	if !m.Training() {
		return boxes, nil
	}
	if int64(len(targets)) != n {
		panic(args.ValueError("detection.RegionProposalNetwork", "there should be a target for each of %d images while training, and are %d", n, len(targets)))
	}
	labels, matched := m.assigned(anchors, targets)
	return boxes, m.losses(objectness, deltas, labels, m.BoxCoder.Encode(matched, anchors))
}
