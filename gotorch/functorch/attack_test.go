package functorch_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/functorch"
	"gotorch.dev/gotorch/nn"
)

// nested returns f within n vmaps.
func nested(n int, f func(tensor) tensor) func(tensor) tensor {
	for range n {
		f = functorch.VMap(f)
	}
	return f
}

func TestManyLevels(t *testing.T) {
	shape := make([]int64, 20)
	for i := range shape {
		shape[i] = 1
	}
	x := gotorch.Ones(shape)
	wantClose(t, "20 vmaps", nested(20, tensor.Sin)(x), x.Sin())
	f := tensor.Sin
	for range 80 {
		inner := f
		f = func(x tensor) tensor { return functorch.VMap(inner)(x.Unsqueeze(0)).Squeeze() }
	}
	wantClose(t, "80 vmaps", f(gotorch.NewTensor(1.0)), gotorch.NewTensor(1.0).Sin())
	g := func(x tensor) tensor { return x.Pow(3) }
	for range 12 {
		g = functorch.Grad(g)
	}
	wantClose(t, "the twelfth derivative", g(gotorch.NewTensor(2.0)), gotorch.NewTensor(0.0))
}

func TestNothing(t *testing.T) {
	none := gotorch.Zeros([]int64{0})
	wantClose(t, "Grad", functorch.Grad(square)(none), none)
	wantClose(t, "JacRev", functorch.JacRev(tensor.Sin)(none), gotorch.Zeros([]int64{0, 0}))
	wantClose(t, "JacFwd", functorch.JacFwd(tensor.Sin)(none), gotorch.Zeros([]int64{0, 0}))
	wantClose(t, "Hessian", functorch.Hessian(square)(none), gotorch.Zeros([]int64{0, 0}))
	wantClose(t, "chunks", functorch.VMap(tensor.Sin, functorch.VMapOptions{ChunkSize: 3})(gotorch.Zeros([]int64{0, 2})), gotorch.Zeros([]int64{0, 2}))
	if g := functorch.Grad(func(xs []tensor) tensor { return gotorch.NewTensor(1.0) })(nil); g != nil {
		t.Error(g)
	}
	wantClose(t, "of a constant", functorch.Grad(func(tensor) tensor { return gotorch.NewTensor(1.0) })(floats(1, 2)), floats(0, 0))
	wantError(t, gotorch.RuntimeError, "non-empty", func() { functorch.VJP(func(tensor) []tensor { return nil }, floats(1)) })
	wantError(t, gotorch.RuntimeError, "at least one", func() {
		functorch.JVP(func(xs []tensor) tensor { return floats(1) }, nil, nil)
	})
	wantError(t, gotorch.RuntimeError, "non-empty", func() { functorch.JacRevAll(func(tensor) []tensor { return nil })(floats(1)) })
}

func TestClosedTensors(t *testing.T) {
	x := floats(1, 2)
	x.Close()
	for i, use := range []func(){
		func() { functorch.Grad(square)(x) },
		func() { functorch.VMap(tensor.Sin)(x) },
		func() { functorch.JVP(tensor.Sin, x, floats(1, 2)) },
		func() { functorch.JVP(tensor.Sin, floats(1, 2), x) },
		func() { functorch.Grad(func(x tensor) tensor { y := x.Sum(); y.Close(); return y })(floats(1)) },
		func() { functorch.VMap(func(x tensor) tensor { x.Close(); return x })(floats(1)) },
		func() { _, vjp := functorch.VJP(tensor.Sin, floats(1, 2)); vjp(x) },
	} {
		if err := gotorch.Try0(use); err == nil {
			t.Errorf("%d: no error", i)
		}
		wantNoLevels(t)
	}
	// A closed argument is the function's own wrapper, so nothing happens to the caller's tensor.
	y := floats(1, 2)
	functorch.Grad(func(x tensor) tensor { s := x.Sum(); x.Close(); return s })
	wantClose(t, "the argument", y, floats(1, 2))
}

func TestThingsThatFunctionsDo(t *testing.T) {
	x := gotorch.Rand([]int64{3, 4})
	for name, f := range map[string]func(x tensor) tensor{
		"make tensors":        func(x tensor) tensor { return x.Mul(gotorch.FromSlice([]float32{1, 2, 3, 4})) },
		"change what it made": func(x tensor) tensor { y := gotorch.FromSlice([]float32{1, 2, 3, 4}); y.Zero_(); return x.Add(y) },
		"change arguments":    func(x tensor) tensor { y := x.Clone(); y.Mul_(x); return y },
		"index":               func(x tensor) tensor { return x.Index(gotorch.List(3, 0)).Add(x.Index(gotorch.At(1))) },
		"put":                 func(x tensor) tensor { y := x.Clone(); y.IndexPut(0, gotorch.Slice(1, 3)); return y },
		"scope": func(x tensor) tensor {
			return gotorch.Scope(func(*gotorch.ScopeHandle) tensor { return x.Sin().Cos() })
		},
		"print":   func(x tensor) tensor { _ = fmt.Sprintf("%v %+v %#v", x, x, x.Sin()); return x.Sin() },
		"ask":     func(x tensor) tensor { return x.Reshape([]int64{x.Size(0) / 2, 2}).MulScalar(float64(x.Dim())) },
		"no grad": func(x tensor) tensor { return x.Mul(gotorch.NoGrad1(func() tensor { return x.Exp() })) },
		"autocast": func(x tensor) tensor {
			var y tensor
			gotorch.Autocast(gotorch.CPU, gotorch.BFloat16, func() { y = x.Unsqueeze(0).MM(gotorch.Ones([]int64{4, 4})) })
			return y.To(gotorch.Float32)
		},
		"hook":  func(x tensor) tensor { y := x.Sin(); return y },
		"recur": func(x tensor) tensor { return functorch.Grad(square)(x).Add(functorch.VMap(tensor.Sin)(x)) },
		"fail":  func(x tensor) tensor { gotorch.Try0(func() { x.MM(x) }); return x.Sin() },
	} {
		ys := functorch.VMap(f)(x)
		for i := range int64(3) {
			if !ys.Select(0, i).To(gotorch.Float64).AllClose(f(x.Select(0, i)).To(gotorch.Float64)) {
				t.Errorf("%s: element %d is\n%v\nand not\n%v", name, i, ys.Select(0, i), f(x.Select(0, i)))
			}
		}
		if name == "autocast" {
			continue // of float32 and bfloat16 products, which are not alike to the last bit
		}
		row := x.Select(0, 0)
		leaf := row.Clone().RequiresGrad_()
		f(leaf).Sum().Backward()
		g := functorch.Grad(func(x tensor) tensor { return f(x).Sum() })(row)
		if !g.AllClose(leaf.Grad()) {
			t.Errorf("%s: the gradient is\n%v\nand not\n%v", name, g, leaf.Grad())
		}
		_, tangent := functorch.JVP(func(x tensor) tensor { return f(x).Sum() }, row, gotorch.OnesLike(row))
		if name != "no grad" && !tangent.AllClose(g.Sum()) { // forward mode does not respect it, as in Python
			t.Errorf("%s: the tangent is %v and not %v", name, tangent, g.Sum())
		}
	}
}

func TestCheckpointsAreNotTransformed(t *testing.T) {
	wantError(t, gotorch.RuntimeError, "cannot be transformed", func() {
		functorch.Grad(func(x tensor) tensor { return gotorch.Checkpoint(tensor.Sin, x).Sum() })(floats(1))
	})
	x := floats(1, 2).RequiresGrad_()
	wantError(t, gotorch.RuntimeError, "outside of a checkpoint", func() { gotorch.Checkpoint(functorch.Grad(square), x) })
	gotorch.Checkpoint(functorch.VMap(tensor.Exp), x).Sum().Backward()
	wantClose(t, "the gradient", x.Grad(), x.Detach().Exp())
}

func TestAnomaliesAndOrigins(t *testing.T) {
	gotorch.DetectAnomaly(func() {
		wantClose(t, "the gradient", functorch.Grad(square)(floats(1, 2)), floats(2, 4))
		wantClose(t, "the Hessian", functorch.Hessian(square)(floats(1, 2)), gotorch.Eye(2).MulScalar(2))
	})
}

// libtorch goes through levels by recursion, and thousands of them end the process.
func TestThereAreAsManyLevelsAsTheStackHolds(t *testing.T) {
	calls := 0
	var within func(x tensor) tensor
	within = func(x tensor) tensor {
		calls++
		return functorch.Grad(within)(x)
	}
	wantError(t, gotorch.RuntimeError, "512 transforms within one another", func() { within(gotorch.NewTensor(1.0)) })
	if calls != 513 {
		t.Errorf("the function was called %d times", calls)
	}
	g := func(x tensor) tensor { return x.Softmax(-1).Square().Sum() }
	for range 512 {
		inner := g
		g = func(x tensor) tensor {
			return functorch.VMap(func(tensor) tensor { return inner(x) })(floats(0)).Sum()
		}
	}
	wantClose(t, "512 levels", g(floats(1, 1)), gotorch.NewTensor(float32(0.5)))
}

func TestTheJacobianOfNothingInChunks(t *testing.T) {
	none := func(x tensor) tensor { return x.Narrow(0, 0, 0) }
	for _, chunk := range []int{1, 2} {
		jac := functorch.JacRev(none, functorch.JacRevOptions{ChunkSize: chunk})
		wantClose(t, "the Jacobian", jac(floats(1, 2)), gotorch.Zeros([]int64{0, 2}))
	}
}

func TestWrappersAreNotSaved(t *testing.T) {
	path := t.TempDir() + "/x.pt"
	inside := map[string]func(save func(tensor)){
		"grad": func(save func(tensor)) { functorch.Grad(func(x tensor) tensor { save(x); return x.Sum() })(floats(1)) },
		"vmap": func(save func(tensor)) { functorch.VMap(func(x tensor) tensor { save(x); return x })(floats(1)) },
	}
	for name, run := range inside {
		run(func(x tensor) {
			for _, err := range []error{
				gotorch.Save(path, x), gotorch.SaveSafetensors(path, map[string]tensor{"x": x}, nil), func() error { _, err := x.GobEncode(); return err }(),
			} {
				if !errors.Is(err, gotorch.RuntimeError) || !strings.Contains(err.Error(), "return it") {
					t.Errorf("%s: the error is %v", name, err)
				}
			}
		})
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was written")
	}
}

func TestInDimsCountFromTheEnd(t *testing.T) {
	x := gotorch.Arange(24).Reshape([]int64{2, 3, 4}).To(gotorch.Float32)
	for dim := int64(-3); dim < 0; dim++ {
		got := functorch.VMap(func(x tensor) tensor { return x.CumSum(-1) }, functorch.VMapOptions{InDims: []int64{dim}})(x)
		wantClose(t, "mapped", got, x.MoveDimInt(dim, 0).CumSum(-1))
	}
}

func TestAProductHasAGraphWhereGradModeIsOn(t *testing.T) {
	w := floats(1, 2).RequiresGrad_()
	_, vjp := functorch.VJP(func(x tensor) tensor { return x.Mul(w).Sin() }, floats(1, 1))
	if !vjp(floats(1, 1)).RequiresGrad() {
		t.Error("the product has no graph, though grad mode is on")
	}
	gotorch.NoGrad(func() {
		if vjp(floats(1, 1)).RequiresGrad() {
			t.Error("the product has a graph, though grad mode is off")
		}
	})
}

func TestResultsOfOtherDTypes(t *testing.T) {
	x := floats(1, 2)
	integers := func(x tensor) tensor { return x.To(gotorch.Int64) }
	wantError(t, gotorch.RuntimeError, "floating-point or complex Tensors, got Tensor with dtype torch.int64", func() { functorch.VJP(integers, x) })
	wantError(t, gotorch.RuntimeError, "floating-point or complex Tensors", func() { functorch.JacRev(integers)(x) })
	wantClose(t, "the gradient of an integer", functorch.Grad(func(x tensor) tensor { return x.Sum().To(gotorch.Int64) })(x), floats(0, 0))
}

func TestStackedParametersHaveNoConnectionWithTheModels(t *testing.T) {
	models := []*nn.LinearModule{nn.Linear(2, 2), nn.Linear(2, 2)}
	params, _ := functorch.StackModuleState(models)
	for name, p := range params {
		if !p.IsLeaf() || !p.RequiresGrad() {
			t.Errorf("%s is no leaf that requires grad", name)
		}
		p.Sum().Backward()
	}
	if models[0].Weight.Grad().T != nil {
		t.Error("a gradient went into a model")
	}
}

func TestMapsHaveTheOrderOfTheirKeys(t *testing.T) {
	tree := map[string]tensor{}
	for i := range 9 {
		tree[string(rune('i'-i))] = floats(float32(i))
	}
	hessian := functorch.HessianAll(func(m map[string]tensor) tensor {
		sum := floats(0).Sum()
		for i := range 9 {
			sum = sum.Add(m[string(rune('a'+i))].Pow(2).MulScalar(i + 1).Sum())
		}
		return sum
	})(tree)
	for i := range 9 { // that of "a" comes first
		wantClose(t, "a second derivative", hessian[i][string(rune('a'+i))], floats(float32(2*(i+1))).Unsqueeze(0))
	}
}
