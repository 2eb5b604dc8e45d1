package optim

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// AdagradOptimizer is what [Adagrad] makes.
type AdagradOptimizer struct {
	Base[AdagradGroup, *AdagradGroup]
}

// AdagradGroup is parameters that are changed by the same rule. Its options may be changed between steps.
type AdagradGroup struct {
	Common
	LR                      float64  `optim:"lr"`
	LRDecay                 float64  `optim:"lr_decay"`
	Eps                     float64  `optim:"eps"`
	WeightDecay             float64  `optim:"weight_decay"`
	InitialAccumulatorValue float64  `optim:"initial_accumulator_value"`
	Maximize                bool     `optim:"maximize"`
	_                       struct{} `optim:"foreach=None,differentiable=False,fused=None"`
}

// AdagradOptions are the arguments of [Adagrad] that have defaults.
type AdagradOptions struct {
	LR                      gotorch.Scalar // the learning rate; default: 0.01
	LRDecay                 gotorch.Scalar // by how much it falls with each step; default: 0
	WeightDecay             gotorch.Scalar // this times a parameter is added to its gradient; default: 0
	InitialAccumulatorValue gotorch.Scalar // what sums of squares begin at; default: 0
	Eps                     gotorch.Scalar // added to the denominator; default: 1e-10
	Maximize                bool           // climb instead of descending
}

// Adagrad divides the gradient of each element by the root of the sum of its squares so far. Gradients may be
// sparse. It panics with a ValueError if an option is out of range, if params is empty, or if a parameter is the
// result of a computation or comes twice.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.Adagrad.html.
func Adagrad(params []gotorch.Tensor, opts ...AdagradOptions) *AdagradOptimizer {
	o := &AdagradOptimizer{}
	o.made("optim.Adagrad", AdagradGroup{LR: 0.01, Eps: 1e-10}, func() { o.AddGroup(params, opts...) })
	return o
}

// AddGroup adds parameters with options of their own and returns their group, whose fields are all of its options.
// An option that is left out is what [Adagrad] was given, as in PyTorch's add_param_group. It panics as [Adagrad] does, but params may be empty.
func (o *AdagradOptimizer) AddGroup(params []gotorch.Tensor, opts ...AdagradOptions) *AdagradGroup {
	g := o.addGroup(params, args.Option(opts))
	// PyTorch wants them in state dicts of all parameters, also of those that have had no gradient yet.
	for i := range g.Params {
		g.begin(i, g.slots())
	}
	return g
}

func (g *AdagradGroup) check(op string) {
	notNegative(op, "learning rate", g.LR)
	notNegative(op, "lr_decay value", g.LRDecay)
	notNegative(op, "weight_decay value", g.WeightDecay)
	notNegative(op, "initial_accumulator_value value", g.InitialAccumulatorValue)
	notNegative(op, "epsilon value", g.Eps)
}

func (g *AdagradGroup) counted() bool { return true }

func (g *AdagradGroup) refuses(_ int, grad gotorch.Tensor) string {
	switch layout := grad.Layout(); {
	case layout != gotorch.Strided && layout != gotorch.SparseCOO:
		return fmt.Sprintf("gradients of layout %v are not supported", layout)
	case layout != gotorch.Strided && g.WeightDecay != 0:
		return "the option weight_decay is not compatible with sparse gradients"
	}
	return ""
}

func (g *AdagradGroup) slots() []slot {
	return []slot{{name: "sum", begin: func(p gotorch.Tensor) gotorch.Tensor {
		if p.DType().IsComplex() {
			return gotorch.FullLike(p.Detach(), complex(g.InitialAccumulatorValue, g.InitialAccumulatorValue))
		}
		return gotorch.FullLike(p.Detach(), g.InitialAccumulatorValue)
	}}}
}

func (g *AdagradGroup) step(grads []gotorch.Tensor) {
	eachStep(g, grads, g.Maximize, func(p, grad gotorch.Tensor, m *memory) {
		sum, lr := m.tensors[0], g.LR/(1+float64(float64(m.steps-1)*g.LRDecay))
		if grad.Layout() == gotorch.SparseCOO {
			// The rule is not linear, so each place must be there once.
			grad = grad.Coalesce()
			indices, values := grad.Indices(), grad.Values()
			sum.Add_(sparseLike(grad, indices, values.Pow(2)))
			root := sum.SparseMask(grad).Values().Sqrt_().AddScalar_(g.Eps)
			p.Add_(sparseLike(grad, indices, values.Div(root)), gotorch.AddOptions{Alpha: -lr})
			return
		}
		grad = decayed(grad, p, g.WeightDecay)
		parts(&grad, &sum, &p)
		sum.AddCMul_(grad, grad, gotorch.AddCMulOptions{Value: 1})
		p.AddCDiv_(grad, sum.Sqrt().AddScalar_(g.Eps), gotorch.AddCDivOptions{Value: -lr})
	})
}

// sparseLike returns a sparse tensor of the size of like, with other values.
func sparseLike(like, indices, values gotorch.Tensor) gotorch.Tensor {
	return gotorch.SparseCOOTensor(indices, values, like.Shape())
}
