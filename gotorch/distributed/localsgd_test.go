package distributed_test

import (
	"errors"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/optim"
)

// After step 1 and each second one parameters are the mean, where they have gradients, and else each rank's own.
func TestSmokeRanksAverageParametersNowAndThen(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		own := float64(10 * g.Rank())
		p, without := gotorch.Full([]int64{2, 3}, own).RequiresGrad_(), gotorch.Full([]int64{4}, own).RequiresGrad_()
		sgd := optim.SGD([]gotorch.Tensor{p, without}, optim.SGDOptions{LR: 1})
		averager := distributed.PeriodicModelAverager(g, 2, distributed.PeriodicModelAveragerOptions{WarmupSteps: 1})
		opt := distributed.PostLocalSGDOptimizer(sgd, averager)
		want := own
		for step := range 4 {
			p.SetGrad(gotorch.Full([]int64{2, 3}, -float64(g.Rank()+1)))
			if step == 2 {
				opt.StepWith(func() gotorch.Tensor { return gotorch.Ones([]int64{}) })
			} else {
				opt.Step()
			}
			switch want += float64(g.Rank() + 1); step {
			case 1:
				want = 5 + 3 // of 0+2*1 and 10+2*2
			case 3:
				want = 8 + 3
			}
			if !gotorch.Equal(p, gotorch.Full([]int64{2, 3}, want)) || !gotorch.Equal(without, gotorch.Full([]int64{4}, own)) {
				t.Error(g, step, p, without, want)
			}
			if !p.IsLeaf() || !p.RequiresGrad() {
				t.Error("it is no parameter any more")
			}
		}
	})
}

func TestTheStateOfAnAveragingOptimizer(t *testing.T) {
	rankstest.Run(t, 1, distributed.Options{}, func(g *distributed.Group) {
		p := gotorch.Ones([]int64{2}).RequiresGrad_()
		made := func() *distributed.AveragingOptimizer {
			return distributed.PostLocalSGDOptimizer(optim.SGD([]gotorch.Tensor{p}, optim.SGDOptions{LR: 0.5}), distributed.PeriodicModelAverager(g, 2))
		}
		opt := made()
		for range 3 {
			opt.Step()
		}
		dict := opt.StateDict()
		if got := dict.Get("step"); got != int64(3) {
			t.Error(got)
		}
		other := made()
		testhelp.Must(t, other.LoadStateDict(dict))
		other.Step()
		if got := other.StateDict().Get("step"); got != int64(4) {
			t.Error(got)
		}
		for _, bad := range []any{-1, int64(-1), 1.5, "3"} {
			if err := other.LoadStateDict(gotorch.Dict{{Key: "state", Value: dict.Get("state")}, {Key: "param_groups", Value: dict.Get("param_groups")}, {Key: "step", Value: bad}}); !errors.Is(err, gotorch.ValueError) {
				t.Error(bad, err)
			}
		}
		if err := other.LoadStateDict(gotorch.Dict{{Key: "step", Value: int64(9)}}); err == nil {
			t.Error("a state of no parameters was loaded")
		}
		if got := other.StateDict().Get("step"); got != int64(4) {
			t.Error("what failed has changed the step:", got)
		}
		testhelp.Must(t, other.LoadStateDict(optim.SGD([]gotorch.Tensor{p}, optim.SGDOptions{LR: 0.5}).StateDict()))
		if got := other.StateDict().Get("step"); got != int64(0) {
			t.Error(got)
		}
	})
}

func TestWhatLocalSGDRefuses(t *testing.T) {
	rankstest.Run(t, 1, distributed.Options{}, func(g *distributed.Group) {
		closed, err := g.New([]int{0})
		testhelp.Must(t, err)
		closed.Close()
		opt := optim.SGD([]gotorch.Tensor{gotorch.Ones([]int64{1})}, optim.SGDOptions{LR: 1})
		for name, call := range map[string]func(){
			"no subgroup": func() { distributed.PostLocalSGD(g) },
			"no group": func() {
				distributed.PostLocalSGD(nil, distributed.PostLocalSGDOptions{NoPostLocalGradientAllReduce: true})
			},
			"a closed subgroup": func() { distributed.PostLocalSGD(g, distributed.PostLocalSGDOptions{Subgroup: closed}) },
			"a start below 0": func() {
				distributed.PostLocalSGD(g, distributed.PostLocalSGDOptions{Subgroup: g, StartLocalSGDIter: -1})
			},
			"no group to average": func() {
				distributed.PeriodicModelAverager(nil, 2)
			},
			"a period of 0": func() { distributed.PeriodicModelAverager(g, 0) },
			"a warmup below 0": func() {
				distributed.PeriodicModelAverager(g, 2, distributed.PeriodicModelAveragerOptions{WarmupSteps: -1})
			},
		} {
			if err := gotorch.Try0(call); !errors.Is(err, gotorch.ValueError) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, call := range []func(){
			func() { distributed.PostLocalSGDOptimizer(nil, distributed.PeriodicModelAverager(g, 2)) },
			func() { distributed.PostLocalSGDOptimizer(opt, nil) },
		} {
			if err := gotorch.Try0(call); !errors.Is(err, gotorch.TypeError) {
				t.Error(err)
			}
		}
	})
}
