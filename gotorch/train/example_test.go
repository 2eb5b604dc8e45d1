package train_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/train"
)

// Pictures with a bright upper or lower half, to be told apart.
func halves(n int64) *data.TensorDataset {
	labels := gotorch.Arange(n).To(gotorch.Int64).RemainderScalar(2)
	pictures := gotorch.Rand([]int64{n, 1, 28, 28})
	for i := range n {
		pictures.Select(0, i).Narrow(1, 14*(i%2), 14).AddScalar_(1)
	}
	return data.NewTensorDataset(pictures, labels)
}

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	gotorch.ManualSeed(0)
	trainSet, testSet := halves(256), halves(64)

	model := nn.Sequential(
		nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
		nn.Linear(32*13*13, 10, nn.LinearOptions{NoBias: true}),
	)
	opt := optim.AdamW(model.Parameters(), optim.AdamWOptions{LR: 1e-3})
	loop := train.NewLoop(model, opt, nn.CrossEntropyLoss())
	loop.OnEpoch(train.Validate(testSet, train.Accuracy))
	history, err := loop.Run(ctx, data.NewLoader(trainSet, data.LoaderOptions{BatchSize: 64, Shuffle: true, Workers: 2}), train.Epochs(5))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(history.Losses), "steps, accuracy", history.Last("val_accuracy"))

	path := filepath.Join(dir, "model.safetensors")
	fmt.Println(nn.Save(model, path), nn.Load(model, path))
	// Output:
	// 20 steps, accuracy 1
	// <nil> <nil>
}

func ExampleLoop_OnBackward() {
	model := nn.Linear(2, 2)
	loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
	// Hold the elements of gradients between -1 and 1.
	loop.OnBackward(func(s *train.Step) error {
		for _, p := range s.Model.Parameters() {
			p.Grad().Clamp_(gotorch.ClampOptions{Min: -1.0, Max: 1.0})
		}
		return nil
	})
	set := data.NewTensorDataset(gotorch.Ones([]int64{8, 2}), gotorch.Zeros([]int64{8}, gotorch.TensorOptions{DType: gotorch.Int64}))
	history, err := loop.Run(context.Background(), data.NewLoader(set), train.Steps(4))
	fmt.Println(len(history.Losses), err)
	// Output: 4 <nil>
}

func ExampleEvaluate() {
	model := nn.Linear(1, 2)
	gotorch.NoGrad(func() {
		model.Weight.Copy_(gotorch.FromSlice([]float32{-1, 1}, 2, 1))
		model.Bias.Zero_()
	})
	// Class 1 where the input is positive; the last answer is wrong.
	set := data.NewTensorDataset(gotorch.FromSlice([]float32{-2, -1, 1, 2}, 4, 1), gotorch.FromSlice([]int64{0, 0, 1, 0}))
	values, err := train.Evaluate(context.Background(), model, set, train.Accuracy)
	fmt.Println(values, err)
	// Output: [{accuracy 0.75}] <nil>
}
