package optim_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

func ExampleLBFGS() {
	x := gotorch.FromSlice([]float64{-1.2, 1}).RequiresGrad_()
	opt := optim.LBFGS([]gotorch.Tensor{x}, optim.LBFGSOptions{LineSearchFn: "strong_wolfe", MaxIter: 50})
	opt.StepWith(func() gotorch.Tensor {
		opt.ZeroGrad()
		a, b := x.Index(gotorch.At(0)), x.Index(gotorch.At(1))
		loss := b.Sub(a.Square()).Square().MulScalar(100).Add(a.SubScalar(1).Square())
		loss.Backward()
		return loss
	})
	fmt.Println(x.Detach())
	// Output: tensor([1.0000, 1.0000], dtype=torch.float64)
}

func TestLBFGSAfterAClosureThatDoesNotReturn(t *testing.T) {
	for _, search := range []string{"", "strong_wolfe"} {
		x := gotorch.FromSlice([]float64{-1.2, 1, 3}).RequiresGrad_()
		opt := optim.LBFGS([]gotorch.Tensor{x}, optim.LBFGSOptions{LineSearchFn: search, LR: 0.1, MaxIter: 5})
		calls, fault := 0, func() {}
		closure := func() gotorch.Tensor {
			opt.ZeroGrad()
			loss := x.Pow(4).Sum()
			loss.Backward()
			if calls++; calls > 2 {
				fault()
			}
			return loss
		}
		opt.StepWith(closure)
		before := fmt.Sprint(x, opt.StateDict())
		for name, f := range map[string]func(){
			"panic": func() { panic("no") }, "Goexit": runtime.Goexit, "error": func() { gotorch.Ones([]int64{2}).Add(gotorch.Ones([]int64{3})) },
		} {
			calls, fault = 0, f
			done := make(chan bool)
			go func() {
				defer close(done)
				defer func() { recover() }()
				opt.StepWith(closure)
			}()
			<-done
			if after := fmt.Sprint(x, opt.StateDict()); after != before {
				t.Errorf("%q after a %s: %s, not %s", search, name, after, before)
			}
			if !gotorch.GradEnabled() {
				t.Errorf("%q after a %s: autograd is off", search, name)
			}
		}
		calls, fault = 0, func() {}
		loss := gotorch.Item[float64](opt.StepWith(closure))
		if now := gotorch.Item[float64](x.Pow(4).Sum()); !(now < loss) {
			t.Errorf("%q: the loss went from %v to %v", search, loss, now)
		}
	}
}

func TestClosuresThatCannotBe(t *testing.T) {
	x := gotorch.FromSlice([]float64{1}).RequiresGrad_()
	params := []gotorch.Tensor{x}
	gradient := func() { x.Mul(x).Sum().Backward() }
	for name, c := range map[string]struct {
		kind gotorch.ErrorKind
		fn   func()
	}{
		"Step":        {gotorch.TypeError, optim.LBFGS(params).Step},
		"nil":         {gotorch.TypeError, func() { optim.LBFGS(params).StepWith(nil) }},
		"nil for SGD": {gotorch.TypeError, func() { optim.SGD(params).StepWith(nil) }},
		"no loss":     {gotorch.TypeError, func() { optim.LBFGS(params).StepWith(func() (t gotorch.Tensor) { gradient(); return t }) }},
		"two losses": {gotorch.RuntimeError, func() {
			optim.LBFGS(params).StepWith(func() gotorch.Tensor { gradient(); return gotorch.Ones([]int64{2}) })
		}},
		"line search": {gotorch.RuntimeError, func() {
			optim.LBFGS(params, optim.LBFGSOptions{LineSearchFn: "armijo"}).StepWith(func() gotorch.Tensor { gradient(); return x.Sum() })
		}},
		"no history":   {gotorch.ValueError, func() { optim.LBFGS(params, optim.LBFGSOptions{HistorySize: 0}) }},
		"negative":     {gotorch.ValueError, func() { optim.LBFGS(params, optim.LBFGSOptions{MaxIter: -1}) }},
		"negative LR":  {gotorch.ValueError, func() { optim.LBFGS(params, optim.LBFGSOptions{LR: -1}) }},
		"no parameter": {gotorch.ValueError, func() { optim.LBFGS(nil) }},
	} {
		if err := gotorch.Try0(c.fn); !errors.Is(err, c.kind) {
			t.Errorf("%s: got %v, want a %s", name, err, c.kind)
		}
	}
	if got := gotorch.Item[float64](x); got != 1 {
		t.Errorf("the parameter is %v", got)
	}
}

func TestLBFGSStatesThatDoNotFit(t *testing.T) {
	model := nn.Linear(3, 2)
	opt := optim.LBFGS(model.Parameters(), optim.LBFGSOptions{MaxIter: 4, LR: 0.1})
	step := func() {
		opt.StepWith(func() gotorch.Tensor {
			opt.ZeroGrad()
			loss := model.Forward(gotorch.Ones([]int64{2, 3})).Square().Sum()
			loss.Backward()
			return loss
		})
	}
	step()
	good := opt.StateDict()
	before := fmt.Sprint(good)
	state := good.Get("state").(gotorch.Dict)[0].Value.(gotorch.Dict)
	for i, item := range state {
		for _, bad := range []any{"x", gotorch.Ones([]int64{5}), []any{"x"}, -1.5} {
			if n, isNumber := bad.(float64); isNumber && (item.Key == "t" || item.Key == "H_diag" || item.Key == "prev_loss") && n < 0 {
				continue
			}
			changed := append(gotorch.Dict(nil), state...)
			changed[i].Value = bad
			dict := gotorch.Dict{{Key: "state", Value: gotorch.Dict{{Key: int64(0), Value: changed}}}, {Key: "param_groups", Value: good.Get("param_groups")}}
			if err := opt.LoadStateDict(dict); !errors.Is(err, gotorch.ValueError) {
				t.Errorf("%T as %v: %v", bad, item.Key, err)
			}
		}
	}
	if after := fmt.Sprint(opt.StateDict()); after != before {
		t.Errorf("the state is %s, not %s", after, before)
	}
	if err := opt.LoadStateDict(good); err != nil {
		t.Error(err)
	}
	step()
}

func TestLBFGSThatWasNotMadeRefusesSteps(t *testing.T) {
	err := gotorch.Try0(func() { new(optim.LBFGSOptimizer).StepWith(func() gotorch.Tensor { return gotorch.Tensor{} }) })
	if !errors.Is(err, gotorch.RuntimeError) {
		t.Errorf("got %v", err)
	}
}
