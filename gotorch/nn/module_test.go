package nn_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
)

func names(m nn.Modular) (list []string) {
	for name := range m.NamedParameters() {
		list = append(list, name)
	}
	return list
}

func buffers(m nn.Modular) (list []string) {
	for name := range m.NamedBuffers() {
		list = append(list, name)
	}
	return list
}

func expect[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// panics returns the *gotorch.Error that fn panics with.
func panics(t *testing.T, fn func()) *gotorch.Error {
	t.Helper()
	err := gotorch.Try0(fn)
	var typed *gotorch.Error
	if !errors.As(err, &typed) {
		t.Fatalf("no panic with a *gotorch.Error, but %v", err)
	}
	return typed
}

func expectPanic(t *testing.T, kind gotorch.ErrorKind, part string, fn func()) {
	t.Helper()
	if err := panics(t, fn); err.Kind != kind || !strings.Contains(err.Msg, part) {
		t.Errorf("got %q, want a %s with %q", err, kind, part)
	}
}

type branch struct {
	nn.Module
	HTTPGate *nn.LinearModule
	Conv2dA  *nn.Conv2dModule
	FC       *nn.LinearModule `nn:"head"`
	Missing  *nn.LinearModule
}

type tree struct {
	nn.Module
	Branches []*branch
	ByName   map[string]nn.Layer
	Inner    nn.LinearModule // by value
	Row      []nn.Layer      `nn:",inline"`
	Scale    gotorch.Tensor
	Shifts   [2]gotorch.Tensor
	Named    map[string]gotorch.Tensor
	Count    gotorch.Tensor `nn:"seen,buffer"`
	Mask     gotorch.Tensor `nn:",transient"`
	Cache    gotorch.Tensor `nn:"-"`
	None     gotorch.Tensor
	Size     int
	hidden   gotorch.Tensor `nn:"-"`
}

func newTree() *tree {
	linear := func() *nn.LinearModule { return nn.Linear(1, 1, nn.LinearOptions{NoBias: true}) }
	t := &tree{
		Branches: []*branch{{HTTPGate: linear(), Conv2dA: nn.Conv2d(1, 1, 1, nn.Conv2dOptions{NoBias: true}), FC: linear()}},
		ByName:   map[string]nn.Layer{"b": linear(), "a": nn.ReLU()},
		Row:      []nn.Layer{nn.ReLU(), linear()},
		Scale:    gotorch.Ones([]int64{1}),
		Shifts:   [2]gotorch.Tensor{gotorch.Ones([]int64{1}), gotorch.Ones([]int64{1})},
		Named:    map[string]gotorch.Tensor{"x": gotorch.Ones([]int64{1})},
		Count:    gotorch.Zeros(nil, gotorch.TensorOptions{DType: gotorch.Int64}),
		Mask:     gotorch.Ones([]int64{2}),
		Cache:    gotorch.Ones([]int64{2}),
		hidden:   gotorch.Ones([]int64{2}),
	}
	t.Inner.Weight = gotorch.Ones([]int64{1, 1})
	return nn.Init(t)
}

func TestFieldsBecomeParametersBuffersAndChildren(t *testing.T) {
	tree := newTree()
	expect(t, "parameters", names(tree), []string{
		"scale", "shifts.0", "shifts.1", "named.x",
		"branches.0.http_gate.weight", "branches.0.conv2d_a.weight", "branches.0.head.weight",
		"by_name.b.weight", "inner.weight", "1.weight",
	})
	expect(t, "buffers", buffers(tree), []string{"seen", "mask"})
	var modules []string
	for name := range tree.NamedModules() {
		modules = append(modules, name)
	}
	expect(t, "modules", modules, []string{"", "branches.0", "branches.0.http_gate", "branches.0.conv2d_a",
		"branches.0.head", "by_name.a", "by_name.b", "inner", "0", "1"})
	if dict := tree.StateDict(); len(dict) != 11 || dict["mask"].Defined() || !dict["seen"].Defined() {
		t.Errorf("the state dict has %v", dict.Names())
	}
}

func TestParametersRequireGradFromInitOn(t *testing.T) {
	type module struct {
		nn.Module
		Made    gotorch.Tensor
		Derived gotorch.Tensor
		Numbers gotorch.Tensor
		Stats   gotorch.Tensor `nn:",buffer"`
	}
	m := nn.Init(&module{
		Made:    gotorch.Ones([]int64{2}),
		Derived: gotorch.Ones([]int64{2}, gotorch.TensorOptions{RequiresGrad: true}).MulScalar(2),
		Numbers: gotorch.Ones([]int64{2}, gotorch.TensorOptions{DType: gotorch.Int64}),
		Stats:   gotorch.Ones([]int64{2}),
	})
	for name, want := range map[string]struct {
		tensor gotorch.Tensor
		grad   bool
	}{"made": {m.Made, true}, "derived": {m.Derived, true}, "numbers": {m.Numbers, false}, "stats": {m.Stats, false}} {
		if want.tensor.RequiresGrad() != want.grad || !want.tensor.IsLeaf() {
			t.Errorf("%s requires grad: %v, leaf: %v", name, want.tensor.RequiresGrad(), want.tensor.IsLeaf())
		}
	}
	m.Made.RequiresGrad_(false)
	nn.Sequential() // finding modules again must not thaw what was frozen
	parent := nn.Init(&struct {
		nn.Module
		Child *module
	}{Child: m})
	if m.Made.RequiresGrad() {
		t.Errorf("a frozen parameter of %v was thawed", parent)
	}
}

// specialised inherits as a subclass does in PyTorch.
type specialised struct {
	*nn.LinearModule
	Extra gotorch.Tensor
}

type base struct {
	nn.Module
	FC *nn.LinearModule
}

type derived struct {
	base
	Extra gotorch.Tensor
}

func TestEmbeddedModulesAreTheSameModule(t *testing.T) {
	s := nn.Init(&specialised{nn.Linear(1, 1), gotorch.Ones([]int64{1})})
	expect(t, "specialised", names(s), []string{"weight", "bias", "extra"})
	if text := s.String(); text != "specialised(in_features=1, out_features=1, bias=True)" {
		t.Errorf("got %q", text)
	}
	d := nn.Init(&derived{base{FC: nn.Linear(1, 1)}, gotorch.Ones([]int64{1})})
	expect(t, "derived", names(d), []string{"extra", "fc.weight", "fc.bias"})
}

func TestSharedParametersAndModulesCountOnce(t *testing.T) {
	type tied struct {
		nn.Module
		In, Out, Again *nn.LinearModule
	}
	m := &tied{In: nn.Linear(2, 2), Out: nn.Linear(2, 2)}
	m.Out.Weight = m.In.Weight
	m.Again = m.In
	nn.Init(m)
	expect(t, "parameters", names(m), []string{"in.weight", "in.bias", "out.bias"})
	expect(t, "state", m.StateDict().Names(), []string{"again.bias", "again.weight", "in.bias", "in.weight", "out.bias", "out.weight"})
	calls := 0
	m.Apply(func(nn.Modular) { calls++ })
	if calls != 3 {
		t.Errorf("Apply called fn %d times, not 3", calls)
	}
	if n := m.NumParameters(); n != 8 {
		t.Errorf("got %d parameters, want 8", n)
	}
	// Conversion must not untie.
	m.To(gotorch.Float64)
	if m.Out.Weight.DType() != gotorch.Float64 || !m.Out.Weight.SharesStorage(m.In.Weight) {
		t.Error("the weights are not tied any more")
	}
}

func TestInitRefusesWhatItCannotFind(t *testing.T) {
	type fc = *nn.LinearModule
	expectPanic(t, gotorch.TypeError, `field fc of`, func() {
		nn.Init(&struct {
			nn.Module
			fc *nn.LinearModule
		}{})
	})
	expectPanic(t, gotorch.TypeError, "must be exported", func() {
		nn.Init(&struct {
			nn.Module
			weights []gotorch.Tensor
		}{})
	})
	expectPanic(t, gotorch.TypeError, "it may have buffer, transient and inline", func() {
		nn.Init(&struct {
			nn.Module
			FC fc `nn:"fc,bufer"`
		}{})
	})
	expectPanic(t, gotorch.TypeError, "must not contain a dot", func() {
		nn.Init(&struct {
			nn.Module
			FC fc `nn:"a.b"`
		}{})
	})
	expectPanic(t, gotorch.TypeError, `have the name "fc"`, func() {
		nn.Init(&struct {
			nn.Module
			FC  fc
			Fc1 fc `nn:"fc"`
		}{FC: nn.Linear(1, 1), Fc1: nn.Linear(1, 1)})
	})
	expectPanic(t, gotorch.TypeError, `have the name "0"`, func() {
		nn.Init(&struct {
			nn.Module
			A []nn.Layer `nn:",inline"`
			B []nn.Layer `nn:",inline"`
		}{A: []nn.Layer{nn.ReLU()}, B: []nn.Layer{nn.ReLU()}})
	})
	expectPanic(t, gotorch.TypeError, `have the name "weight"`, func() {
		nn.Init(&struct {
			nn.Module
			Weight gotorch.Tensor
			FC     fc `nn:",inline"`
		}{Weight: gotorch.Ones([]int64{1}), FC: nn.Linear(1, 1)})
	})
	for _, key := range []string{"", "a.weight"} { // "a" could be a module
		expectPanic(t, gotorch.TypeError, "must not be empty nor contain a dot", func() {
			nn.Init(&struct {
				nn.Module
				W map[string]gotorch.Tensor
			}{W: map[string]gotorch.Tensor{key: gotorch.Ones([]int64{1})}})
		})
	}
	expectPanic(t, gotorch.TypeError, "holds no tensor or module", func() {
		nn.Init(&struct {
			nn.Module
			Size int `nn:"size"`
		}{})
	})
	expectPanic(t, gotorch.TypeError, "embeds the interface", func() {
		nn.Init(&struct{ nn.Layer }{nn.ReLU()})
	})
	expectPanic(t, gotorch.TypeError, "not a pointer to it", func() { nn.Init(&struct{ *nn.Module }{}) })
	expectPanic(t, gotorch.TypeError, "must be a pointer to a struct", func() { nn.Init((*tree)(nil)) })
}

// ring is a module that can be within itself.
type ring struct {
	nn.Module
	W    gotorch.Tensor
	Next *ring
}

func TestAModuleThatIsWithinItselfIsAnError(t *testing.T) {
	leadsBack := func(fn func()) {
		t.Helper()
		expectPanic(t, gotorch.TypeError, "leads back to", fn)
	}
	a, b := &ring{W: gotorch.Ones([]int64{1})}, &ring{}
	a.Next, b.Next = b, a
	leadsBack(func() { nn.Init(a) })

	c, d := nn.Init(&ring{W: gotorch.Ones([]int64{1})}), nn.Init(&ring{})
	c.Next, d.Next = d, c
	leadsBack(func() { c.Parameters() })
	leadsBack(func() { c.StateDict() })
	leadsBack(func() { c.Eval() })
	leadsBack(func() { _ = c.String() })

	s := nn.Sequential(nn.ReLU())
	leadsBack(func() { s.Append(nn.Sequential(s)) })
	if len(s.Layers) != 1 {
		t.Error("the layer was appended all the same")
	}
}

func TestNilModulesAreNone(t *testing.T) {
	none := (*nn.LinearModule)(nil)
	m := nn.Init(&struct {
		nn.Module
		One  nn.Layer
		List []nn.Layer
	}{One: none, List: []nn.Layer{nil, none, nn.Linear(1, 1)}})
	expect(t, "names", m.StateDict().Names(), []string{"list.2.bias", "list.2.weight"})
	for _, layer := range []nn.Layer{nil, none} {
		expectPanic(t, gotorch.TypeError, "layer 1 is nil", func() { nn.Sequential(nn.ReLU(), layer) })
		expectPanic(t, gotorch.TypeError, "layer 1 is nil", func() { nn.Sequential(nn.ReLU()).Append(layer) })
	}
}

// scaled is a type that embeds a Tensor.
type scaled struct {
	gotorch.Tensor
	Scale float64
}

func TestInitRefusesTensorsThatWouldNotLearn(t *testing.T) {
	one := gotorch.Ones([]int64{1})
	for name, fn := range map[string]func(){
		"a type that embeds Tensor": func() {
			nn.Init(&struct {
				nn.Module
				W scaled
			}{W: scaled{Tensor: one}})
		},
		"a pointer to one": func() {
			nn.Init(&struct {
				nn.Module
				W *scaled
			}{})
		},
		"a pointer": func() {
			nn.Init(&struct {
				nn.Module
				W *gotorch.Tensor
			}{W: &one})
		},
		"a plain struct": func() {
			nn.Init(&struct {
				nn.Module
				Weights []struct{ A, B gotorch.Tensor }
			}{})
		},
		"a list in an interface": func() {
			nn.Init(&struct {
				nn.Module
				W any
			}{W: []gotorch.Tensor{one}})
		},
		"a pointer to a type that embeds Tensor, in an interface": func() {
			nn.Init(&struct {
				nn.Module
				W any
			}{W: &scaled{Tensor: one}})
		},
		"a module's copy in an interface": func() {
			nn.Init(&struct {
				nn.Module
				FC any
			}{FC: struct{ nn.Module }{}})
		},
		"a map by numbers": func() {
			nn.Init(&struct {
				nn.Module
				W map[int]gotorch.Tensor
			}{})
		},
		"modules in a map by numbers": func() {
			nn.Init(&struct {
				nn.Module
				Layers map[int]nn.Layer
			}{})
		},
		"an embedded type that embeds Tensor": func() {
			nn.Init(&struct {
				nn.Module
				scaled
			}{scaled: scaled{Tensor: one}})
		},
		"an interface": func() {
			nn.Init(&struct {
				nn.Module
				W any
			}{W: one})
		},
	} {
		t.Run(name, func(t *testing.T) { expectPanic(t, gotorch.TypeError, "would not learn", fn) })
	}
	// What is tagged is nobody's mistake, and what holds no tensor is left alone.
	nn.Init(&struct {
		nn.Module
		W     scaled `nn:"-"`
		Count map[int]string
		Any   any
	}{W: scaled{Tensor: one}, Any: 3})
}

func TestAWeightThatIsAssignedLateMustBeAParameter(t *testing.T) {
	type net struct {
		nn.Module
		W, V gotorch.Tensor
		Seen gotorch.Tensor `nn:",buffer"`
		Map  map[string]gotorch.Tensor
		FC   *nn.LinearModule
	}
	ones := func() gotorch.Tensor { return gotorch.Ones([]int64{2, 2}) }
	made := func() *net {
		return nn.Init(&net{W: ones(), Map: map[string]gotorch.Tensor{"a": ones()}, FC: nn.Linear(2, 2)})
	}
	for name, assign := range map[string]func(m *net){
		"w":         func(m *net) { m.W = ones() },
		"v":         func(m *net) { m.V = ones() },
		"map.b":     func(m *net) { m.Map["b"] = ones() },
		"fc.weight": func(m *net) { m.FC.Weight = ones() },
	} {
		m := made()
		assign(m)
		for what, use := range map[string]func(){
			"Parameters": func() { m.Parameters() }, "NamedParameters": func() { m.NamedParameters() }, "ZeroGrad": func() { m.ZeroGrad() },
		} {
			t.Run(what+" "+name, func(t *testing.T) {
				expectPanic(t, gotorch.TypeError, fmt.Sprintf("%q of *nn_test.net was assigned after nn.Init and does not require gradients", name), use)
			})
		}
		if name == "fc.weight" {
			nn.Init(m.FC)
		} else {
			nn.Init(m)
		}
		for name, p := range m.NamedParameters() {
			if !p.RequiresGrad() {
				t.Errorf("after another Init %s requires no gradients", name)
			}
		}
	}
	m := made()
	m.W = ones().RequiresGrad_().MulScalar(2)
	expectPanic(t, gotorch.TypeError, "is the result of a computation", func() { m.Parameters() })

	// What can learn, or is frozen on purpose, is no mistake.
	m = made()
	m.W, m.V = nn.Parameter(ones()), ones().RequiresGrad_()
	m.Seen = ones()
	m.Parameters()
	m.FC.Weight.RequiresGrad_(false)
	m.Parameters()
	m.W = m.FC.Weight // tied, and frozen
	m.Parameters()
	nn.Init(m)
	if m.FC.Weight.RequiresGrad() || m.W.RequiresGrad() {
		t.Error("another Init has thawed a parameter")
	}
	m.V = ones()
	m.RequiresGrad_(false)
	if len(m.Parameters()) != 4 || m.V.RequiresGrad() {
		t.Error("RequiresGrad_ does not take what came late")
	}
	m.To(gotorch.Meta) // other tensors in the same fields
	m.Parameters()
	if p := nn.Parameter(ones().RequiresGrad_().MulScalar(3)); !p.IsLeaf() || !p.RequiresGrad() {
		t.Error("Parameter makes no parameter")
	}
	expectPanic(t, gotorch.RuntimeError, "floating point", func() { nn.Parameter(gotorch.Ones([]int64{1}, gotorch.TensorOptions{DType: gotorch.Int64})) })
}

// What came before is remembered without being kept.
func TestReplacedParametersGoAway(t *testing.T) {
	m := nn.Init(&struct {
		nn.Module
		W gotorch.Tensor
	}{W: gotorch.Ones([]int64{1 << 20})})
	collected := func() int64 {
		for range 20 {
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		return gotorch.MemoryStats().NativeBytes
	}
	before := collected()
	for range 5 {
		m.W = nn.Parameter(gotorch.Ones([]int64{1 << 20}))
		m.Parameters()
		nn.Init(m)
	}
	if after := collected(); after > before+1<<20 {
		t.Errorf("%d bytes became %d", before, after)
	}
}

// With -race this fails if reading the parameters writes into the map.
func TestReadingParametersLeavesMapsAlone(t *testing.T) {
	m := nn.Init(&struct {
		nn.Module
		Named map[string]gotorch.Tensor
	}{Named: map[string]gotorch.Tensor{"x": gotorch.Ones([]int64{1}), "y": gotorch.Ones([]int64{1})}})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				for range m.NamedParameters() {
				}
				m.StateDict()
				_ = m.Named["x"]
			}
		})
	}
	group.Wait()
	m.Named["z"] = gotorch.Ones([]int64{2}, gotorch.TensorOptions{RequiresGrad: true}).MulScalar(2)
	nn.Init(m)
	if z := m.Named["z"]; !z.IsLeaf() || !z.RequiresGrad() {
		t.Error("Init does not store what it made of an element")
	}
	m.To(gotorch.Meta)
	if m.Named["x"].Device() != gotorch.Meta {
		t.Error("To does not store what it made of an element")
	}
}

func TestModulesWithoutInitSaySo(t *testing.T) {
	x := gotorch.Ones([]int64{1, 2})
	for name, use := range map[string]func(){
		"Parameters": func() { new(tree).Parameters() },
		"Training":   func() { new(tree).Training() },
		"Linear":     func() { (&nn.LinearModule{Weight: gotorch.Ones([]int64{2, 2})}).Forward(x) },
		"Dropout":    func() { new(nn.DropoutModule).Forward(x) },
		"Sequential": func() { new(nn.SequentialModule).Forward(x) },
	} {
		t.Run(name, func(t *testing.T) { expectPanic(t, gotorch.TypeError, "was not given to nn.Init", use) })
	}
	// A parent's Init finds its children, so that they need none of their own.
	parent := newTree()
	expect(t, "child", names(parent.Branches[0]), []string{"http_gate.weight", "conv2d_a.weight", "head.weight"})
}

func TestModesReachEverything(t *testing.T) {
	m := nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.BatchNorm2d(2)))
	inner := m.Layers[1].(*nn.SequentialModule).Layers[0]
	if !m.Training() || !inner.Training() {
		t.Error("modules do not begin in training mode")
	}
	m.Eval()
	if m.Training() || inner.Training() || m.Layers[0].Training() {
		t.Error("Eval did not reach everything")
	}
	m.Append(nn.ReLU())
	m.Train(true)
	if !m.Layers[0].Training() || !inner.Training() {
		t.Error("Train did not reach everything")
	}
}

func TestToKeepsTheTensors(t *testing.T) {
	m := nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
	weight := m.Parameters()[0]
	m.Forward(gotorch.Ones([]int64{1, 2, 5, 5})).Sum().Backward()
	m.To(gotorch.BFloat16)
	if d := weight.DType(); d != gotorch.BFloat16 {
		t.Errorf("a tensor taken before is %v", d)
	}
	if d := weight.Grad().DType(); d != gotorch.BFloat16 {
		t.Errorf("its gradient is %v", d)
	}
	if dict := m.StateDict(); dict["1.running_var"].DType() != gotorch.BFloat16 || dict["1.num_batches_tracked"].DType() != gotorch.Int64 {
		t.Error("floating point buffers should follow, and integers not")
	}
	m.To(gotorch.ChannelsLast)
	if s := weight.Strides(); !slices.Equal(s, []int64{18, 1, 6, 2}) {
		t.Errorf("channels_last gives strides %v", s)
	}
	m.To(gotorch.Meta)
	for name, t2 := range m.StateDict() {
		if t2.Device() != gotorch.Meta {
			t.Errorf("%s did not move", name)
		}
	}
	if p := m.Parameters()[0]; !p.RequiresGrad() || p.Grad().Device() != gotorch.Meta {
		t.Error("gradients did not move along")
	}
	expectPanic(t, gotorch.TypeError, "floating point", func() { m.To(gotorch.Int64) })
}

func TestZeroGradDropsGradients(t *testing.T) {
	m := nn.Linear(2, 1)
	m.Forward(gotorch.Ones([]int64{1, 2})).Sum().Backward()
	if !m.Weight.Grad().Defined() {
		t.Fatal("there is no gradient")
	}
	m.ZeroGrad()
	if m.Weight.Grad().Defined() || m.Bias.Grad().Defined() {
		t.Error("there are still gradients")
	}
	m.RequiresGrad_(false)
	if m.Weight.RequiresGrad() {
		t.Error("the weight is not frozen")
	}
}

func TestStateDictSharesMemory(t *testing.T) {
	m := nn.Linear(2, 1)
	dict := m.StateDict()
	gotorch.NoGrad(func() { m.Weight.Fill_(3) })
	if got := gotorch.Data[float32](dict["weight"]); got[0] != 3 {
		t.Errorf("got %v", got)
	}
	if dict["weight"].RequiresGrad() {
		t.Error("a state dict must not require grad")
	}
}

func TestLoadStateDictListsAllThatIsWrong(t *testing.T) {
	m := nn.Sequential(nn.Linear(2, 3), nn.BatchNorm2d(1))
	before := gotorch.ToSlice[float32](m.Parameters()[0])
	dict := m.StateDict()
	dict["0.weight"] = gotorch.Zeros([]int64{3, 2})
	dict["0.bias"] = gotorch.Zeros([]int64{4})
	delete(dict, "1.weight")
	delete(dict, "1.num_batches_tracked") // which old files lack
	dict["2.weight"] = gotorch.Zeros([]int64{1})
	err := m.LoadStateDict(dict)
	var wrong *nn.StateDictError
	if !errors.As(err, &wrong) {
		t.Fatalf("got %v", err)
	}
	expect(t, "missing", wrong.Missing, []string{"1.weight"})
	expect(t, "unexpected", wrong.Unexpected, []string{"2.weight"})
	if len(wrong.Mismatched) != 1 || wrong.Mismatched[0].Name != "0.bias" {
		t.Errorf("mismatched: %v", wrong.Mismatched)
	}
	want := "Error(s) in loading state_dict for Sequential:\n" +
		"\tMissing key(s) in state_dict: \"1.weight\".\n" +
		"\tUnexpected key(s) in state_dict: \"2.weight\".\n" +
		"\tsize mismatch for 0.bias: copying a param with shape [4] from checkpoint, the shape in current model is [3]."
	if err.Error() != want {
		t.Errorf("got %q", err)
	}
	expect(t, "weight", gotorch.ToSlice[float32](m.Parameters()[0]), before)

	delete(dict, "0.bias")
	if err := m.LoadStateDict(dict, nn.LoadOptions{Partial: true}); err != nil {
		t.Fatal(err)
	}
	expect(t, "weight", gotorch.ToSlice[float32](m.Parameters()[0]), make([]float32, 6))
}

func TestLoadStateDictChangesAllOrNothing(t *testing.T) {
	m := nn.Linear(2, 1)
	weight := gotorch.ToSlice[float32](m.Weight)
	closed := gotorch.Zeros([]int64{1})
	closed.Close()
	for name, bias := range map[string]gotorch.Tensor{
		"the zero Tensor": {}, "closed": closed, "sparse": gotorch.Zeros([]int64{1}).ToSparse(), "meta": gotorch.Zeros([]int64{1}).To(gotorch.Meta),
	} {
		err := m.LoadStateDict(nn.StateDict{"weight": gotorch.Zeros([]int64{1, 2}), "bias": bias})
		if err == nil || !strings.Contains(err.Error(), `"bias"`) {
			t.Errorf("%s: got %v", name, err)
		}
		expect(t, name, gotorch.ToSlice[float32](m.Weight), weight)
	}
	empty := nn.Linear(2, 1, nn.LinearOptions{Device: gotorch.Meta})
	if err := empty.LoadStateDict(m.StateDict()); err == nil || !strings.Contains(err.Error(), "move the model with To first") {
		t.Errorf("got %v", err)
	}
}

func TestALayerWithoutInputsHasABiasOfZero(t *testing.T) {
	for range 8 { // what is in memory that was used before
		gotorch.Ones([]int64{3}).Close()
	}
	expect(t, "linear", gotorch.ToSlice[float32](nn.Linear(0, 3).Bias), make([]float32, 3))
	expect(t, "conv", gotorch.ToSlice[float32](nn.Conv2d(0, 3, 2).Bias), make([]float32, 3))
}

func TestLoadStateDictConverts(t *testing.T) {
	m := nn.Linear(2, 1, nn.LinearOptions{NoBias: true})
	testhelp.Must(t, m.LoadStateDict(nn.StateDict{"weight": gotorch.FromSlice([]float64{0.5, -2}, 1, 2)}))
	expect(t, "weight", gotorch.ToSlice[float32](m.Weight), []float32{0.5, -2})
	if !m.Weight.RequiresGrad() || m.Weight.DType() != gotorch.Float32 {
		t.Error("loading changed more than the values")
	}
}

func TestSaveAndLoad(t *testing.T) {
	for _, ending := range []string{"safetensors", "pt"} {
		a, b := nn.Linear(3, 2), nn.Linear(3, 2)
		path := filepath.Join(t.TempDir(), "model."+ending)
		testhelp.Must(t, nn.Save(a, path))
		testhelp.Must(t, nn.Load(b, path))
		expect(t, ending, gotorch.ToSlice[float32](b.Weight), gotorch.ToSlice[float32](a.Weight))

		whole, err := os.ReadFile(path)
		testhelp.Must(t, err)
		testhelp.Must(t, os.WriteFile(path, whole[:len(whole)/2], 0o644))
		if err := nn.Load(b, path); err == nil {
			t.Errorf("half a %s file was loaded", ending)
		}
		expect(t, ending, gotorch.ToSlice[float32](b.Weight), gotorch.ToSlice[float32](a.Weight))
	}
	if err := nn.Save(nn.Linear(1, 1), filepath.Join(t.TempDir(), "model.onnx")); err == nil {
		t.Error("an unknown ending was accepted")
	}
	if err := nn.Load(nn.Linear(1, 1), "nowhere.pt"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestLayersRefuseImpossibleOptions(t *testing.T) {
	x := gotorch.Ones([]int64{1, 2, 1, 1})
	for part, fn := range map[string]func(){
		"must be one number or 2":                func() { nn.Conv2d(1, 1, []int64{1, 2, 3}) },
		"in_channels must be divisible":          func() { nn.Conv2d(3, 4, 1, nn.Conv2dOptions{Groups: 2}) },
		"out_channels must be divisible":         func() { nn.Conv2d(4, 3, 1, nn.Conv2dOptions{Groups: 2}) },
		"groups must be a positive":              func() { nn.Conv2d(4, 4, 1, nn.Conv2dOptions{Groups: -2}) },
		"groups must be a positive integer":      func() { nn.Conv2d(4, 4, 1, nn.Conv2dOptions{Groups: 0}) },
		"not supported for strided":              func() { nn.Conv2d(1, 1, 3, nn.Conv2dOptions{SamePadding: true, Stride: []int64{2}}) },
		"exclude each other":                     func() { nn.Conv2d(1, 1, 3, nn.Conv2dOptions{SamePadding: true, Padding: []int64{2}}) },
		"padding_mode must be one of":            func() { nn.Conv2d(1, 1, 3, nn.Conv2dOptions{PaddingMode: "mirror"}) },
		`circular, but got "constant"`:           func() { nn.Conv2d(1, 1, 3, nn.Conv2dOptions{PaddingMode: "constant"}) },
		"Momentum and CumulativeAverage":         func() { nn.BatchNorm2d(1, nn.BatchNorm2dOptions{CumulativeAverage: true, Momentum: 0}) },
		"probability has to be between 0 and 1":  func() { nn.Dropout(1.5) },
		"expected 4D input (got 2D input)":       func() { nn.BatchNorm2d(2).Forward(gotorch.Ones([]int64{3, 2})) },
		"expected more than 1 value per channel": func() { nn.BatchNorm2d(2).Forward(x) },
		"eps must be positive during training, but got 0": func() {
			nn.BatchNorm2d(2, nn.BatchNorm2dOptions{Eps: new(0.0)}).Forward(gotorch.Ones([]int64{2, 2, 1, 1}))
		},
	} {
		expectPanic(t, gotorch.ValueError, part, fn)
	}
	if y := nn.BatchNorm2d(2); true {
		y.Eval()
		if got := y.Forward(x).Numel(); got != 2 {
			t.Errorf("evaluation of one value per channel gives %d elements", got)
		}
	}
	expectPanic(t, gotorch.RuntimeError, "mat1 and mat2 shapes cannot be multiplied", func() { nn.Linear(3, 1).Forward(gotorch.Ones([]int64{2, 4})) })
}

func TestMaxPoolTellsWhereTheLargestWere(t *testing.T) {
	x := gotorch.FromSlice([]float32{1, 5, 2, 3}, 1, 1, 2, 2)
	largest, indices := nn.MaxPool2d(2).ForwardWithIndices(x)
	if gotorch.Item[float32](largest) != 5 || gotorch.Item[int](indices) != 1 {
		t.Errorf("got %v at %v", largest, indices)
	}
}

func TestModulesSurviveTheScopeThatUsesThem(t *testing.T) {
	m := nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 1))
	for range 3 {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			m.Forward(gotorch.Ones([]int64{2, 1, 4, 4})).Sum().Backward()
			m.ZeroGrad()
		})
	}
	for name, p := range m.StateDict() {
		if !p.Defined() {
			t.Errorf("%s is gone", name)
		}
	}
}

func ExampleSequential() {
	model := nn.Sequential(
		nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
		nn.Linear(32*13*13, 10, nn.LinearOptions{NoBias: true}),
	)
	x := gotorch.Randn([]int64{64, 1, 28, 28})
	fmt.Println(model.Forward(x).Shape())
	fmt.Println(model)
	// Output:
	// [64 10]
	// Sequential(
	//   (0): Conv2d(1, 32, kernel_size=(3, 3), stride=(1, 1))
	//   (1): ReLU()
	//   (2): MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)
	//   (3): Flatten(start_dim=1, end_dim=-1)
	//   (4): Linear(in_features=5408, out_features=10, bias=False)
	// )
}

// Residual is a module of one's own.
type Residual struct {
	nn.Module
	Steps []*nn.LinearModule
	Gain  gotorch.Tensor
}

func NewResidual(features int64) *Residual {
	return nn.Init(&Residual{
		Steps: []*nn.LinearModule{nn.Linear(features, features), nn.Linear(features, features)},
		Gain:  gotorch.Zeros([]int64{1}),
	})
}

func (r *Residual) Forward(x gotorch.Tensor) gotorch.Tensor {
	y := x
	for _, step := range r.Steps {
		y = step.Forward(y).ReLU()
	}
	return x.Add(y.Mul(r.Gain))
}

func ExampleInit() {
	r := NewResidual(4)
	for name, p := range r.NamedParameters() {
		fmt.Println(name, p.Shape())
	}
	// At first the gain is 0, so the module passes its input on.
	fmt.Println(r.Forward(gotorch.FromSlice([]float32{1, 2, 3, 4})))
	// Output:
	// gain [1]
	// steps.0.weight [4 4]
	// steps.0.bias [4]
	// steps.1.weight [4 4]
	// steps.1.bias [4]
	// tensor([1., 2., 3., 4.], grad_fn=<AddBackward0>)
}

func ExampleSave() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.safetensors")

	if err := nn.Save(nn.Linear(3, 2), path); err != nil {
		fmt.Println(err)
	}
	fmt.Println(nn.Load(nn.Linear(3, 2), path))
	fmt.Println(nn.Load(nn.Linear(3, 4), path))
	// Output:
	// <nil>
	// Error(s) in loading state_dict for Linear:
	// 	size mismatch for weight: copying a param with shape [2 3] from checkpoint, the shape in current model is [4 3].
	// 	size mismatch for bias: copying a param with shape [2] from checkpoint, the shape in current model is [4].
}

func ExampleModule_Apply() {
	model := nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
	model.Apply(func(m nn.Modular) {
		if linear, ok := m.(*nn.LinearModule); ok {
			gotorch.NoGrad(func() { linear.Bias.Zero_() })
		}
	})
	fmt.Println(model.Layers[2].(*nn.LinearModule).Bias)
	// Output: tensor([0.], requires_grad=True)
}

// A part that is closed is an error, not one that was left out.
func TestAClosedPartIsAnError(t *testing.T) {
	x := gotorch.Ones([]int64{2, 3, 4, 4})
	for _, part := range []string{"weight", "bias", "running_mean", "running_var", "num_batches_tracked"} {
		norm := nn.BatchNorm2d(3)
		for name, tensor := range norm.NamedBuffers() {
			if name == part {
				tensor.Close()
			}
		}
		for name, tensor := range norm.NamedParameters() {
			if name == part {
				tensor.Close()
			}
		}
		expectPanic(t, gotorch.ValueError, "Close", func() { norm.Forward(x) })
		expectPanic(t, gotorch.ValueError, "Close", func() { norm.ResetParameters() })
	}
	linear := nn.Linear(3, 2)
	linear.Bias.Close()
	expectPanic(t, gotorch.ValueError, "Close", func() { linear.Forward(gotorch.Ones([]int64{1, 3})) })
	expectPanic(t, gotorch.ValueError, "Close", func() { linear.To(gotorch.ToOptions{DType: gotorch.Float64}) })
	expect(t, "names", names(linear), []string{"weight", "bias"})
	weight := gotorch.Ones([]int64{2})
	weight.Close()
	expectPanic(t, gotorch.ValueError, "Close", func() {
		F.MSELoss(gotorch.Ones([]int64{2}), gotorch.Zeros([]int64{2}), F.MSELossOptions{Weight: weight})
	})
}

// However many of the library's own functions are between the program and the tensor.
func TestRecordOriginsFindsTheProgramAroundModules(t *testing.T) {
	m := nn.Sequential(nn.Linear(2, 2))
	for range 20 {
		m = nn.Sequential(m)
	}
	x := gotorch.Ones([]int64{1, 2})
	gotorch.RecordOrigins(true)
	defer gotorch.RecordOrigins(false)
	y := m.Forward(x)
	for _, o := range gotorch.MemoryStats().Origins {
		if !strings.Contains(o.Site, "module_test.go:") {
			t.Errorf("a tensor was made at %s", o.Site)
		}
	}
	runtime.KeepAlive(y)
}

func TestLoadingUnderOtherNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	from, to := nn.Linear(2, 3), nn.Linear(2, 3)
	state := map[string]gotorch.Tensor{}
	for name, tensor := range from.StateDict() {
		state["module."+name] = tensor
	}
	testhelp.Must(t, gotorch.SaveTensors(path, state))
	strip := func(name string) string { return strings.TrimPrefix(name, "module.") }
	testhelp.Must(t, nn.Load(to, path, nn.LoadOptions{Rename: strip, Device: gotorch.CPU}))
	if !gotorch.Equal(from.StateDict()["weight"], to.StateDict()["weight"]) {
		t.Error("the weight is another")
	}
	same := func(string) string { return "weight" }
	err := nn.Load(to, path, nn.LoadOptions{Rename: same})
	if !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), `"module.bias" and "module.weight" are both renamed to "weight"`) {
		t.Error(err)
	}
}

func TestAModuleIsEmbeddedByOne(t *testing.T) {
	type outer struct {
		*nn.LinearModule
		Scale gotorch.Tensor
	}
	inner := nn.Linear(2, 2)
	first := nn.Init(&outer{LinearModule: inner, Scale: gotorch.Ones([]int64{1})})
	err := gotorch.Try0(func() { nn.Init(&outer{LinearModule: inner, Scale: gotorch.Ones([]int64{3})}) })
	if !errors.Is(err, gotorch.TypeError) {
		t.Errorf("got %v", err)
	}
	if n := len(first.Parameters()); n != 3 || first.Parameters()[2].Numel() != 1 {
		t.Errorf("the first has %d parameters", n)
	}
	nn.Init(first) // again is right
}

func TestLoadStateDictChangesNothingWhereCopyRefuses(t *testing.T) {
	type model struct {
		nn.Module
		W gotorch.Tensor
		B gotorch.Tensor `nn:",buffer"`
	}
	inference := gotorch.Tensor{}
	gotorch.InferenceMode(func() { inference = gotorch.Zeros([]int64{3}) })
	for what, b := range map[string]gotorch.Tensor{
		"an expanded tensor": gotorch.Zeros([]int64{1}).Expand([]int64{3}),
		"one of inference":   inference,
	} {
		m := nn.Init(&model{W: gotorch.Zeros([]int64{2}), B: b})
		err := m.LoadStateDict(nn.StateDict{"w": gotorch.Ones([]int64{2}), "b": gotorch.Ones([]int64{3})})
		if !errors.Is(err, gotorch.RuntimeError) || gotorch.Item[float64](m.W.Sum()) != 0 {
			t.Errorf("%s: %v, and the other is %v", what, err, m.W)
		}
	}
}

func TestToChangesAllOrNothing(t *testing.T) {
	closed := gotorch.Zeros([]int64{2})
	m := nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
	last := m.Layers[1].(*nn.LinearModule)
	for what, b := range map[string]gotorch.Tensor{"closed": closed, "without memory": gotorch.Zeros([]int64{2}, gotorch.TensorOptions{Device: gotorch.Meta})} {
		last.Bias = nn.Parameter(b)
		if what == "closed" {
			last.Bias.Close()
		}
		if err := gotorch.Try0(func() { m.To(gotorch.CPU, gotorch.Float64) }); err == nil || last.Weight.DType() != gotorch.Float32 {
			t.Errorf("%s: %v, and the others are %v", what, err, last.Weight.DType())
		}
	}
	type integers struct {
		nn.Module
		A, N gotorch.Tensor
	}
	i := nn.Init(&integers{A: gotorch.Ones([]int64{2}), N: gotorch.FromSlice([]int64{1})})
	i.RequiresGrad_(false)
	if err := gotorch.Try0(func() { i.RequiresGrad_(true) }); !errors.Is(err, gotorch.RuntimeError) || i.A.RequiresGrad() {
		t.Errorf("%v, and the others require gradients: %v", err, i.A.RequiresGrad())
	}
}

func TestAFuncOfNoFunctionSaysSo(t *testing.T) {
	m := nn.Init(&nn.FuncModule{})
	if err := gotorch.Try0(func() { m.Forward(gotorch.Ones([]int64{1})) }); !errors.Is(err, gotorch.TypeError) {
		t.Errorf("got %v", err)
	}
}

// noted has extra state that it hands out as it is.
type noted struct {
	nn.Module
	Layer *nn.LinearModule
	Notes gotorch.Tensor `nn:"-"`
	fail  any
}

func (m *noted) GetExtraState() gotorch.Tensor { return m.Notes }

func (m *noted) SetExtraState(state gotorch.Tensor) error {
	if m.Notes.T == nil {
		m.Notes = gotorch.Zeros([]int64{1})
	}
	gotorch.NoGrad(func() { m.Notes.Copy_(state) })
	if fail := m.fail; fail != nil {
		m.fail = nil
		if err, ok := fail.(error); ok {
			return err
		}
		panic(fail)
	}
	return nil
}

func TestExtraStateIsPutBackAfterAnErrorAndAPanic(t *testing.T) {
	make := func(value float32) *noted {
		return nn.Init(&noted{Layer: nn.Linear(2, 2), Notes: gotorch.FromSlice([]float32{value})})
	}
	dict := make(1).StateDict()
	for _, fail := range []any{errors.New("no"), "a panic"} {
		m := make(2)
		weight := m.Layer.Weight.Detach().Clone()
		m.fail = fail
		func() {
			defer func() {
				if p := recover(); p != nil && p != fail {
					t.Errorf("panic %v", p)
				}
			}()
			if err := m.LoadStateDict(dict); err == nil {
				t.Errorf("%v: no error", fail)
			}
		}()
		if got := gotorch.Item[float32](m.Notes); got != 2 {
			t.Errorf("%v: extra state is %v", fail, got)
		}
		if !m.Layer.Weight.Equal(weight) {
			t.Errorf("%v: the weight has changed", fail)
		}
	}
	none := make(3)
	none.Notes = gotorch.Tensor{} // which it has not yet
	if err := none.LoadStateDict(dict); err != nil || gotorch.Item[float32](none.Notes) != 1 {
		t.Errorf("got %v, error %v", none.Notes, err)
	}
}

type collections struct {
	nn.Module
	List []nn.Layer
	Map  map[string]nn.Layer
	Dict *nn.ModuleDictModule
	Own  *nn.ParameterDictModule
}

// What is run through is what there was when the loop came to it.
func TestModulesMayChangeWhileTheyAreRunThrough(t *testing.T) {
	make := func() *collections {
		layer := func() nn.Layer { return nn.Identity() }
		return nn.Init(&collections{List: []nn.Layer{layer(), layer(), layer()}, Map: map[string]nn.Layer{"a": layer(), "b": layer(), "c": layer()},
			Dict: nn.ModuleDict().Set("x", layer()).Set("y", layer()).Set("z", layer()),
			Own:  nn.ParameterDict().Set("p", gotorch.Ones([]int64{1})).Set("q", gotorch.Ones([]int64{1})).Set("r", gotorch.Ones([]int64{1}))})
	}
	m := make()
	for name := range m.NamedModules() {
		switch name {
		case "list.0":
			m.List = m.List[:1]
		case "map.a":
			delete(m.Map, "b")
		case "dict.x":
			m.Dict.Delete("x")
		}
	}
	for name := range m.NamedParameters() {
		if name == "own.p" {
			m.Own.Delete("p")
		}
	}
	if got := len(m.Modules()); got != 1+1+2+1+2+1 {
		t.Errorf("%d modules are left:\n%v", got, m)
	}
	expect(t, "parameters", names(m), []string{"own.q", "own.r"})
	for name := range m.Dict.All() {
		m.Dict.Delete(name)
	}
	for name := range m.Own.All() {
		m.Own.Delete(name)
	}
	if m.Dict.Len()+m.Own.Len() != 0 {
		t.Errorf("%d and %d are left", m.Dict.Len(), m.Own.Len())
	}
}
