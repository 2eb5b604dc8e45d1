package gotorch_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotorch.dev/gotorch"
)

func leaf(values ...float32) gotorch.Tensor { return gotorch.FromSlice(values).RequiresGrad_() }

func expect(t *testing.T, got gotorch.Tensor, want string) {
	t.Helper()
	if s := got.String(); s != want {
		t.Errorf("got %s, want %s", s, want)
	}
}

// mustFail returns the *Error that fn panics with, which must have this kind and text.
func mustFail(t *testing.T, kind gotorch.ErrorKind, text string, fn func()) *gotorch.Error {
	t.Helper()
	err := gotorch.Try0(fn)
	var e *gotorch.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want %s: %s", err, kind, text)
	}
	if e.Kind != kind || !strings.Contains(e.Msg, text) {
		t.Errorf("got %v, want %s: %s", e, kind, text)
	}
	return e
}

// eventually waits for finalisers and cleanups, which run in goroutines of their own.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		gotorch.Collect()
		if holds() {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s, still after five minutes", what)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// leavesNothing runs fn and checks that the tensors and callbacks which it made go away. Other tests
// leave nothing behind that is still being freed.
func leavesNothing(t *testing.T, fn func()) {
	t.Helper()
	fn() // what is made once and kept
	var handles int64
	var lent int
	settle := func() bool {
		before := handles
		handles, lent = gotorch.MemoryStats().LiveHandles, gotorch.Lent()
		return before == handles
	}
	eventually(t, "live handles do not settle", settle)
	fn()
	eventually(t, fmt.Sprintf("more than the %d handles and %d callbacks of the start live", handles, lent), func() bool {
		return gotorch.MemoryStats().LiveHandles <= handles && gotorch.Lent() <= lent
	})
}

func TestSmokeBackward(t *testing.T) {
	// >>> x = torch.tensor([1., 2., 3.], requires_grad=True); (x ** 3).sum().backward(); x.grad
	x := leaf(1, 2, 3)
	x.Pow(3).Sum().Backward()
	expect(t, x.Grad(), "tensor([ 3., 12., 27.])")
	x.Pow(3).Sum().Backward()
	expect(t, x.Grad(), "tensor([ 6., 24., 54.])")
	x.SetGrad(gotorch.Tensor{})
	if x.Grad().Defined() {
		t.Error("the gradient was not cleared")
	}
}

func TestBackwardTakesAGradient(t *testing.T) {
	x := leaf(1, 2)
	x.Mul(x).Backward(gotorch.BackwardOptions{Gradient: floats(1, 10)})
	expect(t, x.Grad(), "tensor([ 2., 40.])")

	a, b := leaf(1), leaf(2)
	gotorch.Backward([]gotorch.Tensor{a.Mul(b), b.Mul(b)}, []gotorch.Tensor{{}, floats(3)})
	expect(t, a.Grad(), "tensor([2.])")
	expect(t, b.Grad(), "tensor([13.])")
}

func TestBackwardReachesOnlyItsInputs(t *testing.T) {
	a, b := leaf(1), leaf(2)
	a.Mul(b).Backward(gotorch.BackwardOptions{Inputs: []gotorch.Tensor{b}})
	if a.Grad().Defined() {
		t.Error("a is not among the inputs and has a gradient")
	}
	expect(t, b.Grad(), "tensor([1.])")
}

func TestBackwardTwiceNeedsTheGraph(t *testing.T) {
	x := leaf(1, 2, 3)
	y := x.Mul(x).Sum()
	y.Backward(gotorch.BackwardOptions{RetainGraph: new(true)})
	y.Backward()
	expect(t, x.Grad(), "tensor([ 4.,  8., 12.])")
	mustFail(t, gotorch.RuntimeError, "Trying to backward through the graph a second time", func() { y.Backward() })

	z := x.Mul(x).Sum()
	z.Backward(gotorch.BackwardOptions{CreateGraph: true, RetainGraph: new(false)})
	mustFail(t, gotorch.RuntimeError, "a second time", func() { z.Backward() })
	x.SetGrad(gotorch.Tensor{}) // it is part of a graph that leads to x
}

func TestBackwardRefuses(t *testing.T) {
	x := leaf(1, 2)
	mustFail(t, gotorch.RuntimeError, "grad can be implicitly created only for scalar outputs", func() { x.Mul(x).Backward() })
	mustFail(t, gotorch.RuntimeError, "does not require grad and does not have a grad_fn", func() { floats(1).Backward() })
	mustFail(t, gotorch.RuntimeError, "argument 'inputs' must have a tensor", func() {
		gotorch.Grad([]gotorch.Tensor{gotorch.Ones(nil).RequiresGrad_()}, nil)
	})
	mustFail(t, gotorch.RuntimeError, "'inputs' argument to backward() cannot be empty", func() {
		x.Sum().Backward(gotorch.BackwardOptions{Inputs: []gotorch.Tensor{}})
	})
	mustFail(t, gotorch.TypeError, "'tensors' is the zero Tensor", func() { gotorch.Tensor{}.Backward() })
	mustFail(t, gotorch.TypeError, "'Inputs' is the zero Tensor", func() {
		x.Sum().Backward(gotorch.BackwardOptions{Inputs: make([]gotorch.Tensor, 1)})
	})
	mustFail(t, gotorch.RuntimeError, "as many tensors as 'tensors'", func() {
		gotorch.Backward([]gotorch.Tensor{x.Sum()}, []gotorch.Tensor{floats(1), floats(1)})
	})
	mustFail(t, gotorch.ValueError, "used after Close", func() {
		y := x.Sum()
		y.Close()
		y.Backward()
	})
}

func TestGradRefusesGradientsOfOtherOutputs(t *testing.T) {
	w := leaf(2)
	out := w.Mul(w)
	for _, n := range []int{1, 3} {
		mustFail(t, gotorch.RuntimeError, "argument 'GradOutputs' must have as many tensors as 'outputs'", func() {
			gotorch.Grad([]gotorch.Tensor{out, out}, []gotorch.Tensor{w}, gotorch.GradOptions{
				GradOutputs: slices.Repeat([]gotorch.Tensor{floats(1)}, n),
			})
		})
	}
}

func TestGradOfHigherOrder(t *testing.T) {
	// >>> g, = torch.autograd.grad((x ** 4).sum(), [x], create_graph=True), and so on
	x := leaf(1, 2, 3)
	of := func(y gotorch.Tensor, more bool) gotorch.Tensor {
		return gotorch.Grad([]gotorch.Tensor{y.Sum()}, []gotorch.Tensor{x}, gotorch.GradOptions{CreateGraph: more})[0]
	}
	first := of(x.Pow(4), true)
	second := of(first, true)
	third := of(second, false)
	expect(t, first.Detach(), "tensor([  4.,  32., 108.])")
	expect(t, second.Detach(), "tensor([ 12.,  48., 108.])")
	expect(t, third, "tensor([24., 48., 72.])")
	if third.RequiresGrad() || x.Grad().Defined() {
		t.Error("Grad made a graph unasked, or touched x.Grad")
	}
}

// Calls on tensors that autograd has nothing to do with go past it. It must find them again when a
// change in place makes it look after them.
//
//	>>> w = torch.tensor([2.0, 3.0], requires_grad=True)
//	>>> a = torch.ones(2, 2); v = a.t(); u = a[:1]; v.mul_(w)
//	>>> a.requires_grad, v.is_leaf, v._base is a, u.requires_grad
//	(True, False, True, True)
//	>>> (a[0] * u).sum().backward(); w.grad
//	tensor([8., 0.])
func TestAutogradFindsWhatWasMadeWithoutIt(t *testing.T) {
	w := leaf(2, 3)
	a := gotorch.Ones([]int64{2, 2})
	v := a.Transpose(0, 1)
	u := a.Narrow(0, 0, 1)
	v.Mul_(w)
	if !a.RequiresGrad() || v.IsLeaf() || !u.RequiresGrad() {
		t.Error("the change of a view was not recorded")
	}
	a.Select(0, 0).Mul(u).Sum().Backward()
	expect(t, w.Grad(), "tensor([8., 0.])")

	before := v.Version()
	b := gotorch.Ones([]int64{2})
	c := b.View([]int64{2, 1})
	b.Add_(b)
	if c.Version() != 1 || v.Version() != before {
		t.Errorf("versions %d and %d", c.Version(), v.Version())
	}
}

func TestGradOfUnusedInputs(t *testing.T) {
	x, w := leaf(1, 2, 3), leaf(1, 1)
	out, in := func() []gotorch.Tensor { return []gotorch.Tensor{x.Mul(x).Sum()} }, []gotorch.Tensor{x, w}
	mustFail(t, gotorch.RuntimeError, "appears to not have been used in the graph", func() { gotorch.Grad(out(), in) })
	if g := gotorch.Grad(out(), in, gotorch.GradOptions{AllowUnused: true}); g[1].Defined() {
		t.Error("the gradient of an unused input is", g[1])
	}
	g := gotorch.Grad(out(), in, gotorch.GradOptions{MaterializeGrads: true, GradOutputs: []gotorch.Tensor{floats(3).Squeeze()}})
	expect(t, g[0], "tensor([ 6., 12., 18.])")
	expect(t, g[1], "tensor([0., 0.])")
}

func TestLeaves(t *testing.T) {
	x := leaf(1, 2)
	y := x.MulScalar(2)
	if !x.IsLeaf() || y.IsLeaf() || !y.RequiresGrad() || x.Detach().RequiresGrad() || !floats(1).IsLeaf() {
		t.Error("leaves and others are confused")
	}
	if x.GradFnName() != "" || y.GradFnName() != "MulBackward1" {
		t.Errorf("grad functions are %q and %q", x.GradFnName(), y.GradFnName())
	}
	y.RetainGrad()
	y.Mul(y).Sum().Backward()
	expect(t, y.Grad(), "tensor([4., 8.])")
	if x.RequiresGrad_(false).RequiresGrad() {
		t.Error("RequiresGrad_(false) had no effect")
	}
	mustFail(t, gotorch.RuntimeError, "you can only change requires_grad flags of leaf variables", func() { y.RequiresGrad_(false) })
	mustFail(t, gotorch.RuntimeError, "floating point", func() { gotorch.FromSlice([]int64{1}).RequiresGrad_() })
	mustFail(t, gotorch.RuntimeError, "can't retain_grad on Tensor that has requires_grad=False", func() { floats(1).RetainGrad() })
}

func TestSetGradChecks(t *testing.T) {
	x := leaf(1, 2, 3)
	g := floats(1, 2, 3)
	x.SetGrad(g)
	if x.Grad().UseCount() != g.UseCount() || !x.Grad().SharesStorage(g) {
		t.Error("the gradient is a copy")
	}
	mustFail(t, gotorch.RuntimeError, "attempting to assign a gradient of size '[2]' to a tensor of size '[3]'", func() { x.SetGrad(floats(1, 2)) })
	mustFail(t, gotorch.RuntimeError, "dtype 'Double'", func() { x.SetGrad(g.To(gotorch.Float64)) })
	mustFail(t, gotorch.RuntimeError, "its own grad", func() { x.SetGrad(x) })
	mustFail(t, gotorch.RuntimeError, "device 'meta'", func() { x.SetGrad(g.To(gotorch.Meta)) })
	expect(t, x.Grad(), "tensor([1., 2., 3.])")
}

func TestHooksRunInOrderAndReplaceTheGradient(t *testing.T) {
	x := leaf(1, 2)
	var seen []string
	first := x.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor {
		seen = append(seen, "a"+g.String())
		return g.MulScalar(10)
	})
	x.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor {
		seen = append(seen, "b"+g.String())
		return gotorch.Tensor{}
	})
	x.RegisterPostAccumulateGradHook(func(x gotorch.Tensor) { seen = append(seen, "post"+x.Grad().String()) })
	x.Mul(x).Sum().Backward()
	if got, want := strings.Join(seen, " "), "atensor([2., 4.]) btensor([20., 40.]) posttensor([20., 40.])"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	first.Remove()
	first.Remove()
	x.SetGrad(gotorch.Tensor{})
	x.Mul(x).Sum().Backward()
	expect(t, x.Grad(), "tensor([2., 4.])")
}

func TestHookOfAnInnerTensor(t *testing.T) {
	x := leaf(1, 2)
	parts := x.MulScalar(2).Unbind() // two outputs of one node
	parts[1].RegisterHook(func(g gotorch.Tensor) gotorch.Tensor { return g.MulScalar(100) })
	parts[0].Add(parts[1]).Backward()
	expect(t, x.Grad(), "tensor([  2., 200.])")
}

// forgetful has no gradient for its first input.
type forgetful struct{}

func (forgetful) Forward(_ *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{in[0].Clone(), in[1].Clone()}
}

func (forgetful) Backward(_ *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{{}, grads[1]}
}

func TestHookMistakes(t *testing.T) {
	mustFail(t, gotorch.RuntimeError, "cannot register a hook on a tensor that doesn't require gradient", func() {
		floats(1).RegisterHook(func(g gotorch.Tensor) gotorch.Tensor { return g })
	})
	mustFail(t, gotorch.RuntimeError, "post accumulate grad hooks cannot be registered on non-leaf tensors", func() {
		leaf(1).MulScalar(2).RegisterPostAccumulateGradHook(func(gotorch.Tensor) {})
	})
	backward := func(hook func(gotorch.Tensor) gotorch.Tensor) func() {
		return func() {
			x := leaf(1, 2, 3)
			x.RegisterHook(hook)
			x.Mul(x).Sum().Backward()
		}
	}
	mustFail(t, gotorch.RuntimeError, "has changed the size of value", backward(func(gotorch.Tensor) gotorch.Tensor { return floats(1, 1) }))
	mustFail(t, gotorch.RuntimeError, "has changed the type of value", backward(func(g gotorch.Tensor) gotorch.Tensor { return g.To(gotorch.Float64) }))
	mustFail(t, gotorch.ValueError, "used after Close", backward(func(g gotorch.Tensor) gotorch.Tensor { g.Close(); return g }))
}

func TestPanicInAHookComesOutOfBackward(t *testing.T) {
	problem := errors.New("the battery is empty")
	x := leaf(1)
	x.RegisterHook(func(gotorch.Tensor) gotorch.Tensor { panic(problem) })
	e := mustFail(t, gotorch.RuntimeError, "in a hook: the battery is empty", func() { x.Mul(x).Backward() })
	if e.Op != "Backward" || !errors.Is(e, problem) {
		t.Errorf("%v does not wrap the panic", e)
	}
	var p *gotorch.CallbackPanic
	if !errors.As(e, &p) || p.Value != problem || !strings.Contains(string(p.Stack), "TestPanicInAHookComesOutOfBackward") {
		t.Errorf("the panic is %v", p)
	}

	// An *Error keeps its kind.
	y := leaf(1)
	y.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor { return g.Index(gotorch.At(7)) })
	e = mustFail(t, gotorch.IndexError, "in a hook: ", func() { y.Mul(y).Backward() })
	if !errors.Is(e, gotorch.IndexError) {
		t.Error(e)
	}
	// The graph's own state is as it was.
	z := leaf(3)
	z.Mul(z).Backward()
	expect(t, z.Grad(), "tensor([6.])")
}

func TestPanicsInCallbacksAreForgotten(t *testing.T) {
	for range 100 {
		x := leaf(1)
		x.RegisterHook(func(gotorch.Tensor) gotorch.Tensor { panic("no") })
		mustFail(t, gotorch.RuntimeError, "no", func() { x.Mul(x).Backward() })
	}
	eventually(t, "panics are remembered", func() bool { return gotorch.Causes() == 0 })
}

func TestHooksLeaveNothing(t *testing.T) {
	leavesNothing(t, func() {
		for range 100 {
			// Not leaf: a small tensor that comes to require grad later may share its fate with weight.
			x := onesThatRequireGrad(2)
			weight := floats(3, 4)
			x.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor { return g.Mul(weight) })
			x.RegisterPostAccumulateGradHook(func(x gotorch.Tensor) { x.Grad().Mul_(weight) })
			y := x.Mul(x)
			y.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor { return g.Mul(weight) }).Remove()
			y.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor { return g.Add(weight) })
			y.Sum().Backward()
			x.Mul(x) // a graph that is never run
		}
	})
}

func TestHookCanBeRemovedInEveryStep(t *testing.T) {
	x := leaf(1)
	before := gotorch.Lent()
	for range 200 {
		h := x.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor { return g })
		x.Mul(x).Backward()
		h.Remove()
	}
	if now := gotorch.Lent(); now > before {
		t.Errorf("%d hooks are left", now-before)
	}
}

func TestHookMayRunABackwardPassOfItsOwn(t *testing.T) {
	x, y := leaf(2), leaf(3)
	x.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor {
		gotorch.EnableGrad(func() { y.Mul(y).Backward() })
		return g.Add(y.Grad())
	})
	x.Mul(x).Backward()
	expect(t, x.Grad(), "tensor([10.])")
}

// Python calls a hook with None where the tensor's node runs without a gradient for the tensor.
func TestHooksSeeNoneWhereNoGradientArrives(t *testing.T) {
	var seen []string
	see := func(name string, result gotorch.Tensor) func(gotorch.Tensor) gotorch.Tensor {
		return func(g gotorch.Tensor) gotorch.Tensor {
			text := "none"
			if g.T != nil {
				text = g.String()
			}
			seen = append(seen, name+" "+text)
			return result
		}
	}
	x := leaf(1, 2)
	parts := x.MulScalar(1).Unbind()
	parts[0].RegisterHook(see("a", gotorch.Tensor{}))
	parts[1].RegisterHook(see("b", gotorch.Tensor{}))
	parts[0].Backward()
	if got := strings.Join(seen, ", "); got != "a tensor(1.), b none" {
		t.Errorf("hooks saw %s", got)
	}
	expect(t, x.Grad(), "tensor([1., 0.])")

	a, b, calls := leaf(1), leaf(2), 0
	a.RegisterHook(see("leaf", gotorch.Tensor{}))
	a.RegisterPostAccumulateGradHook(func(gotorch.Tensor) { calls++ })
	out := gotorch.Apply(forgetful{}, a, b)
	out[0].Add(out[1]).Backward()
	if seen[len(seen)-1] != "leaf none" || calls != 1 || a.Grad().Defined() {
		t.Errorf("hooks saw %q, %d calls after it, gradient %v", seen, calls, a.Grad())
	}
	expect(t, b.Grad(), "tensor([1.])")

	parts = x.MulScalar(1).Unbind()
	parts[1].RegisterHook(see("b", gotorch.Ones(nil)))
	mustFail(t, gotorch.RuntimeError, "can't replace a None gradient with a non-None value", func() { parts[0].Backward() })
}

func TestDeepRecursionOfBackwardInHooks(t *testing.T) {
	// Beyond a depth of 60 libtorch goes on in threads of its own, which then call Go.
	var nest func(depth int)
	nest = func(depth int) {
		x := leaf(1)
		x.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor {
			if depth < 100 {
				gotorch.EnableGrad(func() { nest(depth + 1) })
			}
			return g
		})
		x.Mul(x).Backward()
	}
	nest(0)
}

// There must be one engine in the process, also where a pass ran before anomalies were detected:
// libtorch starts the threads for deep recursion for the first engine only.
func TestDeepRecursionAfterDetectingAnomalies(t *testing.T) {
	leaf(1).Mul(leaf(1)).Backward()
	gotorch.DetectAnomaly(func() {})
	TestDeepRecursionOfBackwardInHooks(t)
}

func TestDeepGraphsAreFreed(t *testing.T) {
	x := leaf(1)
	y := x
	n := 100_000
	if testing.Short() {
		n = 10_000
	}
	for range n {
		y = y.AddScalar(1)
	}
	y.Backward()
	expect(t, x.Grad(), "tensor([1.])")
}

func TestBackwardInManyGoroutines(t *testing.T) {
	shared := leaf(1, 2, 3)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			w := leaf(float32(i), 1, 1)
			w.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor {
				runtime.Gosched()
				return g.MulScalar(2)
			})
			for range 200 {
				g := gotorch.Grad([]gotorch.Tensor{w.Mul(shared).Mul(w).Sum()}, []gotorch.Tensor{w, shared})
				if got, want := g[0].String(), fmt.Sprint(w.Detach().Mul(shared.Detach()).MulScalar(4)); got != want {
					t.Errorf("got %s, want %s", got, want)
					return
				}
				gotorch.Apply(square{}, w)[0].Sum().Backward()
				w.SetGrad(gotorch.Tensor{})
			}
		})
	}
	wg.Wait()
}

func TestGoroutinesSharingAGraph(t *testing.T) {
	x := leaf(1, 2)
	y := gotorch.Apply(square{}, x)[0].Sum()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				g := gotorch.Grad([]gotorch.Tensor{y}, []gotorch.Tensor{x}, gotorch.GradOptions{RetainGraph: new(true)})
				if s := g[0].String(); s != "tensor([2., 4.])" {
					t.Error(s)
				}
			}
		})
	}
	wg.Wait()
}

func TestBackwardInAScope(t *testing.T) {
	x := leaf(1, 2)
	x.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor { return g.MulScalar(3) })
	for range 3 {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			x.SetGrad(gotorch.Tensor{})
			gotorch.Apply(square{}, x)[0].Sum().Backward()
		})
		expect(t, x.Grad(), "tensor([ 6., 12.])")
	}
}

func ExampleTensor_Backward() {
	w := gotorch.FromSlice([]float32{3, 4}).RequiresGrad_()
	loss := w.Mul(w).Sum()
	loss.Backward()
	fmt.Println(w.Grad())
	// Output: tensor([6., 8.])
}

func ExampleGrad() {
	x := gotorch.FromSlice([]float64{2}).RequiresGrad_()
	inputs := []gotorch.Tensor{x}
	first := gotorch.Grad([]gotorch.Tensor{x.Pow(3)}, inputs, gotorch.GradOptions{CreateGraph: true})
	second := gotorch.Grad(first, inputs)
	fmt.Println(gotorch.Item[float64](first[0]), gotorch.Item[float64](second[0]))
	// Output: 12 12
}

func ExampleTensor_RegisterHook() {
	x := gotorch.FromSlice([]float32{1, -2}).RequiresGrad_()
	x.RegisterHook(func(grad gotorch.Tensor) gotorch.Tensor { return grad.Clamp(gotorch.ClampOptions{Max: 3}) })
	x.Mul(x).MulScalar(2).Sum().Backward()
	fmt.Println(x.Grad())
	// Output: tensor([ 3., -8.])
}
