package optim

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// AdamaxOptimizer is what [Adamax] makes.
type AdamaxOptimizer struct {
	Base[AdamaxGroup, *AdamaxGroup]
}

// AdamaxGroup is parameters that are changed by the same rule. Its options may be changed between steps.
type AdamaxGroup struct {
	Common
	LR          float64    `optim:"lr"`
	Betas       [2]float64 `optim:"betas"`
	Eps         float64    `optim:"eps"`
	WeightDecay float64    `optim:"weight_decay"`
	Maximize    bool       `optim:"maximize"`
	_           struct{}   `optim:"foreach=None,capturable=False,differentiable=False"`
}

// AdamaxOptions are the arguments of [Adamax] that have defaults.
type AdamaxOptions struct {
	LR          gotorch.Scalar // the learning rate; default: 2e-3
	Betas       *[2]float64    // how slowly the average of the gradient and its greatest value follow; default: 0.9, 0.999
	Eps         gotorch.Scalar // added to gradients' absolute values; default: 1e-8
	WeightDecay gotorch.Scalar // this times a parameter is added to its gradient; default: 0
	Maximize    bool           // climb instead of descending
}

// Adamax is [Adam] with the greatest absolute value so far, which fades, in place of the root of the average
// square. It panics with a ValueError if an option is out of range, if params is empty, or if a parameter is the
// result of a computation or comes twice.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.Adamax.html.
func Adamax(params []gotorch.Tensor, opts ...AdamaxOptions) *AdamaxOptimizer {
	o := &AdamaxOptimizer{}
	o.made("optim.Adamax", AdamaxGroup{LR: 2e-3, Betas: [2]float64{0.9, 0.999}, Eps: 1e-8}, func() { o.AddGroup(params, opts...) })
	return o
}

// AddGroup adds parameters with options of their own and returns their group, whose fields are all of its options.
// An option that is left out is what [Adamax] was given, as in PyTorch's add_param_group. It panics as [Adamax] does, but params may be empty.
func (o *AdamaxOptimizer) AddGroup(params []gotorch.Tensor, opts ...AdamaxOptions) *AdamaxGroup {
	return o.addGroup(params, args.Option(opts))
}

func (g *AdamaxGroup) check(op string) {
	notNegative(op, "learning rate", g.LR)
	notNegative(op, "epsilon value", g.Eps)
	areBetas(op, g.Betas)
	notNegative(op, "weight_decay value", g.WeightDecay)
}

func (g *AdamaxGroup) counted() bool { return true }

func (g *AdamaxGroup) slots() []slot {
	return []slot{{name: "exp_avg", begin: zerosLike}, {name: "exp_inf", begin: zerosLike}}
}

func (g *AdamaxGroup) step(grads []gotorch.Tensor) {
	eachStep(g, grads, g.Maximize, func(p, grad gotorch.Tensor, m *memory) {
		grad = decayed(grad, p, g.WeightDecay)
		average, greatest := m.tensors[0], m.tensors[1]
		parts(&p, &grad, &average, &greatest)
		average.LerpScalar_(grad, 1-g.Betas[0])
		scaleOne(greatest, g.Betas[1])
		gotorch.MaximumOut(greatest, grad.Abs().AddScalar_(g.Eps), greatest)
		p.AddCDiv_(average, greatest, gotorch.AddCDivOptions{Value: -(g.LR / (1 - power(g.Betas[0], float64(m.steps))))})
	})
}

// NAdamOptimizer is what [NAdam] makes.
type NAdamOptimizer struct {
	Base[NAdamGroup, *NAdamGroup]
}

// NAdamGroup is parameters that are changed by the same rule. Its options may be changed between steps.
type NAdamGroup struct {
	Common
	LR                   float64    `optim:"lr"`
	Betas                [2]float64 `optim:"betas"`
	Eps                  float64    `optim:"eps"`
	WeightDecay          float64    `optim:"weight_decay"`
	MomentumDecay        float64    `optim:"momentum_decay"`
	DecoupledWeightDecay bool       `optim:"decoupled_weight_decay"`
	Maximize             bool       `optim:"maximize"`
	_                    struct{}   `optim:"foreach=None,capturable=False,differentiable=False"`
}

// NAdamOptions are the arguments of [NAdam] that have defaults.
type NAdamOptions struct {
	LR                   gotorch.Scalar // the learning rate; default: 2e-3
	Betas                *[2]float64    // how slowly the averages of gradient and square follow; default: 0.9, 0.999
	Eps                  gotorch.Scalar // added to the denominator; default: 1e-8
	WeightDecay          gotorch.Scalar // this times a parameter is added to its gradient; default: 0
	MomentumDecay        gotorch.Scalar // default: 4e-3
	DecoupledWeightDecay bool           // make weights smaller by themselves, as [AdamW] does
	Maximize             bool           // climb instead of descending
}

// NAdam is [Adam] with Nesterov momentum. It panics with a ValueError if an option is out of range, if params is
// empty, or if a parameter is the result of a computation or comes twice.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.NAdam.html.
func NAdam(params []gotorch.Tensor, opts ...NAdamOptions) *NAdamOptimizer {
	o := &NAdamOptimizer{}
	o.made("optim.NAdam", NAdamGroup{LR: 2e-3, Betas: [2]float64{0.9, 0.999}, Eps: 1e-8, MomentumDecay: 4e-3}, func() { o.AddGroup(params, opts...) })
	return o
}

// AddGroup adds parameters with options of their own and returns their group, whose fields are all of its options.
// An option that is left out is what [NAdam] was given, as in PyTorch's add_param_group. It panics as [NAdam] does, but params may be empty.
func (o *NAdamOptimizer) AddGroup(params []gotorch.Tensor, opts ...NAdamOptions) *NAdamGroup {
	return o.addGroup(params, args.Option(opts))
}

func (g *NAdamGroup) check(op string) {
	notNegative(op, "learning rate", g.LR)
	notNegative(op, "epsilon value", g.Eps)
	areBetas(op, g.Betas)
	notNegative(op, "weight_decay value", g.WeightDecay)
	notNegative(op, "momentum_decay value", g.MomentumDecay)
}

func (g *NAdamGroup) counted() bool { return true }

func (g *NAdamGroup) slots() []slot {
	return []slot{{name: "mu_product", begin: scalarOne, scalar: true}, {name: "exp_avg", begin: zerosLike}, {name: "exp_avg_sq", begin: zerosLike}}
}

func (g *NAdamGroup) step(grads []gotorch.Tensor) {
	eachStep(g, grads, g.Maximize, func(p, grad gotorch.Tensor, m *memory) {
		product, average, square, steps := m.tensors[0], m.tensors[1], m.tensors[2], float64(m.steps)
		parts(&p, &grad, &average, &square)
		if g.WeightDecay != 0 {
			if g.DecoupledWeightDecay {
				scaleOne(p, 1-float64(g.LR*g.WeightDecay))
			} else {
				grad = decayed(grad, p, g.WeightDecay)
			}
		}
		mu := float64(g.Betas[0] * (1 - float64(0.5*power(0.96, steps*g.MomentumDecay))))
		next := float64(g.Betas[0] * (1 - float64(0.5*power(0.96, (steps+1)*g.MomentumDecay))))
		scaleOne(product, mu)
		average.LerpScalar_(grad, 1-g.Betas[0])
		scaleOne(square, g.Betas[1])
		square.AddCMul_(grad, grad, gotorch.AddCMulOptions{Value: 1 - g.Betas[1]})
		root := square.DivScalar(1 - power(g.Betas[1], steps)).Sqrt().AddScalar_(g.Eps)
		sofar := gotorch.Item[float64](product)
		p.AddCDiv_(grad, root, gotorch.AddCDivOptions{Value: -g.LR * (1 - mu) / (1 - sofar)})
		p.AddCDiv_(average, root, gotorch.AddCDivOptions{Value: (-g.LR * next) / (1 - float64(sofar*next))})
	})
}

// RAdamOptimizer is what [RAdam] makes.
type RAdamOptimizer struct {
	Base[RAdamGroup, *RAdamGroup]
}

// RAdamGroup is parameters that are changed by the same rule. Its options may be changed between steps.
type RAdamGroup struct {
	Common
	LR                   float64    `optim:"lr"`
	Betas                [2]float64 `optim:"betas"`
	Eps                  float64    `optim:"eps"`
	WeightDecay          float64    `optim:"weight_decay"`
	Maximize             bool       `optim:"maximize"`
	DecoupledWeightDecay bool       `optim:"decoupled_weight_decay"`
	_                    struct{}   `optim:"foreach=None,capturable=False,differentiable=False"`
}

// RAdamOptions are the arguments of [RAdam] that have defaults.
type RAdamOptions struct {
	LR                   gotorch.Scalar // the learning rate; default: 1e-3
	Betas                *[2]float64    // how slowly the averages of gradient and square follow; default: 0.9, 0.999
	Eps                  gotorch.Scalar // added to the denominator; default: 1e-8
	WeightDecay          gotorch.Scalar // this times a parameter is added to its gradient; default: 0
	DecoupledWeightDecay bool           // make weights smaller by themselves, as [AdamW] does
	Maximize             bool           // climb instead of descending
}

// RAdam is [Adam] that does without the average square until there are enough steps to trust it. It panics with a
// ValueError if an option is out of range, if params is empty, or if a parameter is the result of a computation or
// comes twice.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.RAdam.html.
func RAdam(params []gotorch.Tensor, opts ...RAdamOptions) *RAdamOptimizer {
	o := &RAdamOptimizer{}
	o.made("optim.RAdam", RAdamGroup{LR: 1e-3, Betas: [2]float64{0.9, 0.999}, Eps: 1e-8}, func() { o.AddGroup(params, opts...) })
	return o
}

// AddGroup adds parameters with options of their own and returns their group, whose fields are all of its options.
// An option that is left out is what [RAdam] was given, as in PyTorch's add_param_group. It panics as [RAdam] does, but params may be empty.
func (o *RAdamOptimizer) AddGroup(params []gotorch.Tensor, opts ...RAdamOptions) *RAdamGroup {
	return o.addGroup(params, args.Option(opts))
}

func (g *RAdamGroup) check(op string) {
	notNegative(op, "learning rate", g.LR)
	notNegative(op, "epsilon value", g.Eps)
	areBetas(op, g.Betas)
	notNegative(op, "weight_decay value", g.WeightDecay)
}

func (g *RAdamGroup) counted() bool { return true }

func (g *RAdamGroup) slots() []slot {
	return []slot{{name: "exp_avg", begin: zerosLike}, {name: "exp_avg_sq", begin: zerosLike}}
}

func (g *RAdamGroup) step(grads []gotorch.Tensor) {
	eachStep(g, grads, g.Maximize, func(p, grad gotorch.Tensor, m *memory) {
		average, square, steps := m.tensors[0], m.tensors[1], float64(m.steps)
		parts(&p, &grad, &average, &square)
		if g.WeightDecay != 0 {
			if g.DecoupledWeightDecay {
				scaleOne(p, 1-float64(g.LR*g.WeightDecay))
			} else {
				grad = decayed(grad, p, g.WeightDecay)
			}
		}
		average.LerpScalar_(grad, 1-g.Betas[0])
		scaleOne(square, g.Betas[1])
		square.AddCMul_(grad, grad, gotorch.AddCMulOptions{Value: 1 - g.Betas[1]})
		faded := power(g.Betas[1], steps)
		correction := 1 - faded
		update := average.DivScalar(1 - power(g.Betas[0], steps)).MulScalar(g.LR)
		longest := 2/(1-g.Betas[1]) - 1
		length := longest - 2*steps*faded/correction // of the average square
		if length > 5 {
			rect := power((length-4)*(length-2)*longest/((longest-4)*(longest-2)*length), 0.5)
			adaptive := square.Sqrt().AddScalar_(g.Eps).Reciprocal().MulScalar(power(correction, 0.5))
			update = update.Mul(adaptive).MulScalar(rect)
		}
		p.Add_(update, gotorch.AddOptions{Alpha: -1.0})
	})
}
