// Transfer goes on from weights that Python has trained: a network that knows the digits 0 to 4 learns 5 to 9 from
// a hundred of them, by a new last layer; the layers before stay as they are.
//
//	.venv/bin/python examples/transfer/pretrain.py build/transfer/digits-0-4
//	go run ./examples/transfer -from build/transfer/digits-0-4
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/mnist"
	"gotorch.dev/gotorch/hub"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/train"
	"gotorch.dev/gotorch/train/plot"
)

// Net is the network of pretrain.py. Its fields have the names that its state dict has.
type Net struct {
	nn.Module
	Features   *nn.SequentialModule
	Classifier *nn.LinearModule
}

func newNet(channels, classes int64) *Net {
	return nn.Init(&Net{
		Features: nn.Sequential(
			nn.Conv2d(1, channels, 5), nn.ReLU(), nn.MaxPool2d(2),
			nn.Conv2d(channels, 2*channels, 5), nn.ReLU(), nn.MaxPool2d(2),
		),
		Classifier: nn.Linear(2*channels*4*4, classes),
	})
}

// Forward returns the logits of images: (N, 1, 28, 28) → (N, classes).
func (n *Net) Forward(images gotorch.Tensor) gotorch.Tensor {
	return nn.Call(n.Classifier, nn.Call(n.Features, images).Flatten(gotorch.FlattenOptions{StartDim: 1}))
}

func main() {
	from := flag.String("from", "build/transfer/digits-0-4", "`folder` that pretrain.py has written")
	sample := flag.String("sample", ".venv/share/digits/mnist_5k.csv.gz", "`file` with 5,000 digits, which make fetches")
	out := flag.String("out", "build/transfer", "`folder` for what is written")
	shown := flag.Int("shown", 100, "how many digits to learn from")
	flag.Parse()
	if err := run(*from, *sample, *out, *shown); err != nil {
		fmt.Fprintln(os.Stderr, "transfer:", err)
		os.Exit(1)
	}
}

func run(from, sample, out string, shown int) error {
	trainSet, testSet, err := digits(sample, shown)
	if err != nil {
		return err
	}
	folder, err := hub.Open(from)
	if err != nil {
		return fmt.Errorf("%w\nexamples/transfer/pretrain.py writes the folder", err)
	}
	defer folder.Close()
	channels, err := hub.Get[int64](folder.Config(), "channels")
	if err != nil {
		return err
	}

	gotorch.ManualSeed(1)
	net := newNet(channels, 5)
	report, err := hub.LoadInto(net, folder)
	if err != nil {
		return err
	}
	fmt.Println(report)
	net.Classifier.ResetParameters() // it knows 0 to 4
	net.Features.RequiresGrad_(false)
	history, err := learn(net, trainSet, testSet)
	if err != nil {
		return err
	}
	fmt.Printf("with the weights from Python: %.1f %% of digits 5 to 9 right\n", 100*history.Last("val_accuracy"))

	// What a last layer makes of layers that have learnt nothing.
	random := newNet(channels, 5)
	random.Features.RequiresGrad_(false)
	without, err := learn(random, trainSet, testSet)
	if err != nil {
		return err
	}
	fmt.Printf("with random ones:             %.1f %%\n", 100*without.Last("val_accuracy"))

	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if err := plot.Losses(filepath.Join(out, "loss.png"), history); err != nil {
		return err
	}
	config := map[string]any{"model_type": "digits-cnn", "channels": channels, "num_classes": 5}
	return hub.SaveModel(filepath.Join(out, "digits-5-9"), net, hub.SaveOptions{Config: config})
}

// digits returns some of the digits 5 to 9 to learn from, and 1,000 others to test with, as classes 0 to 4.
func digits(sample string, shown int) (trainSet, testSet *data.TensorDataset, err error) {
	all, err := mnist.OpenSample(sample)
	if err != nil {
		return nil, nil, err
	}
	var indices []int
	for i := range all.Len() {
		if all.Label(i) >= 5 {
			indices = append(indices, i)
		}
	}
	const tested = 1000
	if shown < 1 || shown+tested > len(indices) {
		return nil, nil, fmt.Errorf("there are %d digits from 5 to 9, which do not make %d to learn from and %d to test with", len(indices), shown, tested)
	}
	rand.New(rand.NewPCG(1, 0)).Shuffle(len(indices), func(i, k int) { indices[i], indices[k] = indices[k], indices[i] })
	set := func(indices []int) (*data.TensorDataset, error) {
		batch, err := all.Batch(indices, nil)
		if err != nil {
			return nil, err
		}
		return data.NewTensorDataset(batch.Input, batch.Target.SubScalar(5)), nil
	}
	if trainSet, err = set(indices[:shown]); err != nil {
		return nil, nil, err
	}
	testSet, err = set(indices[shown : shown+tested])
	return trainSet, testSet, err
}

// learn trains what is not frozen of a network.
func learn(net *Net, trainSet, testSet *data.TensorDataset) (*train.History, error) {
	var learning []gotorch.Tensor
	for _, p := range net.Parameters() {
		if p.RequiresGrad() {
			learning = append(learning, p)
		}
	}
	loop := train.NewLoop(net, optim.AdamW(learning, optim.AdamWOptions{LR: 3e-3}), nn.CrossEntropyLoss())
	loop.OnEpoch(train.Validate(testSet, train.Accuracy))
	loader := data.NewLoader(trainSet, data.LoaderOptions{BatchSize: 20, Shuffle: true})
	return loop.Run(context.Background(), loader, train.Epochs(15))
}
