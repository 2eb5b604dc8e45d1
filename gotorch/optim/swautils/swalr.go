package swautils

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/libm"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
)

// SWALRScheduler is what [SWALR] makes.
type SWALRScheduler struct {
	lrscheduler.LRScheduler
	AnnealEpochs   int64  `lr:"anneal_epochs"`
	AnnealStrategy string `lr:"_anneal_strategy"` // "cos" or "linear"
}

// SWALROptions are the arguments of [SWALR] that have defaults.
type SWALROptions struct {
	AnnealEpochs   gotorch.Scalar // how many steps it takes; default: 10
	AnnealStrategy string         // "cos" or "linear"; default: "cos"
	LastEpoch      gotorch.Scalar // the epoch to go on after; default: -1, which begins
}

// SWALR takes learning rates to swaLR, one number for all groups or one for each, in AnnealEpochs steps, and keeps
// them there: for the time in which weights are averaged. It is an lrscheduler.Scheduler. It panics with a
// ValueError if the strategy is unknown, AnnealEpochs negative, or if there are more or fewer numbers than groups.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.swa_utils.SWALR.html.
func SWALR[R lrscheduler.Rates](opt optim.Optimizer, swaLR R, opts ...SWALROptions) *SWALRScheduler {
	const op = "swautils.SWALR"
	o := args.Option(opts)
	s := &SWALRScheduler{AnnealStrategy: o.AnnealStrategy}
	if s.AnnealStrategy == "" {
		s.AnnealStrategy = "cos"
	}
	rates := lrscheduler.PerGroup(op, "swa_lr", swaLR, opt)
	if s.AnnealStrategy != "cos" && s.AnnealStrategy != "linear" {
		panic(args.ValueError(op, "anneal_strategy must be one of 'cos' or 'linear', instead got %s", s.AnnealStrategy))
	}
	s.AnnealEpochs = args.Int(op, "AnnealEpochs", o.AnnealEpochs, 10)
	if s.AnnealEpochs < 0 {
		panic(args.ValueError(op, "anneal_epochs must be equal or greater than 0, got %d", s.AnnealEpochs))
	}
	last := args.Int(op, "LastEpoch", o.LastEpoch, -1)
	lrscheduler.Guarded(opt, func() {
		for i, g := range opt.ParamGroups() {
			g.Set("swa_lr", rates[i])
		}
		s.Init(s, opt, last)
	})
	return s
}

// LoadStateDict restores what StateDict, here or in PyTorch, has returned. If it does not fit, it returns a
// *gotorch.Error of kind ValueError and changes nothing.
func (s *SWALRScheduler) LoadStateDict(dict gotorch.Dict) error {
	if strategy, ok := dict.Get("_anneal_strategy").(string); ok && strategy != "cos" && strategy != "linear" {
		return args.ValueError("swautils.SWALR.LoadStateDict", "the state dict has the strategy '%s', which is unknown", strategy)
	}
	return s.LRScheduler.LoadStateDict(dict)
}

// anneal returns how far learning rates are on their way after some steps, between 0 and 1.
func (s *SWALRScheduler) anneal(steps int64) float64 {
	part := max(0, min(1, float64(steps)/float64(max(1, s.AnnealEpochs))))
	if s.AnnealStrategy == "cos" {
		return (1 - libm.Cos(math.Pi*part)) / 2
	}
	return part
}

// NextLRs returns the learning rates for the next step.
func (s *SWALRScheduler) NextLRs() []float64 {
	step := s.StepCount() - 1
	if s.AnnealEpochs == 0 {
		step = max(1, step)
	}
	before, now := s.anneal(step-1), s.anneal(step)
	lrs := s.LRs()
	for i, g := range s.Optimizer().ParamGroups() {
		target, ok := g.Get("swa_lr")
		if !ok {
			panic(&gotorch.Error{Op: "swautils.SWALR", Kind: gotorch.KeyError, Msg: "'swa_lr' is not in a parameter group: the optimizer's state dict was saved without the scheduler"})
		}
		start := target // what the learning rate was at first
		if before != 1 {
			start = (lrs[i] - float64(before*target)) / (1 - before)
		}
		lrs[i] = float64(target*now) + float64(start*(1-now))
	}
	return lrs
}
