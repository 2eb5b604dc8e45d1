package optim

import (
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/libm"
)

// AdamOptimizer is what [Adam] and [AdamW] make.
type AdamOptimizer struct {
	Base[AdamGroup, *AdamGroup]
}

// AdamGroup is parameters that are changed by the same rule. Its options may be changed between steps.
type AdamGroup struct {
	Common
	LR          float64    `optim:"lr"`
	Betas       [2]float64 `optim:"betas"`
	Eps         float64    `optim:"eps"`
	WeightDecay float64    `optim:"weight_decay"`
	AMSGrad     bool       `optim:"amsgrad"`
	Maximize    bool       `optim:"maximize"`
	Fused       bool       `optim:"fused|None"`
	// DecoupledWeightDecay makes weights smaller by themselves, rather than by way of the gradient:
	// what AdamW differs from Adam in.
	DecoupledWeightDecay bool     `optim:"decoupled_weight_decay"`
	_                    struct{} `optim:"foreach=None,capturable=False,differentiable=False"`
}

// AdamOptions are the arguments of [Adam] and [AdamW] that have defaults.
type AdamOptions struct {
	LR    gotorch.Scalar // the learning rate; default: 1e-3
	Betas *[2]float64    // how slowly the averages of gradient and square follow; default: 0.9, 0.999
	Eps   gotorch.Scalar // added to the denominator; default: 1e-8
	// WeightDecay times a parameter is added to its gradient. In AdamW the learning rate times this, by default 0.01, is the
	// part of a parameter that each step takes away.
	WeightDecay gotorch.Scalar // default: 0
	AMSGrad     bool           // divide by the greatest average of squares so far
	Maximize    bool           // climb instead of descending
	Fused       bool           // use a kernel that does a whole step at once
}

// AdamWOptions are the arguments of [AdamW] that have defaults.
type AdamWOptions = AdamOptions

// Adam follows the average gradient, each element at a pace that its average square sets. It panics
// with a ValueError if an option is out of range, if params is empty, or if a parameter is the result
// of a computation or comes twice.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html.
func Adam(params []gotorch.Tensor, opts ...AdamOptions) *AdamOptimizer {
	o := &AdamOptimizer{}
	o.made("optim.Adam", AdamGroup{LR: 1e-3, Betas: [2]float64{0.9, 0.999}, Eps: 1e-8}, func() { o.AddGroup(params, opts...) })
	return o
}

// AdamW is [Adam] with weight decay that is no part of the gradient. It panics as Adam does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html.
func AdamW(params []gotorch.Tensor, opts ...AdamWOptions) *AdamOptimizer {
	o := &AdamOptimizer{}
	o.made("optim.AdamW", AdamGroup{LR: 1e-3, Betas: [2]float64{0.9, 0.999}, Eps: 1e-8, WeightDecay: 0.01, DecoupledWeightDecay: true},
		func() { o.AddGroup(params, opts...) })
	return o
}

// AddGroup adds parameters with options of their own and returns their group, whose fields are all of its options.
// An option that is left out is what [Adam] or [AdamW] was given, as in PyTorch's add_param_group. It panics as they do, but params may be empty.
func (o *AdamOptimizer) AddGroup(params []gotorch.Tensor, opts ...AdamOptions) *AdamGroup {
	return o.addGroup(params, args.Option(opts))
}

func (g *AdamGroup) check(op string) {
	notNegative(op, "learning rate", g.LR)
	notNegative(op, "epsilon value", g.Eps)
	notNegative(op, "weight_decay value", g.WeightDecay)
	areBetas(op, g.Betas)
}

// The averages of the gradient and of its square, and the greatest that the latter was.
const (
	average = iota
	square
	greatest
)

func (g *AdamGroup) slots() []slot {
	return []slot{
		average: {name: "exp_avg", begin: zerosLike}, square: {name: "exp_avg_sq", begin: zerosLike},
		greatest: {name: "max_exp_avg_sq", begin: zerosLike, unwanted: !g.AMSGrad},
	}
}

func (g *AdamGroup) counted() bool { return true }

// AdamW stays what it is, and Adam becomes it, as in PyTorch. Older files do not say it.
func (g *AdamGroup) merge(old *AdamGroup) {
	g.DecoupledWeightDecay = g.DecoupledWeightDecay || old.DecoupledWeightDecay
}

// adamLists are parameters that have taken the same number of steps, and what belongs to them.
type adamLists struct {
	steps                                                   int64
	params, grads, averages, squares, greatest, stepsTensor []gotorch.Tensor
}

func (g *AdamGroup) refuses(i int, grad gotorch.Tensor) string {
	switch {
	case grad.Layout() != gotorch.Strided:
		return sparseUnsupported
	case g.Fused:
		return fusedRefuses(g.Params[i])
	}
	return ""
}

func (g *AdamGroup) step(grads []gotorch.Tensor) {
	var all []*adamLists // seldom more than one
	slots := g.slots()
	for i, p := range g.Params {
		grad := grads[i]
		if !grad.Defined() {
			continue
		}
		g.prepare(&g.memories[i], p)
		m := g.begun(i, slots)
		var lists *adamLists
		for _, l := range all {
			if l.steps == m.steps {
				lists = l
			}
		}
		if lists == nil {
			n := len(g.Params)
			lists = &adamLists{steps: m.steps, params: make([]gotorch.Tensor, 0, n), grads: make([]gotorch.Tensor, 0, n),
				averages: make([]gotorch.Tensor, 0, n), squares: make([]gotorch.Tensor, 0, n)}
			all = append(all, lists)
		}
		lists.params, lists.grads = append(lists.params, p), append(lists.grads, grad)
		lists.averages, lists.squares = append(lists.averages, m.tensors[average]), append(lists.squares, m.tensors[square])
		if g.AMSGrad {
			lists.greatest = append(lists.greatest, m.tensors[greatest])
		}
		if g.Fused {
			lists.stepsTensor = append(lists.stepsTensor, m.stepsTensor)
		}
	}
	for _, lists := range all {
		if g.Fused {
			g.fusedStep(lists)
		} else {
			g.foreachStep(lists)
		}
	}
}

// prepare makes the number of steps what the kernel needs, before another one is counted.
func (g *AdamGroup) prepare(m *memory, p gotorch.Tensor) {
	if !g.Fused {
		m.stepsTensor = gotorch.Tensor{}
	} else if !m.stepsTensor.Defined() {
		layOut(p, m.tensors) // which another kernel, or another program, has made
		m.stepsTensor = remember(func() gotorch.Tensor { return gotorch.FromScalar(float32(m.steps)).To(p.Device()) })
	}
}

func (g *AdamGroup) foreachStep(l *adamLists) {
	ours := false // whether grads may be overwritten
	if g.Maximize {
		l.grads, ours = gotorch.ForeachNeg(l.grads), true
	}
	switch {
	case g.WeightDecay == 0:
	case g.DecoupledWeightDecay:
		scale(l.params, 1-float64(g.LR*g.WeightDecay))
	default:
		l.grads = addTo(l.grads, &ours, l.params, g.WeightDecay)
	}
	if slices.ContainsFunc(l.params, func(p gotorch.Tensor) bool { return p.DType().IsComplex() }) {
		for _, list := range [][]gotorch.Tensor{l.params, l.grads, l.averages, l.squares, l.greatest} {
			asReal(list)
		}
	}
	gotorch.ForeachLerpScalar_(l.averages, l.grads, 1-g.Betas[0])
	scale(l.squares, g.Betas[1])
	gotorch.ForeachAddCMulScalar_(l.squares, l.grads, l.grads, gotorch.ForeachAddCMulScalarOptions{Value: 1 - g.Betas[1]})
	squares := l.squares
	if g.AMSGrad {
		gotorch.ForeachMaximumList_(l.greatest, l.squares)
		squares = l.greatest
	}
	// The averages begin at zero and are that much too small at first.
	steps := float64(l.steps)
	stepSize := g.LR / (1 - power(g.Betas[0], steps))
	denominators := gotorch.ForeachSqrt(squares)
	gotorch.ForeachDivScalar_(denominators, power(1-power(g.Betas[1], steps), 0.5))
	gotorch.ForeachAddScalar_(denominators, g.Eps)
	gotorch.ForeachAddCDivScalar_(l.params, l.averages, denominators, gotorch.ForeachAddCDivScalarOptions{Value: -stepSize})
}

func (g *AdamGroup) fusedStep(l *adamLists) {
	gotorch.ForeachAddScalar_(l.stepsTensor, 1)
	l.grads = laidOutAs(l.params, l.grads)
	if g.DecoupledWeightDecay {
		gotorch.FusedAdamW_(l.params, l.grads, l.averages, l.squares, l.greatest, l.stepsTensor,
			g.LR, g.Betas[0], g.Betas[1], g.WeightDecay, g.Eps, g.AMSGrad, g.Maximize)
	} else {
		gotorch.FusedAdam_(l.params, l.grads, l.averages, l.squares, l.greatest, l.stepsTensor,
			g.LR, g.Betas[0], g.Betas[1], g.WeightDecay, g.Eps, g.AMSGrad, g.Maximize)
	}
}

// asReal replaces complex tensors by views of their parts, which are changed each for itself.
func asReal(list []gotorch.Tensor) {
	for i, t := range list {
		if t.DType().IsComplex() {
			list[i] = gotorch.ViewAsReal(t)
		}
	}
}

// power returns x to the power y as Python does: math.Pow differs from the C library's in the last bit.
func power(x, y float64) float64 { return libm.Pow(x, y) }
