package nn_test

import (
	"runtime"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
)

// noHandlesLeft fails if step leaves live handles behind.
func noHandlesLeft(t *testing.T, step func()) {
	t.Helper()
	alive := func() int64 {
		for range 3 {
			runtime.GC()
			gotorch.ReleaseCachedMemory()
		}
		return gotorch.MemoryStats().LiveHandles
	}
	step()
	before := alive()
	for range 10 {
		step()
	}
	if after := alive(); after > before {
		t.Errorf("%d handles are left", after-before)
	}
}

func TestCloneHasTensorsOfItsOwn(t *testing.T) {
	shared := nn.Linear(2, 2)
	model := nn.Sequential(shared, nn.BatchNorm1d(2), nn.ReLU(), shared)
	model.Forward(gotorch.Randn([]int64{4, 2}))
	shared.Weight.RequiresGrad_(false)
	model.Eval()
	lstm := nn.LSTM(2, 3)
	dict := nn.ModuleDict().Set("a", nn.Linear(1, 1))

	copied := nn.Clone(model)
	if copied.String() != model.String() || copied.Training() {
		t.Errorf("the copy is %v, training %v", copied, copied.Training())
	}
	theirs, own := model.StateDict(), copied.StateDict()
	for name, want := range theirs {
		got := own[name]
		if !got.Equal(want) || sameStorage(got, want) {
			t.Errorf("%s is %v, at the same place %v", name, got, sameStorage(got, want))
		}
	}
	if copied.Layers[0] != copied.Layers[3] || copied.Layers[0] == nn.Layer(shared) {
		t.Error("what was shared is not")
	}
	if copied.Layers[0].(*nn.LinearModule).Weight.RequiresGrad() || !copied.Layers[0].(*nn.LinearModule).Bias.RequiresGrad() {
		t.Error("what was frozen is not")
	}
	if c := nn.Clone(lstm); len(c.Parameters()) != 4 || c.Parameters()[0].T == lstm.Parameters()[0].T {
		t.Error("the parameters of an LSTM are not copied")
	}
	if c := nn.Clone(dict); c.Get("a") == dict.Get("a") {
		t.Error("the modules of a ModuleDict are not copied")
	}
	noHandlesLeft(t, func() {
		for _, p := range nn.Clone(model).StateDict() {
			p.Close()
		}
	})
}

func TestContainers(t *testing.T) {
	list := nn.ModuleList(nn.Linear(1, 1), nn.Linear(1, 1), nn.ReLU())
	want := "ModuleList(\n  (0-1): 2 x Linear(in_features=1, out_features=1, bias=True)\n  (2): ReLU()\n)"
	if got := list.String(); got != want {
		t.Errorf("got %s", got)
	}
	dict := nn.ModuleDict().Set("z", nn.Linear(1, 1)).Set("a", list)
	want = "ModuleDict(\n  (z): Linear(in_features=1, out_features=1, bias=True)\n  (a): ModuleList(\n" +
		"    (0-1): 2 x Linear(in_features=1, out_features=1, bias=True)\n    (2): ReLU()\n  )\n)"
	if got := dict.String(); got != want {
		t.Errorf("got %s", got)
	}
	if names := dict.StateDict().Names(); len(names) != 6 || names[0] != "a.0.bias" {
		t.Errorf("names are %v", names)
	}
	parameters := nn.ParameterDict().Set("w", gotorch.Ones([]int64{2, 3})).Set("b", gotorch.Zeros([]int64{3}))
	want = "ParameterDict(\n    (w): Parameter containing: [torch.FloatTensor of size 2x3]\n    (b): Parameter containing: [torch.FloatTensor of size 3]\n)"
	if got := parameters.String(); got != want {
		t.Errorf("got %s", got)
	}
	if n := len(nn.ParameterList(gotorch.Ones([]int64{2}), gotorch.Ones([]int64{3})).Parameters()); n != 2 {
		t.Errorf("%d parameters", n)
	}
	for what, fn := range map[string]func(){
		"a dot":           func() { nn.ModuleDict().Set("a.b", nn.ReLU()) },
		"nil":             func() { nn.ModuleList(nil) },
		"itself":          func() { list.Append(list) },
		"no such place":   func() { list.Insert(9, nn.ReLU()) },
		"an empty name":   func() { nn.ParameterDict().Set("", gotorch.Ones([]int64{1})) },
		"no such element": func() { nn.ParameterList().At(0) },
	} {
		if gotorch.Try0(fn) == nil {
			t.Errorf("%s is no error", what)
		}
	}
}

func TestLazyModules(t *testing.T) {
	full := nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4*2*2, 5))
	make := func() *nn.SequentialModule {
		return nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(5))
	}
	lazy := make()
	before := lazy.Parameters()
	if err := lazy.LoadStateDict(full.StateDict()); err != nil {
		t.Fatal(err)
	}
	if lazy.String() != full.String() {
		t.Errorf("got %v", lazy)
	}
	x := gotorch.Randn([]int64{2, 3, 4, 4})
	if !lazy.Forward(x).Equal(full.Forward(x)) {
		t.Error("the results differ")
	}
	for i, p := range lazy.Parameters() {
		if p.T != before[i].T {
			t.Errorf("parameter %d is another tensor", i)
		}
	}
	other := make()
	other.Forward(x)
	if other.NumParameters() != full.NumParameters() {
		t.Errorf("%d parameters", other.NumParameters())
	}
	// A state dict that does not fit leaves it lazy.
	wrong := make()
	dict := full.StateDict()
	dict["3.bias"] = gotorch.Ones([]int64{9})
	if err := wrong.LoadStateDict(dict); err == nil || wrong.String() != make().String() {
		t.Errorf("error %v, then %v", err, wrong)
	}
}

type weight gotorch.Tensor

func TestTensorsOfOtherTypesAreRefused(t *testing.T) {
	type defined struct {
		nn.Module
		W weight
	}
	type inSlice struct {
		nn.Module
		W []weight
	}
	type nested struct {
		nn.Module
		Layers map[string][][]nn.Layer
	}
	for _, fn := range []func(){
		func() { nn.Init(&defined{}) },
		func() { nn.Init(&inSlice{}) },
	} {
		if gotorch.Try0(fn) == nil {
			t.Error("a type that is defined as a Tensor is passed over")
		}
	}
	m := nn.Init(&nested{Layers: map[string][][]nn.Layer{"a": {{nn.Linear(1, 1)}, {nn.ReLU(), nn.Linear(1, 1)}}}})
	if names := m.StateDict().Names(); len(names) != 4 || names[0] != "layers.a.0.0.bias" {
		t.Errorf("names are %v", names)
	}
}

// sameStorage reports whether what is written into one is seen in the other.
func sameStorage(a, b gotorch.Tensor) bool {
	if a.Numel() == 0 {
		return false
	}
	before := b.Clone()
	gotorch.NoGrad(func() { a.Detach().Fill_(77) })
	changed := !b.Equal(before)
	gotorch.NoGrad(func() { a.Detach().Copy_(before) })
	return changed
}

// Structs that embed a module, by pointer: that is theirs, and its copy the copy's.
type (
	ownLinear struct{ *nn.LinearModule }
	ownLSTM   struct{ *nn.LSTMModule }
	ownDict   struct{ *nn.ModuleDictModule }
	ownWeight struct{ *unexported }

	unexported struct {
		nn.Module
		W gotorch.Tensor
	}
)

func TestCloneOfEmbeddedModules(t *testing.T) {
	for _, m := range []nn.Modular{
		nn.Init(&ownLinear{nn.Linear(2, 2)}),
		nn.Init(&ownLSTM{nn.LSTM(2, 2)}),
		nn.Init(&ownDict{nn.ModuleDict().Set("a", nn.Linear(1, 1))}),
		nn.Init(&ownWeight{&unexported{W: gotorch.Ones([]int64{2})}}),
	} {
		before := m.Parameters()
		c := nn.Clone(m)
		after, copied := m.Parameters(), c.Parameters()
		if len(copied) == 0 || len(copied) != len(before) || c.String() != m.String() {
			t.Fatalf("%T: %d parameters, of %d; %v", m, len(copied), len(before), c)
		}
		for i := range before {
			if after[i].T != before[i].T {
				t.Errorf("%T: the original has other parameters than before", m)
			}
			if !copied[i].Equal(before[i]) || sameStorage(copied[i], before[i]) || !copied[i].RequiresGrad() {
				t.Errorf("%T: parameter %d is no copy", m, i)
			}
		}
		c.Train(false)
		if !m.Training() {
			t.Errorf("%T: the copy's mode is the original's", m)
		}
	}
}

func TestALazyLayerRefusesANumber(t *testing.T) {
	if err := gotorch.Try0(func() { nn.LazyLinear(2).Forward(gotorch.FromScalar(1.0)) }); err == nil {
		t.Error("no error")
	}
}

func TestASequentialHasAListOfItsOwn(t *testing.T) {
	layers := []nn.Layer{nn.Linear(2, 2), nn.ReLU()}
	m := nn.Sequential(layers...)
	layers[0] = nn.Identity()
	if _, ok := m.Layers[0].(*nn.LinearModule); !ok {
		t.Errorf("got %v", m)
	}
}

func TestNegativeSizesAreNotLazy(t *testing.T) {
	for name, fn := range map[string]func(){
		"BatchNorm1d":     func() { nn.BatchNorm1d(-1) },
		"Conv2d":          func() { nn.Conv2d(-1, 1, 2) },
		"ConvTranspose2d": func() { nn.ConvTranspose2d(-1, 1, 2) },
	} {
		if gotorch.Try0(fn) == nil {
			t.Errorf("%s of -1 is no error", name)
		}
	}
}

func TestALazyLayerOutlivesTheScopeOfItsFirstCall(t *testing.T) {
	lazy := nn.LazyLinear(3)
	x := gotorch.Ones([]int64{2, 4})
	gotorch.Scope0(func(*gotorch.ScopeHandle) { lazy.Forward(x) })
	if got := lazy.Forward(x).Shape(); got[1] != 3 || !lazy.Weight.Defined() {
		t.Errorf("got %v", got)
	}
}

func TestHooksOfACopyAreItsOwn(t *testing.T) {
	calls := 0
	count := func(nn.Modular, []gotorch.Tensor) []gotorch.Tensor { calls++; return nil }
	m := nn.ReLU()
	m.RegisterForwardPreHook(count)
	copied := nn.Clone(m)
	copied.RegisterForwardPreHook(count)
	x := gotorch.Ones([]int64{1})
	if m.Forward(x); calls != 1 {
		t.Errorf("the original has %d hooks", calls)
	}
	if calls = 0; copied.Forward(x).T == nil || calls != 2 {
		t.Errorf("the copy has %d hooks", calls)
	}
}

// A tensor of two names is loaded twice, and put back to what it was before the first.
func TestATiedTensorIsPutBack(t *testing.T) {
	a, b := nn.Linear(1, 1, nn.LinearOptions{NoBias: true}), nn.Linear(1, 1, nn.LinearOptions{NoBias: true})
	b.Weight = a.Weight
	m := nn.Sequential(a, b)
	gotorch.NoGrad(func() { a.Weight.Fill_(1) })
	m.RegisterLoadStateDictPostHook(func(_ nn.Modular, keys *nn.IncompatibleKeys) { keys.Missing = append(keys.Missing, "none") })
	two, three := gotorch.Full([]int64{1, 1}, 2.0), gotorch.Full([]int64{1, 1}, 3.0)
	if err := m.LoadStateDict(nn.StateDict{"0.weight": two, "1.weight": three}); err == nil || gotorch.Item[float64](a.Weight) != 1 {
		t.Errorf("%v, and the weight is %v", err, a.Weight)
	}
}
