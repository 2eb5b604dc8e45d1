package nn_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
)

func ExampleSummary() {
	model := nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
	fmt.Println(nn.Summary(model, []any{gotorch.Zeros([]int64{2, 1, 8, 8})}))
	// Output:
	// =============================================================
	// Module         Input         Output        Parameters   FLOPs
	// =============================================================
	// Sequential     [2, 1, 8, 8]  [2, 10]            1,490  10,944
	// ├─ 0: Conv2d   [2, 1, 8, 8]  [2, 4, 6, 6]          40   5,184
	// ├─ 1: ReLU     [2, 4, 6, 6]  [2, 4, 6, 6]           0       0
	// ├─ 2: Flatten  [2, 4, 6, 6]  [2, 144]               0       0
	// ├─ 3: Linear   [2, 144]      [2, 10]            1,450   5,760
	// =============================================================
	// Parameters: 1,490, of which 1,490 trainable: 5.82 KiB
	// Buffers: 0: 0 B
	// Inputs: 512 B, activations: 3.45 KiB
	// FLOPs: 10,944 forward
}

// twoInputs is a model of another signature, with a layer that is used twice and one that is never.
type twoInputs struct {
	nn.Module
	Shared *nn.LinearModule
	Again  *nn.LinearModule
	Norm   *nn.BatchNorm1dModule
	Drop   *nn.DropoutModule
	Lazy   *nn.LinearModule
	Unused *nn.LinearModule
	Mine   *passing
	calls  int
}

type passing struct {
	nn.Module
	Inner *nn.LinearModule
}

func (p *passing) Forward(x gotorch.Tensor) gotorch.Tensor { return p.Inner.Forward(x) }

func (m *twoInputs) Forward(a gotorch.Tensor, scale float64, rest []gotorch.Tensor) (gotorch.Tensor, []gotorch.Tensor) {
	m.calls++
	x := m.Drop.Forward(m.Norm.Forward(m.Shared.Forward(m.Again.Forward(a))))
	if !gotorch.GradEnabled() {
		a.Zero_()
	}
	for _, r := range rest {
		x = x.Add(r)
	}
	return m.Mine.Forward(m.Lazy.Forward(x.MulScalar(scale))), []gotorch.Tensor{x}
}

func newTwoInputs() *twoInputs {
	shared := nn.Linear(3, 3)
	return nn.Init(&twoInputs{Shared: shared, Again: shared, Norm: nn.BatchNorm1d(3), Drop: nn.Dropout(0.5), Lazy: nn.LazyLinear(5),
		Unused: nn.Linear(1, 1), Mine: nn.Init(&passing{Inner: nn.Linear(5, 2)})})
}

func TestSmokeSummaryOfAnySignature(t *testing.T) {
	m := newTwoInputs()
	x := gotorch.Ones([]int64{4, 3})
	s := nn.Summary(m, []any{x, 2, []gotorch.Tensor{x}}, nn.SummaryOptions{Training: true, Backward: true})
	rows := map[string]nn.ModuleSummary{}
	for _, row := range s.Modules {
		rows[row.Name] = row
	}
	if r := rows["shared"]; r.Calls != 2 || r.FLOPs != 2*2*4*3*3 || r.Parameters != 12 || r.Module != nn.Modular(m.Shared) {
		t.Errorf("shared: %+v", r)
	}
	if r := rows["again"]; !r.Again || r.Calls != 0 {
		t.Errorf("again: %+v", r)
	}
	if r := rows["lazy"]; r.Parameters != 20 || r.FLOPs != 2*4*3*5 || fmt.Sprint(r.Inputs, r.Outputs) != "[[4 3]] [[4 5]]" {
		t.Errorf("lazy: %+v", r)
	}
	if r := rows["mine"]; r.Calls != 0 || r.Inputs != nil || r.FLOPs != 2*4*5*2 || r.BackwardFLOPs != 2*2*4*5*2 {
		t.Errorf("mine: %+v", r)
	}
	if r := rows["unused"]; r.Calls != 0 || r.FLOPs != 0 || r.Parameters != 2 {
		t.Errorf("unused: %+v", r)
	}
	if r := rows[""]; r.Calls != 1 || fmt.Sprint(r.Outputs) != "[[4 2] [4 3]]" || r.FLOPs != s.FLOPs.Total() || r.BackwardFLOPs != s.BackwardFLOPs.Total() {
		t.Errorf("the model: %+v, %v", r, s.FLOPs)
	}
	if s.Parameters != 12+6+20+2+12 || s.Buffers != 7 {
		t.Errorf("%d parameters, %d buffers", s.Parameters, s.Buffers)
	}
	if text := s.String(); !strings.Contains(text, "├─ mine: passing") || !strings.Contains(text, "(the same again)") {
		t.Error(text)
	}
}

func TestSummaryChangesNothing(t *testing.T) {
	m := newTwoInputs()
	m.RegisterForwardHook(func(nn.Modular, []gotorch.Tensor, []gotorch.Tensor) []gotorch.Tensor {
		t.Error("a hook was called")
		return nil
	})
	m.Shared.RegisterForwardHook(func(nn.Modular, []gotorch.Tensor, []gotorch.Tensor) []gotorch.Tensor {
		t.Error("a hook was called")
		return nil
	})
	m.Shared.Weight.SetGrad(gotorch.Ones([]int64{3, 3}))
	x := gotorch.Ones([]int64{4, 3}, gotorch.TensorOptions{RequiresGrad: true})
	before := map[string]gotorch.Tensor{}
	for name, p := range m.StateDict() {
		before[name] = p.Clone()
	}
	broken := nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(4, 4))
	gotorch.ManualSeed(3)
	want := gotorch.ToSlice[float64](gotorch.Rand([]int64{4}))
	gotorch.ManualSeed(3)
	for _, opts := range []nn.SummaryOptions{{}, {Training: true}, {Training: true, Backward: true}} {
		nn.Summary(m, []any{x, 1.5, nil}, opts)
	}
	if err := gotorch.Try0(func() { nn.Summary(broken, []any{x}, nn.SummaryOptions{Training: true}) }); err == nil {
		t.Error("no error for a model that does not fit")
	}
	if got := gotorch.ToSlice[float64](gotorch.Rand([]int64{4})); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Error("random numbers were drawn")
	}
	for name, p := range m.StateDict() {
		if !gotorch.Equal(p, before[name]) {
			t.Errorf("%s has changed: %v, not %v", name, p, before[name])
		}
	}
	if !m.Training() || m.calls != 0 || x.Grad().Defined() || gotorch.ToSlice[int](x)[0] != 1 || !strings.Contains(m.String(), "LazyLinear") {
		t.Error("something has changed")
	}
	if g := gotorch.ToSlice[int](m.Shared.Weight.Grad()); g[0] != 1 || m.Norm.Weight.Grad().Defined() {
		t.Error("gradients have changed")
	}
}

func TestSummaryRefuses(t *testing.T) {
	m := newTwoInputs()
	x := gotorch.Ones([]int64{4, 3})
	fails(t, gotorch.TypeError, "no method Forward", func() { nn.Summary(nn.ModuleList(), nil) })
	fails(t, gotorch.TypeError, "takes 3 arguments", func() { nn.Summary(m, []any{x}) })
	fails(t, gotorch.TypeError, "input 1", func() { nn.Summary(m, []any{x, "1", nil}) })
	fails(t, gotorch.TypeError, "input 0", func() { nn.Summary(m, []any{1, 1, nil}) })
	fails(t, gotorch.ValueError, "Depth", func() { nn.Summary(m, []any{x, 1, nil}, nn.SummaryOptions{Depth: -1}) })
	fails(t, gotorch.TypeError, "nil", func() { nn.Summary(nil, nil) })
	fails(t, gotorch.TypeError, "nil", func() { nn.Summary((*twoInputs)(nil), nil) })
	if s := nn.Summary(nn.ReLU(), []any{gotorch.Zeros([]int64{0, 3})}, nn.SummaryOptions{Depth: 0}); s.Parameters != 0 || s.FLOPs.Total() != 0 {
		t.Error(s)
	}
	meta := nn.Linear(1000, 1000, nn.LinearOptions{Device: gotorch.Meta})
	if s := nn.Summary(meta, []any{gotorch.Zeros([]int64{5, 1000}, gotorch.TensorOptions{Device: gotorch.Meta})}); s.FLOPs.Total() != 10e6 {
		t.Error(s)
	}
}

func TestSummaryLeavesNoHandles(t *testing.T) {
	m, x := newTwoInputs(), gotorch.Ones([]int64{4, 3})
	alive := func() int64 {
		for range 3 {
			runtime.GC()
			gotorch.ReleaseCachedMemory()
		}
		return gotorch.MemoryStats().LiveHandles
	}
	var left []int64
	for range 3 {
		for range 5 {
			nn.Summary(m, []any{x, 1, nil}, nn.SummaryOptions{Backward: true, Training: true})
		}
		left = append(left, alive())
	}
	if left[2] > left[0] {
		t.Errorf("handles: %v", left)
	}
}
