package nn_test

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
)

// An example for each family of layers, named for its file.

func ExampleLeakyReLU() {
	x := gotorch.FromSlice([]float32{-2, 0, 3})
	fmt.Println(nn.LeakyReLU(nn.LeakyReLUOptions{NegativeSlope: 0.5}).Forward(x))
	fmt.Println(nn.Softmax(0).Forward(x.MulScalar(0)))
	// Output:
	// tensor([-1.,  0.,  3.])
	// tensor([0.3333, 0.3333, 0.3333])
}

func ExampleMultiheadAttention() {
	attention := nn.MultiheadAttention(8, 2, nn.MultiheadAttentionOptions{BatchFirst: true})
	x := gotorch.Randn([]int64{3, 5, 8}) // 3 sequences of 5 tokens
	out, weights := attention.Forward(x, x, x)
	fmt.Println(out.Shape(), weights.Shape()) // the weights are means over the heads
	// Output: [3 5 8] [3 5 5]
}

func ExampleModuleList() {
	layers := nn.ModuleList(nn.Linear(2, 2), nn.ReLU())
	fmt.Println(layers)
	// Output:
	// ModuleList(
	//   (0): Linear(in_features=2, out_features=2, bias=True)
	//   (1): ReLU()
	// )
}

func ExampleConv2d() {
	images := gotorch.Randn([]int64{4, 3, 32, 32})
	conv := nn.Conv2d(3, 8, 5, nn.Conv2dOptions{Stride: []int64{2}, Padding: []int64{2}})
	fmt.Println(conv)
	fmt.Println(conv.Forward(images).Shape())
	// Output:
	// Conv2d(3, 8, kernel_size=(5, 5), stride=(2, 2), padding=(2, 2))
	// [4 8 16 16]
}

func ExampleCosineSimilarity() {
	x := gotorch.NewTensor([][]float32{{1, 0}, {1, 1}})
	y := gotorch.NewTensor([][]float32{{2, 0}, {-1, -1}})
	fmt.Println(nn.CosineSimilarity().Forward(x, y))
	// Output: tensor([ 1.0000, -1.0000])
}

func ExampleDropout() {
	dropout := nn.Dropout(0.5)
	x := gotorch.Ones([]int64{1000})
	dropped := dropout.Forward(x)
	fmt.Println(dropped.Max(), gotorch.Item[float64](dropped.Mean()) < 1.2) // what stays is twice as large
	dropout.Eval()
	fmt.Println(dropout.Forward(x).Equal(x))
	// Output:
	// tensor(2.) true
	// true
}

func ExampleEmbedding() {
	words := nn.Embedding(100, 4, nn.EmbeddingOptions{PaddingIdx: 0})
	out := words.Forward(gotorch.NewTensor([][]int64{{5, 7, 0}}))
	fmt.Println(out.Shape(), out.Index(gotorch.At(0), gotorch.At(2)))
	// Output: [1 3 4] tensor([0., 0., 0., 0.], grad_fn=<SelectBackward0>)
}

func ExampleUnfold() {
	image := gotorch.Arange(16, gotorch.TensorOptions{DType: gotorch.Float32}).Reshape([]int64{1, 1, 4, 4})
	blocks := nn.Unfold(2, nn.UnfoldOptions{Stride: []int64{2}}).Forward(image) // a column for each block
	fmt.Println(blocks.Shape())
	fmt.Println(nn.Fold([]int64{4, 4}, 2, nn.FoldOptions{Stride: []int64{2}}).Forward(blocks).Equal(image))
	// Output:
	// [1 4 4]
	// true
}

func ExampleLinear() {
	layer := nn.Linear(2, 1, nn.LinearOptions{NoBias: true})
	gotorch.NoGrad(func() { layer.Weight.Fill_(0.5) })
	fmt.Println(layer.Forward(gotorch.NewTensor([][]float32{{1, 3}, {0, 2}})).Detach())
	// Output:
	// tensor([[2.],
	//         [1.]])
}

func ExampleLayerNorm() {
	x := gotorch.NewTensor([][]float32{{1, 2, 3}, {10, 20, 30}})
	y := nn.LayerNorm(3).Forward(x).Detach()
	fmt.Println(y)
	// Output:
	// tensor([[-1.2247,  0.0000,  1.2247],
	//         [-1.2247,  0.0000,  1.2247]])
}

func ExampleReflectionPad1d() {
	x := gotorch.NewTensor([][][]float32{{{1, 2, 3}}})
	fmt.Println(nn.ReflectionPad1d(2).Forward(x))
	fmt.Println(nn.ConstantPad1d([]int64{1, 0}, 9).Forward(x))
	// Output:
	// tensor([[[3., 2., 1., 2., 3., 2., 1.]]])
	// tensor([[[9., 1., 2., 3.]]])
}

func ExampleMaxPool2d() {
	x := gotorch.NewTensor([][][]float32{{{1, 2, 3, 4}, {5, 6, 7, 8}}})
	pool := nn.MaxPool2d(2)
	y, indices := pool.ForwardWithIndices(x)
	fmt.Println(y, indices)
	// Output: tensor([[[6., 8.]]]) tensor([[[5, 7]]])
}

func ExampleFlatten() {
	fmt.Println(nn.Flatten().Forward(gotorch.Zeros([]int64{2, 3, 4})).Shape())
	fmt.Println(nn.Unflatten(1, []int64{3, 4}).Forward(gotorch.Zeros([]int64{2, 12})).Shape())
	// Output:
	// [2 12]
	// [2 3 4]
}

func ExamplePixelShuffle() {
	fmt.Println(nn.PixelShuffle(2).Forward(gotorch.Zeros([]int64{1, 12, 4, 4})).Shape())
	// Output: [1 3 8 8]
}

func ExampleUpsample() {
	x := gotorch.NewTensor([][][]float32{{{1, 2}}})
	fmt.Println(nn.Upsample(nn.UpsampleOptions{ScaleFactor: []float64{2}}).Forward(x))
	// Output: tensor([[[1., 1., 2., 2.]]])
}
