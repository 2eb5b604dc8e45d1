package detection

import (
	"maps"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/vision/internal/lean"
	"gotorch.dev/gotorch/vision/ops"
)

// Losses are the parts of what a model is trained by, under torchvision's names.
type Losses map[string]gotorch.Tensor

// Sum returns all of them together, in the order of their names. It panics with a ValueError if there is none.
func (l Losses) Sum() gotorch.Tensor {
	if len(l) == 0 {
		panic(args.ValueError("detection.Losses", "there are no losses: the model is not training"))
	}
	var sum gotorch.Tensor
	for _, name := range slices.Sorted(maps.Keys(l)) {
		if sum.T == nil {
			sum = l[name]
		} else {
			sum = sum.Add(l[name])
		}
	}
	return sum
}

// TwoMLPHead is two linear layers: see [NewTwoMLPHead].
type TwoMLPHead struct {
	nn.Module
	FC6, FC7 nn.Layer
}

// NewTwoMLPHead makes a head of inChannels numbers of a box.
func NewTwoMLPHead(inChannels, representationSize int64) *TwoMLPHead {
	m := &TwoMLPHead{FC6: nn.Linear(inChannels, representationSize)}
	m.FC7 = nn.Linear(representationSize, representationSize)
	return nn.Init(m)
}

// Forward returns what the head makes of boxes: (K, ...) → (K, representationSize).
func (m *TwoMLPHead) Forward(x gotorch.Tensor) gotorch.Tensor {
	return lean.Run(m.KeepsNothing(), func() gotorch.Tensor {
		x := nn.Call(m.FC6, x.Flatten(gotorch.FlattenOptions{StartDim: 1})).ReLU()
		return nn.Call(m.FC7, x).ReLU()
	})
}

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *TwoMLPHead) KeepsNothing() bool { return lean.Forget(m.FC6, m.FC7) }

// FastRCNNConvFCHead is convolutions, and linear layers behind them: see [NewFastRCNNConvFCHead].
type FastRCNNConvFCHead struct{ nn.SequentialModule }

// FastRCNNConvFCHeadOptions are the arguments of [NewFastRCNNConvFCHead] that have defaults.
type FastRCNNConvFCHeadOptions struct {
	NormLayer func(channels int64) nn.Layer // behind each convolution; nil: none
}

// NewFastRCNNConvFCHead makes a head of boxes of a number of channels, a height and a width, with a convolution for
// each number of convLayers, and a linear layer for each of fcLayers.
func NewFastRCNNConvFCHead(inputSize [3]int64, convLayers, fcLayers []int64, opts ...FastRCNNConvFCHeadOptions) *FastRCNNConvFCHead {
	norm := args.Option(opts).NormLayer
	var layers []nn.Layer
	channels := inputSize[0]
	for _, n := range convLayers {
		layers = append(layers, ops.NewConv2dNormActivation(channels, n, ops.ConvNormActivationOptions{NormLayer: norm, NoNormLayer: norm == nil}))
		channels = n
	}
	layers = append(layers, nn.Flatten())
	channels *= inputSize[1] * inputSize[2]
	for _, n := range fcLayers {
		layers = append(layers, nn.Linear(channels, n), nn.ReLU(nn.ReLUOptions{InPlace: true}))
		channels = n
	}
	m := nn.Init(&FastRCNNConvFCHead{nn.SequentialModule{Layers: layers}})
	for _, part := range m.NamedModules() {
		if conv, ok := part.(*nn.Conv2dModule); ok {
			nninit.KaimingNormal_(conv.Weight, nninit.KaimingOptions{FanOut: true, Nonlinearity: nninit.ReLU})
			if conv.Bias.T != nil {
				nninit.Zeros_(conv.Bias)
			}
		}
	}
	return m
}

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *FastRCNNConvFCHead) KeepsNothing() bool { return lean.Forget(m.Layers...) }

// BoxPredictor says of what class boxes are, and how what they are of differs from them.
type BoxPredictor interface {
	nn.Modular
	// Forward makes of boxes (K, features) logits (K, classes) and differences (K, 4·classes).
	Forward(x gotorch.Tensor) (scores, boxes gotorch.Tensor)
}

// FastRCNNPredictor is the last two layers of a model: see [NewFastRCNNPredictor].
type FastRCNNPredictor struct {
	nn.Module
	ClsScore nn.Layer
	BBoxPred nn.Layer `nn:"bbox_pred"`
}

// NewFastRCNNPredictor makes a [BoxPredictor] of linear layers. With it a model learns other classes:
//
//	model.RoIHeads.BoxPredictor = detection.NewFastRCNNPredictor(1024, numClasses)
//	nn.Init(model.RoIHeads)
func NewFastRCNNPredictor(inChannels, numClasses int64) *FastRCNNPredictor {
	if inChannels < 1 || numClasses < 1 {
		panic(args.ValueError("detection.NewFastRCNNPredictor", "channels and classes must be positive, got %d and %d", inChannels, numClasses))
	}
	m := &FastRCNNPredictor{ClsScore: nn.Linear(inChannels, numClasses)}
	m.BBoxPred = nn.Linear(inChannels, 4*numClasses)
	return nn.Init(m)
}

// Forward implements [BoxPredictor].
func (m *FastRCNNPredictor) Forward(x gotorch.Tensor) (scores, boxes gotorch.Tensor) {
	x = x.Flatten(gotorch.FlattenOptions{StartDim: 1})
	return nn.Call(m.ClsScore, x), nn.Call(m.BBoxPred, x)
}

// RoIHeads says what is in the proposals of a [RegionProposalNetwork]: see [NewRoIHeads].
type RoIHeads struct {
	nn.Module
	BoxRoIPool   *ops.MultiScaleRoIAlign `nn:"box_roi_pool"`
	BoxHead      nn.Layer
	BoxPredictor BoxPredictor

	BoxCoder         *BoxCoder
	ProposalMatcher  *Matcher
	FGBGSampler      *BalancedPositiveNegativeSampler
	ScoreThresh      float64 // the least score of what is found
	NMSThresh        float64 // how much two boxes of a class may overlap
	DetectionsPerImg int64   // at most
}

// NewRoIHeads makes heads of their parts. Proposals that overlap something by fgIoUThresh are positive, those below
// bgIoUThresh negative; of both batchSizePerImage are drawn while training, with positives up to positiveFraction.
// bboxRegWeights of nil are 10, 10, 5 and 5.
func NewRoIHeads(pool *ops.MultiScaleRoIAlign, head nn.Layer, predictor BoxPredictor, fgIoUThresh, bgIoUThresh float64, batchSizePerImage int64,
	positiveFraction float64, bboxRegWeights []float64, scoreThresh, nmsThresh float64, detectionsPerImg int64) *RoIHeads {
	const op = "detection.NewRoIHeads"
	if pool == nil || head == nil || predictor == nil {
		panic(args.TypeError(op, "the pool, the head or the predictor is nil"))
	}
	if bboxRegWeights == nil {
		bboxRegWeights = []float64{10, 10, 5, 5}
	}
	if len(bboxRegWeights) != 4 {
		panic(args.ValueError(op, "bboxRegWeights must be four numbers, and are %v", bboxRegWeights))
	}
	if detectionsPerImg < 0 {
		panic(args.ValueError(op, "detectionsPerImg must not be negative, and is %d", detectionsPerImg))
	}
	return nn.Init(&RoIHeads{BoxRoIPool: pool, BoxHead: head, BoxPredictor: predictor, BoxCoder: NewBoxCoder([4]float64(bboxRegWeights)),
		ProposalMatcher: newMatcher(op, fgIoUThresh, bgIoUThresh, false), FGBGSampler: newSampler(op, batchSizePerImage, positiveFraction),
		ScoreThresh: scoreThresh, NMSThresh: nmsThresh, DetectionsPerImg: detectionsPerImg})
}

// sample is what of an image's proposals is trained on.
type sample struct{ proposals, labels, boxes gotorch.Tensor }

// samples draws them, from the proposals and what is there.
func (m *RoIHeads) samples(proposals []gotorch.Tensor, targets []Target) []sample {
	all, labels, matched, there := make([]gotorch.Tensor, len(proposals)), make([]gotorch.Tensor, len(proposals)), make([]gotorch.Tensor, len(proposals)), make([]gotorch.Tensor, len(proposals))
	for i, p := range proposals {
		there[i] = targets[i].Boxes.To(p.DType())
		all[i] = gotorch.Cat([]gotorch.Tensor{p, there[i]})
		int64s := gotorch.TensorOptions{DType: gotorch.Int64, Device: p.Device()}
		if there[i].Numel() == 0 {
			n := []int64{all[i].Size(0)}
			matched[i], labels[i] = gotorch.Zeros(n, int64s), gotorch.Zeros(n, int64s)
			there[i] = gotorch.Zeros([]int64{1, 4}, gotorch.TensorOptions{DType: p.DType(), Device: p.Device()})
			continue
		}
		found := m.ProposalMatcher.Match(similarity(there[i], all[i]))
		matched[i] = found.ClampMin(0)
		labels[i] = targets[i].Labels.Index(matched[i]).To(gotorch.Int64)
		labels[i].IndexPut(0, found.EqScalar(BelowLowThreshold))
		labels[i].IndexPut(-1, found.EqScalar(BetweenThresholds))
	}
	positive, negative := m.FGBGSampler.Sample(labels)
	result := make([]sample, len(proposals))
	for i := range result {
		of := where(positive[i].LogicalOr(negative[i]))
		result[i] = sample{all[i].Index(of), labels[i].Index(of), there[i].Index(matched[i].Index(of))}
	}
	return result
}

// losses compares what was said of proposals with what they are of.
func (m *RoIHeads) losses(logits, regression gotorch.Tensor, samples []sample) Losses {
	return gotorch.Scope(func(*gotorch.ScopeHandle) Losses {
		var labelList, boxes, proposals []gotorch.Tensor
		for _, s := range samples {
			labelList, boxes, proposals = append(labelList, s.labels), append(boxes, s.boxes), append(proposals, s.proposals)
		}
		labels, targets := gotorch.Cat(labelList), gotorch.Cat(m.BoxCoder.Encode(boxes, proposals))
		pos := where(labels.GtScalar(0))
		shape := regression.Shape()
		found := regression.Reshape([]int64{shape[0], shape[1] / 4, 4}).Index(pos, labels.Index(pos))
		ofBoxes := F.SmoothL1Loss(found, targets.Index(pos), F.SmoothL1LossOptions{Beta: 1.0 / 9, Reduction: F.Sum})
		return Losses{"loss_classifier": F.CrossEntropy(logits, labels), "loss_box_reg": ofBoxes.DivScalar(labels.Numel())}
	})
}

// found makes detections of what was said of proposals.
func (m *RoIHeads) found(logits, regression gotorch.Tensor, proposals []gotorch.Tensor, sizes [][2]int64) []Detections {
	return gotorch.Scope(func(*gotorch.ScopeHandle) []Detections {
		perImage := make([]int64, len(proposals))
		for i, p := range proposals {
			perImage[i] = p.Size(0)
		}
		classes := logits.Size(1)
		boxes := m.BoxCoder.Decode(regression, proposals).SplitWithSizes(perImage)
		scores := logits.Softmax(-1).SplitWithSizes(perImage)
		result := make([]Detections, len(proposals))
		for i := range result {
			label := gotorch.Arange(classes, gotorch.TensorOptions{DType: gotorch.Int64, Device: logits.Device()}).View([]int64{1, -1}).ExpandAs(scores[i])
			known := func(t gotorch.Tensor) gotorch.Tensor { return t.Index(gotorch.All, gotorch.SliceFrom(1)) } // without the background
			b := known(ops.ClipBoxesToImage(boxes[i].Reshape([]int64{perImage[i], classes, 4}), sizes[i][0], sizes[i][1])).Reshape([]int64{-1, 4})
			s, l := known(scores[i]).Reshape([]int64{-1}), known(label).Reshape([]int64{-1})
			keep := where(s.GtScalar(m.ScoreThresh))
			b, s, l = b.Index(keep), s.Index(keep), l.Index(keep)
			keep = ops.RemoveSmallBoxes(b, 1e-2)
			b, s, l = b.Index(keep), s.Index(keep), l.Index(keep)
			keep = ops.BatchedNMS(b, s, l, m.NMSThresh).Index(gotorch.SliceTo(m.DetectionsPerImg))
			result[i] = Detections{Boxes: b.Index(keep), Labels: l.Index(keep), Scores: s.Index(keep)}
		}
		return result
	})
}

// Forward returns what is in the proposals of each image, of maps that were made of images of some heights and
// widths; while training it returns its losses instead, "loss_classifier" and "loss_box_reg", for which it needs
// targets. It panics with a TypeError if boxes are not of a floating point dtype or labels not int64, and while training
// with a ValueError for a label of a class that the predictor does not have.
func (m *RoIHeads) Forward(features ops.FeatureMaps, proposals []gotorch.Tensor, sizes [][2]int64, targets []Target) ([]Detections, Losses) {
	const op = "detection.RoIHeads"
	for i, t := range targets {
		if !t.Boxes.DType().IsFloatingPoint() {
			panic(args.TypeError(op, "target boxes must of float type, instead got %s in target %d", t.Boxes.DType(), i))
		}
		if t.Labels.DType() != gotorch.Int64 {
			panic(args.TypeError(op, "target labels must of int64 type, instead got %s in target %d", t.Labels.DType(), i))
		}
	}
	var samples []sample
	if m.Training() {
		if len(targets) != len(proposals) {
			panic(args.ValueError(op, "there should be a target for each of %d images while training, and are %d", len(proposals), len(targets)))
		}
		gotorch.NoGrad(func() {
			samples = gotorch.Scope(func(s *gotorch.ScopeHandle) []sample {
				list := m.samples(proposals, targets)
				for _, of := range list {
					s.Keep(of.proposals, of.labels, of.boxes)
				}
				return list
			})
		})
		proposals = nil
		for _, s := range samples {
			proposals = append(proposals, s.proposals)
		}
	}
	pooled := m.BoxRoIPool.Forward(features, proposals, sizes)
	logits, regression := m.BoxPredictor.Forward(nn.Call(m.BoxHead, pooled))
	if logits.Dim() != 2 || regression.Dim() != 2 || regression.Size(1) != 4*logits.Size(1) {
		panic(args.ValueError(op, "the predictor should return (K, classes) and (K, 4·classes), and returns %v and %v", logits.Shape(), regression.Shape()))
	}
	if m.Training() {
		for i, t := range targets {
			if t.Labels.Numel() == 0 {
				continue
			}
			for _, label := range gotorch.ToSlice[int64](t.Labels) {
				if label >= logits.Size(1) { // one below 0 is never drawn, as in torchvision
					panic(args.ValueError(op, "target %d has the label %d, and the predictor knows the classes below %d only", i, label, logits.Size(1)))
				}
			}
		}
		return nil, m.losses(logits, regression, samples)
	}
	return m.found(logits, regression, proposals, sizes), nil
}
