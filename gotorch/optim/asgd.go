package optim

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// ASGDOptimizer is what [ASGD] makes.
type ASGDOptimizer struct {
	Base[ASGDGroup, *ASGDGroup]
}

// ASGDGroup is parameters that are changed by the same rule. Its options may be changed between steps.
type ASGDGroup struct {
	Common
	LR          float64  `optim:"lr"`
	Lambd       float64  `optim:"lambd"`
	Alpha       float64  `optim:"alpha"`
	T0          float64  `optim:"t0"`
	WeightDecay float64  `optim:"weight_decay"`
	Maximize    bool     `optim:"maximize"`
	_           struct{} `optim:"foreach=None,capturable=False,differentiable=False"`
}

// ASGDOptions are the arguments of [ASGD] that have defaults.
type ASGDOptions struct {
	LR          gotorch.Scalar // the learning rate; default: 0.01
	Lambd       gotorch.Scalar // by how much weights decay; default: 1e-4
	Alpha       gotorch.Scalar // the power by which the learning rate falls; default: 0.75
	T0          gotorch.Scalar // the step from which on averages are taken; default: 1e6
	WeightDecay gotorch.Scalar // this times a parameter is added to its gradient; default: 0
	Maximize    bool           // climb instead of descending
}

// ASGD is stochastic gradient descent that keeps the average of the parameters of all steps, "ax" in its state
// dict. It panics with a ValueError if an option is out of range, if params is empty, or if a parameter is the
// result of a computation or comes twice.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.ASGD.html.
func ASGD(params []gotorch.Tensor, opts ...ASGDOptions) *ASGDOptimizer {
	o := &ASGDOptimizer{}
	o.made("optim.ASGD", ASGDGroup{LR: 0.01, Lambd: 1e-4, Alpha: 0.75, T0: 1e6}, func() { o.AddGroup(params, opts...) })
	return o
}

// AddGroup adds parameters with options of their own and returns their group, whose fields are all of its options.
// An option that is left out is what [ASGD] was given, as in PyTorch's add_param_group. It panics as [ASGD] does, but params may be empty.
func (o *ASGDOptimizer) AddGroup(params []gotorch.Tensor, opts ...ASGDOptions) *ASGDGroup {
	return o.addGroup(params, args.Option(opts))
}

func (g *ASGDGroup) check(op string) {
	notNegative(op, "learning rate", g.LR)
	notNegative(op, "lambd value", g.Lambd)
	notNegative(op, "alpha value", g.Alpha)
	notNegative(op, "weight_decay value", g.WeightDecay)
}

func (g *ASGDGroup) counted() bool { return true }

func (g *ASGDGroup) slots() []slot {
	return []slot{
		{name: "eta", scalar: true, begin: func(gotorch.Tensor) gotorch.Tensor { return scalarOf(g.LR) }},
		{name: "mu", scalar: true, begin: scalarOne}, {name: "ax", begin: zerosLike},
	}
}

func (g *ASGDGroup) step(grads []gotorch.Tensor) {
	eachStep(g, grads, g.Maximize, func(p, grad gotorch.Tensor, m *memory) {
		eta, mu, average, steps := m.tensors[0], m.tensors[1], m.tensors[2], float64(m.steps)
		parts(&grad, &p, &average)
		grad = decayed(grad, p, g.WeightDecay)
		rate := gotorch.Item[float64](eta)
		scaleOne(p, 1-float64(g.Lambd*rate))
		p.Add_(grad, gotorch.AddOptions{Alpha: -rate})
		if gotorch.Item[float64](mu) != 1 {
			average.Add_(p.Sub(average).Mul_(mu))
		} else {
			average.Copy_(p)
		}
		// By way of the default dtype, which may be less than what is remembered.
		eta.Copy_(gotorch.Full([]int64{}, g.LR/power(1+float64(g.Lambd*g.LR*steps), g.Alpha)))
		mu.Copy_(gotorch.Full([]int64{}, 1/max(1, steps-g.T0)))
	})
}
