package optim

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// AdafactorOptimizer is what [Adafactor] makes.
type AdafactorOptimizer struct {
	Base[AdafactorGroup, *AdafactorGroup]
}

// AdafactorGroup is parameters that are changed by the same rule. Its options may be changed between steps.
type AdafactorGroup struct {
	Common
	LR          float64           `optim:"lr"`
	Beta2Decay  float64           `optim:"beta2_decay"`
	Eps         [2]gotorch.Scalar `optim:"eps"`
	D           float64           `optim:"d"`
	WeightDecay float64           `optim:"weight_decay"`
	Maximize    bool              `optim:"maximize"`
	_           struct{}          `optim:"foreach=None"`
}

// AdafactorOptions are the arguments of [Adafactor] that have defaults.
type AdafactorOptions struct {
	LR          gotorch.Scalar    // the greatest step in relation to a parameter, and the factor of weight decay; default: 0.01
	Beta2Decay  gotorch.Scalar    // the power of the step's number that average squares follow by; default: -0.8
	Eps         [2]gotorch.Scalar // the least root of an average square, and the least root of a parameter's; default: the dtype's epsilon, 1e-3
	D           gotorch.Scalar    // how great the root of an update's average square may be; default: 1
	WeightDecay gotorch.Scalar    // LR times this is the part of a parameter that each step takes away; default: 0
	Maximize    bool              // climb instead of descending
}

// Adafactor remembers average squares of gradients by rows and by columns, which is little memory for large
// matrices, and takes steps in relation to how large a parameter is. It panics with a ValueError if an option is
// out of range, if params is empty, or if a parameter is the result of a computation or comes twice; steps panic
// with a RuntimeError for complex parameters.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.Adafactor.html.
func Adafactor(params []gotorch.Tensor, opts ...AdafactorOptions) *AdafactorOptimizer {
	o := &AdafactorOptimizer{}
	o.made("optim.Adafactor", AdafactorGroup{LR: 0.01, Beta2Decay: -0.8, Eps: [2]gotorch.Scalar{nil, 1e-3}, D: 1}, func() { o.AddGroup(params, opts...) })
	return o
}

// AddGroup adds parameters with options of their own and returns their group, whose fields are all of its options.
// An option that is left out is what [Adafactor] was given, as in PyTorch's add_param_group. It panics as [Adafactor] does, but params may be empty.
func (o *AdafactorOptimizer) AddGroup(params []gotorch.Tensor, opts ...AdafactorOptions) *AdafactorGroup {
	return o.addGroup(params, args.Option(opts))
}

func (g *AdafactorGroup) check(op string) {
	notNegative(op, "learning rate", g.LR)
	if !(g.Beta2Decay <= 0) {
		panic(args.ValueError(op, "invalid beta2_decay, which is not to be above 0: %v", g.Beta2Decay))
	}
	notNegative(op, "epsilon value at index 0", args.Float(op, "Eps", g.Eps[0], 0))
	notNegative(op, "epsilon value at index 1", args.Float(op, "Eps", g.Eps[1], 1e-3))
	if !(g.D >= 1) {
		panic(args.ValueError(op, "invalid clipping threshold d, which is not to be below 1: %v", g.D))
	}
	notNegative(op, "weight_decay value", g.WeightDecay)
}

func (g *AdafactorGroup) counted() bool { return true }

func (g *AdafactorGroup) slots() []slot {
	return []slot{averaged("row_var", -1), averaged("col_var", -2), averaged("variance", 0)}
}

// averaged is a slot of average squares: over a dimension of parameters with at least two of them, or (0) of each
// element of the others.
func averaged(name string, dim int) slot {
	shape := func(p gotorch.Tensor) ([]int64, bool) {
		size := p.Shape()
		if (len(size) > 1) != (dim < 0) {
			return nil, false
		}
		if dim < 0 {
			size[len(size)+dim] = 1
		}
		return size, true
	}
	return slot{name: name, shape: shape, begin: func(p gotorch.Tensor) (t gotorch.Tensor) {
		if size, has := shape(p); has {
			t = p.Detach().NewZeros(size)
		}
		return t
	}}
}

func (g *AdafactorGroup) refuses(i int, grad gotorch.Tensor) string {
	switch {
	case g.Params[i].DType().IsComplex():
		return "complex parameters are not supported"
	case grad.Layout() != gotorch.Strided:
		return sparseUnsupported
	}
	return ""
}

func (g *AdafactorGroup) step(grads []gotorch.Tensor) {
	const op = "optim.Adafactor.Step"
	floor, least := args.FloatPointer(op, "Eps", g.Eps[0]), args.Float(op, "Eps", g.Eps[1], 1e-3)
	eachStep(g, grads, g.Maximize, func(p, grad gotorch.Tensor, m *memory) {
		if floor == nil {
			floor = new(epsilon(p.DType())) // of the first one's dtype, for all: so PyTorch does
		}
		steps := float64(m.steps)
		follow := power(steps, g.Beta2Decay)
		alpha := greater(least, rootMeanSquare(p, 1)) * min(g.LR, 1/power(steps, 0.5))
		if g.WeightDecay != 0 {
			scaleOne(p, 1-float64(g.LR*g.WeightDecay))
		}
		rows, columns, elements := m.tensors[0], m.tensors[1], m.tensors[2]
		var update gotorch.Tensor
		if elements.Defined() {
			elements.LerpScalar_(grad.Mul(grad), follow)
			update = elements.Clone()
		} else {
			rows.LerpScalar_(meanSquare(grad, -1), follow)
			columns.LerpScalar_(meanSquare(grad, -2), follow)
			whole := rows.MeanDim([]int64{-2}, gotorch.MeanDimOptions{KeepDim: true})
			update = rows.MatMul(columns).Div_(whole.Clamp_(gotorch.ClampOptions{Min: *floor}))
		}
		update.Clamp_(gotorch.ClampOptions{Min: *floor * *floor}).Rsqrt_().Mul_(grad)
		p.Add_(update, gotorch.AddOptions{Alpha: -alpha / greater(1, rootMeanSquare(update, g.D))})
	})
}

// meanSquare returns the mean of squares over a dimension, which it keeps.
func meanSquare(grad gotorch.Tensor, dim int64) gotorch.Tensor {
	norm := gotorch.LinalgVectorNorm(grad, gotorch.LinalgVectorNormOptions{Ord: 2.0, Dim: []int64{dim}, KeepDim: true})
	return norm.Square_().DivScalar_(grad.Size(dim))
}

// rootMeanSquare returns the root of the mean of squares, divided by d. That of no elements is 0: there is then
// nothing to change, where PyTorch divides by zero.
func rootMeanSquare(t gotorch.Tensor, d float64) float64 {
	if t.Numel() == 0 {
		return 0
	}
	norm := gotorch.Item[float64](gotorch.LinalgVectorNorm(t, gotorch.LinalgVectorNormOptions{Ord: 2.0}))
	return norm / (power(float64(t.Numel()), 0.5) * d)
}

// greater is Python's max: x where y is not a number.
func greater(x, y float64) float64 {
	if y > x {
		return y
	}
	return x
}

// epsilon returns what separates 1 from the next number of a dtype.
func epsilon(d gotorch.DType) float64 {
	digits := map[gotorch.DType]int{gotorch.Float64: 52, gotorch.Float32: 23, gotorch.Float16: 10, gotorch.BFloat16: 7}
	return math.Ldexp(1, -digits[d])
}
