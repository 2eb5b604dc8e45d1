// Customfunc has a function with a derivative of its own: it solves Kepler's equation in Go, tells autograd how the
// solution moves, checks that, and finds a comet's orbit with it.
//
//	go run ./examples/customfunc
//
// Where a planet is on its ellipse at a time cannot be written down: its eccentric anomaly E is what solves
//
//	E − e·sin E = M
//
// for the part M of its year that has passed and the orbit's eccentricity e. Newton's method does so in a few rounds.
// Autograd could follow all of them; but what it would find at the end of so much work is known:
//
//	dE/dM = 1 / (1 − e·cos E)     dE/de = sin E / (1 − e·cos E)
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
	"gotorch.dev/gotorch/gotorchtest"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
	"gotorch.dev/gotorch/train/plot"
)

type options struct {
	out   string
	seed  uint64
	steps int
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "build/customfunc", "`folder` for what is written")
	flag.Uint64Var(&o.seed, "seed", 1, "of everything random")
	flag.IntVar(&o.steps, "steps", 300, "how many steps to fit the orbit in")
	flag.Parse()
	if _, err := o.run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "customfunc:", err)
		os.Exit(1)
	}
}

// The function -------------------------------------------------------------------------------------

// kepler is a gotorch.Function, which is torch.autograd.Function: Forward without autograd, and Backward.
type kepler struct{}

// Forward solves Kepler's equation for each pair of M and e, which have one shape.
func (kepler) Forward(ctx *gotorch.FunctionContext, inputs []gotorch.Tensor) []gotorch.Tensor {
	m, e := inputs[0], inputs[1]
	solution := gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { // frees the rounds' intermediate results
		x := m.Add(e.Mul(m.Sin()))
		for range 50 {
			change := x.Sub(e.Mul(x.Sin())).Sub(m).Div(slope(x, e))
			x = x.Sub(change)
			if gotorch.Item[float64](change.Abs().Max()) < 1e-15 {
				break
			}
		}
		return x
	})
	ctx.SaveForBackward(solution, e)
	return []gotorch.Tensor{solution}
}

// Backward returns the gradients of M and e, given that of E. It is made of functions that autograd knows, and so has
// derivatives itself: CreateGraph, and with it second derivatives, work.
func (kepler) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	saved := ctx.SavedTensors()
	x, e := saved[0], saved[1]
	gradM := grads[0].Div(slope(x, e))
	return []gotorch.Tensor{gradM, gradM.Mul(x.Sin())}
}

// slope is the derivative of E − e·sin E.
func slope(x, e gotorch.Tensor) gotorch.Tensor { return e.Mul(x.Cos()).Neg().AddScalar(1) }

// anomaly is the function as others call it. M and e are broadcast.
func anomaly(m, e gotorch.Tensor) gotorch.Tensor {
	both := gotorch.BroadcastTensors([]gotorch.Tensor{m, e}) // outside of the function: autograd sums e's gradients
	return gotorch.Apply(kepler{}, both...)[0]
}

// check compares the derivatives with what small changes of M and e do, once and twice.
func check() error {
	m := gotorch.Linspace(-3, 3, 7, gotorch.TensorOptions{DType: gotorch.Float64}).RequiresGrad_()
	e := gotorch.Linspace(0, 0.8, 7, gotorch.TensorOptions{DType: gotorch.Float64}).RequiresGrad_()
	f := func(in []gotorch.Tensor) []gotorch.Tensor { return []gotorch.Tensor{anomaly(in[0], in[1])} }
	return errors.Join(
		gotorchtest.GradCheck(f, []gotorch.Tensor{m, e}),
		gotorchtest.GradGradCheck(f, []gotorch.Tensor{m, e}),
	)
}

// The orbit ----------------------------------------------------------------------------------------

// orbit is what is to be found: tensors of one number each.
type orbit struct {
	size     gotorch.Tensor // half of the ellipse's length
	roundish gotorch.Tensor // a number whose sigmoid is the eccentricity, which so stays between 0 and 1
	year     gotorch.Tensor // the logarithm of the time for one round
	start    gotorch.Tensor // M at time 0
	angle    gotorch.Tensor // of the ellipse in the sky
}

func newOrbit(size, eccentricity, year, start, angle float64) orbit {
	number := func(x float64) gotorch.Tensor { return gotorch.FromSlice([]float64{x}) }
	return orbit{number(size), number(math.Log(eccentricity / (1 - eccentricity))), number(math.Log(year)), number(start), number(angle)}
}

func (o orbit) parameters() []gotorch.Tensor {
	return []gotorch.Tensor{o.size, o.roundish, o.year, o.start, o.angle}
}

func (o orbit) eccentricity() gotorch.Tensor { return o.roundish.Sigmoid() }

// at returns where the comet is at times t: (n) → (n, 2). The sun is in the origin.
func (o orbit) at(t gotorch.Tensor) gotorch.Tensor {
	e := o.eccentricity()
	x := anomaly(t.Mul(o.year.Neg().Exp()).MulScalar(2*math.Pi).Add(o.start), e)
	along := o.size.Mul(x.Cos().Sub(e))
	across := o.size.Mul(e.Square().Neg().AddScalar(1).Sqrt()).Mul(x.Sin())
	cos, sin := o.angle.Cos(), o.angle.Sin()
	return gotorch.Stack([]gotorch.Tensor{
		along.Mul(cos).Sub(across.Mul(sin)), along.Mul(sin).Add(across.Mul(cos)),
	}, gotorch.StackOptions{Dim: 1})
}

// result is what was found, and where the truth is.
type result struct {
	eccentricity, year float64
	distance           float64 // of found places from the true ones, in the mean
}

const trueEccentricity, trueYear = 0.6, 7.0

func (o options) run(w io.Writer) (r result, err error) {
	if o.steps < 1 {
		return r, errors.New("there must be a step")
	}
	gotorch.ManualSeed(o.seed)
	if err := check(); err != nil {
		return r, err
	}
	fmt.Fprintln(w, "first and second derivatives are what small changes say")

	// Sixty sightings in a year and a half, with an error of 0.05 in both directions.
	truth := newOrbit(3, trueEccentricity, trueYear, 0.5, 0.8)
	t := gotorch.Linspace(0, 1.5*trueYear, 60, gotorch.TensorOptions{DType: gotorch.Float64})
	clean := truth.at(t)
	seen := clean.Add(gotorch.RandnLike(clean).MulScalar(0.05))

	found := newOrbit(2.5, 0.4, 6.5, 0, 0.5)
	for _, p := range found.parameters() {
		p.RequiresGrad_()
	}
	opt := optim.Adam(found.parameters(), optim.AdamOptions{LR: 0.05})
	sched := lrscheduler.CosineAnnealingLR(opt, int64(o.steps))
	for step := range o.steps {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			opt.ZeroGrad()
			loss := found.at(t).Sub(seen).Square().Mean()
			loss.Backward()
			opt.Step()
			sched.Step()
			if step%(max(1, o.steps/10)) == 0 {
				fmt.Fprintf(w, "step %4d  mean square distance %.5f\n", step, gotorch.Item[float64](loss))
			}
		})
	}

	gotorch.NoGrad(func() {
		r.eccentricity = gotorch.Item[float64](found.eccentricity())
		r.year = math.Exp(gotorch.Item[float64](found.year))
		r.distance = gotorch.Item[float64](found.at(t).Sub(clean).Square().SumDim([]int64{1}).Sqrt().Mean())
	})
	fmt.Fprintf(w, "eccentricity %.3f, in truth %.3f; year %.3f, in truth %.3f; %.3f from where it is\n",
		r.eccentricity, trueEccentricity, r.year, trueYear, r.distance)
	return r, o.draw(w, found, truth, seen)
}

// draw writes a picture of the orbits.
func (o options) draw(w io.Writer, found, truth orbit, seen gotorch.Tensor) (err error) {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	curve := func(c plot.Series, places gotorch.Tensor) plot.Series {
		xy := places.Unbind(gotorch.UnbindOptions{Dim: 1})
		c.X, c.Y = gotorch.ToSlice[float64](xy[0]), gotorch.ToSlice[float64](xy[1])
		return c
	}
	picture := filepath.Join(o.out, "orbit.png")
	gotorch.NoGrad(func() {
		round := gotorch.Linspace(0, trueYear, 300, gotorch.TensorOptions{DType: gotorch.Float64})
		foundRound := round.MulScalar(math.Exp(gotorch.Item[float64](found.year)) / trueYear)
		err = plot.Lines(picture, []plot.Series{
			curve(plot.Series{Name: "found"}, found.at(foundRound)),
			curve(plot.Series{Name: "truth", Dashed: true}, truth.at(round)),
			curve(plot.Series{Name: "seen", Dots: true}, seen),
			{Name: "sun", X: []float64{0}, Y: []float64{0}, Dots: true},
		}, plot.LinesOptions{Equal: true})
	})
	if err == nil {
		fmt.Fprintf(w, "saved %s\n", picture)
	}
	return err
}
