package optim

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// AdamOptimizer is what [Adam] and [AdamW] make.
type AdamOptimizer struct {
	Groups []*AdamGroup

	op        string
	decoupled bool // AdamW
}

// AdamGroup is parameters that are changed by the same rule. Its fields may be changed between steps,
// but not Params.
type AdamGroup struct {
	Params               []gotorch.Tensor
	LR, Eps, WeightDecay float64
	Betas                [2]float64
	// DecoupledWeightDecay makes weights smaller by themselves, rather than by way of the gradient:
	// what AdamW differs from Adam in.
	DecoupledWeightDecay     bool
	AMSGrad, Maximize, Fused bool

	moments []moments
	complex bool // whether a parameter is
}

// moments is what is remembered of a parameter.
type moments struct {
	steps            int64          // 0: nothing is remembered yet
	average          gotorch.Tensor // of the gradient
	square, greatest gotorch.Tensor // average of its square, and the greatest that this was
	stepsTensor      gotorch.Tensor // steps as the fused kernel wants it
}

// AdamOptions are the arguments of [Adam] that have defaults.
type AdamOptions struct {
	LR          gotorch.Scalar // the learning rate; default: 1e-3
	Betas       *[2]float64    // how slowly the averages of gradient and square follow; default: 0.9, 0.999
	Eps         gotorch.Scalar // added to the denominator; default: 1e-8
	WeightDecay float64
	AMSGrad     bool // divide by the greatest average of squares so far
	Maximize    bool // climb instead of descending
	Fused       bool // use a kernel that does a whole step at once
}

// AdamWOptions are the arguments of [AdamW] that have defaults.
type AdamWOptions struct {
	LR          gotorch.Scalar // the learning rate; default: 1e-3
	Betas       *[2]float64    // how slowly the averages of gradient and square follow; default: 0.9, 0.999
	Eps         gotorch.Scalar // added to the denominator; default: 1e-8
	WeightDecay gotorch.Scalar // default: 0.01
	AMSGrad     bool           // divide by the greatest average of squares so far
	Maximize    bool           // climb instead of descending
	Fused       bool           // use a kernel that does a whole step at once
}

// Adam follows the average gradient, each element at a pace that its average square sets. It panics
// with a ValueError if an option is out of range, if params is empty, or if a parameter is the result
// of a computation or comes twice.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html.
func Adam(params []gotorch.Tensor, opts ...AdamOptions) *AdamOptimizer {
	opt := args.Option(opts)
	o := &AdamOptimizer{op: "optim.Adam"}
	o.AddGroup(params, AdamWOptions{LR: opt.LR, Betas: opt.Betas, Eps: opt.Eps, WeightDecay: opt.WeightDecay,
		AMSGrad: opt.AMSGrad, Maximize: opt.Maximize, Fused: opt.Fused})
	return o
}

// AdamW is [Adam] with weight decay that is no part of the gradient. It panics as Adam does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html.
func AdamW(params []gotorch.Tensor, opts ...AdamWOptions) *AdamOptimizer {
	o := &AdamOptimizer{op: "optim.AdamW", decoupled: true}
	o.AddGroup(params, opts...)
	return o
}

// AddGroup adds parameters with options of their own, which do not follow those of other groups; in an
// optimiser made by [Adam] the default of WeightDecay is 0. It panics as [Adam] does.
func (o *AdamOptimizer) AddGroup(params []gotorch.Tensor, opts ...AdamWOptions) {
	opt := args.Option(opts)
	decay := 0.0
	if o.decoupled {
		decay = 0.01
	}
	g := &AdamGroup{
		Params: append([]gotorch.Tensor(nil), params...),
		LR:     args.Float(o.op, "LR", opt.LR, 1e-3), Eps: args.Float(o.op, "Eps", opt.Eps, 1e-8),
		WeightDecay: args.Float(o.op, "WeightDecay", opt.WeightDecay, decay), Betas: args.Or(opt.Betas, [2]float64{0.9, 0.999}),
		DecoupledWeightDecay: o.decoupled, AMSGrad: opt.AMSGrad, Maximize: opt.Maximize, Fused: opt.Fused,
		moments: make([]moments, len(params)),
	}
	notNegative(o.op, "learning rate", g.LR)
	notNegative(o.op, "epsilon value", g.Eps)
	notNegative(o.op, "weight_decay value", g.WeightDecay)
	for i, beta := range g.Betas {
		if !(beta >= 0 && beta < 1) {
			panic(args.ValueError(o.op, "invalid beta parameter at index %d: %v", i, beta))
		}
	}
	checkParams(o.op, params, o.groups())
	o.Groups = append(o.Groups, g)
}

func (o *AdamOptimizer) groups() []group {
	groups := make([]group, len(o.Groups))
	for i, g := range o.Groups {
		groups[i] = g
	}
	return groups
}

// Step changes the parameters that have a gradient.
func (o *AdamOptimizer) Step() {
	step(func() {
		for _, g := range o.Groups {
			g.step()
		}
	})
}

// ZeroGrad drops the gradients.
func (o *AdamOptimizer) ZeroGrad() {
	for _, g := range o.Groups {
		zeroGrad(g.Params)
	}
}

// LRs returns where the learning rate of each group is, to be read or changed.
func (o *AdamOptimizer) LRs() []*float64 {
	var lrs []*float64
	for _, g := range o.Groups {
		lrs = append(lrs, &g.LR)
	}
	return lrs
}

// StateDict returns what the optimiser remembers, in PyTorch's form.
func (o *AdamOptimizer) StateDict() gotorch.Dict { return stateDict(o.groups()) }

// LoadStateDict restores what StateDict, here or in PyTorch, has returned. If it does not fit, it
// returns a *gotorch.Error of kind ValueError and changes nothing.
func (o *AdamOptimizer) LoadStateDict(dict gotorch.Dict) error {
	return loadStateDict(o.op+".LoadStateDict", o.groups(), dict)
}

// adamLists are parameters that have taken the same number of steps, and what belongs to them.
type adamLists struct {
	steps                                                   int64
	params, grads, averages, squares, greatest, stepsTensor []gotorch.Tensor
}

func (g *AdamGroup) step() {
	var all []*adamLists // seldom more than one
	for i, p := range g.Params {
		grad := p.Grad()
		if !grad.Defined() {
			continue
		}
		m := &g.moments[i]
		g.prepare(m, p)
		m.steps++
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
		lists.averages, lists.squares = append(lists.averages, m.average), append(lists.squares, m.square)
		if g.AMSGrad {
			lists.greatest = append(lists.greatest, m.greatest)
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

// prepare makes what a parameter's step needs and m lacks.
func (g *AdamGroup) prepare(m *moments, p gotorch.Tensor) {
	zeros := func() gotorch.Tensor { return gotorch.ZerosLike(p.Detach()) }
	if !m.average.Defined() {
		m.average, m.square = remember(zeros), remember(zeros)
		g.complex = g.complex || p.DType().IsComplex()
	}
	if g.AMSGrad && !m.greatest.Defined() {
		m.greatest = remember(zeros)
	}
	if g.Fused && !m.stepsTensor.Defined() {
		m.stepsTensor = remember(func() gotorch.Tensor { return gotorch.FromScalar(float32(m.steps)).To(p.Device()) })
	} else if !g.Fused {
		m.stepsTensor = gotorch.Tensor{}
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
		scale(l.params, 1-g.LR*g.WeightDecay)
	default:
		l.grads = addTo(l.grads, &ours, l.params, g.WeightDecay)
	}
	if g.complex {
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
func power(x, y float64) float64 {
	return gotorch.Item[float64](gotorch.PowScalarBase(x, gotorch.FromScalar(y)))
}

func (g *AdamGroup) params() []gotorch.Tensor { return g.Params }

func (g *AdamGroup) options() gotorch.Dict {
	return gotorch.Dict{
		{Key: "lr", Value: g.LR},
		{Key: "betas", Value: gotorch.Tuple{g.Betas[0], g.Betas[1]}},
		{Key: "eps", Value: g.Eps},
		{Key: "weight_decay", Value: g.WeightDecay},
		{Key: "amsgrad", Value: g.AMSGrad},
		{Key: "maximize", Value: g.Maximize},
		{Key: "foreach", Value: nil},
		{Key: "capturable", Value: false},
		{Key: "differentiable", Value: false},
		{Key: "fused", Value: trueOrNone(g.Fused)},
		{Key: "decoupled_weight_decay", Value: g.DecoupledWeightDecay},
	}
}

func (g *AdamGroup) state(i int) gotorch.Dict {
	m := &g.moments[i]
	if !m.average.Defined() {
		return nil
	}
	steps := m.stepsTensor
	if !steps.Defined() {
		steps = gotorch.FromScalar(float32(m.steps))
	}
	state := gotorch.Dict{
		{Key: "step", Value: steps},
		{Key: "exp_avg", Value: m.average},
		{Key: "exp_avg_sq", Value: m.square},
	}
	if m.greatest.Defined() {
		state = append(state, gotorch.DictItem{Key: "max_exp_avg_sq", Value: m.greatest})
	}
	return state
}

func (g *AdamGroup) parse(r *reader, options gotorch.Dict, states []gotorch.Dict) (commit func()) {
	loaded := AdamGroup{
		Params: g.Params,
		LR:     r.float(options, "lr"), Betas: r.pair(options, "betas"), Eps: r.float(options, "eps"),
		WeightDecay: r.float(options, "weight_decay"), AMSGrad: r.bool(options, "amsgrad"),
		Maximize: r.bool(options, "maximize"), Fused: r.bool(options, "fused"),
		// AdamW stays what it is, and Adam becomes it, as in PyTorch. Older files do not say it.
		DecoupledWeightDecay: g.DecoupledWeightDecay || r.bool(options, "decoupled_weight_decay"),
		moments:              make([]moments, len(g.Params)),
	}
	for i, state := range states {
		if state == nil {
			continue
		}
		m, p := &loaded.moments[i], g.Params[i]
		m.steps = r.count(state, "step")
		m.average, m.square = r.like(state, "exp_avg", p), r.like(state, "exp_avg_sq", p)
		loaded.complex = loaded.complex || p.DType().IsComplex()
		if loaded.AMSGrad || state.Get("max_exp_avg_sq") != nil {
			m.greatest = r.like(state, "max_exp_avg_sq", p)
		}
	}
	return func() { *g = loaded }
}
