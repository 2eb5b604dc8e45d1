package functorch_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/functorch"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
)

// What results are held to in this file is autograd without transforms, or one element at a time; the
// conformance tests hold them to Python.

type tensor = gotorch.Tensor

func floats(values ...float32) tensor { return gotorch.FromSlice(values) }

func wantClose(t *testing.T, what string, got, want tensor) {
	t.Helper()
	if !slices.Equal(got.Shape(), want.Shape()) {
		t.Fatalf("%s has shape %v, not %v", what, got.Shape(), want.Shape())
	}
	if !got.AllClose(want) {
		t.Errorf("%s is\n%v\nand not\n%v", what, got, want)
	}
}

func wantError(t *testing.T, kind gotorch.ErrorKind, text string, fn func()) {
	t.Helper()
	err := gotorch.Try0(fn)
	if err == nil {
		t.Errorf("no error, where a %v with %q was wanted", kind, text)
	} else if !errors.Is(err, kind) || !strings.Contains(err.Error(), text) {
		t.Errorf("the error is %v, where a %v with %q was wanted", err, kind, text)
	}
	wantNoLevels(t)
}

// wantNoLevels checks that every level was left: item of what a level wraps would fail, and so would backward.
func wantNoLevels(t *testing.T) {
	t.Helper()
	w := gotorch.Ones([]int64{2}, gotorch.TensorOptions{RequiresGrad: true})
	w.Sum().Backward()
}

func square(x tensor) tensor { return x.Square().Sum() }

func TestSmokeGradIsAutogradsGrad(t *testing.T) {
	x := floats(1, 2, 3)
	wantClose(t, "the gradient", functorch.Grad(square)(x), floats(2, 4, 6))
	g, v := functorch.GradAndValue2(func(x, y tensor) tensor { return x.Mul(y).Sum() })(x, floats(4, 5, 6))
	wantClose(t, "the gradient", g, floats(4, 5, 6))
	wantClose(t, "the value", v, gotorch.NewTensor(float32(32)))
	if x.RequiresGrad() || x.Grad().T != nil || g.RequiresGrad() {
		t.Error("something outside came to require a gradient")
	}
	third := functorch.Grad(functorch.Grad(functorch.Grad(func(x tensor) tensor { return x.Pow(4) })))(gotorch.NewTensor(2.0))
	wantClose(t, "the third derivative", third, gotorch.NewTensor(48.0))
}

type pair struct {
	W, B tensor
	N    int
}

func TestTreesKeepTheirTypeAndShape(t *testing.T) {
	in := pair{floats(1, 2), floats(3), 7}
	g, _, aux := functorch.GradAux(func(p pair) (tensor, map[string][]tensor) {
		return p.W.Square().Sum().Add(p.B.Sum()), map[string][]tensor{"n": {p.W.MulScalar(p.N)}}
	})(in)
	wantClose(t, "w", g.W, floats(2, 4))
	wantClose(t, "b", g.B, floats(1))
	wantClose(t, "aux", aux["n"][0], floats(7, 14))
	if g.N != 7 {
		t.Errorf("N is %d", g.N)
	}
	unused := functorch.Grad(func(m map[string]any) tensor { return m["a"].(tensor).Sum() })(map[string]any{"a": floats(1), "b": []tensor{floats(1, 2)}, "c": "text"})
	wantClose(t, "what is not used", unused["b"].([]tensor)[0], floats(0, 0))
	if unused["c"] != "text" {
		t.Error(unused)
	}
	wantError(t, gotorch.TypeError, "must be exported", func() {
		functorch.Grad(func(struct{ w tensor }) tensor { return floats(1) })(struct{ w tensor }{floats(1)})
	})
	wantError(t, gotorch.TypeError, "no pointers", func() { functorch.Grad(func(*pair) tensor { return floats(1) })(&in) })
	wantError(t, gotorch.TypeError, "have no order", func() {
		functorch.Grad(func(map[bool]tensor) tensor { return floats(1) })(map[bool]tensor{true: floats(1)})
	})
	type self []any
	loop := self{nil}
	loop[0] = loop
	wantError(t, gotorch.ValueError, "within itself", func() { functorch.Grad(func(self) tensor { return floats(1) })(loop) })
}

func TestSmokePerSampleGradients(t *testing.T) {
	gotorch.ManualSeed(1)
	net := nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
	xs, ys := gotorch.Randn([]int64{6, 4}), gotorch.FromSlice([]int64{0, 2, 1, 1, 0, 2})
	params, _ := functorch.State(net)
	loss := func(p nn.StateDict, x, y tensor) tensor {
		return F.CrossEntropy(functorch.FunctionalCall(net, p, x.Unsqueeze(0)), y.Unsqueeze(0))
	}
	each := functorch.VMap(functorch.Grad3(loss), functorch.VMapOptions{InDims: []int64{functorch.None, 0, 0}})(params, xs, ys)
	for i := range int64(6) {
		one := functorch.Grad3(loss)(params, xs.Select(0, i), ys.Select(0, i))
		net.ZeroGrad()
		F.CrossEntropy(net.Forward(xs.Narrow(0, i, 1)), ys.Narrow(0, i, 1)).Backward()
		for name, p := range net.NamedParameters() {
			wantClose(t, name, one[name], p.Grad())
			wantClose(t, name, each[name].Select(0, i), p.Grad())
		}
	}
}

func TestAnEnsembleComputesWhatItsModelsDo(t *testing.T) {
	var models []*nn.SequentialModule
	for range 3 {
		models = append(models, nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2)))
		models[len(models)-1].Eval()
	}
	params, buffers := functorch.StackModuleState(models)
	if !params["0.weight"].RequiresGrad() || !params["0.weight"].IsLeaf() || len(params) != 6 || len(buffers) != 3 {
		t.Error(params, buffers)
	}
	x := gotorch.Randn([]int64{7, 4})
	run := functorch.VMap(func(p, b nn.StateDict, x tensor) tensor {
		return functorch.FunctionalCall(models[0], functorch.Merge(p, b), x, functorch.FunctionalCallOptions{Strict: true})
	}, functorch.VMapOptions{InDims: []int64{0, 0, functorch.None}})
	ys := run(params, buffers, x)
	for i, m := range models {
		wantClose(t, "a model's result", ys.Select(0, int64(i)), m.Forward(x))
	}
	ys.Sum().Backward() // outside of the transform
	models[1].Forward(x).Sum().Backward()
	wantClose(t, "the gradient", params["3.weight"].Grad().Select(0, 1), models[1].Parameters()[4].Grad())
}

func TestSmokeHessiansAndJacobians(t *testing.T) {
	x := floats(1, 2, 3)
	f := func(x tensor) tensor { return x.Pow(3).Sum() }
	want := gotorch.Diag(floats(6, 12, 18))
	wantClose(t, "the Hessian", functorch.Hessian(f)(x), want)
	wantClose(t, "JacRev of JacRev", functorch.JacRev(functorch.JacRev(f))(x), want)
	wantClose(t, "JacFwd of JacFwd", functorch.JacFwd(functorch.JacFwd(f))(x), want)
	for _, chunk := range []int{1, 2, 3, 100} {
		wantClose(t, "JacRev in chunks", functorch.JacRev(tensor.Sin, functorch.JacRevOptions{ChunkSize: chunk})(x), gotorch.Diag(x.Cos()))
	}
	jac, aux := functorch.JacFwdAux(func(x tensor) (tensor, tensor) { y := x.Sin(); return y, y })(x)
	wantClose(t, "JacFwd", jac, gotorch.Diag(x.Cos()))
	wantClose(t, "aux", aux, x.Sin())
	two := functorch.JacRevAll(func(p pair) []tensor { return []tensor{p.W.Mul(p.B), p.B.Sin()} })(pair{W: x, B: x})
	wantClose(t, "by w", two[0].W, gotorch.Diag(x))
	wantClose(t, "by b", two[1].B, gotorch.Diag(x.Cos()))
	wantClose(t, "what is not used", two[1].W, gotorch.Zeros([]int64{3, 3}))
	all := functorch.HessianAll(func(p []tensor) tensor { return p[0].Square().Mul(p[1]).Sum() })([]tensor{x, x})
	wantClose(t, "mixed", all[0][1], gotorch.Diag(x.MulScalar(2)))
	wantClose(t, "the Jacobian for each of a batch", functorch.VMap(functorch.JacFwd(tensor.Sin))(gotorch.Stack([]tensor{x, x})).Select(0, 1), gotorch.Diag(x.Cos()))
}

func TestSmokeVJPAndJVP(t *testing.T) {
	x, v := floats(1, 2, 3), floats(1, 0, 2)
	y, vjp := functorch.VJP(tensor.Sin, x)
	wantClose(t, "y", y, x.Sin())
	for range 2 {
		wantClose(t, "the product", vjp(v), v.Mul(x.Cos()))
	}
	wantClose(t, "all at once", functorch.VMap(vjp)(gotorch.Eye(3)), gotorch.Diag(x.Cos()))
	gotorch.InferenceMode(func() { wantClose(t, "in inference mode", vjp(v), v.Mul(x.Cos())) })
	wantError(t, gotorch.RuntimeError, "structure", func() {
		_, vjp := functorch.VJP(func(x tensor) []tensor { return []tensor{x, x} }, x)
		vjp([]tensor{x})
	})
	y, dy := functorch.JVP(tensor.Sin, x, v)
	wantClose(t, "y", y, x.Sin())
	wantClose(t, "the tangent", dy, v.Mul(x.Cos()))
	_, linear := functorch.Linearize(tensor.Sin, x)
	wantClose(t, "the linear function", linear(v), v.Mul(x.Cos()))
	// Tangents of tangents, and of gradients.
	_, ddy := functorch.JVP(func(x tensor) tensor { _, dy := functorch.JVP(tensor.Sin, x, v); return dy }, x, v)
	wantClose(t, "the second", ddy, v.Mul(v).Mul(x.Sin()).Neg())
	_, dg := functorch.JVP(functorch.Grad(square), x, v)
	wantClose(t, "of a gradient", dg, v.MulScalar(2))
	wantError(t, gotorch.RuntimeError, "independent", func() {
		functorch.JVP(func(tensor) tensor { return floats(1) }, x, v, functorch.JVPOptions{Strict: true})
	})
	wantError(t, gotorch.ValueError, "floating point", func() {
		functorch.JVP(tensor.Neg, gotorch.FromSlice([]int64{1}), gotorch.FromSlice([]int64{1}))
	})
}

func TestAutogradWorksAroundTransforms(t *testing.T) {
	w := gotorch.FromSlice([]float32{1, 2}).RequiresGrad_()
	functorch.VMap(func(x tensor) tensor { return x.Mul(w).Sum() })(gotorch.Ones([]int64{3, 2})).Sum().Backward()
	wantClose(t, "the gradient of what a vmap captures", w.Grad(), floats(3, 3))
	w.SetGrad(tensor{})
	functorch.VMap(func(x tensor) tensor { return x.Square() })(w).Sum().Backward()
	wantClose(t, "the gradient of what a vmap maps", w.Grad(), floats(2, 4))
	w.SetGrad(tensor{})
	functorch.Grad(func(x tensor) tensor { return x.Pow(3).Sum() })(w).Sum().Backward()
	wantClose(t, "the gradient of a gradient", w.Grad(), floats(6, 12))
	w.SetGrad(tensor{})
	functorch.Grad2(func(x, w tensor) tensor { return x.Mul(w).Square().Sum() })(floats(1, 1), w).Sum().Backward()
	wantClose(t, "the gradient by an argument that is not differentiated", w.Grad(), floats(4, 8))
	w.SetGrad(tensor{})
	functorch.JacFwd(tensor.Sin)(w).Sum().Backward()
	wantClose(t, "the gradient of a tangent", w.Grad(), w.Detach().Sin().Neg())
	w.SetGrad(tensor{})
	gotorch.NoGrad(func() {
		g := functorch.Grad(square)(w)
		wantClose(t, "a gradient without grad mode", g, floats(2, 4))
		if g.RequiresGrad() {
			t.Error("the result requires grad, though grad mode was off around it")
		}
	})
	gotorch.InferenceMode(func() { wantClose(t, "in inference mode", functorch.Grad(square)(floats(1, 2)), floats(2, 4)) })
}

func TestSmokeRandomness(t *testing.T) {
	x := gotorch.Zeros([]int64{3, 2})
	noise := func(x tensor) tensor { return x.Add(gotorch.RandnLike(x)).Add(gotorch.Rand([]int64{2})) }
	wantError(t, gotorch.RuntimeError, "randomness", func() { functorch.VMap(noise)(x) })
	same := functorch.VMap(noise, functorch.VMapOptions{Randomness: "same"})(x)
	different := functorch.VMap(noise, functorch.VMapOptions{Randomness: "different"})(x)
	if !same.Select(0, 0).Equal(same.Select(0, 2)) || different.Select(0, 0).Equal(different.Select(0, 2)) {
		t.Error(same, different)
	}
	chunked := functorch.VMap(noise, functorch.VMapOptions{Randomness: "same", ChunkSize: 2})(x)
	if !chunked.Select(0, 0).Equal(chunked.Select(0, 2)) {
		t.Error(chunked)
	}
	wantError(t, gotorch.RuntimeError, "Only allowed values", func() { functorch.VMap(noise, functorch.VMapOptions{Randomness: "some"}) })
}

func TestWhatVMapRefuses(t *testing.T) {
	x := gotorch.Ones([]int64{3, 2})
	wantError(t, gotorch.RuntimeError, ".item()", func() { functorch.VMap(func(x tensor) tensor { x.Sum().Item(); return x })(x) })
	wantError(t, gotorch.RuntimeError, "stands for many", func() { functorch.VMap(func(x tensor) tensor { gotorch.ToSlice[float32](x); return x })(x) })
	wantError(t, gotorch.RuntimeError, "no memory of its own", func() { functorch.VMap(func(x tensor) tensor { gotorch.Data[float32](x); return x })(x) })
	wantError(t, gotorch.TypeError, "must be a function", func() { functorch.VMap(3) })
	wantError(t, gotorch.TypeError, "nil", func() { functorch.VMap((func(tensor) tensor)(nil)) })
	wantError(t, gotorch.ValueError, "without arguments", func() { functorch.VMap(func() tensor { return x }) })
	wantError(t, gotorch.ValueError, "no results", func() { functorch.VMap(func(tensor) {}) })
	wantError(t, gotorch.ValueError, "only return", func() { functorch.VMap(func(tensor) int { return 1 }) })
	wantError(t, gotorch.ValueError, "at least one", func() { functorch.VMap(tensor.Sin, functorch.VMapOptions{InDims: []int64{functorch.None}})(x) })
	wantError(t, gotorch.ValueError, "in_dim", func() { functorch.VMap(tensor.Sin, functorch.VMapOptions{InDims: []int64{2}})(x) })
	wantError(t, gotorch.ValueError, "in_dim", func() { functorch.VMap(tensor.Sin)(x.Sum()) })
	wantError(t, gotorch.ValueError, "InDims", func() { functorch.VMap(tensor.Sin, functorch.VMapOptions{InDims: []int64{0, 0}}) })
	wantError(t, gotorch.ValueError, "OutDims", func() { functorch.VMap(tensor.Sin, functorch.VMapOptions{OutDims: []int64{0, 0}}) })
	wantError(t, gotorch.IndexError, "", func() { functorch.VMap(tensor.Sin, functorch.VMapOptions{OutDims: []int64{9}})(x) })
	wantError(t, gotorch.ValueError, "BatchedTensor", func() { functorch.VMap(tensor.Sin, functorch.VMapOptions{OutDims: []int64{functorch.None}})(x) })
	wantError(t, gotorch.ValueError, "same size", func() { functorch.VMap(func(x, y tensor) tensor { return x })(x, gotorch.Ones([]int64{4})) })
	wantError(t, gotorch.ValueError, "chunk_size", func() { functorch.VMap(tensor.Sin, functorch.VMapOptions{ChunkSize: -1}) })
	wantError(t, gotorch.TypeError, "argument", func() { functorch.VMap(tensor.Sin)(tensor{}.Select(0, 0)) })
	captured := gotorch.Zeros([]int64{2})
	wantError(t, gotorch.RuntimeError, "", func() { functorch.VMap(func(x tensor) tensor { return captured.Add_(x) })(x) })
	wantError(t, gotorch.RuntimeError, "would mutate a captured", func() { functorch.Grad(func(x tensor) tensor { captured.Add_(x); return x.Sum() })(x.Select(0, 0)) })
	if gotorch.Item[float32](captured.Sum()) != 0 {
		t.Error("a captured tensor was changed")
	}
}

func TestWhatGradRefuses(t *testing.T) {
	x := floats(1, 2)
	wantError(t, gotorch.RuntimeError, "scalar", func() { functorch.Grad(tensor.Sin)(x) })
	wantError(t, gotorch.RuntimeError, "none", func() { functorch.Grad(func(tensor) tensor { return tensor{} })(x) })
	wantError(t, gotorch.RuntimeError, "loating point", func() { functorch.Grad(func(x tensor) tensor { return x.Sum() })(gotorch.FromSlice([]int64{1})) })
	wantError(t, gotorch.RuntimeError, "backward() called inside", func() { functorch.Grad(func(x tensor) tensor { x.Sum().Backward(); return x.Sum() })(x) })
	wantError(t, gotorch.RuntimeError, "requires_grad_()", func() { functorch.Grad(func(x tensor) tensor { return x.RequiresGrad_().Sum() })(x) })
	wantError(t, gotorch.RuntimeError, "cannot be transformed", func() { functorch.Grad(func(x tensor) tensor { return gotorch.Apply(double{}, x)[0].Sum() })(x) })
	wantError(t, gotorch.TypeError, "nil", func() { functorch.Grad[tensor](nil) })
	wantError(t, gotorch.RuntimeError, "complex", func() { functorch.JacRev(tensor.Sin)(x.To(gotorch.Complex64)) })
	wantError(t, gotorch.ValueError, "greater than 0", func() { functorch.JacRev(tensor.Sin, functorch.JacRevOptions{ChunkSize: 0}) })
	// Numbers may be looked at in Grad, where a tensor stands for one.
	g := functorch.Grad(func(x tensor) tensor {
		if gotorch.Item[float32](x.Sum()) != 3 || gotorch.ToSlice[float32](x)[1] != 2 {
			t.Error("the numbers are wrong")
		}
		return x.Sum()
	})(x)
	wantClose(t, "the gradient", g, floats(1, 1))
}

type double struct{}

func (double) Forward(_ *gotorch.FunctionContext, in []tensor) []tensor {
	return []tensor{in[0].MulScalar(2)}
}
func (double) Backward(_ *gotorch.FunctionContext, grads []tensor) []tensor {
	return []tensor{grads[0].MulScalar(2)}
}

// A tensor that was wrapped in a level that has been left is freed, with what was computed from it.
func TestWhatEscapesIsFreed(t *testing.T) {
	var escaped []tensor
	keep := func(x tensor) tensor {
		escaped = append(escaped, x, x.MulScalar(2))
		return x.Square().Sum()
	}
	functorch.Grad(keep)(floats(1, 2))
	functorch.VMap(keep)(gotorch.Ones([]int64{2, 2}))
	functorch.JVP(keep, floats(1), floats(1))
	for _, x := range escaped {
		wantError(t, gotorch.ValueError, "used after Close", func() { x.AddScalar(1) })
	}
	// One that was made without a scope around it is libtorch's error, and no crash.
	var out tensor
	functorch.VMap(func(x tensor) tensor {
		gotorch.Unscoped(func() { out = x.MulScalar(2) })
		return x
	})(gotorch.Ones([]int64{2, 2}))
	for _, use := range []func(){func() { out.AddScalar(1) }, func() { out.Sum() }, func() { out.Item() }, func() { gotorch.ToSlice[float32](out) }} {
		wantError(t, gotorch.RuntimeError, "", use)
	}
	_, _, _ = out.Shape(), out.String(), out.IsContiguous()
	functorch.Grad(func(x tensor) tensor {
		gotorch.Unscoped(func() { out = x.MulScalar(2) })
		return x.Sum()
	})(floats(1, 2))
	wantClose(t, "what escaped from a gradient", out.AddScalar(1), floats(3, 5)) // as in Python
}

func TestPanicsAndGoexitLeaveAllLevels(t *testing.T) {
	x := gotorch.Ones([]int64{2, 2})
	inside := []func(end func()){
		func(end func()) { functorch.Grad(func(x tensor) tensor { end(); return x.Sum() })(x) },
		func(end func()) { functorch.JVP(func(x tensor) tensor { end(); return x }, x, x) },
		func(end func()) { functorch.VMap(func(x tensor) tensor { end(); return x })(x) },
		func(end func()) {
			functorch.VMap(functorch.JacFwd(functorch.JacRev(func(x tensor) tensor { end(); return x.Sum() })))(x)
		},
		func(end func()) {
			gotorch.InferenceMode(func() { functorch.Grad(func(x tensor) tensor { end(); return x.Sum() })(x) })
		},
	}
	for i, run := range inside {
		func() {
			defer func() {
				if recover() != "stop" {
					t.Errorf("%d: the panic did not arrive", i)
				}
			}()
			run(func() { panic("stop") })
		}()
		wantNoLevels(t)
		if !gotorch.GradEnabled() || gotorch.InferenceModeEnabled() {
			t.Errorf("%d: a mode was left on", i)
		}
		done := make(chan struct{})
		go func() {
			runtime.LockOSThread() // so that the checks are on the same thread
			defer close(done)
			defer wantNoLevels(t)
			run(runtime.Goexit)
		}()
		<-done
	}
}

func TestTransformsRunInParallel(t *testing.T) {
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			x := gotorch.Full([]int64{3}, float64(g+1))
			for range 20 {
				h := functorch.Hessian(func(x tensor) tensor { return x.Pow(3).Sum() })(x)
				_, dy := functorch.JVP(tensor.Sin, x, x)
				if !h.AllClose(gotorch.Diag(x.MulScalar(6))) || !dy.AllClose(x.Mul(x.Cos())) {
					t.Errorf("goroutine %d computed %v and %v", g, h, dy)
					return
				}
			}
		})
	}
	group.Wait()
}

// A goroutine that the function starts has no part in the transform, and must not crash.
func TestOtherGoroutines(t *testing.T) {
	x := gotorch.Ones([]int64{2, 2})
	try := func(x tensor) {
		done := make(chan error)
		go func() { done <- gotorch.Try0(func() { x.MulScalar(2).Sum() }) }()
		if err := <-done; err == nil {
			t.Log("no error") // of a gradient's wrapper
		}
	}
	functorch.VMap(func(x tensor) tensor { try(x); return x })(x)
	functorch.Grad(func(x tensor) tensor { try(x); return x.Sum() })(x)
}

func TestNoHandleIsLeft(t *testing.T) {
	x := gotorch.Randn([]int64{4, 3})
	step := func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			functorch.VMap(functorch.Hessian(func(x tensor) tensor { return x.Pow(3).Sum() }))(x)
			_, vjp := functorch.VJP(tensor.Sin, x)
			vjp(x)
			functorch.JVP(tensor.Sin, x, x)
			gotorch.Try0(func() { functorch.VMap(func(x tensor) tensor { x.Sin().Item(); return x })(x) })
		})
	}
	step()
	collect()
	before := gotorch.MemoryStats().LiveHandles
	for range 20 {
		step()
	}
	collect()
	if after := gotorch.MemoryStats().LiveHandles; after > before+3 {
		t.Errorf("%d handles are left of %d", after, before)
	}
}

func collect() {
	for range 3 {
		runtime.GC()
		gotorch.ReleaseCachedMemory()
	}
}

func TestFunctionalCallRestoresTheModule(t *testing.T) {
	m := nn.Linear(2, 2)
	was := m.Weight
	other := nn.StateDict{"weight": gotorch.Zeros([]int64{2, 2}), "nothing": floats(1)}
	wantClose(t, "the result", functorch.FunctionalCall(m, other, floats(1, 1)), m.Bias.Detach())
	if m.Weight != was {
		t.Error("the weight was not put back")
	}
	func() {
		defer func() { recover() }()
		functorch.FunctionalCallOf(m, other, func() tensor { panic("stop") })
	}()
	wantError(t, gotorch.RuntimeError, "", func() { functorch.FunctionalCall(m, other, floats(1, 1, 1)) })
	if m.Weight != was {
		t.Error("the weight was not put back after a panic")
	}
	strict := functorch.FunctionalCallOptions{Strict: true}
	wantError(t, gotorch.RuntimeError, `Unexpected key(s): "nothing". Missing key(s): "bias"`, func() { functorch.FunctionalCall(m, other, floats(1, 1), strict) })
	wantError(t, gotorch.TypeError, "none", func() { functorch.FunctionalCall(m, nn.StateDict{"weight": {}}, floats(1, 1)) })
	wantError(t, gotorch.TypeError, "nil", func() { functorch.FunctionalCallOf[tensor](nil, other, func() tensor { return floats(1) }) })
	wantError(t, gotorch.ValueError, "multiple dictionaries", func() { functorch.Merge(other, other) })
}

func TestTiedWeights(t *testing.T) {
	a, b := nn.Linear(2, 2), nn.Linear(2, 2)
	b.Weight = a.Weight
	m := nn.Sequential(a, b)
	a.Bias.Detach().Zero_()
	b.Bias.Detach().Zero_()
	x, two := floats(1, 1), gotorch.Eye(2).MulScalar(2)
	wantClose(t, "tied", functorch.FunctionalCall(m, nn.StateDict{"0.weight": two}, x), floats(4, 4))
	wantClose(t, "untied", functorch.FunctionalCall(m, nn.StateDict{"0.weight": two, "1.weight": gotorch.Eye(2)}, x,
		functorch.FunctionalCallOptions{NoTieWeights: true}), floats(2, 2))
	wantError(t, gotorch.ValueError, "which are tied", func() {
		functorch.FunctionalCall(m, nn.StateDict{"0.weight": two, "1.weight": gotorch.Eye(2)}, x)
	})
	if a.Weight != b.Weight {
		t.Error("no longer tied")
	}
}

func TestBatchNormsWithoutStatistics(t *testing.T) {
	m := functorch.ReplaceAllBatchNormModules_(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)))
	if n := len(m.StateDict()); n != 4 {
		t.Errorf("%d tensors are left", n)
	}
	functorch.VMap(func(x tensor) tensor { return m.Forward(x) })(gotorch.Randn([]int64{2, 5, 3}))
}

func TestStackingRefuses(t *testing.T) {
	wantError(t, gotorch.RuntimeError, "got 0", func() { functorch.StackModuleState([]*nn.LinearModule{}) })
	a, b := nn.Linear(2, 2), nn.Linear(2, 2)
	b.Eval()
	wantError(t, gotorch.RuntimeError, "training/eval", func() { functorch.StackModuleState([]*nn.LinearModule{a, b}) })
	wantError(t, gotorch.RuntimeError, "same class", func() { functorch.StackModuleState([]nn.Modular{a, nn.Tanh()}) })
	empty, more := nn.Sequential(), nn.Sequential(nn.Linear(2, 2))
	for _, models := range [][]*nn.SequentialModule{{empty, more}, {more, empty}} {
		wantError(t, gotorch.RuntimeError, "same parameters", func() { functorch.StackModuleState(models) })
	}
	b.Train(true)
	b.Bias.RequiresGrad_(false)
	wantError(t, gotorch.RuntimeError, "requires_grad", func() { functorch.StackModuleState([]*nn.LinearModule{a, b}) })
}

func TestVMapOfOtherForms(t *testing.T) {
	x := gotorch.Randn([]int64{3, 2})
	both := functorch.VMap(func(p pair) (tensor, []tensor) { return p.W.Sin(), []tensor{p.B, p.W} }, functorch.VMapOptions{OutDims: []int64{1, -1}})
	y, list := both(pair{W: x, B: x.Neg()})
	wantClose(t, "the first", y, x.Sin().Transpose2D())
	wantClose(t, "of the list", list[0], x.Neg().Transpose2D())
	sum := functorch.VMap(func(xs ...tensor) tensor { return xs[0].Add(xs[1]) }, functorch.VMapOptions{InDims: []int64{0, functorch.None}})
	wantClose(t, "variadic", sum(x, x.Select(0, 0)), x.Add(x.Select(0, 0)))
	wantClose(t, "chunks", functorch.VMap(tensor.Sin, functorch.VMapOptions{ChunkSize: 2})(x), x.Sin())
	wantClose(t, "what is not mapped", functorch.VMap(func(tensor) tensor { return x })(x), x.Expand([]int64{3, 3, 2}))
	pairwise := functorch.VMap(func(a tensor) tensor { return functorch.VMap(func(b tensor) tensor { return a.Mul(b).Sum() })(x) })
	wantClose(t, "nested", pairwise(x), x.MM(x.Transpose2D()))
	wantClose(t, "empty", functorch.VMap(tensor.Sin)(gotorch.Zeros([]int64{0, 2})), gotorch.Zeros([]int64{0, 2}))
	text := ""
	functorch.VMap(func(x tensor) tensor { text = x.String(); return x })(floats(1, 2))
	if !strings.HasPrefix(text, "BatchedTensor(lvl=1, bdim=0, value=\n    tensor([1., 2.])\n)") {
		t.Error(text)
	}
	functorch.Grad(func(x tensor) tensor { text = x.String(); return x.Sum() })(floats(1, 2))
	if !strings.HasPrefix(text, "GradTrackingTensor(lvl=1, value=\n    tensor([1., 2.]") {
		t.Error(text)
	}
}

// The FLOPs of what a transform computes are those that PyTorch's FlopCounterMode counts.
func TestSmokeFlopsWithinTransforms(t *testing.T) {
	square := func(a gotorch.Tensor) gotorch.Tensor { return a.MM(a) }
	total := func(a gotorch.Tensor) gotorch.Tensor { return square(a).Sum() }
	batch, one := gotorch.Randn([]int64{2, 3, 3}), gotorch.Randn([]int64{3, 3})
	for name, c := range map[string]struct {
		fn   func()
		op   string
		want int64
	}{
		"vmap":         {func() { functorch.VMap(square)(batch) }, "aten.bmm", 108},
		"grad":         {func() { functorch.Grad(total)(one) }, "aten.mm", 162},
		"vmap of grad": {func() { functorch.VMap(functorch.Grad(total))(batch) }, "aten.bmm", 324},
		"none":         {func() { square(one) }, "aten.mm", 54},
	} {
		flops := gotorch.FlopCounterMode(c.fn)
		if len(flops) != 1 || flops[c.op] != c.want {
			t.Errorf("%s: %v, not %s: %d", name, flops, c.op, c.want)
		}
	}
}

func TestCotangentsOfOtherShapesAreRefused(t *testing.T) {
	x := gotorch.Ones([]int64{2, 2})
	_, vjp := functorch.VJP(func(x tensor) tensor { return x.Sum() }, x)
	wantError(t, gotorch.RuntimeError, "Mismatch in shape: grad_output[0] has a shape of torch.Size([2, 2]) and output[0] has a shape of torch.Size([]).",
		func() { vjp(x) })
	wantError(t, gotorch.RuntimeError, "Mismatch in dtype: grad_output[0] has a dtype of torch.complex64 and output[0] has a dtype of torch.float32.",
		func() { vjp(gotorch.Complex(floats(1), floats(1)).Squeeze()) })
	// Where each element of a batch has the right shape, the whole may have another one.
	ys := functorch.VMap(func(c tensor) tensor { return vjp(c) })(floats(1, 2, 3))
	wantClose(t, "a batch of products", ys.Select(0, 2), gotorch.Full([]int64{2, 2}, 3.0))
}

// In a program without Python: that of the conformance tests has PyTorch's own rules.
func TestSecondDerivativesOfWhatHasNoForwardFormula(t *testing.T) {
	x := gotorch.FromSlice([]float64{0.5, -1, 2, 0.25, 1, -0.5}, 2, 3)
	labels := gotorch.FromSlice([]int64{2, 0})
	for name, f := range map[string]func(tensor) tensor{
		"softmax":       func(x tensor) tensor { return x.Softmax(1).Square().Sum() },
		"cross entropy": func(x tensor) tensor { return F.CrossEntropy(x, labels) },
		"log sigmoid":   func(x tensor) tensor { return gotorch.LogSigmoid(x).Square().Sum() },
		"layer norm":    func(x tensor) tensor { return F.LayerNorm(x, []int64{3}).Pow(3).Sum() },
		"batch norm":    func(x tensor) tensor { return F.BatchNorm(x, F.BatchNormOptions{Training: true}).Pow(3).Sum() },
	} {
		wantClose(t, name, functorch.JacFwd(functorch.Grad(f))(x), functorch.JacRev(functorch.Grad(f))(x))
	}
}

func TestWhatIsNotDifferentiatedMayBeChanged(t *testing.T) {
	x, y := floats(2, 3), floats(5, 7)
	g := functorch.Grad2(func(x, y tensor) tensor { return y.Mul_(x).Sum() })(x, y)
	wantClose(t, "the gradient", g, floats(5, 7))
	wantClose(t, "what was changed", y, floats(10, 21))
}

func TestResultsAreOrdinaryTensors(t *testing.T) {
	x := floats(2, 3)
	both := func(x tensor) (tensor, tensor) { return x.Square().Sum(), x.Square() }
	var results []tensor
	g, value, aux := functorch.GradAux(both)(x)
	results = append(results, g, value, aux)
	value, _, aux = functorch.VJPAux(both, x)
	results = append(results, value, aux)
	value, tangent, aux := functorch.JVPAux(both, x, x)
	results = append(results, value, tangent, aux)
	jac, aux := functorch.JacRevAux(both)(x)
	results = append(results, jac, aux)
	jac, aux = functorch.JacFwdAux(both)(x)
	results = append(results, jac, aux)
	for i, r := range results {
		if text := r.String(); !strings.HasPrefix(text, "tensor(") {
			t.Errorf("result %d is %s", i, text)
		}
	}
}

func TestAVJPMayBeCalledInAnyMode(t *testing.T) {
	x := floats(2, 3)
	_, vjp := functorch.VJP(func(x tensor) tensor { return x.Exp().Mul(x) }, x)
	want := vjp(x)
	modes := map[string]func(func()){
		"no grad":   gotorch.NoGrad,
		"inference": gotorch.InferenceMode,
		"neither":   func(fn func()) { gotorch.NoGrad(func() { gotorch.InferenceMode(fn) }) },
	}
	for name, mode := range modes {
		for range 2 {
			var got tensor
			mode(func() { got = vjp(x) })
			wantClose(t, name, got, want)
		}
	}
	// A cotangent of inference mode, and a graph that is made in it.
	gotorch.InferenceMode(func() { wantClose(t, "a cotangent made there", vjp(x.MulScalar(1)), want) })
}

func TestChunksComeOutWhereTheBatchDoes(t *testing.T) {
	x := gotorch.Arange(30).Reshape([]int64{5, 2, 3}).To(gotorch.Float32)
	for _, dim := range []int64{0, 1, 2, -1, -2} {
		opt := functorch.VMapOptions{OutDims: []int64{dim}}
		want := functorch.VMap(tensor.Sin, opt)(x)
		opt.ChunkSize = 2
		wantClose(t, "in chunks", functorch.VMap(tensor.Sin, opt)(x), want)
	}
}

// The result that belongs to the first column, as Python's.
func TestJacFwdAuxIsThatOfTheFirstDirection(t *testing.T) {
	x := floats(2, 3, 4)
	gotorch.ManualSeed(3)
	all := functorch.VMap(func(a tensor) tensor { return a.Mul(gotorch.Rand([]int64{3})) }, functorch.VMapOptions{Randomness: "different"})(gotorch.Ones([]int64{3, 3}))
	gotorch.ManualSeed(3)
	_, aux := functorch.JacFwdAux(func(x tensor) (tensor, tensor) {
		noise := gotorch.Rand([]int64{3})
		return x.Mul(noise), noise
	}, functorch.JacFwdOptions{Randomness: "different"})(x)
	wantClose(t, "aux", aux, all.Select(0, 0))
}
