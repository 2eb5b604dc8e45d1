package optim

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// RMSpropOptimizer is what [RMSprop] makes.
type RMSpropOptimizer struct {
	Base[RMSpropGroup, *RMSpropGroup]
}

// RMSpropGroup is parameters that are changed by the same rule. Its options may be changed between steps.
type RMSpropGroup struct {
	Common
	LR          float64  `optim:"lr"`
	Momentum    float64  `optim:"momentum"`
	Alpha       float64  `optim:"alpha"`
	Eps         float64  `optim:"eps"`
	Centered    bool     `optim:"centered"`
	WeightDecay float64  `optim:"weight_decay"`
	Maximize    bool     `optim:"maximize"`
	_           struct{} `optim:"foreach=None,capturable=False,differentiable=False"`
}

// RMSpropOptions are the arguments of [RMSprop] that have defaults.
type RMSpropOptions struct {
	LR          gotorch.Scalar // the learning rate; default: 0.01
	Alpha       gotorch.Scalar // how slowly the average square follows; default: 0.99
	Eps         gotorch.Scalar // added to the denominator; default: 1e-8
	WeightDecay gotorch.Scalar // this times a parameter is added to its gradient; default: 0
	Momentum    gotorch.Scalar // the part of the last change that is added to each; default: 0
	Centered    bool           // divide by the deviation rather than the root of the average square
	Maximize    bool           // climb instead of descending
}

// RMSprop divides the gradient of each element by the root of its average square. It panics with a ValueError if
// an option is out of range, if params is empty, or if a parameter is the result of a computation or comes twice.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.RMSprop.html.
func RMSprop(params []gotorch.Tensor, opts ...RMSpropOptions) *RMSpropOptimizer {
	o := &RMSpropOptimizer{}
	o.made("optim.RMSprop", RMSpropGroup{LR: 0.01, Alpha: 0.99, Eps: 1e-8}, func() { o.AddGroup(params, opts...) })
	return o
}

// AddGroup adds parameters with options of their own and returns their group, whose fields are all of its options.
// An option that is left out is what [RMSprop] was given, as in PyTorch's add_param_group. It panics as [RMSprop] does, but params may be empty.
func (o *RMSpropOptimizer) AddGroup(params []gotorch.Tensor, opts ...RMSpropOptions) *RMSpropGroup {
	return o.addGroup(params, args.Option(opts))
}

func (g *RMSpropGroup) check(op string) {
	notNegative(op, "learning rate", g.LR)
	notNegative(op, "epsilon value", g.Eps)
	notNegative(op, "momentum value", g.Momentum)
	notNegative(op, "weight_decay value", g.WeightDecay)
	notNegative(op, "alpha value", g.Alpha)
}

func (g *RMSpropGroup) counted() bool { return true }

func (g *RMSpropGroup) slots() []slot {
	return []slot{{name: "square_avg", begin: zerosLike}, {name: "momentum_buffer", begin: zerosLike, unwanted: g.Momentum <= 0}, {name: "grad_avg", begin: zerosLike, unwanted: !g.Centered}}
}

func (g *RMSpropGroup) step(grads []gotorch.Tensor) {
	eachStep(g, grads, g.Maximize, func(p, grad gotorch.Tensor, m *memory) {
		grad = decayed(grad, p, g.WeightDecay)
		square, buffer, average := m.tensors[0], m.tensors[1], m.tensors[2]
		parts(&p, &grad, &square, &buffer, &average)
		scaleOne(square, g.Alpha)
		square.AddCMul_(grad, grad, gotorch.AddCMulOptions{Value: 1 - g.Alpha})
		var root gotorch.Tensor
		if g.Centered {
			average.LerpScalar_(grad, 1-g.Alpha)
			root = square.AddCMul(average, average, gotorch.AddCMulOptions{Value: -1}).Sqrt_()
		} else {
			root = square.Sqrt()
		}
		root.AddScalar_(g.Eps)
		if g.Momentum > 0 {
			scaleOne(buffer, g.Momentum)
			buffer.AddCDiv_(grad, root)
			p.Add_(buffer, gotorch.AddOptions{Alpha: -g.LR})
		} else {
			p.AddCDiv_(grad, root, gotorch.AddCDivOptions{Value: -g.LR})
		}
	})
}
