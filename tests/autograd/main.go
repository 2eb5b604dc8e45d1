// Autograd computes the cases of tests/test_autograd.py in Go: it reads their inputs from a file of
// tensors and writes what each case returns, as CASE.0, CASE.1 and so on, to another.
package main

import (
	"fmt"
	"os"

	"gotorch.dev/gotorch"
)

type tensors = []gotorch.Tensor

// leakyCube is x³, and x³/10 for negative x.
type leakyCube struct{ slope float64 }

func (f leakyCube) Forward(ctx *gotorch.FunctionContext, in tensors) tensors {
	ctx.SaveForBackward(in[0])
	return tensors{f.scale(in[0]).Mul(in[0]).Mul(in[0]).Mul(in[0])}
}

func (f leakyCube) Backward(ctx *gotorch.FunctionContext, grads tensors) tensors {
	x := ctx.SavedTensors()[0]
	return tensors{grads[0].Mul(f.scale(x)).MulScalar(3).Mul(x).Mul(x)}
}

func (f leakyCube) scale(x gotorch.Tensor) gotorch.Tensor {
	return gotorch.WhereScalars(x.LtScalar(0), f.slope, 1.0).To(x.DType())
}

// sumAndProduct has two outputs, and an input that it changes in place.
type sumAndProduct struct{}

func (sumAndProduct) Forward(ctx *gotorch.FunctionContext, in tensors) tensors {
	ctx.SaveForBackward(in[0].Clone(), in[1])
	product := in[0].Mul(in[1])
	in[0].Add_(in[1])
	ctx.MarkDirty(in[0])
	return tensors{in[0], product}
}

func (sumAndProduct) Backward(ctx *gotorch.FunctionContext, grads tensors) tensors {
	saved := ctx.SavedTensors()
	return tensors{grads[0].Add(grads[1].Mul(saved[1])), grads[0].Add(grads[1].Mul(saved[0]))}
}

func grad(y, x gotorch.Tensor, create bool) gotorch.Tensor {
	return gotorch.Grad(tensors{y}, tensors{x}, gotorch.GradOptions{CreateGraph: create})[0]
}

func mlp(x, w1, b1, w2 gotorch.Tensor) gotorch.Tensor { return x.MM(w1).Add(b1).Tanh().MM(w2) }

var cases = map[string]func(in map[string]gotorch.Tensor) tensors{
	"network": func(in map[string]gotorch.Tensor) tensors {
		w1, b1, w2 := in["w1"].RequiresGrad_(), in["b1"].RequiresGrad_(), in["w2"].RequiresGrad_()
		mlp(in["x"], w1, b1, w2).Pow(2).Mean().Backward()
		return tensors{w1.Grad(), b1.Grad(), w2.Grad()}
	},
	"hessian": func(in map[string]gotorch.Tensor) tensors {
		x := in["v"].RequiresGrad_()
		// Rosenbrock's function.
		a, b := x.Narrow(0, 0, 3), x.Narrow(0, 1, 3)
		y := b.Sub(a.Pow(2)).Pow(2).MulScalar(100).Add(a.Neg().AddScalar(1).Pow(2)).Sum()
		first := grad(y, x, true)
		var rows tensors
		for _, g := range first.Unbind() {
			rows = append(rows, gotorch.Grad(tensors{g}, tensors{x}, gotorch.GradOptions{RetainGraph: new(true)})[0])
		}
		return tensors{first.Detach(), gotorch.Stack(rows)}
	},
	"gradient_penalty": func(in map[string]gotorch.Tensor) tensors {
		x, w1 := in["x"].RequiresGrad_(), in["w1"].RequiresGrad_()
		g := grad(mlp(x, w1, in["b1"], in["w2"]).Sum(), x, true)
		g.Pow(2).Sum().Backward()
		return tensors{g.Detach(), w1.Grad()}
	},
	"function": func(in map[string]gotorch.Tensor) tensors {
		x := in["v"].RequiresGrad_()
		y := gotorch.Apply(leakyCube{0.1}, x.MulScalar(2))[0]
		first := grad(y.Sum(), x, true)
		second := grad(first.Sum(), x, true)
		return tensors{y.Detach(), first.Detach(), second.Detach(), grad(second.Sum(), x, false)}
	},
	"in_place_function": func(in map[string]gotorch.Tensor) tensors {
		x, w := in["v"].RequiresGrad_(), in["u"].RequiresGrad_()
		h := x.MulScalar(1)
		out := gotorch.Apply(sumAndProduct{}, h, w)
		h.Mul(out[1]).Sum().Backward()
		return tensors{h.Detach(), out[1].Detach(), x.Grad(), w.Grad()}
	},
	"hooks": func(in map[string]gotorch.Tensor) tensors {
		x := in["v"].RequiresGrad_()
		h := x.Sin()
		h.RetainGrad()
		h.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor { return g.Mul(g) })
		x.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor { return g.Clamp(gotorch.ClampOptions{Min: -0.5, Max: 0.5}) })
		x.RegisterPostAccumulateGradHook(func(x gotorch.Tensor) { x.Grad().AddScalar_(1) })
		h.Exp().Sum().Backward()
		return tensors{h.Grad(), x.Grad()}
	},
	"autocast": func(in map[string]gotorch.Tensor) tensors {
		w1, b1, w2 := in["w1"].RequiresGrad_(), in["b1"].RequiresGrad_(), in["w2"].RequiresGrad_()
		var y gotorch.Tensor
		gotorch.Autocast(gotorch.CPU, gotorch.BFloat16, func() { y = mlp(in["x"], w1, b1, w2) })
		y.To(gotorch.Float32).Sum().Backward()
		return tensors{y.Detach(), w1.Grad(), b1.Grad(), w2.Grad()}
	},
	"complex_numbers": func(in map[string]gotorch.Tensor) tensors {
		z := in["z"].RequiresGrad_()
		z.Mul(z.Conj()).Add(z.Exp()).Abs().Sum().Backward()
		return tensors{z.Grad()}
	},
	"vector_jacobian": func(in map[string]gotorch.Tensor) tensors {
		x := in["x"].RequiresGrad_()
		g := gotorch.Grad(tensors{x.Sigmoid(), x.Sum()}, tensors{x}, gotorch.GradOptions{GradOutputs: tensors{in["gx"], {}}})
		return g
	},
	"sparse_gradient": func(in map[string]gotorch.Tensor) tensors {
		w := in["w1"].RequiresGrad_()
		index := gotorch.FromSlice([]int64{0, 2, 2})
		gotorch.Embedding(w, index, gotorch.EmbeddingOptions{Sparse: true}).Sum().Backward()
		return tensors{w.Grad().ToDense()}
	},
}

func main() {
	out := map[string]gotorch.Tensor{}
	for name, run := range cases {
		in, err := gotorch.LoadTensors(os.Args[1]) // anew for each: some are changed
		if err != nil {
			fail(err)
		}
		for i, t := range run(in) {
			out[fmt.Sprintf("%s.%d", name, i)] = t
		}
	}
	if err := gotorch.SaveTensors(os.Args[2], out); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
