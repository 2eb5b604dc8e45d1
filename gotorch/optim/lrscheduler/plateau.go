package lrscheduler

import (
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/optim"
)

// ReduceLROnPlateauScheduler is what [ReduceLROnPlateau] makes.
type ReduceLROnPlateauScheduler struct {
	Factor        float64   `lr:"factor"`
	MinLRs        []float64 // the least learning rate of each group
	Patience      int64     `lr:"patience"`
	Cooldown      int64     `lr:"cooldown"`
	Eps           float64   `lr:"eps"`
	LastEpoch     int64     `lr:"last_epoch"` // how many steps were taken
	Mode          string    `lr:"mode"`
	Threshold     float64   `lr:"threshold"`
	ThresholdMode string    `lr:"threshold_mode"`
	// Best is the best metric, BadEpochs how many were worse since, CooldownCounter how many are not to count.
	Best            float64 `lr:"best"`
	CooldownCounter int64   `lr:"cooldown_counter"`
	BadEpochs       int64   `lr:"num_bad_epochs"`

	opt     optim.Optimizer
	minLR   *float64 // for all groups; nil where MinLRs was given
	lastLRs []float64
}

// ReduceLROnPlateauOptions are the arguments of [ReduceLROnPlateau] that have defaults.
type ReduceLROnPlateauOptions struct {
	Mode          string         // whether the metric is to be small or large: "min" or "max"; default: "min"
	Factor        gotorch.Scalar // what learning rates are multiplied by, less than 1; default: 0.1
	Patience      gotorch.Scalar // how many steps in a row without a better metric are let pass; default: 10
	Threshold     gotorch.Scalar // how much better counts as better; default: 1e-4
	ThresholdMode string         // whether that is a part of the metric or a difference: "rel" or "abs"; default: "rel"
	Cooldown      int64          // how many steps after a reduction do not count
	MinLR         []float64      // the least learning rate, one for all groups or one for each
	Eps           gotorch.Scalar // the least change that is made; default: 1e-8
}

// ReduceLROnPlateau multiplies learning rates by Factor when a metric, such as the loss of a validation, has not
// become better for Patience steps. It panics with a ValueError if Factor is 1 or more, if a mode is unknown, or if
// there are several MinLR and not one for each group.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ReduceLROnPlateau.html.
func ReduceLROnPlateau(opt optim.Optimizer, opts ...ReduceLROnPlateauOptions) *ReduceLROnPlateauScheduler {
	o := args.Option(opts)
	s := &ReduceLROnPlateauScheduler{opt: opt, Mode: orText(o.Mode, "min"), ThresholdMode: orText(o.ThresholdMode, "rel"), Cooldown: o.Cooldown}
	op := nameOf(s)
	s.Factor, s.Patience = args.Float(op, "Factor", o.Factor, 0.1), args.Int(op, "Patience", o.Patience, 10)
	s.Threshold, s.Eps = args.Float(op, "Threshold", o.Threshold, 1e-4), args.Float(op, "Eps", o.Eps, 1e-8)
	if !(s.Factor < 1) {
		panic(args.ValueError(op, "Factor should be < 1.0, but is %v.", s.Factor))
	}
	groups := len(groupsOf(op, opt))
	s.MinLRs = perGroupOr(op, "MinLR", o.MinLR, 0, groups)
	if len(o.MinLR) < 2 {
		s.minLR = new(0.0)
		if len(o.MinLR) == 1 {
			*s.minLR = o.MinLR[0]
		}
	}
	if err := s.checkModes(op, s.Mode, s.ThresholdMode); err != nil {
		panic(err)
	}
	s.Best, s.lastLRs = s.worst(s.Mode), lrsOf(opt)
	return s
}

func orText(text, value string) string {
	if text == "" {
		return value
	}
	return text
}

func (s *ReduceLROnPlateauScheduler) checkModes(op, mode, thresholdMode string) *gotorch.Error {
	if mode != "min" && mode != "max" {
		return args.ValueError(op, "mode %s is unknown! It is min or max", mode)
	}
	if thresholdMode != "rel" && thresholdMode != "abs" {
		return args.ValueError(op, "threshold mode %s is unknown! It is rel or abs", thresholdMode)
	}
	return nil
}

// worst returns what every metric is better than.
func (s *ReduceLROnPlateauScheduler) worst(mode string) float64 {
	if mode == "max" {
		return math.Inf(-1)
	}
	return math.Inf(1)
}

// Step takes a metric. If there are more or fewer groups than MinLRs for each, it panics with a RuntimeError when
// learning rates are to be reduced, and nothing has changed. A metric that is NaN is not better than any.
func (s *ReduceLROnPlateauScheduler) Step(metric float64) {
	const op = "lrscheduler.ReduceLROnPlateau.Step"
	if s.opt == nil {
		panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: "the scheduler was not made by ReduceLROnPlateau"})
	}
	best, bad, cooldown := s.Best, s.BadEpochs+1, s.CooldownCounter
	if s.better(metric) {
		best, bad = metric, 0
	}
	if cooldown > 0 {
		cooldown, bad = cooldown-1, 0
	}
	if bad > s.Patience {
		s.reduce(op)
		cooldown, bad = s.Cooldown, 0
	}
	s.LastEpoch++
	s.Best, s.BadEpochs, s.CooldownCounter = best, bad, cooldown
	s.lastLRs = lrsOf(s.opt)
}

func (s *ReduceLROnPlateauScheduler) better(metric float64) bool {
	switch {
	case s.Mode == "min" && s.ThresholdMode == "rel":
		return metric < s.Best*(1-s.Threshold)
	case s.Mode == "min":
		return metric < s.Best-s.Threshold
	case s.ThresholdMode == "rel":
		return metric > s.Best*(s.Threshold+1)
	}
	return metric > s.Best+s.Threshold
}

func (s *ReduceLROnPlateauScheduler) reduce(op string) {
	groups := s.opt.ParamGroups()
	if len(groups) != len(s.MinLRs) {
		if s.minLR == nil {
			panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: "the number of parameter groups differs from when ReduceLROnPlateau was made, " +
				"as where a group was added to the optimizer: make MinLRs as long"})
		}
		s.MinLRs = slices.Repeat([]float64{*s.minLR}, len(groups))
	}
	for i, group := range groups {
		lr := group.LR()
		reduced := *lr * s.Factor
		if s.MinLRs[i] > reduced { // not where one is NaN, as Python's max
			reduced = s.MinLRs[i]
		}
		if *lr-reduced > s.Eps {
			*lr = reduced
		}
	}
}

// LastLRs returns the learning rates after the last step, one for each group.
func (s *ReduceLROnPlateauScheduler) LastLRs() []float64 { return slices.Clone(s.lastLRs) }

// Optimizer returns the optimiser whose learning rates the scheduler changes.
func (s *ReduceLROnPlateauScheduler) Optimizer() optim.Optimizer { return s.opt }

// StateDict returns what the scheduler remembers, as PyTorch's state_dict does.
func (s *ReduceLROnPlateauScheduler) StateDict() gotorch.Dict {
	var minLR any
	if s.minLR != nil {
		minLR = *s.minLR
	}
	return append(fieldsOf(s), gotorch.Dict{{Key: "default_min_lr", Value: minLR}, {Key: "min_lrs", Value: floats(s.MinLRs)},
		{Key: "mode_worse", Value: s.worst(s.Mode)}, {Key: "_last_lr", Value: floats(s.lastLRs)}}...)
}

// LoadStateDict restores what StateDict, here or in PyTorch, has returned. If it does not fit, it returns a
// *gotorch.Error of kind ValueError and changes nothing.
func (s *ReduceLROnPlateauScheduler) LoadStateDict(dict gotorch.Dict) error { return load(s, dict) }

func (s *ReduceLROnPlateauScheduler) read(r *reader) {
	r.fields(s)
	var minLR *float64
	if r.dict.Get("default_min_lr") != nil {
		minLR = new(r.float("default_min_lr"))
	}
	minLRs, last := r.floats("min_lrs", len(s.MinLRs)), r.floats("_last_lr", len(s.lastLRs))
	if r.err == nil {
		if err := s.checkModes(r.op, r.text("mode"), r.text("threshold_mode")); err != nil {
			r.fail("%s", err.Msg)
		}
	}
	r.commit(func() { s.minLR, s.MinLRs, s.lastLRs = minLR, minLRs, last })
}
