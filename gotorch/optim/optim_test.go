package optim_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/finalize"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

func parameter(values ...float32) gotorch.Tensor { return gotorch.FromSlice(values).RequiresGrad_() }

func expectError(t *testing.T, err error, part string) {
	t.Helper()
	if !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), part) {
		t.Errorf("got %v, want a ValueError with %q", err, part)
	}
}

func TestImpossibleOptionsPanicWithValueErrors(t *testing.T) {
	p := []gotorch.Tensor{parameter(1)}
	for part, fn := range map[string]func(){
		"empty parameter list":                  func() { optim.SGD(nil) },
		"learning rate: -1":                     func() { optim.SGD(p, optim.SGDOptions{LR: -1}) },
		"learning rate: NaN":                    func() { optim.SGD(p, optim.SGDOptions{LR: math.NaN()}) },
		"momentum: -1":                          func() { optim.SGD(p, optim.SGDOptions{Momentum: -1}) },
		"weight_decay value: -1":                func() { optim.Adam(p, optim.AdamOptions{WeightDecay: -1}) },
		"epsilon value: -1":                     func() { optim.AdamW(p, optim.AdamWOptions{Eps: new(-1.0)}) },
		"beta parameter at index 1: 1":          func() { optim.AdamW(p, optim.AdamWOptions{Betas: &[2]float64{0.9, 1}}) },
		"Nesterov momentum requires":            func() { optim.SGD(p, optim.SGDOptions{Nesterov: true}) },
		"parameter 0 is the result of":          func() { optim.SGD([]gotorch.Tensor{p[0].MulScalar(2)}) },
		"parameter 1 appears twice":             func() { optim.SGD([]gotorch.Tensor{p[0], p[0]}) },
		"parameter 0 appears twice, or in more": func() { optim.SGD(p).AddGroup(p) },
	} {
		expectError(t, gotorch.Try0(fn), part)
	}
}

func TestZeroIsGiven(t *testing.T) {
	p := []gotorch.Tensor{parameter(1)}
	for name, lrs := range map[string][]*float64{
		"SGD":   optim.SGD(p, optim.SGDOptions{LR: 0}).LRs(),
		"Adam":  optim.Adam(p, optim.AdamOptions{LR: 0.0}).LRs(),
		"AdamW": optim.AdamW(p, optim.AdamWOptions{LR: new(0.0)}).LRs(),
	} {
		if *lrs[0] != 0 {
			t.Errorf("%s: LR: 0 is %v", name, *lrs[0])
		}
	}
	for name, lrs := range map[string][]*float64{"SGD": optim.SGD(p).LRs(), "Adam": optim.Adam(p).LRs(), "AdamW": optim.AdamW(p).LRs()} {
		if *lrs[0] != 1e-3 {
			t.Errorf("%s: the default is %v", name, *lrs[0])
		}
	}
	g := optim.AdamW(p, optim.AdamWOptions{Eps: 0, WeightDecay: 0}).Groups[0]
	if g.Eps != 0 || g.WeightDecay != 0 {
		t.Errorf("zeros are %v and %v", g.Eps, g.WeightDecay)
	}
	still := parameter(1)
	opt := optim.SGD([]gotorch.Tensor{still}, optim.SGDOptions{LR: 0})
	still.Sum().Backward()
	opt.Step()
	if gotorch.Item[float32](still) != 1 {
		t.Errorf("with LR 0 the parameter became %v", still)
	}
}

func TestParametersWithoutGradientStay(t *testing.T) {
	for name, make := range makers() {
		a, b := parameter(1), parameter(1)
		opt := make([]gotorch.Tensor{a, b})
		opt.Step() // no gradient at all
		a.Sum().Backward()
		opt.Step()
		if gotorch.Item[float32](a) == 1 || gotorch.Item[float32](b) != 1 {
			t.Errorf("%s: a is %v, b is %v", name, a, b)
		}
		opt.ZeroGrad()
		if a.Grad().Defined() {
			t.Errorf("%s: the gradient is still there", name)
		}
	}
}

func makers() map[string]func([]gotorch.Tensor) optim.Optimizer {
	return map[string]func([]gotorch.Tensor) optim.Optimizer{
		"sgd": func(p []gotorch.Tensor) optim.Optimizer {
			return optim.SGD(p, optim.SGDOptions{LR: 0.1, Momentum: 0.9})
		},
		"sgd fused": func(p []gotorch.Tensor) optim.Optimizer {
			return optim.SGD(p, optim.SGDOptions{LR: 0.1, Momentum: 0.9, Fused: true})
		},
		"adam": func(p []gotorch.Tensor) optim.Optimizer {
			return optim.Adam(p, optim.AdamOptions{LR: 0.1, AMSGrad: true})
		},
		"adamw fused": func(p []gotorch.Tensor) optim.Optimizer {
			return optim.AdamW(p, optim.AdamWOptions{LR: 0.1, Fused: true})
		},
	}
}

func TestStateSurvivesTheScopeOfItsFirstStep(t *testing.T) {
	for name, make := range makers() {
		inScopes, without := parameter(1, 2), parameter(1, 2)
		for i, p := range []gotorch.Tensor{inScopes, without} {
			opt := make([]gotorch.Tensor{p})
			step := func() {
				opt.ZeroGrad()
				p.Pow(2).Sum().Backward()
				opt.Step()
			}
			for range 5 {
				if i == 0 {
					gotorch.Scope0(func(*gotorch.ScopeHandle) { step() })
				} else {
					step()
				}
			}
		}
		if !gotorch.Equal(inScopes, without) {
			t.Errorf("%s: in scopes %v, without %v", name, inScopes, without)
		}
	}
}

func TestStepsLeaveNoGraphAndNoTensors(t *testing.T) {
	for name, make := range makers() {
		p := parameter(1, 2, 3)
		opt := make([]gotorch.Tensor{p})
		p.Sum().Backward()
		opt.Step()
		before := gotorch.MemoryStats().LiveHandles
		for range 10 {
			opt.Step()
		}
		if after := gotorch.MemoryStats().LiveHandles; after > before {
			t.Errorf("%s: %d tensors are left after ten steps", name, after-before)
		}
		if !p.IsLeaf() {
			t.Errorf("%s: the step is part of a graph", name)
		}
	}
}

func TestGroupsHaveTheirOwnOptions(t *testing.T) {
	a, b := parameter(1), parameter(1)
	opt := optim.SGD([]gotorch.Tensor{a}, optim.SGDOptions{LR: 0.5})
	opt.AddGroup([]gotorch.Tensor{b}).LR = 0.1
	a.Add(b).Backward()
	opt.Step()
	if gotorch.Item[float32](a) != 0.5 || gotorch.Item[float32](b) != 0.9 {
		t.Errorf("got %v and %v, want 0.5 and 0.9", a, b)
	}
}

func TestALearningRateOfZeroHoldsStill(t *testing.T) {
	p := parameter(1)
	opt := optim.SGD([]gotorch.Tensor{p})
	opt.Groups[0].LR = 0
	p.Sum().Backward()
	opt.Step()
	if gotorch.Item[float32](p) != 1 {
		t.Errorf("got %v", p)
	}
}

// changed returns a copy of a dict with one value replaced.
func changed(d gotorch.Dict, key string, value any) gotorch.Dict {
	d = append(gotorch.Dict(nil), d...)
	for i := range d {
		if d[i].Key == key {
			d[i].Value = value
		}
	}
	return d
}

func TestForeignStateDictsAreErrorsAndChangeNothing(t *testing.T) {
	p := parameter(1, 2)
	opt := optim.AdamW([]gotorch.Tensor{p}, optim.AdamWOptions{LR: 0.25})
	p.Sum().Backward()
	opt.Step()
	good := opt.StateDict()
	group := good.Get("param_groups").([]any)[0].(gotorch.Dict)
	state := good.Get("state").(gotorch.Dict)
	first := state.Get(int64(0)).(gotorch.Dict)

	withGroup := func(key string, value any) gotorch.Dict {
		return changed(good, "param_groups", []any{changed(group, key, value)})
	}
	withState := func(key string, value any) gotorch.Dict {
		return changed(good, "state", gotorch.Dict{{Key: int64(0), Value: changed(first, key, value)}})
	}
	for part, dict := range map[string]gotorch.Dict{
		"no list 'param_groups'":                 nil,
		"<nil> as 'state'":                       {{Key: "param_groups", Value: good.Get("param_groups")}},
		"different number of parameter groups":   changed(good, "param_groups", []any{group, group}),
		"doesn't match the size":                 withGroup("params", []any{int64(0), int64(1)}),
		"string as 'lr', where a number":         withGroup("lr", "fast"),
		"<nil> as 'eps', where a number":         withGroup("eps", nil),
		"'betas', where a list of 2 numbers":     withGroup("betas", gotorch.Tuple{0.9}),
		"int64 as 'amsgrad', where a bool":       withGroup("amsgrad", int64(1)),
		"'exp_avg' of a parameter of shape [2]":  withState("exp_avg", gotorch.Ones([]int64{3})),
		"string as 'exp_avg_sq', where a tensor": withState("exp_avg_sq", "none"),
		"<nil> as 'max_exp_avg_sq'":              withGroup("amsgrad", true),
		"NaN as 'step'":                          withState("step", gotorch.FromScalar(math.NaN())),
		"-1 as 'step'":                           withState("step", int64(-1)),
		"2.5 as 'step'":                          withState("step", 2.5),
		"+Inf as 'step'":                         withState("step", math.Inf(1)),
		"as 'eps' that cannot be read":           withGroup("eps", gotorch.Zeros(nil, gotorch.TensorOptions{Device: gotorch.Meta})),
		"as 'exp_avg' that cannot be read":       withState("exp_avg", gotorch.Zeros([]int64{2}, gotorch.TensorOptions{Device: gotorch.Meta})),
		"sparse_coo as 'exp_avg'":                withState("exp_avg", gotorch.Zeros([]int64{2}).ToSparse()),
		"bool as 'params'":                       withGroup("params", []any{true}),
		"as the state of parameter 0":            changed(good, "state", gotorch.Dict{{Key: int64(0), Value: "none"}}),
		"as the state of parameter true":         changed(good, "state", gotorch.Dict{{Key: true, Value: first}}),
	} {
		expectError(t, opt.LoadStateDict(dict), part)
	}
	if opt.Groups[0].LR != 0.25 || !gotorch.Equal(opt.StateDict().Get("state").(gotorch.Dict).Get(int64(0)).(gotorch.Dict).Get("exp_avg").(gotorch.Tensor), first.Get("exp_avg").(gotorch.Tensor)) {
		t.Error("a failed load changed the optimiser")
	}
	if err := opt.LoadStateDict(good); err != nil {
		t.Error(err)
	}
}

// Python's distributed checkpoints have names in the place of numbers.
func TestStateDictsMayHaveNamesForNumbers(t *testing.T) {
	p := parameter(1, 2)
	opt := optim.Adam([]gotorch.Tensor{p})
	p.Sum().Backward()
	opt.Step()
	dict := opt.StateDict()
	group := dict.Get("param_groups").([]any)[0].(gotorch.Dict)
	state := dict.Get("state").(gotorch.Dict).Get(int64(0))
	named := gotorch.Dict{
		{Key: "state", Value: gotorch.Dict{{Key: "head.weight", Value: state}}},
		{Key: "param_groups", Value: []any{changed(group, "params", []any{"head.weight"})}},
	}
	other := optim.Adam([]gotorch.Tensor{parameter(1, 2)})
	if err := other.LoadStateDict(named); err != nil {
		t.Fatal(err)
	}
	if got, want := written(other.StateDict()), written(dict); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestWhatAdamLoadsFromAdamWIsAdamW(t *testing.T) {
	p := []gotorch.Tensor{parameter(1)}
	opt := optim.Adam(p)
	if err := opt.LoadStateDict(optim.AdamW(p).StateDict()); err != nil || !opt.Groups[0].DecoupledWeightDecay {
		t.Errorf("decoupled: %v, error %v", opt.Groups[0].DecoupledWeightDecay, err)
	}
	opt = optim.AdamW(p)
	if err := opt.LoadStateDict(optim.Adam(p).StateDict()); err != nil || !opt.Groups[0].DecoupledWeightDecay {
		t.Errorf("decoupled: %v, error %v", opt.Groups[0].DecoupledWeightDecay, err)
	}
}

func TestAStepThatIsRefusedLeavesNoMomentum(t *testing.T) {
	p := gotorch.FromSlice([]complex64{1, 2}).RequiresGrad_()
	opt := optim.SGD([]gotorch.Tensor{p}, optim.SGDOptions{Momentum: 0.9, Fused: true})
	p.SetGrad(gotorch.FromSlice([]complex64{1, 1}))
	if err := gotorch.Try0(opt.Step); !errors.Is(err, gotorch.RuntimeError) {
		t.Fatalf("got %v", err)
	}
	if state := opt.StateDict().Get("state").(gotorch.Dict); len(state) != 0 {
		t.Errorf("got %v", state)
	}
}

func TestARefusedStepChangesNoGroup(t *testing.T) {
	first, second := parameter(1), parameter(2, 3)
	for _, opt := range []interface {
		Step()
		StateDict() gotorch.Dict
	}{
		func() *optim.AdamOptimizer {
			o := optim.Adam([]gotorch.Tensor{first})
			o.AddGroup([]gotorch.Tensor{second})
			return o
		}(),
		func() *optim.SGDOptimizer {
			o := optim.SGD([]gotorch.Tensor{first})
			o.AddGroup([]gotorch.Tensor{second}, optim.SGDOptions{WeightDecay: 1})
			return o
		}(),
	} {
		first.SetGrad(gotorch.FromSlice([]float32{1}))
		second.SetGrad(gotorch.FromSlice([]float32{1, 1}).ToSparse())
		if err := gotorch.Try0(opt.Step); !errors.Is(err, gotorch.RuntimeError) || !strings.Contains(err.Error(), "which parameter 0 of its group has") {
			t.Errorf("%T: got %v", opt, err)
		}
		if got := gotorch.Item[float32](first); got != 1 {
			t.Errorf("%T has changed the first group: %v", opt, got)
		}
		if state := opt.StateDict().Get("state").(gotorch.Dict); len(state) != 0 {
			t.Errorf("%T has begun: %v", opt, state)
		}
	}
}

// With a momentum of sparse gradients, it depends on the gradient before what torch can add.
func TestGradientsThatAMomentumDoesNotTakeChangeNoGroup(t *testing.T) {
	dense := gotorch.Ones([]int64{2, 2})
	rows, places := dense.ToSparseSparseDim(1), dense.ToSparse()
	halves := dense.To(gotorch.Float16)
	none := gotorch.Zeros([]int64{2, 2})
	for n, c := range []struct {
		first, second gotorch.Tensor
		options       optim.SGDOptions
		want          string // "" where Python takes it
	}{
		{rows, places, optim.SGDOptions{}, "a momentum of gradients with 1 sparse dimensions does not take those with 2"},
		{rows, none.ToSparse(), optim.SGDOptions{}, ""},
		{rows, dense, optim.SGDOptions{}, "a momentum of sparse gradients does not take dense ones"},
		{dense, rows, optim.SGDOptions{}, ""},
		{dense, rows, optim.SGDOptions{Nesterov: true}, "a Nesterov momentum of dense gradients does not take sparse ones"},
		{rows, rows, optim.SGDOptions{Nesterov: true}, ""},
		{halves.ToSparse(), halves.ToSparse(), optim.SGDOptions{}, "in float16"},
		{halves.ToSparse(), none.To(gotorch.Float16).ToSparse(), optim.SGDOptions{}, ""},
	} {
		first, second := parameter(1), c.first.ToDense().Clone().RequiresGrad_()
		c.options.LR, c.options.Momentum = 0.25, 0.5
		opt := optim.SGD([]gotorch.Tensor{first}, c.options)
		opt.AddGroup([]gotorch.Tensor{second}, c.options)
		first.SetGrad(gotorch.FromSlice([]float32{1}))
		second.SetGrad(c.first)
		opt.Step()
		state := func() string {
			return written([]any{first, second}) + written(opt.StateDict())
		}
		before := state()
		second.SetGrad(c.second)
		err := gotorch.Try0(opt.Step)
		switch {
		case c.want == "" && err != nil, c.want == "" && before == state():
			t.Errorf("%d: got %v", n, err)
		case c.want == "":
		case !errors.Is(err, gotorch.RuntimeError) || !strings.Contains(err.Error(), c.want):
			t.Errorf("%d: got %v", n, err)
		case before != state():
			t.Errorf("%d: before\n%s\nafter\n%s", n, before, state())
		}
	}
}

func TestNumbersThatAreRememberedFollowTheDefaultDType(t *testing.T) {
	gotorch.SetDefaultDType(gotorch.Float64)
	defer gotorch.SetDefaultDType(gotorch.Float32)
	p := gotorch.FromSlice([]float64{1}).RequiresGrad_()
	opt := optim.ASGD([]gotorch.Tensor{p}, optim.ASGDOptions{LR: 0.1})
	p.SetGrad(gotorch.FromSlice([]float64{1}))
	opt.Step()
	state := opt.StateDict().Get("state").(gotorch.Dict).Get(int64(0)).(gotorch.Dict)
	for _, name := range []string{"step", "eta", "mu"} {
		if got := state.Get(name).(gotorch.Tensor).DType(); got != gotorch.Float64 {
			t.Errorf("%s is of %v", name, got)
		}
	}
}

func TestAGradScalerLeavesOutWhatIsNotFinite(t *testing.T) {
	p := parameter(1)
	opt := optim.SGD([]gotorch.Tensor{p}, optim.SGDOptions{LR: 1})
	// What earlier tests have dropped, and the collector finds only now, would hide what this one leaves.
	live := gotorch.MemoryStats().LiveHandles
	for same := 0; same < 5; same++ {
		finalize.Dead()
		gotorch.ReleaseCachedMemory()
		if now := gotorch.MemoryStats().LiveHandles; now < live {
			live, same = now, 0
		}
	}
	scaler := optim.NewGradScaler(optim.GradScalerOptions{InitScale: 8, GrowthInterval: 2})
	steps := func(grads ...float32) (scales []float64) {
		for _, g := range grads {
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				scale := gotorch.Item[float32](scaler.Scale(gotorch.FromScalar(float32(1))))
				p.SetGrad(gotorch.FromSlice([]float32{g * scale}))
				scaler.Step(opt)
				scaler.Update()
				p.SetGrad(gotorch.Tensor{})
			})
			scales = append(scales, scaler.GetScale())
		}
		return scales
	}
	inf := float32(math.Inf(1))
	// As torch.amp.GradScaler("cpu", init_scale=8, growth_interval=2) has them.
	if got := steps(1, inf, 0, 0, 0, inf, inf); fmt.Sprint(got) != "[8 4 4 8 8 4 2]" {
		t.Errorf("the scales are %v", got)
	}
	if got := gotorch.Item[float32](p); got != 0 {
		t.Errorf("the parameter is %v", got)
	}
	for range 160 { // until the scale is 0
		steps(inf)
	}
	dict := scaler.StateDict()
	if err := scaler.LoadStateDict(changed(changed(dict, "scale", 16.0), "_growth_tracker", int64(1))); err != nil || scaler.GetScale() != 16 {
		t.Errorf("the scale is %v, error %v", scaler.GetScale(), err)
	}
	if got := steps(0); got[0] != 32 {
		t.Errorf("the scale grows to %v", got)
	}
	if err := optim.NewGradScaler().LoadStateDict(dict); err != nil {
		t.Error(err)
	}
	for key, value := range map[string]any{"scale": math.Inf(1), "growth_factor": 1.0, "backoff_factor": math.NaN(),
		"growth_interval": int64(0), "_growth_tracker": int64(math.MaxInt32 + 1)} {
		expectError(t, scaler.LoadStateDict(changed(dict, key, value)), "out of range")
	}
	dict = changed(dict, "growth_interval", int64(math.MaxInt64))
	if err := scaler.LoadStateDict(dict); err != nil || scaler.StateDict().Get("growth_interval") != int64(math.MaxInt64) {
		t.Errorf("got %v, error %v", scaler.StateDict(), err)
	}
	if left := gotorch.MemoryStats().LiveHandles - live; left > 2 { // the scale and its steps
		t.Errorf("%d tensors are left", left)
	}
}

func ExampleSGD() {
	x := gotorch.FromSlice([]float64{4, -2}).RequiresGrad_()
	opt := optim.SGD([]gotorch.Tensor{x}, optim.SGDOptions{LR: 0.25})
	for range 3 {
		opt.ZeroGrad()
		x.Pow(2).Sum().Backward()
		opt.Step()
		fmt.Println(gotorch.ToSlice[float64](x))
	}
	// Output:
	// [2 -1]
	// [1 -0.5]
	// [0.5 -0.25]
}

func ExampleAdamW() {
	x := gotorch.FromSlice([]float64{1}).RequiresGrad_()
	opt := optim.AdamW([]gotorch.Tensor{x}, optim.AdamWOptions{LR: 0.1, WeightDecay: new(0.0)})
	for range 100 {
		opt.ZeroGrad()
		x.SubScalar(3).Pow(2).Sum().Backward()
		opt.Step()
	}
	fmt.Printf("%.1f\n", gotorch.Item[float64](x))
	// Output: 3.0
}

func ExampleOptimizer() {
	x := gotorch.FromSlice([]float64{1}).RequiresGrad_()
	var opt optim.Optimizer = optim.SGD([]gotorch.Tensor{x}, optim.SGDOptions{LR: 1})
	for range 3 {
		for _, lr := range opt.LRs() {
			*lr /= 2
		}
	}
	fmt.Println(*opt.LRs()[0])
	// Output: 0.125
}

func TestSparseGradientsAreRefusedBeforeAnythingChanges(t *testing.T) {
	for name, make := range map[string]func(ps []gotorch.Tensor) optim.Optimizer{
		"AdamW":   func(ps []gotorch.Tensor) optim.Optimizer { return optim.AdamW(ps) },
		"ASGD":    func(ps []gotorch.Tensor) optim.Optimizer { return optim.ASGD(ps) },
		"RMSprop": func(ps []gotorch.Tensor) optim.Optimizer { return optim.RMSprop(ps) },
		"Rprop":   func(ps []gotorch.Tensor) optim.Optimizer { return optim.Rprop(ps) },
	} {
		dense := nn.Parameter(gotorch.Ones([]int64{2}))
		table := nn.Embedding(3, 2, nn.EmbeddingOptions{Sparse: true})
		before := table.Weight.Detach().Clone()
		opt := make([]gotorch.Tensor{dense, table.Weight})
		table.Forward(gotorch.FromSlice([]int64{1})).Sum().Add(dense.Sum()).Backward()
		if err := gotorch.Try0(opt.Step); !errors.Is(err, gotorch.RuntimeError) {
			t.Errorf("%s: %v", name, err)
		}
		if !dense.Equal(gotorch.Ones([]int64{2})) || !table.Weight.Equal(before) {
			t.Errorf("%s: parameters have changed", name)
		}
		if state, _ := opt.StateDict().Get("state").(gotorch.Dict); len(state) != 0 {
			t.Errorf("%s: a step is remembered: %v", name, state)
		}
	}
}

// The numbers are those of torch.amp.GradScaler("cpu", init_scale=8, growth_interval=2).
func TestAGradScalerOfSeveralOptimizersAndItsState(t *testing.T) {
	p, q := parameter(1), parameter(2)
	first, second := optim.SGD([]gotorch.Tensor{p}), optim.SGD([]gotorch.Tensor{q})
	options := optim.GradScalerOptions{InitScale: 8, GrowthInterval: 2}
	scaler := optim.NewGradScaler(options)
	one := gotorch.FromSlice([]float32{1})
	step := func(of, with float32) {
		scaler.Scale(gotorch.FromScalar(float32(1)))
		p.SetGrad(one.MulScalar(of))
		q.SetGrad(one.MulScalar(with))
		scaler.Step(first)
		scaler.Step(second)
		scaler.Update()
	}
	expect := func(what string, scale float64, steps int64) {
		t.Helper()
		if d := scaler.StateDict(); d.Get("scale") != scale || d.Get("_growth_tracker") != steps {
			t.Errorf("%s: got %v, want a scale of %v after %d steps", what, d, scale, steps)
		}
	}
	inf := float32(math.Inf(1))
	step(1, 1)
	expect("both finite", 8, 1)
	// What goes on from a state grows as soon.
	saved := scaler.StateDict()
	scaler = optim.NewGradScaler(options)
	if err := scaler.LoadStateDict(saved); err != nil {
		t.Fatal(err)
	}
	expect("loaded", 8, 1)
	step(1, 1)
	expect("grown", 16, 0)
	step(1, 1)
	step(inf, 1)
	expect("the first has infinity", 8, 0)
	step(1, 1)
	step(1, inf)
	expect("the second has infinity", 4, 0)
}

func TestAStepThatIsRefusedMayBeTriedAgainWithAGradScaler(t *testing.T) {
	p, q := parameter(1), parameter(1, 2)
	opt := optim.SGD([]gotorch.Tensor{p, q}, optim.SGDOptions{LR: 1})
	scaler := optim.NewGradScaler(optim.GradScalerOptions{InitScale: 8})
	scaler.Scale(gotorch.FromScalar(float32(1)))
	p.SetGrad(gotorch.FromSlice([]float32{4}))
	scaler.Unscale(opt)
	opt.Groups[0].WeightDecay = 1
	q.SetGrad(gotorch.Ones([]int64{2}).ToSparse())
	for range 2 {
		if err := gotorch.Try0(func() { scaler.Step(opt) }); err == nil || !strings.Contains(err.Error(), "sparse") {
			t.Errorf("got %v", err)
		}
	}
	opt.Groups[0].WeightDecay = 0
	if !scaler.Step(opt) || gotorch.Item[float32](p) != 0.5 {
		t.Errorf("the parameter is %v", p)
	}
}

func ExampleSparseAdam() {
	table := nn.Embedding(4, 2, nn.EmbeddingOptions{Sparse: true})
	gotorch.NoGrad(func() { table.Weight.Fill_(1) })
	opt := optim.SparseAdam([]gotorch.Tensor{table.Weight}, optim.SparseAdamOptions{LR: 0.5})
	table.Forward(gotorch.FromSlice([]int64{2, 2})).Sum().Backward()
	opt.Step()
	fmt.Println(table.Weight.Detach())
	// Output:
	// tensor([[1.0000, 1.0000],
	//         [1.0000, 1.0000],
	//         [0.5000, 0.5000],
	//         [1.0000, 1.0000]])
}

func TestSparseAdamRefusesWhatIsDense(t *testing.T) {
	table := nn.Embedding(3, 2, nn.EmbeddingOptions{Sparse: true})
	dense := nn.Parameter(gotorch.Ones([]int64{2}))
	before := table.Weight.Detach().Clone()
	opt := optim.SparseAdam([]gotorch.Tensor{table.Weight, dense})
	table.Forward(gotorch.FromSlice([]int64{1})).Sum().Add(dense.Sum()).Backward()
	if err := gotorch.Try0(opt.Step); !errors.Is(err, gotorch.RuntimeError) {
		t.Error(err)
	}
	if !table.Weight.Equal(before) {
		t.Error("parameters have changed")
	}
	sparse := gotorch.Zeros([]int64{3}).ToSparse()
	if err := gotorch.Try0(func() { optim.SparseAdam([]gotorch.Tensor{sparse}) }); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
}

// What is remembered has other shapes than parameters, and parameters without elements have nothing to change.
func TestAdafactor(t *testing.T) {
	params := []gotorch.Tensor{nn.Parameter(gotorch.Ones([]int64{3, 2})), nn.Parameter(gotorch.Ones([]int64{2})), nn.Parameter(gotorch.Ones([]int64{0, 2}))}
	opt := optim.Adafactor(params)
	for range 2 {
		params[0].Sum().Add(params[1].Sum()).Add(params[2].Sum()).Backward()
		opt.Step()
	}
	if n := params[2].Numel(); n != 0 {
		t.Error(n)
	}
	state := opt.StateDict()
	for _, fits := range []int64{3, 2} {
		shape := []int64{fits, 1}
		first := state.Get("state").(gotorch.Dict).Get(int64(0)).(gotorch.Dict)
		for i := range first {
			if first[i].Key == "row_var" {
				first[i].Value = gotorch.Ones(shape)
			}
		}
		err := optim.Adafactor(params).LoadStateDict(state)
		if (err == nil) != (fits == 3) || err != nil && !errors.Is(err, gotorch.ValueError) {
			t.Errorf("row_var of shape %v: %v", shape, err)
		}
	}
	for name, opts := range map[string]optim.AdafactorOptions{
		"eps": {Eps: [2]gotorch.Scalar{nil, -1}}, "least": {Eps: [2]gotorch.Scalar{-1e-9}}, "d": {D: 0.5}, "decay": {Beta2Decay: 1},
	} {
		if err := gotorch.Try0(func() { optim.Adafactor(params, opts) }); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The fused kernels go through memory as it lies. Whatever the layout of gradients and momenta, the numbers are those of
// the same optimiser on contiguous tensors.
func TestFusedStepsDoNotDependOnLayout(t *testing.T) {
	type maker func(ps []gotorch.Tensor, fused bool) optim.Optimizer
	makers := map[string]maker{
		"SGD": func(ps []gotorch.Tensor, fused bool) optim.Optimizer {
			return optim.SGD(ps, optim.SGDOptions{LR: 0.1, Momentum: 0.9, Fused: fused})
		},
		"SGD without momentum": func(ps []gotorch.Tensor, fused bool) optim.Optimizer {
			return optim.SGD(ps, optim.SGDOptions{LR: 0.1, Fused: fused})
		},
		"AdamW": func(ps []gotorch.Tensor, fused bool) optim.Optimizer {
			return optim.AdamW(ps, optim.AdamWOptions{AMSGrad: true, Fused: fused})
		},
	}
	g := gotorch.NewGenerator(gotorch.CPU).ManualSeed(1)
	random := func(size ...int64) gotorch.Tensor {
		return gotorch.Empty(size).Normal_(gotorch.Normal_Options{Generator: g})
	}
	everyOther := gotorch.SliceDimOptions{Dim: 1, Step: new(int64(2))}
	for name, make := range makers {
		start, grads := random(3, 4), []gotorch.Tensor{random(4, 3).Transpose(0, 1), random(1, 4).Expand([]int64{3, 4}), random(3, 8).SliceDim(everyOther), random(3, 4)}
		for _, layout := range []string{"contiguous", "transposed"} {
			run := func(plain bool) gotorch.Tensor {
				p := start.Clone()
				if layout == "transposed" && !plain {
					p = start.Transpose(0, 1).Contiguous().Transpose(0, 1)
				}
				p = nn.Parameter(p)
				opt := make([]gotorch.Tensor{p}, plain)
				for i, grad := range grads {
					if plain {
						grad = grad.Contiguous()
					}
					p.SetGrad(grad)
					if !plain && i == 1 { // what was remembered so far is of other kernels
						fused := make([]gotorch.Tensor{p}, true)
						if err := fused.LoadStateDict(opt.StateDict()); err != nil {
							t.Fatal(err)
						}
						switch o := fused.(type) { // the state dict says which kernels there were
						case *optim.SGDOptimizer:
							o.Groups[0].Fused = true
						case *optim.AdamOptimizer:
							o.Groups[0].Fused = true
						}
						opt = fused
					}
					opt.Step()
				}
				return p.Detach()
			}
			want, got := run(true), run(false)
			if !gotorch.AllClose(want, got, gotorch.AllCloseOptions{RTol: new(1e-5), ATol: new(1e-6)}) {
				t.Errorf("%s, %s:\n%v\n%v", name, layout, want, got)
			}
		}
		wide := nn.Parameter(random(3, 8).SliceDim(everyOther))
		before := wide.Detach().Clone()
		wide.SetGrad(random(3, 4))
		if err := gotorch.Try0(make([]gotorch.Tensor{wide}, true).Step); !errors.Is(err, gotorch.RuntimeError) || !gotorch.Equal(before, wide.Detach()) {
			t.Errorf("%s: a parameter with gaps: %v", name, err)
		}
	}
}

func TestStateDictsKeepWhatOthersHavePutIntoGroups(t *testing.T) {
	opt := optim.SGD([]gotorch.Tensor{parameter(1)})
	dict := opt.StateDict()
	group := dict.Get("param_groups").([]any)[0].(gotorch.Dict)
	if err := opt.LoadStateDict(changed(dict, "param_groups", []any{append(group, gotorch.DictItem{Key: "initial_lr", Value: 0.5})})); err != nil {
		t.Fatal(err)
	}
	if got, _ := opt.ParamGroups()[0].Get("initial_lr"); got != 0.5 {
		t.Errorf("it is %v", got)
	}
	if got := opt.StateDict().Get("param_groups").([]any)[0].(gotorch.Dict).Get("initial_lr"); got != 0.5 {
		t.Errorf("it is saved as %v", got)
	}
}

func TestStepsAreCountedOnWhereFusedIsSwitched(t *testing.T) {
	p := parameter(1)
	opt := optim.Adam([]gotorch.Tensor{p}, optim.AdamOptions{Fused: true})
	for n, fused := range []bool{true, false, false, true} {
		opt.Groups[0].Fused = fused
		p.SetGrad(gotorch.FromSlice([]float32{1}))
		opt.Step()
		state := opt.StateDict().Get("state").(gotorch.Dict).Get(int64(0)).(gotorch.Dict)
		if got := gotorch.Item[float32](state.Get("step").(gotorch.Tensor)); got != float32(n+1) {
			t.Errorf("after %d steps: %v", n+1, got)
		}
	}
}

// Names are in state dicts, and what is loaded has others.
func TestParametersHaveNames(t *testing.T) {
	net := nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
	opt := optim.SGD(net.Parameters()[:2], optim.SGDOptions{LR: 0.1})
	opt.AddGroup(net.Parameters()[2:])
	names := func(o optim.Optimizer) (all []any) {
		for _, group := range o.StateDict().Get("param_groups").([]any) {
			if list, is := group.(gotorch.Dict).Get("param_names").([]any); is {
				all = append(all, list...)
			}
		}
		return all
	}
	if got := names(opt); got != nil {
		t.Error(got)
	}
	without := opt.StateDict()
	for _, bad := range []func(){
		func() { optim.NameParams(opt, nn.Linear(1, 1).NamedParameters()) },
		func() { optim.NameParams(opt, net.GetSubmodule("0").NamedParameters()) },
	} {
		if err := gotorch.Try0(bad); !errors.Is(err, gotorch.ValueError) || names(opt) != nil {
			t.Error(err, names(opt))
		}
	}
	if err := gotorch.Try0(func() { optim.NameParams(nil, net.NamedParameters()) }); !errors.Is(err, gotorch.TypeError) {
		t.Error(err)
	}
	optim.NameParams(opt, net.NamedParameters())
	want := []any{"0.weight", "0.bias", "1.weight", "1.bias"}
	if got := names(opt); !reflect.DeepEqual(got, want) {
		t.Error(got)
	}
	if got := opt.ParamGroups()[1].Names(); !slices.Equal(got, []string{"1.weight", "1.bias"}) {
		t.Error(got)
	}
	if err := gotorch.Try0(func() { opt.AddGroup([]gotorch.Tensor{gotorch.Ones([]int64{1}).RequiresGrad_()}) }); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
	if err := opt.LoadStateDict(without); err != nil || !reflect.DeepEqual(names(opt), want) {
		t.Error(err, names(opt))
	}
	other := optim.SGD(net.Parameters()[:2], optim.SGDOptions{LR: 0.1})
	other.AddGroup(net.Parameters()[2:])
	if err := other.LoadStateDict(opt.StateDict()); err != nil || !reflect.DeepEqual(names(other), want) {
		t.Error(err, names(other))
	}
	state := opt.StateDict()
	group := state.Get("param_groups").([]any)[1].(gotorch.Dict)
	for i := range group {
		if group[i].Key == "param_names" {
			for _, bad := range []any{[]any{"a"}, []any{"a", 2}, "a", nil} {
				group[i].Value = bad
				if err := other.LoadStateDict(state); !errors.Is(err, gotorch.ValueError) || !reflect.DeepEqual(names(other), want) {
					t.Error(bad, err, names(other))
				}
			}
		}
	}
}

// Who goes on from a state dict with names may add a group to it.
func TestAGroupIsAddedToAnOptimizerWithNames(t *testing.T) {
	net := nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
	opt := optim.SGD(net.Parameters()[:2])
	opt.AddGroup(nil)
	optim.NameParams(opt, net.NamedParameters())
	if got := opt.ParamGroups()[0].Names(); !slices.Equal(got, []string{"0.weight", "0.bias"}) {
		t.Error(got)
	}
	optim.NameParams(opt, nil)
	if got := opt.ParamGroups()[0].Names(); got != nil {
		t.Error(got)
	}
	opt.AddGroup(net.Parameters()[2:])
	optim.NameParams(opt, net.NamedParameters())
	for n, group := range opt.StateDict().Get("param_groups").([]any) {
		want := [][]any{{"0.weight", "0.bias"}, {}, {"1.weight", "1.bias"}}[n]
		if got := group.(gotorch.Dict).Get("param_names"); !reflect.DeepEqual(got, want) {
			t.Errorf("group %d: %v", n, got)
		}
	}
}

func TestAResultThatRetainsItsGradientIsOptimized(t *testing.T) {
	p := parameter(1, 2).MulScalar(2)
	p.RetainGrad()
	opt := optim.SGD([]gotorch.Tensor{p}, optim.SGDOptions{LR: 0.5})
	p.Square().Sum().Backward()
	opt.Step()
	if got := p.Detach(); !got.Equal(gotorch.FromSlice([]float32{0, 0})) {
		t.Error(got)
	}
}

// The values of a sparse gradient are unscaled as they are, also where a place is there twice.
func TestSparseGradientsAreUnscaled(t *testing.T) {
	for _, infinite := range []bool{false, true} {
		table := nn.Embedding(3, 1, nn.EmbeddingOptions{Sparse: true})
		gotorch.NoGrad(func() { table.Weight.Fill_(1) })
		opt := optim.SGD([]gotorch.Tensor{table.Weight}, optim.SGDOptions{LR: 0.5})
		scaler := optim.NewGradScaler(optim.GradScalerOptions{InitScale: 8})
		loss := table.Forward(gotorch.FromSlice([]int64{2, 2})).Sum()
		if infinite {
			loss = loss.MulScalar(math.Inf(1))
		}
		scaler.Scale(loss).Backward()
		want := []float32{1, 1, 0}
		if infinite {
			want[2] = 1
		}
		if scaler.Step(opt) == infinite || !table.Weight.Detach().Squeeze().Equal(gotorch.FromSlice(want)) {
			t.Errorf("infinite %t: %v", infinite, table.Weight)
		}
		scaler.Update()
		if got := scaler.GetScale(); infinite != (got == 4) {
			t.Errorf("infinite %t: the scale is %v", infinite, got)
		}
	}
}

// The defaults are those that the optimiser was made with, whatever has become of its groups; and zero is a value.
func TestAGroupHasTheOptionsOfTheOptimizerThatItIsNotGiven(t *testing.T) {
	opt := optim.SGD([]gotorch.Tensor{parameter(1)}, optim.SGDOptions{LR: 0.1, Momentum: 0.9, WeightDecay: 0.5, Nesterov: true})
	opt.Groups[0].LR, opt.Groups[0].Momentum = 7, 0
	for _, c := range []struct {
		given optim.SGDOptions
		want  optim.SGDGroup
	}{
		{optim.SGDOptions{}, optim.SGDGroup{LR: 0.1, Momentum: 0.9, WeightDecay: 0.5, Nesterov: true}},
		{optim.SGDOptions{LR: 0.01}, optim.SGDGroup{LR: 0.01, Momentum: 0.9, WeightDecay: 0.5, Nesterov: true}},
		{optim.SGDOptions{Momentum: 0, WeightDecay: 0.0, Maximize: true}, optim.SGDGroup{LR: 0.1, Nesterov: true, Maximize: true}},
	} {
		got := *opt.AddGroup([]gotorch.Tensor{parameter(2)}, c.given)
		c.want.Common = got.Common
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: got %+v", c.given, got)
		}
	}
	refused := func() {
		opt.AddGroup([]gotorch.Tensor{parameter(3)}, optim.SGDOptions{Momentum: 0, Nesterov: true})
	}
	if err := gotorch.Try0(refused); !errors.Is(err, gotorch.ValueError) || len(opt.Groups) != 4 {
		t.Error(err, len(opt.Groups))
	}
	if err := gotorch.Try0(func() { new(optim.SGDOptimizer).AddGroup([]gotorch.Tensor{parameter(1)}) }); !errors.Is(err, gotorch.RuntimeError) {
		t.Error(err)
	}
}
