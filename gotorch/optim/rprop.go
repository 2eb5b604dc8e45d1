package optim

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// RpropOptimizer is what [Rprop] makes.
type RpropOptimizer struct {
	Base[RpropGroup, *RpropGroup]
}

// RpropGroup is parameters that are changed by the same rule. Its options may be changed between steps.
type RpropGroup struct {
	Common
	LR        float64    `optim:"lr"`
	Etas      [2]float64 `optim:"etas"`
	StepSizes [2]float64 `optim:"step_sizes"`
	Maximize  bool       `optim:"maximize"`
	_         struct{}   `optim:"capturable=False,foreach=None,differentiable=False"`
}

// RpropOptions are the arguments of [Rprop] that have defaults.
type RpropOptions struct {
	LR        gotorch.Scalar // what step sizes begin at; default: 0.01
	Etas      *[2]float64    // what step sizes are multiplied by where the sign changes, and where it stays; default: 0.5, 1.2
	StepSizes *[2]float64    // the least and the greatest; default: 1e-6, 50
	Maximize  bool           // climb instead of descending
}

// Rprop goes by the signs of gradients alone: each element has a step size, which grows as long as the sign
// stays. It panics with a ValueError if an option is out of range, if params is empty, or if a parameter is the
// result of a computation or comes twice.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.Rprop.html.
func Rprop(params []gotorch.Tensor, opts ...RpropOptions) *RpropOptimizer {
	o := &RpropOptimizer{}
	o.made("optim.Rprop", RpropGroup{LR: 0.01, Etas: [2]float64{0.5, 1.2}, StepSizes: [2]float64{1e-6, 50}}, func() { o.AddGroup(params, opts...) })
	return o
}

// AddGroup adds parameters with options of their own and returns their group, whose fields are all of its options.
// An option that is left out is what [Rprop] was given, as in PyTorch's add_param_group. It panics as [Rprop] does, but params may be empty.
func (o *RpropOptimizer) AddGroup(params []gotorch.Tensor, opts ...RpropOptions) *RpropGroup {
	return o.addGroup(params, args.Option(opts))
}

func (g *RpropGroup) check(op string) {
	notNegative(op, "learning rate", g.LR)
	if !(g.Etas[0] > 0 && g.Etas[0] < 1 && g.Etas[1] > 1) {
		panic(args.ValueError(op, "invalid eta values: %v, %v", g.Etas[0], g.Etas[1]))
	}
}

func (g *RpropGroup) counted() bool { return true }

func (g *RpropGroup) slots() []slot {
	return []slot{{name: "prev", begin: zerosLike}, {name: "step_size", begin: func(p gotorch.Tensor) gotorch.Tensor {
		if p.DType().IsComplex() {
			return gotorch.FullLike(p.Grad().Detach(), complex(g.LR, g.LR))
		}
		return gotorch.FullLike(p.Grad().Detach(), g.LR)
	}}}
}

func (g *RpropGroup) step(grads []gotorch.Tensor) {
	eachStep(g, grads, g.Maximize, func(p, grad gotorch.Tensor, m *memory) {
		before, size := m.tensors[0], m.tensors[1]
		parts(&grad, &before, &p, &size)
		sign := grad.Mul(before).Sign()
		up, down, none := sign.GtScalar(0), sign.LtScalar(0), sign.EqScalar(0)
		sign.MaskedFill_(up, g.Etas[1]).MaskedFill_(down, g.Etas[0]).MaskedFill_(none, 1)
		size.Mul_(sign).Clamp_(gotorch.ClampOptions{Min: g.StepSizes[0], Max: g.StepSizes[1]})
		// Where the sign has changed, the last step went too far: wait for one.
		grad = grad.MaskedFill(sign.EqScalar(g.Etas[0]), 0)
		p.AddCMul_(grad.Sign(), size, gotorch.AddCMulOptions{Value: -1})
		before.Copy_(grad)
	})
}
