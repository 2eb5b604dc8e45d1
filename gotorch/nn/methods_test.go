package nn_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
)

// fails calls fn, and returns its error if that is of a kind.
func fails(t *testing.T, kind gotorch.ErrorKind, words string, fn func()) {
	t.Helper()
	err := gotorch.Try0(fn)
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), words) {
		t.Errorf("%v, not a %s that says %q", err, kind, words)
	}
}

type backbone struct {
	nn.Module
	Stem   *nn.LinearModule
	Blocks []nn.Layer
	Heads  map[string]*nn.LinearModule
	Dict   *nn.ModuleDictModule
	Whole  nn.BatchNorm1dModule
	Deep   struct{ unused int } `nn:"-"`
}

func newBackbone() *backbone {
	return nn.Init(&backbone{Stem: nn.Linear(2, 2), Blocks: []nn.Layer{nn.ReLU(), nn.Sequential(nn.Linear(2, 2))},
		Heads: map[string]*nn.LinearModule{"a": nn.Linear(2, 1)}, Dict: nn.ModuleDict().Set("x", nn.Linear(2, 2))})
}

func TestPartsByName(t *testing.T) {
	m := newBackbone()
	if m.GetSubmodule("") != nn.Modular(m) || m.GetSubmodule("blocks.1") != nn.Modular(m.Blocks[1]) {
		t.Error("GetSubmodule finds another module")
	}
	if p := m.GetParameter("heads.a.weight"); p.T != m.Heads["a"].Weight.T {
		t.Error("GetParameter finds another tensor")
	}
	for _, name := range []string{"nope", "blocks", "blocks.2", "stem.weight", ".", "stem."} {
		fails(t, gotorch.AttributeError, fmt.Sprintf("%q", name), func() { m.GetSubmodule(name) })
		fails(t, gotorch.AttributeError, fmt.Sprintf("%q", name), func() { m.SetSubmodule(name, nn.ReLU()) })
	}
	fails(t, gotorch.AttributeError, "stem", func() { m.GetParameter("stem") })
	fails(t, gotorch.AttributeError, "stem.weight", func() { m.GetBuffer("stem.weight") })
	if len(m.Modules()) != 9 || len(m.Children()) != 6 {
		t.Errorf("%d modules, %d children", len(m.Modules()), len(m.Children()))
	}
}

func TestSetSubmodule(t *testing.T) {
	m := newBackbone()
	for name, put := range map[string]nn.Modular{"stem": nn.Linear(2, 3), "blocks.0": nn.GELU(), "blocks.1.0": nn.Linear(2, 5),
		"heads.a": nn.Linear(2, 7), "dict.x": nn.ReLU()} {
		m.SetSubmodule(name, put)
		if m.GetSubmodule(name) != put {
			t.Errorf("%s is not replaced", name)
		}
	}
	if m.Heads["a"].OutFeatures != 7 || m.Stem.OutFeatures != 3 {
		t.Error("the fields are as before")
	}
	before := m.String()
	fails(t, gotorch.TypeError, "does not go", func() { m.SetSubmodule("stem", nn.ReLU()) })
	fails(t, gotorch.TypeError, "does not go", func() { m.SetSubmodule("heads.a", nn.ReLU()) })
	fails(t, gotorch.TypeError, "part of a struct", func() { m.SetSubmodule("whole", nn.ReLU()) })
	fails(t, gotorch.TypeError, "nil", func() { m.SetSubmodule("stem", nil) })
	fails(t, gotorch.TypeError, "nil", func() { m.SetSubmodule("stem", (*nn.LinearModule)(nil)) })
	fails(t, gotorch.TypeError, "leads back", func() { m.SetSubmodule("dict.x", m) })
	inner := m.GetSubmodule("blocks.1").(nn.Layer)
	fails(t, gotorch.TypeError, "lead back", func() { m.SetSubmodule("blocks.1.0", nn.Sequential(inner)) })
	fails(t, gotorch.ValueError, "empty", func() { m.SetSubmodule("", nn.ReLU()) })
	if m.String() != before {
		t.Error("a refused module was put in all the same")
	}
}

func TestKindsOfNumbers(t *testing.T) {
	m := nn.Init(&struct {
		nn.Module
		Real    gotorch.Tensor
		Complex gotorch.Tensor
		Count   gotorch.Tensor `nn:",buffer"`
	}{Real: gotorch.Ones([]int64{2}), Complex: gotorch.Ones([]int64{2}, gotorch.TensorOptions{DType: gotorch.Complex64}),
		Count: gotorch.Ones([]int64{2}, gotorch.TensorOptions{DType: gotorch.Int64})})
	check := func(want ...gotorch.DType) {
		t.Helper()
		if got := []gotorch.DType{m.Real.DType(), m.Complex.DType(), m.Count.DType()}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, not %v", got, want)
		}
	}
	for want, convert := range map[gotorch.DType]func(){gotorch.Float16: m.Half, gotorch.BFloat16: m.BFloat16, gotorch.Float32: m.Float, gotorch.Float64: m.Double} {
		convert()
		check(want, gotorch.Complex64, gotorch.Int64)
	}
	fails(t, gotorch.RuntimeError, `"real" requires gradients`, func() { m.Type(gotorch.Int32) })
	fails(t, gotorch.TypeError, "no number", func() { m.Type(0) })
	m.Float()
	check(gotorch.Float32, gotorch.Complex64, gotorch.Int64)
	m.RequiresGrad_(false)
	gotorch.SetWarningHandler(func(gotorch.Warning) {}) // of complex numbers that lose a part
	defer gotorch.SetWarningHandler(nil)
	m.Type(gotorch.Int32)
	check(gotorch.Int32, gotorch.Int32, gotorch.Int32)
}

func TestToEmpty(t *testing.T) {
	m := nn.Linear(2, 3, nn.LinearOptions{Device: gotorch.Meta})
	gotorch.Scope0(func(*gotorch.ScopeHandle) { m.ToEmpty(gotorch.CPU) })
	testhelp.Must(t, m.LoadStateDict(nn.Linear(2, 3).StateDict()))
	if m.Weight.Device() != gotorch.CPU || !m.Weight.RequiresGrad() || len(m.Parameters()) != 2 {
		t.Error("the parameter is not what it was")
	}
	fails(t, gotorch.TypeError, "zero Device", func() { m.ToEmpty(0) })
}

func TestZeroGradKeepsGradients(t *testing.T) {
	m := nn.Linear(2, 1)
	m.Forward(gotorch.Ones([]int64{1, 2})).Sum().Backward()
	grad := m.Weight.Grad()
	m.ZeroGrad(nn.ZeroGradOptions{NoSetToNone: true})
	if got := gotorch.ToSlice[float64](grad); got[0] != 0 || !m.Weight.Grad().Defined() {
		t.Errorf("the gradient is %v", got)
	}
	m.ZeroGrad()
	if m.Weight.Grad().Defined() {
		t.Error("there is a gradient")
	}
}

func TestPartialLoads(t *testing.T) {
	from := nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 5))
	from.Double()
	dict := from.StateDict()
	delete(dict, "0.bias")
	dict["more"] = gotorch.Ones([]int64{1})
	to := nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
	var report nn.LoadReport
	opts := nn.LoadOptions{Partial: true, Report: &report}
	before := to.Layers[0].(*nn.LinearModule).Weight.Detach().Clone()
	var wrong *nn.StateDictError
	if err := to.LoadStateDict(dict, opts); !errors.As(err, &wrong) || len(wrong.Mismatched) != 2 || len(wrong.Missing) != 0 || report.Loaded != nil {
		t.Errorf("%v, %v", err, report)
	}
	if !gotorch.Equal(before, to.Layers[0].(*nn.LinearModule).Weight) {
		t.Error("half of it is loaded")
	}
	opts.SkipMismatched = true
	testhelp.Must(t, to.LoadStateDict(dict, opts))
	want := "{{[0.bias] [more]} [{1.weight [4 3] [5 3]} {1.bias [4] [5]}] [{0.weight torch.float32 torch.float64}] [0.weight]}"
	if got := fmt.Sprint(report); got != want {
		t.Errorf("%s, not %s", got, want)
	}
	path := filepath.Join(t.TempDir(), "m.safetensors")
	testhelp.Must(t, nn.Save(from, path))
	testhelp.Must(t, nn.Load(to, path, opts))
	if fmt.Sprint(report.Loaded) != "[0.weight 0.bias]" {
		t.Error(report)
	}
}

func TestLoadAssign(t *testing.T) {
	from := nn.Linear(2, 3)
	from.Double()
	to := nn.Linear(2, 3, nn.LinearOptions{Device: gotorch.Meta})
	to.RequiresGrad_(false)
	path := filepath.Join(t.TempDir(), "m.pt")
	testhelp.Must(t, nn.Save(from, path))
	gotorch.Scope0(func(*gotorch.ScopeHandle) { testhelp.Must(t, nn.Load(to, path, nn.LoadOptions{Assign: true})) })
	if to.Weight.RequiresGrad() || to.Weight.DType() != gotorch.Float64 || !gotorch.Equal(to.Weight, from.Weight) {
		t.Error("the tensor is not assigned, or learns")
	}
	to.RequiresGrad_(true)
	if len(to.Parameters()) != 2 {
		t.Error("what was assigned is no parameter")
	}
	weight := to.Weight
	to.RegisterLoadStateDictPostHook(func(_ nn.Modular, keys *nn.IncompatibleKeys) { panic(&gotorch.Error{Kind: gotorch.ValueError}) })
	if err := to.LoadStateDict(from.StateDict(), nn.LoadOptions{Assign: true}); err == nil || to.Weight.T != weight.T {
		t.Error("a hook that panics leaves what was assigned")
	}
	ints := nn.StateDict{"weight": gotorch.Ones([]int64{3, 2}, gotorch.TensorOptions{DType: gotorch.Int64}), "bias": from.Bias}
	if err := nn.Linear(2, 3).LoadStateDict(ints, nn.LoadOptions{Assign: true}); !errors.Is(err, gotorch.ValueError) {
		t.Errorf("%v for an integer parameter", err)
	}
}

func TestModelsOverReadersAndWriters(t *testing.T) {
	from := nn.Linear(2, 3)
	var archive, tensors bytes.Buffer
	testhelp.Must(t, nn.Encode(&archive, from))
	testhelp.Must(t, gotorch.EncodeSafetensors(&tensors, from.StateDict(), nil))
	for _, data := range [][]byte{archive.Bytes(), tensors.Bytes()} {
		path := filepath.Join(t.TempDir(), "m")
		testhelp.Must(t, os.WriteFile(path, append([]byte("before"), data...), 0o666))
		file, err := os.Open(path)
		testhelp.Must(t, err)
		defer file.Close()
		_, err = io.ReadFull(file, make([]byte, 6))
		testhelp.Must(t, err)
		pipe, write, err := os.Pipe()
		testhelp.Must(t, err)
		defer pipe.Close()
		go func() {
			write.Write(data)
			write.Close()
		}()
		for name, r := range map[string]io.Reader{
			"a reader": iotest.OneByteReader(bytes.NewReader(data)), "memory": bytes.NewReader(data), "the rest of a file": file, "a pipe": pipe,
		} {
			to := nn.Linear(2, 3)
			if err := nn.Decode(to, r); err != nil || !gotorch.Equal(to.Weight, from.Weight) || !gotorch.Equal(to.Bias, from.Bias) {
				t.Errorf("%s: %v", name, err)
			}
			if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("%s: something is left", name)
			}
		}
		for cut := 0; cut < len(data); cut += 50 {
			to := nn.Linear(2, 3)
			before := to.Weight.Detach().Clone()
			if err := nn.Decode(to, bytes.NewReader(data[:cut])); err == nil || !gotorch.Equal(to.Weight, before) {
				t.Errorf("of %d bytes: %v", cut, err)
			}
		}
		failed := errors.New("the connection is gone")
		if err := nn.Decode(nn.Linear(2, 3), io.MultiReader(bytes.NewReader(data[:20]), iotest.ErrReader(failed))); !errors.Is(err, failed) {
			t.Error(err)
		}
	}
	if err := nn.Encode(failingWriter{}, from); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
	var wrong *nn.StateDictError
	if err := nn.Decode(nn.Linear(2, 4), &archive); !errors.As(err, &wrong) {
		t.Error(err)
	}
	if err := nn.Save(from, ""); !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "the path is empty") {
		t.Error(err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// tiedModel has one weight and one buffer in two places each.
type tiedModel struct {
	nn.Module
	In, Out *nn.LinearModule
	First   gotorch.Tensor `nn:",buffer"`
	Second  gotorch.Tensor `nn:",buffer"`
}

func newTied(opts ...nn.LinearOptions) *tiedModel {
	m := nn.Init(&tiedModel{In: nn.Linear(3, 3, opts...), Out: nn.Linear(3, 3, opts...), First: gotorch.Rand([]int64{2})})
	m.Out.Weight, m.Second = m.In.Weight, m.First
	return m
}

func TestAssignKeepsTies(t *testing.T) {
	check := func(m *tiedModel, want gotorch.Tensor) {
		t.Helper()
		if m.In.Weight.T != m.Out.Weight.T || m.First.T != m.Second.T || len(m.Parameters()) != 3 {
			t.Errorf("the ties are gone: %d parameters", len(m.Parameters()))
		}
		if !bytes.Equal(gotorch.RawData(m.In.Weight.Detach()), gotorch.RawData(want.Detach())) || !m.In.Weight.RequiresGrad() {
			t.Error("another weight, or one that does not learn:", m.In.Weight)
		}
	}
	for _, ext := range []string{"m.pt", "m.safetensors"} {
		for _, hooked := range []bool{false, true} {
			from := newTied()
			gotorch.NoGrad(func() { from.In.Weight.Select(0, 0).Select(0, 0).Fill_(math.NaN()) })
			path := filepath.Join(t.TempDir(), ext)
			testhelp.Must(t, nn.Save(from, path))
			for _, opts := range [][]nn.LinearOptions{nil, {{Device: gotorch.Meta}}} {
				to := newTied(opts...)
				if hooked { // each module is loaded before its hooks run
					to.RegisterLoadStateDictPostHook(func(nn.Modular, *nn.IncompatibleKeys) {})
				}
				testhelp.Must(t, nn.Load(to, path, nn.LoadOptions{Assign: true}))
				check(to, from.In.Weight)
			}
		}
	}
	// The state dict has one of the names.
	for _, gone := range []string{"In.Weight", "Out.Weight"} {
		from, to := newTied(), newTied()
		dict := from.StateDict()
		name := map[string]string{"In.Weight": "in.weight", "Out.Weight": "out.weight"}[gone]
		if _, ok := dict[name]; !ok {
			t.Fatal(dict.Names())
		}
		delete(dict, name)
		testhelp.Must(t, to.LoadStateDict(dict, nn.LoadOptions{Assign: true, Partial: true}))
		check(to, from.In.Weight)
	}
	// One module under two names.
	layer := nn.Linear(2, 2)
	twice := nn.Sequential(layer, layer)
	testhelp.Must(t, twice.LoadStateDict(nn.Sequential(nn.Linear(2, 2), nn.Identity()).StateDict(), nn.LoadOptions{Assign: true, Partial: true}))
	if len(twice.Parameters()) != 2 {
		t.Error("one module became two")
	}
	// Different values for one tensor.
	for _, hooked := range []bool{false, true} {
		for _, name := range []string{"in.weight", "first"} {
			to := newTied()
			if hooked {
				to.In.RegisterLoadStateDictPostHook(func(nn.Modular, *nn.IncompatibleKeys) {})
			}
			weight, buffer, bias := to.In.Weight, to.First, to.In.Bias
			dict := newTied().StateDict()
			dict[name] = dict[name].Add(gotorch.Ones(dict[name].Shape()))
			err := to.LoadStateDict(dict, nn.LoadOptions{Assign: true})
			if !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "are one tensor in the model") {
				t.Error(err)
			}
			if to.In.Weight.T != weight.T || to.Out.Weight.T != weight.T || to.First.T != buffer.T || to.Second.T != buffer.T || to.In.Bias.T != bias.T {
				t.Error("the model has changed")
			}
			testhelp.Must(t, to.LoadStateDict(dict)) // as in PyTorch, the last one counts
		}
	}
}

func TestAPanickingStateHookChangesNothing(t *testing.T) {
	m := nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
	first := m.Layers[0].(*nn.LinearModule)
	handle := m.Layers[1].(*nn.LinearModule).RegisterLoadStateDictPostHook(func(nn.Modular, *nn.IncompatibleKeys) { panic("stop") })
	before := gotorch.ToSlice[float64](first.Weight)[0]
	dict := nn.StateDict{}
	for name, p := range m.StateDict() {
		dict[name] = p.AddScalar(1)
	}
	func() {
		defer func() {
			if r := recover(); r != "stop" {
				t.Errorf("%v comes out", r)
			}
		}()
		_ = m.LoadStateDict(dict)
	}()
	if gotorch.ToSlice[float64](first.Weight)[0] != before {
		t.Error("a tensor is loaded")
	}
	handle.Remove()
	testhelp.Must(t, m.LoadStateDict(dict))
	fails(t, gotorch.TypeError, "nil", func() { m.RegisterStateDictPreHook(nil) })
	if nn.Clone(m).Layers[0] == nn.Layer(first) {
		t.Error("no clone")
	}
}

func ExampleModule_RegisterLoadStateDictPreHook() {
	m := nn.Linear(2, 1)
	m.RegisterLoadStateDictPreHook(func(_ nn.Modular, dict nn.StateDict, prefix string) {
		if old, ok := dict[prefix+"kernel"]; ok { // the name that an older version had
			dict[prefix+"weight"] = old
			delete(dict, prefix+"kernel")
		}
	})
	err := m.LoadStateDict(nn.StateDict{"kernel": gotorch.NewTensor([][]float32{{1, 2}}), "bias": gotorch.Zeros([]int64{1})})
	fmt.Println(err, gotorch.ToSlice[int](m.Weight))
	// Output: <nil> [1 2]
}

func ExampleLoadReport() {
	pretrained := nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 1000))
	model := nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 10))
	var report nn.LoadReport
	err := model.LoadStateDict(pretrained.StateDict(), nn.LoadOptions{SkipMismatched: true, Report: &report})
	fmt.Println(err, report.Loaded)
	for _, m := range report.Mismatched {
		fmt.Println(m.Name, m.Want, m.Got)
	}
	// Output:
	// <nil> [0.weight 0.bias]
	// 1.weight [10 4] [1000 4]
	// 1.bias [10] [1000]
}
