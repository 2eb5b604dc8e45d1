package detection_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/vision/models/detection"
)

func small() *detection.FasterRCNN {
	return detection.FasterRCNNMobileNetV3Large320FPN(detection.FasterRCNNOptions{NumClasses: 3, MinSize: []int64{48}, MaxSize: 96})
}

func TestWhatMakesNoSenseIsATypedError(t *testing.T) {
	model := small()
	image := gotorch.Rand([]int64{3, 40, 48})
	one := func(boxes gotorch.Tensor, labels ...int64) func() {
		return func() {
			model.Forward([]gotorch.Tensor{image}, []detection.Target{{Boxes: boxes, Labels: gotorch.FromSlice(labels, int64(len(labels)))}})
		}
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	box := gotorch.NewTensor([][]float32{{1, 2, 20, 30}})
	for part, c := range map[string]struct {
		kind error
		fn   func()
	}{
		"there must be an image":               {gotorch.ValueError, func() { model.Forward(nil, nil) }},
		"training needs them":                  {gotorch.ValueError, func() { model.Forward([]gotorch.Tensor{image}, nil) }},
		"has no boxes or no labels":            {gotorch.TypeError, func() { model.Forward([]gotorch.Tensor{image}, make([]detection.Target, 1)) }},
		"shape [N, 4], got [1 5]":              {gotorch.ValueError, one(gotorch.Zeros([]int64{1, 5}), 1)},
		"has 1 boxes, and labels of shape [2]": {gotorch.ValueError, one(box, 1, 2)},
		"invalid box [5 5 5 9]":                {gotorch.ValueError, one(gotorch.NewTensor([][]float32{{5, 5, 5, 9}}), 1)},
		"invalid box [0 NaN 5 9]":              {gotorch.ValueError, one(gotorch.NewTensor([][]float32{{0, nan, 5, 9}}), 1)},
		"invalid box [0 0 +Inf 9]":             {gotorch.ValueError, one(gotorch.NewTensor([][]float32{{0, 0, inf, 9}}), 1)},
		"must of int64 type": {gotorch.TypeError, func() {
			model.Forward([]gotorch.Tensor{image}, []detection.Target{{Boxes: box, Labels: gotorch.FromSlice([]int32{1})}})
		}},
		"target 0 has the label 3":         {gotorch.ValueError, one(box, 3)},
		"images[1] is no tensor":           {gotorch.TypeError, func() { model.Forward([]gotorch.Tensor{image, {}}, nil) }},
		"the model is training":            {gotorch.RuntimeError, func() { model.Detect([]gotorch.Tensor{image}) }},
		"a list of 3d tensors":             {gotorch.ValueError, func() { model.Transform.Forward([]gotorch.Tensor{gotorch.Zeros([]int64{40, 40})}, nil) }},
		"must have 3 channels and a pixel": {gotorch.ValueError, func() { model.Transform.Forward([]gotorch.Tensor{gotorch.Zeros([]int64{3, 0, 4})}, nil) }},
		"of floating type":                 {gotorch.TypeError, func() { model.Transform.Forward([]gotorch.Tensor{image.To(gotorch.Int64)}, nil) }},
		"has no pixels left":               {gotorch.ValueError, func() { model.Transform.Forward([]gotorch.Tensor{gotorch.Zeros([]int64{3, 1, 400})}, nil) }},
		"num_classes should be None when": {gotorch.ValueError, func() {
			detection.NewFasterRCNN(model.Backbone, 256, detection.FasterRCNNOptions{NumClasses: 2, BoxPredictor: detection.NewFastRCNNPredictor(1024, 2)})
		}},
		"TrainableBackboneLayers has no effect": {gotorch.ValueError, func() {
			detection.FasterRCNNMobileNetV3LargeFPN(detection.FasterRCNNOptions{TrainableBackboneLayers: 2})
		}},
		"should be in the range [0,6], got 7": {gotorch.ValueError, func() {
			detection.FasterRCNNMobileNetV3LargeFPN(detection.FasterRCNNOptions{Trained: true, TrainableBackboneLayers: 7})
		}},
		"RPNPreNMSTopNTest must not be negative": {gotorch.ValueError, func() {
			detection.NewFasterRCNN(model.Backbone, 256, detection.FasterRCNNOptions{NumClasses: 2, RPNPreNMSTopNTest: -1})
		}},
		"there should be 3 maps, as there are":   {gotorch.ValueError, func() { model.RPN.AnchorGenerator.Forward(detection.ImageList{}, nil) }},
		"sizes and ratios must be positive":      {gotorch.ValueError, func() { detection.NewAnchorGenerator([][]float64{{0}}, [][]float64{{1}}) }},
		"No proposal boxes available":            {gotorch.ValueError, func() { model.RPN.ProposalMatcher.Match(gotorch.Zeros([]int64{2, 0})) }},
		"the backbone is nil":                    {gotorch.TypeError, func() { detection.NewFasterRCNN(nil, 256) }},
		"return_layers are not present in model": {gotorch.ValueError, func() { detection.NewIntermediateLayerGetter(nn.Sequential(nn.ReLU()), map[string]string{"7": "0"}) }},
		"four numbers, and are [1]": {gotorch.ValueError, func() {
			detection.NewFasterRCNN(model.Backbone, 256, detection.FasterRCNNOptions{NumClasses: 2, BBoxRegWeights: []float64{1}})
		}},
	} {
		err := gotorch.Try0(c.fn)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v", part, err)
		}
	}
}

// Weights of NaN find nothing, rather than anything else.
func TestAModelOfNaNFindsNothing(t *testing.T) {
	model := small()
	model.Eval()
	gotorch.NoGrad(func() {
		for _, p := range model.Parameters() {
			p.Fill_(math.NaN())
		}
	})
	for _, f := range model.Detect([]gotorch.Tensor{gotorch.Rand([]int64{3, 40, 48})}) {
		if f.Boxes.Size(0) != 0 {
			t.Errorf("found %v", f.Boxes)
		}
	}
}
