package gotorch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
)

type square struct{}

func (square) Forward(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	ctx.SaveForBackward(in[0])
	return []gotorch.Tensor{in[0].Mul(in[0])}
}

func (square) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{grads[0].Mul(ctx.SavedTensors()[0]).MulScalar(2)}
}

// function is made of closures, for cases that are too small for a type.
type function struct {
	forward, backward func(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor
}

func (f function) Forward(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	return f.forward(ctx, in)
}

func (f function) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	return f.backward(ctx, grads)
}

type tensors = []gotorch.Tensor

func TestSmokeFunction(t *testing.T) {
	x := leaf(1, 2, 3)
	y := gotorch.Apply(square{}, x)[0]
	expect(t, y, "tensor([1., 4., 9.], grad_fn=<squareBackward>)")
	y.Sum().Backward()
	expect(t, x.Grad(), "tensor([2., 4., 6.])")
}

func TestFunctionOfHigherOrder(t *testing.T) {
	x := leaf(1, 2, 3)
	y := gotorch.Apply(square{}, gotorch.Apply(square{}, x)[0])[0].Sum() // x^4
	first := gotorch.Grad(tensors{y}, tensors{x}, gotorch.GradOptions{CreateGraph: true})
	second := gotorch.Grad(tensors{first[0].Sum()}, tensors{x}, gotorch.GradOptions{CreateGraph: true})
	third := gotorch.Grad(tensors{second[0].Sum()}, tensors{x})
	expect(t, first[0].Detach(), "tensor([  4.,  32., 108.])")
	expect(t, second[0].Detach(), "tensor([ 12.,  48., 108.])")
	expect(t, third[0], "tensor([24., 48., 72.])")
}

func TestFunctionWithoutAGraph(t *testing.T) {
	before := gotorch.Lent()
	if y := gotorch.Apply(square{}, floats(2))[0]; y.RequiresGrad() {
		t.Error("nothing requires grad, and the output does")
	}
	gotorch.NoGrad(func() {
		if y := gotorch.Apply(square{}, leaf(2))[0]; y.RequiresGrad() {
			t.Error("grad mode is off, and the output requires grad")
		}
	})
	if gotorch.Lent() != before {
		t.Error("the function was kept")
	}
}

func TestForwardRunsWithoutGradMode(t *testing.T) {
	f := function{
		func(_ *gotorch.FunctionContext, in tensors) tensors {
			if gotorch.GradEnabled() {
				t.Error("grad mode is on in Forward")
			}
			return tensors{in[0].Clone()}
		},
		func(_ *gotorch.FunctionContext, grads tensors) tensors {
			if gotorch.GradEnabled() {
				t.Error("grad mode is on in Backward")
			}
			return grads
		},
	}
	gotorch.Apply(f, leaf(1))[0].Backward()
	if !gotorch.GradEnabled() {
		t.Error("grad mode stayed off")
	}
}

func TestSavedTensors(t *testing.T) {
	// An input, an output, something between and none.
	x := leaf(0, 1)
	f := function{
		func(ctx *gotorch.FunctionContext, in tensors) tensors {
			y := in[0].Exp()
			ctx.SaveForBackward(in[0], y, y.AddScalar(1), gotorch.Tensor{})
			return tensors{y}
		},
		func(ctx *gotorch.FunctionContext, grads tensors) tensors {
			saved := ctx.SavedTensors()
			if len(saved) != 4 || saved[3].Defined() || saved[1].GradFnName() != "functionBackward" || !saved[0].IsLeaf() {
				t.Error("saved tensors came back as", saved)
			}
			return tensors{grads[0].Mul(saved[1])}
		},
	}
	gotorch.Apply(f, x)[0].Sum().Backward()
	expect(t, x.Grad(), "tensor([1.0000, 2.7183])")
	y := gotorch.Apply(f, x)[0].Sum()
	y.Backward()
	mustFail(t, gotorch.RuntimeError, "Trying to backward through the graph a second time", func() { y.Backward() })
	mustFail(t, gotorch.RuntimeError, "outside of Backward", func() { new(gotorch.FunctionContext).SavedTensors() })
}

func TestSavedTensorMustNotBeChanged(t *testing.T) {
	u := leaf(1, 2).MulScalar(1)
	y := gotorch.Apply(square{}, u)[0]
	u.AddScalar_(1)
	mustFail(t, gotorch.RuntimeError, "has been modified by an inplace operation: [torch.FloatTensor [2]]", func() { y.Sum().Backward() })
}

func TestMarkDirty(t *testing.T) {
	double := function{
		func(ctx *gotorch.FunctionContext, in tensors) tensors {
			in[0].MulScalar_(2)
			ctx.MarkDirty(in[0])
			return in
		},
		func(_ *gotorch.FunctionContext, grads tensors) tensors { return tensors{grads[0].MulScalar(2)} },
	}
	v := leaf(1, 2)
	u := v.MulScalar(1)
	gotorch.Apply(double, u)
	expect(t, u, "tensor([2., 4.], grad_fn=<functionBackward>)")
	u.Sum().Backward()
	expect(t, v.Grad(), "tensor([2., 2.])")
	mustFail(t, gotorch.RuntimeError, "a leaf Variable that requires grad has been used in an in-place operation", func() { gotorch.Apply(double, v) })

	forgets := double
	forgets.forward = func(ctx *gotorch.FunctionContext, in tensors) tensors {
		ctx.MarkDirty(in[0])
		return tensors{in[0].MulScalar(1)}
	}
	mustFail(t, gotorch.RuntimeError, "Some elements marked as dirty during the forward method were not returned as output", func() {
		gotorch.Apply(forgets, v.MulScalar(1))
	})
	// A view: the base gets the new history.
	base := v.MulScalar(1)
	gotorch.Apply(double, base.Narrow(0, 0, 1))
	v.SetGrad(gotorch.Tensor{})
	base.Sum().Backward()
	expect(t, v.Grad(), "tensor([2., 1.])")
}

func TestFunctionReturningItsInput(t *testing.T) {
	f := function{
		func(_ *gotorch.FunctionContext, in tensors) tensors { return in },
		func(_ *gotorch.FunctionContext, grads tensors) tensors { return tensors{grads[0].MulScalar(5)} },
	}
	v := leaf(1, 2)
	u := v.MulScalar(1)
	o := gotorch.Apply(f, u)[0]
	if o.GradFnName() != "functionBackward" || u.GradFnName() != "MulBackward1" || !o.SharesStorage(u) {
		t.Error("the output is", o, "and the input", u)
	}
	o.Sum().Backward()
	expect(t, v.Grad(), "tensor([5., 5.])")
}

func TestNonDifferentiableOutputs(t *testing.T) {
	f := function{
		func(ctx *gotorch.FunctionContext, in tensors) tensors {
			constant, index := in[0].Sign(), in[0].ArgSort()
			ctx.MarkNonDifferentiable(constant)
			return tensors{in[0].MulScalar(2), constant, index}
		},
		func(_ *gotorch.FunctionContext, grads tensors) tensors { return tensors{grads[0].MulScalar(2)} },
	}
	x := leaf(3, 1)
	out := gotorch.Apply(f, x)
	if !out[0].RequiresGrad() || out[1].RequiresGrad() || out[2].RequiresGrad() {
		t.Error("the outputs are", out)
	}
	out[0].Sum().Backward()
	expect(t, x.Grad(), "tensor([2., 2.])")
}

func TestNeedsInputGradAndOptionalInputs(t *testing.T) {
	var forward, backward []bool
	f := function{
		func(ctx *gotorch.FunctionContext, in tensors) tensors {
			for i := range 4 {
				forward = append(forward, ctx.NeedsInputGrad(i))
			}
			return tensors{in[0].Mul(in[1]).Mul(in[3])}
		},
		func(ctx *gotorch.FunctionContext, grads tensors) tensors {
			for i := range 4 {
				backward = append(backward, ctx.NeedsInputGrad(i))
			}
			return tensors{grads[0], grads[0], grads[0], grads[0]}
		},
	}
	x, w := leaf(1), leaf(2)
	y := gotorch.Apply(f, x, floats(3), gotorch.Tensor{}, w)[0]
	g := gotorch.Grad(tensors{y}, tensors{w})
	expect(t, g[0], "tensor([1.])")
	if fmt.Sprint(forward, backward) != "[true false false true] [false false false true]" {
		t.Error(forward, backward)
	}
}

func TestMaterializeGrads(t *testing.T) {
	for _, materialize := range []bool{true, false} {
		f := function{
			func(ctx *gotorch.FunctionContext, in tensors) tensors {
				ctx.SetMaterializeGrads(materialize)
				return tensors{in[0].MulScalar(2), in[0].MulScalar(3)}
			},
			func(_ *gotorch.FunctionContext, grads tensors) tensors {
				if grads[1].Defined() != materialize {
					t.Error("the missing gradient is", grads[1])
				}
				return tensors{grads[0].MulScalar(2)}
			},
		}
		x := leaf(1, 2)
		gotorch.Apply(f, x)[0].Sum().Backward()
		expect(t, x.Grad(), "tensor([2., 2.])")
	}
}

func TestFunctionMistakes(t *testing.T) {
	returning := func(grads ...gotorch.Tensor) func() {
		return func() {
			f := function{
				func(_ *gotorch.FunctionContext, in tensors) tensors { return tensors{in[0].MulScalar(2)} },
				func(*gotorch.FunctionContext, tensors) tensors { return grads },
			}
			gotorch.Apply(f, leaf(1, 2))[0].Sum().Backward()
		}
	}
	mustFail(t, gotorch.RuntimeError, "functionBackward: Backward returned 0 gradients for 1 inputs", returning())
	mustFail(t, gotorch.RuntimeError, "Backward returned 2 gradients for 1 inputs", returning(floats(1, 1), floats(1, 1)))
	mustFail(t, gotorch.RuntimeError, "Function functionBackward returned an invalid gradient at index 0 - got [3] but expected shape compatible with [2]", returning(floats(1, 1, 1)))
	closed := floats(1, 1)
	closed.Close()
	mustFail(t, gotorch.ValueError, "used after Close", returning(closed))
	if err := gotorch.Try0(returning(floats(1, 1), gotorch.Tensor{})); err != nil {
		t.Error("a further gradient that is none was refused:", err)
	}

	forward := func(forward func(ctx *gotorch.FunctionContext, in tensors) tensors) func() {
		return func() { gotorch.Apply(function{forward: forward}, leaf(1)) }
	}
	mustFail(t, gotorch.TypeError, "'outputs' is the zero Tensor", forward(func(_ *gotorch.FunctionContext, in tensors) tensors { return make(tensors, 1) }))
	e := mustFail(t, gotorch.RuntimeError, "mat1 and mat2 shapes", forward(func(_ *gotorch.FunctionContext, in tensors) tensors {
		return tensors{gotorch.MM(ones(2, 3), ones(2, 3))}
	}))
	if !gotorch.GradEnabled() {
		t.Error("grad mode stayed off after", e)
	}
}

func TestPanicInAFunctionComesOutOfBackward(t *testing.T) {
	problem := errors.New("division by cucumber")
	f := function{
		func(_ *gotorch.FunctionContext, in tensors) tensors { return tensors{in[0].MulScalar(2)} },
		func(*gotorch.FunctionContext, tensors) tensors { panic(problem) },
	}
	x := leaf(1)
	e := mustFail(t, gotorch.RuntimeError, "in functionBackward: division by cucumber", func() { gotorch.Apply(f, x)[0].Backward() })
	if !errors.Is(e, problem) {
		t.Error(e)
	}
	mustFail(t, gotorch.RuntimeError, "cucumber", func() { gotorch.Grad(tensors{gotorch.Apply(f, x)[0]}, tensors{x}) })

	// A runtime error, and a text of several lines.
	f.backward = func(*gotorch.FunctionContext, tensors) tensors { return tensors{tensors{}[len(problem.Error())]} }
	mustFail(t, gotorch.RuntimeError, "index out of range", func() { gotorch.Apply(f, x)[0].Backward() })
	f.backward = func(*gotorch.FunctionContext, tensors) tensors { panic("one\ntwo\x00") }
	e = mustFail(t, gotorch.RuntimeError, "one", func() { gotorch.Apply(f, x)[0].Backward() })
	var p *gotorch.CallbackPanic
	if strings.Contains(e.Msg, "two") || !errors.As(e, &p) || p.Value != "one\ntwo\x00" {
		t.Errorf("%q, %v", e.Msg, p)
	}
}

func TestFunctionsLeaveNothing(t *testing.T) {
	f := function{
		func(ctx *gotorch.FunctionContext, in tensors) tensors {
			y := in[0].Exp()
			ctx.SaveForBackward(y, in[0])
			ctx.Data = in[0].Detach()
			return tensors{y}
		},
		func(ctx *gotorch.FunctionContext, grads tensors) tensors {
			saved := ctx.SavedTensors()
			return tensors{grads[0].Mul(saved[0]).Mul(ctx.Data.(gotorch.Tensor)).Add(saved[1])}
		},
	}
	leavesNothing(t, func() {
		for range 50 {
			x := leaf(1, 2)
			gotorch.Apply(f, x)[0].Sum().Backward()
			gotorch.Apply(f, x) // never run
			y := gotorch.Apply(f, gotorch.Apply(f, x)[0])[0].Sum()
			g := gotorch.Grad(tensors{y}, tensors{x}, gotorch.GradOptions{CreateGraph: true})
			gotorch.Grad(tensors{g[0].Sum()}, tensors{x})
			_ = gotorch.Try0(func() {
				gotorch.Apply(function{f.forward, func(*gotorch.FunctionContext, tensors) tensors { panic(1) }}, x)[0].Sum().Backward()
			})
			_ = gotorch.Try0(func() { gotorch.Apply(f, x)[0].AddScalar_(1).Sum().Backward() }) // changes what is saved
		}
	})
}

func TestDeepGraphsOfFunctionsAreFreed(t *testing.T) {
	x := leaf(1)
	y := x
	n := 30_000
	if testing.Short() {
		n = 3_000
	}
	for range n {
		y = gotorch.Apply(square{}, y)[0]
	}
	y.Backward()
	expect(t, x.Grad(), "tensor([inf])")
	y = x
	for range n {
		y = gotorch.Apply(square{}, y)[0]
	}
	y.Close() // frees the chain without having run it
}

func ExampleApply() {
	x := gotorch.FromSlice([]float64{-1, 0.5, 2}).RequiresGrad_()
	y := gotorch.Apply(straightThrough{0}, x)[0]
	y.Sum().Backward()
	fmt.Println(y.Detach())
	fmt.Println(x.Grad())
	// Output:
	// tensor([0., 1., 1.], dtype=torch.float64)
	// tensor([1., 1., 1.], dtype=torch.float64)
}

// straightThrough is 1 above a threshold and 0 below, with a gradient as if it were the identity.
type straightThrough struct{ threshold float64 }

func (s straightThrough) Forward(_ *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{in[0].GtScalar(s.threshold).To(in[0].DType())}
}

func (straightThrough) Backward(_ *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	return grads
}
