package gotorch_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"gotorch.dev/gotorch"
)

func pair() gotorch.Tensors {
	return gotorch.Tensors{gotorch.FromSlice([]float32{1, 2}), gotorch.FromSlice([]float32{4})}
}

func other() []gotorch.Tensor {
	return []gotorch.Tensor{gotorch.FromSlice([]float32{10, 20}), gotorch.FromSlice([]float32{8})}
}

func elements(ts []gotorch.Tensor) []float32 {
	var all []float32
	for _, t := range ts {
		all = append(all, gotorch.Data[float32](t)...)
	}
	return all
}

func TestTensors(t *testing.T) {
	for _, test := range []struct {
		name    string
		new     func(ts gotorch.Tensors) gotorch.Tensors
		inPlace func(ts gotorch.Tensors) gotorch.Tensors
		want    []float32
	}{
		{"Add", func(ts gotorch.Tensors) gotorch.Tensors { return ts.Add(other()) },
			func(ts gotorch.Tensors) gotorch.Tensors { return ts.Add_(other()) }, []float32{11, 22, 12}},
		{"Add alpha", func(ts gotorch.Tensors) gotorch.Tensors { return ts.Add(other(), gotorch.AddOptions{Alpha: -0.5}) },
			func(ts gotorch.Tensors) gotorch.Tensors {
				return ts.Add_(other(), gotorch.AddOptions{Alpha: -0.5})
			}, []float32{-4, -8, 0}},
		{"Sub", func(ts gotorch.Tensors) gotorch.Tensors { return ts.Sub(other()) },
			func(ts gotorch.Tensors) gotorch.Tensors { return ts.Sub_(other()) }, []float32{-9, -18, -4}},
		{"Mul", func(ts gotorch.Tensors) gotorch.Tensors { return ts.Mul(other()) },
			func(ts gotorch.Tensors) gotorch.Tensors { return ts.Mul_(other()) }, []float32{10, 40, 32}},
		{"Div", func(ts gotorch.Tensors) gotorch.Tensors { return ts.Div(other()) },
			func(ts gotorch.Tensors) gotorch.Tensors { return ts.Div_(other()) }, []float32{0.1, 0.1, 0.5}},
		{"AddScalar", func(ts gotorch.Tensors) gotorch.Tensors { return ts.AddScalar(1) },
			func(ts gotorch.Tensors) gotorch.Tensors { return ts.AddScalar_(1) }, []float32{2, 3, 5}},
		{"MulScalar", func(ts gotorch.Tensors) gotorch.Tensors { return ts.MulScalar(0.5) },
			func(ts gotorch.Tensors) gotorch.Tensors { return ts.MulScalar_(0.5) }, []float32{0.5, 1, 2}},
		{"DivScalar", func(ts gotorch.Tensors) gotorch.Tensors { return ts.DivScalar(2) },
			func(ts gotorch.Tensors) gotorch.Tensors { return ts.DivScalar_(2) }, []float32{0.5, 1, 2}},
		{"Neg and MulScalar_", gotorch.Tensors.Neg,
			func(ts gotorch.Tensors) gotorch.Tensors { return ts.MulScalar_(-1) }, []float32{-1, -2, -4}},
		{"Clone and Copy_", func(ts gotorch.Tensors) gotorch.Tensors { return ts.Clone() },
			func(ts gotorch.Tensors) gotorch.Tensors { return ts.Copy_(pair()) }, []float32{1, 2, 4}},
		{"MulScalar and Zero_", func(ts gotorch.Tensors) gotorch.Tensors { return ts.MulScalar(0) },
			gotorch.Tensors.Zero_, []float32{0, 0, 0}},
	} {
		ts := pair()
		if got := elements(test.new(ts)); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		if got := elements(ts); !slices.Equal(got, []float32{1, 2, 4}) {
			t.Errorf("%s has changed what it was given to %v", test.name, got)
		}
		back := test.inPlace(ts)
		if got := elements(ts); !slices.Equal(got, test.want) {
			t.Errorf("%s in place: %v, want %v", test.name, got, test.want)
		}
		if !slices.Equal(back, ts) {
			t.Errorf("%s in place returns other tensors", test.name)
		}
	}
}

func TestTensorsOfNothing(t *testing.T) {
	var none gotorch.Tensors
	for name, got := range map[string]gotorch.Tensors{
		"Add": none.Add(nil), "Add_": none.Add_(nil), "Sub": none.Sub(nil), "Sub_": none.Sub_(nil), "Mul": none.Mul(nil),
		"Mul_": none.Mul_(nil), "Div": none.Div(nil), "Div_": none.Div_(nil), "Neg": none.Neg(), "Zero_": none.Zero_(),
		"Copy_": none.Copy_(nil), "Clone": none.Clone(), "AddScalar": none.AddScalar(1), "AddScalar_": none.AddScalar_(1),
		"MulScalar": none.MulScalar(1), "MulScalar_": none.MulScalar_(1), "DivScalar": none.DivScalar(1),
		"DivScalar_": none.DivScalar_(1),
	} {
		if len(got) != 0 {
			t.Errorf("%s of no tensors gives %d", name, len(got))
		}
	}
	if got := none.Norm(); got.Dim() != 0 || got.Item() != 0.0 {
		t.Errorf("the norm of no tensors is %v", got)
	}
	none.Close()
}

func TestTensorsNorm(t *testing.T) {
	ts := pair()
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		before := gotorch.MemoryStats().LiveHandles
		norm := ts.Norm()
		if got := gotorch.Item[float64](norm); math.Abs(got-math.Sqrt(21)) > 1e-6 {
			t.Errorf("norm %v, want √21", got)
		}
		if left := gotorch.MemoryStats().LiveHandles - before; left != 1 {
			t.Errorf("%d tensors are left, of which the norm is one", left)
		}
	})
	if n := ts.Numel(); n != 3 {
		t.Errorf("%d elements", n)
	}
	ts.Close()
	if ts[0].Defined() || ts[1].Defined() {
		t.Error("not closed")
	}
}

func TestTensorsGradient(t *testing.T) {
	ts := pair()
	for _, t := range ts {
		t.RequiresGrad_()
	}
	ts.Mul(other()).Norm().Backward()
	// norm² = Σ (t·o)²; its root has the gradient t·o² / norm.
	norm := math.Sqrt(100 + 1600 + 1024)
	want := []float64{100 / norm, 800 / norm, 256 / norm}
	for i, got := range elements([]gotorch.Tensor{ts[0].Grad(), ts[1].Grad()}) {
		if math.Abs(float64(got)-want[i]) > 1e-5 {
			t.Errorf("gradient %d is %v, want %v", i, got, want[i])
		}
	}
}

func TestTensorsErrors(t *testing.T) {
	for name, fn := range map[string]func(){
		"lengths":        func() { pair().Add(other()[:1]) },
		"nothing on one": func() { gotorch.Tensors{}.Add_(other()) },
		"shapes":         func() { pair().Mul([]gotorch.Tensor{gotorch.Zeros([]int64{3}), gotorch.Zeros([]int64{1})}) },
	} {
		if err := gotorch.Try0(fn); !errors.Is(err, gotorch.RuntimeError) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
