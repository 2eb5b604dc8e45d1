package detection_test

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/vision/models/detection"
)

// A step in training a model that looks for two classes besides the background.
func Example() {
	model := detection.FasterRCNNMobileNetV3Large320FPN(detection.FasterRCNNOptions{NumClasses: 3, MinSize: []int64{64}})
	opt := optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.005, Momentum: 0.9})
	images := []gotorch.Tensor{gotorch.Rand([]int64{3, 64, 80}), gotorch.Rand([]int64{3, 72, 64})}
	targets := []detection.Target{
		{Boxes: gotorch.NewTensor([][]float32{{4, 5, 40, 50}}), Labels: gotorch.FromSlice([]int64{1})},
		{Boxes: gotorch.Zeros([]int64{0, 4}), Labels: gotorch.FromSlice([]int64{})}, // nothing is in the second
	}
	losses, _ := model.Forward(images, targets)
	losses.Sum().Backward()
	opt.Step()

	model.Eval()
	found := model.Detect(images)
	fmt.Println(len(losses), "losses,", len(found), "images,", found[0].Boxes.Size(1), "numbers of a box")
	// Output: 4 losses, 2 images, 4 numbers of a box
}

// Weights that were learned for other classes, with another predictor in the place of the last one.
func ExampleNewFastRCNNPredictor() {
	model := detection.FasterRCNNMobileNetV3LargeFPN(detection.FasterRCNNOptions{Trained: true})
	// err := nn.Load(model, "fasterrcnn_mobilenet_v3_large_fpn.pth")
	model.RoIHeads.BoxPredictor = detection.NewFastRCNNPredictor(1024, 2)
	nn.Init(model.RoIHeads)
	learns := 0
	for _, p := range model.Parameters() {
		if p.RequiresGrad() {
			learns++
		}
	}
	fmt.Println(learns, "of", len(model.Parameters()), "parameters learn")
	// Output: 70 of 100 parameters learn
}
