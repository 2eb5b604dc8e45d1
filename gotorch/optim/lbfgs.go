package optim

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// LBFGSOptimizer is what [LBFGS] makes. Its steps are taken by StepWith.
type LBFGSOptimizer struct{ Base[LBFGSGroup, *LBFGSGroup] }

// LBFGSGroup is the parameters. Its options may be changed between steps.
type LBFGSGroup struct {
	Common
	LR              float64 `optim:"lr"`
	MaxIter         int64   `optim:"max_iter"`
	MaxEval         int64   `optim:"max_eval"`
	ToleranceGrad   float64 `optim:"tolerance_grad"`
	ToleranceChange float64 `optim:"tolerance_change"`
	HistorySize     int64   `optim:"history_size"`
	LineSearchFn    string  `optim:"line_search_fn|None"`
	Maximize        bool    `optim:"maximize"`

	now lbfgsState
}

// LBFGSOptions are the arguments of [LBFGS] that have defaults.
type LBFGSOptions struct {
	LR              gotorch.Scalar // the learning rate; default: 1
	MaxIter         gotorch.Scalar // how often a step may change the parameters; default: 20
	MaxEval         gotorch.Scalar // how often a step may call the closure; default: MaxIter·5/4
	ToleranceGrad   gotorch.Scalar // a step ends where no element of the gradient is greater; default: 1e-7
	ToleranceChange gotorch.Scalar // and where neither the loss nor a parameter changes by more; default: 1e-9
	HistorySize     gotorch.Scalar // how many changes are remembered; default: 100
	LineSearchFn    string         // how far to go: "strong_wolfe" looks for a good place, "" goes by LR
	Maximize        bool           // climb instead of descending
}

// LBFGS is Newton's method by what the last gradients tell of the curvature, the limited-memory algorithm of
// Broyden, Fletcher, Goldfarb and Shanno. A step calls a closure several times, so it is taken by StepWith. It is
// for losses without noise, keeps HistorySize pairs of vectors as long as all parameters together, and has one group
// of parameters, all of one dtype. It has no AddGroup: one direction and one step length are computed for all parameters
// together, so groups cannot have options of their own; PyTorch's LBFGS refuses them too. It panics with a ValueError if
// an option is out of range, if params is empty, or if a parameter is the result of a computation or comes twice.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.LBFGS.html.
func LBFGS(params []gotorch.Tensor, opts ...LBFGSOptions) *LBFGSOptimizer {
	opt := args.Option(opts)
	o := &LBFGSOptimizer{}
	o.op = "optim.LBFGS"
	iterations := args.Int(o.op, "MaxIter", opt.MaxIter, 20)
	o.add(&LBFGSGroup{LR: args.Float(o.op, "LR", opt.LR, 1), MaxIter: iterations,
		MaxEval:       args.Int(o.op, "MaxEval", opt.MaxEval, iterations*5/4),
		ToleranceGrad: args.Float(o.op, "ToleranceGrad", opt.ToleranceGrad, 1e-7), ToleranceChange: args.Float(o.op, "ToleranceChange", opt.ToleranceChange, 1e-9),
		HistorySize: args.Int(o.op, "HistorySize", opt.HistorySize, 100), LineSearchFn: opt.LineSearchFn, Maximize: opt.Maximize}, params)
	return o
}

func (g *LBFGSGroup) check(op string) {
	notNegative(op, "learning rate", g.LR)
	notNegative(op, "max_iter", float64(g.MaxIter))
	notNegative(op, "max_eval", float64(g.MaxEval))
	if g.HistorySize < 1 {
		panic(args.ValueError(op, "invalid history_size: %d, where at least 1 is required", g.HistorySize))
	}
}

// Step panics with a TypeError: what LBFGS does takes several evaluations of the loss, so use StepWith.
func (o *LBFGSOptimizer) Step() { (*LBFGSGroup)(nil).step(nil) }

func (g *LBFGSGroup) step([]gotorch.Tensor) {
	panic(&gotorch.Error{Op: "optim.LBFGS.Step", Kind: gotorch.TypeError, Msg: "LBFGS evaluates the loss several times in a step: use StepWith, with a closure that computes it"})
}

func (g *LBFGSGroup) slots() []slot { return nil }

func (g *LBFGSGroup) counted() bool { return false }

// lbfgsState is what is remembered, of all parameters together. Vectors are as long as these are.
type lbfgsState struct {
	begun      bool
	evals      int64
	iterations int64

	direction  gotorch.Tensor // "d"
	step       number         // "t", how far it was followed
	gradients  []gotorch.Tensor
	changes    []gotorch.Tensor // "old_dirs" and "old_stps": by how much gradients and parameters changed
	reciprocal []gotorch.Tensor // "ro": 1 by the product of these
	alphas     []gotorch.Tensor // "al"; some may be none
	scale      number           // "H_diag", of the first approximation
	gradient   gotorch.Tensor   // "prev_flat_grad"
	loss       float64
}

// StepWith takes a step: closure computes the loss and its gradients, which it zeroes first, and is called several
// times, each with other parameters. StepWith returns the loss of the first call. It panics with a TypeError for a
// nil closure or one that returns no tensor, and with a RuntimeError for an unknown LineSearchFn. If closure panics
// or ends its goroutine, the parameters and the optimiser are as before the step.
//
// What closure makes is left to the collector, also if the caller is in a gotorch.Scope: closure may have a Scope of
// its own, which must return the loss.
func (o *LBFGSOptimizer) StepWith(closure func() gotorch.Tensor) (loss gotorch.Tensor) {
	checkClosure(o.op, closure)
	if len(o.Groups) != 1 {
		panic(runtimeError("optim.LBFGS.StepWith", fmt.Sprintf("there are %d groups of parameters, where one is required: make the optimizer by LBFGS", len(o.Groups))))
	}
	call(o.hooks.beforeStep)
	g := o.Groups[0]
	// What is kept of the scope goes to the collector.
	gotorch.Unscoped(func() {
		gotorch.NoGrad(func() {
			gotorch.Scope0(func(s *gotorch.ScopeHandle) {
				run := &lbfgsRun{LBFGSGroup: g, state: g.now, closure: closure}
				run.state.gradients = append([]gotorch.Tensor(nil), g.now.gradients...)
				run.state.changes = append([]gotorch.Tensor(nil), g.now.changes...)
				run.state.reciprocal = append([]gotorch.Tensor(nil), g.now.reciprocal...)
				run.state.alphas = append([]gotorch.Tensor(nil), g.now.alphas...)
				done := false
				defer func() {
					if !done {
						run.restore(run.before)
					}
				}()
				loss = run.step()
				done = true
				s.Keep(run.state.tensors()...)
				g.now = run.state
			})
		})
	})
	o.steps++
	call(o.hooks.afterStep)
	return loss
}

// tensors returns all that are remembered.
func (s *lbfgsState) tensors() (list []gotorch.Tensor) {
	for _, some := range [][]gotorch.Tensor{{s.direction, s.step.t, s.scale.t, s.gradient}, s.gradients, s.changes, s.reciprocal, s.alphas} {
		for _, t := range some {
			if t.Defined() {
				list = append(list, t)
			}
		}
	}
	return list
}

// value returns a number as it is in state dicts.
func (n number) value() any {
	if n.t.Defined() {
		return n.t
	}
	return n.f
}

// ownState returns what is remembered, which PyTorch has with the first parameter.
func (g *LBFGSGroup) ownState(i int) gotorch.Dict {
	s := &g.now
	if i > 0 || !s.begun {
		return nil
	}
	dict := gotorch.Dict{{Key: "func_evals", Value: s.evals}, {Key: "n_iter", Value: s.iterations}}
	if !s.direction.Defined() {
		return dict
	}
	list := func(tensors []gotorch.Tensor) []any {
		values := make([]any, len(tensors))
		for i, t := range tensors {
			if t.Defined() {
				values[i] = t
			}
		}
		return values
	}
	dict = append(dict, gotorch.Dict{{Key: "d", Value: s.direction}, {Key: "t", Value: s.step.value()},
		{Key: "old_dirs", Value: list(s.gradients)}, {Key: "old_stps", Value: list(s.changes)}, {Key: "ro", Value: list(s.reciprocal)},
		{Key: "H_diag", Value: s.scale.value()}, {Key: "prev_flat_grad", Value: s.gradient}, {Key: "prev_loss", Value: s.loss}}...)
	if s.alphas != nil {
		dict = append(dict, gotorch.DictItem{Key: "al", Value: list(s.alphas)})
	}
	return dict
}

// readOwn reads what ownState has returned; nil is nothing.
func (g *LBFGSGroup) readOwn(r *reader, i int, state gotorch.Dict) {
	if i > 0 {
		return
	}
	g.now = lbfgsState{begun: state != nil}
	if state == nil {
		return
	}
	s, p := &g.now, g.Params[0]
	s.evals, s.iterations = r.count(state, "func_evals"), r.count(state, "n_iter")
	if s.iterations == 0 {
		return
	}
	length := int64(0)
	for _, p := range g.Params {
		parts(&p)
		length += p.Numel()
	}
	vector := func(value any, key string, shape []int64) gotorch.Tensor {
		like := p
		parts(&like)
		return r.like(gotorch.Dict{{Key: key, Value: value}}, key, like, shape, slot{begin: zerosLike})
	}
	list := func(key string, shape []int64, want int) (tensors []gotorch.Tensor) {
		values, ok := state.Get(key).([]any)
		if !ok || want >= 0 && len(values) != want {
			r.fail(key, state.Get(key), "a list as long as old_dirs")
			return nil
		}
		for _, v := range values {
			if v == nil && key == "al" {
				tensors = append(tensors, gotorch.Tensor{})
			} else {
				tensors = append(tensors, vector(v, key, shape))
			}
		}
		return tensors
	}
	scalar := func(key string) number {
		if t, ok := state.Get(key).(gotorch.Tensor); ok {
			return number{t: vector(t, key, []int64{})}
		}
		return float(r.float(state, key))
	}
	s.direction, s.gradient = vector(state.Get("d"), "d", []int64{length}), vector(state.Get("prev_flat_grad"), "prev_flat_grad", []int64{length})
	s.gradients = list("old_dirs", []int64{length}, -1)
	s.changes, s.reciprocal = list("old_stps", []int64{length}, len(s.gradients)), list("ro", []int64{}, len(s.gradients))
	if state.Get("al") != nil {
		s.alphas = list("al", []int64{}, -1)
	}
	s.step, s.scale, s.loss = scalar("t"), scalar("H_diag"), r.float(state, "prev_loss")
}

// lbfgsRun is one step.
type lbfgsRun struct {
	*LBFGSGroup
	state   lbfgsState
	closure func() gotorch.Tensor
	before  []gotorch.Tensor // the parameters as they were; nil until they are changed
}

// evaluate calls the closure, and returns what it does and the loss that is to become small.
func (r *lbfgsRun) evaluate() (result gotorch.Tensor, loss float64) {
	gotorch.Unscoped(func() {
		gotorch.EnableGrad(func() { result = r.closure() })
	})
	if !result.Defined() {
		panic(&gotorch.Error{Op: "optim.LBFGS.StepWith", Kind: gotorch.TypeError, Msg: "the closure must return the loss, a tensor, and returned none"})
	}
	loss = gotorch.Item[float64](result)
	if r.Maximize {
		loss = -loss
	}
	return result, loss
}

// flatGradient returns the gradients of all parameters as one vector; where there is none they are zero.
func (r *lbfgsRun) flatGradient() gotorch.Tensor {
	views := make([]gotorch.Tensor, len(r.Params))
	for i, p := range r.Params {
		grad := p.Grad()
		switch {
		case !grad.Defined():
			grad = gotorch.ZerosLike(p)
		case grad.Layout() != gotorch.Strided:
			grad = grad.ToDense()
		}
		parts(&grad)
		views[i] = grad.Reshape([]int64{-1})
	}
	flat := gotorch.Cat(views)
	if r.Maximize {
		flat.Neg_()
	}
	return flat
}

// move adds a multiple of a vector to the parameters.
func (r *lbfgsRun) move(by number, vector gotorch.Tensor) {
	offset := int64(0)
	for _, p := range r.Params {
		parts(&p)
		n := p.Numel()
		p.Add_(vector.Narrow(0, offset, n).ViewAs(p), gotorch.AddOptions{Alpha: by.float()})
		offset += n
	}
}

// copies returns what the parameters are.
func (r *lbfgsRun) copies() []gotorch.Tensor {
	list := make([]gotorch.Tensor, len(r.Params))
	for i, p := range r.Params {
		list[i] = p.Clone()
	}
	return list
}

// restore makes the parameters what copies has returned.
func (r *lbfgsRun) restore(copies []gotorch.Tensor) {
	for i, c := range copies {
		r.Params[i].Copy_(c)
	}
}

// largest returns the largest magnitude in a vector.
func largest(vector gotorch.Tensor) number { return number{t: vector.Abs().Max()} }

func (r *lbfgsRun) step() gotorch.Tensor {
	s := &r.state
	s.begun = true
	result, loss := r.evaluate()
	evals := int64(1)
	s.evals++
	gradient := r.flatGradient()
	if largest(gradient).atMost(float(r.ToleranceGrad)) {
		return result
	}
	if r.LineSearchFn != "" && r.LineSearchFn != "strong_wolfe" {
		panic(runtimeError("optim.LBFGS.StepWith", fmt.Sprintf("only 'strong_wolfe' is supported as LineSearchFn, not '%s'", r.LineSearchFn)))
	}
	r.before = r.copies()
	for n := int64(1); n <= r.MaxIter; n++ {
		s.iterations++
		if s.iterations == 1 {
			s.direction = gradient.Neg()
			s.gradients, s.changes, s.reciprocal = nil, nil, nil
			s.scale = float(1)
		} else {
			r.remember(gradient)
			s.direction = r.newton(gradient)
		}
		s.gradient = gradient
		s.loss = loss

		// How far to go.
		s.step = float(r.LR)
		if s.iterations == 1 {
			s.step = float(1).least(float(1).over(number{t: gradient.Abs().Sum()})).times(s.step)
		}
		slope := number{t: gradient.Dot(s.direction)}
		if slope.above(float(-r.ToleranceChange)) {
			break
		}
		used, flat := int64(0), false
		if r.LineSearchFn != "" {
			loss, gradient, s.step, used = r.strongWolfe(loss, gradient, slope, r.MaxEval-evals)
			r.move(s.step, s.direction)
			flat = largest(gradient).atMost(float(r.ToleranceGrad))
		} else {
			r.move(s.step, s.direction)
			if n != r.MaxIter { // after the last one nobody wants to know
				_, loss = r.evaluate()
				gradient = r.flatGradient()
				flat = largest(gradient).atMost(float(r.ToleranceGrad))
				used = 1
			}
		}
		evals += used
		s.evals += used
		if n == r.MaxIter || evals >= r.MaxEval || flat {
			break
		}
		if largest(s.step.of(s.direction)).atMost(float(r.ToleranceChange)) || abs(loss-s.loss) < r.ToleranceChange {
			break
		}
	}
	return result
}

func abs(x float64) float64 { return max(x, -x) }

// remember takes down how the gradient has changed with the last step, if that tells of a curvature.
func (r *lbfgsRun) remember(gradient gotorch.Tensor) {
	s := &r.state
	y := gradient.Sub(s.gradient)
	change := s.step.of(s.direction)
	product := number{t: y.Dot(change)}
	if !product.above(float(1e-10)) {
		return
	}
	if n := len(s.gradients); n > 0 && int64(n) == r.HistorySize {
		s.gradients, s.changes, s.reciprocal = s.gradients[1:], s.changes[1:], s.reciprocal[1:]
	}
	s.gradients, s.changes = append(s.gradients, y), append(s.changes, change)
	s.reciprocal = append(s.reciprocal, float(1).over(product).t)
	s.scale = product.over(number{t: y.Dot(y)})
}

// newton returns the negative gradient, multiplied by the inverse of the Hessian matrix as far as it is known.
func (r *lbfgsRun) newton(gradient gotorch.Tensor) gotorch.Tensor {
	s := &r.state
	for int64(len(s.alphas)) < r.HistorySize || len(s.alphas) < len(s.changes) {
		s.alphas = append(s.alphas, gotorch.Tensor{})
	}
	q := gradient.Neg()
	for i := len(s.gradients) - 1; i >= 0; i-- {
		s.alphas[i] = s.changes[i].Dot(q).Mul(s.reciprocal[i])
		q.Add_(s.gradients[i], gotorch.AddOptions{Alpha: gotorch.Item[float64](s.alphas[i].Neg())})
	}
	q = s.scale.of(q)
	for i := range s.gradients {
		beta := s.gradients[i].Dot(q).Mul(s.reciprocal[i])
		q.Add_(s.changes[i], gotorch.AddOptions{Alpha: gotorch.Item[float64](s.alphas[i].Sub(beta))})
	}
	return q
}

// Line search ----------------------------------------------------------------------------------------

// place is a point on the line: how far away it is, and the loss, the gradient and the slope there.
type place struct {
	at       number
	loss     float64
	gradient gotorch.Tensor
	slope    number
}

// What the conditions of Wolfe ask for: by how much of the slope the loss is to fall, and the slope itself.
const (
	wolfeLoss  = 1e-4
	wolfeSlope = 0.9
)

// narrow is how far the ends of a bracket are apart, in parameters, when it is not looked into any more. As in
// PyTorch it is no option: ToleranceChange is about whole steps.
const narrow = 1e-9

// strongWolfe looks along the direction for a place where the loss has fallen enough and is flat enough, with up to
// tries evaluations after the first. It leaves the parameters as they are.
func (r *lbfgsRun) strongWolfe(loss float64, gradient gotorch.Tensor, slope number, tries int64) (float64, gotorch.Tensor, number, int64) {
	x := r.copies()
	evals := int64(0)
	look := func(at number) place {
		r.move(at, r.state.direction)
		_, loss := r.evaluate()
		gradient := r.flatGradient()
		r.restore(x)
		evals++
		return place{at, loss, gradient, number{t: gradient.Dot(r.state.direction)}}
	}
	// Above the line that the loss is to be under, at a place.
	tooHigh := func(p place) bool {
		return float(p.loss).above(float(loss).plus(float(wolfeLoss).times(p.at).times(slope)))
	}
	flat := func(p place) bool { return p.slope.magnitude().atMost(float(-wolfeSlope).times(slope)) }

	longest := largest(r.state.direction)
	start := place{float(0), loss, gradient, slope}
	before, p := start, look(r.state.step)
	var bracket []place
	done := false
	n := int64(0)
	for ; n < tries; n++ {
		if tooHigh(p) || n > 1 && p.loss >= before.loss {
			bracket = []place{before, p}
			break
		}
		if flat(p) {
			bracket, done = []place{p}, true
			break
		}
		if p.slope.atLeast(float(0)) {
			bracket = []place{before, p}
			break
		}
		least, most := p.at.plus(float(0.01).times(p.at.minus(before.at))), p.at.times(float(10))
		next := interpolate(before, p, least, most)
		before, p = p, look(next)
	}
	if bracket == nil {
		bracket = []place{start, p}
	}

	// A good place is between both ends of the bracket, which becomes smaller.
	low, high := 0, len(bracket)-1
	if !(bracket[low].loss <= bracket[high].loss) {
		low, high = high, low
	}
	stuck := false
	for !done && n < tries {
		a, b := bracket[0].at, bracket[1].at
		if b.minus(a).magnitude().times(longest).below(float(narrow)) {
			break
		}
		near, far := a.least(b), a.most(b)
		least, most := a, b // not near and far: where both are equal one may be a float, and one a tensor
		if !a.atMost(b) {
			least, most = b, a
		}
		at := interpolate(bracket[0], bracket[1], least, most)
		margin := float(0.1).times(far.minus(near))
		if far.minus(at).least(at.minus(near)).below(margin) {
			if stuck || at.atLeast(far) || at.atMost(near) {
				if at.minus(far).magnitude().below(at.minus(near).magnitude()) {
					at = far.minus(margin)
				} else {
					at = near.plus(margin)
				}
				stuck = false
			} else {
				stuck = true
			}
		} else {
			stuck = false
		}
		p := look(at)
		n++
		if tooHigh(p) || p.loss >= bracket[low].loss {
			bracket[high] = p
			low, high = 0, 1
			if !(bracket[0].loss <= bracket[1].loss) {
				low, high = 1, 0
			}
			continue
		}
		if flat(p) {
			done = true
		} else if p.slope.times(bracket[high].at.minus(bracket[low].at)).atLeast(float(0)) {
			bracket[high] = bracket[low]
		}
		bracket[low] = p
	}
	best := bracket[low]
	return best.loss, best.gradient, best.at, evals
}

// interpolate returns where the cubic polynomial through two places, with their slopes, is least, between bounds.
func interpolate(a, b place, least, most number) number {
	d1 := a.slope.plus(b.slope).minus(float(3 * (a.loss - b.loss)).over(a.at.minus(b.at)))
	square := number{t: d1.t.Pow(2)}.minus(a.slope.times(b.slope))
	if !square.atLeast(float(0)) {
		return least.plus(most).over(float(2))
	}
	d2 := number{t: square.t.Sqrt()}
	if !a.at.atMost(b.at) {
		a, b = b, a
	}
	part := b.slope.plus(d2).minus(d1).over(b.slope.minus(a.slope).plus(float(2).times(d2)))
	at := b.at.minus(b.at.minus(a.at).times(part))
	return at.most(least).least(most)
}

// Numbers --------------------------------------------------------------------------------------------

// number is a float, or a tensor without dimensions: in Python the one becomes the other as it goes, and each is
// computed with in its own precision.
type number struct {
	f float64
	t gotorch.Tensor // undefined for a float
}

func float(f float64) number { return number{f: f} }

func (n number) float() float64 {
	if n.t.Defined() {
		return gotorch.Item[float64](n.t)
	}
	return n.f
}

// of returns n times a vector.
func (n number) of(vector gotorch.Tensor) gotorch.Tensor {
	if n.t.Defined() {
		return vector.Mul(n.t)
	}
	return vector.MulScalar(n.f)
}

// with returns what an operation makes of two numbers, in the form for what they are: both tensors, a tensor and a
// float, a float and a tensor, in which form the tensor comes first, or both floats.
func (n number) with(m number, tensors func(a, b gotorch.Tensor) gotorch.Tensor, second, first func(t gotorch.Tensor, f gotorch.Scalar) gotorch.Tensor, floats float64) number {
	switch a, b := n.t.Defined(), m.t.Defined(); {
	case a && b:
		return number{t: tensors(n.t, m.t)}
	case a:
		return number{t: second(n.t, m.f)}
	case b:
		return number{t: first(m.t, n.f)}
	}
	return float(floats)
}

func add(a, b gotorch.Tensor) gotorch.Tensor                      { return a.Add(b) }
func addScalar(t gotorch.Tensor, f gotorch.Scalar) gotorch.Tensor { return t.AddScalar(f) }
func sub(a, b gotorch.Tensor) gotorch.Tensor                      { return a.Sub(b) }
func subScalar(t gotorch.Tensor, f gotorch.Scalar) gotorch.Tensor { return t.SubScalar(f) }
func subFrom(t gotorch.Tensor, f gotorch.Scalar) gotorch.Tensor   { return gotorch.RsubScalar(t, f) }

// divide is how Python divides a float by a tensor.
func divide(t gotorch.Tensor, f gotorch.Scalar) gotorch.Tensor { return t.Reciprocal().MulScalar(f) }

func (n number) plus(m number) number  { return n.with(m, add, addScalar, addScalar, n.f+m.f) }
func (n number) minus(m number) number { return n.with(m, sub, subScalar, subFrom, n.f-m.f) }

func (n number) times(m number) number {
	return n.with(m, gotorch.Tensor.Mul, gotorch.Tensor.MulScalar, gotorch.Tensor.MulScalar, float64(n.f*m.f))
}

func (n number) over(m number) number {
	if !n.t.Defined() && !m.t.Defined() && m.f == 0 {
		panic(&gotorch.Error{Op: "optim.LBFGS.StepWith", Kind: "ZeroDivisionError", Msg: "float division by zero: the line search is at one place twice, as where a gradient is infinite"})
	}
	return n.with(m, gotorch.Tensor.Div, gotorch.Tensor.DivScalar, divide, n.f/m.f)
}

func (n number) magnitude() number {
	if n.t.Defined() {
		return number{t: n.t.Abs()}
	}
	return float(abs(n.f))
}

// above reports whether n > m.
func (n number) above(m number) bool {
	return n.with(m, gotorch.Tensor.Gt, gotorch.Tensor.GtScalar, gotorch.Tensor.LtScalar, truth(n.f > m.f)).float() != 0
}

// atLeast reports whether n >= m.
func (n number) atLeast(m number) bool {
	return n.with(m, gotorch.Tensor.Ge, gotorch.Tensor.GeScalar, gotorch.Tensor.LeScalar, truth(n.f >= m.f)).float() != 0
}

// truth is a bool as a number.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (n number) below(m number) bool  { return m.above(n) }
func (n number) atMost(m number) bool { return m.atLeast(n) }

// least and most are Python's min and max, which return the first number unless the second is less, or greater.
func (n number) least(m number) number {
	if m.below(n) {
		return m
	}
	return n
}

func (n number) most(m number) number {
	if m.above(n) {
		return m
	}
	return n
}
