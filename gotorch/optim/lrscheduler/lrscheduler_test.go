package lrscheduler_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
	"gotorch.dev/gotorch/optim/swautils"
)

func sgd(lr float64) *optim.SGDOptimizer {
	weight := gotorch.Ones([]int64{2}, gotorch.TensorOptions{RequiresGrad: true})
	return optim.SGD([]gotorch.Tensor{weight}, optim.SGDOptions{LR: lr, Momentum: 0.5})
}

// expect runs fn, which is to panic with an error of a kind.
func expect(t *testing.T, name string, kind gotorch.ErrorKind, part string, fn func()) {
	t.Helper()
	if err := gotorch.Try0(fn); !errors.Is(err, kind) || !strings.Contains(err.Error(), part) {
		t.Errorf("%s: got %v, want a %s with %q", name, err, kind, part)
	}
}

func TestMisuseIsATypedErrorAndChangesNothing(t *testing.T) {
	opt := sgd(0.1)
	before := fmt.Sprint(opt.StateDict())
	one := lrscheduler.Scheduler(&lrscheduler.StepLRScheduler{})
	fn := func(int64) float64 { return 1 }
	for name, c := range map[string]struct {
		kind gotorch.ErrorKind
		part string
		fn   func()
	}{
		"nil optimiser":     {gotorch.TypeError, "not an Optimizer", func() { lrscheduler.StepLR(nil, 3) }},
		"typed nil":         {gotorch.TypeError, "not an Optimizer", func() { lrscheduler.StepLR((*optim.SGDOptimizer)(nil), 3) }},
		"two options":       {gotorch.TypeError, "", func() { lrscheduler.StepLR(opt, 3, lrscheduler.StepLROptions{}, lrscheduler.StepLROptions{}) }},
		"gamma is a text":   {gotorch.TypeError, "Gamma", func() { lrscheduler.StepLR(opt, 3, lrscheduler.StepLROptions{Gamma: "x"}) }},
		"nil function":      {gotorch.TypeError, "nil for group 0", func() { lrscheduler.LambdaLR(opt, (func(int64) float64)(nil)) }},
		"two functions":     {gotorch.ValueError, "Expected 1 lr_lambdas", func() { lrscheduler.LambdaLR(opt, []func(int64) float64{fn, fn}) }},
		"resume of nothing": {gotorch.KeyError, "initial_lr", func() { lrscheduler.StepLR(opt, 3, lrscheduler.StepLROptions{LastEpoch: 4}) }},
		"no schedulers":     {gotorch.ValueError, "at least one", func() { lrscheduler.ChainedScheduler(nil) }},
		"not set up":        {gotorch.ValueError, "was not set up", func() { lrscheduler.SequentialLR(opt, []lrscheduler.Scheduler{one}, nil) }},
		"typed nil scheduler": {gotorch.TypeError, "nil or does not embed", func() {
			lrscheduler.ChainedScheduler([]lrscheduler.Scheduler{(*lrscheduler.StepLRScheduler)(nil)})
		}},
		"nil scheduler":   {gotorch.TypeError, "does not embed", func() { lrscheduler.SequentialLR(opt, []lrscheduler.Scheduler{nil}, nil) }},
		"Step not set up": {gotorch.RuntimeError, "call Init", one.Step},
		"plateau by hand": {gotorch.RuntimeError, "was not made", func() { new(lrscheduler.ReduceLROnPlateauScheduler).Step(1) }},
		"factor NaN":      {gotorch.ValueError, "factor", func() { lrscheduler.ConstantLR(opt, lrscheduler.ConstantLROptions{Factor: math.NaN()}) }},
		"no size":         {"ZeroDivisionError", "", func() { lrscheduler.CyclicLR(opt, 0.1, 1, lrscheduler.CyclicLROptions{StepSizeUp: 0}) }},
		"too many steps": {gotorch.ValueError, "too many", func() {
			lrscheduler.OneCycleLR(opt, 1, lrscheduler.OneCycleLROptions{Epochs: 1 << 40, StepsPerEpoch: 1 << 40})
		}},
		"base of two":        {gotorch.ValueError, "same length", func() { lrscheduler.CyclicLR(opt, []float64{1, 2}, 1.5) }},
		"swa without groups": {gotorch.TypeError, "not an Optimizer", func() { swautils.SWALR(nil, 0.1) }},
	} {
		expect(t, name, c.kind, c.part, c.fn)
	}
	if after := fmt.Sprint(opt.StateDict()); after != before {
		t.Errorf("the optimiser was %v and is %v", before, after)
	}
}

func TestStepsThatDoNotEndChangeNothing(t *testing.T) {
	opt := sgd(1)
	var in func()
	inner := lrscheduler.ExponentialLR(opt, 0.5)
	s := lrscheduler.LambdaLR(opt, func(epoch int64) float64 {
		if in != nil {
			in()
		}
		return 1 / float64(1+epoch)
	})
	both := lrscheduler.ChainedScheduler([]lrscheduler.Scheduler{inner, s})
	opt.Step()
	both.Step()
	before := fmt.Sprint(opt.StateDict(), both.StateDict())
	in = func() { panic("no more") }
	func() {
		defer func() { recover() }()
		both.Step()
	}()
	if after := fmt.Sprint(opt.StateDict(), both.StateDict()); after != before {
		t.Errorf("after a panic: %v, not %v", after, before)
	}
	in = runtime.Goexit
	done := make(chan bool)
	go func() {
		defer close(done)
		both.Step()
	}()
	<-done
	if after := fmt.Sprint(opt.StateDict(), both.StateDict()); after != before {
		t.Errorf("after the end of a goroutine: %v, not %v", after, before)
	}
	in = nil
	both.Step()
	if got := both.LastLRs()[0]; got != 1.0/3 {
		t.Errorf("then the learning rate is %v", got)
	}
	opt.AddGroup([]gotorch.Tensor{gotorch.Ones([]int64{1}, gotorch.TensorOptions{RequiresGrad: true})})
	expect(t, "another group", gotorch.ValueError, "parameter groups", both.Step)
}

func TestStatesThatDoNotFitChangeNothing(t *testing.T) {
	opt := sgd(0.1)
	all := map[string]interface {
		StateDict() gotorch.Dict
		LoadStateDict(gotorch.Dict) error
	}{
		"step":    lrscheduler.StepLR(opt, 3),
		"multi":   lrscheduler.MultiStepLR(opt, []int64{3, 3}),
		"lambda":  lrscheduler.LambdaLR(opt, func(int64) float64 { return 1 }),
		"cosine":  lrscheduler.CosineAnnealingWarmRestarts(opt, 3),
		"one":     lrscheduler.OneCycleLR(opt, 1, lrscheduler.OneCycleLROptions{TotalSteps: 9}),
		"cyclic":  lrscheduler.CyclicLR(opt, 0.1, 1),
		"plateau": lrscheduler.ReduceLROnPlateau(opt),
		"chained": lrscheduler.ChainedScheduler([]lrscheduler.Scheduler{lrscheduler.StepLR(opt, 3)}),
		"swa":     swautils.SWALR(opt, 1),
	}
	for name, s := range all {
		good := s.StateDict()
		before := fmt.Sprint(good)
		if err := s.LoadStateDict(good); err != nil {
			t.Errorf("%s: its own state: %v", name, err)
		}
		for i, item := range good {
			if strings.HasPrefix(item.Key.(string), "_is_") || strings.HasPrefix(item.Key.(string), "_get_") || item.Value == nil ||
				item.Key == "mode_worse" || item.Key == "use_beta1" {
				continue
			}
			for _, bad := range []any{gotorch.Tuple{"x"}, []any{}, gotorch.Dict{}, "", gotorch.Tensor{}} {
				if item.Key == "scale_mode" && fmt.Sprint(bad) == "" {
					continue // which follows from the mode
				}
				if item.Key == "milestones" && fmt.Sprintf("%T", bad) == "gotorch.Dict" {
					continue // no milestones
				}
				dict := append(gotorch.Dict(nil), good...)
				dict[i].Value = bad
				if err := s.LoadStateDict(dict); !errors.Is(err, gotorch.ValueError) {
					t.Errorf("%s with %T as %v: %v", name, bad, item.Key, err)
				}
			}
		}
		if err := s.LoadStateDict(nil); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%s: %v", name, err)
		}
		if after := fmt.Sprint(s.StateDict()); after != before {
			t.Errorf("%s is %v, not %v", name, after, before)
		}
	}
}

func TestAStepBeforeTheOptimisersWarns(t *testing.T) {
	var warnings []gotorch.Warning
	gotorch.SetWarningHandler(func(w gotorch.Warning) { warnings = append(warnings, w) })
	defer gotorch.SetWarningHandler(nil)
	opt := sgd(0.1)
	s := lrscheduler.StepLR(opt, 2)
	s.Step()
	if len(warnings) != 1 || !strings.Contains(warnings[0].Msg, "before Step of its optimizer") {
		t.Errorf("warnings: %v", warnings)
	}
	opt.Step()
	lrscheduler.StepLR(opt, 2).Step()
	if len(warnings) != 1 {
		t.Errorf("warnings: %v", warnings[1:])
	}
}

type warmup struct {
	lrscheduler.LRScheduler
	Steps int64 `lr:"steps"`
}

func (w *warmup) NextLRs() []float64 {
	lrs := w.LRs()
	for i, base := range w.BaseLRs {
		lrs[i] = base * min(1, float64(w.LastEpoch+1)/float64(w.Steps))
	}
	return lrs
}

func TestSmokeASchedulerOfOnesOwn(t *testing.T) {
	opt := sgd(1)
	own := &warmup{Steps: 4}
	own.Init(own, opt, -1)
	s := lrscheduler.SequentialLR(opt, []lrscheduler.Scheduler{own, lrscheduler.ExponentialLR(opt, 0.5)}, []int64{2})
	var got []float64
	for range 4 {
		got = append(got, *opt.LRs()[0])
		opt.Step()
		s.Step()
	}
	if fmt.Sprint(got) != "[0.25 0.5 1 0.5]" {
		t.Errorf("learning rates: %v", got)
	}
	state := own.StateDict()
	if state.Get("steps") != int64(4) {
		t.Errorf("the state is %v", state)
	}
	again := &warmup{}
	again.Init(again, opt, -1)
	if err := again.LoadStateDict(state); err != nil || again.Steps != 4 || again.LastEpoch != own.LastEpoch {
		t.Errorf("%v: %+v", err, again)
	}
}

// Python: a reduction must be more than eps.
func TestAPlateauReducesByMoreThanEps(t *testing.T) {
	for eps, want := range map[float64]float64{0.5: 1, 0.25: 0.5} {
		opt := optim.SGD([]gotorch.Tensor{gotorch.Zeros([]int64{1}).RequiresGrad_()}, optim.SGDOptions{LR: 1})
		s := lrscheduler.ReduceLROnPlateau(opt, lrscheduler.ReduceLROnPlateauOptions{Factor: 0.5, Patience: 0, Eps: eps})
		s.Step(1)
		s.Step(1)
		if got := opt.Groups[0].LR; got != want {
			t.Errorf("eps %v: the learning rate is %v, want %v", eps, got, want)
		}
	}
}
