// Diffusion draws handwritten digits out of noise: a denoising diffusion model (DDPM) that is told which digit to draw.
//
//	go run ./examples/diffusion    # learns from 4,000 digits, then draws samples.png and steps.png
//
// A digit is covered with noise little by little until nothing else is left. A network learns to say, at any point on that
// way, which noise was added. Whoever knows the noise can take a little of it away; beginning with nothing but noise, and
// doing so again and again, comes to a digit that nobody has written.
//
// How good they are is said by a second network, which has learnt to read digits: the part of samples in which it reads
// the digit that was asked for.
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

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/mnist"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
	"gotorch.dev/gotorch/optim/swautils"
	"gotorch.dev/gotorch/train"
	"gotorch.dev/gotorch/train/plot"
	"gotorch.dev/gotorch/vision/imageio"
)

type options struct {
	sample, out         string
	seed                uint64
	digits              int // to learn from; 0 for all
	width               int64
	batch, epochs, rows int
	times               int
	guidance            float64
}

func main() {
	var o options
	flag.StringVar(&o.sample, "sample", ".venv/share/digits/mnist_5k.csv.gz", "`file` with 5,000 digits, which make fetches")
	flag.StringVar(&o.out, "out", "build/diffusion", "`folder` for what is written")
	flag.Uint64Var(&o.seed, "seed", 1, "of everything random")
	flag.IntVar(&o.digits, "digits", 0, "how many digits to learn from; 0 for all")
	flag.Int64Var(&o.width, "width", 48, "channels of the network, a multiple of 8")
	flag.IntVar(&o.batch, "batch", 32, "digits in a step")
	flag.IntVar(&o.epochs, "epochs", 30, "how often to go through the digits")
	flag.IntVar(&o.rows, "rows", 8, "how many samples of each digit to draw")
	flag.IntVar(&o.times, "times", 200, "in how many times noise comes and goes")
	flag.Float64Var(&o.guidance, "guidance", 1, "how much more than it would by itself the network is to draw the digit that it is asked for")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if _, err := o.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "diffusion:", err)
		os.Exit(1)
	}
}

// Noise --------------------------------------------------------------------------------------------

// diffusion is how noise comes into pictures. After t of its times there is √kept[t] of the picture, and √(1−kept[t])
// noise: kept falls from nearly 1 to nearly 0.
type diffusion struct{ kept []float64 }

// newDiffusion is the cosine schedule of Nichol and Dhariwal, https://arxiv.org/abs/2102.09672: the picture goes slowly at
// both ends.
func newDiffusion(times int) diffusion {
	const offset, most = 0.008, 0.999
	left := func(t float64) float64 {
		c := math.Cos((t/float64(times) + offset) / (1 + offset) * math.Pi / 2)
		return c * c
	}
	d := diffusion{make([]float64, times)}
	kept := 1.0
	for t := range times {
		// Each time takes a part of what is left, but never all of it, which could not be undone.
		kept *= 1 - min(most, 1-left(float64(t+1))/left(float64(t)))
		d.kept[t] = kept
	}
	return d
}

// add returns pictures after t of the times, an int64 for each: (N, C, H, W) → (N, C, H, W). noise is of the same shape.
func (d diffusion) add(pictures, t, noise gotorch.Tensor) gotorch.Tensor {
	kept := gotorch.FromSlice(d.kept).To(gotorch.Float32).IndexSelect(0, t).View([]int64{-1, 1, 1, 1})
	return kept.Sqrt().Mul(pictures).Add(kept.Neg().AddScalar(1).Sqrt().Mul(noise))
}

// remove goes all the way back, from noise to pictures. predict says which noise is in pictures x after t of the times.
// each is called with what there is after each time, the last one first.
func (d diffusion) remove(x gotorch.Tensor, predict func(x gotorch.Tensor, t int) gotorch.Tensor, each func(t int, x gotorch.Tensor)) gotorch.Tensor {
	for t := len(d.kept) - 1; t >= 0; t-- {
		// What is made on the way from one time to the next is freed at once, but for x.
		x = gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
			kept, before := d.kept[t], 1.0
			if t > 0 {
				before = d.kept[t-1]
			}
			step := kept / before // of the picture before this time, what is left after it
			// The picture that this noise would come of. Pixels are from −1 to 1: whatever is beyond is a mistake.
			noise := predict(x, t)
			picture := x.Sub(noise.MulScalar(math.Sqrt(1 - kept))).DivScalar(math.Sqrt(kept))
			picture = picture.Clamp(gotorch.ClampOptions{Min: -1, Max: 1})
			// Between that picture and x is what there was before: by Bayes a normal distribution with this mean.
			mean := picture.MulScalar(math.Sqrt(before) * (1 - step) / (1 - kept)).
				Add(x.MulScalar(math.Sqrt(step) * (1 - before) / (1 - kept)))
			if t == 0 {
				return mean
			}
			deviation := math.Sqrt((1 - step) * (1 - before) / (1 - kept))
			return mean.Add(gotorch.RandnLike(x).MulScalar(deviation))
		})
		if each != nil {
			each(t, x)
		}
	}
	return x
}

// The network --------------------------------------------------------------------------------------

// Block is two convolutions beside a way around them. What the network knows of time and digit is added in between.
type Block struct {
	nn.Module
	Norm1, Norm2 *nn.GroupNormModule
	Conv1, Conv2 *nn.Conv2dModule
	Known        *nn.LinearModule
	Around       nn.Layer
}

func newBlock(in, out, known int64) *Block {
	b := &Block{
		Norm1: nn.GroupNorm(8, in), Conv1: nn.Conv2d(in, out, 3, nn.Conv2dOptions{Padding: []int64{1}}),
		Norm2: nn.GroupNorm(8, out), Conv2: nn.Conv2d(out, out, 3, nn.Conv2dOptions{Padding: []int64{1}}),
		Known: nn.Linear(known, out), Around: nn.Identity(),
	}
	if in != out {
		b.Around = nn.Conv2d(in, out, 1)
	}
	return nn.Init(b)
}

// Forward returns what the block makes of pictures and what is known: (N, in, H, W), (N, known) → (N, out, H, W).
func (b *Block) Forward(x, known gotorch.Tensor) gotorch.Tensor {
	h := b.Conv1.Forward(F.SiLU(b.Norm1.Forward(x)))
	h = h.Add(b.Known.Forward(known).Unsqueeze(-1).Unsqueeze(-1))
	h = b.Conv2.Forward(F.SiLU(b.Norm2.Forward(h)))
	return h.Add(b.Around.Forward(x))
}

// UNet says which noise is in pictures. It looks at them at two sizes: the smaller one for what the strokes are, the larger
// one for where they are.
type UNet struct {
	nn.Module
	Time                    *nn.SequentialModule
	Digit                   *nn.EmbeddingModule
	In, Down, Out           *nn.Conv2dModule
	Before, Mid1, Mid2, End *Block
	Up                      *nn.ConvTranspose2dModule
	Norm                    *nn.GroupNormModule

	width int64
}

// anyDigit, behind the digits 0 to 9, is for when the network is not told which one it is.
const anyDigit = 10

func newUNet(width int64) *UNet {
	known := 4 * width
	m := nn.Init(&UNet{
		Time:   nn.Sequential(nn.Linear(width, known), nn.SiLU(), nn.Linear(known, known)),
		Digit:  nn.Embedding(anyDigit+1, known),
		In:     nn.Conv2d(4, width, 3, nn.Conv2dOptions{Padding: []int64{1}}),
		Before: newBlock(width, width, known),
		Down:   nn.Conv2d(width, 2*width, 3, nn.Conv2dOptions{Stride: []int64{2}, Padding: []int64{1}}),
		Mid1:   newBlock(2*width, 2*width, known),
		Mid2:   newBlock(2*width, 2*width, known),
		Up:     nn.ConvTranspose2d(2*width, width, 2, nn.ConvTranspose2dOptions{Stride: []int64{2}}),
		End:    newBlock(2*width, width, known),
		Norm:   nn.GroupNorm(8, width),
		Out:    nn.Conv2d(width, 4, 3, nn.Conv2dOptions{Padding: []int64{1}}),
		width:  width,
	})
	// Not to say anything is a better beginning than to say something at random.
	nninit.Zeros_(m.Out.Weight)
	nninit.Zeros_(m.Out.Bias)
	return m
}

// waves tells numbers apart by waves of different lengths: (N) → (N, width).
func waves(t gotorch.Tensor, width int64) gotorch.Tensor {
	rates := gotorch.Linspace(0, -math.Log(1000), width/2).Exp()
	at := t.To(gotorch.Float32).Unsqueeze(1).Mul(rates)
	return gotorch.Cat([]gotorch.Tensor{at.Sin(), at.Cos()}, gotorch.CatOptions{Dim: 1})
}

// Forward returns the noise in pictures x, of a digit each, at a time each: (N, 1, 28, 28), (N), (N) → (N, 1, 28, 28).
func (m *UNet) Forward(x, t, digit gotorch.Tensor) gotorch.Tensor {
	known := F.SiLU(m.Time.Forward(waves(t, m.width)).Add(m.Digit.Forward(digit)))
	x = F.PixelUnshuffle(x, 2) // four pixels to a place: (N, 4, 14, 14)
	large := m.Before.Forward(m.In.Forward(x), known)
	small := m.Mid2.Forward(m.Mid1.Forward(m.Down.Forward(large), known), known)
	both := gotorch.Cat([]gotorch.Tensor{m.Up.Forward(small), large}, gotorch.CatOptions{Dim: 1})
	x = m.Out.Forward(F.SiLU(m.Norm.Forward(m.End.Forward(both, known))))
	return F.PixelShuffle(x, 2)
}

// loss is how far the network is from the noise that it is asked for, on average: 1 if it says nothing. Of ten digits one
// is not told, so that the network learns to draw without knowing which, too; digits are those of a batch.
func (m *UNet) loss(d diffusion, pictures, digit gotorch.Tensor) gotorch.Tensor {
	n := pictures.Size(0)
	t := gotorch.Randint(int64(len(d.kept)), []int64{n})
	noise := gotorch.RandnLike(pictures)
	digit = digit.MaskedFill(gotorch.Rand([]int64{n}).LtScalar(0.1), anyDigit)
	return F.MSELoss(m.Forward(d.add(pictures, t, noise), t, digit), noise)
}

// draw returns pictures of digits, (N) → (N, 1, 28, 28). guidance is how far to go beyond what the network says of the
// digit, away from what it says of any: https://arxiv.org/abs/2207.12598. each is as for remove.
func (m *UNet) draw(d diffusion, digit gotorch.Tensor, guidance float64, each func(t int, x gotorch.Tensor)) (pictures gotorch.Tensor) {
	m.Eval()
	n := digit.Size(0)
	both := gotorch.Cat([]gotorch.Tensor{digit, gotorch.FullLike(digit, anyDigit)})
	predict := func(x gotorch.Tensor, t int) gotorch.Tensor {
		if guidance == 0 {
			return m.Forward(x, gotorch.Full([]int64{n}, t), digit)
		}
		noise := m.Forward(x.Repeat([]int64{2, 1, 1, 1}), gotorch.Full([]int64{2 * n}, t), both).Chunk(2)
		return noise[0].Add(noise[0].Sub(noise[1]).MulScalar(guidance))
	}
	gotorch.NoGrad(func() {
		pictures = d.remove(gotorch.Randn([]int64{n, 1, 28, 28}), predict, each)
	})
	return pictures
}

// Pictures -----------------------------------------------------------------------------------------

// pixels returns the pictures of a set from −1, black, to 1, white, and their digits: (N, 1, 28, 28), (N).
func pixels(set *mnist.Digits) (pictures, digit gotorch.Tensor, err error) {
	indices := make([]int, set.Len())
	for i := range indices {
		indices[i] = i
	}
	all, err := set.Batch(indices, nil)
	if err != nil {
		return pictures, digit, err
	}
	return all.Input.MulScalar(2 * mnist.Std).AddScalar(2*mnist.Mean - 1), all.Target, nil
}

// picture is the i-th of pictures from −1 to 1.
func picture(pictures gotorch.Tensor, i int) plot.Picture {
	gray := pictures.Select(0, int64(i)).AddScalar(1).MulScalar(127.5).Round().Clamp(gotorch.ClampOptions{Min: 0, Max: 255})
	return plot.Picture{Image: imageio.ToImage(gray.To(gotorch.Uint8))}
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

// --------------------------------------------------------------------------------------------------

// result is what a run has come to.
type result struct {
	loss    float64 // on digits that it has not learnt from
	right   float64 // the part of samples that are read as what was asked for
	reading float64 // the same of digits that people wrote, which the reader has not seen
}

func (o options) run(ctx context.Context, w io.Writer) (r result, err error) {
	if o.width < 8 || o.width%8 != 0 || min(o.batch, o.epochs, o.rows, o.times) < 1 || o.digits < 0 || !(math.Abs(o.guidance) < 100) {
		return r, errors.New("the width must be a multiple of 8, batch, epochs, rows and times positive, and guidance below 100")
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
	pictures, digit, err := pixels(trainSet)
	if err != nil {
		return r, err
	}
	testPictures, testDigit, err := pixels(testSet)
	if err != nil {
		return r, err
	}

	noise, model := newDiffusion(o.times), newUNet(o.width)
	fmt.Fprintf(w, "%d parameters, %d digits to learn from\n", model.NumParameters(), trainSet.Len())
	loader := data.NewLoader[data.Pair](data.NewTensorDataset(pictures, digit), data.LoaderOptions{BatchSize: o.batch, Shuffle: true})
	total := o.epochs * loader.Len()
	// The steps of a training go to and fro. A mean over the last ones draws better than the very last.
	average := swautils.AveragedModel(model, swautils.AveragedModelOptions{
		MultiAvgFn: swautils.GetEMAMultiAvgFn(swautils.EMAOptions{Decay: min(0.99, max(0, 1-20/float64(total)))})})
	opt := optim.AdamW(model.Parameters())
	loop := train.NewLossLoop(model, opt, func(batch data.Pair) gotorch.Tensor {
		return model.loss(noise, batch.Input, batch.Target)
	})
	loop.Schedule(lrscheduler.OneCycleLR(opt, 2e-3, lrscheduler.OneCycleLROptions{TotalSteps: total, PctStart: 0.1}), train.PerStep)
	loop.ClipGradNorm(1)
	train.Average(loop, model, average, train.PerStep)
	loop.Progress(os.Stderr)
	history, err := loop.Run(ctx, loader, train.Epochs(o.epochs))
	if err != nil {
		return r, err
	}
	model = average.Model
	gotorch.NoGrad(func() { r.loss = gotorch.Item[float64](model.loss(noise, testPictures, testDigit)) })
	fmt.Fprintf(w, "of the noise in digits that it has not seen, %.1f %% is left\n", 100*r.loss)

	// All digits side by side, and on the way there, of the first row, what there is after each eighth but the first,
	// which is nothing but noise.
	asked := gotorch.Arange(10).Repeat([]int64{int64(o.rows)})
	var steps []plot.Picture
	samples := model.draw(noise, asked, o.guidance, func(t int, x gotorch.Tensor) {
		if every := (o.times + 7) / 8; t%every == 0 && t/every < 7 {
			for i := range 10 {
				steps = append(steps, picture(x, i))
			}
		}
	})
	reader, err := newReader(ctx, trainSet, max(2, min(o.epochs, 6)))
	if err != nil {
		return r, err
	}
	read := func(pictures gotorch.Tensor) gotorch.Tensor {
		normal := pictures.AddScalar(1 - 2*mnist.Mean).DivScalar(2 * mnist.Std)
		return reader.Forward(normal).ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(1))})
	}
	gotorch.NoGrad(func() {
		r.right = gotorch.Item[float64](read(samples).Eq(asked).To(gotorch.Float64).Mean())
		r.reading = gotorch.Item[float64](read(testPictures).Eq(testDigit).To(gotorch.Float64).Mean())
	})
	fmt.Fprintf(w, "%.1f %% of the samples are read as the digit that was asked for, and %.1f %% of what people wrote\n", 100*r.right, 100*r.reading)

	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return r, err
	}
	var sheet []plot.Picture
	for i, answer := range gotorch.ToSlice[int](read(samples)) {
		sheet = append(sheet, picture(samples, i))
		sheet[i].Caption, sheet[i].Wrong = fmt.Sprint(answer), answer != i%10
	}
	samplesFile, stepsFile, lossFile := filepath.Join(o.out, "samples.png"), filepath.Join(o.out, "steps.png"), filepath.Join(o.out, "loss.png")
	err = errors.Join(
		plot.Grid(samplesFile, sheet, plot.GridOptions{Scale: 2}),
		plot.Grid(stepsFile, steps, plot.GridOptions{Scale: 2}),
		plot.Losses(lossFile, history))
	if err != nil {
		return r, err
	}
	fmt.Fprintf(w, "saved %s, %s and %s\n", samplesFile, stepsFile, lossFile)
	return r, nil
}
