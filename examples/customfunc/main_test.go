package main

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/gotorchtest"
)

func TestTheOrbitIsFound(t *testing.T) {
	o := options{out: t.TempDir(), seed: 1, steps: 200}
	r, err := o.run(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	// Of eight seeds the worst were 0.002, 0.007 and 0.017 off.
	if math.Abs(r.eccentricity-trueEccentricity) > 0.01 || math.Abs(r.year-trueYear) > 0.03 || r.distance > 0.04 {
		t.Errorf("found %+v", r)
	}
	if _, err := os.Stat(filepath.Join(o.out, "orbit.png")); err != nil {
		t.Error(err)
	}
	if _, err := (options{}).run(io.Discard); err == nil {
		t.Error("it ran without a step")
	}
}

func TestKeplersEquationIsSolved(t *testing.T) {
	m := gotorch.Linspace(-20, 20, 401, gotorch.TensorOptions{DType: gotorch.Float64}).Unsqueeze(1)
	e := gotorch.Linspace(0, 0.95, 39, gotorch.TensorOptions{DType: gotorch.Float64})
	x := anomaly(m, e)
	if off := gotorch.Item[float64](x.Sub(e.Mul(x.Sin())).Sub(m).Abs().Max()); off > 1e-12 {
		t.Errorf("E − e·sin E is up to %v from M", off)
	}
}

// wrong is the function with a derivative that lacks a factor.
type wrong struct{ kepler }

func (wrong) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	right := kepler{}.Backward(ctx, grads)
	return []gotorch.Tensor{right[0], right[0]}
}

func TestTheCheckWouldFindAWrongDerivative(t *testing.T) {
	if err := check(); err != nil {
		t.Fatal(err)
	}
	m := gotorch.FromSlice([]float64{0.5, 1}).RequiresGrad_()
	e := gotorch.FromSlice([]float64{0.2, 0.4}).RequiresGrad_()
	f := func(in []gotorch.Tensor) []gotorch.Tensor { return gotorch.Apply(wrong{}, in...) }
	if err := gotorchtest.GradCheck(f, []gotorch.Tensor{m, e}); err == nil {
		t.Error("a wrong derivative passed")
	}
}
