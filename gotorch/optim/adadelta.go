package optim

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// AdadeltaOptimizer is what [Adadelta] makes.
type AdadeltaOptimizer struct {
	Base[AdadeltaGroup, *AdadeltaGroup]
}

// AdadeltaGroup is parameters that are changed by the same rule. Its options may be changed between steps.
type AdadeltaGroup struct {
	Common
	LR          float64  `optim:"lr"`
	Rho         float64  `optim:"rho"`
	Eps         float64  `optim:"eps"`
	WeightDecay float64  `optim:"weight_decay"`
	Maximize    bool     `optim:"maximize"`
	_           struct{} `optim:"foreach=None,capturable=False,differentiable=False"`
}

// AdadeltaOptions are the arguments of [Adadelta] that have defaults.
type AdadeltaOptions struct {
	LR          gotorch.Scalar // the learning rate; default: 1
	Rho         gotorch.Scalar // how slowly the averages follow; default: 0.9
	Eps         gotorch.Scalar // added to averages; default: 1e-6
	WeightDecay gotorch.Scalar // this times a parameter is added to its gradient; default: 0
	Maximize    bool           // climb instead of descending
}

// Adadelta goes as far as it went before, compared with how steep it was: the pace of each element is the ratio
// of two running averages. It panics with a ValueError if an option is out of range, if params is empty, or if a
// parameter is the result of a computation or comes twice.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.Adadelta.html.
func Adadelta(params []gotorch.Tensor, opts ...AdadeltaOptions) *AdadeltaOptimizer {
	o := &AdadeltaOptimizer{}
	o.made("optim.Adadelta", AdadeltaGroup{LR: 1, Rho: 0.9, Eps: 1e-6}, func() { o.AddGroup(params, opts...) })
	return o
}

// AddGroup adds parameters with options of their own and returns their group, whose fields are all of its options.
// An option that is left out is what [Adadelta] was given, as in PyTorch's add_param_group. It panics as [Adadelta] does, but params may be empty.
func (o *AdadeltaOptimizer) AddGroup(params []gotorch.Tensor, opts ...AdadeltaOptions) *AdadeltaGroup {
	return o.addGroup(params, args.Option(opts))
}

func (g *AdadeltaGroup) check(op string) {
	notNegative(op, "learning rate", g.LR)
	if !(g.Rho >= 0 && g.Rho <= 1) {
		panic(args.ValueError(op, "invalid rho value: %v", g.Rho))
	}
	notNegative(op, "epsilon value", g.Eps)
	notNegative(op, "weight_decay value", g.WeightDecay)
}

func (g *AdadeltaGroup) counted() bool { return true }

func (g *AdadeltaGroup) slots() []slot {
	return []slot{{name: "square_avg", begin: zerosLike}, {name: "acc_delta", begin: zerosLike}}
}

func (g *AdadeltaGroup) step(grads []gotorch.Tensor) {
	eachStep(g, grads, g.Maximize, func(p, grad gotorch.Tensor, m *memory) {
		grad = decayed(grad, p, g.WeightDecay)
		square, sum := m.tensors[0], m.tensors[1]
		parts(&square, &sum, &grad)
		scaleOne(square, g.Rho)
		square.AddCMul_(grad, grad, gotorch.AddCMulOptions{Value: 1 - g.Rho})
		delta := sum.AddScalar(g.Eps).Sqrt_()
		delta.Div_(square.AddScalar(g.Eps).Sqrt_()).Mul_(grad)
		scaleOne(sum, g.Rho)
		sum.AddCMul_(delta, delta, gotorch.AddCMulOptions{Value: 1 - g.Rho})
		if p.DType().IsComplex() {
			delta = gotorch.ViewAsComplex(delta) // added as one: the bits are others than those of both parts
		}
		p.Add_(delta, gotorch.AddOptions{Alpha: -g.LR})
	})
}
