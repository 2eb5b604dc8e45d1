package lrscheduler

import (
	"fmt"
	"slices"
	"sort"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/optim"
)

// Lambdas is a function of the epoch for all groups of an optimiser, or one for each.
type Lambdas interface {
	func(epoch int64) float64 | []func(epoch int64) float64
}

// lambdas are the functions of a scheduler, which are no part of its state dict.
type lambdas []func(int64) float64

func lambdasOf[L Lambdas](op string, given L, opt optim.Optimizer) lambdas {
	groups := len(groupsOf(op, opt))
	var list []func(int64) float64
	switch l := any(given).(type) {
	case func(int64) float64:
		list = slices.Repeat([]func(int64) float64{l}, groups)
	case []func(int64) float64:
		list = slices.Clone(l)
	}
	if len(list) != groups {
		panic(args.ValueError(op, "Expected %d lr_lambdas, but got %d", groups, len(list)))
	}
	for i, fn := range list {
		if fn == nil {
			panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: fmt.Sprintf("lr_lambda should be a function, but is nil for group %d", i)})
		}
	}
	return list
}

func (l lambdas) moreState() gotorch.Dict {
	return gotorch.Dict{{Key: "lr_lambdas", Value: make([]any, len(l))}}
}

// readMore refuses what Python has of objects that it calls as functions.
func (l lambdas) readMore(r *reader) {
	if !r.has("lr_lambdas") {
		return
	}
	for _, v := range r.list("lr_lambdas", len(l)) {
		if v != nil {
			r.unfit("lr_lambdas", v, "None, as Go's functions have no state,")
		}
	}
}

// LambdaLRScheduler is what [LambdaLR] makes.
type LambdaLRScheduler struct {
	LRScheduler
	lambdas
}

// LambdaLROptions are the arguments of [LambdaLR] that have defaults.
type LambdaLROptions struct {
	LastEpoch gotorch.Scalar // the epoch to go on after; default: -1, which begins
}

// LambdaLR makes learning rates the initial ones times a function of the epoch, which begins at 0. One function is
// for all groups; of several there is one for each. Functions are not in state dicts. It panics with a ValueError
// if there are more or fewer functions than groups, and with a TypeError if one is nil.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.LambdaLR.html.
func LambdaLR[L Lambdas](opt optim.Optimizer, lrLambda L, opts ...LambdaLROptions) *LambdaLRScheduler {
	s := &LambdaLRScheduler{}
	last := lastEpoch(s, args.Option(opts).LastEpoch)
	s.lambdas = lambdasOf(nameOf(s), lrLambda, opt)
	s.Init(s, opt, last)
	return s
}

// NextLRs returns the learning rates for LastEpoch.
func (s *LambdaLRScheduler) NextLRs() []float64 {
	lrs := make([]float64, len(s.BaseLRs))
	for i, base := range s.BaseLRs {
		lrs[i] = base * s.lambdas[i](s.LastEpoch)
	}
	return lrs
}

// MultiplicativeLRScheduler is what [MultiplicativeLR] makes.
type MultiplicativeLRScheduler struct {
	LRScheduler
	lambdas
}

// MultiplicativeLROptions are the arguments of [MultiplicativeLR] that have defaults.
type MultiplicativeLROptions struct {
	LastEpoch gotorch.Scalar // the epoch to go on after; default: -1, which begins
}

// MultiplicativeLR multiplies learning rates by a function of the epoch, at each step from epoch 1 on. One function
// is for all groups; of several there is one for each. It panics as [LambdaLR] does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.MultiplicativeLR.html.
func MultiplicativeLR[L Lambdas](opt optim.Optimizer, lrLambda L, opts ...MultiplicativeLROptions) *MultiplicativeLRScheduler {
	s := &MultiplicativeLRScheduler{}
	last := lastEpoch(s, args.Option(opts).LastEpoch)
	s.lambdas = lambdasOf(nameOf(s), lrLambda, opt)
	s.Init(s, opt, last)
	return s
}

// NextLRs returns the learning rates for LastEpoch.
func (s *MultiplicativeLRScheduler) NextLRs() []float64 {
	lrs := s.LRs()
	if s.initial {
		return lrs
	}
	s.fits(len(lrs), len(s.lambdas))
	for i := range lrs {
		lrs[i] *= s.lambdas[i](s.LastEpoch)
	}
	return lrs
}

// fits panics with a ValueError unless groups are as many as when the scheduler was made.
func (s *LRScheduler) fits(groups, made int) {
	if groups != made {
		panic(args.ValueError(nameOf(s.self), "the scheduler was made for %d parameter groups, and the optimizer has %d", made, groups))
	}
}

// times returns the learning rates multiplied by a number.
func (s *LRScheduler) times(factor float64) []float64 {
	lrs := s.LRs()
	for i := range lrs {
		lrs[i] *= factor
	}
	return lrs
}

// baseTimes returns the initial learning rates multiplied by a number.
func (s *LRScheduler) baseTimes(factor float64) []float64 {
	lrs := slices.Clone(s.BaseLRs)
	for i := range lrs {
		lrs[i] *= factor
	}
	return lrs
}

func lastEpoch(self any, option gotorch.Scalar) int64 {
	return args.Int(nameOf(self), "LastEpoch", option, -1)
}

// StepLRScheduler is what [StepLR] makes.
type StepLRScheduler struct {
	LRScheduler
	StepSize int64   `lr:"step_size"`
	Gamma    float64 `lr:"gamma"`
}

// StepLROptions are the arguments of [StepLR] that have defaults.
type StepLROptions struct {
	Gamma     gotorch.Scalar // default: 0.1
	LastEpoch gotorch.Scalar // the epoch to go on after; default: -1, which begins
}

// StepLR multiplies learning rates by Gamma every stepSize epochs. Steps panic with a ZeroDivisionError if stepSize
// is 0.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.StepLR.html.
func StepLR(opt optim.Optimizer, stepSize int64, opts ...StepLROptions) *StepLRScheduler {
	o := args.Option(opts)
	s := &StepLRScheduler{StepSize: stepSize}
	s.Gamma = args.Float(nameOf(s), "Gamma", o.Gamma, 0.1)
	s.Init(s, opt, lastEpoch(s, o.LastEpoch))
	return s
}

// NextLRs returns the learning rates for LastEpoch.
func (s *StepLRScheduler) NextLRs() []float64 {
	if s.LastEpoch == 0 || modulo(nameOf(s), s.LastEpoch, s.StepSize) != 0 {
		return s.LRs()
	}
	return s.times(s.Gamma)
}

func (s *StepLRScheduler) closedFormLRs() []float64 {
	op := nameOf(s)
	return s.baseTimes(power(op, s.Gamma, float64(quotient(op, s.LastEpoch, s.StepSize))))
}

// MultiStepLRScheduler is what [MultiStepLR] makes.
type MultiStepLRScheduler struct {
	LRScheduler
	Milestones []int64 // in ascending order
	Gamma      float64 `lr:"gamma"`
}

// MultiStepLROptions are the arguments of [MultiStepLR] that have defaults.
type MultiStepLROptions struct {
	Gamma     gotorch.Scalar // default: 0.1
	LastEpoch gotorch.Scalar // the epoch to go on after; default: -1, which begins
}

// MultiStepLR multiplies learning rates by Gamma at each of the milestones, which are epochs; twice at one that is
// there twice.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.MultiStepLR.html.
func MultiStepLR(opt optim.Optimizer, milestones []int64, opts ...MultiStepLROptions) *MultiStepLRScheduler {
	o := args.Option(opts)
	s := &MultiStepLRScheduler{Milestones: slices.Sorted(slices.Values(milestones))}
	s.Gamma = args.Float(nameOf(s), "Gamma", o.Gamma, 0.1)
	s.Init(s, opt, lastEpoch(s, o.LastEpoch))
	return s
}

// NextLRs returns the learning rates for LastEpoch.
func (s *MultiStepLRScheduler) NextLRs() []float64 {
	times := 0
	for _, m := range s.Milestones {
		if m == s.LastEpoch {
			times++
		}
	}
	if times == 0 {
		return s.LRs()
	}
	return s.times(power(nameOf(s), s.Gamma, float64(times)))
}

func (s *MultiStepLRScheduler) closedFormLRs() []float64 {
	milestones := slices.Sorted(slices.Values(s.Milestones))
	return s.baseTimes(power(nameOf(s), s.Gamma, float64(passed(milestones, s.LastEpoch))))
}

// passed returns how many milestones are not after an epoch: Python's bisect_right.
func passed(milestones []int64, epoch int64) int {
	return sort.Search(len(milestones), func(i int) bool { return epoch < milestones[i] })
}

// Python counts how often each milestone is there.
func (s *MultiStepLRScheduler) moreState() gotorch.Dict {
	var counts gotorch.Counter
	for _, m := range s.Milestones {
		if n := len(counts); n > 0 && counts[n-1].Key == m {
			counts[n-1].Value = counts[n-1].Value.(int64) + 1
		} else {
			counts = append(counts, gotorch.DictItem{Key: m, Value: int64(1)})
		}
	}
	return gotorch.Dict{{Key: "milestones", Value: counts}}
}

func (s *MultiStepLRScheduler) readMore(r *reader) {
	dict, ok := r.dict.Get("milestones").(gotorch.Dict)
	if counter, is := r.dict.Get("milestones").(gotorch.Counter); is {
		dict, ok = gotorch.Dict(counter), true
	}
	if !ok {
		r.unfit("milestones", r.dict.Get("milestones"), "a Counter")
	}
	var milestones []int64
	for _, item := range dict {
		epoch, ok1 := item.Key.(int64)
		times, ok2 := item.Value.(int64)
		if !ok1 || !ok2 || times > maxMilestones {
			r.unfit("milestones", item.Value, "a Counter of epochs")
			return
		}
		if times > 0 {
			milestones = append(milestones, slices.Repeat([]int64{epoch}, int(times))...)
		}
	}
	slices.Sort(milestones)
	r.commit(func() { s.Milestones = milestones })
}

// maxMilestones is how often one may be there in a file, which could otherwise ask for all of the memory.
const maxMilestones = 1 << 16

// ConstantLRScheduler is what [ConstantLR] makes.
type ConstantLRScheduler struct {
	LRScheduler
	Factor     float64 `lr:"factor"`
	TotalIters int64   `lr:"total_iters"`
}

// ConstantLROptions are the arguments of [ConstantLR] that have defaults.
type ConstantLROptions struct {
	Factor     gotorch.Scalar // between 0 and 1; default: 0.3333333333333333
	TotalIters gotorch.Scalar // default: 5
	LastEpoch  gotorch.Scalar // the epoch to go on after; default: -1, which begins
}

// ConstantLR multiplies learning rates by Factor at first, and divides them by it again after TotalIters epochs. It
// panics with a ValueError if Factor is not between 0 and 1, and at its end with a ZeroDivisionError if it is 0.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ConstantLR.html.
func ConstantLR(opt optim.Optimizer, opts ...ConstantLROptions) *ConstantLRScheduler {
	o := args.Option(opts)
	s := &ConstantLRScheduler{}
	op := nameOf(s)
	s.Factor, s.TotalIters = args.Float(op, "Factor", o.Factor, 1.0/3), args.Int(op, "TotalIters", o.TotalIters, 5)
	if !(s.Factor >= 0 && s.Factor <= 1) {
		panic(args.ValueError(op, "Constant multiplicative factor expected to be between 0 and 1, but is %v.", s.Factor))
	}
	s.Init(s, opt, lastEpoch(s, o.LastEpoch))
	return s
}

// NextLRs returns the learning rates for LastEpoch.
func (s *ConstantLRScheduler) NextLRs() []float64 {
	switch s.LastEpoch {
	case 0:
		return s.times(s.Factor)
	case s.TotalIters:
		return s.times(divide(nameOf(s), 1, s.Factor))
	}
	return s.LRs()
}

func (s *ConstantLRScheduler) closedFormLRs() []float64 {
	after := 0.0
	if s.LastEpoch >= s.TotalIters {
		after = 1
	}
	return s.baseTimes(s.Factor + float64(after*(1-s.Factor)))
}

// LinearLRScheduler is what [LinearLR] makes.
type LinearLRScheduler struct {
	LRScheduler
	StartFactor float64 `lr:"start_factor"`
	EndFactor   float64 `lr:"end_factor"`
	TotalIters  int64   `lr:"total_iters"`
}

// LinearLROptions are the arguments of [LinearLR] that have defaults.
type LinearLROptions struct {
	StartFactor gotorch.Scalar // above 0 and at most 1; default: 0.3333333333333333
	EndFactor   gotorch.Scalar // between 0 and 1; default: 1
	TotalIters  gotorch.Scalar // default: 5
	LastEpoch   gotorch.Scalar // the epoch to go on after; default: -1, which begins
}

// LinearLR multiplies learning rates by a factor that goes from StartFactor to EndFactor in TotalIters epochs. It
// panics with a ValueError if a factor is out of range.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.LinearLR.html.
func LinearLR(opt optim.Optimizer, opts ...LinearLROptions) *LinearLRScheduler {
	o := args.Option(opts)
	s := &LinearLRScheduler{}
	op := nameOf(s)
	s.StartFactor, s.EndFactor = args.Float(op, "StartFactor", o.StartFactor, 1.0/3), args.Float(op, "EndFactor", o.EndFactor, 1)
	s.TotalIters = args.Int(op, "TotalIters", o.TotalIters, 5)
	if !(s.StartFactor > 0 && s.StartFactor <= 1) {
		panic(args.ValueError(op, "Starting multiplicative factor expected to be greater than 0 and less or equal to 1, but is %v.", s.StartFactor))
	}
	if !(s.EndFactor >= 0 && s.EndFactor <= 1) {
		panic(args.ValueError(op, "Ending multiplicative factor expected to be between 0 and 1, but is %v.", s.EndFactor))
	}
	s.Init(s, opt, lastEpoch(s, o.LastEpoch))
	return s
}

// NextLRs returns the learning rates for LastEpoch.
func (s *LinearLRScheduler) NextLRs() []float64 {
	if s.LastEpoch == 0 {
		return s.times(s.StartFactor)
	}
	if s.initial || s.LastEpoch > s.TotalIters {
		return s.LRs()
	}
	change := s.EndFactor - s.StartFactor
	before := float64(float64(s.TotalIters)*s.StartFactor) + float64(float64(s.LastEpoch-1)*change)
	return s.times(1 + divide(nameOf(s), change, before))
}

func (s *LinearLRScheduler) closedFormLRs() []float64 {
	change := (s.EndFactor - s.StartFactor) * float64(min(s.TotalIters, s.LastEpoch))
	return s.baseTimes(s.StartFactor + divide(nameOf(s), change, float64(s.TotalIters)))
}

// ExponentialLRScheduler is what [ExponentialLR] makes.
type ExponentialLRScheduler struct {
	LRScheduler
	Gamma float64 `lr:"gamma"`
}

// ExponentialLROptions are the arguments of [ExponentialLR] that have defaults.
type ExponentialLROptions struct {
	LastEpoch gotorch.Scalar // the epoch to go on after; default: -1, which begins
}

// ExponentialLR multiplies learning rates by gamma at each step.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ExponentialLR.html.
func ExponentialLR(opt optim.Optimizer, gamma float64, opts ...ExponentialLROptions) *ExponentialLRScheduler {
	s := &ExponentialLRScheduler{Gamma: gamma}
	s.Init(s, opt, lastEpoch(s, args.Option(opts).LastEpoch))
	return s
}

// NextLRs returns the learning rates for LastEpoch.
func (s *ExponentialLRScheduler) NextLRs() []float64 {
	if s.initial {
		return s.LRs()
	}
	return s.times(s.Gamma)
}

func (s *ExponentialLRScheduler) closedFormLRs() []float64 {
	return s.baseTimes(power(nameOf(s), s.Gamma, float64(s.LastEpoch)))
}

// PolynomialLRScheduler is what [PolynomialLR] makes.
type PolynomialLRScheduler struct {
	LRScheduler
	TotalIters int64   `lr:"total_iters"`
	Power      float64 `lr:"power"`
}

// PolynomialLROptions are the arguments of [PolynomialLR] that have defaults.
type PolynomialLROptions struct {
	TotalIters gotorch.Scalar // default: 5
	Power      gotorch.Scalar // default: 1
	LastEpoch  gotorch.Scalar // the epoch to go on after; default: -1, which begins
}

// PolynomialLR makes learning rates fall to 0 in TotalIters epochs, as what is left of these to some power.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.PolynomialLR.html.
func PolynomialLR(opt optim.Optimizer, opts ...PolynomialLROptions) *PolynomialLRScheduler {
	o := args.Option(opts)
	s := &PolynomialLRScheduler{}
	op := nameOf(s)
	s.TotalIters, s.Power = args.Int(op, "TotalIters", o.TotalIters, 5), args.Float(op, "Power", o.Power, 1)
	s.Init(s, opt, lastEpoch(s, o.LastEpoch))
	return s
}

// NextLRs returns the learning rates for LastEpoch.
func (s *PolynomialLRScheduler) NextLRs() []float64 {
	if s.initial || s.LastEpoch > s.TotalIters {
		return s.LRs()
	}
	op := nameOf(s)
	left := func(epoch int64) float64 { return 1 - divide(op, float64(epoch), float64(s.TotalIters)) }
	return s.times(power(op, divide(op, left(s.LastEpoch), left(s.LastEpoch-1)), s.Power))
}

func (s *PolynomialLRScheduler) closedFormLRs() []float64 {
	op := nameOf(s)
	left := 1 - divide(op, float64(min(s.TotalIters, s.LastEpoch)), float64(s.TotalIters))
	return s.baseTimes(power(op, left, s.Power))
}
