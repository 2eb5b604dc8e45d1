// Vae learns what makes up a handwritten digit: a variational autoencoder writes each down in a few numbers, and draws it
// again from these.
//
//	go run ./examples/vae    # learns from 4,000 digits, then draws digits.png, morph.png and samples.png
//
// The encoder does not say numbers but, for each, a normal distribution. It pays for how far these are from the standard
// one, so that the decoder makes digits of numbers drawn from that one, too: new digits.
//
// What it comes to is the evidence lower bound, in nats for a digit: how well it draws them again, less what it pays. No
// less than that is the logarithm of how likely the model would have drawn the digit by itself.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/mnist"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
	"gotorch.dev/gotorch/train"
	"gotorch.dev/gotorch/train/plot"
	"gotorch.dev/gotorch/vision/imageio"
)

type options struct {
	sample, out    string
	seed           uint64
	digits         int // to learn from; 0 for all
	hidden, latent int64
	batch, epochs  int
}

func main() {
	var o options
	flag.StringVar(&o.sample, "sample", ".venv/share/digits/mnist_5k.csv.gz", "`file` with 5,000 digits, which make fetches")
	flag.StringVar(&o.out, "out", "build/vae", "`folder` for what is written")
	flag.Uint64Var(&o.seed, "seed", 1, "of everything random")
	flag.IntVar(&o.digits, "digits", 0, "how many digits to learn from; 0 for all")
	flag.Int64Var(&o.hidden, "hidden", 512, "neurons between pixels and numbers")
	flag.Int64Var(&o.latent, "latent", 12, "how many numbers a digit is written down in")
	flag.IntVar(&o.batch, "batch", 64, "digits in a step")
	flag.IntVar(&o.epochs, "epochs", 60, "how often to go through the digits")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if _, err := o.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "vae:", err)
		os.Exit(1)
	}
}

// The model ----------------------------------------------------------------------------------------

// VAE is a variational autoencoder of pictures with 784 pixels from 0, black, to 1, white.
type VAE struct {
	nn.Module
	Encoder, Decoder *nn.SequentialModule

	latent int64
}

func newVAE(hidden, latent int64) *VAE {
	return nn.Init(&VAE{
		Encoder: nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(784, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(),
			nn.Linear(hidden, 2*latent)),
		Decoder: nn.Sequential(nn.Linear(latent, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(),
			nn.Linear(hidden, 784), nn.Unflatten(1, []int64{1, 28, 28})),
		latent: latent,
	})
}

// encode returns mean and logarithm of the variance of the numbers of pictures: (N, 1, 28, 28) → (N, latent) each.
func (m *VAE) encode(pictures gotorch.Tensor) (mean, logVar gotorch.Tensor) {
	halves := m.Encoder.Forward(pictures).Chunk(2, gotorch.ChunkOptions{Dim: 1})
	return halves[0], halves[1]
}

// decode returns pictures of numbers: (N, latent) → (N, 1, 28, 28).
func (m *VAE) decode(numbers gotorch.Tensor) gotorch.Tensor {
	return m.Decoder.Forward(numbers).Sigmoid()
}

// bound returns the evidence lower bound of pictures, (N), in nats: see the two parts.
func (m *VAE) bound(pictures gotorch.Tensor) gotorch.Tensor {
	mean, logVar := m.encode(pictures)
	// Numbers of these distributions, in a form that has gradients: what is random does not depend on the model.
	numbers := mean.Add(gotorch.RandnLike(mean).Mul(logVar.MulScalar(0.5).Exp()))
	return drawn(m.Decoder.Forward(numbers), pictures).Sub(paid(mean, logVar))
}

// drawn is the logarithm of how likely pixels of such logits are white where the picture's are: (N, 1, 28, 28) twice → (N).
func drawn(logits, pictures gotorch.Tensor) gotorch.Tensor {
	each := F.BinaryCrossEntropyWithLogits(logits, pictures, F.BinaryCrossEntropyWithLogitsOptions{Reduction: F.None})
	return each.SumDim([]int64{1, 2, 3}).Neg()
}

// paid is the Kullback-Leibler divergence of normal distributions from standard ones, (N, latent) twice → (N):
// ½ Σ (mean² + variance − 1 − log variance).
func paid(mean, logVar gotorch.Tensor) gotorch.Tensor {
	return mean.Square().Add(logVar.Exp()).Sub(logVar).SubScalar(1).SumDim([]int64{1}).MulScalar(0.5)
}

// --------------------------------------------------------------------------------------------------

// pixels returns the pictures of a set from 0, black, to 1, white, and their digits: (N, 1, 28, 28), (N).
func pixels(set *mnist.Digits) (data.Pair, error) {
	indices := make([]int, set.Len())
	for i := range indices {
		indices[i] = i
	}
	all, err := set.Batch(indices, nil)
	if err != nil {
		return all, err
	}
	all.Input = all.Input.MulScalar(mnist.Std).AddScalar(mnist.Mean).Clamp(gotorch.ClampOptions{Min: 0, Max: 1})
	return all, nil
}

// grid draws pictures from 0 to 1, (N, 1, 28, 28), in rows of ten.
func grid(path string, pictures gotorch.Tensor) error {
	all := make([]plot.Picture, pictures.Size(0))
	for i := range all {
		all[i].Image = imageio.ToImage(pictures.Select(0, int64(i)).MulScalar(255).Round().To(gotorch.Uint8))
	}
	return plot.Grid(path, all, plot.GridOptions{Scale: 2})
}

// firsts returns the place of the first of each digit from 0 to 9, after skipping some.
func firsts(digits gotorch.Tensor, skip int) []int64 {
	at, left := make([]int64, 10), make([]int, 10)
	for i := range left {
		at[i], left[i] = -1, skip
	}
	for i, digit := range gotorch.ToSlice[int](digits) {
		if at[digit] < 0 {
			if left[digit] == 0 {
				at[digit] = int64(i)
			}
			left[digit]--
		}
	}
	return at
}

// result is what a run has come to, in nats for a digit that it has not learnt from.
type result struct {
	bound, paid float64
	mean        float64 // what a model comes to that only knows how white each pixel is on average
}

func (o options) run(ctx context.Context, w io.Writer) (r result, err error) {
	if min(o.hidden, o.latent) < 1 || min(o.batch, o.epochs) < 1 || o.digits < 0 {
		return r, errors.New("hidden, latent, batch and epochs must be positive")
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
	learn, err := pixels(trainSet)
	if err != nil {
		return r, err
	}
	test, err := pixels(testSet)
	if err != nil {
		return r, err
	}
	average := learn.Input.MeanDim([]int64{0}).Clamp(gotorch.ClampOptions{Min: 1e-3, Max: 1 - 1e-3}).Logit()
	r.mean = gotorch.Item[float64](drawn(average.ExpandAs(test.Input), test.Input).Mean())

	model := newVAE(o.hidden, o.latent)
	fmt.Fprintf(w, "%d parameters, %d digits to learn from\n", model.NumParameters(), trainSet.Len())
	loader := data.NewLoader[data.Pair](data.NewTensorDataset(learn.Input, learn.Target), data.LoaderOptions{BatchSize: o.batch, Shuffle: true})
	opt := optim.AdamW(model.Parameters())
	loop := train.NewLossLoop(model, opt, func(batch data.Pair) gotorch.Tensor {
		return model.bound(batch.Input).Mean().Neg()
	})
	loop.Schedule(lrscheduler.OneCycleLR(opt, 2e-3, lrscheduler.OneCycleLROptions{TotalSteps: o.epochs * loader.Len(), PctStart: 0.1}), train.PerStep)
	loop.OnEpoch(func(e *train.Epoch) error {
		model.Eval() // the loop puts it back
		gotorch.NoGrad(func() {
			r.bound = gotorch.Item[float64](model.bound(test.Input).Mean())
			r.paid = gotorch.Item[float64](paid(model.encode(test.Input)).Mean())
		})
		e.Record("val_loss", -r.bound)
		return nil
	})
	loop.Progress(os.Stderr)
	history, err := loop.Run(ctx, loader, train.Epochs(o.epochs))
	if err != nil {
		return r, err
	}
	fmt.Fprintf(w, "of digits that it has not seen: at least %.1f nats, of which it pays %.1f for the numbers; %.1f by the average of each pixel\n",
		r.bound, r.paid, r.mean)

	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return r, err
	}
	gotorch.NoGrad(func() {
		// Digits that people wrote, and below each what comes back of its numbers.
		var rows, morphs []gotorch.Tensor
		for i := range 3 {
			written := test.Input.IndexSelect(0, gotorch.FromSlice(firsts(test.Target, 7*i)))
			mean, _ := model.encode(written)
			rows = append(rows, written, model.decode(mean))
			// From each to the next digit in ten steps.
			if i == 1 {
				way := gotorch.Linspace(0, 1, 10).Unsqueeze(1)
				for d := range int64(9) {
					from, to := mean.Narrow(0, d, 1), mean.Narrow(0, d+1, 1)
					morphs = append(morphs, model.decode(from.Lerp(to, way)))
				}
			}
		}
		err = errors.Join(
			grid(filepath.Join(o.out, "digits.png"), gotorch.Cat(rows)),
			grid(filepath.Join(o.out, "morph.png"), gotorch.Cat(morphs)),
			grid(filepath.Join(o.out, "samples.png"), model.decode(gotorch.Randn([]int64{80, o.latent}))),
			plot.Losses(filepath.Join(o.out, "loss.png"), history))
	})
	if err != nil {
		return r, err
	}
	fmt.Fprintf(w, "saved digits.png, morph.png, samples.png and loss.png in %s\n", o.out)
	return r, nil
}
