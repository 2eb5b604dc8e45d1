package lrscheduler

import (
	"fmt"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/optim"
)

// part is a scheduler that can be a part of another: one with an LRScheduler.
type part interface {
	Scheduler
	base() *LRScheduler
	begin()
	state() func()
	read(r *reader)
}

// parts is what schedulers of schedulers have in common.
type parts struct {
	LRScheduler
	schedulers []part
	counted    bool // whether it was begun as a part of another, after which PyTorch's state dict says more
}

// partsOf checks the schedulers that another one is made of.
func partsOf(op string, opt optim.Optimizer, schedulers []Scheduler) []part {
	var list []part
	for i, s := range schedulers {
		p, ok := s.(part)
		if !ok || isNil(s) {
			panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: fmt.Sprintf("the scheduler at index %d is a %T, which is nil or does not embed an LRScheduler", i, s)})
		}
		if of := p.base().opt; of == nil {
			panic(args.ValueError(op, "the scheduler at index %d was not set up: call Init of its LRScheduler", i))
		} else if of != opt {
			panic(args.ValueError(op, "%s expects all schedulers to belong to the same optimizer, but got scheduler %s at index %d, which belongs to another one",
				op, nameOf(s), i))
		}
		list = append(list, p)
	}
	return list
}

// state restores the schedulers within, too.
func (s *parts) state() func() {
	all := []func(){s.LRScheduler.state()}
	for _, p := range s.schedulers {
		all = append(all, p.state())
	}
	counted := s.counted
	return func() {
		s.counted = counted
		for _, restore := range all {
			restore()
		}
	}
}

// whole is like LRScheduler.guarded, for the schedulers within too.
func (s *parts) whole(fn func()) { guarded([]state{s.state, stateOf(groupsOf("", s.opt))}, fn) }

// begin is not for schedulers of schedulers, which have no learning rates of their own.
func (s *parts) begin() {
	panic(&gotorch.Error{Op: nameOf(s.self), Kind: gotorch.NotImplementedError, Msg: "a scheduler of schedulers cannot begin at a milestone of SequentialLR: only the first may be one"})
}

// NextLRs panics with a NotImplementedError: the learning rates are those of other schedulers.
func (s *parts) NextLRs() []float64 {
	panic(&gotorch.Error{Op: nameOf(s.self), Kind: gotorch.NotImplementedError, Msg: "a scheduler of schedulers has no learning rates of its own"})
}

// undo takes back the step that schedulers take when they are made.
func undo(s part) {
	if in, ok := s.(interface{ within() []part }); ok {
		for _, p := range in.within() {
			undo(p)
		}
		return
	}
	s.base().LastEpoch--
}

func (s *parts) within() []part { return s.schedulers }

// restart takes the first step of a scheduler once more.
func restart(s part) {
	if in, ok := s.(interface{ count() }); ok {
		in.count()
	}
	b := s.base()
	b.stepCount, b.initial = 0, true
	defer func() { b.initial = false }()
	s.Step()
}

func (s *parts) count() { s.counted = true }

// stateDict returns own and what the schedulers within remember.
func (s *parts) stateDict(own gotorch.Dict) gotorch.Dict {
	dict := append(own, gotorch.DictItem{Key: "_last_lr", Value: floats(s.lastLRs)})
	if s.counted {
		dict = append(dict, gotorch.DictItem{Key: "_step_count", Value: s.stepCount}, gotorch.DictItem{Key: "_is_initial", Value: false})
	}
	states := make([]any, len(s.schedulers))
	for i, p := range s.schedulers {
		states[i] = p.StateDict()
	}
	return append(dict, gotorch.DictItem{Key: "_schedulers", Value: states})
}

func (s *parts) read(r *reader) {
	last := r.floats("_last_lr", len(s.lastLRs))
	count := s.stepCount
	if r.has("_step_count") {
		count = r.integer("_step_count")
	}
	counted := s.counted || r.has("_step_count")
	r.commit(func() { s.lastLRs, s.stepCount, s.counted = last, count, counted })
	states := r.list("_schedulers", -1)
	if r.err == nil && len(states) != len(s.schedulers) {
		r.fail("the state dict has %d schedulers, not %d", len(states), len(s.schedulers))
	}
	if r.err != nil {
		return
	}
	for i, p := range s.schedulers {
		r.sub(p, states[i], p.read)
	}
}

// SequentialLRScheduler is what [SequentialLR] makes.
type SequentialLRScheduler struct {
	parts
	Milestones []int64
}

// SequentialLROptions are the arguments of [SequentialLR] that have defaults.
type SequentialLROptions struct {
	LastEpoch gotorch.Scalar // the epoch to go on after; default: -1, which begins
}

// SequentialLR has schedulers take turns: each begins, with its epoch 0, at the milestone before it, which is an
// epoch. All are made for opt beforehand. It panics with a ValueError if there are no schedulers, if one belongs to
// another optimiser, or unless there is one milestone fewer than schedulers; steps panic with a NotImplementedError
// where a scheduler of schedulers would begin at a milestone.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.SequentialLR.html.
func SequentialLR(opt optim.Optimizer, schedulers []Scheduler, milestones []int64, opts ...SequentialLROptions) *SequentialLRScheduler {
	s := &SequentialLRScheduler{Milestones: slices.Clone(milestones)}
	op := nameOf(s)
	last := lastEpoch(s, args.Option(opts).LastEpoch)
	groups := groupsOf(op, opt)
	if len(schedulers) == 0 {
		panic(args.ValueError(op, "SequentialLR expects at least one scheduler, but got no scheduler."))
	}
	s.schedulers = partsOf(op, opt, schedulers)
	if len(milestones) != len(schedulers)-1 {
		panic(args.ValueError(op, "Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone points, "+
			"but got number of schedulers %d and the number of milestones to be equal to %d", len(schedulers), len(milestones)))
	}
	s.self, s.opt, s.LastEpoch = s, opt, last+1
	s.whole(func() {
		for _, g := range groups {
			*g.LR() = need(op, g, "initial_lr")
		}
		undo(s)
		first := s.schedulers[passed(s.Milestones, 0)]
		restart(first)
		s.lastLRs = first.LastLRs()
	})
	return s
}

// Step is the next one of the scheduler whose turn it is.
func (s *SequentialLRScheduler) Step() {
	s.check()
	s.whole(func() {
		s.LastEpoch++
		turn := passed(s.Milestones, s.LastEpoch)
		if turn >= len(s.schedulers) {
			panic(args.ValueError(nameOf(s), "there are %d milestones for %d schedulers", len(s.Milestones), len(s.schedulers)))
		}
		p := s.schedulers[turn]
		if turn > 0 && s.Milestones[turn-1] == s.LastEpoch {
			p.begin()
		} else {
			p.Step()
		}
		s.lastLRs = p.LastLRs()
	})
}

// StateDict returns what the scheduler and those within remember, as PyTorch's state_dict does.
func (s *SequentialLRScheduler) StateDict() gotorch.Dict {
	s.check()
	return s.stateDict(gotorch.Dict{{Key: "_milestones", Value: integers(s.Milestones)}, {Key: "last_epoch", Value: s.LastEpoch}})
}

// LoadStateDict restores what StateDict, here or in PyTorch, has returned. If it does not fit, it returns a
// *gotorch.Error of kind ValueError and changes nothing.
func (s *SequentialLRScheduler) LoadStateDict(dict gotorch.Dict) error { return load(s, dict) }

func (s *SequentialLRScheduler) read(r *reader) {
	epoch, milestones := r.integer("last_epoch"), r.integers("_milestones")
	if r.err == nil && len(milestones) != len(s.schedulers)-1 {
		r.fail("the state dict has %d milestones, where one fewer than the %d schedulers is required", len(milestones), len(s.schedulers))
	}
	r.commit(func() { s.LastEpoch, s.Milestones = epoch, milestones })
	s.parts.read(r)
}

// ChainedLRScheduler is what [ChainedScheduler] makes.
type ChainedLRScheduler struct{ parts }

// ChainedSchedulerOptions are the arguments of [ChainedScheduler] that have defaults.
type ChainedSchedulerOptions struct {
	Optimizer optim.Optimizer // default: that of the first scheduler
}

// ChainedScheduler takes a step of each of some schedulers at a time, in their order. It panics with a ValueError if
// there are none, or if one belongs to another optimiser.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ChainedScheduler.html.
func ChainedScheduler(schedulers []Scheduler, opts ...ChainedSchedulerOptions) *ChainedLRScheduler {
	const op = "lrscheduler.ChainedScheduler"
	s := &ChainedLRScheduler{}
	opt := args.Option(opts).Optimizer
	if len(schedulers) == 0 {
		panic(args.ValueError(op, "ChainedScheduler expects at least one scheduler to be chained, but got no scheduler."))
	}
	if first, ok := schedulers[0].(part); ok && opt == nil && !isNil(first) {
		opt = first.base().opt
	}
	s.schedulers = partsOf(op, opt, schedulers)
	s.self, s.opt = s, opt
	s.lastLRs = s.LRs()
	return s
}

// Step is the next one of all schedulers.
func (s *ChainedLRScheduler) Step() {
	s.check()
	s.whole(func() {
		for _, p := range s.schedulers {
			p.Step()
		}
		s.lastLRs = s.LRs()
	})
}

// StateDict returns what the scheduler and those within remember, as PyTorch's state_dict does.
func (s *ChainedLRScheduler) StateDict() gotorch.Dict {
	s.check()
	return s.stateDict(nil)
}

// LoadStateDict restores what StateDict, here or in PyTorch, has returned. If it does not fit, it returns a
// *gotorch.Error of kind ValueError and changes nothing.
func (s *ChainedLRScheduler) LoadStateDict(dict gotorch.Dict) error { return load(s, dict) }
