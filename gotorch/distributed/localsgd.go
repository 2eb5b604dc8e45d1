package distributed

import (
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/optim"
)

// Ranks that average their parameters now and then, and their gradients among a few.

// PostLocalSGDOptions are the arguments of [PostLocalSGD] that have defaults, with PyTorch's names.
type PostLocalSGDOptions struct {
	// Subgroup is the ranks that go on averaging gradients, such as those of one machine. It must be given, except with
	// NoPostLocalGradientAllReduce.
	Subgroup *Group
	// StartLocalSGDIter is how many passes average the gradients of all ranks, before. Default: 0.
	StartLocalSGDIter gotorch.Scalar
	// NoPostLocalGradientAllReduce has each rank keep its own gradients then.
	NoPostLocalGradientAllReduce bool
}

// PostLocalSGDState is what [PostLocalSGD] makes. It is of one model.
//
// See https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
type PostLocalSGDState struct {
	group, subgroup *Group
	start           int64
	iteration       int64
}

// PostLocalSGD averages gradients over the group g first, and later over a few ranks that are near to each other, so that less
// crosses the slow part of a network. Parameters are averaged over all ranks now and then: see [PeriodicModelAverager], whose
// WarmupSteps must be StartLocalSGDIter. It is the method of Lin, Stich, Patel and Jaggi (2018), as torch.distributed has it, to
// the same bits.
//
//	state := distributed.PostLocalSGD(world, distributed.PostLocalSGDOptions{Subgroup: machine, StartLocalSGDIter: 100})
//	model.RegisterCommHook(state.Hook)
//
// All ranks need the same options, but for Subgroup. It panics with a ValueError where there is no Subgroup, or where
// StartLocalSGDIter is negative.
//
// See https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
func PostLocalSGD(g *Group, opts ...PostLocalSGDOptions) *PostLocalSGDState {
	const op = "distributed.PostLocalSGD"
	opt := args.Option(opts)
	s := &PostLocalSGDState{group: g, subgroup: opt.Subgroup, start: args.Int(op, "StartLocalSGDIter", opt.StartLocalSGDIter, 0)}
	switch {
	case s.start < 0:
		panic(args.ValueError(op, "StartLocalSGDIter is %d, and must not be negative", s.start))
	case opt.NoPostLocalGradientAllReduce:
		s.subgroup = nil
	case s.subgroup == nil:
		panic(args.ValueError(op, "Subgroup is not given: it is what Group.New returns for this rank, or give NoPostLocalGradientAllReduce"))
	}
	groups := []*Group{g}
	if s.subgroup != nil {
		groups = append(groups, s.subgroup)
	}
	for _, of := range groups {
		if err := of.enter(op); err != nil {
			panic(err)
		}
		of.inUse.RUnlock()
	}
	return s
}

// Hook is a [CommHook].
//
// See https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
func (s *PostLocalSGDState) Hook(b *GradBucket) (*Work, error) {
	if s.iteration < s.start {
		if b.IsLast() {
			s.iteration++
		}
		return s.group.averageAsync(b.Buffer()), nil
	}
	if s.subgroup == nil {
		return nil, nil
	}
	return s.subgroup.averageAsync(b.Buffer()), nil
}

// ModelAverager is what [PeriodicModelAverager] makes.
type ModelAverager struct {
	group          *Group
	period, warmup int64
	step           int64
}

// PeriodicModelAveragerOptions are the arguments of [PeriodicModelAverager] that have defaults.
type PeriodicModelAveragerOptions struct {
	// WarmupSteps is how many steps there are before the first after which parameters are averaged. Default: 0.
	WarmupSteps gotorch.Scalar
}

// PeriodicModelAverager averages parameters over the ranks of a group after each step whose number, from WarmupSteps on, is a
// multiple of period. It panics with a ValueError where period is less than 1, WarmupSteps is negative, or the process is not in
// the group.
func PeriodicModelAverager(g *Group, period int, opts ...PeriodicModelAveragerOptions) *ModelAverager {
	const op = "distributed.PeriodicModelAverager"
	a := &ModelAverager{group: g, period: int64(period), warmup: args.Int(op, "WarmupSteps", args.Option(opts).WarmupSteps, 0)}
	if err := g.enter(op); err != nil {
		panic(err)
	}
	g.inUse.RUnlock()
	if period < 1 {
		panic(args.ValueError(op, "period is %d, and must be 1 or more", period))
	}
	if a.warmup < 0 {
		panic(args.ValueError(op, "WarmupSteps is %d, and must not be negative", a.warmup))
	}
	return a
}

// AverageParameters is called after each step, by all ranks, with the same parameters. Those that have no gradient stay as they
// are.
func (a *ModelAverager) AverageParameters(params []gotorch.Tensor) {
	step := a.step
	a.step++
	if step < a.warmup || (step-a.warmup)%a.period != 0 {
		return
	}
	var averaged []gotorch.Tensor
	for _, p := range params {
		if p.Grad().T != nil {
			averaged = append(averaged, p)
		}
	}
	if len(averaged) == 0 {
		return
	}
	gotorch.NoGrad(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			flat := make([]gotorch.Tensor, len(averaged))
			for i, p := range averaged {
				flat[i] = p.Detach().Reshape([]int64{-1})
			}
			all := gotorch.Cat(flat).DivScalar_(a.group.Size())
			a.group.AllReduce(all, Sum)
			at := int64(0)
			for _, p := range averaged {
				p.Copy_(all.Narrow(0, at, p.Numel()).View(p.Shape()))
				at += p.Numel()
			}
		})
	})
}

// AveragingOptimizer is what [PostLocalSGDOptimizer] makes.
type AveragingOptimizer struct {
	optim.Optimizer
	averager *ModelAverager
}

// PostLocalSGDOptimizer has parameters be averaged after the optimiser's steps, when the averager says so. Its state has the
// averager's step, so that a run that goes on averages when it would have.
//
//	averager := distributed.PeriodicModelAverager(world, 4, distributed.PeriodicModelAveragerOptions{WarmupSteps: 100})
//	opt := distributed.PostLocalSGDOptimizer(optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), averager)
//
// It panics with a TypeError where one of them is nil.
//
// See https://docs.pytorch.org/docs/stable/distributed.optim.html#torch.distributed.optim.PostLocalSGDOptimizer.
func PostLocalSGDOptimizer(opt optim.Optimizer, averager *ModelAverager) *AveragingOptimizer {
	if opt == nil || averager == nil {
		panic(args.TypeError("distributed.PostLocalSGDOptimizer", "the optimiser or the averager is nil"))
	}
	return &AveragingOptimizer{Optimizer: opt, averager: averager}
}

// Step changes the parameters, and averages them.
func (o *AveragingOptimizer) Step() {
	o.Optimizer.Step()
	o.average()
}

// StepWith is Step with a closure: see [optim.Optimizer].
func (o *AveragingOptimizer) StepWith(closure func() gotorch.Tensor) gotorch.Tensor {
	loss := o.Optimizer.StepWith(closure)
	o.average()
	return loss
}

func (o *AveragingOptimizer) average() {
	var params []gotorch.Tensor
	for _, group := range o.ParamGroups() {
		params = append(params, group.Params()...)
	}
	o.averager.AverageParameters(params)
}

// StateDict returns the optimiser's state, with the averager's step, as Python saves it.
func (o *AveragingOptimizer) StateDict() gotorch.Dict {
	return append(slices.Clone(o.Optimizer.StateDict()), gotorch.DictItem{Key: "step", Value: o.averager.step})
}

// LoadStateDict restores what StateDict has returned, here or in PyTorch; where there is no step the averager begins anew. The
// error is the optimiser's, or a ValueError for a step that is no whole number of 0 or more, and nothing has changed then.
func (o *AveragingOptimizer) LoadStateDict(dict gotorch.Dict) error {
	step := int64(0)
	rest := slices.DeleteFunc(slices.Clone(dict), func(item gotorch.DictItem) bool { return item.Key == "step" })
	if value := dict.Get("step"); value != nil {
		n, is := value.(int64)
		if !is || n < 0 {
			return args.ValueError("PostLocalSGDOptimizer.LoadStateDict", "the averager's step is %v, and must be a whole number of 0 or more", value)
		}
		step = n
	}
	if err := o.Optimizer.LoadStateDict(rest); err != nil {
		return err
	}
	o.averager.step = step
	return nil
}
