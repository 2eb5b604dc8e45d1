package optim

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// SparseAdamOptimizer is what [SparseAdam] makes.
type SparseAdamOptimizer struct {
	Base[SparseAdamGroup, *SparseAdamGroup]
}

// SparseAdamGroup is parameters that are changed by the same rule. Its options may be changed between steps.
type SparseAdamGroup struct {
	Common
	LR       float64    `optim:"lr"`
	Betas    [2]float64 `optim:"betas"`
	Eps      float64    `optim:"eps"`
	Maximize bool       `optim:"maximize"`
}

// SparseAdamOptions are the arguments of [SparseAdam] that have defaults.
type SparseAdamOptions struct {
	LR       gotorch.Scalar // the learning rate; default: 1e-3
	Betas    *[2]float64    // how slowly the averages of the gradient and of its square follow; default: 0.9, 0.999
	Eps      gotorch.Scalar // added to the denominator; default: 1e-8
	Maximize bool           // climb instead of descending
}

// SparseAdam is [Adam] for gradients that are sparse, such as those of an embedding with Sparse: only where a
// gradient has elements do the averages and the parameter change. It panics with a ValueError if an option is out
// of range, if params is empty, or if a parameter is sparse or complex, is the result of a computation or comes
// twice; steps panic with a RuntimeError for dense gradients.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.SparseAdam.html.
func SparseAdam(params []gotorch.Tensor, opts ...SparseAdamOptions) *SparseAdamOptimizer {
	o := &SparseAdamOptimizer{}
	o.made("optim.SparseAdam", SparseAdamGroup{LR: 1e-3, Betas: [2]float64{0.9, 0.999}, Eps: 1e-8}, func() { o.AddGroup(params, opts...) })
	return o
}

// AddGroup adds parameters with options of their own and returns their group, whose fields are all of its options.
// An option that is left out is what [SparseAdam] was given, as in PyTorch's add_param_group. It panics as [SparseAdam] does, but params may be empty.
func (o *SparseAdamOptimizer) AddGroup(params []gotorch.Tensor, opts ...SparseAdamOptions) *SparseAdamGroup {
	return o.addGroup(params, args.Option(opts))
}

func (g *SparseAdamGroup) check(op string) {
	isPositive(op, "learning rate", g.LR)
	isPositive(op, "epsilon value", g.Eps)
	areBetas(op, g.Betas)
	for i, p := range g.Params {
		if p.Layout() != gotorch.Strided {
			panic(args.ValueError(op, "SparseAdam requires dense parameter tensors, but parameter %d is of layout %v", i, p.Layout()))
		}
		if p.DType().IsComplex() {
			panic(args.ValueError(op, "SparseAdam does not support complex parameters, as parameter %d", i))
		}
	}
}

func (g *SparseAdamGroup) counted() bool { return true }

// countedInInts: see stateOf.
func (g *SparseAdamGroup) countedInInts() {}

func (g *SparseAdamGroup) refuses(_ int, grad gotorch.Tensor) string {
	if grad.Layout() != gotorch.SparseCOO {
		return "dense gradients are not supported: Adam does with them"
	}
	return ""
}

func (g *SparseAdamGroup) slots() []slot {
	return []slot{{name: "exp_avg", begin: zerosLike}, {name: "exp_avg_sq", begin: zerosLike}}
}

func (g *SparseAdamGroup) step(grads []gotorch.Tensor) {
	eachStep(g, grads, g.Maximize, func(p, grad gotorch.Tensor, m *memory) {
		// The rule is not linear, so each place must be there once.
		grad = grad.Coalesce()
		indices, values := grad.Indices(), grad.Values()
		if values.Numel() == 0 {
			return
		}
		follow := func(average, target gotorch.Tensor, beta float64) gotorch.Tensor {
			old := average.SparseMask(grad).Values()
			change := target.Sub(old)
			scaleOne(change, 1-beta)
			average.Add_(sparseLike(grad, indices, change))
			return change.Add_(old)
		}
		average := follow(m.tensors[0], values, g.Betas[0])
		root := follow(m.tensors[1], values.Pow(2), g.Betas[1]).Sqrt_().AddScalar_(g.Eps)
		steps := float64(m.steps)
		size := g.LR * math.Sqrt(1-power(g.Betas[1], steps)) / (1 - power(g.Betas[0], steps))
		change := average.Div_(root)
		scaleOne(change, -size)
		p.Add_(sparseLike(grad, indices, change))
	})
}
