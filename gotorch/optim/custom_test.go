package optim_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
	"gotorch.dev/gotorch/optim/swautils"
	"gotorch.dev/gotorch/train"
)

// lionGroup is the rule of Lion, which steps by the sign of an average of gradients.
type lionGroup struct {
	optim.CustomGroup
	LR          float64    `optim:"lr"`
	Betas       [2]float64 `optim:"betas"`
	WeightDecay float64    `optim:"weight_decay"`
}

func (g *lionGroup) Update(p, grad gotorch.Tensor, state *optim.ParamState) {
	average := state.Tensor("exp_avg", func(p gotorch.Tensor) gotorch.Tensor { return gotorch.ZerosLike(p) })
	p.MulScalar_(1 - g.LR*g.WeightDecay)
	p.Add_(average.LerpScalar(grad, 1-g.Betas[0]).Sign(), gotorch.AddOptions{Alpha: -g.LR})
	average.LerpScalar_(grad, 1-g.Betas[1])
}

// An optimiser with a rule of its own works with schedules, a GradScaler, weight averaging and train.Loop.
func ExampleCustom() {
	gotorch.ManualSeed(0)
	model := nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
	opt := optim.Custom(model.Parameters(), lionGroup{LR: 0.01, Betas: [2]float64{0.9, 0.99}})
	opt.Groups[0].WeightDecay = 0.1

	const epochs = 20
	x := gotorch.Randn([]int64{64, 2})
	set := data.NewTensorDataset(x, x.SumDim([]int64{1}, gotorch.SumDimOptions{KeepDim: true}))
	loader := data.NewLoader(set, data.LoaderOptions{BatchSize: 16})
	loop := train.NewLoop(model, opt, nn.MSELoss())
	loop.Schedule(lrscheduler.OneCycleLR(opt, 0.03, lrscheduler.OneCycleLROptions{Epochs: epochs, StepsPerEpoch: 4}), train.PerStep)
	history, err := loop.Run(context.Background(), loader, train.Epochs(epochs))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the loss falls below 0.1:", history.Last("loss") < 0.1)
	fmt.Printf("learning rate and first beta at the end: %.3f %.3f\n", opt.Groups[0].LR, opt.Groups[0].Betas[0])
	// Output:
	// the loss falls below 0.1: true
	// learning rate and first beta at the end: 0.000 0.950
}

// momentumGroup is SGD with a momentum, whose numbers package optim holds to PyTorch's.
type momentumGroup struct {
	optim.CustomGroup
	LR       float64  `optim:"lr"`
	Momentum float64  `optim:"momentum"`
	_        struct{} `optim:"foreach=None,differentiable=False"`
}

func (g *momentumGroup) Update(p, grad gotorch.Tensor, state *optim.ParamState) {
	fresh := state.Steps() == 1
	momentum := state.Tensor("momentum_buffer", func(gotorch.Tensor) gotorch.Tensor { return grad.Detach().Clone() })
	if !fresh {
		momentum.MulScalar_(g.Momentum).Add_(grad)
	}
	p.Add_(momentum, gotorch.AddOptions{Alpha: -g.LR})
}

func parametersOf(seed uint64) []gotorch.Tensor {
	gotorch.ManualSeed(seed)
	return []gotorch.Tensor{gotorch.Randn([]int64{3, 4}).RequiresGrad_(), gotorch.Randn([]int64{5}).RequiresGrad_(), gotorch.Randn([]int64{2}).RequiresGrad_()}
}

// A rule of one's own that does what SGD does ends with the same bits in everything that takes an optimiser.
func TestACustomOptimizerWorksWhereverOneOfThePackageDoes(t *testing.T) {
	schedules := map[string]func(optim.Optimizer) func(){
		"OneCycleLR": func(o optim.Optimizer) func() {
			return lrscheduler.OneCycleLR(o, []float64{0.3, 0.1}, lrscheduler.OneCycleLROptions{TotalSteps: 40}).Step
		},
		"CyclicLR": func(o optim.Optimizer) func() {
			return lrscheduler.CyclicLR(o, 0.01, 0.2, lrscheduler.CyclicLROptions{StepSizeUp: 3}).Step
		},
		"CosineAnnealingLR": func(o optim.Optimizer) func() { return lrscheduler.CosineAnnealingLR(o, 7).Step },
		"StepLR":            func(o optim.Optimizer) func() { return lrscheduler.StepLR(o, 2).Step },
		"SWALR":             func(o optim.Optimizer) func() { return swautils.SWALR(o, 0.05).Step },
		"ReduceLROnPlateau": func(o optim.Optimizer) func() {
			s := lrscheduler.ReduceLROnPlateau(o, lrscheduler.ReduceLROnPlateauOptions{Patience: 1})
			return func() { s.Step(1) }
		},
	}
	for name, schedule := range schedules {
		var ends [2]string
		for n := range ends {
			p := parametersOf(1)
			makeOne := func() optim.Optimizer {
				if n == 0 {
					o := optim.SGD(p[:2], optim.SGDOptions{LR: 0.1, Momentum: 0.9})
					o.AddGroup(p[2:]).LR = 0.02
					return o
				}
				o := optim.Custom(p[:2], momentumGroup{LR: 0.1, Momentum: 0.9})
				o.AddGroup(p[2:]).LR = 0.02
				return o
			}
			opt := makeOne()
			next := schedule(opt)
			scaler := optim.NewGradScaler(optim.GradScalerOptions{InitScale: 4, GrowthInterval: 2})
			steps := 0
			for i := range 12 {
				opt.ZeroGrad()
				loss := p[0].Square().Sum().Add(p[1].Cos().Sum())
				if i%3 > 0 {
					loss = loss.Add(p[2].Exp().Sum())
				}
				scaler.Scale(loss).Backward()
				if i == 5 {
					p[0].Grad().Fill_(math.Inf(1))
				}
				if scaler.Step(opt) {
					steps++
				}
				scaler.Update()
				next()
				if i == 7 { // to another optimiser with other options, by a file
					path := filepath.Join(t.TempDir(), "state.pt")
					if err := gotorch.Save(path, opt.StateDict()); err != nil {
						t.Fatal(err)
					}
					dict, err := gotorch.Load(path)
					if err != nil {
						t.Fatal(err)
					}
					if err := opt.LoadStateDict(dict.(gotorch.Dict)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if steps != 11 {
				t.Errorf("%s: %d of 12 steps are taken", name, steps)
			}
			ends[n] = written([]any{p[0], p[1], p[2]}) + fmt.Sprint(*opt.LRs()[0], *opt.LRs()[1], *opt.ParamGroups()[0].Momentum())
		}
		if ends[0] != ends[1] {
			t.Errorf("%s: SGD ends with\n%s\nand the same rule of one's own with\n%s", name, ends[0], ends[1])
		}
	}
}

func TestACustomOptimizerIsSavedAndLoaded(t *testing.T) {
	makeOne := func(p []gotorch.Tensor) *optim.CustomOptimizer[lionGroup, *lionGroup] {
		return optim.Custom(p, lionGroup{LR: 0.1, Betas: [2]float64{0.9, 0.99}})
	}
	p := parametersOf(2)
	opt := makeOne(p)
	opt.AddGroup([]gotorch.Tensor{parameter(1)}).WeightDecay = 0.5
	step := func(o optim.Optimizer, p []gotorch.Tensor) {
		o.ZeroGrad()
		p[0].Square().Sum().Add(p[1].Cos().Sum()).Backward()
		o.Step()
	}
	step(opt, p)
	handles := func() int64 { return gotorch.MemoryStats().LiveHandles }
	before := handles()
	for range 10 {
		opt.Step()
	}
	if after := handles(); after > before {
		t.Errorf("%d tensors are left after ten steps", after-before)
	}
	state := opt.StateDict()
	q := []gotorch.Tensor{p[0].Detach().Clone().RequiresGrad_(), p[1].Detach().Clone().RequiresGrad_(), p[2].Detach().Clone().RequiresGrad_()}
	other := makeOne(q)
	other.AddGroup([]gotorch.Tensor{parameter(1)})
	if err := other.LoadStateDict(state); err != nil {
		t.Fatal(err)
	}
	if other.Groups[1].WeightDecay != 0.5 || written(other.StateDict()) != written(state) {
		t.Errorf("got %s\nwant %s", written(other.StateDict()), written(state))
	}
	kept := written(state)
	step(other, q)
	if written(state) != kept {
		t.Error("a step of one has changed the state of the other")
	}
	step(opt, p)
	if written([]any{p[0], p[1]}) != written([]any{q[0], q[1]}) {
		t.Error("what is loaded goes on otherwise")
	}
	for _, bad := range []any{nil, "x", int64(3), gotorch.Zeros([]int64{2}, gotorch.TensorOptions{Device: gotorch.Meta})} {
		changed := gotorch.Dict{{Key: "state", Value: gotorch.Dict{{Key: int64(0), Value: gotorch.Dict{{Key: "step", Value: int64(1)}, {Key: "exp_avg", Value: bad}}}}},
			{Key: "param_groups", Value: state.Get("param_groups")}}
		now := written(other.StateDict())
		if err := other.LoadStateDict(changed); !errors.Is(err, gotorch.ValueError) || written(other.StateDict()) != now {
			t.Errorf("%v: got %v", bad, err)
		}
	}
}

// An optimiser of Python that counts no steps has no "step", and real numbers of a complex parameter stay real.
func TestACustomOptimizerLoadsWhatPythonHas(t *testing.T) {
	p := gotorch.Ones([]int64{2}, gotorch.TensorOptions{DType: gotorch.Complex64}).RequiresGrad_()
	opt := optim.Custom([]gotorch.Tensor{p}, lionGroup{LR: 0.1, Betas: [2]float64{0.9, 0.99}})
	groups := opt.StateDict().Get("param_groups")
	norm := gotorch.FromSlice([]float64{3, 4})
	state := gotorch.Dict{{Key: int64(0), Value: gotorch.Dict{{Key: "norm", Value: norm}}}}
	if err := opt.LoadStateDict(gotorch.Dict{{Key: "state", Value: state}, {Key: "param_groups", Value: groups}}); err != nil {
		t.Fatal(err)
	}
	got := opt.StateDict().Get("state").(gotorch.Dict).Get(int64(0)).(gotorch.Dict)
	if loaded := got.Get("norm").(gotorch.Tensor); !loaded.Equal(norm) || got.Get("step") != int64(0) {
		t.Error(got)
	}
}

func TestTheZeroParamGroupHasNothing(t *testing.T) {
	var g optim.ParamGroup
	if _, is := g.Get("lr"); is || g.LR() != nil || g.Momentum() != nil || g.Names() != nil || g.Params() != nil {
		t.Error("the zero group has something")
	}
	g.Snapshot()()
	if err := gotorch.Try0(func() { g.Set("lr", 1) }); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
}

// handMade is an optimiser that has nothing of package optim but the type of its group.
type handMade struct {
	group struct {
		optim.Common
		LR       float64 `optim:"lr"`
		Momentum float64 `optim:"momentum"`
	}
	groups []optim.ParamGroup
}

func (o *handMade) Step() {
	gotorch.NoGrad(func() {
		for _, p := range o.group.Params {
			if g := p.Grad(); g.Defined() {
				p.Sub_(g, gotorch.SubOptions{Alpha: o.group.LR})
			}
		}
	})
}
func (o *handMade) StepWith(closure func() gotorch.Tensor) gotorch.Tensor {
	loss := closure()
	o.Step()
	return loss
}
func (o *handMade) ZeroGrad() {
	for _, p := range o.group.Params {
		p.SetGrad(gotorch.Tensor{})
	}
}
func (o *handMade) LRs() []*float64                    { return nil } // which nobody reads
func (o *handMade) ParamGroups() []optim.ParamGroup    { return o.groups }
func (o *handMade) StateDict() gotorch.Dict            { return gotorch.Dict{} }
func (o *handMade) LoadStateDict(d gotorch.Dict) error { return nil }

type byValue struct{ _ []int }

func (byValue) Step()                                                {}
func (byValue) StepWith(func() gotorch.Tensor) (none gotorch.Tensor) { return }
func (byValue) ZeroGrad()                                            {}
func (byValue) LRs() []*float64                                      { return nil }
func (byValue) ParamGroups() []optim.ParamGroup                      { return []optim.ParamGroup{{}} }
func (byValue) StateDict() gotorch.Dict                              { return nil }
func (byValue) LoadStateDict(gotorch.Dict) error                     { return nil }

func TestAnOptimizerFromNothingHasParamGroups(t *testing.T) {
	o := &handMade{}
	o.group.Params, o.group.LR, o.group.Momentum = []gotorch.Tensor{parameter(1)}, 1, 0.9
	kinds := map[gotorch.ErrorKind][]func(){
		gotorch.ValueError: { // a schedule that would change nothing
			func() { lrscheduler.OneCycleLR(o, 0.1, lrscheduler.OneCycleLROptions{TotalSteps: 5}) },
			func() { lrscheduler.StepLR(o, 1) },
			func() { lrscheduler.LambdaLR(o, func(int64) float64 { return 1 }) },
			func() { lrscheduler.ReduceLROnPlateau(o) },
			func() { swautils.SWALR(o, 0.1) },
		},
		gotorch.TypeError: {
			func() { lrscheduler.StepLR(byValue{}, 1) },
			func() { optim.NewGradScaler().Step(byValue{}) },
			func() { optim.ParamGroupOf(nil) },
			func() { optim.ParamGroupOf(&optim.Common{}) },
			func() { optim.ParamGroupOf((*optim.SGDGroup)(nil)) },
			func() {
				optim.ParamGroupOf(&struct {
					optim.Common
					LR float32 `optim:"lr"`
				}{})
			},
		},
	}
	for kind, calls := range kinds {
		for i, call := range calls {
			if err := gotorch.Try0(call); !errors.Is(err, kind) {
				t.Errorf("%v %d: got %v", kind, i, err)
			}
		}
	}

	o.groups = []optim.ParamGroup{optim.ParamGroupOf(&o.group)}
	schedule := lrscheduler.OneCycleLR(o, 0.5, lrscheduler.OneCycleLROptions{TotalSteps: 4})
	like := optim.SGD([]gotorch.Tensor{parameter(1)}, optim.SGDOptions{LR: 1, Momentum: 0.9})
	want := lrscheduler.OneCycleLR(like, 0.5, lrscheduler.OneCycleLROptions{TotalSteps: 4})
	scaler := optim.NewGradScaler(optim.GradScalerOptions{InitScale: 2})
	for range 3 {
		o.ZeroGrad()
		scaler.Scale(o.group.Params[0].Sum()).Backward()
		before, lr := gotorch.Item[float32](o.group.Params[0]), o.group.LR
		if !scaler.Step(o) || gotorch.Item[float32](o.group.Params[0]) != before-float32(lr) {
			t.Error("the step is not that of an unscaled gradient")
		}
		scaler.Update()
		like.Step()
		schedule.Step()
		want.Step()
		if o.group.LR != like.Groups[0].LR || o.group.Momentum != like.Groups[0].Momentum {
			t.Errorf("learning rate %v and momentum %v, want %v and %v", o.group.LR, o.group.Momentum, like.Groups[0].LR, like.Groups[0].Momentum)
		}
	}
}
