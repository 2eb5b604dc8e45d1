// Unet says of each pixel of a picture what it belongs to: a U-Net finds discs, squares and triangles.
//
//	go run ./examples/unet    # learns from 2,000 pictures that it makes, then draws shapes.png
//
// A convolution sees only what is near. To know that an edge belongs to a triangle one has to see its corners. A U-Net
// makes the picture smaller, until all of a shape is near, and then larger again, step by step; at each size it is shown
// once more what was there on the way down, so that edges are in their places to the pixel.
//
// How good it is is said by the intersection over union: of the pixels that are a triangle's, or are said to be, the part
// for which both is true; the mean over the classes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/metrics"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
	"gotorch.dev/gotorch/train"
	"gotorch.dev/gotorch/train/plot"
	"gotorch.dev/gotorch/vision/imageio"
)

type options struct {
	out            string
	seed           uint64
	size, pictures int
	width, levels  int64
	batch, epochs  int
	noise, lr      float64
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "build/unet", "`folder` for what is written")
	flag.Uint64Var(&o.seed, "seed", 1, "of everything random")
	flag.IntVar(&o.size, "size", 64, "pixels of a picture's sides, a multiple of 2 to the power of levels-1")
	flag.IntVar(&o.pictures, "pictures", 2000, "how many pictures to learn from")
	flag.Int64Var(&o.width, "width", 8, "channels of the network where pictures are largest")
	flag.Int64Var(&o.levels, "levels", 4, "at how many sizes it looks at them")
	flag.IntVar(&o.batch, "batch", 16, "pictures in a step")
	flag.IntVar(&o.epochs, "epochs", 10, "how often to go through the pictures")
	flag.Float64Var(&o.lr, "lr", 1e-2, "the largest learning rate")
	flag.Float64Var(&o.noise, "noise", 0.1, "deviation of the noise in pictures that go from 0 to 1")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if _, err := o.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "unet:", err)
		os.Exit(1)
	}
}

// Pictures -----------------------------------------------------------------------------------------

// What a pixel may belong to.
const (
	background = iota
	disc
	square
	triangle
	classes
)

// shapes is a data set of pictures that are made when they are asked for, each always the same. An input is (3, size, size)
// from 0 to 1 before noise, a target the class of each pixel: (size, size).
type shapes struct {
	seed    uint64
	n, size int
	noise   float64
}

// Len returns the number of pictures.
func (s shapes) Len() int { return s.n }

// At makes the i-th picture: two or three shapes, the later ones over the earlier ones.
func (s shapes) At(i int) (data.Pair, error) {
	rng := rand.New(rand.NewPCG(s.seed, uint64(i)))
	area := s.size * s.size
	pixels, labels := make([]float32, 3*area), make([]int64, area)
	paint := func(at int, c [3]float64) {
		for k, v := range c {
			pixels[k*area+at] = float32(v)
		}
	}
	ground := tint(rng)
	for at := range area {
		paint(at, ground)
	}
	for range 2 + rng.IntN(2) {
		class := disc + rng.IntN(3)
		ink := tint(rng)
		for distance(ink, ground) < 0.4 { // or nobody would see it
			ink = tint(rng)
		}
		size := float64(s.size)
		x0, y0 := size*(0.1+0.8*rng.Float64()), size*(0.1+0.8*rng.Float64())
		radius := size * (0.15 + 0.12*rng.Float64())
		sin, cos := math.Sincos(2 * math.Pi * rng.Float64())
		for at := range area {
			x, y := float64(at%s.size)+0.5-x0, float64(at/s.size)+0.5-y0
			if inside(class, (cos*x+sin*y)/radius, (cos*y-sin*x)/radius) {
				paint(at, ink)
				labels[at] = int64(class)
			}
		}
	}
	for k := range pixels {
		pixels[k] += float32(s.noise * rng.NormFloat64())
	}
	n := int64(s.size)
	return data.Pair{Input: gotorch.FromSlice(pixels, 3, n, n), Target: gotorch.FromSlice(labels, n, n)}, nil
}

// inside says whether a point is in a shape whose corners, or edge, are at a distance of 1 from the origin.
func inside(class int, x, y float64) bool {
	switch class {
	case disc:
		return x*x+y*y < 1
	case square:
		return max(math.Abs(x), math.Abs(y)) < math.Sqrt2/2
	default:
		return y > -0.5 && y < 1-math.Sqrt(3)*math.Abs(x)
	}
}

func tint(rng *rand.Rand) [3]float64 { return [3]float64{rng.Float64(), rng.Float64(), rng.Float64()} }

func distance(a, b [3]float64) float64 {
	return math.Hypot(math.Hypot(a[0]-b[0], a[1]-b[1]), a[2]-b[2])
}

// The network --------------------------------------------------------------------------------------

// UNet labels each pixel. The one with the channels of the article, and weights that others have trained, is
// models.NewUNet.
type UNet struct {
	nn.Module
	Down []*nn.SequentialModule      // at each size, the largest first
	Up   []*nn.ConvTranspose2dModule // from each size to the next larger one
	Join []*nn.SequentialModule      // what has come up, with what was there on the way down
	Out  *nn.Conv2dModule
}

func newUNet(channels, classes, width, levels int64) *UNet {
	m := &UNet{Out: nn.Conv2d(width, classes, 1)}
	for level := range levels {
		out := width << level
		m.Down = append(m.Down, twice(channels, out))
		channels = out
	}
	for level := levels - 2; level >= 0; level-- {
		out := width << level
		m.Up = append(m.Up, nn.ConvTranspose2d(2*out, out, 2, nn.ConvTranspose2dOptions{Stride: []int64{2}}))
		m.Join = append(m.Join, twice(2*out, out))
	}
	return nn.Init(m)
}

// twice is two convolutions that keep the size.
func twice(in, out int64) *nn.SequentialModule {
	same := nn.Conv2dOptions{Padding: []int64{1}, NoBias: true}
	return nn.Sequential(
		nn.Conv2d(in, out, 3, same), nn.BatchNorm2d(out), nn.ReLU(),
		nn.Conv2d(out, out, 3, same), nn.BatchNorm2d(out), nn.ReLU())
}

// Forward returns scores for each class at each pixel: (N, channels, H, W) → (N, classes, H, W).
func (m *UNet) Forward(x gotorch.Tensor) gotorch.Tensor {
	var before []gotorch.Tensor
	for level, block := range m.Down {
		if level > 0 {
			x = F.MaxPool2d(x, []int64{2})
		}
		x = block.Forward(x)
		before = append(before, x)
	}
	for i, up := range m.Up {
		same := before[len(before)-2-i]
		x = m.Join[i].Forward(gotorch.Cat([]gotorch.Tensor{same, up.Forward(x)}, gotorch.CatOptions{Dim: 1}))
	}
	return m.Out.Forward(x)
}

// loss is the cross entropy of each pixel, and 1 less the Dice score of what the network takes for how likely. Most pixels
// are background: the one alone is content with little else for long, the other counts each class as much as all of that.
func loss(scores, target gotorch.Tensor) gotorch.Tensor {
	likely := scores.Softmax(1)
	truth := F.OneHot(target, F.OneHotOptions{NumClasses: classes}).Permute([]int64{0, 3, 1, 2})
	places := []int64{0, 2, 3} // all but the classes
	both := likely.Mul(truth).SumDim(places)
	dice := both.MulScalar(2).Div(likely.SumDim(places).Add(truth.SumDim(places)).AddScalar(1))
	return F.CrossEntropy(scores, target).Add(dice.Neg().AddScalar(1).Mean())
}

// answer returns the class of each pixel: (N, channels, H, W) → (N, H, W).
func (m *UNet) answer(x gotorch.Tensor) gotorch.Tensor {
	return m.Forward(x).ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(1))})
}

// measure returns intersection over union of each class over a set, and their mean. The network is left in evaluation
// mode; a loop puts it back.
func (m *UNet) measure(set shapes) (each []float64, mean float64, err error) {
	m.Eval()
	iou := metrics.MulticlassJaccardIndex(classes, metrics.JaccardIndexOptions{Average: "none"})
	for batch, err := range data.NewLoader[data.Pair](set, data.LoaderOptions{BatchSize: 50}).All() {
		if err != nil {
			return nil, 0, err
		}
		gotorch.InferenceMode(func() { iou.Update(m.answer(batch.Input), batch.Target) })
	}
	each = gotorch.ToSlice[float64](iou.Compute())
	for _, v := range each {
		mean += v / classes
	}
	return each, mean, nil
}

// --------------------------------------------------------------------------------------------------

// colored is a picture of the class of each pixel.
func colored(labels gotorch.Tensor) image.Image {
	n := int(labels.Size(0))
	picture := image.NewPaletted(image.Rect(0, 0, n, n), color.Palette{
		background: color.RGBA{0x20, 0x20, 0x20, 0xff}, disc: color.RGBA{0x1f, 0x77, 0xb4, 0xff},
		square: color.RGBA{0xff, 0x7f, 0x0e, 0xff}, triangle: color.RGBA{0x2c, 0xa0, 0x2c, 0xff}})
	picture.Pix = gotorch.ToSlice[uint8](labels)
	return picture
}

// result is what a run has come to.
type result struct {
	iou  float64   // the mean over the classes, of pictures that it has not learnt from
	each []float64 // of each class
	dice float64   // twice the intersection over the sum, the mean over classes and pictures
}

func (o options) run(ctx context.Context, w io.Writer) (r result, err error) {
	if o.levels < 1 || o.levels > 10 || o.size < 8 || o.size%(1<<(o.levels-1)) != 0 {
		return r, fmt.Errorf("pictures of %d pixels cannot be made half as large %d times", o.size, o.levels-1)
	}
	if o.width < 1 || min(o.pictures, o.batch, o.epochs) < 1 || !(o.noise >= 0) || !(o.lr > 0) {
		return r, errors.New("width, pictures, batch, epochs and lr must be positive, and noise not negative")
	}
	gotorch.ManualSeed(o.seed)
	trainSet := shapes{seed: o.seed, n: o.pictures, size: o.size, noise: o.noise}
	testSet := shapes{seed: ^o.seed, n: 200, size: o.size, noise: o.noise}
	model := newUNet(3, classes, o.width, o.levels)
	fmt.Fprintf(w, "%d parameters, %d pictures to learn from\n", model.NumParameters(), trainSet.Len())

	// The workers draw while the network computes.
	loader := data.NewLoader[data.Pair](trainSet, data.LoaderOptions{BatchSize: o.batch, Shuffle: true, Workers: 1})
	opt := optim.AdamW(model.Parameters())
	loop := train.NewLoop(model, opt, nn.LossFunc(loss))
	loop.Schedule(lrscheduler.OneCycleLR(opt, o.lr, lrscheduler.OneCycleLROptions{TotalSteps: o.epochs * loader.Len(), PctStart: 0.1}), train.PerStep)
	loop.OnEpoch(func(e *train.Epoch) (err error) {
		r.each, r.iou, err = model.measure(testSet)
		e.Record("val_iou", r.iou)
		return err
	})
	loop.Progress(os.Stderr)
	if _, err := loop.Run(ctx, loader, train.Epochs(o.epochs)); err != nil {
		return r, err
	}

	var examples []data.Pair
	for i := range 50 {
		pair, err := testSet.At(i)
		if err != nil {
			return r, err
		}
		examples = append(examples, pair)
	}
	some, err := data.Pair{}.Collate(examples)
	if err != nil {
		return r, err
	}
	var answer gotorch.Tensor
	gotorch.NoGrad(func() { answer = model.answer(some.Input) })
	r.dice = gotorch.Item[float64](metrics.Eval(metrics.DiceScore(classes, metrics.DiceScoreOptions{InputFormat: "index"}), answer, some.Target))
	fmt.Fprintf(w, "intersection over union %.3f: background %.3f, discs %.3f, squares %.3f, triangles %.3f; Dice score %.3f\n",
		r.iou, r.each[background], r.each[disc], r.each[square], r.each[triangle], r.dice)

	// A row of pictures, one of what is there, one of what the network says.
	const columns = 7
	pictures := make([]plot.Picture, 3*columns)
	for i := range columns {
		input, target, answer := some.Input.Select(0, int64(i)), some.Target.Select(0, int64(i)), answer.Select(0, int64(i))
		right := gotorch.Item[float64](answer.Eq(target).To(gotorch.Float64).Mean())
		pictures[i] = plot.Picture{Image: imageio.ToImage(input), Caption: "picture"}
		pictures[columns+i] = plot.Picture{Image: colored(target), Caption: "truth"}
		pictures[2*columns+i] = plot.Picture{Image: colored(answer), Caption: fmt.Sprintf("%.1f %%", 100*right)}
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return r, err
	}
	file := filepath.Join(o.out, "shapes.png")
	if err := plot.Grid(file, pictures, plot.GridOptions{Columns: columns, Scale: 1}); err != nil {
		return r, err
	}
	fmt.Fprintf(w, "saved %s\n", file)
	return r, nil
}
