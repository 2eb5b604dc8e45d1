// Fit finds the curve that measurements lie on: a swing that dies away, by LBFGS, with error bars on what it finds.
//
//	go run ./examples/fit
//
// Five numbers are to be found, of a model that is not linear in three of them. Least squares give them, the second
// derivatives of the sum of squares say how sure they are, and both are a call: optim.LBFGS and functorch.Hessian.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/functorch"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/train/plot"
)

type options struct {
	out    string
	seed   uint64
	points int64
	noise  float64
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "build/fit", "`folder` for what is written")
	flag.Uint64Var(&o.seed, "seed", 1, "of the noise")
	flag.Int64Var(&o.points, "points", 120, "how many measurements there are")
	flag.Float64Var(&o.noise, "noise", 0.1, "their standard deviation")
	flag.Parse()
	if _, err := o.run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fit:", err)
		os.Exit(1)
	}
}

// names of the numbers that are to be found, and what they are in truth.
var (
	names = []string{"amplitude", "decay", "frequency", "phase", "rest"}
	truth = []float64{1.5, 0.25, 2.8, 0.6, 0.4}
	units = []string{"m", "1/s", "rad/s", "rad", "m"}
)

// swing is where something is at times t: (n) → (n). parameters is (5), in the order of names.
func swing(parameters, t gotorch.Tensor) gotorch.Tensor {
	p := parameters.Unbind() // five tensors of one number each, which are views: gradients flow through them
	amplitude, decay, frequency, phase, rest := p[0], p[1], p[2], p[3], p[4]
	return amplitude.Mul(decay.Mul(t).Neg().Exp()).Mul(frequency.Mul(t).Add(phase).Cos()).Add(rest)
}

// fitted is what was found.
type fitted struct {
	Values, Errors []float64 // of each parameter, and its standard error
	Squares        float64   // the sum of squares that is left
	Evaluations    int       // of the model
}

// fit finds the parameters of which the sum of squares is least, beginning at start.
func fit(t, y gotorch.Tensor, start []float64) fitted {
	var f fitted
	squares := func(parameters gotorch.Tensor) gotorch.Tensor {
		return swing(parameters, t).Sub(y).Square().Sum()
	}
	parameters := gotorch.FromSlice(start).RequiresGrad_()
	opt := optim.LBFGS([]gotorch.Tensor{parameters}, optim.LBFGSOptions{
		MaxIter: 200, LineSearchFn: "strong_wolfe", ToleranceGrad: 1e-9, ToleranceChange: 1e-12})
	// One step is all: LBFGS asks for the loss and its gradient as often as it needs them.
	opt.StepWith(func() gotorch.Tensor {
		f.Evaluations++
		opt.ZeroGrad()
		loss := squares(parameters)
		loss.Backward()
		return loss
	})

	best := parameters.Detach()
	f.Values = gotorch.ToSlice[float64](best)
	f.Squares = gotorch.Item[float64](squares(best))
	// How sharp the valley is in which the best point lies tells how sure it is: with measurements of variance v the
	// covariance of the parameters is about v·(H/2)⁻¹, H being the second derivatives of the sum of squares.
	variance := f.Squares / float64(t.Size(0)-int64(len(start)))
	covariance := functorch.Hessian(squares)(best).MulScalar(0.5).Inverse().MulScalar(variance)
	f.Errors = gotorch.ToSlice[float64](covariance.Diagonal().Sqrt())
	return f
}

func (o options) run(w io.Writer) (fitted, error) {
	if o.points <= int64(len(truth)) || !(o.noise >= 0) || math.IsInf(o.noise, 0) {
		return fitted{}, errors.New("there must be more points than parameters, and the noise must be a number that is not negative")
	}
	gotorch.ManualSeed(o.seed)
	t := gotorch.Linspace(0, 10, o.points, gotorch.TensorOptions{DType: gotorch.Float64})
	clean := swing(gotorch.FromSlice(truth), t)
	y := clean.Add(gotorch.RandnLike(clean).MulScalar(o.noise))

	f := fit(t, y, []float64{1, 0.1, 3, 0, 0})
	fmt.Fprintf(w, "%-10s %10s %20s\n", "", "truth", "found")
	for i, name := range names {
		fmt.Fprintf(w, "%-10s %10.4f %10.4f ± %.4f %s\n", name, truth[i], f.Values[i], f.Errors[i], units[i])
	}
	deviation := math.Sqrt(f.Squares / float64(o.points-int64(len(truth))))
	fmt.Fprintf(w, "the points are %.4f m off the curve, after %d evaluations of the model\n", deviation, f.Evaluations)

	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return f, err
	}
	fine := gotorch.Linspace(0, 10, 400, gotorch.TensorOptions{DType: gotorch.Float64})
	at := func(parameters []float64) []float64 {
		return gotorch.ToSlice[float64](swing(gotorch.FromSlice(parameters), fine))
	}
	picture := filepath.Join(o.out, "fit.png")
	err := plot.Lines(picture, []plot.Series{
		{Name: "fitted", X: gotorch.ToSlice[float64](fine), Y: at(f.Values)},
		{Name: "truth", X: gotorch.ToSlice[float64](fine), Y: at(truth), Dashed: true},
		{Name: "measured", X: gotorch.ToSlice[float64](t), Y: gotorch.ToSlice[float64](y), Dots: true},
	}, plot.LinesOptions{XLabel: "seconds", YLabel: "metres"})
	if err != nil {
		return f, err
	}
	fmt.Fprintf(w, "saved %s\n", picture)
	return f, nil
}
