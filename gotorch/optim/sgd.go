package optim

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// SGDOptimizer is what [SGD] makes.
type SGDOptimizer struct {
	Groups []*SGDGroup
}

// SGDGroup is parameters that are changed by the same rule. Its fields may be changed between steps,
// but not Params.
type SGDGroup struct {
	Params                               []gotorch.Tensor
	LR, Momentum, Dampening, WeightDecay float64
	Nesterov, Maximize, Fused            bool

	buffers []gotorch.Tensor // none until a parameter's first step with momentum
}

// SGDOptions are the arguments of [SGD] that have defaults.
type SGDOptions struct {
	LR          gotorch.Scalar // the learning rate; default: 1e-3
	Momentum    float64
	Dampening   float64 // of the momentum
	WeightDecay float64
	Nesterov    bool // look ahead along the momentum
	Maximize    bool // climb instead of descending
	Fused       bool // use a kernel that does a whole step at once
}

// SGD is stochastic gradient descent, with momentum if asked. It panics with a ValueError if an option
// is out of range, if params is empty, or if a parameter is the result of a computation or comes twice.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html.
func SGD(params []gotorch.Tensor, opts ...SGDOptions) *SGDOptimizer {
	o := new(SGDOptimizer)
	o.AddGroup(params, opts...)
	return o
}

// AddGroup adds parameters with options of their own, which do not follow those of other groups. It
// panics as [SGD] does.
func (o *SGDOptimizer) AddGroup(params []gotorch.Tensor, opts ...SGDOptions) {
	const op = "optim.SGD"
	opt := args.Option(opts)
	lr := args.Float(op, "LR", opt.LR, 1e-3)
	notNegative(op, "learning rate", lr)
	notNegative(op, "momentum", opt.Momentum)
	notNegative(op, "weight_decay value", opt.WeightDecay)
	if opt.Nesterov && (opt.Momentum <= 0 || opt.Dampening != 0) {
		panic(args.ValueError(op, "Nesterov momentum requires a momentum and zero dampening"))
	}
	checkParams(op, params, o.groups())
	o.Groups = append(o.Groups, &SGDGroup{
		Params: append([]gotorch.Tensor(nil), params...),
		LR:     lr, Momentum: opt.Momentum, Dampening: opt.Dampening, WeightDecay: opt.WeightDecay,
		Nesterov: opt.Nesterov, Maximize: opt.Maximize, Fused: opt.Fused,
		buffers: make([]gotorch.Tensor, len(params)),
	})
}

func (o *SGDOptimizer) groups() []group {
	groups := make([]group, len(o.Groups))
	for i, g := range o.Groups {
		groups[i] = g
	}
	return groups
}

// Step changes the parameters that have a gradient.
func (o *SGDOptimizer) Step() {
	step(func() {
		for _, g := range o.Groups {
			g.step()
		}
	})
}

// ZeroGrad drops the gradients.
func (o *SGDOptimizer) ZeroGrad() {
	for _, g := range o.Groups {
		zeroGrad(g.Params)
	}
}

// LRs returns where the learning rate of each group is, to be read or changed.
func (o *SGDOptimizer) LRs() []*float64 {
	var lrs []*float64
	for _, g := range o.Groups {
		lrs = append(lrs, &g.LR)
	}
	return lrs
}

// StateDict returns what the optimiser remembers, in PyTorch's form.
func (o *SGDOptimizer) StateDict() gotorch.Dict { return stateDict(o.groups()) }

// LoadStateDict restores what StateDict, here or in PyTorch, has returned. If it does not fit, it
// returns a *gotorch.Error of kind ValueError and changes nothing.
func (o *SGDOptimizer) LoadStateDict(dict gotorch.Dict) error {
	return loadStateDict("optim.SGD.LoadStateDict", o.groups(), dict)
}

func (g *SGDGroup) step() {
	params, grads := make([]gotorch.Tensor, 0, len(g.Params)), make([]gotorch.Tensor, 0, len(g.Params))
	index := make([]int, 0, len(g.Params))
	for i, p := range g.Params {
		if grad := p.Grad(); grad.Defined() {
			params, grads, index = append(params, p), append(grads, grad), append(index, i)
		}
	}
	if len(params) == 0 {
		return
	}
	if g.Fused {
		g.fusedStep(params, grads, index)
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
		if g.buffers[i].Defined() {
			old, arrived = append(old, g.buffers[i]), append(arrived, grads[k])
		} else {
			g.buffers[i] = remember(func() gotorch.Tensor { return grads[k].Detach().Clone() })
		}
		buffers[k] = g.buffers[i]
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
		if buffers[k] = g.buffers[i]; buffers[k].Defined() {
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
		g.buffers[index[k]] = buffers[k]
	}
}

func (g *SGDGroup) params() []gotorch.Tensor { return g.Params }

func (g *SGDGroup) options() gotorch.Dict {
	return gotorch.Dict{
		{Key: "lr", Value: g.LR},
		{Key: "momentum", Value: g.Momentum},
		{Key: "dampening", Value: g.Dampening},
		{Key: "weight_decay", Value: g.WeightDecay},
		{Key: "nesterov", Value: g.Nesterov},
		{Key: "maximize", Value: g.Maximize},
		{Key: "foreach", Value: nil},
		{Key: "differentiable", Value: false},
		{Key: "fused", Value: trueOrNone(g.Fused)},
	}
}

// trueOrNone returns true or Python's None, which leaves the choice to PyTorch.
func trueOrNone(b bool) any {
	if b {
		return true
	}
	return nil
}

func (g *SGDGroup) state(i int) gotorch.Dict {
	if !g.buffers[i].Defined() {
		return nil
	}
	return gotorch.Dict{{Key: "momentum_buffer", Value: g.buffers[i]}}
}

func (g *SGDGroup) parse(r *reader, options gotorch.Dict, states []gotorch.Dict) (commit func()) {
	loaded := SGDGroup{
		Params: g.Params,
		LR:     r.float(options, "lr"), Momentum: r.float(options, "momentum"), Dampening: r.float(options, "dampening"),
		WeightDecay: r.float(options, "weight_decay"), Nesterov: r.bool(options, "nesterov"),
		Maximize: r.bool(options, "maximize"), Fused: r.bool(options, "fused"),
		buffers: make([]gotorch.Tensor, len(g.Params)),
	}
	for i, state := range states {
		if state.Get("momentum_buffer") != nil {
			loaded.buffers[i] = r.like(state, "momentum_buffer", g.Params[i])
		}
	}
	return func() { *g = loaded }
}
