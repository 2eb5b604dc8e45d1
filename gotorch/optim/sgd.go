package optim

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// SGDOptimizer is what [SGD] makes.
type SGDOptimizer struct{ Base[SGDGroup, *SGDGroup] }

// SGDGroup is parameters that are changed by the same rule. Its options may be changed between steps.
type SGDGroup struct {
	Common
	LR          float64  `optim:"lr"`
	Momentum    float64  `optim:"momentum"`
	Dampening   float64  `optim:"dampening"`
	WeightDecay float64  `optim:"weight_decay"`
	Nesterov    bool     `optim:"nesterov"`
	Maximize    bool     `optim:"maximize"`
	Fused       bool     `optim:"fused|None"`
	_           struct{} `optim:"foreach=None,differentiable=False"`
}

// SGDOptions are the arguments of [SGD] that have defaults.
type SGDOptions struct {
	LR          gotorch.Scalar // the learning rate; default: 1e-3
	Momentum    gotorch.Scalar // the part of the last change that is added to each; default: 0
	Dampening   gotorch.Scalar // of the momentum; default: 0
	WeightDecay gotorch.Scalar // this times a parameter is added to its gradient; default: 0
	Nesterov    bool           // look ahead along the momentum
	Maximize    bool           // climb instead of descending
	Fused       bool           // use a kernel that does a whole step at once
}

// SGD is stochastic gradient descent, with momentum if asked. It panics with a ValueError if an option
// is out of range, if params is empty, or if a parameter is the result of a computation or comes twice.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html.
func SGD(params []gotorch.Tensor, opts ...SGDOptions) *SGDOptimizer {
	o := &SGDOptimizer{}
	o.made("optim.SGD", SGDGroup{LR: 1e-3}, func() { o.AddGroup(params, opts...) })
	return o
}

// AddGroup adds parameters with options of their own and returns their group, whose fields are all of its options.
// An option that is left out is what [SGD] was given, as in PyTorch's add_param_group. It panics as [SGD] does, but params may be empty.
func (o *SGDOptimizer) AddGroup(params []gotorch.Tensor, opts ...SGDOptions) *SGDGroup {
	opt := args.Option(opts)
	momentum, dampening := args.Float(o.op, "Momentum", opt.Momentum, o.defaults.Momentum), args.Float(o.op, "Dampening", opt.Dampening, o.defaults.Dampening)
	if opt.Nesterov && (momentum == 0 || dampening != 0) {
		panic(args.ValueError(o.op, "Nesterov momentum requires a momentum and zero dampening"))
	}
	return o.addGroup(params, opt)
}

func (g *SGDGroup) check(op string) {
	notNegative(op, "learning rate", g.LR)
	notNegative(op, "momentum", g.Momentum)
	notNegative(op, "weight_decay value", g.WeightDecay)
}

// The momentum begins as a copy of the first gradient.
func (g *SGDGroup) slots() []slot { return []slot{{name: "momentum_buffer"}} }

func (g *SGDGroup) counted() bool { return false }

// buffer is where the momentum of the i-th parameter is.
func (g *SGDGroup) buffer(i int) *gotorch.Tensor {
	m := &g.memories[i]
	if m.tensors == nil {
		m.tensors = make([]gotorch.Tensor, 1)
	}
	return &m.tensors[0]
}

func (g *SGDGroup) refuses(i int, grad gotorch.Tensor) string {
	sparse := grad.Layout() != gotorch.Strided
	switch {
	case g.Fused && sparse:
		return "with Fused sparse gradients are not supported"
	case g.Fused && fusedRefuses(g.Params[i]) != "":
		return fusedRefuses(g.Params[i])
	case g.WeightDecay != 0 && sparse:
		return "the option weight_decay is not compatible with sparse gradients"
	case g.Momentum == 0:
		return ""
	}
	momentum := *g.buffer(i)
	if !momentum.Defined() { // it begins as the gradient
		momentum = grad
		if !g.Nesterov {
			return ""
		}
	}
	switch layout := momentum.Layout(); {
	case layout != gotorch.Strided && !sparse:
		return "a momentum of sparse gradients does not take dense ones"
	case layout == gotorch.Strided && sparse && g.Nesterov:
		return "a Nesterov momentum of dense gradients does not take sparse ones"
	case g.Fused || layout != gotorch.SparseCOO || grad.Layout() != gotorch.SparseCOO:
		return ""
	}
	dims, was, half := grad.SparseDim(), momentum.SparseDim(), grad.DType() == gotorch.Float16
	if dims == was && !half {
		return ""
	}
	hasNone := func(t gotorch.Tensor) bool { return t.Coalesce().Indices().Numel() == 0 }
	switch {
	case hasNone(grad) || hasNone(momentum): // one is taken as it is
		return ""
	case dims != was:
		return fmt.Sprintf("a momentum of gradients with %d sparse dimensions does not take those with %d", was, dims)
	default:
		return "a momentum of sparse gradients in float16, which torch does not add, is not supported"
	}
}

func (g *SGDGroup) step(all []gotorch.Tensor) {
	params, grads := make([]gotorch.Tensor, 0, len(g.Params)), make([]gotorch.Tensor, 0, len(g.Params))
	index := make([]int, 0, len(g.Params))
	for i, grad := range all {
		if grad.Defined() {
			params, grads, index = append(params, g.Params[i]), append(grads, grad), append(index, i)
		}
	}
	if len(params) == 0 {
		return
	}
	if g.Fused {
		g.fusedStep(params, laidOutAs(params, grads), index)
		return
	}
	ours := false // whether grads may be overwritten
	if g.Maximize {
		grads, ours = gotorch.ForeachNeg(grads), true
	}
	grads = addTo(grads, &ours, params, g.WeightDecay)
	if g.Momentum != 0 {
		buffers := g.follow(grads, index)
		if g.Nesterov {
			grads = addTo(grads, &ours, buffers, g.Momentum)
		} else {
			grads = buffers
		}
	}
	gotorch.ForeachAddList_(params, grads, gotorch.ForeachAddListOptions{Alpha: -g.LR})
}

// addTo returns list + alpha·other, in place if list is ours.
func addTo(list []gotorch.Tensor, ours *bool, other []gotorch.Tensor, alpha float64) []gotorch.Tensor {
	switch {
	case alpha == 0:
		return list
	case *ours:
		gotorch.ForeachAddList_(list, other, gotorch.ForeachAddListOptions{Alpha: alpha})
		return list
	}
	*ours = true
	return gotorch.ForeachAddList(list, other, gotorch.ForeachAddListOptions{Alpha: alpha})
}

// follow moves the momentum on by grads, and returns it. It begins as a copy of the first gradient,
// without dampening.
func (g *SGDGroup) follow(grads []gotorch.Tensor, index []int) []gotorch.Tensor {
	buffers := make([]gotorch.Tensor, len(grads))
	var old, arrived []gotorch.Tensor
	for k, i := range index {
		buffer := g.buffer(i)
		if buffer.Defined() {
			old, arrived = append(old, *buffer), append(arrived, grads[k])
		} else {
			*buffer = remember(func() gotorch.Tensor { return grads[k].Detach().Clone() })
		}
		buffers[k] = *buffer
	}
	if len(old) > 0 {
		scale(old, g.Momentum)
		gotorch.ForeachAddList_(old, arrived, gotorch.ForeachAddListOptions{Alpha: 1 - g.Dampening})
	}
	return buffers
}

func (g *SGDGroup) fusedStep(params, grads []gotorch.Tensor, index []int) {
	if g.Momentum == 0 {
		gotorch.FusedSGD_(params, grads, nil, g.WeightDecay, 0, g.LR, g.Dampening, g.Nesterov, g.Maximize, false)
		return
	}
	// The kernel wants all buffers to be fresh, or none.
	var old, fresh []int
	buffers := make([]gotorch.Tensor, len(index))
	for k, i := range index {
		layOut(params[k], g.memories[i].tensors)
		if buffers[k] = *g.buffer(i); buffers[k].Defined() {
			old = append(old, k)
		} else {
			buffers[k] = remember(func() gotorch.Tensor { return gotorch.EmptyLike(grads[k]) })
			fresh = append(fresh, k)
		}
	}
	run := func(places []int, first bool) {
		if len(places) == 0 {
			return
		}
		var ps, gs, bs []gotorch.Tensor
		for _, k := range places {
			ps, gs, bs = append(ps, params[k]), append(gs, grads[k]), append(bs, buffers[k])
		}
		gotorch.FusedSGD_(ps, gs, bs, g.WeightDecay, g.Momentum, g.LR, g.Dampening, g.Nesterov, g.Maximize, first)
	}
	run(old, false)
	run(fresh, true)
	for _, k := range fresh { // not before, since a kernel that refuses leaves in them what was in memory
		*g.buffer(index[k]) = buffers[k]
	}
}
