// Package lrscheduler changes the learning rates of an optimiser as training goes on.
//
//	opt := optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1, Momentum: 0.9})
//	sched := lrscheduler.CosineAnnealingLR(opt, 100)
//	for epoch := range 100 {
//		for batch := range loader.All() {
//			...
//			opt.Step()
//		}
//		sched.Step()
//	}
//
// A scheduler takes effect when it is made, and then at each Step, which comes after those of the optimiser.
// [ReduceLROnPlateau] wants a number with each step, such as the loss of a validation. Several are chained by
// [ChainedScheduler], or take turns by [SequentialLR].
//
// The learning rates are PyTorch's to the last bit: where Python computes with the C library's pow and cos, so does
// this package. StateDict and LoadStateDict use PyTorch's form, so a training that began there may go on here; what
// a scheduler has put into the groups of an optimiser, as "initial_lr", is in the optimiser's state dict.
//
// A scheduler of one's own is a struct that embeds [LRScheduler], has a method NextLRs, and is made by Init:
//
//	type Warmup struct {
//		lrscheduler.LRScheduler
//		Steps int64 `lr:"steps"` // is in state dicts under this name
//	}
//
//	func (w *Warmup) NextLRs() []float64 {
//		lrs := w.LRs()
//		for i, base := range w.BaseLRs {
//			lrs[i] = base * min(1, float64(w.LastEpoch+1)/float64(w.Steps))
//		}
//		return lrs
//	}
//
//	sched := &Warmup{Steps: 5}
//	sched.Init(sched, opt, -1)
package lrscheduler

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/libm"
	"gotorch.dev/gotorch/optim"
)

// Scheduler is what training loops need of a scheduler. It is used by one goroutine at a time.
type Scheduler interface {
	// Step goes to the next learning rates. If it panics nothing has changed.
	Step()
	// LastLRs returns the learning rates that the scheduler has set last, one for each group: get_last_lr.
	LastLRs() []float64
	// StateDict returns what the scheduler remembers, as PyTorch's state_dict does. Functions are not in it.
	StateDict() gotorch.Dict
	// LoadStateDict restores what StateDict of such a scheduler, here or in PyTorch, has returned. If it does not
	// fit, it returns a *gotorch.Error of kind ValueError and changes nothing. Learning rates are in the
	// optimiser's state dict, which is loaded for itself.
	LoadStateDict(dict gotorch.Dict) error
}

// MetricScheduler is a scheduler whose steps follow a number that the training gets, as [ReduceLROnPlateau].
type MetricScheduler interface {
	// Step takes the number, and may change the learning rates.
	Step(metric float64)
	// LastLRs is that of a [Scheduler].
	LastLRs() []float64
	// StateDict is that of a [Scheduler].
	StateDict() gotorch.Dict
	// LoadStateDict is that of a [Scheduler].
	LoadStateDict(dict gotorch.Dict) error
}

// Rule is a scheduler by [LRScheduler], which says what the learning rates are.
type Rule interface {
	Scheduler
	// NextLRs returns the learning rates for LastEpoch, one for each group of the optimiser: PyTorch's get_lr.
	// Step sets them.
	NextLRs() []float64

	base() *LRScheduler
	read(r *reader)
}

// closedForm is a rule that knows the learning rates of an epoch from BaseLRs alone. [SequentialLR] begins with
// them where PyTorch does.
type closedForm interface{ closedFormLRs() []float64 }

// moreState is a rule with something in its state dict that is no field with a tag.
type moreState interface {
	// moreState returns it in front of or after the rest.
	moreState() gotorch.Dict
	// readMore reads it from the reader's dict, and sets it in commits.
	readMore(r *reader)
}

// LRScheduler is what all schedulers have in common, and is embedded in each. It is set up by Init.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.LRScheduler.html.
type LRScheduler struct {
	BaseLRs   []float64 // what the learning rates of the groups were at first, "initial_lr"
	LastEpoch int64     // how many steps were taken; 0 after Init

	self      Rule
	opt       optim.Optimizer
	stepCount int64
	lastLRs   []float64
	initial   bool // whether the step is that of Init
}

func (s *LRScheduler) base() *LRScheduler { return s }

// Init sets up a scheduler that embeds s, which is self, and takes its first step. A lastEpoch other than -1 resumes:
// the next step is that after it, and the groups of opt must have an "initial_lr", from an optimiser's state dict.
// Init panics with a TypeError if opt is nil and with a KeyError if an "initial_lr" is missing. If it or NextLRs
// panics, the optimiser is as it was.
func (s *LRScheduler) Init(self Rule, opt optim.Optimizer, lastEpoch int64) {
	op := nameOf(self)
	groups := groupsOf(op, opt)
	guarded([]state{s.state, stateOf(groups)}, func() {
		for i, g := range groups {
			if _, ok := g.Get("initial_lr"); ok {
				continue
			}
			if lastEpoch != -1 {
				panic(&gotorch.Error{Op: op, Kind: gotorch.KeyError, Msg: fmt.Sprintf("param 'initial_lr' is not specified in "+
					"param_groups[%d] when resuming scheduler with last_epoch >= 0: load the optimizer's state dict first, or leave LastEpoch out", i)})
			}
			g.Set("initial_lr", *g.LR())
		}
		s.self, s.opt, s.LastEpoch = self, opt, lastEpoch
		s.BaseLRs = make([]float64, len(groups))
		for i, g := range groups {
			s.BaseLRs[i] = need(op, g, "initial_lr")
		}
		s.firstStep()
	})
}

// firstStep is the step of Init.
func (s *LRScheduler) firstStep() {
	s.stepCount, s.initial = 0, true
	defer func() { s.initial = false }()
	s.self.Step()
}

// Step goes to the next learning rates. It warns if the optimiser has taken no step yet: then the first learning
// rates would never be used. If it panics nothing has changed.
func (s *LRScheduler) Step() {
	s.check()
	if o, ok := s.opt.(interface{ Steps() int64 }); ok && s.stepCount == 1 && o.Steps() == 0 {
		gotorch.Warn(gotorch.Warning{Kind: "UserWarning", Msg: "Detected call of Step of a learning rate scheduler before Step of its " +
			"optimizer, so that the first learning rates of the schedule are skipped. The optimizer's comes first."})
	}
	s.guarded(func() {
		s.stepCount++
		s.LastEpoch++
		s.set(s.self.NextLRs())
	})
}

// begin sets the learning rates of epoch 0, as [SequentialLR] wants it of a scheduler whose turn it is.
func (s *LRScheduler) begin() {
	s.guarded(func() {
		s.LastEpoch = 0
		if rule, ok := s.self.(closedForm); ok {
			s.set(rule.closedFormLRs())
		} else {
			s.set(s.self.NextLRs())
		}
	})
}

// set sets the learning rates of all groups.
func (s *LRScheduler) set(lrs []float64) {
	groups := s.opt.ParamGroups()
	if len(lrs) != len(groups) {
		panic(args.ValueError(nameOf(s.self), "the scheduler has %d learning rates, and the optimizer %d parameter groups: none may be added later",
			len(lrs), len(groups)))
	}
	for i, g := range groups {
		*g.LR() = lrs[i]
	}
	s.lastLRs = s.LRs()
}

// check panics with a RuntimeError if Init was not called.
func (s *LRScheduler) check() {
	if s.self == nil {
		panic(&gotorch.Error{Op: "lrscheduler.Step", Kind: gotorch.RuntimeError, Msg: "the scheduler was not set up: call Init of its LRScheduler"})
	}
}

// LRs returns the learning rates as they are in the groups of the optimiser, for NextLRs to change.
func (s *LRScheduler) LRs() []float64 {
	s.check()
	return lrsOf(s.opt)
}

// LastLRs returns the learning rates that the scheduler has set last, one for each group.
func (s *LRScheduler) LastLRs() []float64 { return slices.Clone(s.lastLRs) }

// Optimizer returns the optimiser whose learning rates the scheduler changes.
func (s *LRScheduler) Optimizer() optim.Optimizer { return s.opt }

// StepCount returns how often Step was called, that of Init counted.
func (s *LRScheduler) StepCount() int64 { return s.stepCount }

// IsInitial reports whether NextLRs is called for the step of Init.
func (s *LRScheduler) IsInitial() bool { return s.initial }

func lrsOf(opt optim.Optimizer) []float64 {
	var lrs []float64
	for _, group := range opt.ParamGroups() {
		lrs = append(lrs, *group.LR())
	}
	return lrs
}

// nameOf returns what a scheduler is called in errors, as "lrscheduler.StepLR".
func nameOf(self any) string {
	return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", self), "*"), "Scheduler")
}

// isNil reports whether an interface has nothing in it, or a pointer to nothing.
func isNil(x any) bool {
	v := reflect.ValueOf(x)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// groupsOf returns the groups of an optimiser. It panics with a TypeError if it is nil or cannot be told apart from others, and
// with a ValueError if it has no groups, whose learning rates a schedule could change.
func groupsOf(op string, opt optim.Optimizer) []optim.ParamGroup {
	if isNil(opt) {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "nil is not an Optimizer"})
	}
	if !reflect.TypeOf(opt).Comparable() {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: fmt.Sprintf("a %T is no pointer to an optimizer", opt)})
	}
	groups := opt.ParamGroups()
	if len(groups) == 0 {
		panic(args.ValueError(op, "the %T has no parameter groups: return one of optim.ParamGroupOf from its method ParamGroups", opt))
	}
	for i, g := range groups {
		if g.LR() == nil {
			panic(args.ValueError(op, "parameter group %d of the %T has no learning rate: make it by optim.ParamGroupOf", i, opt))
		}
	}
	return groups
}

// need returns a number that a group must have, as Python's indexing does.
func need(op string, g optim.ParamGroup, name string) float64 {
	value, ok := g.Get(name)
	if !ok {
		panic(&gotorch.Error{Op: op, Kind: gotorch.KeyError, Msg: fmt.Sprintf("'%s' is not in a parameter group: the optimizer's state dict was saved without the scheduler", name)})
	}
	return value
}

// Nothing is half done -------------------------------------------------------------------------------

// state returns what makes something as it was.
type state func() (restore func())

func (s *LRScheduler) state() func() {
	old := *s
	var fields []func()
	if s.self != nil {
		eachField(s.self, func(_ string, field any) {
			v := reflect.ValueOf(field).Elem()
			value := reflect.ValueOf(v.Interface())
			fields = append(fields, func() { v.Set(value) })
		})
	}
	return func() {
		for _, restore := range fields {
			restore()
		}
		s.BaseLRs, s.LastEpoch, s.self, s.opt = old.BaseLRs, old.LastEpoch, old.self, old.opt
		s.stepCount, s.lastLRs, s.initial = old.stepCount, old.lastLRs, old.initial
	}
}

func stateOf(groups []optim.ParamGroup) state {
	return func() func() {
		var all []func()
		for _, g := range groups {
			all = append(all, g.Snapshot())
		}
		return func() {
			for _, restore := range all {
				restore()
			}
		}
	}
}

// guarded calls fn, and restores everything if that panics or ends its goroutine.
func guarded(of []state, fn func()) {
	var restore []func()
	for _, s := range of {
		restore = append(restore, s())
	}
	done := false
	defer func() {
		if !done {
			for _, r := range restore {
				r()
			}
		}
	}()
	fn()
	done = true
}

func (s *LRScheduler) guarded(fn func()) {
	guarded([]state{s.state, stateOf(s.opt.ParamGroups())}, fn)
}

// Numbers as Python has them -------------------------------------------------------------------------
//
// A product is converted to float64 before something is added to it: otherwise the compiler may round only once
// for both, which Python does not.

func arithmeticError(op, kind, format string, values ...any) *gotorch.Error {
	return &gotorch.Error{Op: op, Kind: gotorch.ErrorKind(kind), Msg: fmt.Sprintf(format, values...)}
}

// divide returns x/y. It panics with Python's ZeroDivisionError.
func divide(op string, x, y float64) float64 {
	if y == 0 {
		panic(arithmeticError(op, "ZeroDivisionError", "float division by zero: %v/0", x))
	}
	return x / y
}

// modulo returns x modulo y, with the sign of y. It panics with Python's ZeroDivisionError.
func modulo(op string, x, y int64) int64 {
	if y == 0 {
		panic(arithmeticError(op, "ZeroDivisionError", "integer modulo by zero: %d %% 0", x))
	}
	m := x % y
	if m != 0 && (m < 0) != (y < 0) {
		m += y
	}
	return m
}

// quotient returns x/y, rounded down. It panics with Python's ZeroDivisionError.
func quotient(op string, x, y int64) int64 { return (x - modulo(op, x, y)) / y }

// power returns x to the power y. It panics with Python's errors.
func power(op string, x, y float64) float64 {
	if x == 0 && y < 0 {
		panic(arithmeticError(op, "ZeroDivisionError", "0.0 cannot be raised to a negative power, %v", y))
	}
	p := libm.Pow(x, y)
	switch {
	case p-p == 0 || x-x != 0 || y-y != 0:
		return p
	case p != p:
		panic(args.ValueError(op, "%v to the power %v is no real number", x, y))
	}
	panic(arithmeticError(op, "OverflowError", "%v to the power %v is too large", x, y))
}

// State dicts ----------------------------------------------------------------------------------------

// StateDict returns what the scheduler remembers, as PyTorch's state_dict does.
func (s *LRScheduler) StateDict() gotorch.Dict {
	s.check()
	dict := fieldsOf(s.self)
	dict = append(dict, gotorch.Dict{
		{Key: "base_lrs", Value: floats(s.BaseLRs)}, {Key: "last_epoch", Value: s.LastEpoch}, {Key: "_step_count", Value: s.stepCount},
		{Key: "_is_initial", Value: false}, {Key: "_get_lr_called_within_step", Value: false}, {Key: "_last_lr", Value: floats(s.lastLRs)},
	}...)
	if more, ok := s.self.(moreState); ok {
		dict = append(dict, more.moreState()...)
	}
	return dict
}

// LoadStateDict restores what StateDict, here or in PyTorch, has returned. If it does not fit, it returns a
// *gotorch.Error of kind ValueError and changes nothing.
func (s *LRScheduler) LoadStateDict(dict gotorch.Dict) error {
	if s.self == nil {
		_, err := gotorch.Try(func() any { s.check(); return nil })
		return err
	}
	return load(s.self, dict)
}

// load is LoadStateDict of a scheduler whose dict is read by its method read.
func load(s interface{ read(*reader) }, dict gotorch.Dict) error {
	r := &reader{op: nameOf(s) + ".LoadStateDict", dict: dict}
	s.read(r)
	if r.err != nil {
		return r.err
	}
	for _, commit := range r.commits {
		commit()
	}
	return nil
}

// read reads a dict, and leaves in r what is to be done if it fits.
func (s *LRScheduler) read(r *reader) {
	r.fields(s.self)
	base, last := r.floats("base_lrs", len(s.BaseLRs)), r.floats("_last_lr", len(s.BaseLRs))
	epoch, count := r.integer("last_epoch"), r.integer("_step_count")
	r.commit(func() { s.BaseLRs, s.lastLRs, s.LastEpoch, s.stepCount = base, last, epoch, count })
	if more, ok := s.self.(moreState); ok {
		more.readMore(r)
	}
}

// eachField calls fn for the fields of a scheduler that have a tag, with a pointer to each.
func eachField(self any, fn func(name string, field any)) {
	v := reflect.ValueOf(self).Elem()
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("lr"); name != "" {
			fn(name, v.Field(i).Addr().Interface())
		}
	}
}

// fieldsOf returns the fields of a scheduler that have a tag.
func fieldsOf(self any) (dict gotorch.Dict) {
	eachField(self, func(name string, field any) {
		var value any
		switch p := field.(type) {
		case *float64:
			value = *p
		case *int64:
			value = *p
		case *bool:
			value = *p
		case *string:
			value = *p
		case *[]float64:
			value = floats(*p)
		case *[]int64:
			value = integers(*p)
		default:
			panic(fmt.Sprintf("lrscheduler: the field '%s' of %T has a type, %T, that state dicts do not have", name, self, field))
		}
		dict = append(dict, gotorch.DictItem{Key: name, Value: value})
	})
	return dict
}

func floats(list []float64) []any {
	values := make([]any, len(list))
	for i, v := range list {
		values[i] = v
	}
	return values
}

func integers(list []int64) []any {
	values := make([]any, len(list))
	for i, v := range list {
		values[i] = v
	}
	return values
}

// reader takes values out of a dict, keeps the first error, and gathers what is to be done if there is none.
type reader struct {
	op      string
	dict    gotorch.Dict
	err     error
	commits []func()
}

func (r *reader) commit(fn func()) { r.commits = append(r.commits, fn) }

func (r *reader) fail(format string, values ...any) {
	if r.err == nil {
		r.err = args.ValueError(r.op, format, values...)
	}
}

func (r *reader) unfit(key string, got any, want string) {
	r.fail("the state dict has %T as '%s', where %s is required", got, key, want)
}

// sub is a reader for a dict within, which shares what is gathered.
func (r *reader) sub(s any, dict any, fn func(*reader)) {
	d, ok := dict.(gotorch.Dict)
	if !ok {
		r.unfit("_schedulers", dict, "a list of dicts")
		return
	}
	in := &reader{op: r.op, dict: d}
	fn(in)
	if in.err != nil {
		r.fail("the state of %s: %s", nameOf(s), in.err.(*gotorch.Error).Msg)
	}
	r.commits = append(r.commits, in.commits...)
}

func (r *reader) has(key string) bool {
	return slices.ContainsFunc(r.dict, func(item gotorch.DictItem) bool { return item.Key == key })
}

func (r *reader) number(key string, value any) float64 {
	switch v := value.(type) {
	case float64:
		return v
	case int64:
		return float64(v)
	case gotorch.Tensor: // a learning rate in a tensor is a number in Go
		if v.Defined() && v.Numel() == 1 && !v.DType().IsComplex() {
			if f, err := gotorch.Try(func() float64 { return gotorch.Item[float64](v) }); err == nil {
				return f
			}
		}
	}
	r.unfit(key, value, "a number")
	return 0
}

func (r *reader) float(key string) float64 { return r.number(key, r.dict.Get(key)) }

func (r *reader) integer(key string) int64 {
	switch v := r.dict.Get(key).(type) {
	case int64:
		return v
	case float64:
		if n := int64(v); float64(n) == v {
			return n
		}
		r.fail("the state dict has %v as '%s', where an integer is required", v, key)
	default:
		r.unfit(key, v, "an integer")
	}
	return 0
}

func (r *reader) bool(key string) bool {
	v, ok := r.dict.Get(key).(bool)
	if !ok {
		r.unfit(key, r.dict.Get(key), "a bool")
	}
	return v
}

func (r *reader) text(key string) string {
	v, ok := r.dict.Get(key).(string)
	if !ok {
		r.unfit(key, r.dict.Get(key), "a string")
	}
	return v
}

// list returns a list or tuple; of any length if that is -1.
func (r *reader) list(key string, length int) []any {
	list, ok := r.dict.Get(key).([]any)
	if tuple, is := r.dict.Get(key).(gotorch.Tuple); is {
		list, ok = tuple, true
	}
	switch {
	case !ok:
		r.unfit(key, r.dict.Get(key), "a list")
	case length >= 0 && len(list) != length:
		r.fail("the state dict has %d values as '%s', where one for each of the %d parameter groups is required", len(list), key, length)
	}
	return list
}

func (r *reader) floats(key string, length int) []float64 {
	var values []float64
	for _, v := range r.list(key, length) {
		values = append(values, r.number(key, v))
	}
	return values
}

func (r *reader) integers(key string) []int64 {
	var values []int64
	for _, v := range r.list(key, -1) {
		n, ok := v.(int64)
		if !ok {
			r.unfit(key, v, "a list of integers")
		}
		values = append(values, n)
	}
	return values
}

// fields reads the fields of a scheduler that have a tag. A list has as many values as there are now.
func (r *reader) fields(self any) {
	eachField(self, func(name string, field any) {
		switch p := field.(type) {
		case *float64:
			v := r.float(name)
			r.commit(func() { *p = v })
		case *int64:
			v := r.integer(name)
			r.commit(func() { *p = v })
		case *bool:
			v := r.bool(name)
			r.commit(func() { *p = v })
		case *string:
			v := r.text(name)
			r.commit(func() { *p = v })
		case *[]float64:
			v := r.floats(name, len(*p))
			r.commit(func() { *p = v })
		case *[]int64:
			v := r.integers(name)
			r.commit(func() { *p = v })
		}
	})
}

// Arguments ------------------------------------------------------------------------------------------

// Rates is a number for all groups of an optimiser, or one for each.
type Rates interface{ float64 | int | []float64 }

// PerGroup returns one number for each group of an optimiser. It panics with a ValueError if several are given and
// not one for each, and with a TypeError if opt is nil.
func PerGroup[R Rates](op, name string, rates R, opt optim.Optimizer) []float64 {
	return ratesOf(op, name, rates, len(groupsOf(op, opt)))
}

// Guarded calls fn. If that panics or ends its goroutine, the options of the groups of an optimiser, and what
// schedulers keep there, are as before.
func Guarded(opt optim.Optimizer, fn func()) { guarded([]state{stateOf(opt.ParamGroups())}, fn) }

// ratesOf returns one number for each group.
func ratesOf[R Rates](op, name string, rates R, groups int) []float64 {
	switch r := any(rates).(type) {
	case float64:
		return perGroup(op, name, []float64{r}, groups)
	case int:
		return perGroup(op, name, []float64{float64(r)}, groups)
	}
	return perGroup(op, name, any(rates).([]float64), groups)
}

// perGroup returns a number for each group, where one stands for all.
func perGroup(op, name string, list []float64, groups int) []float64 {
	if len(list) == 1 {
		return slices.Repeat(list, groups)
	}
	if len(list) != groups {
		panic(args.ValueError(op, "%s must have the same length as the optimizer's parameter groups. %s has %d values, the optimizer has %d groups.",
			name, name, len(list), groups))
	}
	return slices.Clone(list)
}

// perGroupOr is perGroup for an option with a default.
func perGroupOr(op, name string, list []float64, value float64, groups int) []float64 {
	if list == nil {
		list = []float64{value}
	}
	return perGroup(op, name, list, groups)
}
