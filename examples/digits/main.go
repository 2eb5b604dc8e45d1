// Digits trains a small network on handwritten digits, and reads digits with it.
//
//	go run ./examples/digits train      # learns from 4,000 digits, saves build/digits/model.safetensors
//	go run ./examples/digits predict    # loads that, reads 1,000 others, draws digits.png
//
// `make demo` runs both. With the four files of MNIST in a folder, -mnist takes those instead of the
// 5,000 digits that `make` has fetched. Ctrl-C ends the training and keeps what was learnt so far.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/mnist"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
	"gotorch.dev/gotorch/train"
	"gotorch.dev/gotorch/train/plot"
)

const usage = `usage: digits [options] train | predict

`

func main() {
	flags := flag.CommandLine
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	var o options
	flag.StringVar(&o.sample, "sample", ".venv/share/digits/mnist_5k.csv.gz", "`file` with 5,000 digits, which make fetches")
	flag.StringVar(&o.mnist, "mnist", "", "`folder` with the four files of MNIST, instead of the sample")
	flag.StringVar(&o.out, "out", "build/digits", "`folder` for what is written")
	flag.IntVar(&o.epochs, "epochs", 12, "how often to go through the digits")
	flag.IntVar(&o.steps, "steps", 0, "train for so many batches, rather than epochs")
	flag.IntVar(&o.shift, "shift", 2, "by how many pixels, at most, digits are moved when they are shown")
	flag.StringVar(&o.run, "run", "", "`folder` for checkpoints: a training that was stopped or killed goes on from there")
	flag.Uint64Var(&o.seed, "seed", 1, "of everything random")
	flag.Parse()

	var err error
	switch flag.Arg(0) {
	case "train":
		err = o.train()
	case "predict":
		err = o.predict()
	default:
		flags.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "digits:", err)
		os.Exit(1)
	}
}

type options struct {
	sample, mnist, out, run string
	epochs, steps, shift    int
	seed                    uint64
}

// checkpoint is the file that train leaves for predict.
func (o options) checkpoint() string { return filepath.Join(o.out, "model.safetensors") }

func (o options) digits() (trainSet, testSet *mnist.Digits, err error) {
	if o.mnist != "" {
		return mnist.Open(o.mnist)
	}
	all, err := mnist.OpenSample(o.sample)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w\ntype `make setup` in gotorch's folder to fetch the digits, or say where MNIST is with -mnist", err)
	}
	if err != nil {
		return nil, nil, err
	}
	trainSet, testSet = all.Split(5)
	return trainSet, testSet, nil
}

// newNet has 16 and then 32 detectors of small shapes, and a layer that makes digits of what they
// found.
func newNet() *nn.SequentialModule {
	return nn.Sequential(
		nn.Conv2d(1, 16, 5), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), // 28×28 → 12×12
		nn.Conv2d(16, 32, 5), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), // 12×12 → 4×4
		nn.Flatten(), nn.Dropout(0.3),
		nn.Linear(32*4*4, 128), nn.ReLU(), nn.Dropout(0.3),
		nn.Linear(128, 10),
	)
}

func (o options) train() error {
	gotorch.ManualSeed(o.seed)
	trainSet, testSet, err := o.digits()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	net := newNet()
	fmt.Println(net)
	fmt.Printf("%d parameters, %d digits to learn from, %d to test with\n", net.NumParameters(), trainSet.Len(), testSet.Len())

	// Digits that are moved a little each time they are shown teach more than the same ones.
	loader := data.NewLoader(trainSet.Shift(o.shift), data.LoaderOptions{BatchSize: 64, Shuffle: true, Workers: 1})
	steps, limit := o.epochs*loader.Len(), train.Epochs(o.epochs)
	if o.steps > 0 {
		steps, limit = o.steps, train.Steps(o.steps)
	}
	opt := optim.AdamW(net.Parameters(), optim.AdamWOptions{LR: 3e-3})
	loop := train.NewLoop(net, opt, nn.CrossEntropyLoss())
	// The learning rate falls along half a wave of the cosine, to zero at the end.
	loop.Schedule(lrscheduler.CosineAnnealingLR(opt, int64(max(steps, 1))), train.PerStep)
	loop.OnEpoch(train.Validate(testSet, train.Accuracy))
	if o.run != "" {
		loop.Checkpoints(o.run, train.CheckpointsOptions{Steps: 10, Resume: true})
	}
	loop.Checkpoint(o.checkpoint())
	loop.Progress(os.Stderr)

	// A second Ctrl-C ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop)
	defer stop()

	begin := time.Now()
	history, err := loop.Run(ctx, loader, limit)
	if errors.Is(err, context.Canceled) {
		fmt.Printf("\ninterrupted; the model as it is now is in %s\n", o.checkpoint())
		os.Exit(130)
	}
	if err != nil {
		return err
	}
	fmt.Printf("test accuracy %.1f %% after %.1f s\n", 100*history.Last("val_accuracy"), time.Since(begin).Seconds())
	curve := filepath.Join(o.out, "loss.png")
	if err := plot.Losses(curve, history); err != nil {
		return err
	}
	fmt.Printf("saved %s and %s\n", o.checkpoint(), curve)
	return nil
}

func (o options) predict() error {
	_, testSet, err := o.digits()
	if err != nil {
		return err
	}
	net := newNet()
	if err := nn.Load(net, o.checkpoint()); err != nil {
		return fmt.Errorf("%w\n`digits train` makes the model", err)
	}
	net.Eval()

	var answers []int
	begin := time.Now()
	for batch, err := range data.NewLoader(testSet, data.LoaderOptions{BatchSize: 250}).All() {
		if err != nil {
			return err
		}
		gotorch.InferenceMode(func() {
			scores := net.Forward(batch.Input)
			answers = append(answers, gotorch.ToSlice[int](scores.ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(1))}))...)
		})
	}
	var right, wrong []int
	for i, answer := range answers {
		if answer == testSet.Label(i) {
			right = append(right, i)
		} else {
			wrong = append(wrong, i)
		}
	}
	fmt.Printf("read %d digits in %.2f s, %d of them right: %.1f %%\n", len(answers), time.Since(begin).Seconds(),
		len(right), 100*float64(len(right))/float64(len(answers)))

	// Some that were read right, spread over all digits, and below them some that were not.
	var pictures []plot.Picture
	for i := range min(40, len(right)) {
		pictures = append(pictures, picture(testSet, answers, right[i*len(right)/min(40, len(right))]))
	}
	for _, i := range wrong[:min(20, len(wrong))] {
		pictures = append(pictures, picture(testSet, answers, i))
	}
	grid := filepath.Join(o.out, "digits.png")
	if err := plot.Grid(grid, pictures); err != nil {
		return err
	}
	fmt.Printf("saved %s: wrong answers are red\n", grid)
	return nil
}

// picture is a digit with the model's answer below it.
func picture(set *mnist.Digits, answers []int, i int) plot.Picture {
	return plot.Picture{Image: set.Image(i), Caption: strconv.Itoa(answers[i]), Wrong: answers[i] != set.Label(i)}
}
