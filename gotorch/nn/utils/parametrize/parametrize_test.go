package parametrize_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/nn/utils/parametrizations"
	"gotorch.dev/gotorch/nn/utils/parametrize"
	"gotorch.dev/gotorch/nn/utils/prune"
	"gotorch.dev/gotorch/optim"
)

// Symmetric makes a square matrix symmetric.
type Symmetric struct {
	nn.Module
	fail func()
}

func (m *Symmetric) Forward(x gotorch.Tensor) gotorch.Tensor {
	if m.fail != nil {
		m.fail()
	}
	return x.Triu().Add(x.Triu(gotorch.TriuOptions{Diagonal: 1}).Transpose2D())
}

func Example() {
	layer := parametrize.RegisterParametrization(nn.Linear(3, 3), "weight", nn.Init(&Symmetric{}))
	fmt.Println(layer)
	fmt.Println(layer.StateDict().Names())

	opt := optim.SGD(layer.Parameters())
	layer.Forward(gotorch.Ones([]int64{2, 3})).Sum().Backward()
	opt.Step()

	weight := parametrize.Refresh(layer, "weight")
	fmt.Println(weight.Equal(weight.Transpose2D()))
	parametrize.RemoveParametrizations(layer, "weight")
	fmt.Println(layer, layer.Weight.Equal(weight))
	// Output:
	// ParametrizedLinear(
	//   in_features=3, out_features=3, bias=True
	//   (parametrizations): ModuleDict(
	//     (weight): ParametrizationList(
	//       (0): Symmetric()
	//     )
	//   )
	// )
	// [bias parametrizations.weight.original]
	// true
	// Linear(in_features=3, out_features=3, bias=True) true
}

// live is how many handles are alive when the collector has found all that are not.
func live() int64 {
	least := int64(math.MaxInt64)
	for range 20 { // finalisers run when they come to it
		runtime.GC()
		gotorch.ReleaseCachedMemory()
		least = min(least, gotorch.MemoryStats().LiveHandles)
		time.Sleep(5 * time.Millisecond)
	}
	return least
}

func TestSmokeWhatIsComputedNeitherLeaksNorIsFreedTooEarly(t *testing.T) {
	layer := parametrizations.WeightNorm(nn.Linear(8, 8))
	second := parametrizations.Orthogonal(nn.Linear(8, 8))
	x := gotorch.Ones([]int64{2, 8})
	use := func() {
		for range 20 {
			gotorch.Scope0(func(*gotorch.ScopeHandle) { second.Forward(layer.Forward(x)).Sum().Backward() })
			gotorch.NoGrad(func() { layer.Forward(x) })
			gotorch.InferenceMode(func() { layer.Forward(x) })
			layer.ZeroGrad()
			second.ZeroGrad()
		}
	}
	use()
	before := live()
	for range 10 {
		use()
	}
	// A small tensor that is alive keeps its neighbours in a slab, so that some come and go; of 200 rounds each
	// would have left one.
	if after := live(); after > before+100 {
		t.Errorf("%d handles, and before %d", after, before)
	}
	// What an ended scope and a mode have left can be read, and is computed anew for training.
	if n := layer.Weight.Numel(); n != 64 {
		t.Errorf("%d elements", n)
	}
	layer.Forward(x).Sum().Backward()
	for name, p := range layer.NamedParameters() {
		if !p.Grad().Defined() {
			t.Errorf("%s has no gradient", name)
		}
	}
}

func TestAPanicInAParametrizationLeavesTheModuleUsable(t *testing.T) {
	p := nn.Init(&Symmetric{})
	layer := parametrize.RegisterParametrization(nn.Linear(3, 3), "weight", p)
	x := gotorch.Ones([]int64{2, 3})
	want := layer.Forward(x)
	p.fail = func() { panic("no") }
	if got := func() (r any) { defer func() { r = recover() }(); layer.Forward(x); return nil }(); got != "no" {
		t.Errorf("got %v", got)
	}
	p.fail = runtime.Goexit
	done := make(chan bool)
	go func() {
		defer close(done)
		layer.Forward(x)
	}()
	<-done
	p.fail = nil
	// The turn is given back, on any goroutine.
	results := make(chan gotorch.Tensor)
	go func() { results <- layer.Forward(x) }()
	if got := <-results; !got.Equal(want) {
		t.Error("another result")
	}
	if !gotorch.GradEnabled() {
		t.Error("gradients are off")
	}
	p.fail = func() { panic("no") }
	func() {
		defer func() { recover() }()
		parametrize.RemoveParametrizations(layer, "weight")
	}()
	p.fail = nil
	if !parametrize.IsParametrized(layer, "weight") || !layer.Forward(x).Equal(want) {
		t.Error("a removal that failed has changed the module")
	}
	other := nn.Linear(3, 3)
	before := other.Weight
	func() {
		defer func() { recover() }()
		parametrize.RegisterParametrization(other, "weight", nn.Init(&Symmetric{fail: func() { panic("no") }}))
	}()
	if parametrize.IsParametrized(other) || other.Weight != before || len(other.StateDict()) != 2 {
		t.Error("a registration that failed has changed the module")
	}
}

func TestGoroutinesTakeTurns(t *testing.T) {
	layer := parametrizations.SpectralNorm(parametrizations.WeightNorm(nn.Linear(4, 4)))
	layer.Eval()
	x := gotorch.Ones([]int64{2, 4})
	want := layer.Forward(x)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				run := func() {
					if y := layer.Forward(x); !y.Equal(want) {
						t.Error("another result")
					}
				}
				switch i % 4 {
				case 0:
					run()
				case 1:
					gotorch.NoGrad(run)
				case 2:
					parametrize.Cached(run)
				case 3:
					gotorch.Scope0(func(*gotorch.ScopeHandle) { run() })
				}
			}
		})
	}
	all.Wait()
}

// Wrapped is a module of its own that is a Linear.
type Wrapped struct {
	*nn.LinearModule
	Again bool
}

func (m *Wrapped) Forward(x gotorch.Tensor) gotorch.Tensor {
	y := m.LinearModule.Forward(x)
	if m.Again {
		m.Again = false
		return nn.Call(m, y)
	}
	return y
}

func TestAStructThatEmbedsALayer(t *testing.T) {
	m := nn.Init(&Wrapped{LinearModule: nn.Linear(3, 3)})
	parametrizations.WeightNorm(m)
	x := gotorch.Ones([]int64{2, 3})
	for _, call := range []func() gotorch.Tensor{
		func() gotorch.Tensor { return m.Forward(x) },
		func() gotorch.Tensor { return nn.Call(m, x) },
		func() gotorch.Tensor { m.Again = true; return nn.Call(m, x) }, // within itself
	} {
		gotorch.NoGrad(func() { parametrize.Of(m, "weight").Originals()[0].MulScalar_(2) })
		y := call()
		fresh := parametrize.Refresh(m, "weight")
		if !m.Weight.Equal(fresh) {
			t.Error("the weight is an old one")
		}
		m.ZeroGrad()
		y.Sum().Backward() // a second time through an old weight would fail
	}
}

func TestACopyIsAModuleOfItsOwn(t *testing.T) {
	layer := parametrizations.WeightNorm(nn.Linear(3, 3))
	opt := optim.SGD(layer.Parameters(), optim.SGDOptions{LR: 0.5})
	copied := nn.Clone(layer)
	x := gotorch.Ones([]int64{2, 3})
	want := copied.Forward(x)
	layer.Forward(x).Sum().Backward()
	opt.Step()
	if !copied.Forward(x).Equal(want) {
		t.Error("the copy learns with the original")
	}
	if layer.Forward(x).Equal(want) {
		t.Error("the originals do not learn")
	}
	layer.To(gotorch.Float64)
	if d := layer.Forward(x.To(gotorch.Float64)).DType(); d != gotorch.Float64 {
		t.Errorf("the result is %v", d)
	}
}

func TestAnOptimiserKnowsTheTensorBeforeAndAfter(t *testing.T) {
	layer := nn.Linear(3, 3)
	weight := layer.Weight
	parametrize.RegisterParametrization(layer, "weight", nn.Init(&Symmetric{}))
	if !slices.Contains(layer.Parameters(), weight) {
		t.Error("the original is another tensor")
	}
	parametrize.RemoveParametrizations(layer, "weight")
	if layer.Weight != weight {
		t.Error("the weight is another tensor")
	}
}

func TestAnOlderStateDictOfAWeightNorm(t *testing.T) {
	model := nn.Sequential(parametrizations.WeightNorm(nn.Linear(3, 2)))
	dict := model.StateDict()
	older := nn.StateDict{"0.bias": dict["0.bias"], "0.weight_g": gotorch.Full([]int64{2, 1}, 7.0), "0.weight_v": dict["0.parametrizations.weight.original1"].Clone()}
	if err := model.LoadStateDict(older); err != nil {
		t.Fatal(err)
	}
	if got := gotorch.Item[float64](model.StateDict()["0.parametrizations.weight.original0"].Sum()); got != 14 {
		t.Errorf("the sum is %v", got)
	}
	if len(older) != 3 {
		t.Error("the caller's state dict was changed")
	}
}

func TestMisuse(t *testing.T) {
	layer := nn.Linear(3, 3)
	for name, c := range map[string]struct {
		kind error
		fn   func()
	}{
		"nil":         {gotorch.TypeError, func() { parametrize.RegisterParametrization(layer, "weight", nil) }},
		"nil pointer": {gotorch.TypeError, func() { parametrize.RegisterParametrization(layer, "weight", (*Symmetric)(nil)) }},
		"no Forward":  {gotorch.TypeError, func() { parametrize.RegisterParametrization(layer, "weight", nn.ModuleDict()) }},
		"no module":   {gotorch.TypeError, func() { parametrize.RegisterParametrization((*nn.LinearModule)(nil), "weight", nn.Init(&Symmetric{})) }},
		"no tensor": {gotorch.ValueError, func() {
			parametrize.RegisterParametrization(nn.Linear(3, 3, nn.LinearOptions{NoBias: true}), "bias", nn.Init(&Symmetric{}))
		}},
		"lazy":      {gotorch.RuntimeError, func() { parametrize.RegisterParametrization(nn.LazyLinear(3), "weight", nn.Init(&Symmetric{})) }},
		"no list":   {gotorch.ValueError, func() { parametrize.Refresh(layer, "weight") }},
		"two names": {gotorch.TypeError, func() { parametrize.IsParametrized(layer, "a", "b") }},
		"no inverse": {gotorch.RuntimeError, func() {
			l := parametrize.RegisterParametrization(nn.Linear(3, 3), "weight", nn.Init(&Symmetric{}))
			parametrize.Of(l, "weight").RightInverse(gotorch.Ones([]int64{3, 3}))
		}},
	} {
		if err := gotorch.Try0(c.fn); !errors.Is(err, c.kind) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if parametrize.IsParametrized(layer) || parametrize.Of(layer, "weight") != nil {
		t.Error("an error has changed the module")
	}
}

// watchful embeds a layer whose function looks at the weight of the struct.
type watchful struct {
	*nn.FuncModule
	Weight gotorch.Tensor
}

type double struct{ nn.Module }

func (m *double) Forward(x gotorch.Tensor) gotorch.Tensor { return x.MulScalar(2) }

// A struct that embeds a layer may be called itself, rather than by nn.Call.
func TestAStructThatEmbedsALayerTakesTurns(t *testing.T) {
	m := &watchful{Weight: gotorch.Ones([]int64{2})}
	m.FuncModule = nn.Func("look", func(x gotorch.Tensor) gotorch.Tensor {
		before := m.Weight
		time.Sleep(time.Millisecond)
		if m.Weight.T != before.T {
			t.Error("another goroutine has computed the weight meanwhile")
		}
		return x.Mul(before)
	})
	nn.Init(m)
	parametrize.RegisterParametrization(m, "weight", nn.Init(&double{}))
	x := gotorch.Ones([]int64{2})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 10 {
				if got := m.Forward(x); gotorch.Item[float64](got.Sum()) != 4 {
					t.Errorf("got %v", got)
				}
				_ = m.String()
				m.StateDict()
			}
		})
	}
	group.Wait()
}

func TestCallWithComputesFields(t *testing.T) {
	m := &watchful{Weight: gotorch.Ones([]int64{2}), FuncModule: nn.Func("", func(x gotorch.Tensor) gotorch.Tensor { return x })}
	nn.Init(m)
	parametrize.RegisterParametrization(m, "weight", nn.Init(&double{}))
	gotorch.NoGrad(func() { parametrize.Of(m, "weight").Originals()[0].Fill_(5) })
	nn.CallWith(m, func(in []gotorch.Tensor) []gotorch.Tensor { return in })
	if got := gotorch.Item[float64](m.Weight.Sum()); got != 20 {
		t.Errorf("the weight is %v", m.Weight)
	}
}

func TestAPrunedStructThatEmbedsALayer(t *testing.T) {
	m := &watchful{Weight: gotorch.Ones([]int64{2})}
	m.FuncModule = nn.Func("", func(x gotorch.Tensor) gotorch.Tensor { return x.Mul(m.Weight) })
	nn.Init(m)
	prune.CustomFromMask(m, "weight", gotorch.FromSlice([]float32{1, 0}))
	orig := m.GetParameter("weight_orig")
	gotorch.NoGrad(func() { orig.Fill_(7) })
	if got := m.Forward(gotorch.Ones([]int64{2})); gotorch.Item[float64](got.Sum()) != 7 {
		t.Errorf("got %v", got)
	}
}

func TestAParametrizedWeightOfAnLSTM(t *testing.T) {
	m := nn.LSTM(2, 2)
	parametrize.RegisterParametrization(m, "weight_hh_l0", nn.Init(&double{}))
	want := "[bias_hh_l0 bias_ih_l0 parametrizations.weight_hh_l0.original weight_ih_l0]"
	if got := fmt.Sprint(m.StateDict().Names()); got != want {
		t.Errorf("got %s", got)
	}
}
