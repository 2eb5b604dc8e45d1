package nn_test

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
)

func ExampleLazyLinear() {
	model := nn.Sequential(
		nn.Conv2d(1, 8, 3, nn.Conv2dOptions{Padding: []int64{1}}), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
		nn.Flatten(), nn.LazyLinear(10), // which finds its inputs itself
	)
	fmt.Println(model.Forward(gotorch.Randn([]int64{2, 1, 28, 28})).Shape())
	fmt.Println(model.Layers[5])
	// Output:
	// [2 10]
	// Linear(in_features=1568, out_features=10, bias=True)
}

func ExampleLSTM() {
	lstm := nn.LSTM(4, 8, nn.LSTMOptions{NumLayers: 2, BatchFirst: true})
	out, h, c := lstm.Forward(gotorch.Randn([]int64{3, 5, 4})) // 3 sequences of 5 steps
	fmt.Println(out.Shape(), h.Shape(), c.Shape())
	// Output: [3 5 8] [2 3 8] [2 3 8]
}

func ExampleTransformerEncoder() {
	layer := nn.TransformerEncoderLayer(16, 4, nn.TransformerEncoderLayerOptions{DimFeedforward: 32, BatchFirst: true})
	encoder := nn.TransformerEncoder(layer, 2)
	out := encoder.Forward(gotorch.Randn([]int64{3, 5, 16}), nn.EncoderOptions{Mask: nn.SquareSubsequentMask(5)})
	fmt.Println(out.Shape(), encoder.NumParameters())
	// Output: [3 5 16] 4448
}

func ExampleCrossEntropyLoss() {
	loss := nn.CrossEntropyLoss(nn.CrossEntropyLossOptions{Reduction: F.Sum})
	scores := gotorch.NewTensor([][]float32{{0, 0}, {0, 0}})
	fmt.Printf("%.4f\n", gotorch.Item[float64](loss.Forward(scores, gotorch.FromSlice([]int64{0, 1}))))
	// Output: 1.3863
}

func ExampleModule_RegisterForwardHook() {
	model := nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
	handle := model.Layers[1].(*nn.ReLUModule).RegisterForwardHook(
		func(m nn.Modular, in, out []gotorch.Tensor) []gotorch.Tensor {
			fmt.Println(m, "returns", out[0].Shape())
			return nil // leave it
		})
	defer handle.Remove()
	model.Forward(gotorch.Randn([]int64{1, 4}))
	// Output: ReLU() returns [1 3]
}

func ExampleClone() {
	model := nn.Linear(2, 1)
	average := nn.Clone(model)
	model.ZeroGrad()
	gotorch.NoGrad(func() { model.Weight.Zero_() })
	fmt.Println(gotorch.Item[bool](average.Weight.EqScalar(0).Any()))
	// Output: false
}
