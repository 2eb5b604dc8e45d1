package optim_test

import (
	"errors"
	"slices"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/optim"
)

func TestHooksAreCalledInTheirOrder(t *testing.T) {
	p := gotorch.Ones([]int64{2}).RequiresGrad_()
	sgd := optim.SGD([]gotorch.Tensor{p}, optim.SGDOptions{LR: 0.5})
	lbfgs := optim.LBFGS([]gotorch.Tensor{p}, optim.LBFGSOptions{LR: 0.5, MaxIter: 1})
	var calls []string
	say := func(what string) func() { return func() { calls = append(calls, what) } }
	closure := func() gotorch.Tensor {
		say("closure")()
		p.SetGrad(gotorch.Tensor{})
		loss := p.Pow(2).Sum()
		loss.Backward()
		return loss
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(calls, want) {
			t.Errorf("%s: %v, not %v", what, calls, want)
		}
		calls = nil
	}

	first := sgd.RegisterStepPreHook(say("pre 1"))
	sgd.RegisterStepPreHook(say("pre 2"))
	sgd.RegisterStepPostHook(func() { say("post")() })
	sgd.StepWith(closure)
	expect("with a closure", "pre 1", "pre 2", "closure", "post")
	sgd.Step()
	expect("a step", "pre 1", "pre 2", "post")
	first.Remove()
	first.Remove()
	sgd.Step()
	expect("after Remove", "pre 2", "post")

	lbfgs.RegisterStepPreHook(say("pre"))
	lbfgs.RegisterStepPostHook(say("post"))
	lbfgs.StepWith(closure)
	expect("LBFGS", "pre", "closure", "post")

	sgd.RegisterStateDictPreHook(say("state 1"))
	sgd.RegisterStateDictPreHook(say("state 0"), optim.HookOptions{Prepend: true})
	sgd.RegisterStateDictPostHook(func(dict gotorch.Dict) gotorch.Dict {
		say("dict")()
		return append(dict, gotorch.DictItem{Key: "more", Value: int64(7)})
	})
	sgd.RegisterStateDictPostHook(func(dict gotorch.Dict) gotorch.Dict { return nil })
	dict := sgd.StateDict()
	expect("a state dict", "state 0", "state 1", "dict")
	if dict.Get("more") != int64(7) || dict.Get("param_groups") == nil {
		t.Error(dict)
	}

	sgd.RegisterLoadStateDictPreHook(func(dict gotorch.Dict) gotorch.Dict {
		say("load")()
		if dict.Get("wrapped") != nil {
			return dict.Get("wrapped").(gotorch.Dict)
		}
		return nil
	})
	sgd.RegisterLoadStateDictPostHook(say("loaded"))
	testhelp.Must(t, sgd.LoadStateDict(gotorch.Dict{{Key: "wrapped", Value: dict}}))
	expect("a load", "load", "loaded")
	if err := sgd.LoadStateDict(gotorch.Dict{}); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
	expect("a load that fails", "load")

	// A hook that panics before a step keeps it from being done, and one may remove itself.
	before := p.Clone()
	stop := sgd.RegisterStepPreHook(func() { panic(&gotorch.Error{Kind: gotorch.ValueError}) })
	if err := gotorch.Try0(sgd.Step); !errors.Is(err, gotorch.ValueError) || !p.Equal(before) {
		t.Error(err, p)
	}
	stop.Remove()
	var self *optim.HookHandle
	self = sgd.RegisterStepPreHook(func() { self.Remove() })
	sgd.RegisterStepPreHook(say("next"))
	calls = nil
	sgd.Step()
	sgd.Step()
	expect("a hook that removes itself", "pre 2", "next", "post", "pre 2", "next", "post")
	if err := gotorch.Try0(func() { sgd.RegisterStepPreHook(nil) }); !errors.Is(err, gotorch.TypeError) {
		t.Error(err)
	}
}
