package lrscheduler

import (
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/libm"
	"gotorch.dev/gotorch/optim"
)

// checkMomentum panics with a ValueError unless the rule of an optimiser has a momentum, or betas.
func checkMomentum(op string, groups []optim.ParamGroup) {
	for _, g := range groups {
		if g.Momentum() == nil {
			panic(args.ValueError(op, "optimizer must support momentum or beta1 with `cycle_momentum` option enabled: set NoCycleMomentum"))
		}
	}
}

// usesBetas reports whether momenta are the first of betas, as PyTorch's state dicts say.
func usesBetas(groups []optim.ParamGroup) bool {
	for _, g := range groups {
		if _, plain := g.Get("momentum"); !plain && g.Momentum() != nil {
			return true
		}
	}
	return false
}

// setMomenta sets the momentum of each group, and what it goes between.
func setMomenta(groups []optim.ParamGroup, least, greatest []float64) {
	for i, g := range groups {
		*g.Momentum() = greatest[i]
		g.Set("max_momentum", greatest[i])
		g.Set("base_momentum", least[i])
	}
}

// CyclicLRScheduler is what [CyclicLR] makes.
type CyclicLRScheduler struct {
	LRScheduler
	MaxLRs        []float64 `lr:"max_lrs"`
	TotalSize     float64   `lr:"total_size"` // the steps of a cycle
	StepRatio     float64   `lr:"step_ratio"` // the part of them that goes up
	Mode          string    `lr:"mode"`
	Gamma         float64   `lr:"gamma"`
	ScaleMode     string    `lr:"scale_mode"`
	CycleMomentum bool      `lr:"cycle_momentum"`
	// BaseMomentums and MaxMomentums are what the momentum of each group goes between, if it does.
	BaseMomentums, MaxMomentums []float64

	scaleFn func(float64) float64
}

// CyclicLROptions are the arguments of [CyclicLR] that have defaults.
type CyclicLROptions struct {
	StepSizeUp   gotorch.Scalar // the steps of a cycle that go up; default: 2000
	StepSizeDown gotorch.Scalar // those that go down; default: as many
	// Mode is how high the cycles are: "triangular", all the same; "triangular2", each half as high as the one
	// before it; "exp_range", by Gamma to the power of the step.
	Mode  string         // default: "triangular"
	Gamma gotorch.Scalar // default: 1
	// ScaleFn says how high a cycle is in place of Mode: of the cycle's number, from 1 on, or of the step's,
	// from 0 on, if ScaleMode is "iterations". It is not in state dicts.
	ScaleFn         func(x float64) float64
	ScaleMode       string         // "cycle" or "iterations"; default: "cycle"
	NoCycleMomentum bool           // leave momenta alone, which otherwise fall as learning rates rise
	BaseMomentum    []float64      // the least momentum, one for all groups or one for each; default: 0.8
	MaxMomentum     []float64      // the greatest one; default: 0.9
	LastEpoch       gotorch.Scalar // the step to go on after; default: -1, which begins
}

// CyclicLR takes learning rates up from baseLR to maxLR and down again, time after time; each is one number for all
// groups or one for each. Its steps come after each batch. It panics with a ValueError if a mode is unknown, if
// there are more or fewer numbers than groups, or if the optimiser has no momentum and NoCycleMomentum is not set.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.CyclicLR.html.
func CyclicLR[B, M Rates](opt optim.Optimizer, baseLR B, maxLR M, opts ...CyclicLROptions) *CyclicLRScheduler {
	o := args.Option(opts)
	s := &CyclicLRScheduler{Mode: orText(o.Mode, "triangular"), ScaleMode: orText(o.ScaleMode, "cycle"), CycleMomentum: !o.NoCycleMomentum, scaleFn: o.ScaleFn}
	op := nameOf(s)
	groups := groupsOf(op, opt)
	base := ratesOf(op, "base_lr", baseLR, len(groups))
	s.MaxLRs = ratesOf(op, "max_lr", maxLR, len(groups))
	up := args.Float(op, "StepSizeUp", o.StepSizeUp, 2000)
	s.TotalSize = up + args.Float(op, "StepSizeDown", o.StepSizeDown, up)
	s.StepRatio = divide(op, up, s.TotalSize)
	s.Gamma = args.Float(op, "Gamma", o.Gamma, 1)
	if !s.knows(s.Mode) {
		panic(args.ValueError(op, "mode is invalid and scale_fn is None: %s", s.Mode))
	}
	if s.ScaleMode != "cycle" && s.ScaleMode != "iterations" {
		panic(args.ValueError(op, "ScaleMode must be one of 'cycle' or 'iterations', instead got %s", s.ScaleMode))
	}
	s.scaleBy()
	if s.CycleMomentum {
		checkMomentum(op, groups)
		s.BaseMomentums = perGroupOr(op, "base_momentum", o.BaseMomentum, 0.8, len(groups))
		s.MaxMomentums = perGroupOr(op, "max_momentum", o.MaxMomentum, 0.9, len(groups))
	}
	last := lastEpoch(s, o.LastEpoch)
	guarded([]state{stateOf(groups)}, func() {
		if last == -1 {
			for i, g := range groups {
				*g.LR() = base[i]
			}
			if s.CycleMomentum {
				setMomenta(groups, s.BaseMomentums, s.MaxMomentums)
			}
		}
		s.Init(s, opt, last)
	})
	s.BaseLRs = base
	return s
}

func (s *CyclicLRScheduler) knows(mode string) bool {
	return s.scaleFn != nil || mode == "triangular" || mode == "triangular2" || mode == "exp_range"
}

// scaleBy makes ScaleMode that of Mode.
func (s *CyclicLRScheduler) scaleBy() {
	if s.scaleFn == nil {
		s.ScaleMode = "cycle"
		if s.Mode == "exp_range" {
			s.ScaleMode = "iterations"
		}
	}
}

// scale returns how high a cycle is.
func (s *CyclicLRScheduler) scale(op string, x float64) float64 {
	switch {
	case s.scaleFn != nil:
		return s.scaleFn(x)
	case s.Mode == "triangular2":
		return 1 / power(op, 2, x-1)
	case s.Mode == "exp_range":
		return power(op, s.Gamma, x)
	}
	return 1
}

// NextLRs returns the learning rates for LastEpoch, and sets momenta.
func (s *CyclicLRScheduler) NextLRs() []float64 {
	op := nameOf(s)
	groups := s.opt.ParamGroups()
	cycles := divide(op, float64(s.LastEpoch), s.TotalSize)
	cycle := math.Floor(1 + cycles)
	x := 1 + cycles - cycle
	var height float64
	if x <= s.StepRatio {
		height = divide(op, x, s.StepRatio)
	} else {
		height = divide(op, x-1, s.StepRatio-1)
	}
	at := cycle
	if s.ScaleMode != "cycle" {
		at = float64(s.LastEpoch)
	}
	s.fits(len(groups), len(s.MaxLRs))
	lrs := slices.Clone(s.BaseLRs)
	for i, base := range s.BaseLRs {
		lrs[i] += float64((s.MaxLRs[i] - base) * height * s.scale(op, at))
	}
	if s.CycleMomentum {
		momenta := slices.Clone(s.MaxMomentums)
		for i, greatest := range s.MaxMomentums {
			momenta[i] -= float64((greatest - s.BaseMomentums[i]) * height * s.scale(op, at))
		}
		for i, g := range groups {
			*g.Momentum() = momenta[i]
		}
	}
	return lrs
}

func (s *CyclicLRScheduler) moreState() (dict gotorch.Dict) {
	if s.CycleMomentum {
		dict = gotorch.Dict{{Key: "use_beta1", Value: usesBetas(s.opt.ParamGroups())},
			{Key: "base_momentums", Value: floats(s.BaseMomentums)}, {Key: "max_momentums", Value: floats(s.MaxMomentums)}}
	}
	return append(dict, gotorch.DictItem{Key: "_scale_fn_custom"})
}

func (s *CyclicLRScheduler) readMore(r *reader) {
	if fn := r.dict.Get("_scale_fn_custom"); fn != nil {
		r.unfit("_scale_fn_custom", fn, "None, as Go's functions have no state,")
	}
	if mode := r.text("mode"); !s.knows(mode) {
		r.fail("the state dict has the mode %s, which is unknown", mode)
	}
	var least, greatest []float64
	if r.bool("cycle_momentum") {
		readMomentum(r, s.opt)
		least, greatest = r.floats("base_momentums", len(s.MaxLRs)), r.floats("max_momentums", len(s.MaxLRs))
	}
	r.commit(func() {
		s.BaseMomentums, s.MaxMomentums = least, greatest
		s.scaleBy()
	})
}

// readMomentum checks that momenta can be cycled.
func readMomentum(r *reader, opt optim.Optimizer) {
	if _, err := gotorch.Try(func() any { checkMomentum(r.op, opt.ParamGroups()); return nil }); err != nil {
		r.fail("the state dict cycles momenta, and the optimizer has none")
	}
}

// OneCycleLRScheduler is what [OneCycleLR] makes.
type OneCycleLRScheduler struct {
	LRScheduler
	TotalSteps     int64  `lr:"total_steps"`
	AnnealStrategy string `lr:"_anneal_func_type"`
	CycleMomentum  bool   `lr:"cycle_momentum"`

	phases []phase
}

// phase is a part of the cycle: the step at which it ends, and the numbers of groups that it goes between.
type phase struct {
	end  float64
	from struct{ lr, momentum string }
	to   struct{ lr, momentum string }
}

func newPhase(end float64, fromLR, toLR, fromMomentum, toMomentum string) (p phase) {
	p.end = end
	p.from.lr, p.to.lr, p.from.momentum, p.to.momentum = fromLR, toLR, fromMomentum, toMomentum
	return p
}

// names are those of a phase in state dicts.
func (p *phase) names() map[string]*string {
	return map[string]*string{"start_lr": &p.from.lr, "end_lr": &p.to.lr, "start_momentum": &p.from.momentum, "end_momentum": &p.to.momentum}
}

// OneCycleLROptions are the arguments of [OneCycleLR] that have defaults. TotalSteps must be given, or else Epochs
// and StepsPerEpoch.
type OneCycleLROptions struct {
	TotalSteps      gotorch.Scalar // default: Epochs·StepsPerEpoch
	Epochs          gotorch.Scalar
	StepsPerEpoch   gotorch.Scalar
	PctStart        gotorch.Scalar // the part of the cycle that goes up, between 0 and 1; default: 0.3
	AnnealStrategy  string         // "cos" or "linear"; default: "cos"
	NoCycleMomentum bool           // leave momenta alone, which otherwise fall as learning rates rise
	BaseMomentum    []float64      // the least momentum, one for all groups or one for each; default: 0.85
	MaxMomentum     []float64      // the greatest one; default: 0.95
	DivFactor       gotorch.Scalar // the cycle begins at maxLR/DivFactor; default: 25
	FinalDivFactor  gotorch.Scalar // and ends at that divided by FinalDivFactor; default: 1e4
	ThreePhase      bool           // go down as far as it went up first, and on to the end from there
	LastEpoch       gotorch.Scalar // the step to go on after; default: -1, which begins
}

// OneCycleLR takes learning rates up to maxLR, one number for all groups or one for each, and down further than they
// began. Its steps come after each batch; one more than TotalSteps panics with a ValueError. OneCycleLR panics with
// a ValueError if the number of steps is not given or an option is out of range, if there are more or fewer numbers
// than groups, or if the optimiser has no momentum and NoCycleMomentum is not set.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.OneCycleLR.html.
func OneCycleLR[M Rates](opt optim.Optimizer, maxLR M, opts ...OneCycleLROptions) *OneCycleLRScheduler {
	o := args.Option(opts)
	s := &OneCycleLRScheduler{AnnealStrategy: orText(o.AnnealStrategy, "cos"), CycleMomentum: !o.NoCycleMomentum}
	op := nameOf(s)
	groups := groupsOf(op, opt)
	s.TotalSteps = s.steps(op, o)
	start := args.Float(op, "PctStart", o.PctStart, 0.3)
	if !(start >= 0 && start <= 1) {
		panic(args.ValueError(op, "Expected float between 0 and 1 pct_start, but got %v", start))
	}
	if !annealing(s.AnnealStrategy) {
		panic(args.ValueError(op, "anneal_strategy must be one of 'cos' or 'linear', instead got %s", s.AnnealStrategy))
	}
	steps := float64(s.TotalSteps)
	up := newPhase(float64(start*steps)-1, "initial_lr", "max_lr", "max_momentum", "base_momentum")
	if s.phases = []phase{up, newPhase(steps-1, "max_lr", "min_lr", "base_momentum", "max_momentum")}; o.ThreePhase {
		s.phases = []phase{up, newPhase(float64(2*start*steps)-2, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
			newPhase(steps-1, "initial_lr", "min_lr", "max_momentum", "max_momentum")}
	}
	greatest := ratesOf(op, "max_lr", maxLR, len(groups))
	div, finalDiv := args.Float(op, "DivFactor", o.DivFactor, 25), args.Float(op, "FinalDivFactor", o.FinalDivFactor, 1e4)
	var low, high []float64
	if s.CycleMomentum {
		checkMomentum(op, groups)
		high = perGroupOr(op, "max_momentum", o.MaxMomentum, 0.95, len(groups))
		low = perGroupOr(op, "base_momentum", o.BaseMomentum, 0.85, len(groups))
	}
	last := lastEpoch(s, o.LastEpoch)
	guarded([]state{stateOf(groups)}, func() {
		if last == -1 {
			for i, g := range groups {
				initial := divide(op, greatest[i], div)
				g.Set("initial_lr", initial)
				g.Set("max_lr", greatest[i])
				g.Set("min_lr", divide(op, initial, finalDiv))
			}
			if s.CycleMomentum {
				setMomenta(groups, low, high)
			}
		}
		s.Init(s, opt, last)
	})
	return s
}

// steps returns how many steps options ask for.
func (s *OneCycleLRScheduler) steps(op string, o OneCycleLROptions) int64 {
	total := args.IntPointer(op, "TotalSteps", o.TotalSteps)
	epochs, perEpoch := args.IntPointer(op, "Epochs", o.Epochs), args.IntPointer(op, "StepsPerEpoch", o.StepsPerEpoch)
	positive := func(name string, n int64) int64 {
		if n <= 0 {
			panic(args.ValueError(op, "Expected positive integer %s, but got %d", name, n))
		}
		return n
	}
	switch {
	case total != nil:
		return positive("total_steps", *total)
	case epochs == nil || perEpoch == nil:
		panic(args.ValueError(op, "You must define either total_steps OR (epochs AND steps_per_epoch)"))
	}
	if positive("epochs", *epochs) > math.MaxInt64/positive("steps_per_epoch", *perEpoch) {
		panic(args.ValueError(op, "%d epochs of %d steps are too many", *epochs, *perEpoch))
	}
	return *epochs * *perEpoch
}

func annealing(strategy string) bool { return strategy == "cos" || strategy == "linear" }

// anneal returns a number on the way from start to end.
func (s *OneCycleLRScheduler) anneal(start, end, part float64) float64 {
	if s.AnnealStrategy == "cos" {
		return end + float64((start-end)/2*(libm.Cos(math.Pi*part)+1))
	}
	return float64((end-start)*part) + start
}

// NextLRs returns the learning rates for LastEpoch, and sets momenta. It panics with a ValueError after the last.
func (s *OneCycleLRScheduler) NextLRs() []float64 {
	op := nameOf(s)
	if s.LastEpoch > s.TotalSteps {
		panic(args.ValueError(op, "Tried to step %d times. The specified number of total steps is %d", s.LastEpoch, s.TotalSteps))
	}
	at, begin, p := float64(s.LastEpoch), 0.0, s.phases[0]
	for _, next := range s.phases[1:] {
		if at <= p.end {
			break
		}
		begin, p = p.end, next
	}
	part := divide(op, at-begin, p.end-begin)
	groups := s.opt.ParamGroups()
	s.fits(len(groups), len(s.BaseLRs))
	lrs, momenta := make([]float64, len(groups)), make([]float64, len(groups))
	for i, g := range groups {
		lrs[i] = s.anneal(need(op, g, p.from.lr), need(op, g, p.to.lr), part)
		if s.CycleMomentum {
			momenta[i] = s.anneal(need(op, g, p.from.momentum), need(op, g, p.to.momentum), part)
		}
	}
	if s.CycleMomentum {
		for i, g := range groups {
			*g.Momentum() = momenta[i]
		}
	}
	return lrs
}

func (s *OneCycleLRScheduler) moreState() gotorch.Dict {
	var phases []any
	for i, p := range s.phases {
		var end any = p.end
		if i == len(s.phases)-1 {
			end = int64(p.end)
		}
		phases = append(phases, gotorch.Dict{{Key: "end_step", Value: end}, {Key: "start_lr", Value: p.from.lr}, {Key: "end_lr", Value: p.to.lr},
			{Key: "start_momentum", Value: p.from.momentum}, {Key: "end_momentum", Value: p.to.momentum}})
	}
	dict := gotorch.Dict{{Key: "_schedule_phases", Value: phases}}
	if s.CycleMomentum {
		dict = append(dict, gotorch.DictItem{Key: "use_beta1", Value: usesBetas(s.opt.ParamGroups())})
	}
	return dict
}

func (s *OneCycleLRScheduler) readMore(r *reader) {
	if strategy := r.text("_anneal_func_type"); !annealing(strategy) {
		r.fail("the state dict has the strategy %s, which is unknown", strategy)
	}
	if r.bool("cycle_momentum") {
		readMomentum(r, s.opt)
	}
	var phases []phase
	for _, v := range r.list("_schedule_phases", -1) {
		dict, _ := v.(gotorch.Dict)
		in := &reader{op: r.op, dict: dict}
		p := phase{end: in.float("end_step")}
		for key, name := range p.names() {
			*name = in.text(key)
		}
		if in.err != nil {
			r.fail("%s", in.err.(*gotorch.Error).Msg)
		}
		phases = append(phases, p)
	}
	if len(phases) == 0 {
		r.fail("the state dict has no phases")
	}
	r.commit(func() { s.phases = phases })
}
