// Dcgan has two networks learn from each other (DCGAN): one draws handwritten digits out of noise, the other one tells
// them from real ones.
//
//	go run ./examples/dcgan    # learns from 4,000 digits, then draws samples.png and progress.png
//
// The generator never sees a digit. It only hears, through gradients, what would have made its drawings look more real to
// the discriminator, which sees both.
//
// How good the drawings are is said by a third network, which has learnt to read digits: its inception score is 1 if it
// cannot read the drawings or all are the same digit, and 10 if it is sure of each and all ten are there as often.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/mnist"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/swautils"
	"gotorch.dev/gotorch/train"
	"gotorch.dev/gotorch/train/plot"
	"gotorch.dev/gotorch/vision/imageio"
)

type options struct {
	sample, out   string
	seed          uint64
	digits        int // to learn from; 0 for all
	width, noise  int64
	batch, epochs int
	lr            float64
}

func main() {
	var o options
	flag.StringVar(&o.sample, "sample", ".venv/share/digits/mnist_5k.csv.gz", "`file` with 5,000 digits, which make fetches")
	flag.StringVar(&o.out, "out", "build/dcgan", "`folder` for what is written")
	flag.Uint64Var(&o.seed, "seed", 1, "of everything random")
	flag.IntVar(&o.digits, "digits", 0, "how many digits to learn from; 0 for all")
	flag.Int64Var(&o.width, "width", 32, "channels of both networks at 14×14 pixels")
	flag.Int64Var(&o.noise, "noise", 64, "how many random numbers a drawing is made of")
	flag.IntVar(&o.batch, "batch", 32, "digits in a step")
	flag.IntVar(&o.epochs, "epochs", 16, "how often to go through the digits")
	flag.Float64Var(&o.lr, "lr", 2e-3, "learning rate of both networks")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if _, err := o.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dcgan:", err)
		os.Exit(1)
	}
}

// The networks -------------------------------------------------------------------------------------

// newGenerator makes pictures from −1 to 1 of noise: (N, noise, 1, 1) → (N, 1, 28, 28). A transposed convolution of
// stride 2 makes pictures twice as large. For photographs of 64×64 there is models.NewDCGANGenerator.
func newGenerator(noise, width int64) *nn.SequentialModule {
	up := func(in, out, kernel, stride, padding int64) nn.Layer {
		return nn.ConvTranspose2d(in, out, kernel, nn.ConvTranspose2dOptions{Stride: []int64{stride}, Padding: []int64{padding}, NoBias: true})
	}
	m := nn.Sequential(
		up(noise, 2*width, 7, 1, 0), nn.BatchNorm2d(2*width), nn.ReLU(), // 1×1 → 7×7
		up(2*width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(), // → 14×14
		up(width, 1, 4, 2, 1), nn.Tanh(), // → 28×28
	)
	m.Apply(weights)
	return m
}

// newDiscriminator makes one number of a picture, the greater the more it looks like a real one: (N, 1, 28, 28) →
// (N, 1, 1, 1).
func newDiscriminator(width int64) *nn.SequentialModule {
	down := func(in, out, kernel, stride, padding int64) nn.Layer {
		return nn.Conv2d(in, out, kernel, nn.Conv2dOptions{Stride: []int64{stride}, Padding: []int64{padding}, NoBias: true})
	}
	leaky := func() nn.Layer { return nn.LeakyReLU(nn.LeakyReLUOptions{NegativeSlope: 0.2}) }
	m := nn.Sequential(
		down(1, width, 4, 2, 1), leaky(), // 28×28 → 14×14
		down(width, 2*width, 4, 2, 1), nn.BatchNorm2d(2*width), leaky(), // → 7×7
		down(2*width, 1, 7, 1, 0), // → 1×1
	)
	m.Apply(weights)
	return m
}

// weights gives a layer the small weights that DCGANs begin with.
func weights(m nn.Modular) {
	switch m := m.(type) {
	case *nn.Conv2dModule:
		nninit.Normal_(m.Weight, nninit.NormalOptions{Std: 0.02})
	case *nn.ConvTranspose2dModule:
		nninit.Normal_(m.Weight, nninit.NormalOptions{Std: 0.02})
	case *nn.BatchNorm2dModule:
		nninit.Normal_(m.Weight, nninit.NormalOptions{Mean: 1, Std: 0.02})
	}
}

// newReader makes a network that reads digits, and has it learn to.
func newReader(ctx context.Context, set data.Dataset[data.Pair], epochs int) (*nn.SequentialModule, error) {
	reader := nn.Sequential(
		nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2), // 28×28 → 4×4
		nn.Flatten(), nn.Linear(32*4*4, 10))
	loop := train.NewLoop(reader, optim.Adam(reader.Parameters(), optim.AdamOptions{LR: 2e-3}), nn.CrossEntropyLoss())
	_, err := loop.Run(ctx, data.NewLoader(set, data.LoaderOptions{BatchSize: 32, Shuffle: true}), train.Epochs(epochs))
	return reader, err
}

// score is the inception score of scores for each digit, (N, 10): how much, on average, a picture says about which
// digit it is, as the exponential of what information theory calls mutual information.
func score(scores gotorch.Tensor) float64 {
	p := scores.Softmax(1)
	all := p.MeanDim([]int64{0})
	differs := p.Mul(scores.LogSoftmax(1).Sub(all.Log())).SumDim([]int64{1}) // from what all are, in nats
	return math.Exp(gotorch.Item[float64](differs.Mean()))
}

// --------------------------------------------------------------------------------------------------

// picture is the i-th of pictures from −1 to 1.
func picture(pictures gotorch.Tensor, i int) plot.Picture {
	gray := pictures.Select(0, int64(i)).AddScalar(1).MulScalar(127.5).Round()
	return plot.Picture{Image: imageio.ToImage(gray.To(gotorch.Uint8))}
}

// pixels are inputs of package mnist as pictures from −1, black, to 1, white.
func pixels(inputs gotorch.Tensor) gotorch.Tensor {
	return inputs.MulScalar(2 * mnist.Std).AddScalar(2*mnist.Mean - 1)
}

// inputs is the inverse of pixels.
func inputs(pixels gotorch.Tensor) gotorch.Tensor {
	return pixels.AddScalar(1 - 2*mnist.Mean).DivScalar(2 * mnist.Std)
}

// result is what a run has come to: inception scores.
type result struct {
	before, after float64 // of what the generator draws
	people        float64 // of digits that people wrote
}

func (o options) run(ctx context.Context, w io.Writer) (r result, err error) {
	if min(o.width, o.noise) < 1 || min(o.batch-1, o.epochs) < 1 || o.digits < 0 || !(o.lr > 0) {
		return r, errors.New("width, noise, epochs and lr must be positive, and a batch at least 2 digits")
	}
	gotorch.ManualSeed(o.seed)
	all, err := mnist.OpenSample(o.sample)
	if errors.Is(err, os.ErrNotExist) {
		return r, fmt.Errorf("%w\ntype `make setup` in gotorch's folder to fetch the digits", err)
	}
	if err != nil {
		return r, err
	}
	trainSet, testSet := all.Split(5)
	if o.digits > 0 {
		// The digits of the file are in order: every n-th one is some of each.
		_, trainSet = trainSet.Split(max(1, trainSet.Len()/o.digits))
	}
	reader, err := newReader(ctx, trainSet, 3)
	if err != nil {
		return r, err
	}

	generator, discriminator := newGenerator(o.noise, o.width), newDiscriminator(o.width)
	fmt.Fprintf(w, "generator %d parameters, discriminator %d, %d digits to learn from\n",
		generator.NumParameters(), discriminator.NumParameters(), trainSet.Len())
	loader := data.NewLoader[data.Pair](trainSet, data.LoaderOptions{BatchSize: o.batch, Shuffle: true, DropLast: true, Workers: 1})
	total := float64(o.epochs * loader.Len())
	// The two push each other to and fro. The mean of the last generators draws better than the very last one.
	average := swautils.AveragedModel(generator, swautils.AveragedModelOptions{
		MultiAvgFn: swautils.GetEMAMultiAvgFn(swautils.EMAOptions{Decay: min(0.99, max(0, 1-20/total))}), UseBuffers: true})
	noise := func(n int) gotorch.Tensor { return gotorch.Randn([]int64{int64(n), o.noise, 1, 1}) }
	// draw returns a drawing for each of some noise. In evaluation mode a drawing does not depend on those beside it.
	draw := func(of gotorch.Tensor) (drawn gotorch.Tensor) {
		average.Eval()
		gotorch.NoGrad(func() { drawn = average.Forward(of) })
		return drawn
	}
	many := noise(1000)
	measure := func(pictures gotorch.Tensor) (value float64) {
		gotorch.NoGrad(func() { value = score(reader.Forward(inputs(pictures))) })
		return value
	}
	r.before = measure(draw(many))
	test, err := testSet.Batch(slices.Collect(func(yield func(int) bool) {
		for i := 0; i < testSet.Len() && yield(i); i++ {
		}
	}), nil)
	if err != nil {
		return r, err
	}
	r.people = measure(pixels(test.Input))

	// Adam with β₁ of 0.5: what helped against the other network a while ago may be wrong by now.
	optG := optim.Adam(generator.Parameters(), optim.AdamOptions{LR: o.lr, Betas: &[2]float64{0.5, 0.999}})
	optD := optim.Adam(discriminator.Parameters(), optim.AdamOptions{LR: o.lr, Betas: &[2]float64{0.5, 0.999}})
	loop := train.NewStepLoop(func(s *train.StepOf[data.Pair]) error {
		written := pixels(s.Batch.Input)
		fake := generator.Forward(noise(s.Batch.Len()))

		// The discriminator is to give real digits great numbers and drawings small ones. Softplus is log(1 + eˣ): this is
		// the cross entropy of a probability, sigmoid(x). Detach: the generator does not learn from it.
		optD.ZeroGrad()
		lossD := F.Softplus(discriminator.Forward(written).Neg()).Mean().Add(F.Softplus(discriminator.Forward(fake.Detach())).Mean())
		lossD.Backward()
		optD.Step()

		// The generator is to have its drawings taken for real ones. What gradients the discriminator gets on the way are
		// thrown away by its next ZeroGrad.
		optG.ZeroGrad()
		lossG := F.Softplus(discriminator.Forward(fake).Neg()).Mean()
		lossG.Backward()
		optG.Step()

		s.Record("loss", lossD) // what Progress shows
		s.Record("loss_g", lossG)
		return nil
	})
	for name, part := range map[string]nn.Modular{"generator": generator, "discriminator": discriminator} {
		loop.Add(name, part) // in training mode while the run goes on
	}
	train.Average(loop, generator, average, train.PerStep)
	var progress []plot.Picture
	loop.OnEpoch(func(e *train.Epoch) error {
		r.after = measure(draw(many))
		e.Record("score", r.after)
		// The same ten drawings, eight times on the way.
		if e.Number*8/o.epochs > (e.Number-1)*8/o.epochs {
			drawn := draw(many.Narrow(0, 0, 10))
			for i := range 10 {
				progress = append(progress, picture(drawn, i))
			}
		}
		return nil
	})
	loop.Progress(os.Stderr)
	if _, err := loop.Run(ctx, loader, train.Epochs(o.epochs)); err != nil {
		return r, err
	}
	fmt.Fprintf(w, "inception score: %.2f before, %.2f now; %.2f of digits that people wrote\n", r.before, r.after, r.people)

	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return r, err
	}
	var sheet []plot.Picture
	drawn := draw(many.Narrow(0, 10, 80))
	for i := range 80 {
		sheet = append(sheet, picture(drawn, i))
	}
	samplesFile, progressFile := filepath.Join(o.out, "samples.png"), filepath.Join(o.out, "progress.png")
	err = errors.Join(plot.Grid(samplesFile, sheet, plot.GridOptions{Scale: 2}), plot.Grid(progressFile, progress, plot.GridOptions{Scale: 2}))
	if err != nil {
		return r, err
	}
	fmt.Fprintf(w, "saved %s and %s\n", samplesFile, progressFile)
	return r, nil
}
