// Transfer goes on from weights that Python has trained: a network that knows the digits 0 to 4 learns 5 to 9 from
// a few of them, by a new last layer; the layers before stay as they are. Beside it another of the same form learns from
// nothing.
//
//	.venv/bin/python examples/transfer/pretrain.py build/transfer/digits-0-4
//	go run ./examples/transfer
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
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

type options struct {
	from, sample, out string
	seeds             int
}

func main() {
	var o options
	flag.StringVar(&o.from, "from", "build/transfer/digits-0-4", "`folder` that pretrain.py has written")
	flag.StringVar(&o.sample, "sample", ".venv/share/digits/mnist_5k.csv.gz", "`file` with 5,000 digits, which make fetches")
	flag.StringVar(&o.out, "out", "build/transfer", "`folder` for what is written")
	flag.IntVar(&o.seeds, "seeds", 5, "how often it is tried, each time with other digits")
	flag.Parse()
	if err := o.run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "transfer:", err)
		os.Exit(1)
	}
}

// counts are how many digits are shown.
var counts = []int{10, 20, 40, 80, 160}

func (o options) run(w io.Writer) error {
	if o.seeds < 2 {
		return errors.New("one try says nothing of how far tries are apart: -seeds must be 2 or more")
	}
	all, err := mnist.OpenSample(o.sample)
	if err != nil {
		return err
	}
	folder, err := hub.Open(o.from)
	if err != nil {
		return fmt.Errorf("%w\nexamples/transfer/pretrain.py writes the folder", err)
	}
	defer folder.Close()
	channels, err := hub.Get[int64](folder.Config(), "channels")
	if err != nil {
		return err
	}
	net := newNet(channels, classes)
	report, err := hub.LoadInto(net, folder)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, report)
	net.Features.RequiresGrad_(false)

	var with, without, gained series
	fmt.Fprintf(w, "%6s  %12s  %12s  %s\n", "shown", "transferred", "from nothing", "gained")
	for _, shown := range counts {
		var a, b, gain []float64
		for seed := range uint64(o.seeds) {
			gotorch.ManualSeed(seed)
			trainSet, testSet, err := digits(all, shown, seed)
			if err != nil {
				return err
			}
			net.Classifier.ResetParameters() // it knows 0 to 4, or the digits of another try
			transferred, err := learn(net, trainSet, testSet)
			if err != nil {
				return err
			}
			alone, err := learn(newNet(channels, classes), trainSet, testSet)
			if err != nil {
				return err
			}
			a, b, gain = append(a, transferred), append(b, alone), append(gain, transferred-alone)
		}
		with.add(shown, a)
		without.add(shown, b)
		gained.add(shown, gain)
		fmt.Fprintf(w, "%6d  %10.1f %%  %10.1f %%  %+.1f ± %.1f\n", shown, with.last(), without.last(), gained.last(), standardError(gain))
	}

	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	err = plot.Lines(filepath.Join(o.out, "accuracy.png"), []plot.Series{
		{Name: "transferred", X: with.x, Y: with.y},
		{Name: "from nothing", X: without.x, Y: without.y, Dashed: true},
	}, plot.LinesOptions{XLabel: "digits shown", YLabel: "% right", LogX: true})
	if err != nil {
		return err
	}
	config := map[string]any{"model_type": "digits-cnn", "channels": channels, "num_classes": classes}
	return hub.SaveModel(filepath.Join(o.out, "digits-5-9"), net, hub.SaveOptions{Config: config})
}

// series is means of tries, in per cent, by how many digits were shown.
type series struct{ x, y []float64 }

func (s *series) add(shown int, tries []float64) {
	s.x, s.y = append(s.x, float64(shown)), append(s.y, mean(tries))
}

func (s *series) last() float64 { return s.y[len(s.y)-1] }

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}

// standardError is how far the mean of tries may well be off.
func standardError(values []float64) float64 {
	m, squares := mean(values), 0.0
	for _, v := range values {
		squares += (v - m) * (v - m)
	}
	n := float64(len(values))
	return math.Sqrt(squares / (n - 1) / n)
}

const (
	classes = 5
	tested  = 1000
)

// digits returns some of the digits 5 to 9 to learn from, and 1,000 others to test with, as classes 0 to 4.
func digits(all *mnist.Digits, shown int, seed uint64) (trainSet, testSet *data.TensorDataset, err error) {
	var indices []int
	for i := range all.Len() {
		if all.Label(i) >= 5 {
			indices = append(indices, i)
		}
	}
	if shown+tested > len(indices) {
		return nil, nil, fmt.Errorf("there are %d digits from 5 to 9, which do not make %d to learn from and %d to test with", len(indices), shown, tested)
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(indices), func(i, k int) { indices[i], indices[k] = indices[k], indices[i] })
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
	testSet, err = set(indices[len(indices)-tested:])
	return trainSet, testSet, err
}

// learn trains what is not frozen of a network, for as many steps however few digits there are, and returns how many
// per cent of the others it gets right.
func learn(net *Net, trainSet, testSet *data.TensorDataset) (float64, error) {
	var learning []gotorch.Tensor
	for _, p := range net.Parameters() {
		if p.RequiresGrad() {
			learning = append(learning, p)
		}
	}
	const steps = 100
	loop := train.NewLoop(net, optim.AdamW(learning, optim.AdamWOptions{LR: 3e-3}), nn.CrossEntropyLoss())
	loader := data.NewLoader(trainSet, data.LoaderOptions{BatchSize: 20, Shuffle: true})
	if _, err := loop.Run(context.Background(), loader, train.Steps(steps)); err != nil {
		return 0, err
	}
	values, err := train.Evaluate(context.Background(), net, testSet, train.Accuracy)
	if err != nil {
		return 0, err
	}
	return 100 * values[0].Value, nil
}
