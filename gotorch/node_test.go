package gotorch_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotorch.dev/gotorch"
)

func ExampleTensor_GradFn() {
	w := gotorch.Ones([]int64{2, 3}, gotorch.TensorOptions{RequiresGrad: true})
	loss := w.MM(gotorch.Ones([]int64{3, 1})).ReLU().Sum()
	for n := loss.GradFn(); n != nil; n = n.NextFunctions()[0].Node {
		fmt.Println(n.Name(), len(n.NextFunctions()))
		if n.Variable().Defined() {
			fmt.Println("of a leaf of shape", n.Variable().Shape())
			break
		}
	}
	// Output:
	// SumBackward0 1
	// ReluBackward0 1
	// MmBackward0 2
	// torch::autograd::AccumulateGrad 0
	// of a leaf of shape [2 3]
}

func leafOf(shape ...int64) gotorch.Tensor {
	return gotorch.Ones(shape, gotorch.TensorOptions{RequiresGrad: true})
}

// settle waits until the collector has found what nobody uses any more.
func settle(live func() int64, want int64) int64 {
	for range 200 {
		runtime.GC()
		if live() <= want {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	return live()
}

func liveTensors() int64 { return gotorch.MemoryStats().LiveHandles }

func TestTheGraphIsThere(t *testing.T) {
	x, y := leafOf(2), leafOf(2)
	if x.GradFn() != nil || gotorch.Ones([]int64{1}).GradFn() != nil {
		t.Error("a leaf has a node")
	}
	both := x.Mul(y)
	z := both.Add(both)
	n := z.GradFn()
	next := n.NextFunctions()
	if n.Name() != "AddBackward0" || n.String() != "AddBackward0" || len(next) != 2 || next[0].Node.ID() != next[1].Node.ID() || next[0].Node.ID() == n.ID() {
		t.Error(n, next)
	}
	mul := both.GradFn()
	if mul.ID() != next[0].Node.ID() {
		t.Error("one node has two numbers")
	}
	leaves := mul.NextFunctions()
	if leaves[0].Node.Variable().T == nil || !gotorch.Equal(leaves[0].Node.Variable(), x) || leaves[0].Node.ID() != x.GetGradientEdge().Node.ID() {
		t.Error("the first leaf is not x")
	}
	if mul.Variable().Defined() {
		t.Error("a node that accumulates nothing has a leaf")
	}
	// An input without a gradient has no node; a result has its number.
	if next := x.MulScalar(2).Add(gotorch.Ones([]int64{2})).GradFn().NextFunctions(); next[1].Node != nil || next[0].Node == nil {
		t.Error(next)
	}
	_, indices := gotorch.Ones([]int64{3}).MaxDim(0)
	if indices.GradFn() != nil {
		t.Error("integers have a node")
	}
	parts := leafOf(4).Split(2)
	if edge := parts[1].GetGradientEdge(); edge.Input != 1 || edge.Node.ID() != parts[0].GradFn().ID() {
		t.Error(edge)
	}
	if err := gotorch.Try0(func() { gotorch.Ones([]int64{1}).GetGradientEdge() }); !errors.Is(err, gotorch.RuntimeError) {
		t.Error(err)
	}
	if err := gotorch.Try0(func() { x.GradFn().Name() }); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
	if name := gotorch.Apply(squareOf{}, x)[0].GradFn().Name(); name != "squareOfBackward" {
		t.Error(name)
	}
}

type squareOf struct{}

func (squareOf) Forward(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	ctx.SaveForBackward(in...)
	if !ctx.NeedsInputGrad(0) {
		panic("no gradient is wanted")
	}
	return []gotorch.Tensor{in[0].Square()}
}

func (squareOf) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	for _, at := range []int{-1, 1, 99} {
		if err := gotorch.Try0(func() { ctx.NeedsInputGrad(at) }); !errors.Is(err, gotorch.IndexError) {
			panic(fmt.Sprint(at, err))
		}
	}
	return []gotorch.Tensor{grads[0].Mul(ctx.SavedTensors()[0]).MulScalar(2)}
}

func TestNodesGoAway(t *testing.T) {
	live := func() int64 { return gotorch.MemoryStats().LiveHandles }
	func() {
		loss := leafOf(3).Exp().Sum()
		for range 100 {
			_ = loss.GradFn().NextFunctions()[0].Node.NextFunctions()
		}
	}()
	before := settle(live, 0)
	func() {
		for range 100 {
			_ = leafOf(3).Exp().Sum().GradFn().NextFunctions()
		}
	}()
	if after := settle(live, before); after > before {
		t.Errorf("%d handles are left", after-before)
	}
}

func TestAHookOfSeveralGradients(t *testing.T) {
	x, y, z := leafOf(2), leafOf(3), leafOf(4)
	var seen []string
	note := func(grads []gotorch.Tensor) {
		var s []string
		for _, g := range grads {
			if g.Defined() {
				s = append(s, fmt.Sprint(g.Shape()))
			} else {
				s = append(s, "none")
			}
		}
		seen = append(seen, strings.Join(s, " "))
	}
	all := gotorch.RegisterMultiGradHook([]gotorch.Tensor{x, y, z}, note)
	first := 0
	one := gotorch.RegisterMultiGradHookAny([]gotorch.Tensor{x, y, z}, func(grad gotorch.Tensor) { first++ })
	x.Sum().Mul(y.Exp().Sum()).Backward()
	z.Sum().Backward()
	x.Sum().Add(y.Sum()).Add(z.Sum()).Add(x.Square().Sum()).Backward()
	// As in Python a pass that runs the node of a tensor has it, also where only some gradients are asked for.
	x.Sum().Add(y.Sum()).Backward(gotorch.BackwardOptions{Inputs: []gotorch.Tensor{y}})
	want := []string{"[2] [3] none", "none none [4]", "[2] [3] [4]", "none [3] none"}
	if !slices.Equal(seen, want) || first != 4 {
		t.Errorf("got %q and %d, want %q and 4", seen, first, want)
	}
	all.Remove()
	one.Remove()
	x.Sum().Backward()
	if len(seen) != 4 || first != 4 {
		t.Error("a hook that was removed is called")
	}
	// On what is computed it is also called by Grad, and for two results of one node.
	parts := x.MulScalar(2).Split(1)
	seen = nil
	gotorch.RegisterMultiGradHook(parts, note)
	gotorch.Grad([]gotorch.Tensor{parts[0].Mul(parts[1]).Sum()}, []gotorch.Tensor{x})
	if !slices.Equal(seen, []string{"[1] [1]"}) {
		t.Errorf("%q", seen)
	}
	// A pass that fails has left nothing for the next, nor kept its gradients.
	u, v := x.MulScalar(2), y.MulScalar(3)
	fail := true
	seen = nil
	gotorch.RegisterMultiGradHook([]gotorch.Tensor{u, v}, note)
	v.RegisterHook(func(g gotorch.Tensor) (none gotorch.Tensor) {
		if fail {
			panic("no")
		}
		return none
	})
	loss := u.Sum().Add(v.Sum())
	if err := gotorch.Try0(func() { loss.Backward(gotorch.BackwardOptions{RetainGraph: new(true)}) }); err == nil {
		t.Error("no error")
	}
	fail, seen = false, nil
	loss.Backward()
	if !slices.Equal(seen, []string{"[2] [3]"}) {
		t.Errorf("%q", seen)
	}
	for _, bad := range []func(){
		func() { gotorch.RegisterMultiGradHook([]gotorch.Tensor{x}, nil) },
		func() { gotorch.RegisterMultiGradHookAny([]gotorch.Tensor{x}, nil) },
		func() { x.RegisterHook(nil) },
		func() { x.RegisterPostAccumulateGradHook(nil) },
		func() { gotorch.Apply(nil, x) },
		func() { gotorch.SavedTensorsHooks(nil, func(any) (t gotorch.Tensor) { return }, func() {}) },
	} {
		if err := gotorch.Try0(bad); !errors.Is(err, gotorch.TypeError) {
			t.Error(err)
		}
	}
	if err := gotorch.Try0(func() { gotorch.RegisterMultiGradHook([]gotorch.Tensor{x, gotorch.Ones([]int64{1})}, note) }); !errors.Is(err, gotorch.RuntimeError) {
		t.Error(err)
	}
}

// As the documentation of PyTorch says it; Python itself calls the hook twice, or not at all, where a tensor is what the pass
// begins with.
func TestAHookOfSeveralGradientsIsForThoseThatThePassComputes(t *testing.T) {
	x, unused := leafOf(2), leafOf(3)
	a := x.Tanh()
	b := a.Exp()
	other := unused.Exp()
	_ = other.Sin()
	ones := gotorch.Ones([]int64{2})
	for _, c := range []struct {
		tensors, inputs []gotorch.Tensor
		want            string
	}{
		{[]gotorch.Tensor{b, a}, []gotorch.Tensor{x}, "[true true]"},
		{[]gotorch.Tensor{b, a}, []gotorch.Tensor{b}, "[true false]"},
		{[]gotorch.Tensor{a, unused}, []gotorch.Tensor{x, unused}, "[true false]"},
		{[]gotorch.Tensor{a, other}, []gotorch.Tensor{x, other}, "[true false]"},
		{[]gotorch.Tensor{a, other}, []gotorch.Tensor{other}, ""},
	} {
		got := ""
		h := gotorch.RegisterMultiGradHook(c.tensors, func(grads []gotorch.Tensor) {
			got += fmt.Sprint([]bool{grads[0].Defined(), grads[1].Defined()})
		})
		gotorch.Grad([]gotorch.Tensor{b}, c.inputs, gotorch.GradOptions{GradOutputs: []gotorch.Tensor{ones}, RetainGraph: new(true), AllowUnused: true})
		if h.Remove(); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	// An error is one of its pass alone: the next one does not wait for it.
	calls := 0
	gotorch.RegisterMultiGradHook([]gotorch.Tensor{a, x}, func([]gotorch.Tensor) { calls++ })
	for range 2 {
		err := gotorch.Try0(func() {
			gotorch.Grad([]gotorch.Tensor{b}, []gotorch.Tensor{x}, gotorch.GradOptions{GradOutputs: []gotorch.Tensor{ones}, RetainGraph: new(true)})
		})
		if !errors.Is(err, gotorch.RuntimeError) {
			t.Error(err)
		}
	}
	if b.Backward(gotorch.BackwardOptions{Gradient: ones}); calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

// Nobody has to remove a hook that goes with its tensors, for the graph would stay with it.
func TestHooksOfSeveralGradientsGoAway(t *testing.T) {
	var gone atomic.Int64
	const each = 3
	register := func(name string, tensors func() []gotorch.Tensor, with func([]gotorch.Tensor, func())) {
		for range each {
			func() {
				object := new([100]int)
				runtime.AddCleanup(object, func(struct{}) { gone.Add(1) }, struct{}{})
				ts := tensors()
				with(ts, func() { object[0]++ })
				ts[0].Mul(ts[1]).Sum().Backward()
			}()
		}
	}
	leaves := func() []gotorch.Tensor { return []gotorch.Tensor{leafOf(2), leafOf(2)} }
	computed := func() []gotorch.Tensor { return []gotorch.Tensor{leafOf(2).Exp(), leafOf(2).Sin()} }
	all := func(ts []gotorch.Tensor, fn func()) {
		gotorch.RegisterMultiGradHook(ts, func([]gotorch.Tensor) { fn() })
	}
	first := func(ts []gotorch.Tensor, fn func()) {
		gotorch.RegisterMultiGradHookAny(ts, func(gotorch.Tensor) { fn() })
	}
	register("leaves", leaves, all)
	register("computed", computed, all)
	register("leaves, any", leaves, first)
	register("computed, any", computed, first)
	for range 200 {
		if runtime.GC(); gone.Load() == 4*each {
			return
		}
		time.Sleep(5 * time.Millisecond)
		leafOf(1) // what makes tensors looks for hooks that are gone
		gotorch.RegisterMultiGradHook(leaves(), func([]gotorch.Tensor) {}).Remove()
	}
	t.Errorf("%d of %d hooks are gone", gone.Load(), 4*each)
}

func TestGradsInABatch(t *testing.T) {
	x, y := gotorch.Randn([]int64{3}, gotorch.TensorOptions{RequiresGrad: true}), gotorch.Randn([]int64{3}, gotorch.TensorOptions{RequiresGrad: true})
	out := []gotorch.Tensor{x.Mul(y).Exp(), gotorch.Apply(squareOf{}, x)[0].Sum()}
	grads := []gotorch.Tensor{gotorch.Randn([]int64{5, 3}), gotorch.Randn([]int64{5})}
	unused := leafOf(2)
	in := []gotorch.Tensor{x, y, unused}
	got := gotorch.Grad(out, in, gotorch.GradOptions{GradOutputs: grads, IsGradsBatched: true, RetainGraph: new(true), AllowUnused: true})
	for i := range int64(5) {
		want := gotorch.Grad(out, in, gotorch.GradOptions{GradOutputs: []gotorch.Tensor{grads[0].Select(0, i), grads[1].Select(0, i)}, RetainGraph: new(true), AllowUnused: true})
		for k := range 2 {
			if !gotorch.AllClose(got[k].Select(0, i), want[k]) {
				t.Errorf("gradient %d of %d: %v, want %v", k, i, got[k].Select(0, i), want[k])
			}
		}
	}
	if got[2].Defined() || fmt.Sprint(got[0].Shape(), got[1].Shape()) != "[5 3] [5 3]" {
		t.Error(got)
	}
	for _, bad := range [][]gotorch.Tensor{nil, {grads[0], {}}, {grads[0].Narrow(0, 0, 4), grads[1]}, {gotorch.Ones([]int64{}), grads[1]}} {
		err := gotorch.Try0(func() {
			gotorch.Grad(out, in[:2], gotorch.GradOptions{GradOutputs: bad, IsGradsBatched: true, RetainGraph: new(true)})
		})
		if len(bad) == 2 && bad[1].T == nil {
			if err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, gotorch.ValueError) {
			t.Error(bad, err)
		}
	}
}

func TestSavedTensorsGoThroughHooks(t *testing.T) {
	x := gotorch.Randn([]int64{4, 4}, gotorch.TensorOptions{RequiresGrad: true})
	model := func() gotorch.Tensor { return x.MM(x).Sin().Mul(x).Sum() }
	want := gotorch.Grad([]gotorch.Tensor{model()}, []gotorch.Tensor{x})[0]
	packed, unpacked := 0, 0
	var loss gotorch.Tensor
	gotorch.Scope0(func(s *gotorch.ScopeHandle) {
		gotorch.SavedTensorsHooks(func(t gotorch.Tensor) any {
			packed++
			if gotorch.GradEnabled() {
				panic("grad mode is on")
			}
			return gotorch.ToSlice[float32](t.AddScalar(0))
		}, func(p any) gotorch.Tensor {
			unpacked++
			return gotorch.FromSlice(p.([]float32), 4, 4)
		}, func() { loss = model() })
		s.Keep(loss)
	})
	if packed != 5 || unpacked != 0 { // x and x of the product, what Sin gets, and both that Mul gets
		t.Errorf("%d are packed and %d unpacked", packed, unpacked)
	}
	for range 2 {
		if got := gotorch.Grad([]gotorch.Tensor{loss}, []gotorch.Tensor{x}, gotorch.GradOptions{RetainGraph: new(true)})[0]; !gotorch.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if unpacked != 10 {
		t.Errorf("%d are unpacked", unpacked)
	}
	outside := x.Exp().Sum()
	if outside.Backward(); packed != 5 {
		t.Error("what is outside is packed")
	}
	gotorch.SaveOnCPU(func() { loss = model() })
	if got := gotorch.Grad([]gotorch.Tensor{loss}, []gotorch.Tensor{x})[0]; !gotorch.Equal(got, want) {
		t.Errorf("on the CPU: got %v, want %v", got, want)
	}
}

// The innermost hooks are called, a checkpoint's included, whose inputs are packed.
func TestSavedTensorsHooksNest(t *testing.T) {
	x := gotorch.Randn([]int64{3}, gotorch.TensorOptions{RequiresGrad: true})
	count := func(n *int, fn func()) {
		gotorch.SavedTensorsHooks(func(t gotorch.Tensor) any { *n++; return t }, func(p any) gotorch.Tensor { return p.(gotorch.Tensor) }, fn)
	}
	var outer, inner int
	var y gotorch.Tensor
	count(&outer, func() {
		y = x.Sin()
		count(&inner, func() { y = y.Sin() })
		y = gotorch.Checkpoint(func(x gotorch.Tensor) gotorch.Tensor {
			y := x.Sin().Sin()
			count(&inner, func() { y = y.Sin() })
			return y
		}, y)
	})
	if outer != 2 || inner != 2 {
		t.Errorf("outer %d, inner %d", outer, inner)
	}
	want := gotorch.Grad([]gotorch.Tensor{x.Sin().Sin().Sin().Sin().Sin().Sum()}, []gotorch.Tensor{x})[0]
	if got := gotorch.Grad([]gotorch.Tensor{y.Sum()}, []gotorch.Tensor{x})[0]; !gotorch.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSavedTensorsHooksThatFail(t *testing.T) {
	x := leafOf(3)
	same := func(p any) gotorch.Tensor { return p.(gotorch.Tensor) }
	var y gotorch.Tensor
	fails := true
	err := gotorch.Try0(func() {
		gotorch.SavedTensorsHooks(func(t gotorch.Tensor) any {
			if fails {
				fails = false
				panic(&gotorch.Error{Kind: gotorch.RuntimeError, Msg: "pack"})
			}
			return t
		}, same, func() { y = x.Exp(); y = y.Sin() })
	})
	if err == nil || !strings.Contains(err.Error(), "pack") {
		t.Error(err)
	}
	if y.Sum().Backward(); !x.Grad().Defined() {
		t.Error("what was not packed is not there")
	}
	for name, unpack := range map[string]func(any) gotorch.Tensor{
		"unpack returned none":                func(any) (none gotorch.Tensor) { return none },
		"where one of shape [3], torch.float": func(any) gotorch.Tensor { return gotorch.Ones([]int64{4}) },
		"torch.float64 on cpu": func(any) gotorch.Tensor {
			return gotorch.Ones([]int64{3}, gotorch.TensorOptions{DType: gotorch.Float64})
		},
		"no such thing": func(any) gotorch.Tensor { panic("no such thing") },
	} {
		gotorch.SavedTensorsHooks(func(t gotorch.Tensor) any { return nil }, unpack, func() { y = x.Exp().Sum() })
		if err := gotorch.Try0(func() { y.Backward() }); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	// A panic in the function ends the hooks.
	_ = gotorch.Try0(func() {
		gotorch.SavedTensorsHooks(func(gotorch.Tensor) any { panic("no") }, same, func() { panic(&gotorch.Error{Msg: "stop"}) })
	})
	x.Exp().Sum().Backward()
	// What it had saved and was not packed is the graph's: nothing is packed after the function has ended.
	late := 0
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = gotorch.Try0(func() {
		gotorch.SavedTensorsHooks(func(t gotorch.Tensor) any { late++; return t }, same, func() {
			y = x.Exp().Sum()
			panic(&gotorch.Error{Msg: "stop"})
		})
	})
	packed := late
	gotorch.SavedTensorsHooks(func(t gotorch.Tensor) any { return t }, same, func() { x.Exp() })
	if y.Backward(); late != packed {
		t.Error("a tensor was packed after the function had ended")
	}
}

// A call by name, which may change what an op before has saved, comes after that is packed.
func TestSavedTensorsArePackedBeforeTheyChange(t *testing.T) {
	x := leafOf(3)
	var y gotorch.Tensor
	gotorch.SavedTensorsHooks(func(t gotorch.Tensor) any { return t.Clone() }, func(p any) gotorch.Tensor { return p.(gotorch.Tensor) }, func() {
		h := x.MulScalar(3)
		y = h.Square()
		gotorch.Call("aten::mul_", "Scalar", h.Detach(), 5.0)
	})
	y.Sum().Backward()
	if got := gotorch.ToSlice[float32](x.Grad()); got[0] != 18 {
		t.Errorf("got %v, want 18", got)
	}
}

func TestWhatIsPackedGoesAway(t *testing.T) {
	run := func() {
		x := leafOf(300, 300)
		var y gotorch.Tensor
		gotorch.SavedTensorsHooks(func(t gotorch.Tensor) any { return t.Clone() }, func(p any) gotorch.Tensor { return p.(gotorch.Tensor) },
			func() { y = x.Exp().Sin().Sum() })
		y.Backward()
		hooks := gotorch.RegisterMultiGradHook([]gotorch.Tensor{x}, func([]gotorch.Tensor) {})
		x.Exp().Sum().Backward()
		hooks.Remove()
	}
	run()
	before := settle(liveTensors, 0)
	for range 20 {
		run()
	}
	if after := settle(liveTensors, before); after > before {
		t.Errorf("%d handles are left", after-before)
	}
}

func TestSavedTensorsHooksOfManyGoroutines(t *testing.T) {
	done := make(chan error)
	for n := range 8 {
		go func() {
			done <- gotorch.Try0(func() {
				for range 20 {
					x := gotorch.Full([]int64{5}, float64(n), gotorch.TensorOptions{RequiresGrad: true, DType: gotorch.Float64})
					var y gotorch.Tensor
					gotorch.SavedTensorsHooks(func(t gotorch.Tensor) any { return gotorch.ToSlice[float64](t) },
						func(p any) gotorch.Tensor { return gotorch.FromSlice(p.([]float64)) }, func() { y = x.Exp().Sum() })
					y.Backward()
					if got := gotorch.ToSlice[float64](x.Grad())[0]; math.Abs(got-math.Exp(float64(n))) > 1e-9*got {
						panic(got)
					}
				}
			})
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
